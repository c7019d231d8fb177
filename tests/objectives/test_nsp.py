"""Next-sentence prediction with masked words (M1): literal batches, labels, other documents, the loss written out."""

import numpy as np
import pytest
import torch
from tiny_data import write_items
from tiny_models import DENSE, SIZES, randomized
from torch.nn import functional as F

from fairseq_xl.data.corpora.documents import NextSegments
from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.errors import UserError
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel

PAD = 1
NOTHING = "nsp.mask_prob=0"
#: two documents: 4 5 | 6, 7 8 9 10; and 11 12 | 13
ITEMS = [[4, 5, 2], [6, 2], [7, 8, 9, 10, 2], [2], [11, 12, 2], [13, 2]]


@pytest.fixture
def documents(tmp_path):
    return NextSegments(write_items(tmp_path / "documents", ITEMS), "en")


@pytest.fixture
def many(tmp_path):
    """200 documents of four sentences, of 1 to 6 tokens each; token n is in documents n-4, n+12, … only."""
    rng = np.random.default_rng(1)
    items = []
    for number in range(200):
        items += [[4 + number % 16] * int(size) + [2] for size in rng.integers(1, 7, size=4)] + [[2]]
    return NextSegments(write_items(tmp_path / "many", items), "en")


@pytest.fixture
def model(dictionary, build):
    """A small model with random weights, without dropout."""
    torch.manual_seed(1)
    cfg = MonoTransConfig(layers=2, **SIZES, **DENSE)
    model = XLMonoTransModel(cfg, len(dictionary), PAD, dictionary.num_languages, dictionary.shared)
    model.add_heads(build("nsp").heads(cfg))
    return randomized(model)


def examples_of(corpus, length, follows, count):
    """Examples of a length whose second segment follows, or not, of several passes."""
    rng, examples = np.random.default_rng(7), []
    while len(examples) < count:
        examples += [example for example in corpus.sample(rng, 4, length)[0].tolist() if example % 2 == follows]
    return examples[:count]


def test_batch_of_a_real_pair_and_of_one_of_another_document(build, spec, documents):
    """Of the documents 4 5 | 6 | 7 8 9 10 and 11 12 | 13, cut at the end of a sentence."""
    objective = build("nsp", f"nsp.length=24 {NOTHING}")
    examples = [examples_of(documents, 10, kind, 60) for kind in (1, 0)]
    batches = [objective.collate(spec(part), documents) for part in examples]
    assert [batch["follows"].tolist() for batch in batches] == [[1] * 60, [0] * 60]
    rows = [{tuple(filter(PAD.__ne__, row)) for row in batch["tokens"].tolist()} for batch in batches]
    assert rows[0] == {
        (0, 4, 5, 2, 2, 6, 7, 8, 9, 10, 2),
        (0, 4, 5, 6, 2, 2, 7, 8, 9, 10, 2),
        (0, 6, 2, 2, 7, 8, 9, 10, 2),
        (0, 11, 12, 2, 2, 13, 2),
    }
    assert (0, 13, 2, 2, 6, 7, 8, 9, 10, 2) in rows[1] or (0, 13, 2, 2, 7, 8, 9, 10, 2) in rows[1]  # all that is left
    for row in rows[1]:
        first, second = (tuple(map(int, part.split())) for part in " ".join(map(str, row[1:-1])).split(" 2 2 "))
        assert (first[0] < 11) == (second[0] >= 11) and first[-1] in {5, 6, 10, 12, 13}
    row = batches[0]["tokens"].tolist().index([0, 11, 12, 2, 2, 13, 2, *[PAD] * 4])
    assert batches[0]["segments"][row].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    assert "positions" not in batches[0]  # which then run through
    assert batches[0]["languages"].tolist() == [[1]] * 60
    assert batches[0]["padding_mask"].tolist() == batches[0]["tokens"].eq(PAD).tolist()


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
    length = objective.input_length.text
    examples, _ = many.sample(np.random.default_rng(2), 2000, length)
    batch, texts = objective.collate(spec(examples), many), many.texts(examples, length)
    possible = np.array([len(second) > 0 for _, second in texts])
    assert abs(batch["follows"].numpy()[possible].mean() - 0.5) < 0.04 and not batch["follows"].numpy()[~possible].any()
    same = 0
    for row, segments, follows, (first, second) in zip(batch["tokens"], batch["segments"], batch["follows"], texts):
        actual = row[segments.bool()].tolist()
        assert row[~segments.bool() & row.ne(PAD)].tolist() == [0, *first.tolist(), 2]
        if follows:
            assert actual == [2, *second.tolist(), 2]
        same += bool(not follows and actual[1] == first[0])
    # documents n and n + 16 share their only word: another document with the same word is one in sixteen
    negatives = len(examples) - int(batch["follows"].sum())
    assert 0.02 < same / negatives < 0.11


def test_a_negative_is_about_as_long_as_the_segment_that_it_replaces(build, spec, tmp_path):
    """Also in a text of 200 pairs. A single sentence fills the room."""
    rng, items = np.random.default_rng(4), []
    for number in range(200):
        items += [[4 + number % 16] * int(size) + [2] for size in rng.integers(1, 120, size=2)] + [[2]]
    few = NextSegments(write_items(tmp_path / "few", items), "en")
    objective = build("nsp", f"nsp.length=512 {NOTHING}")
    length = objective.input_length.text
    examples = few.sample(rng, 2000, length)[0]
    sizes = np.array([len(second) for _, second in few.texts(examples, length)])
    examples, sizes = (column[(sizes > 0) & (examples % 2 == 0)] for column in (examples, sizes))
    negatives = objective.collate(spec(examples), few)["segments"].sum(1).numpy() - 2  # without both </s>
    permuted = rng.permutation(sizes)
    assert (negatives <= sizes).all()
    assert np.abs(sizes - negatives).mean() < 0.25 * np.abs(sizes - permuted).mean()
    assert len(set(negatives.tolist())) > 50


def test_length_reveals_nothing_in_a_few_long_documents(build, spec, tmp_path):
    """The segments of other documents are as long as the true ones that they replace."""
    rng, items = np.random.default_rng(5), []
    for number in range(4):
        items += [[4 + number] * int(size) + [2] for size in rng.integers(5, 40, size=250)] + [[2]]
    long = NextSegments(write_items(tmp_path / "long", items), "en")
    objective = build("nsp", f"nsp.length=84 {NOTHING}")
    length = objective.input_length.text
    examples = long.sample(rng, 8000, length)[0]
    sizes = np.array([len(second) for _, second in long.texts(examples, length)])
    examples, sizes = (column[(sizes > 0) & (examples % 2 == 0)] for column in (examples, sizes))
    batch = objective.collate(spec(examples, rng.integers(2**64, size=len(examples), dtype=np.uint64)), long)
    negatives = batch["segments"].sum(1).numpy() - 2  # without both </s>
    shares = [np.bincount(lengths, minlength=84) / len(examples) for lengths in (sizes, negatives)]
    assert len(examples) > 3000 and np.abs(shares[0] - shares[1]).sum() / 2 < 0.05


def test_a_text_of_one_document_has_no_negative(build, tmp_path):
    """It is refused before training."""
    documents = NextSegments(write_items(tmp_path / "one", [[4, 2], [5, 2], [2]]), "en")
    with pytest.raises(UserError, match="negatives need a second document") as refused:
        build("nsp").check(documents)
    assert "\n" not in str(refused.value)


def test_few_second_segments_that_follow_are_named(build, many, caplog):
    """Sentences have 1 to 6 tokens, documents about 14."""
    build("nsp", "nsp.length=32").check(many)
    assert not caplog.messages
    build("nsp", "nsp.length=8").check(many)
    share = 100 * np.mean(many.windows(2)[:, 0] % 2)
    assert 0 < share < 20 and f"only {share:.0f} % of second segments follow" in caplog.text


def test_a_pair_has_room_for_both_segments(build):
    assert build("nsp", "nsp.length=8").input_length.text == 2
    with pytest.raises(UserError, match="length=7 should be 8 tokens or more"):
        build("nsp", "nsp.length=7")


def test_a_document_that_is_most_of_the_text(build, spec, tmp_path):
    items = [[4, 2], [5, 2]] * 500 + [[2], [6, 2], [7, 2]]
    documents = NextSegments(write_items(tmp_path / "most", items), "en")
    objective = build("nsp", f"nsp.length=8 {NOTHING}")
    examples = examples_of(documents, 2, 0, 400)
    rows = objective.collate(spec(examples), documents)["tokens"].tolist()
    first = [row for row in rows if row[1] < 6]
    assert len(first) > 390 and all(set(row[row.index(2) + 2 :]) <= {6, 7, 2, PAD} for row in first)


def four(documents):
    """Two examples whose second segment follows, and two of another document."""
    return [example for kind in (1, 0) for example in examples_of(documents, 10, kind, 2)]


def test_the_loss_written_out(build, spec, documents, model):
    objective = build("nsp", "nsp.length=24 nsp.mask_prob=0.5")
    batch = objective.collate(spec(four(documents)), documents)
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
    examples = four(documents)
    parts = [spec([example], [key]) for key, example in enumerate(examples)]
    check_sums(objective, documents, spec(examples, range(4)), parts)


def test_a_batch_of_several_languages(build, spec, documents, many):
    objective = build("nsp", f"nsp.length=24 {NOTHING}")
    mixed = MixedCorpus({"one": documents, "other": many}, 0.5)
    examples, sizes = mixed.sample(np.random.default_rng(1), 30, objective.input_length.text)
    found = objective.collate(spec(examples), mixed)["tokens"].ne(PAD).sum(1).numpy()
    assert (found <= objective.collated_lengths(examples, sizes, mixed) + objective.input_length.symbols).all()
