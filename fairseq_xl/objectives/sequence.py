"""What objectives and fine-tuning of encoder-decoders share: the loss of a decoder that reads the clean text.

Legend: B batch, T time, C channels, N predicted tokens.
"""

from typing import Any, Dict, List

from torch import Tensor

from fairseq_xl.objectives.base import Term


def sequence_terms(model: Any, batch: Dict[str, Tensor], label_smoothing: float = 0.0) -> List[Term]:
    """A `Term` over the tokens that each predicting stream of the decoder predicts.

    Stream number i, from 0 on, predicts ``target[:, t + i]`` at position t; padding is not predicted.

    Args:
        model: an `XLDenoisingModel`, inside of its `forward`.
        batch: as `XLDenoisingModel` has it.
        label_smoothing: as in `OutputLayer.cross_entropy`, for fine-tuning.
    """
    target, pad = batch["target"], model.decoder.dictionary.pad()
    return [
        _term(model.decoder.output, hidden, target[:, ahead:], pad, label_smoothing)
        for ahead, hidden in enumerate(model.teacher_forced(batch))
    ]


def _term(output: Any, hidden: Tensor, target: Tensor, pad: int, label_smoothing: float) -> Term:
    """Hidden states (B, T, C) and what the first T' of them predict, (B, T') -> their `Term`."""
    predicted = target.ne(pad)
    chosen, following = hidden[:, : target.size(1)][predicted], target[predicted]  # (N, C), (N,)
    return Term(output.cross_entropy(chosen, following, label_smoothing), len(following))
