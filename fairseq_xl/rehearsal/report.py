"""Rehearsals as text, Markdown and plain data, and lists of configurations to rehearse."""

import dataclasses
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.flags import overridden
from fairseq_xl.io.versions import version
from fairseq_xl.io.yaml_files import load
from fairseq_xl.rehearsal.counting import Counts
from fairseq_xl.rehearsal.setting import Setting
from fairseq_xl.rehearsal.updates import PROCESSES, UpdateResult

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
NUMBERS = [key for key, kind in KEYS.items() if kind is int]  # fields of `Setting`


@dataclasses.dataclass(frozen=True)
class Entry:
    """A configuration of a list."""

    system: str
    name: str
    files: tuple[str, ...]
    flags: tuple[str, ...]
    paper: str | None  # the paper's number of parameters, as text
    values: dict[str, int]  # of `Setting`
    listed_files: tuple[str, ...] = ()  # the files as the list names them, relative to its folder

    def setting(self) -> Setting:
        """What is rehearsed; raises `UserError` for a wrong file."""
        return Setting(tuple(overridden(list(self.files), list(self.flags))), **self.values)


def read_list(path: Path) -> list[Entry]:
    """Reads a list of configurations, ``SYSTEM: {NAME: {files: […], …}}``; raises `UserError` for another file."""
    found = load(path)
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
            values = {key.replace("-", "_"): described[key] for key in NUMBERS if key in described}
            flags = tuple(shlex.split(described.get("flags", "")))
            paper, listed = described.get("parameters"), tuple(described["files"])
            entries.append(Entry(str(system), str(name), files, flags, paper, values, listed))
    return entries


def _mapping(found: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UserError(f"{path}: {where}: expected a mapping, found {quoted(found)}")
    return found


def find_entry(files: list[str], flags: list[str], name: str = "papers.yaml") -> Entry | None:
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


def largest(counted: Counts, part: str) -> tuple[str, int]:
    """The objective whose batch has the most bytes of a part, "activations" or "loss", and the bytes."""
    name = max(counted.batches, key=lambda each: getattr(counted.batches[each], part))
    return name, getattr(counted.batches[name], part)


def counts_text(counted: Counts, paper: str | None) -> str:
    """The counts as lines of text."""
    activations, loss = largest(counted, "activations"), largest(counted, "loss")
    processes = f"{counted.processes} process{'es' if counted.processes > 1 else ''}"
    rows = [
        ("parameters", f"{counted.parameters:,}" + (f" (published: {paper})" if paper else "")),
        *([("trained", f"{counted.trained:,}")] if counted.trained < counted.parameters else []),
        ("peak memory per GPU", f"{gib(counted.peak)} GiB"),
        ("  weights", gib(counted.weights)),
        ("  gradients", gib(counted.gradients)),
        ("  FP32 master weights", f"{gib(counted.master_weights)} (with their gradients)"),
        ("  optimizer state", gib(counted.optimizer)),
        ("  activations", f"{gib(activations[1])} ({activations[0]})"),
        ("  loss", f"{gib(loss[1])} ({loss[0]})"),
        *(
            [("  DDP buckets", f"{gib(counted.buckets)} (copies of gradients that processes exchange)")]
            if counted.buckets
            else []
        ),
        *(
            (f"batch of {name}", f"{each.examples:,} examples, {each.tokens:,} tokens: peak {gib(each.peak)} GiB")
            for name, each in counted.batches.items()
        ),
        ("tokens of an update", f"{_tokens(counted)} ({processes}, --update-freq {counted.micro_steps})"),
        ("epoch", _epoch(counted)),
        *(("note", note) for note in counted.notes),
    ]
    width = max(len(name) for name, _ in rows) + 2
    return "".join(f"{name:<{width}}{value}\n" for name, value in rows)


def updates_text(updated: UpdateResult) -> str:
    """The result of the two updates, as lines of text."""
    if updated.error is not None:
        return f"the two updates failed: {updated.error}\n"
    losses = ", ".join(f"{loss:g}" for loss in updated.losses)
    return f"two updates done in {PROCESSES} processes: loss {losses} bits ({'; '.join(updated.notes)})\n"


def _tokens(counted: Counts) -> str:
    return ", ".join(f"{tokens:,} {name}" for name, tokens in counted.tokens.items())


def _epoch(counted: Counts) -> str:
    if counted.updates is None:
        return "all text once (pass --examples N for the number of updates)"
    read = f"{counted.read_tokens:,} tokens, {(counted.read_bytes or 0) / 1e6:,.0f} MB"
    return f"{counted.updates:,} updates, which read {read}"


TITLES = {"xlm": "XLM", "unicoder": "Unicoder", "veco": "VECO", "xglue": "Unicoder for XGLUE", "monotrans": "MonoTrans"}


def markdown(system: str, counted_entries: Iterable[tuple[Entry, Counts]]) -> str:
    """A page with the table of a system's configurations."""
    rows = []
    for entry, counted in counted_entries:
        parts = (counted.weights, counted.gradients, counted.master_weights, counted.optimizer)
        held = (largest(counted, "activations")[1], largest(counted, "loss")[1], counted.peak)
        epoch = ("" if each is None else f"{each:,}" for each in (counted.updates, counted.read_tokens))
        name = (row_name(entry), counted.precision, f"{counted.parameters:,}", entry.paper or "")
        rows.append([*name, *map(gib, (*parts, *held)), _tokens(counted), *epoch])
    template = jinja2.Template(
        Path(__file__).with_name("page.jinja").read_text(encoding="utf-8"), trim_blocks=True, keep_trailing_newline=True
    )
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "fairseq"))
    return template.render(system=TITLES.get(system, system), versions=versions, rows=rows)


def row_name(entry: Entry) -> str:
    """The first cell of a configuration's row."""
    files = " ".join(entry.listed_files)
    flags = f" `{shlex.join(entry.flags)}`" if entry.flags else ""
    return f"{entry.name}: {files}{flags}"
