"""A task type is added by one file, in the package or in another one: the example of fairseq_xl/README.md."""

import importlib
import io
import json
import random
import re
import statistics
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import TASK_CLASS_NAMES, TASK_REGISTRY

from fairseq_xl import objectives
from fairseq_xl.commands import convert, export_onnx, predict, rehearse, score_labelled
from fairseq_xl.criterions.combined import define_criterions
from fairseq_xl.data.corpora.base import BREAK_MODES
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.objectives import OBJECTIVES
from fairseq_xl.objectives.labelled import LabelledObjective
from fairseq_xl.objectives.ranking import Ranking
from fairseq_xl.serving.runtime import Exported
from fairseq_xl.tasks.finetuning import define_tasks
from tests.builders import validation_losses
from tests.command_line import cli
from tests.commands import labeled, load, pretraining, run_train, run_validate
from tests.tasks.conftest import data_bin  # noqa: F401
from tests.tasks.tiny_text import WORDS, sentences

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE, BLOCKS = ROOT / "tests/examples/similarity.py", ROOT / "tests/examples/document_blocks.py"
NAME = "similarity"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The examples of a task type and of a corpus as an installed package, whose entry points name the modules."""
    site = tmp_path / "site-packages"
    (site / "my_types-1.0.dist-info").mkdir(parents=True)
    (site / "my_types.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    (site / "my_types-1.0.dist-info/METADATA").write_text("Name: my-types\nVersion: 1.0\n")
    (site / "my_blocks.py").write_text(BLOCKS.read_text(encoding="utf-8"), encoding="utf-8")
    entry = f"[fairseq_xl.objectives]\n{NAME} = my_types\nwrong = no_such_module\n"
    entry += "[fairseq_xl.data.corpora]\ndocument_blocks = my_blocks\n"
    (site / "my_types-1.0.dist-info/entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(site)
    objectives.load_all()
    define_criterions()
    define_tasks()
    yield
    class_name = TASK_REGISTRY[f"xl_{NAME}"].__name__
    OBJECTIVES.pop(NAME), BREAK_MODES.pop("complete_doc")
    for registry in (TASK_REGISTRY, CRITERION_REGISTRY):
        registry.pop(f"xl_{NAME}")
    TASK_CLASS_NAMES.discard(class_name)
    sys.modules.pop("my_types"), sys.modules.pop("my_blocks")
    importlib.invalidate_caches()


def test_the_readme_shows_the_example():
    readme = (ROOT / "fairseq_xl/README.md").read_text(encoding="utf-8")
    assert "tests/examples/similarity.py" in readme
    found = re.findall(r"^ +(\[project\.entry-points.*\n.*)$", readme, re.MULTILINE)
    assert any('"fairseq_xl.objectives"' in entry and f"{NAME} =" in entry for entry in found)
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


def test_a_task_type_of_another_package_is_trained_and_predicts(installed, data_bin, tmp_path, caplog):
    """It is a task and a criterion with an option of its own; a wrong entry point beside it is only named."""
    messages = [record.getMessage() for record in caplog.get_records("setup")]
    assert any("objective 'wrong' of the installed package my-types cannot be used" in each for each in messages)
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
    with redirect_stdout(io.StringIO()) as printed:
        score_labelled.main([NAME, str(tmp_path / "to"), "--langs", "en,de", "--split", "valid"])
    scores = json.loads(printed.getvalue())
    for code, values in scores["languages"].items():
        low, high = values["pearson_interval"]
        assert values["n"] == 15 and low <= values["pearson"] <= high
        assert values["pearson"] == pytest.approx(float(found[f"pearson_{code}"]), abs=0.01)
    assert scores["pearson"] == pytest.approx(float(found["pearson"]), abs=0.01)
    assert scores["signature"].startswith(f"metric:pearson|type:{NAME}|")
    pairs = (tmp_path / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "text").write_text("".join(pair.partition("\t")[2] + "\n" for pair in pairs), encoding="utf-8")
    with redirect_stdout(io.StringIO()) as printed:
        predict.main([*map(str, (checkpoint, data_bin)), "--lang", "de", "--input", str(tmp_path / "text")])
    assert list(map(float, printed.getvalue().split())) == pytest.approx(list(predicted), abs=1e-4)


@pytest.mark.slow
def test_all_commands_know_a_corpus_and_a_task_type_of_another_package(
    installed,
    data_bin,
    tmp_path,
    capsys,
    monkeypatch,
):
    """One training of both; validation, prediction, conversion and export of its checkpoint."""
    (tmp_path / "files").mkdir()
    write_pairs(tmp_path / "files")
    read, blocks = set(), BREAK_MODES["complete_doc"]
    rows_of = blocks.rows_of
    monkeypatch.setattr(blocks, "rows_of", lambda self, length: read.add(self.language) or rows_of(self, length))
    settings = f"{NAME}.task_files={tmp_path / 'files'} {NAME}.train_langs=en,de {NAME}.eval_langs=en,de"
    more = ["--arch", "xl_xlmr_tiny", "--max-update", 6, "--updates-per-epoch", 6, "--objective-options"]
    options = f"mlm.length=32 mlm.sample_break_mode=complete_doc {NAME}.length=32 {settings}"
    output = run_train([*pretraining(data_bin, tmp_path / "run", objectives=f"mlm,{NAME}"), *more, options])
    assert output.statistics("mlm_en_loss", "train") and output.statistics(f"pearson_{NAME}_de", "valid")
    assert read == {"en", "de", "fr"}
    checkpoint, to = tmp_path / "run/checkpoint_last.pt", tmp_path / "to"
    evaluated = cli(task="xl_pretraining", path=checkpoint, user_dir="fairseq_xl", batch_size=8, predictions_to=to)
    scores = run_validate([data_bin, *evaluated])
    rows = (to / NAME / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    gold, written = zip(*(map(float, row.split("\t")) for row in rows), strict=True)

    pairs = [row.partition("\t")[2] for row in (tmp_path / "files/valid.de.tsv").read_text("utf-8").splitlines()]
    (tmp_path / "text").write_text("".join(f"{pair}\n" for pair in pairs), encoding="utf-8")
    capsys.readouterr()
    predict.main([*map(str, (checkpoint, data_bin)), "--lang", "de", "--input", str(tmp_path / "text")])
    predicted = list(map(float, capsys.readouterr().out.split()))
    assert predicted == pytest.approx(list(written), abs=1e-4)
    (score,) = scores.statistics(f"pearson_{NAME}_de", "valid")
    assert float(score) == pytest.approx(100 * statistics.correlation(gold, predicted), abs=0.006)

    convert.main([str(checkpoint), str(tmp_path / "xlmr"), "--data", str(data_bin)])
    assert json.loads((tmp_path / "xlmr/config.json").read_text("utf-8"))["model_type"] == "xlm-roberta"
    export_onnx.main([str(checkpoint), str(tmp_path / "onnx"), "--data", str(data_bin)])
    exported = Exported(tmp_path / "onnx", threads=1)
    assert exported.description["kind"] == NAME
    encode, symbols = TextEncoder(data_bin, XLDictionary.load(data_bin / "dict.txt")), exported.description["symbols"]
    first, second = (encode(text, "de").tolist() for text in pairs[0].split("\t"))
    tokens = np.array([[symbols["start"], *first, symbols["end"], *second]])
    outputs = exported.graphs["model"]({"tokens": tokens, "padding_mask": tokens == symbols["pad"]})
    assert 5 * outputs["scores"][0] == pytest.approx(predicted[0], abs=1e-4)


@pytest.mark.slow
def test_a_head_of_another_package_is_converted_and_its_training_rehearsed(installed, data_bin, tmp_path, capsys):
    """transformers computes the same similarities; a dry run reads generated pairs."""
    from transformers import AutoModelForSequenceClassification

    write_pairs(tmp_path)
    task = cli(task=f"xl_{NAME}", criterion=f"xl_{NAME}", arch="xl_xlmr_tiny", layers=1)
    run_train([data_bin, *task, *labeled(tmp_path, tmp_path / "run"), "--pooler", "--max-update", 2])
    checkpoint, text = tmp_path / "run/checkpoint_last.pt", "Haus\tGarten"
    convert.main([str(checkpoint), str(tmp_path / "xlmr"), "--data", str(data_bin)])
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "xlmr").eval()
    (tmp_path / "text").write_text(f"{text}\n", encoding="utf-8")
    capsys.readouterr()
    predict.main([*map(str, (checkpoint, data_bin)), "--lang", "de", "--input", str(tmp_path / "text")])
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    encode, end = TextEncoder(data_bin, dictionary), dictionary.eos()
    first, second = (encode(part, "de").tolist() for part in text.split("\t"))
    logits = model(torch.tensor([[dictionary.bos(), *first, end, *second]])).logits
    assert type(model).__name__ == "XLMRobertaForSequenceClassification" and logits.shape == (1, 1)
    assert 5 * logits.sigmoid().item() == pytest.approx(float(capsys.readouterr().out), abs=1e-4)

    (tmp_path / "run.yaml").write_text(f"task: xl_{NAME}\ncriterion: xl_{NAME}\n", encoding="utf-8")
    words = cli(arch="xl_xlmr_tiny", optimizer="adam", lr=0.001, batch_size=8, length=32, max_update=2)
    rehearse.main([str(tmp_path / "run.yaml"), *map(str, words), "--train-langs", "en,de"])
    shown = capsys.readouterr().out
    assert f"batch of xl_{NAME}" in shown and "8 examples, 256 tokens" in shown


def test_a_task_type_may_read_no_lines():
    with pytest.raises(
        UserError, match="ranking: this task type reads no lines of unlabeled text, it has no `from_line`"
    ):
        LabelledObjective.from_line(Ranking(Ranking.Config(), None, None), "text", "en", "file", 1)
