"""Options that were renamed: commands refuse the old name, checkpoints that store it are still read."""

from collections.abc import Iterable

from fairseq_xl.errors import UserError

#: old option -> new option, as on the command line. In YAML and in checkpoints they are written with underscores
RENAMED_OPTIONS: dict[str, str] = {}


def refuse_old_options(arguments: Iterable[str]) -> None:
    """Raises `UserError` for the first command-line argument that is an old option; `=VALUE` may follow it."""
    for option in (str(argument).partition("=")[0] for argument in arguments):
        if option in RENAMED_OPTIONS:
            raise UserError(f"{option} is now called {RENAMED_OPTIONS[option]}")


def new_key(key: str) -> str:
    """The present name of a key of a configuration: that of the renamed option, or `key` itself."""
    option = f"--{key.replace('_', '-')}"
    return RENAMED_OPTIONS[option][2:].replace("-", "_") if option in RENAMED_OPTIONS else key
