"""Rehearsals as text, Markdown and plain data, and lists of configurations to rehearse."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.rehearsal.counting import Counted
from fairseq_xl.rehearsal.setting import Setting, arguments_of
from fairseq_xl.rehearsal.updates import PROCESSES, Updated

GIB = 2**30
#: keys of an entry of a list -> their types
KEYS = {
    "files": list,
    "flags": str,
    "vocabulary": int,
    "languages": int,
    "parameters": str,
    "examples": int,
    "line-tokens": int,
}
OF_SETTINGS = {
    "vocabulary": "vocabulary",
    "languages": "languages",
    "examples": "examples",
    "line-tokens": "line_tokens",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A configuration of a list."""

    system: str
    name: str
    files: tuple[str, ...]
    flags: tuple[str, ...]
    paper: str | None  # the paper's number of parameters, as text
    values: dict[str, int]  # of `Setting`

    def setting(self) -> Setting:
        """What is rehearsed; raises `UserError` for a wrong file."""
        return Setting(tuple(arguments_of(list(self.files), list(self.flags))), **self.values)


def read_list(path: Path) -> list[Entry]:
    """Reads a list of configurations, ``SYSTEM: {NAME: {files: […], …}}``; raises `UserError` for another file."""
    try:
        found = OmegaConf.to_container(OmegaConf.load(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no list of configurations: {' '.join(str(error).split())}") from error
    entries = []
    for system, named in _mapping(found, path, "SYSTEM").items():
        for name, described in _mapping(named, path, str(system)).items():
            where = f"{path}: {system}: {name}"
            for key, value in _mapping(described, path, f"{system}: {name}").items():
                if key not in KEYS:
                    raise UserError(f"{where}: there is no key {quoted(key)}: expected one of {', '.join(KEYS)}")
                if type(value) is not KEYS[key]:
                    raise UserError(f"{where}: {key} should be {KEYS[key].__name__}, found {quoted(value)}")
            if not described.get("files"):
                raise UserError(f"{where}: the key 'files' is missing")
            files = tuple(str(path.parent / file) for file in described["files"])
            values = {field: described[key] for key, field in OF_SETTINGS.items() if key in described}
            flags = tuple(shlex.split(described.get("flags", "")))
            entries.append(Entry(str(system), str(name), files, flags, described.get("parameters"), values))
    return entries


def _mapping(found: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UserError(f"{path}: {where}: expected a mapping, found {quoted(found)}")
    return found


def listed(files: list[str], flags: list[str], name: str = "papers.yaml") -> Entry | None:
    """The entry of these files in a list `name` in a folder above them, one with the same flags if there is one."""
    wanted = [Path(file).resolve() for file in files]
    for folder in wanted[-1].parents[:4] if wanted else ():
        if (folder / name).is_file():
            found = [
                each for each in read_list(folder / name) if [Path(file).resolve() for file in each.files] == wanted
            ]
            return next((each for each in found if list(each.flags) == flags), found[0] if found else None)
    return None


def gib(size: int) -> str:
    """Bytes in GiB."""
    return f"{size / GIB:.2f}"


def largest(counted: Counted, part: str) -> tuple[str, int]:
    """The objective whose batch has the most bytes of a part, "activations" or "loss", and the bytes."""
    name = max(counted.batches, key=lambda each: getattr(counted.batches[each], part))
    return name, getattr(counted.batches[name], part)


def shown(counted: Counted, paper: str | None) -> str:
    """The counts as lines of text."""
    activations, loss = largest(counted, "activations"), largest(counted, "loss")
    processes = f"{counted.processes} process{'es' if counted.processes > 1 else ''}"
    rows = [
        ("parameters", f"{counted.parameters:,}" + (f" (paper: {paper})" if paper else "")),
        *([("trained", f"{counted.trained:,}")] if counted.trained < counted.parameters else []),
        ("memory of a GPU", f"{gib(counted.peak)} GiB at most"),
        ("  weights", gib(counted.weights)),
        ("  gradients", gib(counted.gradients)),
        ("  masters", f"{gib(counted.masters)} (weights and gradients in 32 bits)"),
        ("  optimizer", gib(counted.optimizer)),
        ("  activations", f"{gib(activations[1])} ({activations[0]})"),
        ("  loss", f"{gib(loss[1])} ({loss[0]})"),
        *([("  buckets", f"{gib(counted.buckets)} (gradients that processes exchange)")] if counted.buckets else []),
        *(
            (f"batch of {name}", f"{each.examples:,} examples, {each.tokens:,} tokens: {gib(each.peak)} GiB at most")
            for name, each in counted.batches.items()
        ),
        ("tokens of an update", f"{_tokens(counted)} ({processes}, --update-freq {counted.micro_batches})"),
        ("epoch", _epoch(counted)),
        *(("note", note) for note in counted.notes),
    ]
    width = max(len(name) for name, _ in rows) + 2
    return "".join(f"{name:<{width}}{value}\n" for name, value in rows)


def shown_updates(updated: Updated) -> str:
    """The result of the two updates, as lines of text."""
    if updated.error is not None:
        return f"two updates failed: {updated.error}\n"
    losses = ", ".join(f"{loss:g}" for loss in updated.losses)
    return f"two updates done in {PROCESSES} processes: loss {losses} ({'; '.join(updated.notes)})\n"


def _tokens(counted: Counted) -> str:
    return ", ".join(f"{tokens:,} {name}" for name, tokens in counted.tokens.items())


def _epoch(counted: Counted) -> str:
    if counted.updates is None:
        return "reads all text once (--examples N counts its updates)"
    read = f"{counted.read_tokens:,} tokens, {(counted.read_bytes or 0) / 1e6:,.0f} MB"
    return f"{counted.updates:,} updates, which read {read}"


HEAD = (
    "configuration, parameters, the paper's, weights, gradients, masters, optimizer, activations, loss, at most, "
    "tokens of an update, updates of an epoch, tokens of an epoch"
).split(", ")
ABOUT = """What the paper's configurations need, counted without a GPU by
`fairseq-xl rehearse --list recipes/papers.yaml --write`, which writes this page. Nothing here was measured.

Memory is in GiB on each GPU, with the largest batch: weights; gradients; masters (weights and gradients in 32 bits,
with --fp16); the optimizer's state; activations for the backward pass; the loss. The parts are not all at their largest
at the same time: "at most" is the most at a time. A GPU also holds its CUDA context and what the allocator rounds up.
Inputs have no padding, attention is fused, and queries to rank have 16 texts, or as many as --max-tokens allows. Tokens
of an update are those of one process with the --update-freq of the configuration, unless the row says otherwise; of
translation and generation they are those of the target.
"""


def markdown(rows: list[tuple[Entry, Counted]]) -> str:
    """A page with the table of a system's configurations."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for entry, counted in rows:
        parts = (counted.weights, counted.gradients, counted.masters, counted.optimizer)
        held = (largest(counted, "activations")[1], largest(counted, "loss")[1], counted.peak)
        epoch = (counted.updates, counted.read_tokens)
        cells = [
            row_name(entry),
            f"{counted.parameters:,}",
            entry.paper or "",
            *map(gib, (*parts, *held)),
            _tokens(counted),
            *("" if each is None else f"{each:,}" for each in epoch),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return f"# Rehearsal\n\n{ABOUT}\n" + "".join(f"{line}\n" for line in lines)


def row_name(entry: Entry) -> str:
    """The first cell of a configuration's row."""
    files = " ".join(Path(file).name for file in entry.files)
    flags = f" `{shlex.join(entry.flags)}`" if entry.flags else ""
    return f"{entry.name}: {files}{flags}"


def plain(counted: Counted) -> dict[str, Any]:
    """The counts as plain data, for JSON."""
    return dataclasses.asdict(counted)
