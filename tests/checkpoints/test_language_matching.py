"""Rows of languages matched by name, by hand."""

import pytest
import torch

from fairseq_xl.checkpoints.transfer import has_same_pieces, with_languages
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.tiny_data import write_dictionary

TOKENS, BIAS = "encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"
LANGUAGES = "encoder.embeddings.languages.weight"
DECODER = {name: name.replace("encoder", "decoder") for name in (TOKENS, BIAS, LANGUAGES)}


def load(path, pieces, languages):
    return XLDictionary.load(write_dictionary(path, dict.fromkeys(pieces, 1), languages))


def state(rows, languages, fill):
    """Row number r of each table is fill + r."""
    table = fill + torch.arange(float(rows))
    return {TOKENS: table[:, None], BIAS: table.clone(), LANGUAGES: table[:languages, None].clone()}


@pytest.fixture
def dictionary(tmp_path):
    """Ids 4 and 5 are pieces, 6 <mask>, 7 to 9 languages."""
    return load(tmp_path / "new.txt", "ab", ["fr", "es", "de"])


def test_rows(dictionary, caplog):
    caplog.set_level("INFO")
    found = with_languages(state(9, 2, 0), state(10, 3, 100), ["de", "en"], dictionary, "c.pt")
    assert found[TOKENS].flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 107, 108, 7]
    assert found[BIAS].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 0, 7]
    assert found[LANGUAGES].flatten().tolist() == [100, 101, 0]
    new = "[fr], [es], embedding of fr, embedding of es"
    assert caplog.messages == [f"c.pt: languages are matched by name; random rows: {new}; dropped: en"]


def test_both_stacks(dictionary):
    """The new decoder shares the encoder's token embeddings, from which the decoder's new rows come then."""
    given = state(9, 2, 0)
    given |= {DECODER[name]: value + 10 for name, value in given.items()}
    model = state(10, 3, 100)
    found = with_languages(given, model, ["de", "en"], dictionary, "c.pt")
    assert found[DECODER[TOKENS]].flatten().tolist() == [10, 11, 12, 13, 14, 15, 16, 107, 108, 17]
    assert found[DECODER[BIAS]].tolist() == [10, 11, 12, 13, 14, 15, 16, 0, 0, 17]
    assert torch.equal(found[DECODER[LANGUAGES]], given[DECODER[LANGUAGES]])  # the model has none: it is not used
    model |= {DECODER[name]: value + 50 for name, value in model.items()}
    found = with_languages(given, model, ["de", "en"], dictionary, "c.pt")
    assert found[DECODER[TOKENS]].flatten().tolist()[7:] == [157, 158, 17]
    assert found[DECODER[LANGUAGES]].flatten().tolist() == [150, 151, 10]


def test_the_same_pieces(dictionary, tmp_path):
    for name, pieces, languages, same in (
        ("other languages", "ab", ["en"], True),
        ("no languages", "ab", [], True),
        ("the same", "ab", ["fr", "es", "de"], True),
        ("other pieces", "ac", ["fr", "es", "de"], False),
        ("another order", "ba", ["fr", "es", "de"], False),
        ("fewer pieces", "a", ["fr", "es", "de"], False),
    ):
        other = load(tmp_path / name, pieces, languages)
        identity = {"dictionary": other.digest(), "languages": other.languages}
        assert has_same_pieces(identity, dictionary) == same, name


def test_damaged_tables(dictionary):
    with pytest.raises(UserError, match=f"c.pt is damaged: {TOKENS} has 8 rows, expected 9"):
        with_languages(state(8, 2, 0), state(10, 3, 100), ["de", "en"], dictionary, "c.pt")
