"""The stages: archives, their members, test sets, the corpus folder."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, write_json
from preprocess.files import replacing
from preprocess.readers import romanian
from preprocess.readers.aligned import Pairs
from preprocess.readers.download import download
from preprocess.readers.folder import bitext_path, describe
from preprocess.readers.wmt.archives import Archive
from preprocess.readers.wmt.pairs import PAIRS
from preprocess.stages import Stages, locked

FORMAT = 2  # of outputs; if it changes, every stage runs again

Texts = dict[Path, tuple[str, Callable[[str], str]]]  # file of a split -> its language, the change of each line


def build(folder: Path, pairs: list[str], remove_diacritics: bool = False) -> None:
    """Writes the corpus folder, or resumes an interrupted run.

    Args:
        folder: folder to write; a stage that is up to date is skipped.
        pairs: keys of PAIRS.
        remove_diacritics: whether Romanian text loses its diacritics.

    Raises UserError for errors that the user can correct.
    """
    stages = Stages(folder)
    counts = {}
    archives = list(dict.fromkeys(archive for pair in pairs for archive in PAIRS[pair].archives))
    with locked(stages):
        for archive in archives:
            of_archive = [pair for pair in pairs if archive in PAIRS[pair].archives]
            wanted = [member for pair in of_archive for member in archive.members(pair).values()]
            outputs = {member: _extracted(folder, member) for member in wanted}
            stages.run(
                f"archive {archive.name}",
                [FORMAT, archive.sha256, wanted],
                list(outputs.values()),
                lambda: _extract(archive, folder, outputs),
            )
        for pair in pairs:
            remove = remove_diacritics and romanian.LANGUAGE in pair.split("-")
            corpus = PAIRS[pair]
            inputs = [FORMAT, [archive.sha256 for archive in corpus.archives], corpus.validation, corpus.test, remove]
            for split, work in (("train", _train), ("valid", _held_out), ("test", _held_out)):
                texts = _texts(folder, split, pair, remove)
                counts[bitext_path(split, pair)] = stages.run(
                    f"{split} {pair}", inputs, list(texts), lambda: work(folder, split, pair, texts)
                )
        languages = list(dict.fromkeys(language for pair in pairs for language in pair.split("-")))
        manifest = {
            "format": FORMAT,
            "pairs": pairs,
            "remove diacritics": remove_diacritics,
            "counts": counts,
            "archives": {archive.url: archive.sha256 for archive in archives},
            "test sets": {
                "valid": {pair: list(PAIRS[pair].validation) for pair in pairs},
                "test": {pair: PAIRS[pair].test for pair in pairs},
            },
        }
        if read_json(folder / "manifest.json") != manifest or not (folder / "corpus.yaml").exists():
            describe(folder, languages, pairs)
            write_json(folder / "manifest.json", manifest)


def _extracted(folder: Path, member: str) -> Path:
    return folder / ".stages" / "members" / member


def _extract(archive: Archive, folder: Path, outputs: dict[str, Path]) -> dict:
    """Downloads an archive and writes the members that the reader uses."""
    path = folder / ".stages" / "archives" / archive.name
    download(archive.url, path, archive.size, archive.sha256)
    archive.extract(path, outputs)
    return {}


def _texts(folder: Path, split: str, pair: str, remove: bool) -> Texts:
    """The files of a split; a test set without diacritics also has the reference with them."""
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


def _train(folder: Path, split: str, pair: str, texts: Texts) -> dict:
    """Writes the pairs of all archives; returns the numbers of pairs read, written and left out, by archive."""
    counts: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        outputs = [(stack.enter_context(replacing(path)), change) for path, (_, change) in texts.items()]
        for archive in PAIRS[pair].archives:
            sides = [
                stack.enter_context(open(_extracted(folder, archive.members(pair)[language]), "rb"))
                for language, _ in texts.values()
            ]
            pairs = Pairs(f"{archive.name} {pair}", *sides)
            with tqdm(pairs, desc=f"{archive.name} {pair}", unit=" pairs", unit_scale=True) as bar:
                for lines in bar:
                    for (output, change), line in zip(outputs, lines):
                        output.write(f"{change(line)}\n".encode())
            counts[archive.name] = {"read": sum(pairs.counts.values())} | pairs.counts
    kinds = ("read", "pairs", "empty", "invalid")
    return counts | {"total": {kind: sum(found[kind] for found in counts.values()) for kind in kinds}}


def _held_out(folder: Path, split: str, pair: str, texts: Texts) -> dict:
    """Writes all lines of the news test sets of a split."""
    corpus, languages = PAIRS[pair], pair.split("-")
    sets = [test_set(name, pair) for name in (corpus.validation if split == "valid" else [corpus.test])]
    columns = [list(chain.from_iterable(sides)) for sides in zip(*sets)]
    for path, (language, change) in texts.items():
        with replacing(path) as file:
            file.writelines(
                f"{change(' '.join(line.split()))}\n".encode() for line in columns[languages.index(language)]
            )
    return {"pairs": len(columns[0])}


def test_set(name: str, pair: str) -> tuple[list[str], list[str]]:
    """Source and reference of a test set of sacrebleu, which downloads it once.

    Raises UserError if sacrebleu is not installed or cannot get the test set.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError(f"sacrebleu is not installed, which gives {name} {pair}: pip install sacrebleu") from error
    try:
        paths = [sacrebleu.get_source_file(name, pair), sacrebleu.get_reference_files(name, pair)[0]]
    except (Exception, SystemExit) as error:  # sacrebleu raises bare exceptions and SystemExit
        raise UserError(f"sacrebleu can't give {name} {pair} ({error}); run the same command to continue") from error
    source, reference = (Path(path).read_text(encoding="utf-8").split("\n")[:-1] for path in paths)
    if len(source) != len(reference):
        raise UserError(f"sacrebleu's {name} {pair} has {len(source)} sources and {len(reference)} references")
    return source, reference
