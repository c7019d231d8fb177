"""Options and commands that were renamed: commands refuse the old name, checkpoints that store it are still read."""

import sys
from collections.abc import Iterable

from fairseq_xl.errors import UserError

#: old option -> new option, as on the command line. In YAML and in checkpoints they are written with underscores
RENAMED_OPTIONS: dict[str, str] = {
    "--bank": "--language-module",
    "--new-bank": "--new-language-module",
    "--noised-to": "--corrupted-to",
}
#: module that was a command, `python -m MODULE` -> subcommand of `fairseq-xl`
RENAMED_COMMANDS = {
    "fairseq_xl.banks": "language-module",
    "fairseq_xl.checkpoints.averaging": "average",
    "fairseq_xl.checkpoints.dictionary": "dictionary",
    "fairseq_xl.embeddings.bank": "language-module from-embeddings",
    "fairseq_xl.embeddings.mapping": "map-embeddings",
    "fairseq_xl.embeddings.skipgram": "skipgram",
    "fairseq_xl.evaluation.baselines": "score baselines",
    "fairseq_xl.evaluation.bleu": "score bleu",
    "fairseq_xl.evaluation.classification": "score classification",
    "fairseq_xl.evaluation.curves": "curves",
    "fairseq_xl.evaluation.generation": "score generation",
    "fairseq_xl.mining": "mine-negatives",
    "fairseq_xl.retrieval": "retrieve",
}


def refuse_old_options(arguments: Iterable[str]) -> None:
    """Raises `UserError` for the first command-line argument that is an old option; `=VALUE` may follow it."""
    for option in (str(argument).partition("=")[0] for argument in arguments):
        if option in RENAMED_OPTIONS:
            raise UserError(f"{option} is now called {RENAMED_OPTIONS[option]}")


def new_key(key: str) -> str:
    """The present name of a key of a configuration: the new name of a renamed option, or `key` itself."""
    option = f"--{key.replace('_', '-')}"
    return RENAMED_OPTIONS[option][2:].replace("-", "_") if option in RENAMED_OPTIONS else key


def refuse_old_command() -> None:
    """Ends ``python -m MODULE`` of a module that was a command with the name of the subcommand in its place."""
    for word in sys.orig_argv:
        if word in RENAMED_COMMANDS:
            sys.exit(f"fairseq_xl: error: `python -m {word}` is now called `fairseq-xl {RENAMED_COMMANDS[word]}`")
