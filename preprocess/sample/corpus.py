"""Writes the sample corpus into a folder: monolingual text, bitext and three tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fairseq_xl.io import bounds
from preprocess.sample.generator import documents, realize
from preprocess.sample.lexicon import LANGUAGES
from preprocess.sample.syntax import Document, Sentence

EVALUATION = {"valid": 60, "test": 120}
FORM_SENTENCES = {"train": 600, "valid": 20, "test": 36}  # maximum number of sentences of each form in the task `form`


def plan(count: int, seed: int) -> tuple[dict[str, list[Document]], dict[str, list[Document]]]:
    """Returns ({split: documents in all languages}, {language: documents of monolingual training text}).

    Args:
        count: training documents of the bitext, and of each language's monolingual text.
        seed: any integer; the result is a pure function of both arguments.
    """
    seen = set()
    parallel = {
        split: list(documents(seed, split, "bitext", size, seen))
        for split, size in {**EVALUATION, "train": count}.items()
    }
    alone = {language: list(documents(seed, "train", language, count, seen)) for language in LANGUAGES}
    return parallel, alone


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _blocks(bodies: Iterable[list[str]]) -> list[str]:
    """Returns the lines of documents, with an empty line between two of them."""
    return "\n\n".join("\n".join(body) for body in bodies).split("\n")


def write(destination: str | Path, count: int = 2400, seed: int = 1) -> None:
    """Writes the corpus; see README.md for the layout.

    Args:
        destination: a folder; existing files of the corpus are replaced.
        count: training documents of the bitext.
        seed: as in `plan`.

    Raises:
        ValueError: count is not from 1 to `bounds.MOST_DOCUMENTS`.
        OSError: no folder can be created at `destination`.
    """
    if not 1 <= count <= bounds.MOST_DOCUMENTS:
        raise ValueError(f"--documents must be from 1 to {bounds.MOST_DOCUMENTS}, found {count}")
    root = Path(destination)
    root.mkdir(parents=True, exist_ok=True)  # fails before documents are generated, which takes most of the time
    parallel, alone = plan(count, seed)
    for split, items in parallel.items():
        texts = {language: [realize(item, language) for item in items] for language in LANGUAGES}
        bodies = {language: [body for _, body in texts[language]] for language in LANGUAGES}
        topics = [item.topic for item in items]
        for language in LANGUAGES:
            extra = [realize(item, language)[1] for item in alone[language]] if split == "train" else []
            _write(root / "mono" / f"{split}.{language}", _blocks(bodies[language] + extra))
            if language != "en":
                for side in ("en", language):
                    _write(root / "bitext" / f"{split}.en-{language}.{side}", _blocks(bodies[side]))
            _write_tasks(root / "tasks", split, language, topics, texts[language])
            if split != "train" or language == "en":
                _write(root / "tasks" / "form" / f"{split}.{language}.tsv", _forms(items, bodies[language], split))


def _form(sentence: Sentence) -> str:
    """Returns the form: a question, two joined clauses, a negated clause or a plain one."""
    if sentence.question:
        return "question"
    return "joined" if sentence.joiner else "negated" if sentence.first.negated else "plain"


def _forms(items: Iterable[Document], bodies: Iterable[list[str]], split: str) -> list[str]:
    """Returns lines ``form TAB sentence`` of the first sentences of each form."""
    lines = defaultdict(list)
    for item, body in zip(items, bodies):
        for sentence, text in zip(item.sentences, body):
            lines[_form(sentence)].append(f"{_form(sentence)}\t{text}")
    return [line for form in sorted(lines) for line in lines[form][: FORM_SENTENCES[split]]]


def _write_tasks(root: Path, split: str, language: str, topics: list[str], texts: list[tuple[str, list[str]]]) -> None:
    passages = [" ".join(body) for _, body in texts]
    translated = split == "train" and language != "en"
    folder = root / "nc" / "translate_train" if translated else root / "nc"
    _write(folder / f"{split}.{language}.tsv", [f"{topic}\t{text}" for topic, text in zip(topics, passages)])
    _write(root / "ntg" / f"{split}.{language}.src", passages)
    _write(root / "ntg" / f"{split}.{language}.tgt", [title for title, _ in texts])
