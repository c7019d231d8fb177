"""Patches of options that fairseq evaluates as Python: they are read as literals."""

import importlib
import types

from fairseq.dataclass import utils as dataclass_utils

from fairseq_xl.io.literals import literal

#: modules of fairseq that call `eval` on options; a global of that name replaces the builtin
EVALUATING = (
    "criterions.ctc",
    "data.audio.raw_audio_dataset",
    "data.codedataset",
    "models.fconv",
    "models.fconv_lm",
    "models.fconv_self_att",
    "models.hubert.hubert",
    "models.lightconv_lm",
    "models.speech_to_text.s2t_wav_transformer",
    "models.transformer_lm",
    "models.wav2vec.wav2vec",
    "models.wav2vec.wav2vec2",
    "optim.adafactor",
    "optim.adam",
    "optim.adamax",
    "optim.cpu_adam",
    "optim.fused_lamb",
    "utils",
)


def install() -> None:
    """Replaces `eval` in fairseq, and `ast.literal_eval` where argparse and hydra call it, by `literal`."""
    for name in EVALUATING:
        vars(importlib.import_module(f"fairseq.{name}"))["eval"] = literal
    dataclass_utils.ast = types.SimpleNamespace(literal_eval=literal)
