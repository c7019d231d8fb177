"""Rows of published vocabularies in our order, worked out by hand."""

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from fairseq_xl.checkpoints.layouts import published_vocabularies
from fairseq_xl.checkpoints.layouts.tokenizer_json import FIRST
from fairseq_xl.checkpoints.sentencepiece_surgery import Piece

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


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
    path = write_dictionary(tmp_path / "dict.txt", ["a", "[1]"])
    found = published_vocabularies.from_fairseq_translation(9, path, ["de_DE", "en_XX"])
    assert found.symbols == [*SPECIAL, "a", "[1]", "<mask>"] and found.languages == ["de", "en"]
    found = published_vocabularies.from_mbart(32, path)
    assert found.symbols == [*SPECIAL, "a", "[1]", "<mask>"] and found.languages[:2] == ["ar", "cs"]
