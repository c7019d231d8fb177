"""Reads OPUS corpora in Moses format.

    fairseq-xl data read opus corpora/books --pair en-de Books.zip Tatoeba.zip

A zip has one text file per language, NAME.de-en.de and NAME.de-en.en, aligned line by line, beside other files, and no
splits. A hash of their text selects the sentences for validation and test. With --documents a hash of their names
selects documents: those that NAME.de-en.ids or NAME.de-en.xml lists, or else runs of neighboring pairs.
"""

import hashlib
import heapq
import io
import itertools
import logging
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, check_number, language_pair
from fairseq_xl.io.compressed import lines_of
from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import sha256_of
from preprocess.commands import run
from preprocess.config import SPLITS
from preprocess.readers.aligned import Pairs
from preprocess.readers.archives import check_growth
from preprocess.readers.folder import bitext_path, describe
from preprocess.readers.text import letters_and_digits
from preprocess.stages import Stages, locked

LARGEST_SHARE = 10  # at most a tenth of the sentences is for validation, and as many for test
GROUP = re.compile(rb'<linkGrp\b[^>]*?fromDoc="([^"]*)"[^>]*|<link\b[^>]*?xtargets="([^"]*)"')

logger = logging.getLogger("preprocess")


def build(folder: Path, pair: str, archives: list[Path], held_out: int, documents: int = 0) -> None:
    """Writes the corpus folder.

    Args:
        folder: folder to write; a stage that is up to date is skipped.
        pair: language pair such as en-de, in either order.
        archives: zip files, read in this order.
        held_out: sentences for validation, and for test; a small corpus has fewer.
        documents: pairs of a document of an archive without a list of documents; 0: documents are not separated.

    Raises UserError for errors that the user can correct.
    """
    for path in archives:
        if not path.is_file():
            raise UserError(f"{path}: there is no such file")
    stages = Stages(folder, "corpus")
    with locked(stages):
        hashes = dict(zip(_names(archives), map(sha256_of, archives)))
        inputs = {"pair": pair, "held_out": held_out, "archives": list(hashes.values())}
        inputs |= {"documents": documents} if documents else {}
        outputs = [folder / f"{bitext_path(split, pair)}.{side}" for split in SPLITS for side in pair.split("-")]
        counts = stages.run(
            f"corpus {pair}", inputs, outputs, lambda: _write(folder, pair, archives, held_out, documents)
        )
        manifest = {"counts": counts, "archives": hashes}
        stages.finish(manifest, lambda: describe(folder, pair.split("-"), [pair]))


def _write(folder: Path, pair: str, archives: list[Path], held_out: int, documents: int) -> dict:
    """Selects validation and test pairs, and writes all splits; no training pair shares a side with a selected pair."""
    splits: dict[Any, str] = {}  # document, or both sides -> validation or test
    sides: tuple[set[str], set[str]] = (set(), set())  # text of each side in validation and test
    if documents:
        splits |= _draw_documents(pair, archives, held_out, documents)
        for path in archives:
            for first, second, document in _pairs(path, pair, documents, [], "draw"):
                if document in splits:
                    sides[0].add(letters_and_digits(first))
                    sides[1].add(letters_and_digits(second))
    else:
        splits |= {(first, second): split for first, _, split, second in _draw(pair, archives, held_out)}
        sides = {first for first, _ in splits}, {second for _, second in splits}
    counts, read = dict.fromkeys((*SPLITS, "left out"), 0), []
    previous, separated = {}, Counter()  # document of the last pair of each split; number of documents
    with ExitStack() as stack:
        files = {
            split: [
                stack.enter_context(replacing(folder / f"{bitext_path(split, pair)}.{language}", make_folder=True))
                for language in pair.split("-")
            ]
            for split in SPLITS
        }
        for path in archives:
            for *texts, document in _pairs(path, pair, documents, read, "write"):
                keys = (letters_and_digits(texts[0]), letters_and_digits(texts[1]))
                leaks = keys[0] in sides[0] or keys[1] in sides[1]
                if documents:
                    split = splits.get(document, "left out" if leaks else "train")
                else:
                    split = splits.pop(keys, "left out") if leaks else "train"
                counts[split] += 1
                separated[split] += previous.get(split) != document
                for file, text in zip(files.get(split, ()), texts):
                    file.write(
                        f"{text}\n".encode() if previous.get(split, document) == document else f"\n{text}\n".encode()
                    )
                previous[split] = document
    if documents:
        counts |= {f"documents in {split}": separated[split] for split in SPLITS}
    return counts | dict(zip(_names(archives), read))


def _names(archives: list[Path]) -> list[str]:
    """File names of archives, with their folders if names repeat, as those of OPUS do: Tanzil/en-sw.txt.zip."""
    names = [path.name for path in archives]
    return names if len({*names}) == len(names) else [f"{path.parent.name}/{path.name}" for path in archives]


def _draw(pair: str, archives: list[Path], held_out: int) -> list[tuple[str, int, str, str]]:
    """Selects pairs: (first side, its hash, split, second side), letters and digits only.

    Sentences with the smallest hashes are selected, so that most of them stay the same if an archive is added. A pair
    with the second side of a selected pair is skipped, so that no side is in both splits.
    """
    smallest, seen, total = [], set(), 0
    room = 4 * held_out  # twice as many as needed, since some are skipped for their second side
    for path in archives:
        for texts in _pairs(path, pair, 0, [], "draw"):
            total += 1
            first, second = map(letters_and_digits, texts[:2])
            key = int.from_bytes(hashlib.sha256(first.encode()).digest()[:8], "big")
            if not first or not second or first in seen or (len(smallest) >= room and key > -smallest[0][0]):
                continue
            heapq.heappush(smallest, (-key, first, second))
            seen.add(first)
            if len(smallest) > room:
                seen.discard(heapq.heappop(smallest)[1])
    split_size = min(held_out, total // LARGEST_SHARE)
    pairs, second_sides = [], set()
    for key, first, second in sorted(smallest, reverse=True):
        if len(pairs) < 2 * split_size and second not in second_sides:
            pairs.append((first, -key, SPLITS[1 + len(pairs) % 2], second))
            second_sides.add(second)
    return pairs


def _draw_documents(pair: str, archives: list[Path], held_out: int, documents: int) -> dict[str, str]:
    """Selects whole documents, those with the smallest hashes of their names: {document: split}."""
    sizes = Counter(name for path in archives for *_, name in _pairs(path, pair, documents, [], "draw"))
    room = dict.fromkeys(SPLITS[1:], min(held_out, sum(sizes.values()) // LARGEST_SHARE))
    splits = {}
    for name in sorted(sizes, key=lambda name: hashlib.sha256(name.encode()).digest()):
        split = next((split for split in room if sizes[name] <= room[split]), None)
        if split is not None:
            splits[name] = split
            room[split] -= sizes[name]
    if len(set(splits.values())) < len(room):
        raise UserError(f"{archives[0]}: too few documents for validation and test; raise --held-out, or add archives")
    return splits


def _documents(archive: zipfile.ZipFile, path: Path, names: list[str], size: int, warns: bool) -> Iterator[bytes]:
    """Yields the name of the document of each line of an archive; without a list, each has `size` successive lines."""

    def lines(name: str) -> Iterator[bytes]:
        with io.BufferedReader(cast(Any, archive.open(name))) as file:
            yield from lines_of(file, f"{path}, {name}")

    def groups(name: str, whole: bool) -> Iterator[bytes]:
        document = b""
        for match in itertools.chain.from_iterable(map(GROUP.finditer, lines(name))):
            document = match[1] or document
            if match[2] is not None and (whole or all(side.strip() for side in match[2].split(b";"))):
                yield document

    stem, count = names[0].rpartition(".")[0], sum(1 for _ in lines(names[0]))
    if f"{stem}.ids" in archive.namelist():
        yield from (b" ".join(line.split(b"\t")[:2]) for line in lines(f"{stem}.ids"))
        return
    for whole in (True, False):  # links with an empty side may have no lines
        if f"{stem}.xml" in archive.namelist() and sum(1 for _ in groups(f"{stem}.xml", whole)) == count:
            yield from groups(f"{stem}.xml", whole)
            return
    if warns:
        logger.warning("%s has no list of the documents of its %d lines: %d successive ones are one", path, count, size)
    yield from (b"%d" % (i // size) for i in range(count))


def _pairs(path: Path, pair: str, documents: int, counts: list[dict], purpose: str) -> Iterator[tuple[str, ...]]:
    """Yields the pairs of an archive, each with its document, "" without; appends their counts to `counts`."""
    languages = pair.split("-")
    try:
        with zipfile.ZipFile(path) as archive, ExitStack() as stack:
            check_growth(archive, path)
            names = _members(path, archive, languages)
            sides = (stack.enter_context(io.BufferedReader(cast(Any, archive.open(name)))) for name in names)
            lines = [lines_of(side, f"{path}, {name}") for side, name in zip(sides, names)]
            lines += [_documents(archive, path, names, documents, purpose == "write")] if documents else []
            pairs = Pairs(f"{path.name} {pair}", *lines)
            bar = stack.enter_context(tqdm(pairs, desc=f"{purpose} {path.name}", unit=" pairs", disable=None))
            yield from (
                (*texts[:2], f"{path.parent.name}/{path.name} {texts[2]}" if documents else "") for texts in bar
            )
            counts.append(pairs.counts)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path} is damaged or no zip file ({error}): download it again") from error


def _members(path: Path, archive: zipfile.ZipFile, languages: list[str]) -> list[str]:
    """Returns the names of the two text files, NAME.de-en.de and NAME.de-en.en; OPUS orders a pair alphabetically."""
    both = "-".join(sorted(languages)), "-".join(languages), "-".join(languages[::-1])
    matches = [
        [name for name in archive.namelist() if name.endswith(tuple(f".{pair}.{language}" for pair in both))]
        for language in languages
    ]
    if any(len(names) != 1 for names in matches):
        patterns = " and one ".join(f"*.{both[0]}.{language}" for language in languages)
        raise UserError(f"{path}: expected one file {patterns}, found {', '.join(archive.namelist()) or 'nothing'}")
    return [names[0] for names in matches]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder to write")
    parser.add_argument("archives", metavar="FILE.zip", type=Path, nargs="+", help="Moses files of the pair")
    parser.add_argument("--pair", required=True, metavar="XX-YY", help="such as en-de")
    parser.add_argument(
        "--held-out",
        type=int,
        default=2000,
        metavar="N",
        help="sentences for validation, and for test (default: 2000; at most a tenth of all)",
    )
    parser.add_argument(
        "--documents",
        type=int,
        default=0,
        metavar="N",
        help="separate documents by empty lines, and select whole ones for validation and test: those that the archive "
        "lists, or else N successive pairs, which are neighbors in the archive, not documents of a publisher",
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        language_pair("--pair", options.pair)
        check_number("--held-out", options.held_out, "1 or more")
        check_number("--documents", options.documents, "0 or more")
        build(options.destination, options.pair, options.archives, options.held_out, options.documents)

    return run(work, options.destination, "opus: ")
