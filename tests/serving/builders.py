"""A small model to export."""

from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from tests.serving.conftest import SIZES

PAD, END = 1, 2


def xlm(dictionary):
    return XLEncoderModel(EncoderConfig(**SIZES, layers=2), len(dictionary), PAD, 3)
