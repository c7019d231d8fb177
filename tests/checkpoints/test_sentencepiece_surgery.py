"""Cut SentencePiece models segment the text that they were cut to as before: unigram, BPE, with byte fallback."""

from fairseq_xl.checkpoints.sentencepiece_surgery import (
    BPE,
    UNIGRAM,
    Piece,
    merge_scores,
    merger,
    ordinary_pieces,
    processor,
    remove_pieces,
    verbatim,
    with_pieces,
)
from tests.checkpoints.builders import (
    SYLLABLES,
    lines,
    model,  # noqa: F401
    words,
)


def used_by(model, text):
    return {piece for line in processor(model).encode(text, out_type=str) for piece in line}


#: text with words of the second language, unknown characters, a user-defined symbol and other spaces
OTHERS = ["bada qü baga", "xyz", "ba<u>da", "  da  ga ", "bádà €"]


def test_text_that_was_kept_has_the_same_pieces(model):
    text = lines(SYLLABLES[:6], "one") + OTHERS
    made = remove_pieces(model, used_by(model, text), set(ordinary_pieces(model)))
    one, other = (processor(each).encode(text, out_type=str) for each in (model, made))
    assert one == other
    assert len(made.pieces) < len(model.pieces) and made.trainer_spec.vocab_size == len(made.pieces)
    assert with_pieces(made, model.pieces) == model  # nothing but the pieces has changed
    places = {each.piece: place for place, each in enumerate(model.pieces)}
    order = [places[each.piece] for each in made.pieces]
    assert order == sorted(order)
    other_language = lines(SYLLABLES[6:], "three")
    one, other = (processor(each).encode(other_language, out_type=str) for each in (model, made))
    assert one != other


def test_what_is_kept_besides(model):
    made = remove_pieces(model, {"▁ba"}, set(ordinary_pieces(model)) - {"▁da"})
    kept = {each.piece for each in made.pieces}
    special = {each.piece for each in model.pieces if each.type != Piece.NORMAL}
    assert special | {"▁ba", "▁da"} <= kept and "<u>" in special
    assert sum(each.type == Piece.BYTE for each in made.pieces) in (0, 256)
    scores = [each.score for each in model.pieces if each.type == Piece.NORMAL]
    if model.trainer_spec.model_type == UNIGRAM:
        assert {min(scores), max(scores)} <= {each.score for each in made.pieces if each.type == Piece.NORMAL}
        assert len(made.pieces) == len(special) + 4
    else:
        assert "ba" in kept and len(made.pieces) == len(special) + 4  # and "da"


def test_merges_are_those_of_sentencepiece(model):
    if model.trainer_spec.model_type != BPE:
        return
    segment, encode = merger(merge_scores(model)), verbatim(model)
    for word in [*words(SYLLABLES, 100, "merged"), "▁badagaka", "b", ""]:
        parts, merged = segment(word)
        assert parts == encode.encode(word, out_type=str)
        assert len(merged) == len(word) - len(parts)


def test_pieces_are_segmented_verbatim(model):
    encode = verbatim(model)
    assert encode.encode("▁ba", out_type=str) == ["▁ba"]
    for text in ("ba", "▁ba▁da", "ﬁ", " "):
        pieces = encode.encode(text, out_type=str)
        assert encode.is_unknown(encode.piece_to_id(pieces[-1])) or "".join(pieces) == text or pieces[0][0] == "<"
