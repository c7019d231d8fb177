"""A small model to export."""

from fairseq_xl.models.config import EncoderConfig
from fairseq_xl.models.encoder import XLEncoderModel
from tests.serving.conftest import SIZES

PAD, END = 1, 2


def xlm(dictionary):
    return XLEncoderModel(EncoderConfig(**SIZES, layers=2), len(dictionary), PAD, 3)
