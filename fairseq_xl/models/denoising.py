"""Encoder-decoders to pre-train with objectives. Shapes: B batch, S source time, T target time, C channels."""

from typing import Any, Callable, Dict, Optional

from torch import nn

from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import DenoisingConfig


class XLDenoisingModel(XLEncoderDecoderModel):
    """Encoder and decoder with shared token embeddings, pre-trained and fine-tuned by objectives (xDAE).

    Liang et al. 2020, section 4.1. A batch has

    ========================= ======= =============================================================================
    ``tokens``                (B, S)  input of the encoder, in the framing `sentence`
    ``padding_mask``          (B, S)  bool, True at padding; None where nothing is padded
    ``languages``             (B, 1)  ids of the source languages
    ``prev_output_tokens``    (B, T)  input of the decoder, ``[xx] y``
    ``target``                (B, T)  predicted tokens, ``y </s>``
    ``predicted_positions``   (N,)    positions of these tokens in the flattened target, in time-major order
    ``target_lengths``        (B,)    lengths of the targets, a NumPy array
    ========================= ======= =============================================================================

    padded on the right. fairseq's generator calls `encoder` and `decoder` directly.

    Names in the state dict as in `XLEncoderDecoderModel` with --share-embeddings, and `heads.NAME.*`.
    """

    #: name and example of such a model, for error messages
    description = "an encoder-decoder: --arch xl_xdae_tiny, xl_unmt_tiny and the like"

    def __init__(self, cfg: DenoisingConfig, dictionary: Any):
        super().__init__(cfg, dictionary)
        self.heads = nn.ModuleDict()

    def add_heads(self, heads: Dict[str, nn.Module]) -> None:
        self.heads.update(heads)

    def forward(  # type: ignore[override]  # net_input has the arguments of `XLEncoderDecoderModel`
        self, compute: Optional[Callable] = None, batch: Any = None, **net_input: Any
    ) -> Any:
        """Returns `compute(self, batch)` or, without `compute`, logits as `XLEncoderDecoderModel` does."""
        return super().forward(compute=compute, batch=batch, **net_input)


class XLBackTranslationModel(XLDenoisingModel):
    """`XLDenoisingModel` (Lample & Conneau 2019, section 4.2); stacks share tokens only with --share-embeddings."""

    description = "an encoder-decoder: --arch xl_unmt_tiny and the like"
