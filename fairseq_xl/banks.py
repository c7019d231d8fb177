"""Files of banks (MonoTrans, M1).

    python -m fairseq_xl.banks extract CHECKPOINT BANK     the bank of a checkpoint, in a file of its own
    python -m fairseq_xl.banks pack FAMILY BANK ...        adds files of banks to a file of several
    python -m fairseq_xl.banks list FILE                   what is in a file of either kind, one JSON line
    python -m fairseq_xl.banks get FAMILY LANGUAGE BANK    one bank, as it was packed

`fairseq_xl.checkpoints.banks` says what banks are. A file that is none, or one of another language,
body or form, is not written over.
"""

import argparse
import json
import logging
import sys

from fairseq_xl import error_reporting, register
from fairseq_xl.checkpoints import banks
from fairseq_xl.io.checkpoints import load_checkpoint


def main(arguments: "list[str] | None" = None) -> None:
    """The command; ``--help`` lists what it does."""
    parser = argparse.ArgumentParser("python -m fairseq_xl.banks", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, told, *files in (
        ("extract", "write the bank of a checkpoint to a file", "CHECKPOINT", "BANK"),
        ("pack", "add files of banks to one file of several", "FAMILY", "BANKS"),
        ("list", "print what is in a file", "FILE"),
        ("get", "write one of a file of several to a file", "FAMILY", "LANGUAGE", "BANK"),
    ):
        command = commands.add_parser(name, help=told)
        for file in files:
            command.add_argument(file.lower(), metavar=file, nargs="+" if file == "BANKS" else None)
    options = parser.parse_args(arguments)
    register()
    if options.command == "extract":
        banks.write(banks.extract(load_checkpoint(options.checkpoint), options.checkpoint), options.bank)
    elif options.command == "pack":
        banks.pack(options.family, options.banks)
    elif options.command == "list":
        sys.stdout.write(json.dumps(banks.describe(options.file)) + "\n")
    else:
        banks.copy(options.family, options.language, options.bank)


if __name__ == "__main__":
    error_reporting.install()
    logging.basicConfig(format="%(levelname)s | %(name)s | %(message)s", level=logging.INFO, stream=sys.stderr)
    main()
