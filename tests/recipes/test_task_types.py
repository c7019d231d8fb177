"""The papers' configurations of fine-tuning for every task type, and the experiments on the real benchmarks."""

import re

import pytest

from fairseq_xl.evaluation import xglue as xglue_scores, xtreme as xtreme_scores
from preprocess.readers import xglue, xtreme
from recipes.experiment_file import Experiment
from recipes.finetuning import languages_of
from tests.recipes.configurations import RECIPES, XLM, configuration

TYPES = ["classification", "ranking", "tagging", "question-answering"]
METRICS = dict(zip(TYPES, ["accuracy", "ndcg", "f1", "f1"]))
XGLUE, MONOTRANS = RECIPES / "xglue/config", RECIPES / "monotrans/config"


def files_of(kind, *more):
    """The configurations that recipes/finetune.sh reads for a type, and those over them."""
    return [XLM / "finetune.yaml", *([] if kind == "classification" else [XLM / f"{kind}.yaml"]), *more]


#: a paper's configuration is the last: it may replace the metric of a type, which ranking alone has
PAPERS = [*((paper, "ranking") for paper in ("unicoder", "veco", "xglue")), *(("monotrans", kind) for kind in TYPES)]


@pytest.mark.parametrize("paper, kind", PAPERS)
def test_every_paper_s_configuration_is_one_of_every_type(paper, kind):
    own = {
        "xglue": [XGLUE / "understanding.yaml"],
        "monotrans": [MONOTRANS / "finetune.yaml"]
        + [MONOTRANS / "without-pooler.yaml"] * (kind == "tagging")
        + [MONOTRANS / "question-answering.yaml"] * (kind == "question-answering"),
    }.get(paper, [RECIPES / paper / "config/finetune.yaml"])
    cfg = configuration(files_of(kind, *own))
    assert cfg.task._name == cfg.criterion._name == f"xl_{kind.replace('-', '_')}"
    assert cfg.checkpoint.best_checkpoint_metric == METRICS[kind] and cfg.checkpoint.maximize_best_checkpoint_metric
    rate, epochs = {
        **{"unicoder": (1e-5, 250), "veco": (2e-5, 5)},  # U8; V9's middle
        **{"xglue": (5e-6, 10), "monotrans": (2e-5, 2)},  # G7; M7
    }[paper]
    assert cfg.optimization.lr == [rate] and cfg.dataset.batch_size == 32 and cfg.optimization.max_epoch == epochs
    assert getattr(cfg.lr_scheduler, "warmup_share", None) == (None if paper == "unicoder" else 0.1)
    if paper == "monotrans":
        assert getattr(cfg.task, "pooler", False) == (kind in ("classification", "ranking"))  # M7


def test_a_toy_counts_no_updates():
    for base, toy, updates in (
        (XGLUE / "understanding.yaml", XGLUE / "understanding-toy.yaml", 50),
        (MONOTRANS / "finetune.yaml", MONOTRANS / "finetune-toy.yaml", 50),
        (RECIPES / "veco/config/finetune.yaml", XLM / "finetune-toy.yaml", 100),
    ):
        schedule = configuration(files_of("classification", base, toy)).lr_scheduler
        assert schedule.warmup_updates == updates and not hasattr(schedule, "warmup_share")


def commands(name, output, *values):
    made = Experiment(RECIPES / name, values, output)
    return {step.name: [" ".join(command) for command in step.commands] for step in made.select([])}


def test_xglue_s_release_is_fine_tuned_on_as_in_the_paper(tmp_path):
    """Every task with its own configuration, in the languages that the release's reader writes."""
    steps = commands("xglue/understanding.yaml", tmp_path, "init=FILE", "settings=more.yaml --lr 1e-6")
    tasks = [name.split("/")[1] for name in steps if name.startswith("finetune/")]
    assert set(tasks) == set(xglue_scores.GROUPS["understanding"]) and len(tasks) == 9
    own = {"POS": "pos", "MLQA": "mlqa", "WPR": "wpr"}
    for task in tasks:
        trained, submitted = steps[f"finetune/{task}"]
        assert trained.startswith("bash recipes/finetune.sh ") and trained.endswith(
            " --predict=--valid-subset valid --fp16"
        )
        config = "recipes/xglue/config/understanding"
        config += f".yaml --config {config}-{own[task]}.yaml" if task in own else ".yaml"
        assert f"--no-scores --config {config} more.yaml --lr 1e-6 --seed 1 --init-from=FILE" in trained
        (languages,) = [word for word in trained.split() if word.count(",") > 1]
        assert set(languages.split(",")) <= set(xglue.LANGUAGES[task]) and ",en" in f",{languages}"
        folder = f"{tmp_path}/{task}"
        assert (
            submitted
            == f"fairseq-xl score submission xglue {task} {folder}/predictions {folder}/submission --split valid"
        )
    score = f"fairseq-xl score xglue --predictions {tmp_path}/submission --references xglue_full_dataset "
    assert steps["score"][0].startswith(score)
    assert "--split dev" in steps["score"][0] and steps["submission"][0].count("/submission/.") == 9


def test_the_released_form_of_qadsm_and_wpr(tmp_path):
    """G8b: pairs, and WPR as five classes."""
    steps = commands("xglue/understanding-released.yaml", tmp_path, "init=FILE")
    assert steps["tasks"][0].endswith(" --join-titles") and len(steps) == len(xglue.LANGUAGES) + 4
    assert steps["finetune/WPR"][0].startswith("bash recipes/finetune.sh classification ")
    assert "understanding-wpr" not in steps["finetune/WPR"][0]


def test_xtreme_s_download_becomes_a_submission(tmp_path):
    steps = commands("xtreme/understanding.yaml", tmp_path, "init=FILE")
    tasks = {name.split("/")[1] for name in steps if name.startswith("finetune/")}
    assert tasks == set(xtreme_scores.LANGUAGES) - {"bucc2018", "tatoeba"} == set(xtreme.LANGUAGES)
    assert "--valid-langs en" in steps["finetune/xquad"][0] and "--disable-validation" in steps["finetune/tydiqa"][0]
    assert all("recipes/veco/config/finetune.yaml" in steps[f"finetune/{task}"][0] for task in tasks)  # V9
    assert steps["retrieve"] == [
        f"fairseq-xl search xtreme FILE data-bin/my download {tmp_path}/retrieve/submission --pooling mean"
    ]
    assert steps["submission"][0].count("/submission/.") == 8 and "score" not in steps
    validated = steps["finetune/udpos"][0].split("--valid-langs ")[1].split()[0]
    without = set(xtreme.LANGUAGES["udpos"]) - set(validated.split(","))
    assert without == {"kk", "th", "tl", "yo"}  # Universal Dependencies has no dev file of them


@pytest.mark.parametrize(
    "setting, rates", [("understanding", "1e-5,2e-5,3e-5"), ("translate-train-all", "3e-6,5e-6,1e-5")]
)
def test_the_grid_of_xtreme(tmp_path, setting, rates):
    """V9, table 9. Tagging is as in transfer; TyDiQA has no validation text."""
    steps = Experiment(RECIPES / f"xtreme/{setting}.yaml", ["grid={table-9}"], tmp_path).steps
    trained = {step.name.partition("/")[2]: step.commands[0] for step in steps if step.name.startswith("finetune/")}
    for task in xtreme.LANGUAGES:
        *_, grid = [word.removeprefix("--grid=") for word in trained[task] if word.startswith("--grid=")]
        expected = "1e-5,2e-5,3e-5" if task in ("udpos", "panx") else rates
        assert grid == ("" if task == "tydiqa" else f"lr={expected} max-epoch=3,5,10 batch-size=16,32,64"), task


def test_xglue_s_studies_have_its_settings(tmp_path):
    """G11, G12: XNLI trained on each language alone and on all together. G13: five tasks alone and in one run."""
    steps = commands("xglue/languages.yaml", tmp_path, "init=FILE")
    trained = [steps[f"matrix/{code}"][0] for code in xglue.LANGUAGES["XNLI"]] + steps["multi-language"]
    assert len(trained) == 16 and all(" recipes/xglue/config/understanding.yaml " in line for line in trained)
    steps = commands("xglue/multitask.yaml", tmp_path, "init=FILE")
    tasks = [name.split("/")[1] for name in steps if name.startswith("finetune/")]
    (together,) = steps["multitask"]
    assert len(tasks) == 5 and all(f"{task}=classification:{tmp_path}/tasks/{task}" in together for task in tasks)
    evaluated = languages_of(tasks, re.search(r" en (ar.*QADSM=[a-z,]+)", together)[1])
    assert {task: set(codes.split(",")) for task, codes in evaluated.items()} == {
        task: set(xglue.LANGUAGES[task]) for task in tasks
    }


def test_summaries_are_zero_shot_from_english(tmp_path):
    """G15."""
    steps = commands("xglue/summaries.yaml", tmp_path)
    (command,) = steps.pop("pivots/en")
    assert not steps and " en data-bin/my " in command and " --valid-langs en --generate=" in command


def test_xtreme_s_translations_are_trained_on_as_well(tmp_path):
    """V9's second setting: nine tasks, tagging as in the first; V9b and V11: TyDiQA from XQuAD, retrieval from XNLI."""
    steps = commands("xtreme/translate-train-all.yaml", tmp_path, "init=FILE")
    transfer = commands("xtreme/understanding.yaml", tmp_path, "init=FILE")
    assert steps["tasks"][0].endswith("--tasks xnli,pawsx,udpos,panx,xquad,mlqa,tydiqa --skip-invalid")
    for task in xtreme.TRANSLATED_TRAINING:
        folder, languages = f"{tmp_path}/tasks/{task}", ",".join(sorted(xtreme.LANGUAGES[task]))
        configs = "--config recipes/veco/config/finetune.yaml --config recipes/veco/config/translate-train-all.yaml"
        files = f"{folder}:{folder}/translate_train {languages} {languages} --no-scores {configs}"
        assert files in steps[f"finetune/{task}"][0]
    for task in ("udpos", "panx"):
        assert steps[f"finetune/{task}"] == transfer[f"finetune/{task}"]
    assert "--valid-langs" not in steps["finetune/xquad"][0]  # the languages of its translated dev files
    assert f" --finetune-from-model={tmp_path}/xquad/checkpoint_best.pt " in steps["finetune/tydiqa"][0]
    assert steps["retrieve"][0].startswith(f"fairseq-xl search xtreme {tmp_path}/xnli/checkpoint_best.pt data-bin/my ")
    assert steps["submission"] == transfer["submission"]
    languages = ",".join(sorted(xtreme.LANGUAGES["xquad"]))
    steps = commands("xtreme/understanding.yaml", tmp_path, "init=FILE", "xquad-valid-langs={xquad-langs}")
    assert f" --valid-langs {languages} " in steps["finetune/xquad"][0]


@pytest.mark.parametrize("small, tasks", [("xglue/smoke-understanding.yaml", 9), ("xtreme/smoke.yaml", 7)])
def test_the_small_releases_take_the_same_steps(tmp_path, small, tasks):
    steps = commands(small, tmp_path)
    trained = [lines[0] for name, lines in steps.items() if name.startswith("finetune/")]
    assert len(trained) == tasks and steps.keys() >= {"release", "tasks", "text", "pretrain", "submission", "score"}
    for command in trained:
        assert "recipes/xglue/config/understanding-toy.yaml" in command
        assert f"--init-from={tmp_path}/pretrain/checkpoint_last.pt" in command
