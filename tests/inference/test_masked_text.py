"""The text around a mask: the pieces of whole sentences with a word in its place."""

import io
import json

import pytest
import sentencepiece

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import in_folder
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.inference.scoring import around_mask
from tests.published_text import write_wordpiece, write_xlm
from tests.tiny_data import write_dictionary

LINES = ["the house is green.", "is the garden unreadable, or (green)?", "the unreadable house , the garden"] * 9
OPTIONS = {"xlm": {"lowercase_and_remove_accent": True}, "wordpiece": {"lowercase": False}}


@pytest.fixture(scope="module")
def model():
    """A SentencePiece model of `LINES`."""
    written = io.BytesIO()
    options = dict(vocab_size=60, model_type="bpe", hard_vocab_limit=False, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=written, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.fixture
def around(tmp_path, model):
    """A function from a text with a mask to the symbols on both sides of it, by `around_mask` with `model`."""
    (tmp_path / "sentencepiece.model").write_bytes(model.serialized_model_proto())
    names = {model.id_to_piece(number): 1 for number in range(3, model.get_piece_size())}
    return around_with(tmp_path, names)


def around_with(folder, names):
    dictionary = XLDictionary.load(write_dictionary(folder / "dict.txt", names, ["en"]))
    encode = TextEncoder(folder, dictionary)

    def symbols(text):
        return tuple(
            [dictionary[number] for number in side] for side in around_mask(encode, *text.split("<mask>"), "en")
        )

    return symbols


@pytest.mark.parametrize(
    "text, word, piece",
    [
        ("the house is <mask>.", "green", "▁green"),
        ("the <mask> is green.", "house", "▁house"),
        ("<mask>, the house", "the", "▁the"),
        ("(<mask>) is the house", "green", "green"),
        ("the house  <mask>  , green", "is", "▁is"),
        ("the house is <mask>", "un", "▁un"),
        (" <mask> house", "the", "▁the"),
        ("<mask>", "the", "▁the"),
        ("un<mask>.", "able", "able"),
    ],
)
def test_pieces_are_those_of_the_sentence_with_a_word_of_one_piece(around, model, text, word, piece):
    left, right = around(text)
    assert [*left, piece, *right] == model.encode(text.replace("<mask>", word), out_type=str)


def test_a_word_continues_behind_the_mask(around):
    """`unreadable` is one piece; none of its letters is joined with the mask. ▁ is where a space is."""
    assert around("the un<mask>able house") == (["▁the", "▁un"], ["able", "▁house"])
    assert around("the <mask>able") == (["▁the"], ["able"])
    assert around("the un<mask> able") == (["▁the", "▁un"], ["▁", "able"])


def test_unknown_characters_beside_the_mask(around):
    """SentencePiece makes one <unk> of unknown characters that follow each other."""
    assert around("the 日<mask>語 is") == (["▁the", "▁", "<unk>"], ["<unk>", "▁is"])


@pytest.mark.parametrize("kind", ["xlm", "wordpiece"])
def test_other_subwords(tmp_path, kind):
    """With XLM's tokenizer the full stop is a word; WordPiece makes a whole word unknown by one unknown letter."""
    made, data = tmp_path / "made", tmp_path / "data"
    made.mkdir()
    data.mkdir()
    lines = ["the house is un able .", "the garden is able ."] * 3 + ["unbend unfold unless"]
    write_xlm(made, lines, merges=40)
    write_wordpiece(made / "vocab.txt", lines, least=3)
    source = in_folder(data, kind, OPTIONS[kind])
    files = [made / "codes", made / "vocab"] if kind == "xlm" else [made / "vocab.txt"]
    for given, copied in zip(files, source.files, strict=True):
        copied.write_bytes(given.read_bytes())
    tokenizer = {"format": 1, "config": {"tokenizer": {"en": "xlm"} if kind == "xlm" else {}}}
    (data / "manifest.json").write_text(json.dumps(source.manifest_entry() | tokenizer), encoding="utf-8")
    around = around_with(data, {symbol: 1 for symbol in source.open().symbols if symbol != "<unk>"})
    assert around("the house is <mask>.") == (["the", "house", "is"], ["."])
    assert around("<mask>") == ([], [])
    left, right = around("the un<mask>able house")
    if kind == "xlm":
        assert (left, right) == (["the", "un@@"], ["able", "house"])
    else:
        assert (left, right) == (["the", "un"], ["##a", "##b", "##l", "##e", "house"])


def test_a_vocabulary_without_letters_is_refused(tmp_path):
    written = io.BytesIO()
    options = dict(vocab_size=7, model_type="char", hard_vocab_limit=False, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["12 21"]), model_writer=written, **options)
    (tmp_path / "sentencepiece.model").write_bytes(written.getvalue())
    around = around_with(tmp_path, {"▁": 1, "1": 1, "2": 1})
    assert around("12<mask>1 2") == (["▁", "1", "2"], ["1", "▁", "2"])
    with pytest.raises(UserError, match="'x<mask>': the vocabulary has no letter that can stand for <mask> in it"):
        around("x<mask>")
