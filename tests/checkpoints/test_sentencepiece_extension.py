"""Pieces appended to SentencePiece models: used by new text, and by old text only where the old pieces end there."""

import pytest

from fairseq_xl.checkpoints import sentencepiece_surgery as surgery
from fairseq_xl.errors import UserError
from tests.checkpoints.builders import BYTES, lines, train

OLD, NEW = "ba da ga ka la ma na".split(), "ra sa ta wa ba".split()
GREEK = "αβ γδ εζ ηθ".split()
KINDS = {"unigram": {}, "bpe": {}, "unigram with bytes": BYTES}
RESERVED = {"<s>", "<pad>", "</s>", "<unk>", "<mask>", "[xx]"}


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    """A model of Latin text without r, s, t and w; with bytes for them, or as unknown characters."""
    options = KINDS[request.param]
    text, size = lines(OLD, "old"), 60 + 256 * bool(options)
    path = tmp_path_factory.mktemp("models") / "m"
    return surgery.read_model(train(path, text, model_type=request.param.split()[0], vocab_size=size, **options))


@pytest.fixture(scope="module")
def extended(model):
    return surgery.extend(model, lines(NEW, "new"), 40, RESERVED)


def added(model, extended):
    assert extended.pieces[: len(model.pieces)] == model.pieces
    return extended.pieces[len(model.pieces) :]


def test_as_many_pieces_as_asked_follow_the_old_ones(model, extended):
    new = [each.piece for each in added(model, extended)]
    assert len(new) == len(set(new)) == 40 and extended.trainer_spec.vocab_size == len(extended.pieces)
    assert not set(new) & {each.piece for each in model.pieces}
    unknown = [piece for piece in new if not surgery.is_known(surgery.verbatim(model), piece)]
    assert unknown and {"r", "s", "t", "w"} <= set("".join(new))


def test_new_text_is_shorter_and_known(model, extended):
    text = lines(NEW, "more")
    old, new = surgery.processor(model), surgery.processor(extended)
    assert sum(map(len, new.encode(text))) < 0.7 * sum(map(len, old.encode(text)))
    assert not any(new.unk_id() in row for row in new.encode(text))
    if not any(each.type == surgery.Piece.BYTE for each in model.pieces):
        assert any(old.unk_id() in row for row in old.encode(text))


def test_each_new_piece_is_the_segmentation_of_its_text(model, extended):
    encode = surgery.verbatim(extended)
    for each in added(model, extended):
        assert encode.encode(each.piece, out_type=str) == [each.piece]


def test_old_text_keeps_its_pieces_but_for_new_ones_in_whole_runs_of_them(model, extended):
    """A new piece replaces old pieces between two ends of old pieces, so no end is new."""
    text = lines(OLD, "kept")
    one, other = (surgery.processor(each).encode(text, out_type=str) for each in (model, extended))
    new, changed = {each.piece for each in added(model, extended)}, 0
    for before, after in zip(one, other):
        assert "".join(before) == "".join(after)
        if before != after:
            changed += 1
            assert new & set(after)
            ends = [{len("".join(row[: place + 1])) for place in range(len(row))} for row in (before, after)]
            assert ends[1] < ends[0]
    assert changed < len(text) / 2


def test_scores_by_hand(model, extended):
    encode, scores = surgery.verbatim(model), {each.piece: each.score for each in model.pieces}
    least = min(each.score for each in model.pieces if each.type == surgery.Piece.NORMAL)
    new = added(model, extended)
    if model.trainer_spec.model_type == surgery.BPE:
        assert [each.score for each in new] == [least - place for place in range(1, 41)]
        return
    known = [each for each in new if surgery.is_known(encode, each.piece)]
    for each in known:
        parts = encode.encode(each.piece, out_type=str)
        expected = sum(scores[part] for part in parts) + surgery.BONUS * (len(parts) - 1)
        assert each.score == pytest.approx(expected, rel=1e-6) and len(parts) > 1
    assert all(least <= each.score < 0 for each in new if each not in known)


def test_characters_unknown_to_the_old_model_come_first(model):
    made = surgery.extend(model, lines(GREEK, "greek"), 20, RESERVED)
    new = [each.piece for each in added(model, made)]
    assert set(new[:8]) == set("αβγδεζηθ")
    one, other = (surgery.processor(each).encode(lines(OLD, "kept"), out_type=str) for each in (model, made))
    assert one == other  # nothing of the new text occurs in it


def test_text_with_few_pieces_gives_fewer(model):
    made = surgery.extend(model, ["xy xy", "xy"], 500, RESERVED)
    assert 2 <= len(added(model, made)) < 20


def test_no_piece_is_a_reserved_symbol(model):
    text, words = ["xyx xyxz xy"] * 20, {"xy", "▁xy"}
    with_it, without = (
        set(surgery.ordinary_pieces(surgery.extend(model, text, 30, names))) for names in (set(), words)
    )
    assert words & with_it and not words & without


@pytest.mark.parametrize("kind", ["char", "word"])
def test_another_type_of_model_is_refused(tmp_path, kind):
    text = lines(OLD, "old")
    size = 12 if kind == "char" else 40
    model = surgery.read_model(train(tmp_path / "m", text, model_type=kind, vocab_size=size))
    with pytest.raises(UserError, match="is neither unigram nor BPE, so pieces cannot be added to it"):
        surgery.extend(model, text, 5, RESERVED)
