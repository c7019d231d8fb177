"""Converts models between the layouts of other programs and ours; the command is `fairseq-xl convert`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_xl.checkpoints.layouts.counterparts import Counterpart, counterpart, sentence_encoder
from fairseq_xl.checkpoints.layouts.exported_folders import (
    fairseq_checkpoint,
    write_fairseq,
    write_transformers,
)
from fairseq_xl.checkpoints.layouts.imported_subwords import import_subwords
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, for_languages, read_own
from fairseq_xl.checkpoints.layouts.sentence_transformers import write_sentence_transformers
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.checkpoints.published_models import Published
from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
(SENTENCEPIECE,) = FILES["sentencepiece"]
#: number of languages of mBART-50
MBART_50 = 52
#: layout -> architecture whose class the model has; all options that change its weights are set
_ENCODERS = {
    "xlm": "xl_xlm_base",
    "bert": "xl_bert_base",
    "xlm-roberta": "xl_xlmr_base",
    "fairseq_roberta": "xl_xlmr_base",
}
_TRANSLATION = {"pre": "xl_mbart_large", "post": "xl_mt_base"}
#: longest input of MLM in the checkpoint's configuration, which training replaces
LENGTH = 256
#: seed of the rows of new languages
SEED = 1


# --- from other programs ---------------------------------------------------------------------------------------


def import_model(
    found: Published,
    origin: Path,
    folder: Path,
    languages: Sequence[str],
    codes: Path | None = None,
    cased: bool | None = None,
) -> None:
    """Writes a published model as checkpoint.pt with dict.txt and its sub-words.

    Args:
        found: the model.
        origin: its file or folder.
        folder: an existing folder.
        languages: languages of the dictionary; the model gets random embeddings for those that it does not have.
        codes, cased: as in `import_subwords`.
    """
    found.write_dictionary(folder / "dict.txt", languages)
    source = origin if origin.is_dir() else origin.parent
    if found.layout == "bart" and len(found.languages) == MBART_50:
        logger.warning(
            "%s: mBART-50 reads [en] x </s> and predicts [de] first; fine-tune it here before it translates", origin
        )
    import_subwords(found.layout, source, folder, languages, codes, cased)
    line = [str(folder), *(_translation if "decoder" in found.depths else _encoder)(found, origin, languages)]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), line))
    torch.manual_seed(SEED)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    plain = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    plain["task"]["data"] = ""  # named where the checkpoint is used
    content = fairseq_checkpoint(plain, model.state_dict())
    save_checkpoint(content | {"task_state": task.state_dict()}, folder / CHECKPOINT)


def _encoder(found: Published, origin: Path, languages: Sequence[str]) -> list[str]:
    """Command line of the pre-training that starts from an encoder."""
    arch, length = _ENCODERS[found.layout], min(LENGTH, found.options["max_positions"])
    line = ["--task", "xl_pretraining", "--criterion", "xl_pretraining", "--objectives", "mlm"]
    line += ["--objective-options", f"mlm.length={length}", "--init-from", str(origin), "--arch", arch]
    return [*line, *_options(found, arch, {"layers": found.depths["encoder"]})]


def _translation(found: Published, origin: Path, languages: Sequence[str]) -> list[str]:
    """Command line of the translation that starts from an encoder and a decoder; `UserError` without two languages."""
    if len(languages) < 2:
        raise UserError(f"{origin} is a translation model: name at least two languages, --langs en,de")
    arch = _TRANSLATION[found.options["layer_norm"]]
    pairs = ",".join(f"{one}-{other}" for one in languages for other in languages if one != other)
    line = ["--task", "xl_translation", "--criterion", "xl_translation", "--lang-pairs", pairs]
    line += ["--init-encoder-from", str(origin), "--init-decoder-from", str(origin), "--arch", arch]
    return [*line, *_options(found, arch, {f"{stack}_layers": depth for stack, depth in found.depths.items()})]


def _options(found: Published, arch: str, depths: dict[str, int]) -> list[str]:
    """Command-line options of the model and the task. A flag reverses the architecture's default."""
    default, line = MODEL_DATACLASS_REGISTRY[arch](), ["--lr", "0"]  # fairseq asks for a learning rate
    for name, value in (found.options | depths).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            line += [option] if value != getattr(default, name) else []
        else:
            line += [option, str(value)]
    return line


# --- to other programs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Export:
    """What to write of a checkpoint.

    Attributes:
        kind: ``transformers``, ``fairseq`` or ``sentence-transformers``.
        language: the language of the text, or the direction as in en-de. Language embeddings are then added to the
            position embeddings, and the direction gives the first symbol of the decoder's input.
        language_module: file of a language module that replaces the checkpoint's; from an archive, the module of
            `language`.
        head: as in `counterpart`.
        dtype: type of the weights in the file.
        layer, pooling: of sentence-transformers: the layer that is pooled (None: the last one), and how.
        tokenizer: whether to write the tokenizer.
    """

    kind: str = "transformers"
    language: str | None = None
    language_module: str | None = None
    head: bool = True
    dtype: str = "float32"
    layer: int | None = None
    pooling: Literal["mean", "first"] = "mean"
    tokenizer: bool = True


def export_model(checkpoint: str, data: Path, output: Path, export: Export) -> None:
    """Writes a checkpoint of ours as a folder for another program, with its tokenizer.

    Args:
        checkpoint: its file.
        data: data folder with its dict.txt and its sub-words.
        output: the folder to write.

    Raises `UserError` for a model without counterpart, and for a language or direction that the model does not have.
    """
    archive = export.language if export.language_module else None
    own = read_own(checkpoint, data, export.language_module, archive)
    source, target = _languages(own, export.language)
    if export.language:
        own = for_languages(own, source or "", target)
    with new_folder(output) as folder:
        if export.kind == "fairseq":
            pieces = data / SENTENCEPIECE
            has_pieces = vocabulary_kind(data) == "sentencepiece" and pieces.is_file()
            left_out = write_fairseq(folder, own, export.dtype, pieces if has_pieces else None)
        else:
            sentences = export.kind == "sentence-transformers"
            found = sentence_encoder(own, export.layer) if sentences else counterpart(own, export.head)
            left_out = found.left_out
            write_transformers(folder, found, export.dtype, _start(own, target))
            if export.tokenizer:
                _write_tokenizer(folder, data, own, found, source)
            if sentences:
                write_sentence_transformers(folder, export.pooling, own.longest, own.options["embed_dim"])
    if left_out:
        logger.info("%s: not exported: %s", checkpoint, ", ".join(left_out))


def _write_tokenizer(folder: Path, data: Path, own: Own, found: Counterpart, source: str | None) -> None:
    segments = found.config.get("type_vocab_size") == 2
    write_tokenizer(folder, data, own.dictionary, own.options["framing"], own.longest, source, segments)
    if vocabulary_kind(data) == "xlm" and own.type_state.get("num_texts", 1) > 1:
        logger.warning(
            "%s was fine-tuned on pairs: XLMTokenizer puts one </s> between two texts, and this package two", own.path
        )


def _languages(own: Own, named: str | None) -> tuple[str | None, str | None]:
    """Source and target language: those that --lang names, or of the only direction of the checkpoint.

    Raises `UserError` for a language that the dictionary does not have, for one where a direction is expected, and for
    a direction that the model was not trained in (`check_direction`).
    """
    known = own.dictionary.languages
    if named is None:
        if len(own.directions) == 1:
            return _split(own.directions[0], known) or (None, None)
        return None, None
    if own.has_decoder:
        pair = _split(named, known)
        if pair is None:
            raise UserError(f"--lang {named}: expected a direction of two of {', '.join(known)}, such as XX-YY")
        if own.directions and not check_direction(own.directions, *pair, f"--lang {named}: {own.path}"):
            logger.warning("%s was not trained for %s: zero-shot translation", own.path, named)
        if own.same_language and pair[0] != pair[1]:
            raise UserError(f"--lang {named}: {own.path} writes the language of the source: expected XX-XX")
        return pair
    own.dictionary.language_id(named)
    return named, None


def _split(direction: str, known: Sequence[str]) -> tuple[str, str] | None:
    """The languages of a direction; a code may have a hyphen itself."""
    parts = direction.split("-")
    halves = (("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts)))
    return next((pair for pair in halves if set(pair) <= set(known)), None)


def _start(own: Own, target: str | None) -> int | None:
    """Id of the symbol of the target language; None, with a warning, if no direction is known."""
    if not own.has_decoder:
        return None
    if target is None:
        logger.warning(
            "%s: no direction is named (--lang XX-YY), so generate() needs decoder_start_token_id, the id of [YY]",
            own.path,
        )
        return None
    return own.dictionary.language_symbol(target)
