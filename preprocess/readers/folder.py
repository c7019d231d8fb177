"""Writes corpus folders: mono/SPLIT.XX, bitext/SPLIT.en-XX.{en,XX}, and the description corpus.yaml."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl.io.files import replacing
from preprocess.config import SPLITS

SMALL, LARGE = 8000, 32000  # pieces for at most FEW languages, and for more
FEW = 4


def write_aligned(paths: Sequence[Path], documents: Iterable[Iterable[Sequence[str]]]) -> dict[str, int]:
    """Writes documents of aligned lines to one file per language, with an empty line between documents.

    Args:
        paths: a file for each language.
        documents: rows with a text for each language; documents without rows are left out.

    Returns the counts of documents, lines, and words on each side, separated by spaces.
    """
    counts = {"documents": 0, "lines": 0} | {f"words {path.name.rsplit('.', 1)[1]}": 0 for path in paths}
    columns = [[] for _ in paths]
    for document in documents:
        rows = list(document)
        if not rows:
            continue
        counts["documents"] += 1
        counts["lines"] += len(rows)
        for path, column, texts in zip(paths, columns, zip(*rows)):
            column += [*([""] if column else []), *texts]
            counts[f"words {path.name.rsplit('.', 1)[1]}"] += sum(len(text.split()) for text in texts)
    for path, column in zip(paths, columns):
        with replacing(path, make_folder=True) as file:
            file.writelines(f"{line}\n".encode() for line in column)
    return counts


def mono_path(split: str, language: str) -> str:
    """Returns the path of monolingual text in a corpus folder."""
    return f"mono/{split}.{language}"


def bitext_path(split: str, pair: str) -> str:
    """Returns the path of bitext in a corpus folder, without the language's suffix."""
    return f"bitext/{split}.{pair}"


def describe(
    folder: Path, languages: Sequence[str], pairs: Sequence[str], clean: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """Writes corpus.yaml with every file of the folder that has text; only bitext has test sets.

    `clean` has the rules of pairs that leave out training text.

    A language without monolingual text gets its sides of the bitext: all for training, the first for validation.
    """

    def has_text(name: str) -> bool:
        return (folder / name).exists() and (folder / name).stat().st_size > 0

    bitext: dict[str, dict[str, Any]] = {}
    sides: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        names = {split: bitext_path(split, pair) for split in SPLITS}
        bitext[pair] = {split: name for split, name in names.items() if has_text(f"{name}.{pair.split('-')[0]}")}
        for language in pair.split("-"):
            for split, name in bitext[pair].items():
                sides.setdefault((language, split), []).append(f"{name}.{language}")
        if bitext[pair] and clean and pair in clean:
            bitext[pair]["clean"] = clean[pair]
    monolingual: dict[str, dict[str, Any]] = {}
    for language in languages:
        names = {split: mono_path(split, language) for split in SPLITS[:2]}
        monolingual[language] = {split: name for split, name in names.items() if has_text(name)} or {
            split: files
            for split, files in (
                ("train", sides.get((language, "train"))),
                ("valid", sides.get((language, "valid"), [])[:1]),
            )
            if files
        }
    description = {
        "languages": list(languages),
        "vocabulary": {"model": "unigram", "size": SMALL if len(languages) <= FEW else LARGE, "alpha": 0.5},
        "monolingual": {name: splits for name, splits in monolingual.items() if splits},
        "bitext": {name: splits for name, splits in bitext.items() if splits},
    }
    with replacing(folder / "corpus.yaml", make_folder=True) as file:
        file.write(
            yaml.safe_dump(
                {name: part for name, part in description.items() if part}, sort_keys=False, allow_unicode=True
            ).encode()
        )
