"""The joint vocabulary: order of ids, languages, files that are refused."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, joined
from fairseq_xl.errors import UserError


@pytest.fixture
def write(tmp_path):
    def write(*lines):
        path = tmp_path / "dict.txt"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def test_order_of_ids(write):
    """A piece that looks like a language is a piece; <mask> is appended where the file lacks it."""
    path = write("▁a 7", "[1] 3", "<mask> 0", "[de] 0", "[pt-br] 0")
    dictionary = XLDictionary.load(path)
    assert dictionary.symbols == ["<s>", "<pad>", "</s>", "<unk>", "▁a", "[1]", "<mask>", "[de]", "[pt-br]"]
    assert (dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.unk()) == (0, 1, 2, 3)
    assert (dictionary.mask_index, dictionary.first_language) == (6, 7)
    assert (dictionary.languages, dictionary.num_languages) == (["de", "pt-br"], 2)
    assert (dictionary.language_id("pt-br"), dictionary.language_symbol("pt-br")) == (1, 8)
    assert dictionary.pieces.tolist() == [4, 5]
    assert np.flatnonzero(dictionary.is_piece).tolist() == [4, 5]
    assert dictionary.counts[4:].tolist() == [7, 3, 0, 0, 0]
    dictionary = XLDictionary.load(write("a 1"))
    assert (dictionary.symbols[4:], dictionary.mask_index, dictionary.languages) == (["a", "<mask>"], 5, [])


def test_same_ids_as_fairseqs_own_reader(data_bin):
    assert XLDictionary.load(data_bin / "dict.txt").symbols == Dictionary.load(str(data_bin / "dict.txt")).symbols


@pytest.mark.parametrize(
    "lines",
    [
        ("a 1", "<mask> 0", "[de] 0", "b 1"),  # a piece after the languages
        ("a 1", "[de] 0", "[en] 0", "<mask> 0", "b 1"),  # <mask> among the pieces
        ("a 1", "[de] 0", "[en] 0"),  # no <mask>, which would be appended after the languages
        ("<mask> 0", "a 1", "[de] 0"),  # a piece between <mask> and the languages
    ],
)
def test_languages_not_at_the_end_are_refused(write, lines):
    path = write(*lines)
    with pytest.raises(UserError, match=f"{path}.*<mask>.*language symbols"):
        XLDictionary.load(path)


def test_an_unknown_language_is_reported_with_the_known_ones(dictionary):
    with pytest.raises(UserError, match="'ja' has no symbol in the dictionary: expected de, en, fr; "):
        dictionary.language_id("ja")


def test_a_malformed_file_is_reported(tmp_path):
    path = tmp_path / "dict.txt"
    with pytest.raises(UserError, match="dict.txt: no such dictionary"):
        XLDictionary.load(path)
    for content in (b"a 1\nb\n", b"a one\n", b"a 1\na 2\n", b"\xff\xfe 3\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{path} is not a fairseq dictionary"):
            XLDictionary.load(path)


@pytest.mark.parametrize(
    "pieces, mark, begins, ends",
    [
        (("▁a", "▁b@@", "c@@"), "sentencepiece", "110", "000"),
        (("th@@", "e", "ho@@", "▁"), "@@ ", "0000", "0101"),
        (("a", "b"), None, "00", "00"),
        (("th", "##e", "##o", "▁"), "##", "1001", "0000"),
    ],
)
def test_marks_of_words(write, pieces, mark, begins, ends):
    """The more frequent mark counts: a rare character or a piece such as ▁@@ does not change it."""
    dictionary = XLDictionary.load(write(*(f"{piece} 1" for piece in pieces), "<mask> 0", "[en] 0"))
    assert dictionary.word_mark == mark
    for found, expected in zip(dictionary.word_boundaries, (begins, ends)):
        assert found[4 : 4 + len(pieces)].tolist() == [flag == "1" for flag in expected]


@pytest.mark.parametrize(
    "pieces, mark, text",
    [
        (("th@@", "o@@", "e", "a"), "@@ ", "thoe a"),
        (("th", "##o", "##e", "a"), "##", "thoe a"),
        (("▁th", "o", "e", "▁a"), "sentencepiece", "thoe a"),
    ],
)
def test_any_name_joins_pieces_by_the_mark_that_they_have(write, pieces, mark, text):
    dictionary = XLDictionary.load(write(*(f"{piece} 1" for piece in pieces), "<mask> 0", "[en] 0"))
    tokens = torch.tensor([4, 5, 6, 7, 2])
    for name in ("sentencepiece", "@@ ", "subword_nmt", "wordpiece", "##"):
        assert dictionary.string(tokens, name) == text
    assert dictionary.string(tokens) == " ".join(pieces) and joined(" ".join(pieces), mark) == text


def test_digest_depends_on_symbols_and_their_order_but_not_on_counts(write):
    digests = [
        XLDictionary.load(write(*lines)).digest()
        for lines in (("a 1", "b 2"), ("a 9", "b 2"), ("b 2", "a 1"), ("a 1", "c 2"), ("a 1", "b 2", "c 3"))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4
