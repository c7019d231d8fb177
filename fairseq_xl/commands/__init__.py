"""The command ``fairseq-xl``, also ``python -m fairseq_xl``: one module of this package for each subcommand.

This module imports neither torch nor fairseq, so that ``--help`` and scores need not wait for them.
"""

import argparse
import functools
import importlib
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from fairseq_xl.errors import in_range, natural_number
from fairseq_xl.io import bounds, error_reporting
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.result_tables import table
from fairseq_xl.io.signals import ending_by_exception
from fairseq_xl.io.versions import version

#: first words of subcommands that have two
GROUPS = ("data", "embeddings", "model", "plot", "probe", "score", "search")
#: readers of published corpora
READERS = {name: name for name in "columns conll mldoc opus pawsx squad xglue xglue_generation xnli xtreme".split()}
READERS |= {name: f"{name}.read_{name}" for name in ("libreoffice_help", "wikipedia", "wmt")}
#: subcommand -> its module, whose `main` takes words
COMMANDS = {
    re.sub(rf"^({'|'.join(GROUPS)})-", r"\1 ", path.stem.replace("_", "-")): f"{__name__}.{path.stem}"
    for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
}
COMMANDS |= {f"data {name}": f"preprocess.commands.{name}" for name in "prepare encode verify sample split".split()}
COMMANDS |= {f"data {name}": f"preprocess.{name}" for name in ("disjoint", "sentences")}
COMMANDS |= {"data romanian": "preprocess.readers.romanian"}
COMMANDS |= {f"data read {name.replace('_', '-')}": f"preprocess.readers.{path}" for name, path in READERS.items()}
COMMANDS = dict(sorted(COMMANDS.items()))
CONTINUING = ("back-translate", "model add-language", "search negatives")  # a stopped run continues
HELP = ("-h", "--help")
METAVARS = {"--lang": "XX", "--langs": "XX,YY", "--pairs": "XX-YY,…"}
CLOSED = 141  # status of a program that SIGPIPE ends, 128 + 13

Argument = Callable[[Any], object]  # adds an argument to a parser
Options = argparse.Namespace


def argument(names: str, help_text: str, number: Any = None, default: Any = None, **options: Any) -> Argument:
    """An argument of a subcommand; its help ends in its default, where there is one.

    Args:
        names: ``data``, or ``-s --source-lang``.
        number: `action` of a number: `in_range`, `positive_integer`.
        options: as those of `argparse.ArgumentParser.add_argument`.
    """
    if type(default) in (int, float, str) and default != "":
        help_text += " (default: %(default)s)"
    is_positional = not names.startswith("-") and "choices" not in options
    options.setdefault("metavar", names.upper() if is_positional else METAVARS.get(names))
    if number is not None:
        options["action"] = number
    return lambda parser: parser.add_argument(*names.split(), help=help_text, default=default, **options)


def flag(name: str, help_text: str) -> Argument:
    """An argument without value, which is True if it is there."""
    return lambda parser: parser.add_argument(name, help=help_text, action="store_true")


def several(name: str, help_text: str, metavar: str, action: str = "extend", **options: Any) -> Argument:
    """An option with any number of values, none by default; with the action ``append`` each is named by the option."""
    nargs = {"nargs": "+"} if action == "extend" else {}
    return argument(name, help_text, default=[], action=action, metavar=metavar, **nargs, **options)


def files_by_language(form: str) -> tuple[Argument, ...]:
    """The arguments of `score_languages`; `form` is that of the files in the folder."""
    return (
        argument("folder", f"folder of {form}, written by fairseq-validate --predictions-to"),
        argument("--split", "split", default="test"),
        argument("--langs", "languages to score, with averages if none is missing", required=True),
    )


CHECKPOINT = argument("checkpoint", "checkpoint of any task")
ENCODER = argument("checkpoint", "checkpoint of any task with an encoder")
DATA = argument("data", "data folder with its dict.txt and its sub-words")
DATA_OF_CHECKPOINT = "data folder (default: the checkpoint's folder if it has a dict.txt, else that of the training)"
MODULE = argument("--language-module", "language module in place of the checkpoint's (MonoTrans)", metavar="FILE")
PROMPT = argument(
    "--prompt",
    "name of the prompt of sentence-transformers in front of each sentence, such as query; '': no prompt (default: the "
    "model's)",
)
FP16 = flag("--fp16", "16-bit weights: faster on a GPU")
RESAMPLES = in_range(int, "0 or more", bounds.MOST_RESAMPLES)
BOOTSTRAP = argument("--bootstrap", "resamples for the 95 %% interval; 0: none", RESAMPLES, 1000)
#: language modules of `Embedders`
MODULES = several(
    "--language-module",
    "a language module that replaces the checkpoint's (MonoTrans), and the folder of its dict.txt",
    "XX=DATA:MODULE",
    "append",
)
#: `action` of the size of a beam and the like
BEAM_SIZE = in_range(int, "1 or more", bounds.LARGEST_BEAM)
JSON = flag("--json", "print JSON in place of tables, as where standard output is no terminal")


def _output(parser: argparse.ArgumentParser) -> None:
    if "--output" not in parser._option_string_actions:
        text = "write the result to this file, as JSON, and print tables"
        parser.add_argument("--output", help=text, metavar="FILE", dest="output_json")


RESULT = (JSON, _output)  # of a command that prints a result


def embedding_options(remark: str, modules: Argument = MODULES) -> tuple[Argument, ...]:
    """The options of `Embedders`; `remark` says what --layer and --pooling are by default."""
    return (
        modules,
        FP16,
        argument("--layer", f"layer whose hidden states are pooled, 0: the embeddings ({remark})", natural_number),
        argument(
            "--pooling", f"mean: mean over the tokens; first: the first token ({remark})", choices=("mean", "first")
        ),
        PROMPT,
    )


#: of the probes
PROBED = (
    ENCODER,
    argument("data", "data folder of the probed language, with dict.txt and sentencepiece.model"),
    argument("--lang", "language of the text", default="en"),
    MODULE,
)


def parser_of(module: str, *arguments: Argument, **settings: Any) -> argparse.ArgumentParser:
    """The parser of a subcommand, described by the docstring of its module; `settings` are those of argparse."""
    name = next(name for name, command_module in COMMANDS.items() if command_module == module)
    form, description = argparse.RawDescriptionHelpFormatter, sys.modules[module].__doc__
    parser = argparse.ArgumentParser(f"fairseq-xl {name}", description=description, formatter_class=form, **settings)
    for add in arguments:
        add(parser)
    return parser


def command(
    *arguments: Argument,
    intermixed: bool = False,
    flags: bool = False,
    result: Sequence[Argument] = RESULT,
    show: Callable[[dict[str, Any]], str] = table,
    **settings: Any,
) -> Callable[[Callable], Callable]:
    """Decorator of the function `main(options)` of a subcommand's module, which makes it a function of words.

    It parses the words, by default those of the command line, and prints a result, or each of several: as tables on a
    terminal, otherwise, and with --json, as a line of JSON. A command without an --output of its own gets one: the file
    gets the JSON, and tables are printed. Options may stand between the words of one argument if `intermixed`; if
    there are `flags` of another command, they are `options.flags`. `result` are the options of printing, () if
    subcommands have them; `show` makes the tables; `settings` are those of `parser_of`.
    """

    def decorate(run: Callable[[Options], dict[str, Any] | Iterator[dict[str, Any]] | None]) -> Callable:
        @functools.wraps(run)
        def main(words: list[str] | None = None) -> None:
            printed = result if run.__annotations__["return"] is not None else ()
            parser = parser_of(run.__module__, *arguments, *printed, **settings)
            if flags:
                options, rest = parser.parse_known_args(words)
                options.flags = rest
            else:
                options = parser.parse_intermixed_args(words) if intermixed else parser.parse_args(words)
            returned, entries = run(options), []
            for entry in returned if isinstance(returned, Iterator) else [] if returned is None else [returned]:
                in_json = options.json or not (getattr(options, "output_json", None) or sys.stdout.isatty())
                sys.stdout.write(json.dumps(entry) + "\n" if in_json else show(entry))
                sys.stdout.flush()
                entries.append(json.dumps(entry))
            if getattr(options, "output_json", None):
                write_lines(options.output_json, entries)

        return main

    return decorate


def description(name: str) -> str:
    """The first line of the docstring of a subcommand, read without importing what the subcommand needs."""
    path = Path(__file__).parents[2].joinpath(*COMMANDS[name].split(".")).with_suffix(".py")
    return path.read_text(encoding="utf-8").split('"""', 2)[1].splitlines()[0].rstrip(".")


def main(arguments: list[str] | None = None) -> None:
    """Runs a subcommand; ends with status `CLOSED` if the reader of its output, such as `head`, has closed it."""
    try:
        try:
            _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # the interpreter writes what is left of the output when it ends
        os.close(nowhere)
        sys.exit(CLOSED)


def _run(words: list[str]) -> None:
    error_reporting.install()
    if words == ["--version"]:
        listed = (f"{package} {version(package)}" for package in ("fairseq_xl", "fairseq", "torch"))
        sys.stdout.write(f"{', '.join(listed)}\n")
        return
    name = next((" ".join(words[:count]) for count in (1, 2, 3) if " ".join(words[:count]) in COMMANDS), None)
    if name is None:
        _help_or_refuse(words)
    arguments, module = words[len(name.split()) :], COMMANDS[name]
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)  # of `import fairseq`
    try:
        if module.startswith("preprocess."):  # it has a log of its own
            sys.exit(importlib.import_module(module).main(arguments))
        shown = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
        logging.basicConfig(format=shown, datefmt="%Y-%m-%d %H:%M:%S", level=logging.INFO)
        with ending_by_exception():
            importlib.import_module(module).main(arguments)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("fairseq_xl"):
            raise
        sys.exit(
            f"fairseq_xl: error: the package {error.name} is missing: `. recipes/environment.sh` in the repository "
            "prepares and activates the environment"
        )
    except KeyboardInterrupt:
        sys.stderr.write(f"Interrupted{': run the same command to continue' if name in CONTINUING else ''}\n")
        sys.exit(130)


def _help_or_refuse(words: list[str]) -> NoReturn:
    prefixes = {tuple(name.split()[:count]) for name in COMMANDS for count in range(len(name.split()))}
    group = next(words[:count] for count in (2, 1, 0) if tuple(words[:count]) in prefixes)
    commands = [name for name in COMMANDS if name.split()[: len(group)] == group]
    rest = words[len(group) :]
    if rest and rest[0] not in HELP:
        wrong = " ".join(words[: len(group) + 1])
        expected = ", ".join(dict.fromkeys(" ".join(name.split()[: len(group) + 1]) for name in commands))
        leaves = {name.split()[-1]: name for name in COMMANDS}  # words of commands without their group
        similar = get_close_matches(" ".join(words[:2]), COMMANDS, 1)
        similar += get_close_matches(wrong, COMMANDS, 1)
        similar += [leaves[leaf] for leaf in get_close_matches(words[len(group)], leaves, 1)]
        similar += get_close_matches(words[0], GROUPS, 1)
        hint = f"did you mean {similar[0]!r}? Otherwise " if similar else ""
        sys.stderr.write(f"fairseq-xl: error: there is no command {wrong!r}: {hint}expected one of {expected}\n")
        sys.exit(2)
    title = " ".join(["fairseq-xl", *group])
    width = max(map(len, commands)) + 2
    listed: dict[str, str] = {"": ""}  # by group; commands without one come first
    for name in commands:
        of = name.split()[0] if name.split()[0] in GROUPS else ""
        listed[of] = listed.get(of, "") + f"  {name:<{width}}{description(name)}\n"
    blocks = "\n".join(filter(None, listed.values()))
    sys.stdout.write(f"usage: {title} COMMAND ...\n\n{blocks}\n`fairseq-xl COMMAND --help` shows its arguments.\n")
    sys.exit(0 if rest else 2)
