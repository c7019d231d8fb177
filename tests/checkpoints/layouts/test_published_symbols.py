"""Symbols of published models by row, against transformers' own tokenizers and files by hand."""

import json
import shutil

import pytest
from fairseq.data import Dictionary
from transformers import BertTokenizer, MBart50Tokenizer, MBartTokenizer, XLMRobertaTokenizer

from fairseq_xl.checkpoints.layouts.published_vocabularies import MBART50_LANGUAGES, MBART_LANGUAGES, read_symbols
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.errors import UserError

XLM_WORDS = ["<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>", "the</w>", "th", "e</w>"]


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
        ("vocab.json", b'{"a": 0', "vocab.json, line 1: not JSON"),
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
