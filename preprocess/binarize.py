"""Binarizes one folder of a data folder with fairseq-preprocess, in a temporary folder that replaces it at the end."""

import errno
import logging
import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from fairseq_xl.data import back_translated
from fairseq_xl.data.index_header import read_header, read_sizes
from fairseq_xl.errors import UserError
from preprocess.config import Folder
from preprocess.files import link, replace_folder, restore_folder
from preprocess.fingerprints import fingerprint

logger = logging.getLogger("preprocess")

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["fairseq_cli.preprocess"])


def encoded_name(folder: Folder, split: str, language: str) -> str:
    """Name of an encoded file in the folder of encoded text, in the form of fairseq's prefixes."""
    return f"{folder.name}/{split}.{folder.name}.{language}" if "-" in folder.name else f"{folder.name}/{split}"


def arguments(folder: Folder, dictionary: Path, destination: Path, workers: int) -> list[str]:
    """Arguments of fairseq-preprocess. Prefixes are relative to the folder of encoded text; commas separate them."""
    options = ["--destdir", str(destination), "--srcdict", str(dictionary)]
    options += f"--dataset-impl mmap --workers {workers}".split()
    pair = folder.name.split("-")
    if len(pair) == 2:
        options += ["--source-lang", pair[0], "--target-lang", pair[1], "--tgtdict", str(dictionary)]
    else:
        options += ["--only-source"]
    for kind in ("train", "valid", "test"):
        prefixes = [
            f"{folder.name}/{split.name}" + (f".{folder.name}" if len(pair) == 2 else "")
            for split in folder.splits
            if split.name.startswith(kind)
        ]
        if prefixes:
            options += [f"--{kind}pref", ",".join(prefixes)]
    return options


def run_fairseq(options: list[str], cwd: Path, log: Path) -> None:
    """Runs fairseq-preprocess in a process of its own; raises UserError with the last line of its output if it fails.

    The processes are forks of one that has imported fairseq, which takes seconds.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    process = FORKS.Process(target=_preprocess, args=(options, str(cwd), str(log.resolve())))
    process.start()
    process.join()
    check_end(process.exitcode or 0, log)


def _preprocess(options: list[str], cwd: str, log: str) -> None:
    """fairseq-preprocess in this process, with its output in a file."""
    from fairseq_cli.preprocess import cli_main

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with open(log, "wb") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    os.chdir(cwd)
    sys.argv = ["fairseq-preprocess", *options]
    cli_main()


def check_end(status: int, log: Path) -> None:
    """Raises OSError for a full disk, and UserError with the last line of the log for any other failure."""
    if status:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if lines and os.strerror(code) in lines[-1]:
                raise OSError(code, os.strerror(code), str(log))
        raise UserError(f"fairseq-preprocess failed (its output is in {log}): {lines[-1] if lines else ''}")


def sizes(index: Path) -> np.ndarray:
    """Tokens of each item of an .idx file, </s> included: (items,) int32, memory-mapped."""
    header = read_header(index)
    if header is None:
        raise UserError(f"{index} is not an index that fairseq-preprocess writes")
    return read_sizes(index, header.items)


def prefix(folder: Folder, split: str, language: str) -> str:
    """Name of a dataset in its folder, without .bin and .idx."""
    return f"{split}.{folder.name}.{language}" if "-" in folder.name else split


def outputs(folder: Folder, destination: Path) -> list[Path]:
    """All files that fairseq-preprocess writes for a folder, without its log."""
    names = [f"dict.{language}.txt" for language in folder.name.split("-")] if "-" in folder.name else ["dict.txt"]
    names += [
        f"{prefix(folder, split.name, side.language)}.{suffix}"
        for split in folder.splits
        for side in split.sides
        for suffix in ("bin", "idx")
    ]
    return [destination / name for name in names]


def kept_pairs(folder: Path, digest: str) -> list[Path]:
    """The files of back-translated pairs in a folder of a data folder that stay when it is written again.

    Logs a warning if there are pairs whose dictionary does not have this digest.
    """
    files = back_translated.all_files(folder)
    source, _, target = folder.name.partition("-")
    prefix = back_translated.back_translated_prefix(folder.parent, source, target)
    if files and not back_translated.has_dictionary(prefix, digest):
        logger.warning(
            "%s: the back-translated pairs are removed, since the dictionary has changed; `fairseq-xl back-translate` "
            "writes new ones",
            prefix,
        )
        return []
    return files


def binarize(
    folder: Folder, dictionary: Path, digest: str, encoded: Path, counts: dict, data_bin: Path, workers: int
) -> dict:
    """Binarizes a folder. Back-translated pairs stay if the dictionary, of which `digest` is the digest, is theirs.

    `counts` has lines and tokens by encoded name. Raises UserError if lines or tokens were lost.

    Returns the fingerprints of the files, by their names in the data folder.
    """
    stages = encoded.parent
    temporary = stages / "binarized" / folder.name
    restore_folder(temporary, data_bin / folder.name)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    run_fairseq(
        arguments(folder, dictionary.resolve(), temporary.resolve(), workers),
        encoded,
        stages / "logs" / f"{folder.name}.log",
    )
    totals = {}
    for split in folder.splits:
        for side in split.sides:
            expected = counts[encoded_name(folder, split.name, side.language)]
            index = temporary / f"{prefix(folder, split.name, side.language)}.idx"
            found = sizes(index)
            totals[index] = {"lines": len(found), "tokens": int(found.sum(dtype=np.int64))}
            tokens = totals[index]["tokens"] - len(found)  # without </s>
            if (len(found), tokens) != (expected["lines"], expected["tokens"]):
                raise UserError(
                    f"{folder.name}/{split.name} ({side.language}): {expected['lines']} lines of {expected['tokens']} "
                    f"tokens went into fairseq-preprocess, {len(found)} of {tokens} came out"
                )
    # its log has temporary paths and times, which would differ between runs on equal input
    (temporary / "preprocess.log").unlink(missing_ok=True)
    fingerprints = {
        f"{folder.name}/{path.name}": fingerprint(path, **totals.get(path, {})) for path in outputs(folder, temporary)
    }
    for path in kept_pairs(data_bin / folder.name, digest):
        link(path, temporary)
    replace_folder(temporary, data_bin / folder.name)
    return fingerprints
