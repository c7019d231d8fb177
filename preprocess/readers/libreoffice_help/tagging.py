"""Task ui: tags of words that name user interface elements, keys and code, from the markup of the pages."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fairseq_xl.io.files import replacing
from preprocess.config import SPLITS
from preprocess.readers.libreoffice_help.page import CELL, TEXT, UI, UNCLEAR, Mark
from preprocess.readers.libreoffice_help.tasks import Item, Kinds, available, labeled_path, shuffled
from preprocess.readers.splitting import Documents
from preprocess.readers.text import WIDE, letters_and_digits

WORDS = 5, 60  # minimum and maximum number of words of an English paragraph
OUTSIDE = "O"
UNSPACED = {"ja", "zh"}  # languages in which each Chinese character, kana and wide sign is a word
WORD = re.compile(r"\S+")
UNSPACED_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")
#: English names of keys, in lower case: where they are emphasized, types UI and KEY cannot be told apart
KEYS = set(
    "alt arrow backspace command ctrl del down end enter esc escape home left option page return right shift space "
    "spacebar tab up".split()
) | {f"f{i}" for i in range(1, 13)}

Marks = dict[str, dict[str, list[Mark]]]  # page -> id -> marks of the paragraph


def plan(english: Documents, kinds: Kinds, marks: Marks, splits: dict[str, str]) -> list[Item]:
    """Selects the paragraphs: running text and cells of pages with marked text.

    Args:
        english: English pages, without text that two splits share.
        kinds: kinds of their paragraphs.
        marks: their marks.
        splits: the split of each page.

    A paragraph whose markup is unclear is left out. The label of an item has the types of its spans, in order.
    """

    def split_items(split: str) -> Iterator[Item]:
        for page in sorted(name for name in english if splits[name] == split and any(marks[name].values())):
            for identity, text in english[page].items():
                if kinds[page][identity] in (TEXT, CELL) and WORDS[0] <= len(text.split()) <= WORDS[1]:
                    paragraph_marks = marks[page][identity]
                    tagged = tags(text, paragraph_marks, "en")
                    if tagged and not any(_is_key(text, mark) for mark in paragraph_marks):
                        yield Item(split, (((page, identity),),), _spans(tagged))

    return [item for split in SPLITS for item in shuffled(split_items(split))]


def write(folder: Path, code: str, items: list[Item], text: Documents, marks: Marks) -> dict[str, dict[str, int]]:
    """Writes a language's sentences with a word and its tag on a line, and the item of each sentence.

    Args:
        folder: the corpus folder.
        code: the language.
        items: the result of `plan`.
        text: the language's pages, without text that two splits share.
        marks: their marks.

    A paragraph with other types of spans than the English one is left out, and so is repeated text. Returns for each
    file its lines, and for those with tags the sentences, the words, and the spans of each type.
    """
    counts = {}
    for split in SPLITS:
        rows, names, seen = [], [], set()
        for item, (paragraph,) in available(items, split, text):
            ((page, identity),) = item.texts[0]
            tagged, key = tags(paragraph, marks[page][identity], code), letters_and_digits(paragraph)
            if tagged and _spans(tagged) == item.label and key not in seen:
                seen.add(key)
                rows.append(tagged)
                names.append(f"{page}#{identity}")
        path, ids = _paths(split, code)
        with replacing(folder / path, make_folder=True) as file:
            for row in rows:
                file.write("".join(f"{word}\t{tag}\n" for word, tag in row).encode() + b"\n")
        with replacing(folder / ids, make_folder=True) as file:
            file.writelines(f"{name}\n".encode() for name in names)
        spans = Counter(tag[2:] for row in rows for _, tag in row if tag.startswith("B-"))
        words = sum(map(len, rows))
        counts[path] = {"lines": words + len(rows), "sentences": len(rows), "words": words}
        counts[path] |= {f"spans {kind}": count for kind, count in sorted(spans.items())}
        counts[ids] = {"lines": len(names)}
    return counts


def outputs(code: str) -> list[str]:
    """Lists the paths in the corpus folder of all files of `write`."""
    return [path for split in SPLITS for path in _paths(split, code)]


def tags(text: str, marks: list[Mark], code: str) -> list[tuple[str, str]]:
    """Returns the words of a paragraph, each with its tag; none if a mark is unclear or has no word.

    A word is in a mark if the mark has at least half of the word's letters and digits. Words end at white space. In
    Chinese and Japanese each Chinese character, kana and wide sign is a word.
    """
    pattern = UNSPACED_WORD if code in UNSPACED else WORD
    tagged, begun = [], set()
    for match in pattern.finditer(text):
        letters = [i for i in range(*match.span()) if text[i].isalnum()] or list(range(*match.span()))
        held = [sum(mark.start <= i < mark.end for i in letters) for mark in marks]
        mark = max(range(len(marks)), key=held.__getitem__, default=None)
        tag = OUTSIDE
        if mark is not None and 2 * held[mark] >= len(letters):
            tag = f"{'I' if mark in begun else 'B'}-{marks[mark].kind}"
            begun.add(mark)
        tagged.append((match[0], tag))
    unclear = any(mark.kind == UNCLEAR for mark in marks)
    return [] if unclear or len(begun) < len(marks) else tagged


def _spans(tagged: list[tuple[str, str]]) -> str:
    return " ".join(sorted(tag[2:] for _, tag in tagged if tag.startswith("B-")))


def _is_key(text: str, mark: Mark) -> bool:
    """Tells whether an English mark of the type UI has only names of keys, such as "Shift+F1"."""
    return mark.kind == UI and set(re.findall(r"\w+", text[mark.start : mark.end].lower())) <= KEYS


def _paths(split: str, code: str) -> tuple[str, str]:
    return labeled_path("ui", split, code), labeled_path("ui", split, code, "ids")
