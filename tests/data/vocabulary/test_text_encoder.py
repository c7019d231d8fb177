"""Places of pieces in raw text, with and without a tokenizer."""

import json
import re
import shutil

import numpy as np
import pytest

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import SPECIAL
from fairseq_xl.data.vocabulary.subwords import FILES, Source, in_folder
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder, in_raw
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.squad import Question
from fairseq_xl.io import bounds
from fairseq_xl.io.text import is_blank
from fairseq_xl.objectives.question_answering import QuestionAnswering, answer_tokens
from preprocess import encode as encoding
from preprocess.config import NORMALIZATIONS, Vocabulary
from preprocess.vocabulary import train_model
from tests.hostile_text import LINES
from tests.objectives.builders import options
from tests.published_text import write_wordpiece, write_xlm
from tests.tasks.conftest import data_bin  # noqa: F401
from tests.tasks.tiny_text import write
from tests.tiny_data import write_dictionary

TEXTS = [  # tokenizer, language, text, an answer in it, the first of its tokens that the tokenizer makes
    ("moses", "de", 'Er sagte: "Das  geht\'s & <b> 3,5 km", d.h. (nie).', "geht's & <b>", "geht"),
    ("moses", "de", "Die Häuser\u00a0(1.000 EUR) stehen\tdort.\u3000", "1.000 EUR", "1.000"),
    ("moses", "en", "I don't know Mr. O'Neil's [sic] car.", "O'Neil", "O"),
    ("jieba", "zh", "我来到 北京清华大学hello 3.5。", "清华大学", "清华大学"),
    ("pythainlp", "th", "ผมรักคุณนะครับ hello", "คุณ", "คุณ"),
]


def of_words(text):
    """Characters [begin, end) of the words of a tokenized text."""
    ends = np.cumsum([len(word) + 1 for word in text.split(" ")])
    return np.array([(end - 1 - len(word), end - 1) for word, end in zip(text.split(" "), ends)])


@pytest.mark.parametrize("name, language, text, answer, first", TEXTS)
def test_words_are_found_in_the_raw_text(name, language, text, answer, first):
    """Each word of the tokenized text is, character by character, what the raw text has at its place."""
    tokens = tokenizers.tokenize(text, name, language)
    assert tokens != text
    places = in_raw(of_words(tokens), tokens, text)
    assert [text[begin:end] for begin, end in places.tolist()] == tokens.split(" ")
    begin, end = answer_tokens((answer, text.index(answer)), places)
    assert tokens.split(" ")[begin] == first
    assert text[places[begin, 0] : places[end, 1]] == answer


def test_places_by_hand():
    """Blanks around a piece are left out; a piece of blanks alone is empty, before the next character or at the end."""
    found = in_raw(np.array([(0, 1), (1, 3), (1, 2), (3, 6), (6, 7)]), "a bc d ", " ab  c d")
    assert found.tolist() == [[1, 2], [2, 3], [2, 2], [5, 8], [8, 8]]


@pytest.mark.parametrize("tokenized, raw", [("a c", "ab"), ("a", "ab"), ("ab", "a"), ("&amp;", "&")])
def test_other_characters_cannot_be_located(tokenized, raw):
    with pytest.raises(ValueError, match="becomes"):
        in_raw(np.zeros((0, 2)), tokenized, raw)


@pytest.fixture(scope="module")
def encode(data_bin, tmp_path_factory):
    """The encoder of a data folder in which German is tokenized."""
    folder = tmp_path_factory.mktemp("tokenized") / "data-bin"
    shutil.copytree(data_bin, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["config"]["tokenizer"] = {"de": "moses"}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return TextEncoder(folder, XLDictionary.load(folder / "dict.txt"))


@pytest.mark.parametrize("language", ["de", "en"])
def test_pieces_are_those_of_the_whole_text_at_their_places(encode, language):
    text = "der Fluss, (das Haus)  ist grün."
    ids, places = encode.spans(text, language)
    assert ids.tolist() == encode(text, language)[:-1].tolist()
    assert "".join(text[begin:end] for begin, end in places.tolist()).replace(" ", "") == text.replace(" ", "")
    assert np.all(places[1:, 0] >= places[:-1, 1])
    tokens = answer_tokens(("das Haus", text.index("das")), places)
    assert text[places[tokens[0], 0] : places[tokens[1], 1]].strip(" ") == "das Haus"


def test_equal_texts_share_what_cannot_be_changed(encode):
    first = encode("das Haus", "en")
    assert first is encode("das Haus", "en") and first is not encode("das Haus", "de")
    for array in (first, *encode.spans("das Haus", "en")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_text_that_the_tokenizer_changes_is_named(encode):
    """Moses removes control characters."""
    task = QuestionAnswering(options(), None, None)
    example = Question("q1", "wo?", "der Fl\x07uss", (), "de", "valid.de.json")
    message = "question 'q1': the tokenizer 'moses' of de changes characters .*'.x07uss' becomes 'uss'., so answers"
    with pytest.raises(UserError, match=message):
        task.inputs(example, encode)


def folder_of(kind, root):
    """The vocabulary of a data folder: of a kind, or of SentencePiece with the normalization of this name."""
    sentences = ["the house , the garden", "The House", "thehouse"] * 9
    if kind == "xlm":
        write_xlm(root, [line.lower() for line in sentences], merges=20)
        return Source(kind, (root / "codes", root / "vocab"), {"lowercase_and_remove_accent": True})
    if kind == "wordpiece":
        write_wordpiece(root / "vocab.txt", sentences, least=1)
        return Source(kind, (root / "vocab.txt",), {"lowercase": False})
    write(root / "sample", sentences)
    train_model(root / "sample", Vocabulary(size=24, normalization=kind, coverage=1.0), root / "sentencepiece.model")
    return in_folder(root, "sentencepiece")


@pytest.mark.parametrize(
    "kind, tokenizer",
    [*((kind, None) for kind in (*NORMALIZATIONS, "xlm", "wordpiece")), ("nmt_nfkc", "moses"), ("identity", "jieba")],
)
def test_raw_text_is_encoded_as_preprocess_encodes_it(kind, tokenizer, tmp_path):
    """In every line, whatever it has of white space and invisible characters; a blank line is empty."""
    source, data = folder_of(kind, tmp_path), tmp_path / "data"
    data.mkdir()
    for path, name in zip(source.files, FILES[source.kind]):
        shutil.copy(path, data / name)
    language = "zh" if tokenizer == "jieba" else "en"
    config = {"format": 1, "config": {"tokenizer": {language: tokenizer} if tokenizer else {}}}
    (data / "manifest.json").write_text(json.dumps(source.manifest_entry() | config), encoding="utf-8")
    pieces = {symbol: 1 for symbol in source.open().symbols if symbol not in SPECIAL}
    write_dictionary(data / "dict.txt", pieces, [language])
    dictionary = XLDictionary.load(data / "dict.txt")
    encoding.start(source, ())
    block = "".join(f"{line}\n" for line in LINES).encode()
    rows = encoding.encode_block(block, (tokenizer, language) if tokenizer else None).text.decode().split("\n")[:-1]
    assert len(rows) == len(LINES)
    encoder = TextEncoder(data, dictionary)
    for line, row in zip(LINES, rows):
        expected = [dictionary.index(piece) for piece in row.split(" ") if row]
        assert encoder(line, language).tolist() == [*expected, dictionary.eos()], ascii(line)
        assert is_blank(line) == (not row)
        if tokenizer != "moses":  # it removes control characters, and such a text is refused
            ids, places = encoder.spans(line, language)
            assert ids.tolist() == [number for number in expected if len(ids)]  # text without a piece has no <unk> here
            joined = "".join(line[begin:end] for begin, end in places.tolist())
            assert not len(ids) or re.findall("[a-z]", joined) == re.findall("[a-z]", line)


def test_normalization_is_bounded(tmp_path, monkeypatch):
    """NFKC makes 18 letters of U+FDFA."""
    monkeypatch.setattr(bounds, "LONGEST_LINE", 72)
    pieces = folder_of("nmt_nfkc", tmp_path).open()
    assert pieces.encode(["\ufdfa" * 4, "a" * 72])
    for encode in (lambda: pieces.encode(["a", "\ufdfa" * 5]), lambda: pieces.spans("\ufdfa" * 5)):
        with pytest.raises(UserError, match="after normalization: is it text. It begins with '\ufdfa"):
            encode()


def test_what_is_not_unicode(data_bin):
    encoder = TextEncoder(data_bin, XLDictionary.load(data_bin / "dict.txt"))
    for encode in (encoder, encoder.spans):
        with pytest.raises(UserError, match=r"'b.ud800' is not Unicode text"):
            encode("b\ud800", "de")


def test_answers_are_found_behind_other_white_space(data_bin):
    """Places are those of the raw text, whatever the text that is encoded leaves out."""
    encoder = TextEncoder(data_bin, XLDictionary.load(data_bin / "dict.txt"))
    raw = "\ufeff das\u3000\u200b\n\n Haus \u200b ist\u00a0\u202f gruen\r\n"
    ids, places = encoder.spans(raw, "de")
    assert ids.tolist() == encoder("das Haus ist gruen", "de")[:-1].tolist() == encoder(raw, "de")[:-1].tolist()
    begin, end = answer_tokens(("gruen", raw.index("gruen")), places)
    assert raw[places[begin, 0] : places[end, 1]].strip() == "gruen"
