"""Language modules of MonoTrans models (Artetxe et al. 2020, section 2): files that hold what one language adds."""

import argparse
from typing import Any

from fairseq_xl import register
from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.embedding_files import read as read_vectors
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.commands import Options, argument, command
from fairseq_xl.data.store.manifest import first_folder
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import in_range

#: (subcommand, what it does, arguments)
SUBCOMMANDS = (
    ("extract", "write the language module of a checkpoint to a file", ("CHECKPOINT", "MODULE")),
    ("pack", "add files of language modules to an archive", ("ARCHIVE", "MODULES")),
    ("list", "print what is in a file or an archive, as a JSON line", ("FILE",)),
    ("get", "write a language module of an archive to a file, as it was packed", ("ARCHIVE", "LANGUAGE", "MODULE")),
    (
        "from-embeddings",
        "make a language module from embeddings trained without the model",
        ("CHECKPOINT", "DATA", "VECTORS", "MODULE"),
    ),
)
HELP = {
    "CHECKPOINT": "checkpoint of an xl_monotrans_* model",
    "MODULE": "file to write",
    "MODULES": "files of one language module each",
    "ARCHIVE": "file of several language modules",
    "FILE": "file of one language module, or archive",
    "LANGUAGE": "language code",
    "DATA": "data folder with the dictionary of the embeddings",
    "VECTORS": "file of `fairseq-xl skipgram` or `fairseq-xl map-embeddings`",
}
STD = "scale the embeddings to this standard deviation (default: --init-std of CHECKPOINT)"


def _subcommands(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="command", required=True)
    for name, description, names in SUBCOMMANDS:
        subcommand = subcommands.add_parser(name, help=description, description=description)
        for word in names:
            argument(word.lower(), HELP[word], metavar=word, nargs="+" if word == "MODULES" else None)(subcommand)
    argument("--std", STD, in_range(float, "more than 0"))(subcommands.choices["from-embeddings"])


@command(_subcommands)
def main(options: Options) -> dict[str, Any] | None:
    """Runs the command. A file is replaced only by another version of its module (`check_replaceable`)."""
    register()
    if options.command == "extract":
        module = language_modules.extract(open_checkpoint(options.checkpoint, finite=False))
        language_modules.write(module, options.module)
    elif options.command == "pack":
        language_modules.pack(options.archive, options.modules)
    elif options.command == "list":
        return language_modules.describe(options.file)
    elif options.command == "get":
        language_modules.copy(options.archive, options.language, options.module)
    else:  # the output bias of the module is 0: only the prediction of masked words reads it
        checkpoint = open_checkpoint(options.checkpoint, finite=False)
        module = language_modules.extract(checkpoint)
        std = checkpoint.options["init_std"] if options.std is None else options.std
        dictionary = XLDictionary.load(first_folder(options.data) / "dict.txt")
        module = language_modules.from_embeddings(module, read_vectors(options.vectors), dictionary, std)
        language_modules.write(module, options.module)
    return None
