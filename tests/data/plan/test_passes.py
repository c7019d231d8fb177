"""One pass over the data: each example once, in chunks, for any number of ranks; several objectives; repeats."""

from collections import Counter

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.plan import passes
from fairseq_xl.data.plan.epoch_plan import Lengths, ObjectiveSampler
from fairseq_xl.data.plan.passes import ObjectivePass, PassPlan
from fairseq_xl.engine.epochs import Epochs
from fairseq_xl.errors import UserError

LONGEST = 8


@pytest.fixture
def pairs(tmp_path):
    """Bitext of 700 lines, with sides of 1 (empty) to 9 tokens."""
    rng = np.random.default_rng(0)
    for code in ("en", "de"):
        write_items(tmp_path / f"train.en-de.{code}", [[5] * size + [2] for size in rng.integers(0, 9, 700)])
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


@pytest.fixture(params=[passes.CHUNK, 100])
def chunk(request, monkeypatch):
    monkeypatch.setattr(passes, "CHUNK", request.param)


def sampler(corpus, name="translation", tokens=60, **more):
    return ObjectiveSampler(name, {"all": corpus}, InputLength(LONGEST, 2, LONGEST + 1), tokens, None, 1, **more)


def one_pass(corpus, epoch=1, per_update=1, repeats=None, **more):
    return ObjectivePass(sampler(corpus, **more), 3, epoch, per_update, repeats)


def examples(specs):
    return [number for spec in specs if spec is not None for number in spec.examples.tolist()]


def test_every_pair_once_in_batches_of_similar_length(pairs, chunk):
    first, again, second = (one_pass(pairs, epoch) for epoch in (1, 1, 2))
    lines, sizes = pairs.all_examples(LONGEST)
    assert sorted(examples(first)) == sorted(examples(second)) == lines.tolist()
    assert examples(first) == examples(again) != examples(second)
    assert [spec.keys.tolist() for spec in first] == [spec.keys.tolist() for spec in again]
    assert len(np.unique(np.concatenate([spec.keys for spec in first]))) == len(lines)
    assert sum(spec.tokens for spec in first) == (sizes + 2).sum()
    assert all(len(spec.examples) * (pairs.sides_of(spec.examples).sum(1) + 2).max() <= 60 for spec in first)
    assert sum(spec.tokens for spec in first) > (0.95 if passes.CHUNK > 700 else 0.8) * sum(
        spec.padded_tokens for spec in first
    )
    assert first[-1] is first[len(first) - 1] and len(first[1:3]) == 2
    with pytest.raises(IndexError):
        first[len(first)]


def test_sides_are_padded_by_themselves(pairs):
    """Batches are sorted by target, then by source; a batch's tokens are those of its longer side."""

    def lengths(lines, sizes, corpus):
        return Lengths(corpus.sides_of(lines))

    for spec in one_pass(pairs, lengths=lengths):
        sides = pairs.sides_of(spec.examples)
        assert len(sides) * sides.max() <= 60 and np.all(np.diff(sides[:, 1]) >= 0)
        assert spec.tokens == sides.sum() and spec.padded_tokens == len(sides) * sides.max(axis=0).sum()


def test_parts_and_several_passes_of_a_corpus(pairs, monkeypatch):
    """A line occurs 2 or 3 times at 2.4 passes, at most once at 0.3; every line equally often over many epochs."""
    monkeypatch.setattr(passes, "CHUNK", 100)
    lines = pairs.all_examples(LONGEST)[0]
    mixed, count, whole = MixedCorpus({"a": pairs, "b": pairs}, 1), len(lines), Counter()
    for epoch in range(1, 16):
        drawn = Counter(examples(one_pass(mixed, epoch, repeats={"a": 2.4, "b": 0.3})))
        first = {line: times for line, times in drawn.items() if line < pairs.lines}
        assert sum(first.values()) == round(2.4 * count) and set(first.values()) == {2, 3}
        others = {line: times for line, times in drawn.items() if line >= pairs.lines}
        assert len(others) == round(0.3 * count) and set(others.values()) == {1}
        whole.update(others)
    times = np.array([whole[MixedCorpus.numbered(1, line)] for line in lines.tolist()])
    assert times.mean() == 15 * round(0.3 * count) / count
    assert abs(times - 4.5).max() < 5 * (15 * 0.3 * 0.7) ** 0.5  # binomial, or less


def test_a_corpus_that_almost_vanishes_keeps_an_example(pairs):
    mixed = MixedCorpus({"a": pairs, "b": pairs}, 1)
    assert sum(line >= pairs.lines for line in examples(one_pass(mixed, repeats={"b": 1e-9}))) == 1


def test_a_pass_names_the_texts_that_it_leaves_out(pairs, caplog):
    filled = [sizes for sizes in pairs.sizes if sizes.min() > 1]
    one_pass(pairs)
    too_long = sum(sizes.max() > LONGEST for sizes in filled)
    assert f"{too_long} of {len(filled)} pairs have a side of more than {LONGEST} tokens" in caplog.text and too_long


def test_texts_that_are_all_too_long(pairs):
    short = ObjectiveSampler("translation", {"all": pairs}, InputLength(1, 2, 3), 60, None, 1)
    with pytest.raises(UserError, match=r"train\.en-de: every pair has a side of more than 1 tokens"):
        ObjectivePass(short, 3, 1, 1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 50])
def test_ranks_share_a_pass_of_several_objectives(pairs, ranks):
    """The batches of an update are of one objective; every example of each is read once."""
    every = [one_pass(pairs, name=name, tokens=tokens) for name, tokens in (("one", 60), ("other", 90))]
    plan = PassPlan(every, 3, 1, ranks)
    dealt = [list(Epochs(Numbered(), lambda *_: plan, ranks, rank).next_epoch_itr()) for rank in range(ranks)]
    for step in zip(*dealt, strict=True):
        assert len({spec.objective for spec in step if spec}) == 1
    specs = [spec for of_rank in dealt for spec in of_rank if spec]
    for each in every:
        own = [spec for spec in specs if spec.objective == each.sampler.objective]
        assert sorted(examples(own)) == pairs.all_examples(LONGEST)[0].tolist()
    kinds = [spec.objective for spec in dealt[0] if spec]
    assert kinds != sorted(kinds) or ranks == 50


def test_an_epoch_of_several_objectives_keeps_the_batches_of_an_update(pairs):
    """On 2 ranks, on 1 with 2 micro-steps: the same order. With 3 batches in an update it would be another one."""

    def plan(epoch, ranks, micro_steps):
        each = [one_pass(pairs, name=name) for name in ("one", "other")]
        return PassPlan(each, 3, epoch, ranks * micro_steps)

    def make(ranks, rank, micro_steps):
        return Epochs(Numbered(), plan, ranks, rank, [micro_steps], keeps_layout=True, keeps_updates=True, pads=True)

    begun = [make(2, rank, 1) for rank in (0, 1)]
    batches = [part.next_epoch_itr() for part in begun]
    read = [next(part) for _ in range(4) for part in batches]
    state = begun[0].state_dict()
    single = make(1, 0, 2)
    single.load_state_dict(state | {"iterations_in_epoch": 8})
    read += single.next_epoch_itr()
    for number in range(0, len(read), 2):
        assert len({spec.objective for spec in read[number : number + 2]}) == 1
    own = [spec for spec in read if not spec.is_dummy]
    for name in ("one", "other"):
        lines = examples([spec for spec in own if spec.objective == name])
        assert sorted(lines) == pairs.all_examples(LONGEST)[0].tolist()
    message = "begun with 2 batches in an update, this run has 3: set --update-freq for as many"
    with pytest.raises(UserError, match=message):
        make(3, 0, 1).load_state_dict(state)


def test_updates_are_the_same_on_any_number_of_ranks(pairs, chunk):
    """Their batches have similar sizes; the batches after the last full update of a chunk stay as drawn."""
    whole = one_pass(pairs, per_update=6)

    def plan(epoch, ranks, micro_steps):
        return one_pass(pairs, epoch, ranks * micro_steps)

    for ranks in (1, 2, 3, 6):
        dealt = [Epochs(Numbered(), plan, ranks, rank, [6 // ranks]).next_epoch_itr() for rank in range(ranks)]
        specs = [spec for step in zip(*dealt, strict=True) for spec in step]
        assert examples(specs) == examples(whole)
    if pairs.lines < passes.CHUNK:
        spread, before = (
            np.ptp(np.array([spec.tokens for spec in specs])[: len(specs) // 6 * 6].reshape(-1, 6), axis=1).mean()
            for specs in (whole, one_pass(pairs))
        )
        assert spread < before / 2


class Numbered:
    """A dataset whose batches are the specifications."""

    def __getitem__(self, spec):
        return spec


@pytest.mark.parametrize("before, after", [((2, 1), (1, 1)), ((1, 1), (2, 2)), ((1, 4), (2, 1)), ((3, 2), (5, 1))])
def test_an_epoch_goes_on_in_the_order_in_which_it_was_begun(pairs, before, after):
    """Ranks and micro-steps before and after: no batch is read twice, and fewer than ranks are skipped by rounding."""

    def plan(epoch, ranks, micro_steps):
        return one_pass(pairs, epoch, ranks * micro_steps)

    def make(ranks, micro_steps):
        return [Epochs(Numbered(), plan, ranks, rank, [micro_steps], keeps_layout=True) for rank in range(ranks)]

    parts, order = make(*before), examples(plan(1, *before))
    read, steps = [], -(-8 // before[0])
    for part in parts:
        batches = part.next_epoch_itr()
        read += [next(batches) for _ in range(steps)]
    state, skipped = parts[0].state_dict(), -(-steps * before[0] // after[0])
    later = make(*after)
    for part in later:
        part.load_state_dict(state | {"iterations_in_epoch": skipped})
    rest = [part.next_epoch_itr() for part in later]
    read += [spec for step in zip(*rest, strict=True) for spec in step if spec is not None]
    assert set(examples(read)) <= set(order) and len(set(examples(read))) == len(examples(read))
    batches = len(plan(1, *before))
    assert batches - after[0] < len(read) <= batches
    assert later[0].next_epoch_idx == 2 and later[0].state_dict() == {"epoch": 2, "iterations_in_epoch": 0}
    with pytest.raises(UserError, match="epoch 1 was no pass over the data: .* --reset-dataloader"):
        later[0].load_state_dict({"epoch": 1, "iterations_in_epoch": 3})
    with pytest.raises(LookupError, match="epoch 1 has"):
        later[0].load_state_dict(state | {"iterations_in_epoch": 1000})
