"""Converts models between this package, transformers, fairseq and sentence-transformers.

IN is a published model (XLM-R, XLM, mBERT, mBART, VECO's translation model), which becomes a folder with checkpoint.pt,
dict.txt and its sub-words, or a checkpoint of this package, which becomes a folder for transformers, fairseq or
sentence-transformers. Nothing in a file is run.
"""

import argparse
import logging
from pathlib import Path

from fairseq_xl import register
from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

KINDS = ("transformers", "fairseq", "sentence-transformers")
DTYPES = ("float32", "float16", "bfloat16")
CHECKPOINT, DICTIONARY = "checkpoint.pt", "dict.txt"


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    register()
    from fairseq_xl import conversion
    from fairseq_xl.checkpoints import published

    source, output = Path(options.input), Path(options.output)
    if not source.exists():
        raise UserError(f"{source}: there is no such file or folder")
    if source.is_dir() and (source / CHECKPOINT).is_file():
        source = source / CHECKPOINT
    found = published.read(source)
    if isinstance(found, published.Published):
        wrong = [f"--{name.replace('_', '-')}" for name in OUT if getattr(options, name) != _DEFAULTS[name]]
        if wrong:
            raise UserError(
                f"{wrong[0]}: {source} is a published model: convert it to a checkpoint first, and then the checkpoint"
            )
        languages = options.langs.split(",") if options.langs else found.languages
        with new_folder(output) as folder:
            codes = Path(options.codes) if options.codes else None
            conversion.import_model(found, source, folder, languages, codes, options.cased or None)
    else:
        for option, value in (("--langs", options.langs), ("--codes", options.codes), ("--cased", options.cased)):
            if value:
                raise UserError(f"{option} is for published models only, and {source} is not one")
        data = Path(options.data) if options.data else source.parent
        if not (data / DICTIONARY).is_file():
            raise UserError(f"--data: name the data folder of {source}, with its {DICTIONARY}")
        conversion.export_model(
            str(source),
            data,
            output,
            options.to,
            options.lang,
            options.language_module,
            not options.no_head,
            options.dtype,
            options.layer,
            options.pooling,
            not options.no_tokenizer,
        )
    logger.info("%s: written", output)


#: options of the way to other programs, with their defaults
_DEFAULTS = {
    "to": KINDS[0],
    "data": None,
    "lang": None,
    "language_module": None,
    "no_head": False,
    "no_tokenizer": False,
    "dtype": DTYPES[0],
    "layer": None,
    "pooling": "mean",
}
OUT = tuple(_DEFAULTS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl convert", description=__doc__)
    parser.add_argument("input", metavar="IN", help="file or folder of the model")
    parser.add_argument("output", metavar="OUT", help="new folder to write")
    parser.add_argument(
        "--langs",
        help="IN is a published model: languages of the dictionary, separated by commas (default: those that it has)",
    )
    parser.add_argument("--codes", metavar="FOLDER", help="IN is a .pth of XLM: folder with its files codes and vocab")
    parser.add_argument(
        "--cased", action="store_true", help="IN is XLM: its text keeps case and accents (XLM-17 and XLM-100)"
    )
    parser.add_argument("--to", choices=KINDS, default=KINDS[0], help="kind of the folder (default: %(default)s)")
    parser.add_argument("--data", help="data folder of the checkpoint (default: the checkpoint's folder)")
    parser.add_argument(
        "--lang",
        help="language of the text, or direction such as en-de: its language embeddings are added to the position "
        "embeddings, so that the model serves only this language or direction",
    )
    parser.add_argument(
        "--language-module",
        metavar="FILE",
        help="language module in place of the checkpoint's (MonoTrans); of an archive, that of --lang",
    )
    parser.add_argument("--no-head", action="store_true", help="leave out the head of fine-tuning")
    parser.add_argument("--no-tokenizer", action="store_true", help="write the model alone")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="type of the weights (default: %(default)s)")
    parser.add_argument("--layer", type=int, help="sentence-transformers: the layer that is pooled (default: the last)")
    parser.add_argument(
        "--pooling", choices=("mean", "first"), default="mean", help="sentence-transformers (default: %(default)s)"
    )
    return parser
