"""Dry run of a training, without its text or a GPU: its memory and its updates, computed.

    fairseq-xl plan recipes/veco/config/pretrain.yaml --distributed-world-size 8

CONFIG … are YAML files of flags of fairseq-train, as --config names them; flags on the command line override
them. The command computes the number of parameters, the peak memory of each GPU and its parts, the tokens of an update
over all processes (--distributed-world-size), and the updates and tokens of an epoch. No file stays, except those of
--json and --write.

For a configuration listed in a papers.yaml in one of its parent folders, the vocabulary, the languages and the
published number of parameters come from there.
"""

import dataclasses
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from fairseq_xl import register
from fairseq_xl.commands import Options, argument, flag, parser_of
from fairseq_xl.errors import UserError, in_range, names_of, positive_integer
from fairseq_xl.io import bounds
from fairseq_xl.io.files import replacing
from fairseq_xl.io.flags import file_of, overridden

PROGRAM = "fairseq-xl plan"
SYMBOLS = in_range(int, "1 or more", bounds.LARGEST_VOCABULARY)
USAGE = """fairseq-xl plan CONFIG.yaml … [options] [--flag value …]
       fairseq-xl plan --list LIST.yaml [options]"""
ARGUMENTS = (
    argument("--vocabulary", "symbols in the dictionary (default: the list's, or 32000)", SYMBOLS),
    argument("--languages", "language symbols in the dictionary (default: the list's, or 2)", SYMBOLS),
    argument(
        "--examples",
        "training examples (sentence pairs or labeled texts), from which the updates of an epoch follow; not needed "
        "for pre-training, whose epochs have --updates-per-epoch updates",
        positive_integer,
    ),
    argument("--line-tokens", "tokens per side of a sentence pair, with </s> (default: 32)", positive_integer),
    argument("--json", "also write the counts to this file", metavar="FILE"),
    argument("--list", "plan the configurations of a list, such as recipes/papers.yaml", metavar="FILE"),
    argument("--only", "with --list: only these systems", metavar="SYSTEM,…"),
    flag("--write", "with --list: write SYSTEM/results/rehearsal.md in the folder of the list"),
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    configs = []
    while words and words[0].endswith((".yaml", ".yml")):
        configs.append(words.pop(0))
    parser = parser_of(__name__, *ARGUMENTS, usage=USAGE, allow_abbrev=False)
    options, flags = parser.parse_known_args(words)
    if bool(configs) == bool(options.list):
        raise UserError("plan: name CONFIG.yaml …, or --list LIST.yaml")
    if options.list and flags:
        raise UserError(f"plan: unexpected {flags[0]}: with --list, flags come from the list's 'flags'")
    if not options.list and (options.only or options.write):
        raise UserError("plan: --only and --write need --list")
    register()
    logging.disable(logging.WARNING)  # of tasks, about the generated text
    program, sys.argv[0] = sys.argv[0], PROGRAM  # argparse shows it in errors of fairseq's flags
    try:
        _rehearse(configs, flags, options)
    finally:
        logging.disable(logging.NOTSET)
        sys.argv[0] = program


def _rehearse(configs: list[str], flags: list[str], options: Options) -> None:
    from fairseq_xl.rehearsal.counting import count
    from fairseq_xl.rehearsal.report import counts_text, markdown

    entries = _entries(configs, flags, options)
    counts, records = [], []
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        for index, entry in enumerate(entries):
            counts.append(count(entry.setting(), Path(name) / str(index)))
            title = f"{entry.system}, {entry.name}\n" if options.list else ""
            sys.stdout.write(f"{title}{counts_text(counts[-1], entry.paper)}" + ("\n" if options.list else ""))
            sys.stdout.flush()
            counted = dataclasses.asdict(counts[-1])
            records.append({"system": entry.system, "name": entry.name, "paper": entry.paper, "counted": counted})
    if options.json:
        with replacing(options.json) as file:
            file.write((json.dumps(records, indent=1) + "\n").encode())
    if options.write:
        for system in dict.fromkeys(entry.system for entry in entries):
            rows = [row for row in zip(entries, counts) if row[0].system == system]
            path = Path(options.list).parent / system / "results/rehearsal.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(markdown(system, rows).encode())


def _entries(configs: list[str], flags: list[str], options: Options) -> list[Any]:
    from fairseq_xl.rehearsal.report import Entry, find_entry, read_list

    numbers = {name: getattr(options, name) for name in ("vocabulary", "languages", "examples", "line_tokens")}
    numbers = {name: value for name, value in numbers.items() if value is not None}
    if options.list:
        if numbers:
            name = next(iter(numbers)).replace("_", "-")
            raise UserError(f"plan: --{name} cannot be used with --list: the list sets it")
        entries = read_list(Path(options.list))
        systems = dict.fromkeys(entry.system for entry in entries)
        names = names_of("--only", options.only) if options.only else list(systems)
        if unknown := set(names) - systems.keys():
            expected = ", ".join(systems)
            raise UserError(f"--only {options.only}: {options.list} has no {min(unknown)}: expected some of {expected}")
        return [entry for entry in entries if entry.system in names]
    missing = [name for name in configs if not Path(name).is_file()]
    if missing:
        raise UserError(f"{missing[0]}: no such file")
    _check_keys(configs, flags)
    listed = find_entry(configs, flags)
    values, paper = (listed.values | numbers, listed.paper) if listed else (numbers, None)
    return [Entry("", " ".join(configs), tuple(configs), tuple(flags), paper, values)]


def _check_keys(configs: list[str], flags: list[str]) -> None:
    """Raises `UserError` for a key of a YAML file that is no flag of fairseq-train; argparse does not name the file."""
    from fairseq import options

    arguments = [*overridden(configs, flags), "--total-num-update", "1000"]  # a linear decay requires it
    _, unknown = options.parse_args_and_arch(options.get_training_parser(), ["data", *arguments], parse_known=True)
    for name in unknown:
        path = file_of(configs, name)
        if path is not None:
            raise UserError(f"{path}: {name[2:]}: fairseq-train has no flag {name} with this task, model and optimizer")
