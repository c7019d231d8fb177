"""Builds the corpus folder: extracts the archives, then writes training, validation and test text."""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import text_of_line
from preprocess.readers import romanian
from preprocess.readers.aligned import Pairs
from preprocess.readers.download import download
from preprocess.readers.folder import bitext_path, describe
from preprocess.readers.wmt.archives import Archive
from preprocess.readers.wmt.pairs import PAIRS, Pair
from preprocess.stages import Stages, locked

#: rules of pairs, as in Moses' clean-corpus-n.perl -ratio 1.5, 1 to 250 words
CLEAN = {"en-fr": dict(longest=250, length_ratio=0, token_ratio=1.5, copies=False, language=False, duplicates=False)}

Texts = dict[Path, tuple[str, Callable[[str], str]]]  # file of a split -> its language, the change of each line


def build(folder: Path, pairs: list[str], remove_diacritics: bool = False, without: Collection[str] = ()) -> None:
    """Writes the corpus folder, or resumes an interrupted run.

    Args:
        folder: folder to write; a stage that is up to date is skipped.
        pairs: keys of PAIRS.
        remove_diacritics: whether to remove Romanian diacritics.
        without: names of archives to leave out.

    Raises UserError for errors that the user can correct.
    """
    corpora = _selected(pairs, without)
    stages = Stages(folder, "corpus")
    counts = {}
    archives = list(dict.fromkeys(archive for corpus in corpora.values() for archive in corpus.archives))
    with locked(stages):
        for archive in archives:
            archive_pairs = [pair for pair, corpus in corpora.items() if archive in corpus.archives]
            members = [member for pair in archive_pairs for member in archive.members(pair).values()]
            outputs = {member: _extracted(folder, member) for member in members}
            stages.run(
                f"archive {archive.name}",
                {"archive": archive.sha256, "members": members},
                list(outputs.values()),
                lambda: _extract(archive, folder, outputs),
            )
        for pair, corpus in corpora.items():
            remove = remove_diacritics and romanian.LANGUAGE in pair.split("-")
            hashes = [archive.sha256 for archive in corpus.archives]
            inputs = {"archives": hashes, "valid": corpus.validation, "test": corpus.test, "remove": remove}
            for split, work in (("train", _train), ("valid", _held_out), ("test", _held_out)):
                texts = _texts(folder, split, pair, remove)
                counts[bitext_path(split, pair)] = stages.run(
                    f"{split} {pair}", inputs, list(texts), lambda: work(folder, corpus, split, pair, texts)
                )
        languages = list(dict.fromkeys(language for pair in pairs for language in pair.split("-")))
        manifest = {
            "pairs": pairs,
            "remove diacritics": remove_diacritics,
            "counts": counts,
            "archives": {archive.url: archive.sha256 for archive in archives},
            "held-out sets": {
                "valid": {pair: list(corpus.validation) for pair, corpus in corpora.items()},
                "test": {pair: corpus.test for pair, corpus in corpora.items()},
            },
        }
        stages.finish(manifest, lambda: describe(folder, languages, pairs, CLEAN))


def _selected(pairs: list[str], without: Collection[str]) -> dict[str, Pair]:
    """Returns {pair: its corpus}, without the archives named in `without`."""
    names = dict.fromkeys(archive.name for pair in pairs for archive in PAIRS[pair].archives)
    if unknown := [name for name in without if name not in names]:
        raise UserError(f"--without: unknown {', '.join(map(repr, unknown))}; valid: {', '.join(names)}")
    corpora = {
        pair: replace(
            PAIRS[pair], archives=tuple(archive for archive in PAIRS[pair].archives if archive.name not in without)
        )
        for pair in pairs
    }
    if empty := [pair for pair, corpus in corpora.items() if not corpus.archives]:
        raise UserError(f"--without: no archive of {', '.join(empty)} is left")
    return corpora


def _extracted(folder: Path, member: str) -> Path:
    return folder / ".stages" / "members" / member


def _extract(archive: Archive, folder: Path, outputs: dict[str, Path]) -> dict:
    """Downloads an archive and writes the members that the reader uses."""
    path = folder / ".stages" / "archives" / archive.name
    download(archive.url, path, archive.size, archive.sha256)
    archive.extract(path, outputs)
    return {}


def _texts(folder: Path, split: str, pair: str, remove: bool) -> Texts:
    """Returns the files of a split; a test set without diacritics also has the reference with them."""
    sides = [(split, language, remove) for language in pair.split("-")]
    if remove and split == "test":
        sides.append(("test-diacritics", romanian.LANGUAGE, False))
    return {
        folder / f"{bitext_path(name, pair)}.{language}": (
            language,
            partial(romanian.normalize, remove_diacritics=removed) if language == romanian.LANGUAGE else str,
        )
        for name, language, removed in sides
    }


def _train(folder: Path, corpus: Pair, split: str, pair: str, texts: Texts) -> dict:
    """Writes the pairs of all archives; returns the counts of pairs read, written and left out, by archive."""
    counts: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        outputs = [
            (stack.enter_context(replacing(path, make_folder=True)), change) for path, (_, change) in texts.items()
        ]
        for archive in corpus.archives:
            sides = [
                stack.enter_context(open(_extracted(folder, archive.members(pair)[language]), "rb"))
                for language, _ in texts.values()
            ]
            pairs = Pairs(f"{archive.name} {pair}", *sides)
            with tqdm(pairs, desc=f"{archive.name} {pair}", unit=" pairs", disable=None) as bar:
                for lines in bar:
                    for (output, change), line in zip(outputs, lines):
                        output.write(f"{change(line)}\n".encode())
            counts[archive.name] = {"read": sum(pairs.counts.values())} | pairs.counts
    kinds = ("read", "pairs", "empty", "invalid")
    return counts | {"total": {kind: sum(archive_counts[kind] for archive_counts in counts.values()) for kind in kinds}}


def _held_out(folder: Path, corpus: Pair, split: str, pair: str, texts: Texts) -> dict:
    """Writes the held-out text of a split."""
    languages = pair.split("-")
    sets = [test_set(name, pair) for name in (corpus.validation if split == "valid" else [corpus.test])]
    columns = [list(chain.from_iterable(sides)) for sides in zip(*sets)]
    for path, (language, change) in texts.items():
        with replacing(path, make_folder=True) as file:
            file.writelines(f"{change(text_of_line(line))}\n".encode() for line in columns[languages.index(language)])
    return {"pairs": len(columns[0])}


def test_set(name: str, pair: str) -> tuple[list[str], list[str]]:
    """Returns source and reference of a test set of sacrebleu, which downloads it once.

    Raises UserError if sacrebleu is not installed or cannot get the test set.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError(
            f"{name} {pair} is read from sacrebleu, which is not installed: pip install sacrebleu"
        ) from error
    try:
        paths = [sacrebleu.get_source_file(name, pair), sacrebleu.get_reference_files(name, pair)[0]]
    except (Exception, SystemExit) as error:  # sacrebleu raises bare exceptions and SystemExit
        raise UserError(
            f"sacrebleu cannot provide {name} {pair} ({error}): run the same command to continue"
        ) from error
    source, reference = (read_lines(path) for path in paths)
    if len(source) != len(reference):
        raise UserError(f"sacrebleu's {name} {pair} has {len(source)} sources and {len(reference)} references")
    return source, reference
