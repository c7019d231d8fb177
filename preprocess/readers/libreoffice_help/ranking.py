"""Task wpr: an index entry as query, title and first paragraph of pages as texts to rank."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.io.files import replacing
from preprocess.config import SPLITS
from preprocess.readers.libreoffice_help.page import TEXT
from preprocess.readers.libreoffice_help.tasks import (
    Item,
    Kinds,
    ParagraphId,
    available,
    hashed,
    labeled_path,
    shuffled,
)
from preprocess.readers.splitting import Documents
from preprocess.readers.text import letters_and_digits

PARAGRAPH = 5  # minimum number of English words of a first paragraph
WRONG = 3  # wrong pages of a query
WORD = re.compile(r"\w+")


def plan(english: Documents, kinds: Kinds, splits: dict[str, str]) -> list[Item]:
    """Selects the items: an entry of the index, title and first paragraph of its page, and those of wrong pages.

    Args:
        english: English pages, without text that two splits share: the result of `questions.with_entries`.
        kinds: kinds of their paragraphs.
        splits: the split of each page.

    The wrong pages are the three of the same application and split whose English words have the highest Jaccard
    similarity to those of the right page. Entries that occur more than once are left out, so that an entry has one
    right page.
    """
    occurring = Counter(
        letters_and_digits(text) for texts in english.values() for name, text in texts.items() if "@" in name
    )

    def split_items(split: str) -> Iterator[Item]:
        shown = defaultdict(list)
        for page in sorted(name for name in english if splits[name] == split):
            if paragraphs := _shown(page, english[page], kinds[page]):
                shown[page.split("/")[0]].append(paragraphs)
        for pages in shown.values():
            words = {paragraphs: _words(paragraphs, english) for paragraphs in pages}
            for right in pages:
                page = right[0][0]
                entries = [name for name, text in english[page].items() if "@" in name and _once(text, occurring)]
                near = sorted(pages, key=lambda texts: (-_jaccard(words[right], words[texts]), hashed((right, texts))))
                wrong = [paragraphs for paragraphs in near if paragraphs != right][:WRONG]
                if len(wrong) == WRONG:
                    candidates = tuple((paragraph,) for paragraphs in (right, *wrong) for paragraph in paragraphs)
                    yield from (Item(split, (((page, entry),), *candidates)) for entry in entries)

    return [item for split in SPLITS for item in shuffled(split_items(split))]


def write(folder: Path, code: str, items: list[Item], text: Documents) -> dict[str, dict[str, int]]:
    """Writes a language's lines ``relevance TAB entry TAB title TAB paragraph``; relevance is 1 for the entry's page.

    Args:
        folder: the corpus folder.
        code: the language.
        items: the result of `plan`.
        text: the language's pages, without text that two splits share: the result of `questions.with_entries`.

    The lines of an entry are in a random order. An entry that occurs more than once in the language is left out.
    Returns the lines and queries of each file.
    """
    counts = {}
    for split in SPLITS:
        rows_of_texts = [texts for _, texts in available(items, split, text)]
        occurring, rows = Counter(letters_and_digits(texts[0]) for texts in rows_of_texts), []
        for entry, *shown in rows_of_texts:
            if _once(entry, occurring):
                pages = [(int(i == 0), *shown[i : i + 2]) for i in range(0, len(shown), 2)]
                pages.sort(key=lambda page: hashed((entry, page[1:])))
                rows += [f"{relevance}\t{entry}\t{title}\t{first}\n" for relevance, title, first in pages]
        path = labeled_path("wpr", split, code)
        with replacing(folder / path, make_folder=True) as file:
            file.writelines(row.encode() for row in rows)
        counts[path] = {"lines": len(rows), "queries": len(rows) // (1 + WRONG)}
    return counts


def outputs(code: str) -> list[str]:
    """Lists the paths in the corpus folder of all files of `write`."""
    return [labeled_path("wpr", split, code) for split in SPLITS]


def _shown(page: str, texts: dict[str, str], kinds: dict[str, str]) -> tuple[ParagraphId, ...]:
    """Returns the title and the first paragraph of a page; none if it lacks one of them."""
    title = next((name for name in texts if kinds.get(name) == "h1"), None)
    fitting = (name for name in texts if kinds.get(name) == TEXT and len(texts[name].split()) >= PARAGRAPH)
    first = next(fitting, None)
    return ((page, title), (page, first)) if title and first else ()


def _words(paragraphs: tuple[ParagraphId, ...], english: Documents) -> set[str]:
    return {word for page, name in paragraphs for word in WORD.findall(english[page][name].lower())}


def _jaccard(first: set[str], second: set[str]) -> float:
    return len(first & second) / len(first | second)


def _once(text: str, occurring: Counter[str]) -> bool:
    return occurring[letters_and_digits(text)] == 1
