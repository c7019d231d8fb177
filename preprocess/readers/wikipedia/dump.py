"""Reads the articles of a dump in MediaWiki's export format, and converts them to text with wikiextractor."""

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from fairseq_xl.errors import UserError
from preprocess.files import Workers
from preprocess.readers.wikipedia.files import opened

BATCH = 1 << 20  # characters of wikitext that a worker process gets at a time

Article = tuple[str, str]  # id of the page, wikitext


def wikiextractor_version() -> str:
    """Returns the version of wikiextractor; raises UserError if it is missing, or older than 3.1 on Python 3.11."""
    try:
        import wikiextractor.clean  # noqa: F401
    except (ImportError, re.error) as error:
        raise UserError(
            "dumps are read with wikiextractor 3.1 or newer, which is not installed: pip install 'wikiextractor>=3.1', "
            "or give its output instead"
        ) from error
    return importlib.metadata.version("wikiextractor")


def articles(path: Path) -> Iterator[Article]:
    """Yields the articles of a dump: the last revisions of wikitext pages in the main namespace, without redirects.

    One page at a time is in memory. Raises UserError if the file is damaged.
    """
    with opened(path) as file:
        events = ElementTree.iterparse(file, events=("start", "end"))
        _, root = next(events)
        for event, element in events:
            if event == "end" and element.tag.rpartition("}")[2] == "page":
                if article := _article(element):
                    yield article
                root.clear()


def _article(page: ElementTree.Element) -> Article | None:
    if page.findtext("{*}ns", "0") != "0" or page.find("{*}redirect") is not None:
        return None
    revision = page.findall("{*}revision")[-1:]
    if not revision or revision[0].findtext("{*}model", "wikitext") != "wikitext":
        return None
    text = revision[0].findtext("{*}text")
    return (page.findtext("{*}id", ""), text) if text else None


def paragraphs(path: Path, workers: int) -> Iterator[tuple[str, list[str] | None]]:
    """Yields (id, paragraphs) of the articles in order; paragraphs are None if wikiextractor fails."""
    with Workers(workers) as pool:
        for batch in pool.map(_clean, _batches(articles(path))):
            yield from batch


def _batches(articles: Iterator[Article]) -> Iterator[list[Article]]:
    batch, size = [], 0
    for article in articles:
        batch.append(article)
        size += len(article[1])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _clean(batch: list[Article]) -> list[tuple[str, list[str] | None]]:
    from wikiextractor.clean import clean_markup

    cleaned: list[tuple[str, list[str] | None]] = []
    for identity, wikitext in batch:
        try:  # it expects text with the entities of XML
            cleaned.append((identity, list(clean_markup(escape(wikitext, {'"': "&quot;"})))))
        except Exception:  # of any kind: an article must not end the work on a million others
            cleaned.append((identity, None))
    return cleaned
