"""Writes language modules of MonoTrans models: files that hold what one language adds.

    fairseq-xl model language-module extract runs/my/de/checkpoint_best.pt de.language-module.pt

A module is that of a checkpoint, or is made from embeddings (Artetxe et al. 2020, section 2).
"""

import argparse

from fairseq_xl.checkpoints.embedding_files import read as read_vectors
from fairseq_xl.commands import Options, argument, command
from fairseq_xl.data.store.manifest import data_folders
from fairseq_xl.errors import in_range

CHECKPOINT = argument("checkpoint", "checkpoint of an xl_monotrans_* model")
MODULE = argument("module", "file to write")
EMBEDDINGS = (
    argument("data", "data folder with the dictionary of the embeddings"),
    argument("vectors", "file of `fairseq-xl embeddings skipgram` or `fairseq-xl embeddings map`"),
    argument("--std", "their standard deviation (default: --init-std of CHECKPOINT)", in_range(float, "more than 0")),
)
#: (subcommand, what it does, arguments)
SUBCOMMANDS = (
    ("extract", "write the language module of a checkpoint to a file", ()),
    ("from-embeddings", "make a language module from embeddings trained without the model", EMBEDDINGS),
)


def _subcommands(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="command", required=True)
    for name, description, more in SUBCOMMANDS:
        subcommand = subcommands.add_parser(name, help=description, description=description)
        for add in (CHECKPOINT, *more, MODULE):
            add(subcommand)


@command(_subcommands)
def main(options: Options) -> None:
    """Runs the command. A file is replaced only by another version of its module."""
    from fairseq_xl.checkpoints import language_modules
    from fairseq_xl.checkpoints.identity import open_checkpoint
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary

    checkpoint = open_checkpoint(options.checkpoint, finite=False)
    module = language_modules.extract(checkpoint)
    if options.command == "from-embeddings":  # the module's output bias is 0: only masked language modeling reads it
        std = checkpoint.options["init_std"] if options.std is None else options.std
        dictionary = XLDictionary.load(data_folders(options.data)[0] / "dict.txt")
        module = language_modules.from_embeddings(module, read_vectors(options.vectors), dictionary, std)
    language_modules.write(module, options.module)
