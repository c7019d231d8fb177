"""Converts models between this package, transformers, fairseq and sentence-transformers.

IN is a published model (XLM-R, XLM, mBERT, mBART, VECO's translation model), which becomes a folder with checkpoint.pt,
dict.txt and its sub-words, or a checkpoint of this package, which becomes a folder for transformers, fairseq or
sentence-transformers. Nothing in a file is run.
"""

import argparse
import logging
import os
from pathlib import Path
from typing import Any

from fairseq_xl import register
from fairseq_xl.data.store.shards import first_folder
from fairseq_xl.errors import UserError, in_range, language_codes
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

KINDS = ("transformers", "fairseq", "sentence-transformers")
DTYPES = ("float32", "float16", "bfloat16")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    register()
    from fairseq_xl.checkpoints import conversion, published_models
    from fairseq_xl.inference.published_import import import_model
    from fairseq_xl.io.checkpoints import CHECKPOINTS, DICTIONARY, check_checkpoint, found_in, refuse_hub_name

    source, output = Path(options.input), Path(options.output)
    if not source.exists():
        refuse_hub_name(source)
        raise UserError(f"{source}: there is no such file or folder")
    if source.is_dir() and any((source / name).is_file() for name in CHECKPOINTS):
        source, _ = found_in(source)
    model = published_models.read(source, values=False)  # the model is read later
    if isinstance(model, published_models.Published):
        _refuse(
            options, OUT, f"{source} is a published model: convert it to a checkpoint first, and then the checkpoint"
        )
        languages = language_codes("--langs", options.langs) if options.langs else model.languages
        if not languages:
            raise UserError(f"{source} has no languages: name those of its text, as in --langs en,de")
        _check_languages(languages, model.languages, source)
        codes = Path(options.codes) if options.codes else None
        with new_folder(output) as folder:
            import_model(model, source, folder, languages, codes, options.cased or None)
    else:
        check_checkpoint(model, source)
        _refuse(options, IN, f"for published models only, and {source} is not one")
        kind = options.to or KINDS[0]
        transformers_only = ("layout", "no_head", "no_tokenizer")
        unused = {"fairseq": (*transformers_only, "layer", "pooling"), "transformers": ("layer", "pooling")}
        _refuse(options, unused.get(kind, transformers_only), f"not for --to {kind}")
        data = first_folder(options.data or found_in(source)[1] or _data_of_training(model, source))
        if not (data / DICTIONARY).is_file():
            raise UserError(f"--data: name the data folder of {source}, with its {DICTIONARY}")
        export = conversion.Export(
            kind=kind,
            language=options.lang,
            language_module=options.language_module,
            head=not options.no_head,
            layout=options.layout,
            dtype=options.dtype,
            layer=options.layer,
            pooling=options.pooling,
            tokenizer=not options.no_tokenizer,
        )
        conversion.export_model(str(source), data, output, export)
    logger.info("%s: written", output)


#: options of the way to other programs and of the way from them
OUT = ("to", "layout", "data", "lang", "language_module", "no_head", "no_tokenizer", "dtype", "layer", "pooling")
IN = ("langs", "codes", "cased")


def _refuse(options: argparse.Namespace, names: tuple[str, ...], reason: str) -> None:
    """Raises `UserError` for the first of some options that is not at its default."""
    for name in names:
        if getattr(options, name) != _parser().get_default(name):
            raise UserError(f"--{name.replace('_', '-')}: {reason}")


def _check_languages(languages: list[str], model_languages: list[str], source: Path) -> None:
    """Logs a warning for languages that a model with languages lacks.

    Raises `UserError` for another spelling of one that it has, such as de_DE.
    """
    lacking = [code for code in languages if code not in model_languages]
    for code in lacking:
        short = code.split("_")[0]
        if short in model_languages:
            raise UserError(f"--langs: {source} has {code} under the name {short}")
    if model_languages and lacking:
        logger.warning("%s has no %s: random embeddings", source, ", ".join(lacking))


def _data_of_training(checkpoint: dict[str, Any], file: Path) -> Path:
    """The data folder of a checkpoint's training, or the checkpoint's folder if that is not known."""
    task = (checkpoint.get("cfg") or {}).get("task") or {}
    return Path(str(task.get("data") or file.parent).split(os.pathsep)[0])


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
    parser.add_argument("--to", choices=KINDS, help=f"kind of the folder (default: {KINDS[0]})")
    parser.add_argument("--layout", help="layout of the folder for transformers (default: the first one that fits)")
    parser.add_argument(
        "--data",
        help="its data folder (default: the checkpoint's folder if it has a dict.txt, else that of the training)",
    )
    parser.add_argument(
        "--lang",
        help="language of the text, or direction such as en-de: its language embeddings are added to the position "
        "embeddings, so that the model serves only this language or direction",
    )
    parser.add_argument(
        "--language-module",
        metavar="FILE",
        help="language module in place of the checkpoint's (MonoTrans); from an archive, the module of --lang",
    )
    parser.add_argument("--no-head", action="store_true", help="leave out the head of fine-tuning")
    parser.add_argument("--no-tokenizer", action="store_true", help="write the model alone")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="type of the weights (default: %(default)s)")
    parser.add_argument(
        "--layer",
        action=in_range(int, "0 or more"),
        help="sentence-transformers: the layer that is pooled (default: the last)",
    )
    parser.add_argument(
        "--pooling", choices=("mean", "first"), default="mean", help="sentence-transformers (default: %(default)s)"
    )
    return parser
