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
        """The setting of the entry; raises `UserError` for a wrong file."""
        return Setting(tuple(overridden(list(self.files), list(self.flags))), **self.values)


def read_list(path: Path) -> list[Entry]:
    """Reads a list of configurations, ``SYSTEM: {NAME: {files: […], …}}``; raises `UserError` for another file."""
    content = load(path)
    entries = []
    for system, configurations in _mapping(content, path, "SYSTEM").items():
        for name, entry in _mapping(configurations, path, str(system)).items():
            where = f"{path}: {system}: {name}"
            for key, value in _mapping(entry, path, f"{system}: {name}").items():
                if key not in KEYS:
                    raise UserError(f"{where}: there is no key {quoted(key)}: expected one of {', '.join(KEYS)}")
                if type(value) is not KEYS[key]:
                    raise UserError(f"{where}: {key} should be {KEYS[key].__name__}, found {quoted(value)}")
            if not entry.get("files"):
                raise UserError(f"{where}: the key 'files' is missing")
            files = tuple(str(path.parent / file) for file in entry["files"])
            values = {key.replace("-", "_"): entry[key] for key in NUMBERS if key in entry}
            flags = tuple(shlex.split(entry.get("flags", "")))
            paper, listed = entry.get("parameters"), tuple(entry["files"])
            entries.append(Entry(str(system), str(name), files, flags, paper, values, listed))
    return entries


def _mapping(value: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{path}: {where}: expected a mapping, found {quoted(value)}")
    return value


def find_entry(files: list[str], flags: list[str], name: str = "papers.yaml") -> Entry | None:
    """The entry of these files in a list `name` in a folder above them, one with the same flags if there is one."""
    paths = [Path(file).resolve() for file in files]
    for folder in paths[-1].parents[:4] if paths else ():
        if (folder / name).is_file():
            entries = [e for e in read_list(folder / name) if [Path(file).resolve() for file in e.files] == paths]
            return next((entry for entry in entries if list(entry.flags) == flags), entries[0] if entries else None)
    return None


def gib(size: int) -> str:
    """Bytes in GiB."""
    return f"{size / GIB:.2f}"


def largest(counts: Counts, part: str) -> tuple[str, int]:
    """The objective whose batch has the most bytes of a part, "activations" or "loss", and the bytes."""
    sizes = {name: getattr(batch, part) for name, batch in counts.batches.items()}
    return max(sizes.items(), key=lambda item: item[1])


def counts_text(counts: Counts, paper: str | None) -> str:
    """The counts as lines of text."""
    activations, loss = largest(counts, "activations"), largest(counts, "loss")
    processes = f"{counts.processes} process{'es' if counts.processes > 1 else ''}"
    frequency = f"--update-freq {counts.micro_steps}"
    if counts.batches_per_update:
        frequency = f"--batches-per-update {counts.batches_per_update}, {counts.micro_steps} of each process"
    rows = [
        ("parameters", f"{counts.parameters:,}" + (f" (published: {paper})" if paper else "")),
        *([("trained", f"{counts.trained:,}")] if counts.trained < counts.parameters else []),
        ("peak memory per GPU", f"{gib(counts.peak)} GiB"),
        ("  weights", gib(counts.weights)),
        ("  gradients", gib(counts.gradients)),
        ("  FP32 master weights", f"{gib(counts.master_weights)} (with their gradients)"),
        ("  optimizer state", gib(counts.optimizer)),
        ("  activations", f"{gib(activations[1])} ({activations[0]})"),
        ("  loss", f"{gib(loss[1])} ({loss[0]})"),
        *(
            [("  DDP buckets", f"{gib(counts.buckets)} (copies of gradients that processes exchange)")]
            if counts.buckets
            else []
        ),
        *(
            (f"batch of {name}", f"{batch.examples:,} examples, {batch.tokens:,} tokens: peak {gib(batch.peak)} GiB")
            for name, batch in counts.batches.items()
        ),
        ("tokens of an update", f"{_tokens(counts)} ({processes}, {frequency})"),
        ("epoch", _epoch(counts)),
        *(("note", note) for note in counts.notes),
    ]
    width = max(len(name) for name, _ in rows) + 2
    return "".join(f"{name:<{width}}{value}\n" for name, value in rows)


def _tokens(counts: Counts) -> str:
    return ", ".join(f"{tokens:,} {name}" for name, tokens in counts.tokens.items())


def _epoch(counts: Counts) -> str:
    if counts.updates is None:
        return "all text once (pass --examples N for the number of updates)"
    volume = f"{counts.read_tokens:,} tokens, {(counts.read_bytes or 0) / 1e6:,.0f} MB"
    return f"{counts.updates:,} updates, which read {volume}"


TITLES = {"xlm": "XLM", "unicoder": "Unicoder", "veco": "VECO", "xglue": "Unicoder for XGLUE", "monotrans": "MonoTrans"}


def markdown(system: str, entry_counts: Iterable[tuple[Entry, Counts]]) -> str:
    """A page with the table of a system's configurations."""
    rows = []
    for entry, counts in entry_counts:
        parts = (counts.weights, counts.gradients, counts.master_weights, counts.optimizer)
        held = (largest(counts, "activations")[1], largest(counts, "loss")[1], counts.peak)
        epoch = ("" if value is None else f"{value:,}" for value in (counts.updates, counts.read_tokens))
        name = (row_name(entry), counts.precision, f"{counts.parameters:,}", entry.paper or "")
        rows.append([*name, *map(gib, (*parts, *held)), _tokens(counts), *epoch])
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
