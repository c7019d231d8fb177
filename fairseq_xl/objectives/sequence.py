"""The loss of encoder-decoders, in pre-training and in fine-tuning: cross-entropy with teacher forcing.

Legend: B batch, T time, C channels, N predicted tokens.
"""

from typing import Any, Dict, List

from torch import Tensor

from fairseq_xl.errors import UserError
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.objectives.base import Objective, Term


class SequenceObjective(Objective):
    """Base of objectives whose decoder predicts one token at a step."""

    model_class = XLDenoisingModel

    def heads(self, model_cfg: Any) -> Dict[str, Any]:
        """No modules; raises `UserError` for a model that predicts several tokens at a step."""
        if hasattr(model_cfg, "predicting_streams"):
            families = "--arch xl_xdae_tiny, xl_unmt_tiny and the like, not xl_xfnp_*"
            raise UserError(f"{self.name} predicts one token at a step: {families}")
        return {}


def sequence_terms(model: Any, batch: Dict[str, Tensor], label_smoothing: float = 0.0) -> List[Term]:
    """Computes a `Term` for each predicting stream of the decoder.

    Stream number i, counted from 0, predicts ``target[:, t + i]`` at position t. Padding is not predicted.

    Args:
        model: an `XLDenoisingModel`, inside its `forward`.
        batch: inputs and targets as in `XLDenoisingModel`.
        label_smoothing: as in `OutputLayer.cross_entropy`.
    """
    target, pad = batch["target"], model.decoder.dictionary.pad()
    return [
        _term(model.decoder.output, hidden, target[:, ahead:], pad, label_smoothing)
        for ahead, hidden in enumerate(model.teacher_forced(batch))
    ]


def _term(output: Any, hidden: Tensor, target: Tensor, pad: int, label_smoothing: float) -> Term:
    """The `Term` of the cross-entropy of targets (B, T'), which the first T' of hidden (B, T, C) predict."""
    predicted = target.ne(pad)
    chosen, following = hidden[:, : target.size(1)][predicted], target[predicted]  # (N, C), (N,)
    return Term(output.cross_entropy(chosen, following, label_smoothing), len(following))
