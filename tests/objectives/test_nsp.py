"""Next-sentence prediction with masked words (M1): literal batches, labels, other documents, the loss written out."""

import numpy as np
import pytest
import torch
from tiny_data import write_items
from tiny_models import DENSE, SIZES, randomized
from torch.nn import functional as F

from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.errors import UserError
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel

PAD = 1
NOTHING = "nsp.mask_prob=0"
#: two documents: 4 5 | 6, 7 8 9 10; and 11 12 | 13
ITEMS = [[4, 5, 2], [6, 2], [7, 8, 9, 10, 2], [2], [11, 12, 2], [13, 2]]


@pytest.fixture
def documents(tmp_path):
    return AdjacentSegments(write_items(tmp_path / "documents", ITEMS), "en")


@pytest.fixture
def many(tmp_path):
    """200 documents of four sentences, of 1 to 6 tokens each; token n is in documents n-4, n+12, … only."""
    rng = np.random.default_rng(1)
    items = []
    for number in range(200):
        items += [[4 + number % 16] * int(size) + [2] for size in rng.integers(1, 7, size=4)] + [[2]]
    return AdjacentSegments(write_items(tmp_path / "many", items), "en")


@pytest.fixture
def model(dictionary, build):
    """A small model with random weights, without dropout."""
    torch.manual_seed(1)
    cfg = MonoTransConfig(layers=2, **SIZES, **DENSE)
    model = XLMonoTransModel(cfg, len(dictionary), PAD, dictionary.num_languages, dictionary.shared)
    model.add_heads(build("nsp").heads(cfg))
    return randomized(model)


def test_batch_of_a_real_pair_and_of_one_of_another_document(build, spec, documents):
    """Odd keys keep the second segment. The window 4 5 | 6, 7 8 9 10 is cut behind 6."""
    objective = build("nsp", f"nsp.length=24 {NOTHING}")
    batch = objective.collate(spec([0, 1, 0], [1, 3, 2]), documents)
    assert batch["follows"].tolist() == [1, 1, 0]
    assert batch["tokens"].tolist() == [
        [0, 4, 5, 6, 2, 2, 7, 8, 9, 10, 2],
        [0, 11, 12, 2, 2, 13, 2, *[PAD] * 4],
        [0, 4, 5, 6, 2, 2, 13, 2, *[PAD] * 3],
    ]
    assert batch["segments"].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0],
    ]
    assert "positions" not in batch  # which then run through
    assert batch["languages"].tolist() == [[1]] * 3
    assert batch["padding_mask"].tolist() == batch["tokens"].eq(PAD).tolist()


def test_no_pair_is_longer_than_its_length(build, spec, many):
    for length in (8, 11, 20):
        objective = build("nsp", f"nsp.length={length}")
        examples, sizes = many.all_examples(objective.input_length.text)
        batch = objective.collate(spec(examples), many)
        found = batch["tokens"].ne(PAD).sum(1).numpy()
        assert found.max() <= length == objective.input_length.positions
        assert (found <= objective.collated_lengths(examples, sizes, many) + objective.input_length.symbols).all()


def test_half_of_the_pairs_are_real_and_the_others_of_another_document(build, spec, many):
    objective = build("nsp", f"nsp.length=40 {NOTHING}")
    examples = np.tile(many.all_examples(objective.input_length.text)[0], 10)
    keys = np.random.default_rng(2).integers(2**64, size=len(examples), dtype=np.uint64)
    batch = objective.collate(spec(examples, keys), many)
    assert len(examples) == 2000 and abs(batch["follows"].double().mean() - 0.5) < 0.04
    texts = many.texts(examples, objective.input_length.text)
    same = 0
    for row, segments, follows, (first, second) in zip(batch["tokens"], batch["segments"], batch["follows"], texts):
        found = row[segments.bool()].tolist()
        kept = [token for token in second.tolist() if token != 2]
        assert row[~segments.bool() & row.ne(PAD)].tolist() == [0, *[t for t in first.tolist() if t != 2], 2]
        if follows:
            assert found == [2, *kept, 2]
        same += bool(not follows and found[1] == first[0])
    # documents n and n + 16 share their only word: another document with the same word is one in sixteen
    assert 20 < same < 110


def test_a_negative_is_about_as_long_as_the_segment_that_it_replaces(build, spec, tmp_path):
    """Negatives come from the windows nearest in length, also in a text of 200 pairs."""
    rng, items = np.random.default_rng(4), []
    for number in range(200):
        items += [[4 + number % 16] * int(size) + [2] for size in rng.integers(1, 120, size=2)] + [[2]]
    few = AdjacentSegments(write_items(tmp_path / "few", items), "en")
    objective = build("nsp", f"nsp.length=512 {NOTHING}")
    examples = few.all_examples(objective.input_length.text)[0]
    real, negatives = (
        np.array([int(sum(row)) for row in objective.collate(spec(examples, examples * 2 + odd), few)["segments"]])
        for odd in (1, 0)
    )
    others = rng.permutation(real)
    assert np.abs(real - negatives).mean() < 0.25 * np.abs(real - others).mean()
    assert len(set(negatives)) > 50


def test_length_reveals_nothing_in_a_few_long_documents(build, spec, tmp_path):
    """Most segments then have the maximal length, and neighbors in the text belong to one document."""
    rng, items = np.random.default_rng(5), []
    for number in range(4):
        items += [[4 + number] * int(size) + [2] for size in rng.integers(5, 40, size=250)] + [[2]]
    long = AdjacentSegments(write_items(tmp_path / "long", items), "en")
    objective = build("nsp", f"nsp.length=32 {NOTHING}")
    examples = np.tile(long.all_examples(objective.input_length.text)[0], 20)
    keys = rng.integers(2**64, size=len(examples), dtype=np.uint64)
    batch = objective.collate(spec(examples, keys), long)
    sizes = [batch["segments"].sum(1)[batch["follows"] == kind] for kind in (0, 1)]
    shares = [torch.bincount(found, minlength=18) / len(found) for found in sizes]
    assert (shares[0] - shares[1]).abs().sum() / 2 < 0.05


def test_a_text_of_one_document_has_no_negative(build, tmp_path):
    """It is refused before training."""
    documents = AdjacentSegments(write_items(tmp_path / "one", [[4, 2], [5, 2], [2], [6, 2]]), "en")
    with pytest.raises(UserError, match="negatives need a second document") as refused:
        build("nsp").check(documents)
    assert "\n" not in str(refused.value)


def test_a_pair_has_room_for_both_segments(build):
    assert build("nsp", "nsp.length=8").input_length.text == 2
    with pytest.raises(UserError, match="length=7 should be 8 tokens or more"):
        build("nsp", "nsp.length=7")


def test_a_document_that_is_most_of_the_text(build, spec, tmp_path):
    items = [[4, 2], [5, 2]] * 500 + [[2], [6, 2], [7, 2]]
    documents = AdjacentSegments(write_items(tmp_path / "most", items), "en")
    objective = build("nsp", f"nsp.length=8 {NOTHING}")
    examples = np.arange(40)
    batch = objective.collate(spec(examples, examples * 2), documents)
    assert batch["tokens"][:, 4:6].tolist() == [[7, 2]] * 40


def test_the_loss_written_out(build, spec, documents, model):
    objective = build("nsp", "nsp.length=24 nsp.mask_prob=0.5")
    batch = objective.collate(spec([0, 1, 1, 0], [1, 3, 2, 4]), documents)
    terms = model(objective.loss, batch)
    assert tuple(terms) == objective.terms == ("nsp_mlm", "nsp")
    hidden = model.encode(batch["tokens"], segments=batch["segments"], padding_mask=batch["padding_mask"])
    pooled = (hidden[:, 0] @ model.heads["nsp"][0].weight.T + model.heads["nsp"][0].bias).tanh()
    logits = pooled @ model.heads["nsp"][2].weight.T + model.heads["nsp"][2].bias
    assert terms["nsp"].count == 4
    expected = -sum(row.log_softmax(0)[label] for row, label in zip(logits, batch["follows"]))
    assert terms["nsp"].sum.item() == pytest.approx(expected.item(), rel=1e-6)
    scores = model.output(hidden).flatten(0, 1)[batch["predicted_positions"]]
    assert terms["nsp_mlm"].count == len(batch["target"]) > 3
    assert terms["nsp_mlm"].sum.item() == pytest.approx(
        F.cross_entropy(scores, batch["target"], reduction="sum").item()
    )


def test_a_batch_is_the_sum_of_its_pairs(build, spec, documents, check_sums):
    objective = build("nsp", "nsp.length=24 nsp.mask_prob=0.5")
    together = spec([0, 1, 1], [1, 3, 2])
    check_sums(objective, documents, together, [spec([0], [1]), spec([1], [3]), spec([1], [2])])


def test_a_batch_of_several_languages(build, spec, documents, many):
    objective = build("nsp", f"nsp.length=24 {NOTHING}")
    mixed = MixedCorpus({"one": documents, "other": many}, 0.5)
    examples, sizes = mixed.sample(np.random.default_rng(1), 30, objective.input_length.text)
    found = objective.collate(spec(examples), mixed)["tokens"].ne(PAD).sum(1).numpy()
    assert (found <= objective.collated_lengths(examples, sizes, mixed) + objective.input_length.symbols).all()
