"""Converts models between this package, transformers, fairseq and sentence-transformers.

    fairseq-xl model convert downloads/xlm-roberta-base models/xlmr
    fairseq-xl model convert runs/my/nc/checkpoint_best.pt models/nc --data data-bin/my

IN is a published model (XLM-R, XLM, BERT, mBART, VECO's translation model) or a LoRA adapter, which becomes a folder
with checkpoint.pt, dict.txt and its sub-words, or a checkpoint of this package, which becomes a folder for
transformers, fairseq or sentence-transformers. Nothing in a file is run.
"""

import logging
import os
from pathlib import Path

from fairseq_xl import register
from fairseq_xl.commands import DATA_OF_CHECKPOINT, MODULE, Options, argument, command, flag, parser_of
from fairseq_xl.data.store.manifest import data_folders
from fairseq_xl.errors import UserError, language_codes, natural_number
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

KINDS = ("transformers", "fairseq", "sentence-transformers", "transformers.js")


ARGUMENTS = (
    argument("input", "file or folder of the model", metavar="IN"),
    argument("output", "new folder to write", metavar="OUT"),
    argument(
        "--langs",
        "IN is published: languages of the dictionary, joined by commas (default: those that it has; none, for text of "
        "any language, where the model has neither language embeddings nor language symbols)",
    ),
    argument("--codes", "IN is a .pth of XLM: folder with its files codes and vocab", metavar="FOLDER", type=Path),
    flag("--cased", "IN is XLM: its text keeps case and accents (XLM-17 and XLM-100)"),
    argument("--to", f"kind (default: {KINDS[0]}, or {KINDS[2]} for an encoder that came in so)", choices=KINDS),
    argument("--layout", "layout of the folder for transformers (default: the first one that fits)"),
    argument("--data", DATA_OF_CHECKPOINT),
    argument(
        "--lang",
        "language of the text, or direction such as en-de: its language embeddings are added to the position "
        "embeddings, so that the model serves only this language or direction (default: the only one that it has)",
    ),
    flag("--keep-languages", "keep the language embeddings of XLM's class: each call passes their ids as `langs`"),
    MODULE,
    flag("--no-head", "leave out the head of fine-tuning"),
    flag("--no-tokenizer", "write the model alone"),
    argument(
        "--dtype",
        "type of the weights (default: that of the published folder for a model that was not trained here, or float32)",
        choices=("float32", "float16", "bfloat16"),
    ),
    argument("--layer", "sentence-transformers: the layer that is pooled (default: the last)", natural_number),
    argument("--pooling", "sentence-transformers (default: the model's, or mean)", choices=("mean", "first")),
)


@command(*ARGUMENTS)
def main(options: Options) -> None:
    register()
    from fairseq_xl.checkpoints import conversion, published_models
    from fairseq_xl.checkpoints.identity import found_in, open_checkpoint
    from fairseq_xl.checkpoints.layouts.stored_origin import stored_origin
    from fairseq_xl.checkpoints.stacks import count_layers
    from fairseq_xl.inference.published_import import import_model
    from fairseq_xl.inference.task_types import transformers_heads
    from fairseq_xl.io.checkpoints import CHECKPOINTS, DICTIONARY, refuse_hub_name
    from fairseq_xl.serving import transformers_js

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
        if not languages and ("decoder" in model.depths or model.layout.subwords == "xlm"):
            raise UserError(f"{source} has no languages: name those of its text, as in --langs en,de")
        lacking = [code for code in languages if code not in model.languages]
        for code in lacking:
            if (short := code.split("_")[0]) in model.languages:
                raise UserError(f"--langs: {source} has {code} under the name {short}")
        if model.languages and lacking:
            logger.warning("%s has no %s: random embeddings", source, ", ".join(lacking))
        with new_folder(output) as folder:
            import_model(model, source, folder, languages, options.codes, options.cased or None)
    else:
        checkpoint = open_checkpoint(source, content=model, finite=False)
        _refuse(options, IN, f"for published models only, and {source} is not one")
        came_from, head = stored_origin(checkpoint.content["task_state"], source), checkpoint.identity.get("head")
        is_encoder = head is None and not count_layers(checkpoint.state, "decoder")
        kind = options.to or KINDS[2 if is_encoder and came_from is not None and came_from.settings else 0]
        transformers_only = ("layout", "no_head", "no_tokenizer", "keep_languages")
        unused = {"fairseq": (*transformers_only, "layer", "pooling"), "transformers": ("layer", "pooling")}
        unused["transformers.js"] = ("no_tokenizer", "keep_languages", "layer", "pooling")
        _refuse(options, unused.get(kind, transformers_only), f"not for --to {kind}")
        trained = str(checkpoint.task.get("data") or source.parent)
        data = data_folders(options.data or found_in(source)[1] or Path(trained.split(os.pathsep)[0]))[0]
        if not (data / DICTIONARY).is_file():
            raise UserError(f"--data: name the data folder of {source}, with its {DICTIONARY}")
        if kind == "transformers.js":
            with new_folder(output) as folder:
                conversion.export_model(str(source), data, folder / "model", KINDS[0], options, transformers_heads())
                transformers_js.write(folder / "model", folder)
        else:
            conversion.export_model(str(source), data, output, kind, options, transformers_heads())
    logger.info("%s: written", output)


#: options of the way to other programs and of the way from them
OUT = (
    *("to", "layout", "data", "lang", "keep_languages", "language_module", "no_head", "no_tokenizer", "dtype", "layer"),
    "pooling",
)
IN = ("langs", "codes", "cased")


def _refuse(options: Options, names: tuple[str, ...], reason: str) -> None:
    """Raises `UserError` for the first of some options that is not at its default."""
    for name in names:
        if getattr(options, name) != parser_of(__name__, *ARGUMENTS).get_default(name):
            raise UserError(f"--{name.replace('_', '-')}: {reason}")
