"""Runs the stages in order: check, clean, sample, vocabulary, divide, encode, dictionary, binarize, manifest."""

import contextlib
import functools
import logging
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentencepiece
from tqdm import tqdm

from fairseq_xl.data.vocabulary import subwords, tokenizers
from fairseq_xl.data.vocabulary.special_symbols import MASK, language_symbols
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing, write_lines
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.io.versions import version
from preprocess import check, clean, encode, fastbpe, lost_characters, manifests, overlap, shards, vocabulary
from preprocess.binarize import (
    begin_to_import,
    binarize,
    copy_dictionary,
    encoded_name,
    kept_pairs,
    outputs,
    stop,
)
from preprocess.config import Config, Folder, Side, Split, read_config
from preprocess.files import Sections, Workers
from preprocess.run import Run, fairseq_version, splitter_version
from preprocess.stages import NotCurrent, Stages, key_of, locked

File = str | Path

logger = logging.getLogger("preprocess")


def prepare(
    config_path: File,
    data_bin: File | None,
    jobs: int = 1,
    vocabulary_from: File | None = None,
    check_only: bool = False,
    encode_only: bool = False,
    part: tuple[int, int] | None = None,
) -> None:
    """Makes a data folder, or its shards, from a description.

    Args:
        config_path: the YAML description.
        data_bin: folder to write; with `check_only`, None writes nothing.
        jobs: number of parallel processes.
        vocabulary_from: a data folder, or a model's, whose sub-words, dictionary and tokenizers are reused.
        check_only: check the input and write no data.
        encode_only: write the sub-words of the text and dict.txt, for fairseq-preprocess.
        part: (i, n), i from 1 to n: of every n shards only the i-th. Parts may run at the same time, also on several
            machines with one file system; that which makes the last shard completes the folder.

    Raises UserError for errors that the user can correct.
    """
    config, problems = read_config(config_path)
    stages = Stages(Path(data_bin)) if data_bin is not None else None
    dictionary = None
    if vocabulary_from is not None:
        config, dictionary = vocabulary.reused(config, problems, Path(vocabulary_from))
    problems += _vocabulary_problems(config, check_only)
    if part and part[1] > (config.shards or 0):
        count = f"`shards: {config.shards}`" if config.shards else "no `shards`"
        problems.append(f"--part {part[0]}/{part[1]}: a part makes one or more shards, and there is {count}")
    with locked(stages, wait=bool(part)) if stages else nullcontext(), contextlib.ExitStack() as held:
        if stages:
            held.enter_context(_part_locked(stages, part))
        reports = check.check(config, problems, jobs, stages.folder / "check" if stages else None)
        check.tell(config, reports)
        shards.raise_problems(config, reports)
        if check_only:
            overlap.warn(find_overlap(config, jobs))
            logger.info(
                "no errors found: %d files, %d lines", len(reports), sum(report.lines for report in reports.values())
            )
        else:
            assert stages is not None, "only a check has no data folder"
            cleaned = {}
            if any(map(config.rules_of, config.folders)):
                config, reports, cleaned = clean.clean(config, reports, stages, jobs)
                shards.raise_problems(config, reports)
            preparation = _Preparation(config, reports, stages, jobs, cleaned)
            preparation.begin(dictionary)
            if not part:
                preparation.finish(encode_only)
                return
            preparation.encode_all([""])
            after = held.pop_all()
    if part and not check_only:
        with after:
            preparation.make_part(*part)


@contextlib.contextmanager
def _part_locked(stages: Stages, part: tuple[int, int] | None) -> Iterator[None]:
    """Locks a part for its run; raises UserError if it runs already, or others that it does not belong to."""
    suffix = f"-of-{part[1]}.lock" if part else ".lock"
    for path in stages.folder.glob("part-*.lock"):
        if not part or not path.name.endswith(suffix):
            with locked(stages, name=path.name):
                pass
    with locked(stages, name=f"part-{part[0]}{suffix}") if part else nullcontext():
        yield


def _vocabulary_problems(config: Config, check_only: bool) -> list[str]:
    """Describes each reason why the vocabulary cannot be made."""
    existing = config.vocabulary.existing
    if existing:
        try:
            source = config.vocabulary.source(config.root)
            vocabulary.load_model(*source.files) if existing == "sentencepiece" else source.open()
        except UserError as error:
            return [f"vocabulary: {existing}: {error}"]
    elif not check_only and not any(split.name == "train" for _, split, _ in config.sides()):
        return [
            "there is no training text to learn a vocabulary from; vocabulary: {sentencepiece: FILE}, or "
            "--vocabulary-from, reuse one"
        ]
    elif not check_only:
        return vocabulary.version_problems(config.vocabulary)
    return []


class _Preparation(Run):
    """Runs the stages: `begin`, then `finish`, or `make_part`, which the last part ends with `finish`."""

    learned: bool  # the sub-words are those of this text
    sampling: dict | None  # counts of the sentences that they were learned on
    all_symbols: list[str]  # of dict.txt
    digest: str  # of them

    def begin(self, dictionary: Path | None) -> None:
        """Makes the vocabulary, with the symbols of an existing `dictionary`, and divides the text."""
        self.refuse_another_folder()
        self.warn_of_overlap()
        existing: list[Path] = []
        if self.config.vocabulary.existing:
            existing = list(self.config.vocabulary.source(self.config.root).files)
        self.remove_another_vocabulary()
        if existing:
            self.reuse(existing)
        self.sampling = None if existing else self.new_model()
        self.learned = not existing
        if self.config.shards:
            divided = shards.train_splits(self.config)
            self.sections = {folder.name: self.divide(folder, split) for folder, split in divided}
        self.all_symbols = self.symbols(dictionary)
        self.warn_of_another_dictionary(self.all_symbols)
        write = functools.partial(vocabulary.write_dictionary, self.all_symbols, {}, self.ids)
        self.digest = self.stages.run("ids", {"symbols": key_of(self.all_symbols)}, [self.ids], write)["sha256"]

    def make_part(self, index: int, count: int) -> None:
        """Makes a part of the shards; completes the folder if all shards are there."""
        begin_to_import()
        for shard in self.shards[index - 1 :: count]:
            list(self.binarize_all(self.encode_all(["", shard]), [shard]))
        with locked(self.stages, wait=True):
            if missing := [shard for shard in self.shards if not self.is_made(shard)]:
                logger.info(
                    "part %d/%d is made; shard %s not: the part that makes the last shard completes %s",
                    *(index, count, ", ".join(missing), self.data_bin),
                )
            else:
                self.finish()

    def is_made(self, shard: str) -> bool:
        """Tells whether the text of a shard is encoded and binarized."""
        self.stages.only_current = True
        try:
            encodings = self.encode_all(["", shard])
            for folder in self.config.folders:
                self.binarize(folder, encodings, 1, shard)
        except NotCurrent:
            return False
        finally:
            self.stages.only_current = False
        return True

    def finish(self, encode_only: bool = False) -> None:
        """Makes what is not made, and completes the data folder."""
        if not self.stages.complete() and not encode_only:
            begin_to_import()
        encodings = self.encode_all()
        lost_characters.warn(self, encodings, self.learned)
        entry = self.write_dictionary(self.all_symbols, encodings)
        if encode_only:
            self.link_encoded_texts()
            if not self.config.shards:
                manifests.write_encoding(self)
            return
        for shard, written in self.binarize_all(encodings, self.shards):
            for folder in self.config.folders:
                written |= copy_dictionary(folder, self.dictionary, self.data_bin / shard)
            if shard:
                manifests.write_shard(self, shard, self.sampling, entry, encodings, written)
        self.remove_what_is_no_longer_described(entry["sha256"])
        manifests.write_manifest(self, self.sampling, entry, encodings, None if self.config.shards else written)

    def warn_of_overlap(self) -> None:
        """Warns of validation and test lines that occur in training text."""
        inputs = {
            f"{folder.name}/{split.name}.{side.language}": [[name, self.reports[name].sha256] for name in side.files]
            for folder, split, side in self.config.sides()
        }
        work = functools.partial(find_overlap, self.config, self.jobs)
        overlap.warn(self.stages.run("overlap", inputs, [], work))

    def new_model(self) -> dict:
        """Samples sentences and learns the sub-words; returns the counts of sampled sentences."""
        training, sampled = vocabulary.training_files(self.config), vocabulary.sampled_files(self.config)
        counts = {language: self.sentences(names) for language, names in sampled.items()}
        options = self.config.vocabulary
        small = sum(self.sentences(names) for names in training.values()) <= options.sentences
        sample = self.stages.folder / "sample.txt"
        inputs: dict[str, Any] = {"seed": vocabulary.SEED, "alpha": options.alpha, "sentences": options.sentences}
        inputs |= {
            kind: {language: [self.reports[name].sha256 for name in names] for language, names in files.items()}
            for kind, files in (("sampled files", sampled), ("all files", training if small else {}))
        }
        inputs["tokenizers"] = [self.tokenizer(language) for language in self.config.tokenizers]
        sampling = self.stages.run(
            "sample", inputs, [sample], lambda: vocabulary.write_sample(self.config, counts, sample, small)
        )
        inputs = {"sample": sha256_of(sample), "model": options.model, "size": options.size}
        files: list[Path] = list(self.subwords.files)
        if options.kind == "xlm":
            inputs |= {"codes": options.codes, "lower": options.lowercase_and_remove_accent}
            inputs[fastbpe.PACKAGE] = version(fastbpe.PACKAGE)
            learn = functools.partial(fastbpe.learn, sample, options, *files)
            instruction = f"with vocabulary: {{xlm: {{codes: {files[0]}, vocab: {files[1]}}}}}"
        else:
            options = replace(options, coverage=vocabulary.coverage_of(options, sample, small))
            self.config = replace(self.config, vocabulary=options)  # for the manifest
            inputs |= {"coverage": options.coverage, "normalization": options.normalization}
            inputs["sentencepiece"] = sentencepiece.__version__
            learn = functools.partial(vocabulary.train_model, sample, options, *files)
            instruction = f"with --vocabulary-from {self.dictionary.parent}"
        if files[0].exists() and self.dictionary.exists() and not self.stages.is_current("vocabulary", inputs, files):
            logger.warning(
                "%s: text or options of the vocabulary have changed since it was learned: another one is learned now, "
                "which checkpoints trained on this data folder do not fit; to keep the present one, stop this run and "
                "start it %s",
                *(self.data_bin, instruction),
            )
        self.stages.run("vocabulary", inputs, files, learn)
        return sampling

    def reuse(self, existing: list[Path]) -> None:
        """Copies the files of an existing vocabulary, of the description or of the command line."""
        replace(self.subwords, files=tuple(existing)).open()
        if self.subwords.kind == "xlm" and self.config.tokenizers.get("zh") == tokenizers.XLM:
            logger.warning("%s: %s", self.data_bin, tokenizers.JIEBA_FOR_STANFORD)

        def copy() -> dict:
            for path, copied in zip(existing, self.subwords.files):
                if size and copied == self.subwords.files[1]:
                    write_lines(copied, fastbpe.first_words(path, size))
                    continue
                with open(path, "rb") as source, replacing(copied, make_folder=True) as target:
                    shutil.copyfileobj(source, target)
            return {}

        inputs: dict[str, Any] = {"reused": [sha256_of(path) for path in existing]}
        if size := self.config.vocabulary.xlm and self.config.vocabulary.xlm.size:
            inputs["size"] = size
        self.stages.run("vocabulary", inputs, list(self.subwords.files), copy)

    def remove_another_vocabulary(self) -> None:
        """Removes an earlier vocabulary of another kind."""
        for name in (name for names in subwords.FILES.values() for name in names):
            if self.data_bin / name not in self.subwords.files:
                (self.data_bin / name).unlink(missing_ok=True)

    def symbols(self, dictionary: Path | None) -> list[str]:
        """Returns the symbols of dict.txt in order."""
        if dictionary:
            return vocabulary.reused_symbols(dictionary, self.config.languages)
        return vocabulary.new_symbols(self.subwords.open(), self.config.languages)

    def encode_all(self, shards_of_text: list[str] | None = None) -> dict[str, dict]:
        """Encodes every side of every split and shard, or of some shards; "" has the text that all have in common.

        Returns the results of `encode` by encoded name.
        """
        reserved = (MASK, *language_symbols(self.config.languages))
        fixed = [*self.identity(), reserved]
        lines = sum(self.reports[name].lines for _, _, side in self.config.sides() for name in side.files)
        encodings = {}
        with (
            Workers(self.jobs, encode.start, (self.subwords, reserved)) as workers,
            tqdm(total=lines, unit=" lines", desc="encode", disable=None) as bar,
            Sections() as opened,
        ):
            line_count = 0  # a hidden bar does not count
            for folder, split, side in self.config.sides():
                tokenizer = self.tokenizer(side.language)
                for name, parts, boundaries in self.encoded_texts(folder, split, side, shards_of_text):
                    output = self.encoded / name
                    texts = [(self.config.root / side.files[part.file], part.begin, part.end) for part in parts]
                    inputs = {"vocabulary": fixed, "files": [self.part_identity(side, part) for part in parts]}
                    inputs |= {"boundaries": boundaries, "tokenizer": tokenizer}
                    encode_texts: Any = functools.partial(encode.encode, read=lambda text: opened.blocks(*text))
                    name_and_language = tuple(tokenizer[:2]) or None
                    work = functools.partial(encode_texts, texts, boundaries, output, workers, bar, name_and_language)
                    outputs = [output, encode.counts_of(output)]
                    encodings[name] = self.stages.run(f"encode {name}", inputs, outputs, work)
                    line_count += sum(counted["lines"] for counted in encodings[name]["files"])
                    bar.update(line_count - bar.n)
        return encodings

    def link_encoded_texts(self) -> None:
        """Links the encoded texts as SPLIT.XX and SPLIT.XX-YY.XX in the data folder, and in each of its shards."""
        for folder, split, side in self.config.sides():
            pair = f".{folder.name}" if "-" in folder.name else ""
            for name, _, _ in self.encoded_texts(folder, split, side):
                shard = name.removesuffix(encoded_name(folder, split.name, side.language))
                text = self.data_bin / shard / f"{split.name}{pair}.{side.language}"
                text.parent.mkdir(exist_ok=True)
                text.unlink(missing_ok=True)
                os.link(self.encoded / name, text)

    def part_identity(self, side: Side, part: shards.Section) -> str | list:
        """Returns the hash of a file, and the bounds of a section that is not all of it."""
        digest = self.reports[side.files[part.file]].sha256
        return digest if part[1:] == (0, None) else [digest, part.begin, part.end]

    def divide(self, folder: Folder, split: Split) -> list[list[list[shards.Section]]]:
        """Returns the sections of each shard and side of training text."""
        files = [[self.reports[name].sha256 for name in side.files] for side in split.sides]
        inputs = {"shards": self.config.shards, "files": files}
        work = functools.partial(shards.divide, self.config, split, self.reports, self.config.shards or 1)
        division = self.stages.run(f"divide {folder.name}", inputs, [], work)
        if unequal := shards.unequal(division["lines"]):
            logger.warning("%s: shards are unequal because documents are kept whole: %s", folder.name, unequal)
        return [[[shards.Section(*part) for part in side] for side in shard] for shard in division["sections"]]

    def identity(self) -> list:
        """Returns what the pieces of a text depend on: files and options of the vocabulary, and versions."""
        hashes = [sha256_of(path) for path in self.subwords.files]
        if self.subwords.kind == "sentencepiece":
            return [*hashes, sentencepiece.__version__, *filter(None, [self.subwords.options])]
        return [self.subwords.kind, *hashes, self.subwords.options, *splitter_version(self.subwords.kind).values()]

    def write_dictionary(self, symbols: list[str], encodings: dict) -> dict:
        """Writes dict.txt with the frequencies in all training text."""
        names = [
            encoded_name(folder, split.name, side.language, shard)
            for folder, split, side in self.config.sides()
            if split.name == "train"
            for shard in self.shards_of(split)
        ]
        paths = [encode.counts_of(self.encoded / name) for name in names]

        def work() -> dict:
            written = self.subwords.open().symbols
            reserved = {MASK, *language_symbols(self.config.languages)}
            counts = {}
            for path in paths:
                for index, count in encode.read_counts(path).items():
                    symbol = written[index]
                    counts[symbol] = counts.get(symbol, 0) + (0 if symbol in reserved else count)
            return vocabulary.write_dictionary(symbols, counts, self.dictionary)

        inputs = {"symbols": key_of(symbols), "vocabulary": [sha256_of(path) for path in self.subwords.files]}
        inputs["counts"] = [sha256_of(path) for path in paths]
        return self.stages.run("dictionary", inputs, [self.dictionary], work)

    def warn_of_another_dictionary(self, symbols: list[str]) -> None:
        """Warns if the symbols of the data folder's dict.txt differ from the new ones."""
        if not self.dictionary.exists():
            return
        try:
            before = vocabulary.reused_symbols(self.dictionary, [])
        except UserError:  # a damaged file
            return
        if before != symbols:
            logger.warning(
                "%s: the symbols change: checkpoints trained on this data folder no longer fit it. The earlier text "
                "makes the earlier symbols again; then --vocabulary-from this folder keeps them",
                self.dictionary,
            )

    def binarize_all(self, encodings: dict, shards: list[str]) -> Iterator[tuple[str, dict[str, dict]]]:
        """Binarizes folders in parallel, one per job; yields the shards in order, with the fingerprints of their files,
        without dictionaries.
        """
        folder_jobs = max(1, self.jobs // max(1, len(self.config.folders) * len(shards)))
        pool = ThreadPoolExecutor(self.jobs)
        started = {
            shard: [pool.submit(self.binarize, folder, encodings, folder_jobs, shard) for folder in self.config.folders]
            for shard in shards
        }
        try:
            for shard, futures in started.items():
                yield shard, {name: entry for future in futures for name, entry in future.result().items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for futures in started.values() for future in futures):
                stop()
                time.sleep(0.05)
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def binarize(self, folder: Folder, encodings: dict, jobs: int, shard: str) -> dict[str, dict]:
        """Binarizes a folder with fairseq-preprocess; returns the fingerprints of its files."""
        names = [
            encoded_name(folder, split.name, side.language, shard) for split in folder.splits for side in split.sides
        ]
        hashes = {name: encodings[name]["sha256"] for name in names}
        inputs = {"text": hashes, "dictionary": self.digest, "fairseq": fairseq_version()}

        def work() -> dict:
            # a manifest marks its folder as complete, so the old one is removed first
            (self.data_bin / shard / "manifest.json").unlink(missing_ok=True)
            return binarize(folder, self.ids, self.digest, self.encoded, encodings, self.data_bin, jobs, shard)

        name = self.name_of(folder, shard)
        return self.stages.run(f"binarize {name}", inputs, outputs(folder, self.data_bin / name), work)

    def binarized(self) -> set[str]:
        """Returns the paths of the binarized folders, of this description or an earlier one."""
        stages = (stage.partition(" ") for stage in self.stages.names())
        return {name for kind, _, name in stages if kind == "binarize"}

    def refuse_another_folder(self) -> None:
        """Raises UserError for a data folder that has no folder of this description."""
        binarized = self.binarized()
        divided = any("/" in name for name in binarized)
        if binarized and divided != bool(self.config.shards):
            raise UserError(
                f"{self.data_bin} {'is divided' if divided else 'is not divided'} into shards, and the description "
                f"has {f'`shards: {self.config.shards}`' if self.config.shards else 'no `shards`'}: remove the folder "
                "or name another one"
            )
        names = {name.rpartition("/")[2] for name in binarized}
        if names and names.isdisjoint(folder.name for folder in self.config.folders):
            raise UserError(
                f"{self.data_bin} is of {', '.join(sorted(names))}, none of which is described: "
                "remove it or name another folder"
            )

    def remove_what_is_no_longer_described(self, digest: str) -> None:
        """Removes the folders of an earlier description, except back-translated pairs of this dictionary."""
        current = {self.name_of(folder, shard) for folder in self.config.folders for shard in self.shards}
        for name in sorted(self.binarized() - current):
            pairs = kept_pairs(self.data_bin / name, digest)
            for path in set((self.data_bin / name).glob("*")) - set(pairs):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not pairs:
                shutil.rmtree(self.data_bin / name, ignore_errors=True)
            shutil.rmtree(self.encoded / name, ignore_errors=True)
            self.stages.forget(f"binarize {name}")
            shard = self.data_bin / name.rpartition("/")[0]
            if shard.name not in self.shards and shard != self.data_bin:
                for path in (shard / file for file in ("manifest.json", "dict.txt", *sum(subwords.FILES.values(), ()))):
                    path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # another folder or back-translated pairs are still there
                    shard.rmdir()
            logger.info("%s: removed, since it is no longer in the description", name)


def find_overlap(config: Config, count: int) -> list[dict]:
    """Returns the result of `overlap.find`, with a progress bar."""
    files = [name for names in overlap.evaluation_files(config).values() for name in names]
    files += [
        name for language in overlap.evaluation_files(config) for name in vocabulary.training_files(config)[language]
    ]
    total = sum((config.root / name).stat().st_size for name in files)
    with Workers(count) as workers, tqdm(total=total, unit="B", unit_scale=True, desc="overlap", disable=None) as bar:
        return overlap.find(config, workers, bar.update)
