"""Pieces that follow a WordPiece vocabulary: which ones, and the old pieces of a new one."""

from transformers import BertTokenizer

from fairseq_xl.checkpoints.wordpiece_extension import learn, spell
from fairseq_xl.data.vocabulary.wordpiece import WordPieces
from tests.checkpoints.builders import lines
from tests.published_text import write_wordpiece

OLD, NEW = "ba da ga ka la ma na".split(), "ra sa ta wa ba".split()


def test_new_pieces(tmp_path):
    write_wordpiece(tmp_path / "vocab.txt", lines(OLD, "old"))
    old, text = WordPieces(tmp_path / "vocab.txt", lowercase=False), lines(NEW, "new")
    added = learn(old, text, 30, {"sata"})
    assert len(added) == len({*added} - {*old.pieces} - {"sata"}) == 30
    characters = [piece for piece in added if len(piece.removeprefix("##")) == 1]
    assert added[: len(characters)] == characters and {*"rstw"} <= {piece.removeprefix("##") for piece in characters}
    (tmp_path / "new.txt").write_text("".join(f"{piece}\n" for piece in [*old.pieces, *added]), encoding="utf-8")
    new, more = WordPieces(tmp_path / "new.txt", lowercase=False), lines(NEW, "more")
    assert not any(new.unknown in row for row in new.encode(more))
    assert any(old.unknown in row for row in old.encode(more))
    assert len(learn(old, ["ba"], 30, ())) < 30  # the text has no more


def test_a_new_piece_is_spelled_as_bert_spells_it(tmp_path):
    write_wordpiece(tmp_path / "vocab.txt", lines(OLD, "old"))
    tokenizer = BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False)
    pieces = {*tokenizer.get_vocab()}
    for word in ("bada", "dabaka", "mak", "g"):
        assert spell(word, pieces) == tokenizer.tokenize(word) and spell(word, pieces)[0] in pieces
    assert spell("##bak", {"##b", "##ba", "##k", "bak"}) == ["##ba", "##k"]
    assert spell("ßabß", {"##ab", "ab"}) == ["##ab"] and not spell("ß", {"a"})
