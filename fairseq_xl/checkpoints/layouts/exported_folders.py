"""Writes models as folders of transformers and sentence-transformers, and as checkpoints of fairseq."""

import shutil
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from fairseq_xl.checkpoints.layouts.base import BOS, EOS, PAD, PIECES, TOKENIZER, Counterpart, encoder_part, part_names
from fairseq_xl.checkpoints.layouts.fairseq_roberta import FairseqRoberta
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import CONFIG, FAIRSEQ_WEIGHTS, GENERATION, TRANSFORMERS_WEIGHTS
from fairseq_xl.checkpoints.layouts.sentence_transformers import SentenceSettings
from fairseq_xl.checkpoints.layouts.stored_origin import DTYPES, Origin
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import is_finite, save_checkpoint
from fairseq_xl.io.files import replacing, write_json


def write_transformers(
    folder: Path, model: Counterpart, dtype: str, start: int | None, origin: Origin | None, generation: str | None
) -> None:
    """Writes weights of a type in `DTYPES`, and configs; the decoder's first symbol is `start`, None if it varies.

    The config.json of `origin` is written as it is if it says the same of weights of the same type; `generation` is the
    text of the generation_config.json of an unchanged model, "" for no file, None for a new one.
    """
    config = _without_dtype(model.config) | {"dtype": dtype}
    if generation is not None:
        if generation:
            (folder / GENERATION).write_text(generation, encoding="utf-8")
    elif config.get("is_encoder_decoder"):
        symbols: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": start}
        follows_eos = config.get("decoder_start_token_id") == EOS  # the language's symbol follows </s>
        if start is not None:  # without it, and without a first symbol in its place, generate() refuses
            symbols["bos_token_id"] = BOS
        if follows_eos:
            symbols |= {"decoder_start_token_id": EOS} | ({} if start is None else {"forced_bos_token_id": start})
        config = symbols | config | ({} if start is None or follows_eos else {"decoder_start_token_id": start})
        longest = config.get("max_position_embeddings") or config["decoder"]["max_position_embeddings"] - 2
        # as fairseq's search
        search = {"num_beams": 5, "early_stopping": True, "min_length": 2 + follows_eos, "suppress_tokens": [PAD]}
        write_json(folder / GENERATION, symbols | search | {"max_length": longest})
    if origin and origin.dtype == dtype and _without_dtype(origin.entries) == _without_dtype(config):
        (folder / CONFIG).write_text(origin.config, encoding="utf-8")
    else:
        write_json(folder / CONFIG, config)
    names: dict[int, str] = {}  # tied parameters are written once, under their first name
    for name, value in model.weights.items():
        names.setdefault(value.data_ptr() if value.numel() else id(value), name)
    file = folder / TRANSFORMERS_WEIGHTS[0]
    tensors = _cast({name: model.weights[name] for name in names.values()}, dtype)
    try:
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise UserError(f"{file} was not written: {error}") from error
    shutil.copymode(folder / CONFIG, file)  # the package makes it readable for the owner only


def _without_dtype(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in ("dtype", "torch_dtype")}


def _cast(weights: State, dtype: str) -> State:
    converted = {
        name: (value.to(DTYPES[dtype]) if value.is_floating_point() else value).contiguous()
        for name, value in weights.items()
    }
    for name, value in converted.items():
        if not is_finite(value):
            raise UserError(f"--dtype {dtype}: {name} has values that are too large for it")
    return converted


def write_sentence_transformers(
    folder: Path, settings: SentenceSettings, pooling: str, max_length: int, dim: int
) -> None:
    """Adds the files of sentence-transformers to a transformers folder with tokenizer.json; `UserError` without it.

    Sentence embeddings of `dim` channels are pooled from the last layer; `settings` has the prompts and the like.
    """
    if not (folder / TOKENIZER).is_file():
        raise UserError(f"{folder} is no transformers folder with a tokenizer: it has no tokenizer.json")
    for name, text in settings.files_with(pooling, max_length, dim).items():
        with replacing(folder / name, make_folder=True) as file:
            file.write(text.encode("utf-8"))


def write_fairseq(folder: Path, model: Own, dtype: str, sentencepiece: Path | None) -> list[str]:
    """Writes a folder for `RobertaModel.from_pretrained` of fairseq: model.pt, dict.txt and sentencepiece.bpe.model.

    `sentencepiece` is None for other sub-words, of which fairseq reads the ids. Returns the parts of our model that
    fairseq's does not have. Raises `UserError` unless the model has XLM-R's form.
    """
    layout = FairseqRoberta()
    for reason, applies in layout.obstacles(model, None).items():
        if applies:
            raise UserError(f"{model.path} cannot be exported as fairseq's RobertaModel: {reason}")
    state = encoder_part(layout.positions(model))
    names = _cast(layout.to_theirs(state), dtype)
    config = layout.config(model, state)
    task = {"_name": "masked_lm", "data": "", "tokens_per_sample": config["max_positions"]}
    bpe: dict[str, Any] = {"_name": None}
    if sentencepiece:
        shutil.copyfile(sentencepiece, folder / PIECES)
        bpe = {"_name": "sentencepiece", "sentencepiece_model": PIECES}  # of this folder, for from_pretrained
        bpe |= {"sentencepiece_enable_sampling": False, "sentencepiece_alpha": None}
    cfg = {"model": config, "task": task, "criterion": {"_name": "masked_lm"}, "bpe": bpe}
    save_checkpoint(fairseq_checkpoint(cfg, names), folder / FAIRSEQ_WEIGHTS)
    # fairseq appends <mask> itself: it is listed only if symbols follow it
    listed = model.dictionary.symbols[len(SPECIAL) :]
    if listed[-1] == MASK:
        listed = listed[:-1]
    lines = "".join(f"{symbol} {model.dictionary.count[model.dictionary.index(symbol)]}\n" for symbol in listed)
    (folder / "dict.txt").write_text(lines, encoding="utf-8")
    return part_names(model.state.keys() - state.keys())


def fairseq_checkpoint(cfg: dict[str, Any], model: State) -> dict[str, Any]:
    """A checkpoint of fairseq with weights and no training state."""
    history = {"optimizer_name": "FairseqAdam", "criterion_name": "", "lr_scheduler_state": {"best": None}}
    return {
        "args": None,
        "cfg": cfg,
        "model": model,
        "optimizer_history": [history | {"num_updates": 0}],
        "last_optimizer_state": None,
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
