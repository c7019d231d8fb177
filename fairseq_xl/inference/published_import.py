"""Builds checkpoints of this package from published models; the command is `fairseq-xl model convert`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from fairseq_xl.checkpoints.layouts.exported_folders import fairseq_checkpoint
from fairseq_xl.checkpoints.layouts.imported_subwords import import_subwords
from fairseq_xl.checkpoints.published_models import Published
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
MBART_50 = 52  # number of languages
LENGTH = 256  # longest input of MLM in the checkpoint's configuration, which training replaces
SEED = 1  # of the rows of new languages


def import_model(
    published: Published,
    origin: Path,
    folder: Path,
    languages: Sequence[str],
    codes: Path | None = None,
    cased: bool | None = None,
) -> None:
    """Writes a published model as checkpoint.pt, dict.txt and sub-words; new `languages` get random embeddings."""
    published.write_dictionary(folder / "dict.txt", languages)
    source = origin if origin.is_dir() else origin.parent
    if published.options["framing"] == "mbart" and len(published.languages) == MBART_50:
        logger.warning(
            "%s: mBART-50 reads [en] x </s> and predicts [de] first; fine-tune it here before it translates", origin
        )
    import_subwords(published.layout.subwords, source, folder, languages, codes, cased)
    line = [str(folder), "--init-from", str(origin), "--lr", "0"]  # fairseq asks for a learning rate
    line += _translation(origin, languages) if "decoder" in published.depths else _encoder(published)
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), line))
    torch.manual_seed(SEED)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    plain = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    plain["task"]["data"] = ""  # named where the checkpoint is used
    content = fairseq_checkpoint(plain, model.state_dict())
    save_checkpoint(content | {"task_state": task.state_dict()}, folder / CHECKPOINT)


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
