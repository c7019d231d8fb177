"""How terms are combined and what is logged, with numbers worked out by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.distributed import utils as distributed_utils

import fairseq_xl
from fairseq_xl.criterions.combined import XLPretrainingCriterion
from fairseq_xl.engine.metrics import EPOCH, INTERVAL, Metrics
from fairseq_xl.errors import UserError
from fairseq_xl.io.ranks import sum_over_ranks
from fairseq_xl.objectives import Objective, Term
from tests.waits import Waits, no_waits

fairseq_xl.register()

LN2 = math.log(2)
LOG_KEYS = [("mlm", "de"), ("mlm", "en"), ("tlm", "de-en"), ("bits", "de-en")]
WEIGHTS = {"mlm": 1.0, "tlm": 0.5, "broken": 1.0}


class Sums(torch.nn.Module):
    """A stand-in for a model: an objective's terms are multiples of its parameters, with their counts."""

    def __init__(self):
        super().__init__()
        parts = {name: torch.nn.Parameter(torch.ones(1)) for name in ("mlm", "tlm", "bits")}
        self.parts = torch.nn.ParameterDict(parts)

    def forward(self, compute, batch):
        return {
            name: Term(factor * self.parts[name].sum(), count, *weight)
            for name, (factor, count, *weight) in batch.items()
        }


@pytest.fixture
def model():
    return Sums()


class Stand(Objective):
    """An objective with some of these terms, which logs those of `LOG_KEYS`."""

    def __init__(self, name, weight, terms, modeling):
        self.name, self.weight_schedule, self.own_terms, self.modeling = name, [(0, weight)], terms, modeling

    terms = property(lambda self: self.own_terms)
    language_modeling = property(lambda self: self.modeling)

    def loss(self, model, batch):
        raise NotImplementedError

    def logged_keys(self, corpora):
        return [(term, corpus) for term, corpus in corpora if term in self.terms]


def build(dictionary, log_keys=LOG_KEYS, modeling=("mlm", "tlm", "bits")):
    """The criterion of MLM, and of TLM with a second term."""
    terms = {"mlm": ("mlm",), "tlm": ("tlm", "bits"), "broken": ()}
    objectives = {name: Stand(name, WEIGHTS[name], own, modeling) for name, own in terms.items()}
    criterion = XLPretrainingCriterion(SimpleNamespace(target_dictionary=dictionary))
    criterion.set_objectives(objectives, dict.fromkeys(objectives, log_keys))
    return criterion


@pytest.fixture
def criterion(dictionary):
    return build(dictionary)


def sample(objective, corpus, batch):
    return {"objective": objective, "corpus": corpus, "ntokens": 60, "nsentences": 4, "batch": batch}


class TestCombining:
    def test_a_terms_loss_is_its_mean_over_its_own_count(self, criterion, model):
        loss, sample_size, _ = criterion(model, sample("mlm", "de", {"mlm": (12.0, 4)}))
        assert (loss.item(), sample_size) == (3.0, 1)

    def test_terms_and_objectives_are_weighted(self, criterion, model):
        """0.5 · (12 / 4 + 2 · 10 / 5)"""
        loss, sample_size, _ = criterion(model, sample("tlm", "de-en", {"tlm": (12.0, 4), "bits": (10.0, 5, 2.0)}))
        assert (loss.item(), sample_size) == (3.5, 1)

    def test_nothing_predicted_is_no_loss(self, criterion, model):
        loss, _, log = criterion(model, sample("mlm", "de", {"mlm": (0.0, 0)}))
        loss.backward()
        assert (loss.item(), log["counts"].tolist()) == (0.0, [0, 0, 0, 0])

    def test_twice_the_tokens_of_one_leave_the_others_share_unchanged(self, criterion, model):
        def gradients(tokens):
            model.zero_grad()
            for name, batch in (("mlm", {"mlm": (3.0 * tokens, tokens)}), ("tlm", {"tlm": (8.0, 4)})):
                criterion(model, sample(name, "de" if name == "mlm" else "de-en", batch))[0].backward()
            return model.parts["mlm"].grad.item(), model.parts["tlm"].grad.item()

        assert gradients(10) == gradients(20) == (3.0, 1.0)

    def test_a_parameter_without_a_gradient_does_not_move(self, criterion, model):
        """Not even by the momentum of Adam."""
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        path = []
        for name, corpus in (("tlm", "de-en"), ("mlm", "de"), ("mlm", "en"), ("tlm", "de-en")):
            optimizer.zero_grad()
            criterion(model, sample(name, corpus, {name: (8.0, 4)}))[0].backward()
            optimizer.step()
            path.append(tuple(round(model.parts[part].item(), 3) for part in ("mlm", "tlm")))
        assert path == [(1.0, 0.9), (0.9, 0.9), (0.8, 0.9), (0.8, 0.8)]

    def test_a_term_that_would_vanish_from_the_log_is_an_error(self, criterion, model):
        with pytest.raises(UserError, match="the loss of mlm returned bits of de: expected one of its `terms` mlm"):
            criterion(model, sample("mlm", "de", {"mlm": (12.0, 4), "bits": (1.0, 1)}))


def reduced(*updates, modeling=("mlm", "tlm", "bits", "pairs")):
    """The log of updates, each a list of the logging outputs of micro-steps: {key: number}.

    "sum mlm de" and "count mlm de" of a logging output stand for the positions of that name in "sums" and "counts".
    """
    every = [log for update in updates for log in update]
    names = list(dict.fromkeys(key.split(" ", 1)[1] for log in every for key in log if " " in key))
    keys = [tuple(name.split(" ")) for name in names]

    def output(log):
        kinds = {kind: [float(log.get(f"{kind} {name}", 0)) for name in names] for kind in ("sum", "count")}
        tensors = {f"{kind}s": torch.tensor(values, dtype=torch.double) for kind, values in kinds.items()}
        return {"loss": torch.tensor(log["loss"]), "sample_size": 1} | tensors

    criterion = XLPretrainingCriterion(SimpleNamespace(target_dictionary=None))
    stand = Stand("any", 1.0, tuple(dict.fromkeys(term for term, _ in keys)), modeling)
    criterion.set_objectives({"any": stand}, {"any": keys})
    metrics = Metrics()
    for update in updates:
        criterion.log(metrics, [output(each) for each in update])
    return metrics.values()


class TestLogging:
    def test_every_key_in_every_step(self, criterion, model):
        one = criterion(model, sample("mlm", "de", {"mlm": (12.0, 4)}))[2]
        two = criterion(model, sample("tlm", "de-en", {"tlm": (12.0, 4), "bits": (6.0, 2)}))[2]
        assert list(one) == list(two)
        values = {key: value.tolist() if torch.is_tensor(value) else value for key, value in two.items()}
        assert values == {
            "loss": 3.0,
            "sample_size": 1,
            "ntokens": 60,
            "nsentences": 4,
            "sums": [0, 0, 12, 6],
            "counts": [0, 0, 4, 2],
        }
        assert two["sums"].dtype == two["counts"].dtype == torch.double
        assert not any(torch.is_tensor(value) and value.requires_grad for value in two.values())
        assert XLPretrainingCriterion.logging_outputs_can_be_summed() is True

    @pytest.fixture
    def smoothed(self):
        """The log of two batches of German, one of English and one of pairs.

        German 4 bits over 2 tokens and 4 over 2: 2 bits, perplexity 4. English 3 over 1: 8. Pairs: 1 bit, 2; and 0, 1.
        """
        parts = [
            {"loss": 2 * LN2, "sum mlm de": 4 * LN2, "count mlm de": 2},
            {"loss": 2 * LN2, "sum mlm de": 4 * LN2, "count mlm de": 2},
            {"loss": 3 * LN2, "sum mlm en": 3 * LN2, "count mlm en": 1},
            {"loss": 1 * LN2, "sum tlm de-en": 5 * LN2, "count tlm de-en": 5, "count bits de-en": 1},
        ]
        return reduced(parts)

    def test_bits_and_perplexities(self, smoothed):
        assert smoothed["loss"] == pytest.approx(2)  # (2 + 2 + 3 + 1) / 4
        assert (smoothed["mlm_de_loss"], smoothed["mlm_de_ppl"]) == (pytest.approx(2), pytest.approx(4))
        assert (smoothed["mlm_en_loss"], smoothed["mlm_en_ppl"]) == (pytest.approx(3), pytest.approx(8))
        assert (smoothed["tlm_de-en_loss"], smoothed["tlm_de-en_ppl"]) == (pytest.approx(1), pytest.approx(2))
        assert smoothed["mlm_loss"] == pytest.approx(11 / 5, abs=1e-3)  # over all tokens

    def test_ppl_is_the_mean_over_terms_of_the_mean_over_corpora(self, smoothed):
        """((4 + 8) / 2 + 2 + 1) / 3 (X8)"""
        assert smoothed["ppl"] == pytest.approx(3)

    def test_ppl_leaves_out_terms_that_predict_no_words(self, dictionary, model):
        """MLM at 8 bits: 256. The binary term at 1 bit has a perplexity of 2, is logged, and does not count."""
        criterion = build(dictionary, modeling=("mlm", "tlm"))
        log = criterion(model, sample("tlm", "de-en", {"tlm": (8 * 4 * LN2, 4), "bits": (3 * LN2, 3)}))[2]
        metrics = Metrics()
        criterion.log(metrics, [log])
        values = metrics.values()
        assert (values["ppl"], values["tlm_ppl"]) == (pytest.approx(256), pytest.approx(256))
        assert (values["bits_ppl"], values["bits_de-en_ppl"]) == (pytest.approx(2), pytest.approx(2))

    def test_ppl_without_terms_that_predict_words_is_the_mean_over_all(self):
        """(4 + 2) / 2"""
        bits = {"sum pairs de-en": 2 * LN2, "count pairs de-en": 1}
        bits |= {"sum follows de": LN2, "count follows de": 1}
        assert reduced([{"loss": 3 * LN2} | bits], modeling=())["ppl"] == pytest.approx(3)

    def test_nothing_predicted_has_no_value(self):
        nothing = {"loss": 0.0, "sum mlm de": 0.0, "count mlm de": 0}
        assert reduced([nothing], [nothing]) == {"loss": None, "ppl": None}
        something = {"loss": 2 * LN2, "sum mlm de": 2 * LN2, "count mlm de": 1}
        values = reduced([nothing], [something])
        assert (values["loss"], values["ppl"]) == (pytest.approx(2), pytest.approx(4))

    def test_what_was_not_drawn_is_not_logged(self):
        keys = {"sum mlm de": 2 * LN2, "count mlm de": 1, "sum mlm en": 0.0, "count mlm en": 0}
        values = reduced([{"loss": 2 * LN2} | keys])
        assert not any("en" in key for key in values)
        assert values["ppl"] == pytest.approx(4)

    def test_steps_are_averaged_by_their_counts(self):
        """1 bit over 3 tokens, then 5 over 1: 2 bits, a perplexity of 4, not the mean of 2 and 32."""
        steps = [
            {"loss": bits * LN2, "sum mlm de": bits * count * LN2, "count mlm de": count}
            for bits, count in ((1, 3), (5, 1))
        ]
        assert reduced(*([step] for step in steps))["ppl"] == pytest.approx(4)

    def test_a_run_that_diverges_has_an_infinite_perplexity(self):
        values = reduced([{"loss": 2000 * LN2, "sum mlm de": 2000 * LN2, "count mlm de": 1}])
        assert values["ppl"] == values["mlm_de_ppl"] == math.inf


def test_the_weight_is_that_of_the_batch_or_else_the_largest(criterion, model):
    losses = [
        criterion(model, sample("tlm", "de-en", {"tlm": (12.0, 4)}) | weight)[0].item()
        for weight in ({"weight": 0.5}, {"weight": 0.125}, {})
    ]
    assert losses == [1.5, 0.375, 1.5]


def test_an_objective_that_is_not_trained_does_not_count(criterion, model):
    criterion.objectives["tlm"].weight_schedule = [(0, 0.0)]
    loss, size, log = criterion(model.eval(), sample("tlm", "de-en", {"tlm": (12.0, 4)}))
    assert (loss.item(), size, log["sample_size"], log["sums"].tolist()) == (0, 0, 0, [0, 0, 12, 0])


def update(metrics, criterion, model, objective, corpus, batch):
    """What an update does with the log: the criterion in two micro-steps, the sum over ranks, the statistics."""
    outputs = [criterion(model, sample(objective, corpus, batch))[2] for _ in range(2)]
    summed = {key: sum(log[key] for log in outputs) for key in outputs[0]}
    reduced = sum_over_ranks(summed, torch.device("cpu"))
    criterion.log(metrics, [reduced])


@pytest.fixture
def logged(dictionary, model, monkeypatch):
    """A function: keys of the log -> statistics, operators and all-reduced sizes of two updates, without syncs."""
    monkeypatch.setattr(distributed_utils, "all_reduce", lambda tensor, group: sizes.append(tensor.numel()))
    monkeypatch.setattr(distributed_utils, "get_data_parallel_group", lambda: None)
    sizes = []

    def run(log_keys):
        metrics = Metrics(INTERVAL, EPOCH)
        criterion = build(dictionary, log_keys)
        batch = {"tlm": (12.0, 4), "bits": (6.0, 2, 1.0)}
        for _ in range(2):
            sizes.clear()
            with no_waits() as waits:
                update(metrics, criterion, model, "tlm", "de-en", batch)
        return metrics, waits.operators, list(sizes)

    return run


def test_no_sync_between_log_intervals(logged):
    metrics, operators, _ = logged(LOG_KEYS)
    assert len(operators) > 20
    for period in (INTERVAL, EPOCH):
        with Waits() as read:
            values = metrics.values(period)
        assert values["tlm_de-en_ppl"] == pytest.approx(math.exp(3), abs=1e-3)
        assert values["bits_loss"] == pytest.approx(3 / LN2, abs=1e-3)
        assert len(read.operators) <= 2  # one copy to the host: the values of all names are read together
    metrics.reset(INTERVAL)
    assert metrics.values(INTERVAL)["tlm_de-en_ppl"] is None
    assert metrics.values(EPOCH)["tlm_de-en_ppl"] is not None


def test_syncs_and_operators_of_an_update_do_not_depend_on_the_number_of_languages(logged):
    """One all-reduce has all numbers: three of fairseq's, which are on the host, and those on the device."""
    few = [("tlm", "de-en"), ("bits", "de-en")]
    many = [*few, *((term, f"x{number}-en") for term in ("mlm", "tlm", "bits") for number in range(900))]
    _, operators, sizes = logged(few)
    assert sizes == [3 + 1 + 2 * len(few)]
    assert logged(many)[1:] == (operators, [3 + 1 + 2 * len(many)])
