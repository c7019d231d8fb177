"""The experiment on the papers' claims: its steps, its configurations, and that each test finds its scores."""

import re
import shlex

import pytest

from recipes import experiment
from recipes.experiment_file import Experiment
from recipes.report import Report
from tests.recipes.test_configurations import RECIPES, VECO, XLM, build, configuration, objectives_of

EVIDENCE = RECIPES / "evidence"
PRETRAINING = {
    "xlm": [XLM / "pretrain.yaml", EVIDENCE / "pretrain.yaml"],
    "veco": [VECO / "pretrain.yaml", EVIDENCE / "veco/pretrain.yaml"],
    "veco, first stage": [
        *(VECO / "pretrain.yaml", EVIDENCE / "veco/pretrain.yaml", EVIDENCE / "veco/cross-attention-pretrain.yaml")
    ],
}
TRANSLATION = [XLM / "translate.yaml", EVIDENCE / "translate.yaml"]


def listed(capsys, name, *arguments):
    """{step: its commands, lists of words} of an experiment."""
    experiment.main([str(EVIDENCE / name), "--list", *arguments])
    blocks = re.findall(r"^(\S+)\n((?:    .*\n)+)", capsys.readouterr().out, re.MULTILINE)
    return {name: [shlex.split(line) for line in lines.splitlines()] for name, lines in blocks}


@pytest.mark.parametrize("name", ["claims.yaml", "smoke.yaml"])
def test_every_claim_has_steps_and_tests(name, tmp_path):
    made = Experiment(EVIDENCE / name, output=tmp_path)
    assert list(made.claims) == ["1", "2", "4", "5", "8", "6", "7", "3"]  # in order of priority
    tested = {str(part["claim"]) for part in made.content["report"] if "verdict" in part}
    assert tested == set(made.claims)
    for claim in made.claims:
        assert made.chosen(made.steps_of([claim]))


@pytest.mark.parametrize("name", ["claims.yaml", "smoke.yaml"])
def test_every_test_finds_its_scores(name, tmp_path, monkeypatch):
    """Rows that a test names are in the tables that it names: with a score in every cell each pair has a verdict."""
    monkeypatch.setattr(Report, "units", lambda self, row, values, column: [50.0])
    made = Experiment(EVIDENCE / name, output=tmp_path / "out")
    report = Report(made, [tmp_path / "out"])
    list(report.parts())
    small = name == "smoke.yaml"  # no ranking
    for part in made.content["report"]:
        for first, second in (map(made.expand, pair) for pair in part.get("greater", [])):
            assert small or any(
                found.startswith(f"{first} > {second}, ") for found in report.verdicts[str(part["claim"])]
            ), (first, second)
    measures = {found.rsplit(", ", 1)[1].rsplit(":", 1)[0] for found in report.verdicts["1"]}
    assert measures == ({"nc: accuracy", "retrieval"} if small else {"nc: accuracy", "wpr: ndcg", "retrieval"})
    assert all(report.verdicts[claim] for claim in made.claims)


def test_models_that_several_claims_need_are_trained_once(capsys):
    steps = listed(capsys, "claims.yaml", "seeds=1")
    start = "mlm-tlm-1/checkpoint_last.pt"
    for step in ("titles/1/pretrain/xdae", "titles/1/pretrain/xfnp", "titles/1/more", "unicoder/1/pretrain/unicoder"):
        assert any(word.endswith(start) for word in steps[step][0]), step
    assert sum("pretrain/mlm-tlm" in step for step in steps) == 1
    assert not any(step.startswith(("titles/1/xlm", "unicoder/1/start", "unicoder/1/text")) for step in steps)
    two = listed(capsys, "claims.yaml", "seeds=1,2", "--claims", "7")
    assert {step for step in two if "/text/" in step} == {f"monotrans/1/text/{code}" for code in ("en", "de", "ru")}


def test_budgets_are_equal(capsys, dictionary):
    """XLM has as many updates as both stages of VECO; xDAE, xFNP and the longer XLM as many, of as many tokens."""
    veco, first = (configuration(PRETRAINING[name]) for name in ("veco", "veco, first stage"))
    steps = listed(capsys, "claims.yaml", "seeds=1")
    updates = {
        step: int(words[words.index("--max-update") + 1])
        for step, (words, *_) in steps.items()
        if "--max-update" in words
    }
    both = veco.optimization.max_update + first.optimization.max_update
    assert updates["veco/xlm/xlm/1"] == both < updates["veco/xlm/xlm-compute/1"]
    assert updates["titles/1/more"] == updates["titles/1/pretrain/xdae"] == updates["titles/1/pretrain/xfnp"]
    for name in ("xdae", "xfnp"):
        files = [
            RECIPES / f"xglue/{path}"
            for path in (f"config/{name}.yaml", f"config/{name}-toy.yaml", f"lohelp/{name}.yaml")
        ]
        (objective,) = objectives_of(configuration(files), dictionary).values()
        assert objective.cfg.batch_tokens == 4096
    assert "mlm.batch_tokens=4096 tlm.batch_tokens=4096" in steps["titles/1/more"][0]
    of_xlm = objectives_of(configuration(PRETRAINING["xlm"], "--objectives", "mlm,tlm"), dictionary)
    of_veco = objectives_of(veco, dictionary)
    settings = {(each.cfg.batch_tokens, each.cfg.mask_prob) for each in (*of_xlm.values(), *of_veco.values())}
    assert settings == {(2048, 0.3)}


def test_veco_starts_translation_with_two_of_three_layers(dictionary):
    pretrained, started = (
        configuration(PRETRAINING["veco"]),
        configuration([*TRANSLATION, EVIDENCE / "veco/translate.yaml"], "-s", "en", "-t", "de"),
    )
    assert pretrained.model.layers == started.model.encoder_layers == 3 and started.model.decoder_layers == 2
    build(started, dictionary)
    plain = configuration(TRANSLATION, "-s", "en", "-t", "de")
    assert (plain.checkpoint.patience, plain.checkpoint.best_checkpoint_metric) == (4, "loss")
