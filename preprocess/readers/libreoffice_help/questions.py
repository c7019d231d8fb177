"""Task qa: a heading or an index entry as question, its paragraph as answer, paragraphs of the page as context."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.io.files import replacing
from preprocess.config import SPLITS
from preprocess.readers.libreoffice_help.page import TEXT
from preprocess.readers.libreoffice_help.tasks import (
    SAME_HEADING,
    Item,
    Kinds,
    available,
    hashed,
    headed,
    labeled_path,
    shuffled,
)
from preprocess.readers.splitting import Documents
from preprocess.readers.text import letters_and_digits

ANSWER = 5, 60  # minimum and maximum number of English words of an answer
CONTEXT = 100, 300  # minimum and maximum number of English words of a context
PARAGRAPHS = 4  # minimum number of paragraphs of a context
WORD = re.compile(r"\w+")
COMMA = re.compile(r",\s*")

Entries = dict[str, dict[str, list[str]]]  # page -> id of a paragraph -> index entries that lead to it


def with_entries(texts: Documents, entries: Entries) -> Documents:
    """Adds each index entry to its page as a text; its id is the id of its paragraph, "@" and a number.

    Empty entries, and those of paragraphs that are not in the pages, are left out.
    """
    return {
        page: paragraphs
        | {
            f"{identity}@{i}": COMMA.sub(", ", entry)
            for identity, page_entries in entries.get(page, {}).items()
            for i, entry in enumerate(page_entries)
            if entry and identity in paragraphs
        }
        for page, paragraphs in texts.items()
    }


def plan(english: Documents, kinds: Kinds, splits: dict[str, str]) -> list[Item]:
    """Selects question, answer and context of each item.

    Args:
        english: English pages, without text that two splits share: the result of `with_entries`.
        kinds: kinds of their paragraphs.
        splits: the split of each page.

    The question is a heading, or the first of its index entries without a word of the heading; the answer is the
    paragraph beneath. Questions that occur often, or more than once on a page, are left out.
    """
    asked = {page: list(_asked(texts, kinds[page])) for page, texts in english.items()}
    keys = {page: [letters_and_digits(english[page][question]) for question, _ in asked[page]] for page in english}
    key_counts = Counter(key for page_keys in keys.values() for key in page_keys)

    def split_items(split: str) -> Iterator[Item]:
        for page in sorted(name for name in english if splits[name] == split):
            for (question, answer), key in zip(asked[page], keys[page]):
                if key_counts[key] <= SAME_HEADING and keys[page].count(key) == 1:
                    if context := _context(page, question, answer, english[page], kinds[page]):
                        yield Item(split, (((page, question),), ((page, answer),), context))

    return [item for split in SPLITS for item in shuffled(split_items(split))]


def write(folder: Path, code: str, items: list[Item], text: Documents) -> dict[str, dict[str, int]]:
    """Writes a language's questions in SQuAD's format; the id of a question is the same in all languages.

    Args:
        folder: the corpus folder.
        code: the language.
        items: the result of `plan`.
        text: the language's pages, without text that two splits share: the result of `with_entries`.

    An item is left out if its answer occurs more than once in the context. Returns the question count of each file.
    """
    counts = {}
    for split in SPLITS:
        articles = []
        for item, (question, answer, _) in available(items, split, text):
            ((page, identity),) = item.texts[0]
            context = "\n".join(text[page][paragraph] for _, paragraph in item.texts[2])
            if context.count(answer) == 1:
                answers = [{"text": answer, "answer_start": context.index(answer)}]
                asked = {"id": f"{page}#{identity}", "question": question, "answers": answers}
                articles.append({"title": page, "paragraphs": [{"context": context, "qas": [asked]}]})
        path = labeled_path("qa", split, code, "json")
        with replacing(folder / path, make_folder=True) as file:
            file.write(json.dumps({"data": articles}, ensure_ascii=False, indent=1).encode() + b"\n")
        counts[path] = {"questions": len(articles)}
    return counts


def outputs(code: str) -> list[str]:
    """Lists the paths in the corpus folder of all files of `write`."""
    return [labeled_path("qa", split, code, "json") for split in SPLITS]


def _asked(texts: dict[str, str], kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the ids of the questions of a page, each with that of its answer."""
    entries = defaultdict(list)
    for identity in texts:
        entries[identity.partition("@")[0]] += [identity] if "@" in identity else []
    for heading, paragraph in headed(texts, kinds):
        yield heading, paragraph
        words = set(WORD.findall(texts[heading].lower()))
        yield from [
            (entry, paragraph) for entry in entries[heading] if not words & set(WORD.findall(texts[entry].lower()))
        ][:1]


def _context(
    page: str, question: str, answer: str, texts: dict[str, str], kinds: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    """Returns paragraphs around the answer, without headings; none if there are too few, or the answer is always first.

    A hash selects one of all runs of paragraphs of the right length, so that the answer may be in any position.
    """
    run = [identity for identity in texts if kinds.get(identity) == TEXT]
    sizes = [len(texts[identity].split()) for identity in run]
    position = run.index(answer)
    runs = [
        (start, end)
        for start in range(position + 1)
        for end in range(max(position + 1, start + PARAGRAPHS), len(run) + 1)
        if CONTEXT[0] <= sum(sizes[start:end]) <= CONTEXT[1]
    ]
    if not ANSWER[0] <= sizes[position] <= ANSWER[1] or all(start == position for start, _ in runs):
        return ()
    start, end = runs[int(hashed((page, question)), 16) % len(runs)]
    return tuple((page, identity) for identity in run[start:end])
