"""A task type is added by one file, in the package or in another one: the example of fairseq_xl/README.md."""

import importlib
import io
import random
import re
import statistics
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import TASK_CLASS_NAMES, TASK_REGISTRY

from fairseq_xl import finetuning
from fairseq_xl.commands import predict
from fairseq_xl.criterions.combined import define_criterions
from fairseq_xl.errors import UserError
from fairseq_xl.finetuning import TASK_TYPES
from fairseq_xl.finetuning.classification import Classification
from fairseq_xl.finetuning.ranking import Ranking
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.objectives.labelled import define_objectives
from fairseq_xl.tasks.finetuning import define_tasks
from tests.command_line import cli
from tests.commands import labeled, load, run_train, run_validate
from tests.tasks.conftest import data_bin  # noqa: F401
from tests.tasks.test_evaluation_commands import validation_losses
from tests.tasks.tiny_text import WORDS, sentences

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests/examples/similarity.py"
NAME = "similarity"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The example as an installed package, whose entry point names its module."""
    site = tmp_path / "site-packages"
    (site / "my_types-1.0.dist-info").mkdir(parents=True)
    (site / "my_types.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    (site / "my_types-1.0.dist-info/METADATA").write_text("Name: my-types\nVersion: 1.0\n")
    entry = f"[fairseq_xl.finetuning]\n{NAME} = my_types\nwrong = no_such_module\n"
    (site / "my_types-1.0.dist-info/entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(site)
    finetuning.load_all()
    define_objectives()
    define_criterions()
    define_tasks()
    yield
    class_name = TASK_REGISTRY[f"xl_{NAME}"].__name__
    TASK_TYPES.pop(NAME), OBJECTIVES.pop(NAME)
    for registry in (TASK_REGISTRY, CRITERION_REGISTRY):
        registry.pop(f"xl_{NAME}")
    TASK_CLASS_NAMES.discard(class_name)
    sys.modules.pop("my_types")
    importlib.invalidate_caches()


def test_the_readme_shows_the_example():
    readme = (ROOT / "fairseq_xl/README.md").read_text(encoding="utf-8")
    assert "tests/examples/similarity.py" in readme
    found = re.findall(r"^ +(\[project\.entry-points.*\n.*)$", readme, re.MULTILINE)
    assert any('"fairseq_xl.finetuning"' in entry and f"{NAME} =" in entry for entry in found)
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 110


def write_pairs(folder):
    """Pairs whose similarity is 5 if both texts have the word for `river`, else 1."""
    rng = random.Random(1)
    for split, count in (("train", 80), ("valid", 15), ("test", 5)):
        drawn = sentences(WORDS, count, f"{split} similar")
        for code in ("en", "de"):
            river, rows = WORDS[code][3], []
            for text in drawn[code]:
                similar = rng.randrange(2)
                texts = (f"{river} {text}", river if similar else WORDS[code][4])
                rows.append("\t".join((("1", "5")[similar], *texts)))
            (folder / f"{split}.{code}.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def test_a_task_type_of_another_package_is_trained_and_predicts(installed, data_bin, tmp_path, caplog):  # noqa: F811
    """It is a task and a criterion with an option of its own; a wrong entry point beside it is only named."""
    messages = [record.getMessage() for record in caplog.get_records("setup")]
    assert any("task type 'wrong' of the installed package my-types cannot be used" in each for each in messages)
    write_pairs(tmp_path)
    task = cli(task=f"xl_{NAME}", criterion=f"xl_{NAME}", arch="xl_xlm_tiny", layers=1, largest=5.0)
    more = ["--max-epoch", 8, "--lr", 0.01, "--dropout", 0, "--attention-dropout", 0, "--head-dropout", 0]
    select = ["--best-checkpoint-metric", "pearson", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
    run_train([data_bin, *task, *labeled(tmp_path, tmp_path / "run"), *more, *select])
    checkpoint = tmp_path / "run/checkpoint_best.pt"
    assert load(checkpoint)[f"heads.{NAME}.1.weight"].shape == (1, 16)
    options = cli(task=f"xl_{NAME}", path=checkpoint, user_dir="fairseq_xl", batch_size=8)
    (found,) = validation_losses(run_validate([data_bin, *options, "--predictions-to", tmp_path / "to"]))
    for code in ("en", "de"):
        rows = (tmp_path / f"to/valid.{code}.tsv").read_text(encoding="utf-8").splitlines()
        gold, predicted = zip(*(map(float, row.split("\t")) for row in rows), strict=True)
        expected = 100 * statistics.correlation(gold, predicted)
        assert len(rows) == 15 and float(found[f"pearson_{code}"]) == pytest.approx(expected, abs=0.05)
    assert float(found["pearson"]) > 80
    pairs = (tmp_path / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "text").write_text("".join(pair.partition("\t")[2] + "\n" for pair in pairs), encoding="utf-8")
    with redirect_stdout(io.StringIO()) as printed:
        predict.main([*map(str, (checkpoint, data_bin)), "--lang", "de", "--input", str(tmp_path / "text")])
    assert list(map(float, printed.getvalue().split())) == pytest.approx(list(predicted), abs=1e-4)


def test_a_task_type_may_read_no_lines():
    with pytest.raises(
        UserError, match="ranking: this task type reads no lines of unlabeled text, it has no `from_line`"
    ):
        finetuning.TaskType.from_line(Ranking(None, None), "text", "en", "file", 1)


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="task type 'classification' is registered twice"):
        finetuning.TaskType.register(Classification)


def test_a_damaged_state_is_one_sentence():
    task = Classification(None, None)
    with pytest.raises(UserError, match="x.pt is damaged: its identity lacks labels"):
        task.load_state({"num_texts": 1}, "x.pt")
    with pytest.raises(UserError, match=r"fairseq_xl.type_state.num_texts is expected to be int, found 'one'"):
        task.load_state({"labels": ["a"], "num_texts": "one"}, "x.pt")
