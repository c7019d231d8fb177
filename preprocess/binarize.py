"""Binarizes one folder of a data folder with fairseq-preprocess, in a temporary folder that replaces the old one.

fairseq-preprocess keeps about 53 bytes in memory per line, so it runs on at most `CHUNK_LINES` lines at a time, and the
outputs are joined, identical to those of one run.
"""

import contextlib
import errno
import itertools
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import BinaryIO

from fairseq_xl.data.store import back_translated
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.fingerprints import fingerprint
from fairseq_xl.io.signals import ENDING
from fairseq_xl.io.step_records import parts_record, read_record
from preprocess.config import Folder, Split
from preprocess.files import link, replace_folder, restore_folder
from preprocess.joined import Joined, totals

CHUNK_LINES = 1_000_000  # maximum number of lines of a text in a run of fairseq-preprocess

logger = logging.getLogger("preprocess")

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["fairseq_cli.preprocess"])
_running: set[BaseProcess] = set()  # processes of fairseq-preprocess


def encoded_name(folder: Folder, split: str, language: str, shard: str = "") -> str:
    """Returns the name of an encoded file in the folder of encoded text, as a prefix of fairseq.
    Shards ("0", "1", …) differ in their training text and share all other text.
    """
    name = f"{folder.name}/{split}.{folder.name}.{language}" if "-" in folder.name else f"{folder.name}/{split}"
    return f"{shard}/{name}" if shard and split == "train" else name


def arguments(folder: Folder, dictionary: Path, destination: Path, jobs: int, shard: str = "") -> list[str]:
    """Returns the arguments of fairseq-preprocess; prefixes are relative to the folder of encoded text."""
    options = ["--destdir", str(destination), "--srcdict", str(dictionary)]
    options += f"--dataset-impl mmap --workers {jobs}".split()
    pair = folder.name.split("-")
    if len(pair) == 2:
        options += ["--source-lang", pair[0], "--target-lang", pair[1], "--tgtdict", str(dictionary)]
    else:
        options += ["--only-source"]
    for kind in ("train", "valid", "test"):
        prefixes = [
            encoded_name(folder, split.name, pair[0], shard).removesuffix(f".{pair[0]}" if len(pair) == 2 else "")
            for split in folder.splits
            if split.name.startswith(kind)
        ]
        if prefixes:
            options += [f"--{kind}pref", ",".join(prefixes)]
    return options


def begin_to_import() -> None:
    """Starts the process that imports fairseq, which takes seconds; returns at once."""
    with _interrupts_blocked(), contextlib.suppress(ChildProcessError):  # the parent of a fork has started it
        forkserver.ensure_running()


def run_fairseq(options: list[str], cwd: Path, log: Path) -> None:
    """Runs fairseq-preprocess in a process of its own; raises UserError with the last line of its output if it fails.

    The processes are forks of that of `begin_to_import`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    process = FORKS.Process(target=_preprocess, args=(options, str(cwd), str(log.resolve())))
    with _interrupts_blocked():
        process.start()
        _running.add(process)
    try:
        process.join()
    finally:
        _running.discard(process)
    check_end(process.exitcode or 0, log)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT in this thread, and for good in processes that it starts; `stop` ends them after Ctrl-C.

    Without this, the process that imports fairseq shows a traceback.
    """
    resource_tracker.ensure_running()  # multiprocessing starts it before the first process, and unblocks SIGINT then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop() -> None:
    """Ends all processes of `run_fairseq`, with their own processes."""
    for group in [process.pid for process in list(_running) if process.pid]:
        with contextlib.suppress(ProcessLookupError):  # it has ended, or has no group yet
            os.killpg(group, signal.SIGTERM)


def _preprocess(options: list[str], cwd: str, log: str) -> None:
    """Runs fairseq-preprocess in this process, with its output in a file."""
    from fairseq_cli.preprocess import cli_main

    os.setpgid(0, 0)  # for `stop`
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for signal_number in ENDING:
        signal.signal(signal_number, signal.SIG_DFL)
    with open(log, "wb") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    os.chdir(cwd)
    sys.argv = ["fairseq-preprocess", *options]
    cli_main()


def _end_with_parent() -> None:
    """Ends this process group with the parent, so that a killed run does not write beside the next one."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by another one"
    parent.join()
    os.killpg(0, signal.SIGKILL)


def check_end(status: int, log: Path) -> None:
    """Raises OSError for a full disk, and UserError with the last line of the log for any other failure."""
    if status:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if lines and os.strerror(code) in lines[-1]:
                raise OSError(code, os.strerror(code), str(log))
        raise UserError(f"fairseq-preprocess failed (its output is in {log}): {lines[-1] if lines else ''}")


def prefix(folder: Folder, split: str, language: str) -> str:
    """Returns the name of a dataset in its folder, without .bin and .idx."""
    return f"{split}.{folder.name}.{language}" if "-" in folder.name else split


def dictionaries(folder: Folder, destination: Path) -> list[Path]:
    """Lists the dictionaries of a folder."""
    names = [f"dict.{language}.txt" for language in folder.name.split("-")] if "-" in folder.name else ["dict.txt"]
    return [destination / name for name in names]


def outputs(folder: Folder, destination: Path) -> list[Path]:
    """Lists the files that fairseq-preprocess writes for a folder, without dictionaries and its log."""
    names = [
        f"{prefix(folder, split.name, side.language)}.{suffix}"
        for split in folder.splits
        for side in split.sides
        for suffix in ("bin", "idx")
    ]
    return [destination / name for name in names]


def _has_dictionary(prefix: Path, digest: str) -> bool:
    """Whether the pairs, complete or of an unfinished run, have the ids of the dictionary with this digest."""
    made_with = [
        (back_translated.read_note(prefix) or {}).get("made_with"),
        read_record(parts_record(back_translated.parts_path(prefix)), {})[0].get("made_with"),
    ]
    return any(isinstance(settings, dict) and settings.get("dictionary") == digest for settings in made_with)


def kept_pairs(folder: Path, digest: str) -> list[Path]:
    """Lists the back-translated pairs in a folder that stay when it is written again.

    Logs a warning for pairs of a dictionary with another digest, which do not stay.
    """
    files = sorted(path for path in folder.glob("back-*") if path.suffix != ".lock")
    source, _, target = folder.name.partition("-")
    prefix = back_translated.back_translated_prefix(folder.parent, source, target)
    if files and not _has_dictionary(prefix, digest):
        logger.warning(
            "%s: the back-translated pairs are removed, since the dictionary has changed; `fairseq-xl back-translate` "
            "writes new ones",
            prefix,
        )
        return []
    return files


def binarize(
    folder: Folder,
    ids: Path,
    digest: str,
    encoded: Path,
    counts: dict,
    data_bin: Path,
    jobs: int,
    shard: str = "",
) -> dict:
    """Binarizes a folder of a data folder, or of one of its shards.

    `ids` is the dictionary without counts: those of its copies in the folder are written by `copy_dictionary`.
    Back-translated pairs of this dictionary (`digest`) stay. `counts` has lines and tokens by encoded name.

    Returns the fingerprints of the files, by their names in the data folder or shard. Raises UserError if lines or
    tokens are lost.
    """
    stages, data_bin = encoded.parent, data_bin / shard
    temporary = stages / "binarized" / shard / folder.name
    log = stages / "logs" / shard / f"{folder.name}.log"
    restore_folder(temporary, data_bin / folder.name)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    names = [encoded_name(folder, split.name, side.language, shard) for split in folder.splits for side in split.sides]
    if max(counts[name]["lines"] for name in names) <= CHUNK_LINES:
        run_fairseq(arguments(folder, ids.resolve(), temporary.resolve(), jobs, shard), encoded, log)
    else:
        temporary.mkdir()
        chunks = stages / "chunks" / shard / folder.name
        shutil.rmtree(chunks, ignore_errors=True)
        for split in folder.splits:
            _binarize_in_chunks(folder, split, ids, encoded, temporary, chunks, jobs, shard, log)
        shutil.rmtree(chunks)
    index_totals = {}
    for split in folder.splits:
        for side in split.sides:
            expected = counts[encoded_name(folder, split.name, side.language, shard)]
            index = temporary / f"{prefix(folder, split.name, side.language)}.idx"
            index_totals[index] = totals(index)
            lines = index_totals[index]["lines"]
            tokens = index_totals[index]["tokens"] - lines  # without </s>
            if (lines, tokens) != (expected["lines"], expected["tokens"]):
                raise UserError(
                    f"{folder.name}/{split.name} ({side.language}): {expected['lines']} lines of {expected['tokens']} "
                    f"tokens went into fairseq-preprocess, {lines} of {tokens} came out"
                )
    # its log has temporary paths and times, which would differ between runs on equal input
    (temporary / "preprocess.log").unlink(missing_ok=True)
    fingerprints = {
        f"{folder.name}/{path.name}": fingerprint(path, **index_totals.get(path, {}))
        for path in outputs(folder, temporary)
    }
    for path in kept_pairs(data_bin / folder.name, digest):
        link(path, temporary)
    data_bin.mkdir(exist_ok=True)
    replace_folder(temporary, data_bin / folder.name)
    return fingerprints


def copy_dictionary(folder: Folder, dictionary: Path, destination: Path) -> dict[str, dict]:
    """Copies the dictionary to those of a binarized folder; returns their fingerprints, as `binarize`.

    If they change, the manifest in `destination`, the data folder or its shard, is removed first.
    """
    content, paths = dictionary.read_bytes(), dictionaries(folder, destination / folder.name)
    for path in paths:
        if not path.exists() or path.read_bytes() != content:
            (destination / "manifest.json").unlink(missing_ok=True)
            with replacing(path) as file:
                file.write(content)
    return {f"{folder.name}/{path.name}": fingerprint(path) for path in paths}


def _binarize_in_chunks(
    folder: Folder,
    split: Split,
    ids: Path,
    encoded: Path,
    destination: Path,
    chunks: Path,
    jobs: int,
    shard: str,
    log: Path,
) -> None:
    """Binarizes a split in chunks of `CHUNK_LINES` lines, in the folder `chunks`, and joins them in `destination`."""
    alone = replace(folder, splits=(replace(split, name="train"),))  # its one split may have any name
    languages = [side.language for side in split.sides]
    text, binarized = chunks / "text", chunks / "binarized"
    (text / folder.name).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        sources = [
            stack.enter_context(open(encoded / encoded_name(folder, split.name, language, shard), "rb"))
            for language in languages
        ]
        joined = [
            stack.enter_context(Joined(destination / prefix(folder, split.name, language))) for language in languages
        ]
        while True:
            written = [
                _copy_lines(source, text / encoded_name(alone, "train", language))
                for source, language in zip(sources, languages)
            ]
            if not any(written):
                break
            shutil.rmtree(binarized, ignore_errors=True)
            run_fairseq(arguments(alone, ids.resolve(), binarized.resolve(), jobs), text, log)
            for output, language in zip(joined, languages):
                output.append(binarized / prefix(alone, "train", language))
            for path in binarized.glob("dict*.txt"):
                os.replace(path, destination / path.name)
        for output in joined:
            output.finish()


def _copy_lines(source: BinaryIO, target: Path) -> int:
    """Writes the next `CHUNK_LINES` lines of an open file to a new file; returns its size in bytes."""
    with open(target, "wb") as file:
        file.writelines(itertools.islice(source, CHUNK_LINES))
        return file.tell()
