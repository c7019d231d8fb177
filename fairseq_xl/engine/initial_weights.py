"""The initial weights of a new model, from checkpoints, published models and word vectors."""

import logging
import os
from dataclasses import dataclass, replace
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import TASK_REGISTRY

from fairseq_xl.checkpoints.architecture import architecture_flags
from fairseq_xl.checkpoints.stacks import LAYERS
from fairseq_xl.checkpoints.transfer import Pretrained, Report, Requirements, initialize
from fairseq_xl.engine.option_checks import is_ours
from fairseq_xl.engine.save_dir import choose_checkpoint
from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import named_arch, option_value, without
from fairseq_xl.io.options import AUTO, option, run_config

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"


@dataclass
class InitialWeightsConfig:
    """Options of tasks with encoder-decoders: the initial weights of encoder, decoder and token embeddings."""

    init_from: Optional[str] = option(
        None,
        "initialize encoder and decoder from this checkpoint, or from published weights; a decoder that it lacks from "
        "its encoder (Lample & Conneau 2019, sections 4.2 and 4.3). Without --arch the model has its architecture",
    )
    init_encoder_from: Optional[str] = option(
        None,
        "initialize the encoder alone, or from another checkpoint than the decoder",
    )
    init_decoder_from: Optional[str] = option(
        None,
        "initialize the decoder from the decoder of this checkpoint, or from its encoder if it has no "
        "decoder; cross-attention is random if the checkpoint has none",
    )
    init_embeddings_from: Optional[str] = option(
        None,
        "initialize the token embeddings of encoder and decoder from this checkpoint, or from word vectors "
        "of pieces: .vec, .txt or .npz (Lample & Conneau 2019, section 4.2: EMB)",
    )
    init_decoder_layers: ChoiceEnum(LAYERS) = option(  # type: ignore[valid-type]
        "all", "layers of a deeper checkpoint for the decoder: first or last (Luo et al. 2020)"
    )
    random_cross_attention: bool = option(
        False,
        "copy neither cross-attention nor its layer normalization from the decoder's checkpoint: a baseline for "
        "pre-trained cross-attention",
    )


def with_architecture(arguments: list[str]) -> list[str]:
    """The arguments of a training; without --arch, or with --arch auto, with the architecture of --init-from.

    It stands in front of the other flags, which override it. A run that resumes has that of its checkpoint: the file of
    --init-from may be gone. Raises `UserError` for a file without an architecture, and for one that does not fit the
    task.
    """
    path, task = option_value(arguments, "--init-from"), TASK_REGISTRY.get(option_value(arguments, "--task"))
    if not path or not is_ours(task) or named_arch(arguments) not in (None, AUTO):
        return arguments
    restored = option_value(arguments, "--restore-file") or LAST
    if restored == LAST:  # which fairseq reads in --save-dir
        restored = os.path.join(option_value(arguments, "--save-dir") or "checkpoints", LAST)
    path = restored if os.path.isfile(restored) else path
    remaining, _ = without("-a", without("--arch", arguments)[0])
    first = next(index for index, word in enumerate(remaining) if word.startswith("-"))
    return [*remaining[:first], *architecture_flags(path, task.generates), *remaining[first:]]


def initial_weights(cfg: Any) -> dict[str, str | None]:
    """{"embeddings", "encoder", "decoder": file or None}; raises `UserError` if one is given beside --init-from."""
    parts = ("embeddings", "encoder", "decoder")
    files = {part: getattr(cfg, f"init_{part}_from") for part in parts}
    if cfg.init_from:
        if any(files.values()):
            raise UserError(
                "--init-from initializes encoder, decoder and embeddings: leave out --init-encoder-from, "
                "--init-decoder-from and --init-embeddings-from"
            )
        files |= {"encoder": cfg.init_from, "decoder": cfg.init_from}
    if cfg.random_cross_attention and not files["decoder"]:
        raise UserError("--random-cross-attention needs --init-from or --init-decoder-from")
    return files


def needs_initial_weights(task: Any, from_checkpoint: bool) -> bool:
    """Whether a new model, not one built `from_checkpoint`, trains from initial weights: no checkpoint is restored."""
    if from_checkpoint:
        return False
    run = run_config(task.cfg)
    restored = None if run is None else choose_checkpoint(run.checkpoint)[0]
    if restored is None or not os.path.isfile(restored):
        return True
    if any(getattr(task.cfg, f"init_{part}from", None) for part in ("", "encoder_", "decoder_", "embeddings_")):
        logger.info("%s is restored: the weights that --init-* name are not read", restored)
    return False


def transfer_weights(
    task: Any, model: Any, files: dict[str, str | None], layers: str = "all", tokens: bool = True
) -> list[Report]:
    """Copies weights of checkpoints to a new model, with `tokens` also embeddings; arguments as of `initialize`.

    The task stores the published folder that the encoder came from.
    """
    tokens = tokens and task.uses_pretrained_tokens
    requirements = Requirements(task.dictionary, task.folder() / "dict.txt", task.framing.name, task.cfg, tokens)

    def adapt(pretrained: Pretrained) -> Pretrained:
        if getattr(task.cfg, "random_cross_attention", False) and pretrained.path == files["decoder"]:
            pretrained = without_cross_attention(pretrained)
        return task.adapt_pretrained(pretrained, model)

    reports = initialize(model, files, requirements, layers, adapt)
    for report in reports:
        if report.copied.keys() & {"encoder", "model"}:
            task.origin = report.pretrained.origin
    return reports


def transfer_initial_weights(task: Any, model: Any, files: dict[str, str | None], from_checkpoint: bool) -> None:
    """Initializes a new encoder-decoder from `files`, if one is given (`transfer_weights`)."""
    if any(files.values()) and needs_initial_weights(task, from_checkpoint):
        transfer_weights(task, model, files, str(task.cfg.init_decoder_layers))


def without_cross_attention(pretrained: Pretrained) -> Pretrained:
    """Removes the cross-attention of a checkpoint; raises `UserError` if it has none."""
    state = {key: value for key, value in pretrained.state.items() if ".cross_attention" not in key}
    if len(state) == len(pretrained.state):
        raise UserError(f"--random-cross-attention: {pretrained.path} has no cross-attention, which is random anyway")
    return replace(pretrained, state=state)
