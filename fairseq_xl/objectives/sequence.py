"""The loss of encoder-decoders, in pre-training and in fine-tuning: cross-entropy with teacher forcing.

Legend: B batch, T time, C channels, N predicted tokens.
"""

from typing import Any, Dict, List

import numpy as np

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


def sequence_terms(model: Any, batch: Dict[str, Any], label_smoothing: float = 0.0) -> List[Term]:
    """Computes a `Term` for each predicting stream of the decoder.

    Stream number i, counted from 0, predicts ``target[:, t + i]`` at position t. Padding is not predicted.

    Args:
        model: an `XLDenoisingModel`, inside its `forward`.
        batch: inputs and targets as in `XLDenoisingModel`.
        label_smoothing: as in `OutputLayer.losses`.
    """
    terms = []
    for ahead, hidden in enumerate(model.teacher_forced(batch)):
        earlier = int(np.minimum(batch["target_lengths"], ahead).sum())  # tokens that this stream does not predict
        positions = batch["predicted_positions"][earlier:]
        chosen = hidden.flatten(0, 1).index_select(0, positions - ahead)  # (N, C)
        target = batch["target"].flatten().index_select(0, positions)
        terms.append(Term(model.decoder.output.cross_entropy(chosen, target, label_smoothing), len(positions)))
    return terms
