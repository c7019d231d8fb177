"""Builds checkpoints of this package from published models; the command is `fairseq-xl model convert`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from fairseq_xl.checkpoints.layouts import published_origin
from fairseq_xl.checkpoints.layouts.base import QUESTIONS, Head
from fairseq_xl.checkpoints.layouts.exported_folders import fairseq_checkpoint
from fairseq_xl.checkpoints.layouts.imported_subwords import import_subwords
from fairseq_xl.checkpoints.layouts.published_files import TOKENIZER_CONFIG
from fairseq_xl.checkpoints.published_models import Published
from fairseq_xl.checkpoints.transfer import PUBLISHED_HEAD
from fairseq_xl.data.vocabulary.special_symbols import SPECIAL
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint
from fairseq_xl.io.files import json_object
from fairseq_xl.objectives.labelled import labelled_objectives

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
MBART_50 = 52  # number of languages
LENGTH = 256  # longest input of MLM in the checkpoint's configuration, which training replaces
QUESTION, SHORTEST = 64, 8  # tokens of a question, and least ones of an input
SEED = 1  # of the rows of new languages


def import_model(
    published: Published, origin: Path, folder: Path, languages: Sequence[str], codes: Path | None, cased: bool | None
) -> None:
    """Writes a published model as checkpoint.pt, dict.txt and sub-words; new `languages` get random embeddings.

    Symbols of languages that the model has are in the dictionary, behind those of `languages`.
    """
    more = [code for code in published.languages if code not in languages] if published.has_language_rows else []
    published.write_dictionary(folder / "dict.txt", [*languages, *more])
    source = published.symbols_from.parent  # of an adapter: its base model
    if published.options["framing"] == "mbart" and len(published.languages) == MBART_50:
        logger.warning(
            "%s: mBART-50 reads [en] x </s> and predicts [de] first; fine-tune it here before it translates", origin
        )
    pieces = {*published.symbols[len(SPECIAL) : -1]}
    import_subwords(published.layout.subwords, source, folder, languages, codes, cased, pieces)
    line = [str(folder), "--init-from", str(origin), "--lr", "0"]  # fairseq asks for a learning rate
    if published.head:
        line += _fine_tuned(published, published.head, source, languages)
    else:
        line += _translation(origin, languages) if "decoder" in published.depths else _encoder(published)
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), line))
    torch.manual_seed(SEED)
    task = tasks.setup_task(cfg.task)
    model = _with_head(published.head, task, cfg.model) if published.head else task.build_model(cfg.model)
    plain = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    plain["task"]["data"] = ""  # named where the checkpoint is used
    if source == (origin if origin.is_dir() else origin.parent):
        published_origin.keep_tokenizer(source, folder, published.layout, published.symbols_of_rows())
    content = fairseq_checkpoint(plain, model.state_dict())
    save_checkpoint(content | {"task_state": task.state_dict()}, folder / CHECKPOINT)


def _with_head(head: Head, task: Any, cfg: Any) -> Any:
    """The model of a fine-tuning task with a published head and its labels, which no training files name."""
    (objective,) = task.labelled.values()
    state = {"labels": head.labels, "num_texts": 0}
    objective.load_state({name: state[name] for name in objective.state}, head.kind)
    model = task.build_model(cfg, from_checkpoint=True)
    for name, module in model.heads[objective.name].named_modules():
        module.pretrained_from = f"{PUBLISHED_HEAD}.{name}".rstrip(".")
    task.initialize(model, from_checkpoint=False)
    return model


def _fine_tuned(published: Published, head: Head, folder: Path, languages: Sequence[str]) -> list[str]:
    """The fine-tuning task of a head."""
    name = _task_type(head)
    config, length = folder / TOKENIZER_CONFIG, published.options["max_positions"]
    longest = json_object(config).get("model_max_length") if config.is_file() else None
    if isinstance(longest, (int, float)) and longest >= SHORTEST:
        length = min(length, int(longest))
    line = ["--task", f"xl_{name}", "--criterion", f"xl_{name}", "--length", str(length)]
    line += ["--head-dropout", str(head.dropout)]
    if "pooler.weight" in head.state:
        line += ["--pooler", "--pooler-activation", published.layout.pooler_activation]
    if head.kind == QUESTIONS:
        line += ["--question-length", str(min(QUESTION, length // 4))]
    return [*line, "--train-langs", ",".join(languages) or "en", "--eval-langs", ",".join(languages) or "en"]


def _task_type(head: Head) -> str:
    """The first task type with the head; where several have it, one label is a score, as of a ranking."""
    kinds = labelled_objectives().items()
    outputs = {name: kind.graph_output for name, kind in kinds if kind.transformers_head == head.kind}
    expected = "logits" if len(head.labels) > 1 else "scores"
    return next((name for name, output in outputs.items() if output == expected), min(outputs))


def _encoder(published: Published) -> list[str]:
    """The task of the pre-training that starts from an encoder."""
    length = min(LENGTH, published.options["max_positions"])
    line = ["--task", "xl_pretraining", "--criterion", "xl_pretraining", "--objectives", "mlm"]
    return [*line, "--objective-options", f"mlm.length={length}"]


def _translation(origin: Path, languages: Sequence[str]) -> list[str]:
    """The task of the translation that starts from an encoder and a decoder; `UserError` without two languages."""
    if len(languages) < 2:
        raise UserError(f"{origin} is a translation model: name at least two languages, --langs en,de")
    pairs = ",".join(f"{source}-{target}" for source in languages for target in languages if source != target)
    return ["--task", "xl_translation", "--criterion", "xl_translation", "--lang-pairs", pairs]
