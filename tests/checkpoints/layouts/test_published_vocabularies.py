"""Rows of published vocabularies in our order, worked out by hand."""

import json
import shutil

import pytest
import sentencepiece
from fairseq.data import Dictionary
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from transformers import BertTokenizer, MBart50Tokenizer, MBartTokenizer, XLMRobertaTokenizer

from fairseq_xl.checkpoints.layouts import published_vocabularies
from fairseq_xl.checkpoints.layouts.published_vocabularies import MBART50_LANGUAGES, MBART_LANGUAGES, read_symbols
from fairseq_xl.checkpoints.layouts.tokenizer_json import FIRST
from fairseq_xl.checkpoints.sentencepiece_surgery import Piece
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.errors import UserError

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
XLM_WORDS = ["<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>", "the</w>", "th", "e</w>"]


def write_dictionary(path, symbols):
    path.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
    return path


def test_pieces_in_brackets_are_no_languages(tmp_path):
    """XLM-R's model may have pieces such as [1]; its <mask> is last."""
    pieces = [Piece(piece=text, type=kind) for text, kind in FIRST]
    pieces += [Piece(piece=text, score=-1.0) for text in ("▁a", "[1]", "[url]", "de_DE", "b")]
    path = tmp_path / "sentencepiece.bpe.model"
    path.write_bytes(ModelProto(pieces=pieces).SerializeToString())
    assert sentencepiece.SentencePieceProcessor(model_file=str(path)).encode("a[1]", out_type=str) == ["▁a", "[1]"]
    found = published_vocabularies.from_pieces(10, path)
    assert found.symbols == [*SPECIAL, "▁a", "[1]", "[url]", "de_DE", "b", "<mask>"]
    assert found.languages == [] and found.rows is None


def test_languages_behind_the_mask(tmp_path):
    path = write_dictionary(tmp_path / "dict.txt", ["a", "[1]"])
    path.rename(tmp_path / "vocab")
    words = [*SPECIAL, "a", "[1]", "<mask>", "[de]", "[en]"]
    found = published_vocabularies.from_xlm(9, dict(enumerate(words)), tmp_path / "vocab.json")
    assert found.symbols == words[:7] and found.languages == ["de", "en"] and found.rows is None


def test_languages_among_the_pieces_of_veco(tmp_path):
    """Its dict.txt lists [xx] among the pieces and has no row for <mask>, or has it last."""
    path = write_dictionary(tmp_path / "dict.txt", ["a", "[de]", "b", "[en]"])
    for count, mask in ((8, -1), (9, 8)):
        found = published_vocabularies.from_fairseq_translation(count, path, [])
        assert found.symbols == [*SPECIAL, "a", "b", "<mask>"] and found.languages == ["de", "en"]
        assert found.rows == [0, 1, 2, 3, 4, 6, mask, 5, 7]


def test_codes_of_mbart(tmp_path):
    """The codes of 25 or of 50 languages, then <mask>."""
    path = write_dictionary(tmp_path / "dict.txt", ["a", "[1]"])
    found = published_vocabularies.from_fairseq_translation(9, path, ["de_DE", "en_XX"])
    assert found.symbols == [*SPECIAL, "a", "[1]", "<mask>"] and found.languages == ["de", "en"]
    for codes in (MBART_LANGUAGES, MBART50_LANGUAGES):
        count = 6 + len(codes) + 1
        found = published_vocabularies.from_mbart(count, path)
        assert found.symbols == [*SPECIAL, "a", "[1]", "<mask>"] and found.languages[:4] == ["ar", "cs", "de", "en"]
        assert found.rows == [*range(6), count - 1, *range(6, count - 1)] and len(found.languages) == len(codes)


def test_special_words_of_xlm(tmp_path):
    words = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10)), "w0", "w1"]
    found = published_vocabularies.from_xlm(len(words), dict(enumerate(words)), tmp_path / "model.pth")
    assert found.symbols == [*SPECIAL, "w0", "w1", "<mask>"]
    assert [words[row] for row in found.rows] == [*SPECIAL, "w0", "w1", "<special1>"]


def test_special_pieces_of_bert(tmp_path):
    pieces = ["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    found = published_vocabularies.from_bert(len(pieces), tmp_path / "vocab.txt")
    assert found.symbols == [*SPECIAL, "[unused1]", "[unused2]", "a", "##b", "<mask>"]
    assert found.rows == [4, 0, 5, 3, 1, 2, 7, 8, 6]


def rows(tokenizer):
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


@pytest.mark.parametrize(
    "tokenizer_class, languages",
    [(XLMRobertaTokenizer, []), (MBartTokenizer, MBART_LANGUAGES), (MBart50Tokenizer, MBART50_LANGUAGES)],
)
def test_rows_of_transformers(data_folder, tmp_path, tokenizer_class, languages):
    """From the SentencePiece model and from the tokenizer.json that transformers makes of it."""
    shutil.copy(data_folder() / "sentencepiece.model", tmp_path / "sentencepiece.bpe.model")
    tokenizer = tokenizer_class.from_pretrained(tmp_path)
    assert read_symbols(tmp_path / "sentencepiece.bpe.model", languages) == rows(tokenizer)
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(tmp_path / "saved")
    assert read_symbols(tmp_path / "saved/tokenizer.json") == rows(tokenizer)
    assert read_symbols(tmp_path / "saved/tokenizer.json")[-1] == "<new>"


@pytest.mark.parametrize("listed", [True, False])
def test_rows_of_a_fairseq_dictionary(data_folder, tmp_path, listed):
    """The rows are those of fairseq's Dictionary, to which its tasks add missing languages and <mask>."""
    data, languages = data_folder(), ["[xx]", "[yy]"]
    pieces = [symbol for symbol in read_symbols(data / "sentencepiece.model") if symbol not in (*SPECIAL, MASK)]
    lines = [*pieces, MASK, *languages] if listed else pieces
    (tmp_path / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in lines), encoding="utf-8")
    expected = Dictionary.load(str(tmp_path / "dict.txt"))
    for symbol in (*languages, MASK):
        expected.add_symbol(symbol)
    found = read_symbols(tmp_path / "dict.txt", languages)
    assert found == expected.symbols
    assert listed or found == read_symbols(data / "sentencepiece.model", languages)


def test_rows_of_word_pieces(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "\u3000c"]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    assert read_symbols(tmp_path / "vocab.txt") == pieces == rows(BertTokenizer.from_pretrained(tmp_path))


def test_rows_of_xlm(tmp_path):
    """vocab.json need not be in order."""
    numbered = {word: number for number, word in reversed(list(enumerate(XLM_WORDS)))}
    (tmp_path / "vocab.json").write_text(json.dumps(numbered), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("t h 9\nth e</w> 8\n", encoding="utf-8")
    assert read_symbols(tmp_path / "vocab.json") == XLM_WORDS


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("vocab.json", b'{"a": 0, "b": 2}', "vocab.json: expected words that are numbered from 0 without a gap"),
        ("vocab.json", b'{"a": [0]}', "vocab.json: expected words that are numbered from 0 without a gap"),
        ("vocab.json", b"[]", "vocab.json holds no JSON object"),
        ("vocab.txt", b"a\nb\n", r"vocab.txt is not a WordPiece vocabulary: it has no line \[CLS\]"),
        ("vocab.txt", b"a\xff\n", "vocab.txt, line 1: not UTF-8"),
        ("dict.txt", b"a 1\nb 1\na 1\n", "dict.txt has 1 symbols more than once, such as 'a'"),
        ("sentencepiece.bpe.model", b"half", "sentencepiece.bpe.model is not a SentencePiece model"),
        ("dict.txt", b"a\xff 1\n", "dict.txt is not a fairseq dictionary"),
    ],
)
def test_wrong_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_symbols(tmp_path / name)
