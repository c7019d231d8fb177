"""Writes a corpus folder with the monolingual text of each language."""

import hashlib
import heapq
import html
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.io.versions import version
from preprocess import sentences
from preprocess.readers.folder import describe, mono_path
from preprocess.readers.text import has_letter, one_line
from preprocess.readers.wikipedia import dump, extracted
from preprocess.readers.wikipedia.files import DUMP, TAGGED, files_of, kind_of
from preprocess.stages import Stages, key_of, locked

LARGEST_SHARE = 10  # at most a tenth of the documents is for validation
SPLITS = ("train", "valid")

logger = logging.getLogger("preprocess")


def build(
    folder: Path, sources: dict[str, list[Path]], held_out: int, workers: int, into_sentences: bool = False
) -> None:
    """Writes the corpus folder.

    Args:
        folder: folder to write; a language that is up to date is skipped.
        sources: for each language, dumps, output files of wikiextractor, or folders of such files.
        held_out: documents for validation in each language; a small language has fewer.
        workers: processes that convert wikitext to text.
        into_sentences: whether paragraphs are split into sentences.

    Raises UserError for errors that the user can correct.
    """
    files = {language: [file for path in paths for file in files_of(path)] for language, paths in sources.items()}
    kinds = {path: kind_of(path) for paths in files.values() for path in paths}
    wikiextractor = dump.wikiextractor_version() if DUMP in kinds.values() else None
    splitters = {language: sentences.splitter(language) if into_sentences else None for language in files}
    divided_by = {sentences.PACKAGE: version(sentences.PACKAGE)} if into_sentences else {}
    stages = Stages(folder, "corpus")
    with locked(stages):
        counts, hashes = {}, {}
        for language, paths in files.items():
            hashes[language] = key_of([sha256_of(path) for path in paths])
            outputs = [folder / mono_path(split, language) for split in SPLITS]
            counts[language] = stages.run(
                f"text {language}",
                {
                    "held_out": held_out,
                    "files": hashes[language],
                    "wikiextractor": wikiextractor if DUMP in map(kinds.get, paths) else None,
                }
                | divided_by,
                outputs,
                lambda: _write(
                    outputs, language, [(path, kinds[path]) for path in paths], held_out, workers, splitters[language]
                ),
            )
        manifest = {"counts": counts, "sources": hashes, "wikiextractor": wikiextractor} | divided_by
        stages.finish(manifest, lambda: describe(folder, list(files), []))


def _write(
    outputs: list[Path],
    language: str,
    files: list[tuple[Path, str]],
    held_out: int,
    workers: int,
    sentences_of: Callable[[str], list[str]] | None,
) -> dict:
    """Writes a language's documents, separated by empty lines; counts documents, lines and words of each split."""
    counts = {split: {"documents": 0, "lines": 0, "words": 0} for split in SPLITS}
    failed = []
    with replacing(outputs[0], make_folder=True) as train, replacing(outputs[1], make_folder=True) as valid:
        documents = tqdm(_documents(files, workers, failed), desc=language, unit=" documents", disable=None)
        for split, lines in divided(documents, held_out):
            count, file = counts[split], train if split == "train" else valid
            if sentences_of:
                lines = [sentence for line in lines for sentence in sentences_of(line)]
            text = "".join(f"{line}\n" for line in lines)
            file.write((f"\n{text}" if count["documents"] else text).encode())
            count["documents"] += 1
            count["lines"] += len(lines)
            count["words"] += len(text.split())
    if failed:
        logger.warning("%s: wikiextractor failed at %d articles, which are left out", language, len(failed))
    if not counts["valid"]["documents"]:
        sentence = "%s: no validation text, which is at most a tenth of %d documents: corpus.yaml names none"
        logger.warning(sentence, language, counts["train"]["documents"])
    return counts | {"failed": len(failed)}


def _documents(files: list[tuple[Path, str]], workers: int, failed: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields (id, lines) of documents with text; appends ids of articles on which wikiextractor fails to `failed`."""
    for path, kind in files:
        if kind == DUMP:
            documents = dump.paragraphs(path, workers)
        else:
            documents = extracted.tagged(path) if kind == TAGGED else extracted.json_lines(path)
        for identity, paragraphs in documents:
            if paragraphs is None:
                failed.append(identity)
                continue
            lines = [one_line(html.unescape(paragraph)) for paragraph in paragraphs]
            if lines := [line for line in lines if has_letter(line)]:
                yield identity, lines


def divided(documents: Iterable[tuple[str, list[str]]], held_out: int) -> Iterator[tuple[str, list[str]]]:
    """Yields (split, lines) of each document; the ids of validation documents have the smallest hashes.

    Most of them are the same in a later dump. At most `held_out` + 1 documents are in memory.
    """
    smallest, total = [], 0
    for identity, lines in documents:
        total += 1
        key = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big")
        heapq.heappush(smallest, (-key, identity, lines))
        if len(smallest) > held_out:
            yield "train", heapq.heappop(smallest)[2]
    for i, (_, _, lines) in enumerate(sorted(smallest, reverse=True)):
        yield "valid" if i < min(held_out, total // LARGEST_SHARE) else "train", lines
