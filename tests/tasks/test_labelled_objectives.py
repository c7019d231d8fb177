"""Labelled objectives beside pre-training in one run, with a name of their own or that of their task type."""

import math
import re

import pytest
from fairseq import checkpoint_utils

from fairseq_xl.errors import UserError
from tests.command_line import cli
from tests.commands import load, pretraining, run_train, run_validate
from tests.tasks.resuming import LAST, check_stop
from tests.tasks.test_classification import write_task
from tests.tasks.test_evaluation_commands import validation_losses
from tests.tasks.test_multitask import write_others

NAMES = "mlm,nc=classification,tagging"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("labelled")
    return {"nc": write_task(root / "nc", sides=1), "ner": write_others(root)["ner"]}


def together(data, folders, save_dir, *more):
    """MLM, sentences to classify and sentences to tag."""
    options = f"mlm.length=32 nc.task_files={folders['nc']} tagging.task_files={folders['ner']}"
    options += "".join(f" {name}.train_langs=en,de {name}.eval_langs=en,de,fr" for name in ("nc", "tagging"))
    options = options.replace("tagging.eval_langs=en,de,fr", "tagging.eval_langs=en,de")
    options += " nc.length=32 tagging.length=32 nc.head_dropout=0"
    line = pretraining(data, save_dir, "--no-epoch-checkpoints", *more)
    return [*line, *cli(objectives=NAMES, objective_options=options)]


def test_one_run_trains_a_language_model_a_classifier_and_a_tagger(data_bin, folders, tmp_path):
    """A pass has each example of each objective once, in batches of one objective each."""
    select = cli(best_checkpoint_metric="accuracy_nc", maximize_best_checkpoint_metric=True, max_epoch=8, lr=0.01)
    output = run_train(together(data_bin, folders, tmp_path, *cli(updates_per_epoch="auto", dropout=0), *select))
    samples = [sample for update in output.samples.values() for sample in update]
    epoch = samples[: len(samples) // 8]
    for name, count in (("nc", 240), ("tagging", 100)):
        numbers = [number for each in epoch if each["objective"] == name for number in each["id"].tolist()]
        assert sorted(numbers) == list(range(count))
    kinds = [each["objective"] for each in epoch]
    assert set(kinds) == {"mlm", "nc", "tagging"} and kinds != sorted(kinds)
    *_, found = validation_losses(output)
    assert float(found["accuracy_nc"]) > 75 and {"f1_tagging_de", "accuracy_nc_fr", "mlm_de_ppl"} <= found.keys()
    assert '"train_accuracy_nc_en"' in output.log
    model = load(tmp_path / "checkpoint_best.pt")
    assert model["heads.nc.1.weight"].shape[0] == 2 and "heads.tagging.1.weight" in model
    options = cli(task="xl_pretraining", path=tmp_path / "checkpoint_best.pt", user_dir="fairseq_xl", batch_size=8)
    (again,) = validation_losses(run_validate([data_bin, *options]))
    best = max(float(each["accuracy_nc"]) for each in validation_losses(output))
    assert float(again["accuracy_nc"]) == pytest.approx(best, abs=0.01)


@pytest.mark.parametrize("epoch", ["auto", 9])
def test_a_stopped_run_resumes(data_bin, folders, tmp_path, epoch):
    def line(folder, *more):
        return together(data_bin, folders, folder, *cli(updates_per_epoch=epoch, save_interval_updates=1), *more)

    whole = run_train([*line(tmp_path / "whole", "--max-update", 12), "--disable-validation"])
    check_stop(
        lambda folder, *more: [*line(folder, *more), "--disable-validation"],
        tmp_path / "parts",
        (tmp_path / "whole", whole),
        5,
        12,
    )


def test_a_batch_counts_as_one_whatever_its_objective(data_bin, folders, tmp_path):
    """The loss of an update of one batch is the mean over its predictions."""
    more = cli(updates_per_epoch=6, max_update=6, disable_validation=True)
    output = run_train(together(data_bin, folders, tmp_path, *more))
    kinds = [samples[0]["objective"] for samples in output.samples.values()]
    assert kinds == ["mlm", "nc", "tagging"] * 2
    losses = [float.fromhex(loss) for loss in output.losses]
    assert all(0.3 < loss < 6 for loss in losses)  # nats of a token, a class or a tag
    found = output.statistics("loss", "train"), *(output.statistics(f"{name}_loss", "train") for name in kinds[:3])
    (loss,), *parts = [[float(value) for value in values] for values in found]
    assert loss == pytest.approx(sum(losses) / 6 / math.log(2), abs=1e-3)
    # the terms of MLM are means over the tokens of two batches, those of labels too
    assert sum(value for (value,) in parts) / 3 == pytest.approx(loss, abs=0.1)


@pytest.mark.parametrize(
    "objectives, message",
    [
        ("mlm,mlm=classification", "name each of"),
        ("mlm,x=tlm", "x cannot be the name of tlm"),
        ("mlm,clm=classification", "clm cannot be the name of classification"),
        ("mlm,a.b=tagging", "a.b cannot be the name of tagging"),
        ("mlm,classification", "--objective-options classification.task_files: name a folder of files"),
        ("mlm,classification classification.alpha=0.3", "classification.alpha=0.3 should be left out"),
        ("mlm,tagging mlm.weight=0:1,9:0", "mlm.weight=0:1,9:0: it becomes 0, which needs a number of --updates"),
        ("mlm,tagging tagging.eval_langs=xx", "language 'xx' has no symbol"),
        ("mlm,tagging tagging.length=64", "tagging.length=64 needs 64 positions"),
    ],
)
def test_mistakes(data_bin, folders, tmp_path, objectives, message):
    objectives, _, options = objectives.partition(" ")
    options = f"mlm.length=32 tagging.task_files={folders['ner']} {options}"
    auto = cli(updates_per_epoch="auto")
    line = pretraining(data_bin, tmp_path, *cli(objectives=objectives, objective_options=options), *auto)
    with pytest.raises(UserError, match=re.escape(message)):
        run_train([*line, "--max-update", 1])


def test_other_files_are_another_training(data_bin, folders, tmp_path):
    """Their classes are stored."""
    run_train(together(data_bin, folders, tmp_path / "run", "--max-update", 1, "--disable-validation"))
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "run" / LAST))
    assert state["task_state"]["fairseq_xl"]["type_state"]["nc"] == {"labels": ["river", "stone"], "num_texts": 1}
    for path in (folders["nc"]).glob("*.tsv"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8").replace("stone", "rock"), encoding="utf-8")
    other = folders | {"nc": tmp_path}
    with pytest.raises(UserError, match="trained on other task files, with"):
        run_train(together(data_bin, other, tmp_path / "run", "--max-update", 2, "--disable-validation"))
