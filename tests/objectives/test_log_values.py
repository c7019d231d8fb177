"""The values in the log of all objectives together, by hand."""

import math
from types import SimpleNamespace

import pytest

from fairseq_xl.objectives.log_values import log_values, ppl_terms

BIT = math.log(2)


def test_perplexities_are_averaged_by_corpus_and_then_by_term(build):
    """English 4, German 8: MLM has 6; TLM has 2: the mean is 4. The loss is that of all predictions."""
    objectives = {name: build(name) for name in ("mlm", "tlm", "paraphrase")}
    logged = {(name, name) for name in objectives}
    selecting = ppl_terms(objectives, logged)
    assert selecting == {"mlm": ["mlm"], "tlm": ["tlm"], "paraphrase": []}
    assert ppl_terms({"paraphrase": build("paraphrase")}, logged) == {"paraphrase": ["paraphrase"]}
    sums = {"mlm\tmlm\ten": (2 * BIT, 1), "mlm\tmlm\tde": (3 * BIT, 1), "tlm\ttlm\tde-en": (BIT, 1)}
    found = log_values(objectives, selecting, sums | {"loss": (5 * BIT, 2)})
    assert found["loss"] == 2.5 and found["ppl"] == pytest.approx(4) and found["mlm_ppl"] == 5.657
    assert log_values(objectives, selecting, {})["ppl"] is None


def test_the_score_is_the_mean_of_main_metrics_once_all_are_there():
    def objective(name):
        return SimpleNamespace(
            main_metric=name,
            is_trained=True,
            scorer=None,
            values=lambda sums: {name: sums["right"]["en"][0]} if sums else {},
        )

    both = {"one": objective("accuracy_one"), "two": objective("f1_two")}
    sums = {"one\tright\ten": (80.0, 0), "two\tright\ten": (50.0, 0)}
    assert log_values(both, {}, sums)["score"] == 65.0
    assert "score" not in log_values(both, {}, dict([*sums.items()][:1]))
    assert "score" not in log_values({"one": both["one"]}, {}, sums)
