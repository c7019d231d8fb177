"""Encoder-decoders that are pre-trained. Shapes: B batch, S source time, T target time, C channels."""

from typing import Callable, Dict, List

from torch import Tensor, nn

from fairseq_xl.models.config import DenoisingConfig
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel


class XLDenoisingModel(XLEncoderDecoderModel):
    """Encoder and decoder with one bank, pre-trained and fine-tuned by objectives (xDAE, G5).

    A batch that it reads has

    ========================= ======= =============================================================================
    ``tokens``                (B, S)  what the encoder reads, as framing `sentence` has it
    ``padding_mask``          (B, S)  bool, True at padding; None where nothing is padded
    ``languages``             (B, 1)  ids of the source languages
    ``prev_output_tokens``    (B, T)  what the decoder reads, ``[xx] y``
    ``target``                (B, T)  what it predicts, ``y </s>``
    ========================= ======= =============================================================================

    all padded on the right. fairseq's generator calls `encoder` and `decoder` themselves.

    Names in the state dict as in `XLEncoderDecoderModel` with --share-embeddings, and `heads.NAME.*`.
    """

    #: what to tell users who need one of these and have something else
    described = "an encoder-decoder: --arch xl_xdae_tiny and the like"

    def __init__(self, cfg: DenoisingConfig, dictionary):
        super().__init__(cfg, dictionary)
        self.heads = nn.ModuleDict()

    @staticmethod
    def shares_embeddings(cfg: DenoisingConfig) -> bool:
        """One bank, always (G5)."""
        return True

    @property
    def may_skip_parameters(self) -> bool:
        """Whether an update may leave parameters unused: those of some heads."""
        return len(self.heads) > 0

    def add_heads(self, heads: Dict[str, nn.Module]) -> None:
        """Put modules under `heads.NAME`; they bring their own initial values."""
        self.heads.update(heads)

    def forward(self, compute: Callable, batch):
        """Return `compute(self, batch)`, as in `XLEncoderModel`."""
        with self.encoder.bank.one_gradient():
            return compute(self, batch)

    def teacher_forced(self, batch) -> List[Tensor]:
        """Hidden states (B, T, C) of a decoder that reads the clean text: of each stream that predicts, here of one.

        Stream number i, from 0 on, predicts ``target[:, t + i]`` at position t.
        """
        encoder_out = self.encoder.encode(batch["tokens"], batch["languages"], batch["padding_mask"])
        hidden, _ = self.decoder.extract_features(batch["prev_output_tokens"], encoder_out)
        return [hidden]
