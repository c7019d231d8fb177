"""Batch specifications: limits, schedules, shares of languages, ranks, epochs, validation."""

from collections import Counter

import numpy as np
import pytest
from fairseq.data import iterators
from tiny_data import write_items

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.plan.epoch_plan import (
    BatchSpec,
    ObjectiveSampler,
    balance_ranks,
    number_of_examples,
    training_plan,
    validation_plan,
)
from fairseq_xl.engine import waiting
from fairseq_xl.errors import UserError


def lengths(seed, count, longest):
    return np.random.default_rng(seed).integers(1, longest, size=count)


def sentences(piece, lengths):
    return [[piece] * length + [2] for length in lengths]


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """900 English and 100 German sentences: with α = 0.5, shares of 0.75 and 0.25."""
    root = tmp_path_factory.mktemp("streams")
    return {
        language: TokenStream(write_items(root / language, sentences(4, lengths(1, count, 9))), language)
        for language, count in (("en", 900), ("de", 100))
    }


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    write_items(root / "train.en-de.en", sentences(4, lengths(2, 500, 30)))
    write_items(root / "train.en-de.de", sentences(5, lengths(3, 500, 30)))
    return {"en-de": SentencePairs(root / "train.en-de", "en", "de")}


@pytest.fixture(scope="module")
def mlm(streams):
    return ObjectiveSampler("mlm", streams, InputLength(15, 1, 16), 64, None, 0.5)


@pytest.fixture(scope="module")
def tlm(pairs):
    return ObjectiveSampler("tlm", pairs, InputLength(40, 2, 41), 200, None, 0.7)


def plan_of(samplers, schedule="alternate", seed=1, epoch=1, updates=6, micro_steps=1, world_size=1):
    return training_plan(samplers, schedule, seed, epoch, updates, micro_steps, world_size)


def as_tuples(plan):
    return [(spec.objective, spec.corpus_name, spec.examples.tolist(), spec.keys.tolist()) for spec in plan]


def objectives(plan):
    return [spec.objective for spec in plan]


class TestPurity:
    def test_a_plan_is_a_function_of_seed_and_epoch(self, mlm, tlm):
        once = as_tuples(plan_of([mlm, tlm]))
        assert once == as_tuples(plan_of([mlm, tlm]))
        np.random.seed(5)
        np.random.random(7)
        assert once == as_tuples(plan_of([mlm, tlm]))  # and of nothing else
        others = as_tuples(plan_of([mlm, tlm], epoch=2)), as_tuples(plan_of([mlm, tlm], seed=2))
        for other in others:
            assert not any(one == two for one, two in zip(once, other))
        assert others[0] != others[1]

    def test_keys_are_never_the_same(self, mlm, tlm):
        plans = [spec for epoch in (1, 2) for spec in plan_of([mlm, tlm], epoch=epoch, updates=100)]
        keys = [key for spec in plans for key in spec.keys]
        assert len(set(keys)) == len(keys) > 500

    def test_two_ranks_draw_what_one_draws_in_two_micro_steps(self, mlm, tlm):
        for schedule in ("alternate", "random"):
            two_ranks = plan_of([mlm, tlm], schedule, micro_steps=1, world_size=2)
            two_steps = plan_of([mlm, tlm], schedule, micro_steps=2, world_size=1)
            assert as_tuples(two_ranks) == as_tuples(two_steps)


class TestSchedules:
    @pytest.mark.parametrize(
        "schedule, layout, expected",  # layout: updates, micro-steps, ranks
        [
            ("alternate", (6, 1, 1), "mlm tlm mlm tlm mlm tlm"),
            ("alternate", (3, 2, 2), "mlm mlm mlm mlm tlm tlm tlm tlm mlm mlm mlm mlm"),
            ("cycle", (2, 2, 2), "mlm mlm tlm tlm mlm mlm tlm tlm"),
            ("cycle", (1, 4, 1), "mlm tlm mlm tlm"),
        ],
    )
    def test_turns(self, mlm, tlm, schedule, layout, expected):
        assert objectives(plan_of([mlm, tlm], schedule, 1, 1, *layout)) == expected.split()

    def test_alternate_continues_from_epoch_to_epoch(self, mlm, tlm):
        plans = [objectives(plan_of([mlm, tlm], epoch=epoch, updates=3)) for epoch in (1, 2, 3)]
        assert plans == [["mlm", "tlm", "mlm"], ["tlm", "mlm", "tlm"], ["mlm", "tlm", "mlm"]]

    def test_cycle_is_refused_where_the_objectives_do_not_fit(self, mlm, tlm):
        with pytest.raises(UserError, match="--schedule cycle needs .* a multiple of the 2 objectives, not 3"):
            plan_of([mlm, tlm], "cycle", micro_steps=3)

    def test_random(self, mlm, tlm):
        """One objective an update, on all ranks; each in half of the updates (400: deviation 10)."""
        plan = objectives(plan_of([mlm, tlm], "random", updates=400, micro_steps=2, world_size=2))
        updates = [plan[start : start + 4] for start in range(0, len(plan), 4)]
        assert len(updates) == 400
        assert all(len(set(update)) == 1 for update in updates)
        assert Counter(update[0] for update in updates)["mlm"] == pytest.approx(200, abs=40)
        assert updates != updates[::2] * 2  # no fixed turn

    @pytest.mark.parametrize("schedule", ["alternate", "cycle", "random"])
    def test_fairseq_gives_all_ranks_the_same_objective(self, mlm, tlm, schedule):
        plan = objectives(plan_of([mlm, tlm], schedule, updates=5, micro_steps=2, world_size=2))
        shards = [iterators.ShardedIterator(plan, 2, rank) for rank in (0, 1)]
        one, other = (list(iterators.GroupedIterator(shard, 2)) for shard in shards)
        assert one == other and len(one) == 5  # updates


class TestBatches:
    def test_tokens_of_a_batch_with_padding_and_framing(self, mlm, tlm, streams, pairs):
        plan = plan_of([mlm, tlm], updates=200)
        for spec in plan:
            if spec.objective == "mlm":
                longest = max(len(block) for (block,) in streams[spec.corpus_name].texts(spec.examples, 15)) + 1
                assert longest * len(spec.examples) <= 64
            else:
                longest = pairs["en-de"].sizes[spec.examples].sum(1).max() + 2
                assert longest * len(spec.examples) <= 200
            assert len(spec.keys) == len(spec.examples)
        # streams of 16 tokens: four fit, unless the limit forgets framing or counts it twice
        assert Counter(len(spec.examples) for spec in plan[::2]).most_common(1)[0][0] == 4

    def test_sentences_of_a_batch(self, streams, pairs):
        by_sentences = ObjectiveSampler("mlm", streams, InputLength(15, 1, 16), None, 3, 0.5)
        counts = Counter(len(spec.examples) for spec in plan_of([by_sentences], updates=50))
        assert max(counts) == counts.most_common(1)[0][0] == 3
        both = ObjectiveSampler("tlm", pairs, InputLength(40, 2, 41), 200, 2, 0.7)
        for spec in plan_of([both], updates=50):
            assert len(spec.examples) <= 2
            assert (pairs["en-de"].sizes[spec.examples].sum(1).max() + 2) * len(spec.examples) <= 200

    def test_languages_are_drawn_with_their_shares(self, mlm):
        """α = 0.5 makes 0.75 and 0.25 of 0.9 and 0.1; 4000 batches: deviation 0.0068."""
        assert mlm.shares == pytest.approx([0.75, 0.25])
        found = Counter(spec.corpus_name for spec in plan_of([mlm], updates=4000))
        assert found["en"] / 4000 == pytest.approx(0.75, abs=0.028)

    def test_similar_lengths_stand_together(self, tlm, pairs):
        """Batches of 4000 tokens have hardly any padding (X7); pairs in the order drawn would have a quarter.

        They are not in the order of lengths.
        """
        sizes = pairs["en-de"].sizes.sum(1)
        plan = plan_of([tlm], updates=300)
        longest = sum(sizes[spec.examples].max() * len(spec.examples) for spec in plan)
        assert sum(sizes[spec.examples].sum() for spec in plan) / longest > 0.95
        means = [sizes[spec.examples].mean() for spec in plan]
        assert abs(np.corrcoef(means, np.arange(300))[0, 1]) < 0.25  # deviation 0.058

    def test_every_pair_is_drawn_as_often_as_any_other(self, tlm, pairs):
        """Sorting by length and using only some of the batches favors no length."""
        plan = [spec for epoch in range(1, 21) for spec in plan_of([tlm], epoch=epoch, updates=60)]
        drawn = np.concatenate([spec.examples for spec in plan])
        long = pairs["en-de"].sizes.sum(1) > np.median(pairs["en-de"].sizes.sum(1))
        times = np.bincount(drawn, minlength=500)
        assert times.min() > 0
        assert times[long].mean() == pytest.approx(times[~long].mean(), rel=0.1)

    def test_an_example_too_long_for_a_batch_is_refused(self, streams, pairs):
        with pytest.raises(UserError) as refused:
            plan_of([ObjectiveSampler("mlm", streams, InputLength(15, 1, 16), 15, None, 0.5)])
        assert str(refused.value) == (
            "a batch of mlm holds 15 tokens but an example has 16: "
            "raise --max-tokens or mlm.batch_tokens, or lower mlm.length"
        )
        with pytest.raises(UserError, match="a batch of tlm holds 20 tokens but an example has"):
            validation_plan([ObjectiveSampler("tlm", pairs, InputLength(40, 2, 41), 20, None, 0.7)])


class TestValidation:
    def test_every_example_once(self, mlm, tlm, streams, pairs):
        plan = validation_plan([mlm, tlm])
        for name, stream in streams.items():
            starts = np.concatenate([spec.examples for spec in plan if spec.corpus_name == name])
            assert sorted(starts.tolist()) == list(range(0, stream.size, 15))
        lines = np.concatenate([spec.examples for spec in plan if spec.corpus_name == "en-de"])
        assert sorted(lines.tolist()) == list(range(500))

    def test_noise_is_the_same_whatever_the_batches_and_the_other_objectives(self, mlm, tlm, streams):
        def noise(plan):
            return {
                (spec.corpus_name, example): key
                for spec in plan
                if spec.objective == "mlm"
                for example, key in zip(spec.examples, spec.keys)
            }

        one_by_one = validation_plan([ObjectiveSampler("mlm", streams, InputLength(15, 1, 16), None, 1, 1.0)])
        assert {len(spec.examples) for spec in one_by_one} == {1}
        assert noise(one_by_one) == noise(validation_plan([tlm, mlm]))

    def test_noise_differs_between_corpora_and_objectives(self, streams, mlm):
        other = ObjectiveSampler("clm", streams, InputLength(15, 1, 16), 64, None, 0.5)
        keys = [key for spec in validation_plan([mlm, other]) for key in spec.keys]
        assert len(set(keys)) == len(keys)

    def test_a_fixed_sample_of_large_corpora_with_the_noise_of_the_whole(self, mlm, tlm, streams):
        def examples(plan):
            found = {}
            for spec in plan:
                of_corpus = found.setdefault((spec.objective, spec.corpus_name), {})
                of_corpus |= dict(zip(spec.examples.tolist(), spec.keys.tolist(), strict=True))
            return found

        whole, sample = examples(validation_plan([mlm, tlm])), examples(validation_plan([mlm, tlm], 60))
        assert {key: len(each) for key, each in whole.items()} == {
            ("mlm", "en"): -(-streams["en"].size // 15),
            ("mlm", "de"): -(-streams["de"].size // 15),
            ("tlm", "en-de"): 500,
        }
        assert {key: len(each) for key, each in sample.items()} == {
            ("mlm", "en"): 60,
            ("mlm", "de"): len(whole["mlm", "de"]),
            ("tlm", "en-de"): 60,
        }
        assert all(each.items() <= whole[key].items() for key, each in sample.items())
        assert max(sample["tlm", "en-de"]) > 250 > min(sample["tlm", "en-de"])  # of all the text, not of its beginning
        for plan, limit in ((whole, 0), (sample, 60)):
            assert number_of_examples([mlm, tlm], limit) == sum(map(len, plan.values()))

    def test_a_sample_needs_no_arrays_of_all_examples(self, mlm, tlm, monkeypatch):
        for corpus in (TokenStream, SentencePairs):
            monkeypatch.setattr(corpus, "all_examples", None)
        assert sum(len(spec.examples) for spec in validation_plan([mlm, tlm], 20)) == 60

    def test_the_sample_is_the_same_whatever_the_batches_and_the_other_objectives(self, mlm, tlm, pairs):
        small_batches = ObjectiveSampler("tlm", pairs, InputLength(40, 2, 41), None, 1, 1.0)
        samples = [validation_plan([small_batches], 7), validation_plan([mlm, tlm], 7)]
        of_tlm = [[spec for spec in plan if spec.objective == "tlm"] for plan in samples]
        drawn = [sorted(number for spec in plan for number in spec.examples.tolist()) for plan in of_tlm]
        assert drawn[0] == drawn[1] and len(set(drawn[0])) == 7


def sized(*sizes, objective="mlm"):
    """Batches of these numbers of tokens, half of which are padding."""
    nothing = np.zeros(0, dtype=np.int64)
    return [BatchSpec(objective, "en", nothing, nothing, None, size // 2, size) for size in sizes]


def padding_share(plan):
    tokens, padded = (np.array([getattr(spec, name) for spec in plan]) for name in ("tokens", "padded_tokens"))
    return waiting.padding_share(tokens, padded)


def waiting_share(plan, ranks):
    return waiting.waiting_share(np.array([spec.tokens for spec in plan]), ranks)


class TestRanks:
    def test_ranks_of_a_micro_step_get_batches_of_similar_size(self):
        """A class of sizes is 2 tokens wide, a 32nd of 64: all batches are in classes of their own."""
        plan = sized(64, 8, 30, 60, 10, 32)
        balanced = balance_ranks(plan, 2, 1, 1)
        steps = {(balanced[first].padded_tokens, balanced[first + 1].padded_tokens) for first in (0, 2, 4)}
        assert steps == {(8, 10), (30, 32), (60, 64)}
        assert waiting_share(plan, 2) == pytest.approx(1 - 204 / (2 * (64 + 60 + 32)))
        assert waiting_share(balanced, 2) == pytest.approx(1 - 204 / (2 * (10 + 32 + 64)))
        assert padding_share(balanced) == 0.5

    def test_padding_does_not_count(self):
        """Packed layers compute nothing for it: batches that are equal with padding are reordered by their tokens."""
        nothing = np.zeros(0, dtype=np.int64)
        plan = [BatchSpec("mlm", "en", nothing, nothing, None, tokens, 100) for tokens in (90, 40, 88, 42)]
        balanced = balance_ranks(plan, 2, 1, 1)
        steps = [{spec.tokens for spec in balanced[first : first + 2]} for first in (0, 2)]
        assert sorted(steps, key=min) == [{40, 42}, {88, 90}]
        assert waiting_share(plan, 2) == pytest.approx(1 - 260 / (2 * (90 + 88)))
        assert waiting_share(balanced, 2) == pytest.approx(1 - 260 / (2 * (42 + 90)))

    def test_objectives_keep_their_places(self):
        one, two = sized(9, 1, 8, 2), sized(5, 50, 6, 60, objective="tlm")
        balanced = balance_ranks([*one[:2], *two[:2], *one[2:], *two[2:]], 2, 1, 1)
        assert objectives(balanced) == ["mlm", "mlm", "tlm", "tlm"] * 2
        steps = [{spec.padded_tokens for spec in balanced[first : first + 2]} for first in range(0, 8, 2)]
        assert sorted(steps[::2], key=min) == [{1, 2}, {8, 9}] and sorted(steps[1::2], key=min) == [{5, 6}, {50, 60}]

    def test_batches_of_similar_size_stay_in_the_order_drawn(self):
        """All are in the class of the largest: only whole steps change places."""
        plan = sized(*[100, 99, 98] * 40)
        places = {id(spec): place for place, spec in enumerate(plan)}
        steps = [[places[id(spec)] for spec in step] for step in zip(*[iter(balance_ranks(plan, 3, 1, 1))] * 3)]
        assert sorted(steps) == [[first, first + 1, first + 2] for first in range(0, 120, 3)] != steps

    @pytest.mark.parametrize("schedule, micro_steps", [("alternate", 2), ("cycle", 4), ("random", 1)])
    def test_no_batch_is_lost_and_less_time_is(self, mlm, pairs, schedule, micro_steps):
        """Four pairs of 2 to 60 tokens a batch; 300 micro-steps, more than are reordered at once."""
        skewed = ObjectiveSampler("tlm", pairs, InputLength(40, 2, 41), None, 4, 0.7)
        samplers = [mlm, skewed]
        drawn = plan_of(samplers, schedule, updates=300 // micro_steps, micro_steps=micro_steps, world_size=4)
        balanced = balance_ranks(drawn, 4 * micro_steps, 1, 1)
        assert sorted(as_tuples(balanced)) == sorted(as_tuples(drawn)) and objectives(balanced) == objectives(drawn)
        of_tlm = [[spec for spec in plan if spec.objective == "tlm"] for plan in (drawn, balanced)]
        lost = [waiting_share(plan, 4) for plan in of_tlm]
        assert lost[0] > 0.2 and lost[1] < 0.05
        means = [np.mean([spec.padded_tokens for spec in of_tlm[1][first : first + 4]]) for first in range(0, 400, 4)]
        assert abs(np.corrcoef(means, np.arange(100))[0, 1]) < 0.4  # not in the order of sizes; deviation 0.1

    def test_the_order_is_a_function_of_seed_and_epoch_and_one_batch_an_update_stays_as_drawn(self, mlm, tlm):
        plan = plan_of([mlm, tlm], updates=40, world_size=2)
        once = as_tuples(balance_ranks(plan, 2, 1, 1))
        assert once == as_tuples(balance_ranks(plan, 2, 1, 1)) != as_tuples(balance_ranks(plan, 2, 1, 2))
        assert balance_ranks(plan, 1, 1, 1) == plan

    @pytest.mark.parametrize("schedule", ["alternate", "cycle", "random"])
    def test_updates_have_the_same_batches_on_any_number_of_ranks(self, mlm, tlm, schedule):
        found = []
        for ranks in (1, 2, 4):
            settings = dict(updates=70, micro_steps=8 // ranks, world_size=ranks)
            balanced = as_tuples(balance_ranks(plan_of([mlm, tlm], schedule, **settings), 8, 1, 1))
            found.append([sorted(balanced[first : first + 8]) for first in range(0, len(balanced), 8)])
        assert found[0] == found[1] == found[2]

    def test_tokens_of_planned_batches(self, tlm, pairs):
        sizes = pairs["en-de"].sizes.sum(1) + 2
        plans = plan_of([tlm], updates=20), validation_plan([tlm])
        for spec in [*plans[0], *plans[1]]:
            assert spec.tokens == sizes[spec.examples].sum()
            assert spec.padded_tokens == sizes[spec.examples].max() * len(spec.examples)
