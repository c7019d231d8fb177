"""The table of framings, row by row, and padding."""

import numpy as np
import pytest

from fairseq_xl.data.framing import Framing, pad_rows
from fairseq_xl.errors import UserError

S, PAD, END = 0, 1, 2


@pytest.mark.parametrize("name, start", [("xl", S), ("xlm", END)])
def test_sentence_pair_and_stream(dictionary, name, start):
    framing = Framing.of(name, dictionary)
    for text in ([7, 8, END], [7, END, 8, 9, END, 10]):
        assert framing.sentence(np.array(text)).tolist() == [start, *text]
    tokens, half = framing.pair(np.array([7, 8, END]), np.array([9, END]))
    assert tokens.tolist() == [start, 7, 8, END, END, 9, END] and half == 4


def test_bert_has_one_symbol_between_texts(dictionary):
    framing = Framing.of("bert", dictionary)
    tokens, half = framing.pair(np.array([7, 8, END]), np.array([9, END]))
    assert tokens.tolist() == [S, 7, 8, END, 9, END] and half == 4
    assert framing.sentence(np.array([7, END])).tolist() == [S, 7, END]


def test_mbart_ends_in_the_language(dictionary):
    framing = Framing.of("mbart", dictionary)
    german = dictionary.language_symbol("de")
    assert framing.sentence(np.array([7, END]), dictionary.language_id("de")).tolist() == [7, END, german]
    with pytest.raises(UserError, match="--framing mbart is for translation and generation only"):
        framing.sentence(np.array([7, END]))
    with pytest.raises(UserError, match="--framing mbart is for single texts"):
        framing.pair(np.array([7, END]), np.array([8, END]))


def test_generation(data_bin):
    """Decoder input ``[xx] y``, output ``y </s>``; the source is a sentence."""
    from fairseq_xl.data.corpora.text_pairs import TextPairs
    from fairseq_xl.data.plan.epoch_plan import BatchSpec
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
    from fairseq_xl.objectives.generation import Generation, GenerationConfig

    dictionary = XLDictionary.load(data_bin / "dict.txt")
    german = dictionary.language_symbol("de")
    pairs = TextPairs([[5, END]], [[6, 7, END]], [[2, 3]], ("en", "de"))
    spec = BatchSpec("generation", "en-de", np.arange(1), np.zeros(1, dtype=np.uint64))
    objective = Generation(GenerationConfig(), dictionary, Framing.of("xl", dictionary))
    batch = objective.net_input(objective.collate(spec, pairs))
    assert batch["net_input"]["src_tokens"].tolist() == [[S, 5, END]]
    assert batch["net_input"]["prev_output_tokens"].tolist() == [[german, 6, 7]]
    assert batch["target"].tolist() == [[6, 7, END]]


def test_pad_rows():
    padded = pad_rows([np.array([5, 6, 7], dtype=np.uint16), np.array([8]), np.array([9, 4])], PAD)
    assert padded.tolist() == [[5, 6, 7], [8, PAD, PAD], [9, 4, PAD]]
    assert padded.dtype == np.int64
