"""An objective and a task type are added by one file, in the package or in another one, as in fairseq_xl/README.md."""

import importlib
import io
import json
import math
import random
import re
import statistics
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.tasks import TASK_CLASS_NAMES, TASK_DATACLASS_REGISTRY, TASK_REGISTRY

from fairseq_xl import objectives
from fairseq_xl.commands import model_convert, model_export, plan, predict, score_labelled
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
from tests.io.builders import one_sentence
from tests.tasks.conftest import write_encoded
from tests.tasks.tiny_text import WORDS, sentences

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests/examples"
OBJECTIVE, TASK_TYPE = "replaced_tokens", "similarity"


@pytest.mark.parametrize("name, most_lines", [(OBJECTIVE, 80), (TASK_TYPE, 110)])
def test_the_readme_shows_the_example(name, most_lines):
    readme = (ROOT / "fairseq_xl/README.md").read_text(encoding="utf-8")
    assert f"tests/examples/{name}.py" in readme
    entries = re.findall(r'^ +\[project\.entry-points\."fairseq_xl\.objectives"\]\n(.*)$', readme, re.MULTILINE)
    assert any(f"{name} =" in entry for entry in entries)
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= most_lines


def write_package(site, name, modules, entry_points):
    """Writes an installed package as pip does: {module: its text}, and the text of its entry points."""
    (site / f"{name}-1.0.dist-info").mkdir(parents=True)
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text, encoding="utf-8")
    (site / f"{name}-1.0.dist-info/METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: 1.0\n")
    (site / f"{name}-1.0.dist-info/entry_points.txt").write_text(entry_points)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(module) installs a package whose entry point names the module."""

    def install(module, name=OBJECTIVE):
        example = (EXAMPLES / f"{OBJECTIVE}.py").read_text().replace(f'"{OBJECTIVE}"', f'"{name}"')
        entry = f"[fairseq_xl.objectives]\n{OBJECTIVE} = {module}\n"
        write_package(tmp_path / "site-packages", "my_objectives", {"my_objectives": example}, entry)
        monkeypatch.syspath_prepend(tmp_path / "site-packages")

    yield install
    OBJECTIVES.pop(OBJECTIVE, None)
    sys.modules.pop("my_objectives", None)


@pytest.fixture
def in_the_package(tmp_path, monkeypatch):
    """The example as one more file of fairseq_xl/objectives."""
    (tmp_path / f"{OBJECTIVE}.py").write_text((EXAMPLES / f"{OBJECTIVE}.py").read_text())
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    objectives.load_all()
    yield
    OBJECTIVES.pop(OBJECTIVE)
    sys.modules.pop(f"fairseq_xl.objectives.{OBJECTIVE}")
    importlib.invalidate_caches()


@pytest.fixture
def installed_type(tmp_path, monkeypatch):
    """The examples of a task type and of a corpus as an installed package, whose entry points name the modules."""
    sources = {"my_types": TASK_TYPE, "my_blocks": "document_blocks"}
    modules = {module: (EXAMPLES / f"{name}.py").read_text(encoding="utf-8") for module, name in sources.items()}
    entries = f"[fairseq_xl.objectives]\n{TASK_TYPE} = my_types\nwrong = no_such_module\n"
    entries += "[fairseq_xl.data.corpora]\ndocument_blocks = my_blocks\n"
    write_package(tmp_path / "site-packages", "my_types", modules, entries)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    objectives.load_all()
    define_criterions()
    define_tasks()
    yield
    class_name = TASK_REGISTRY[f"xl_{TASK_TYPE}"].__name__
    OBJECTIVES.pop(TASK_TYPE), BREAK_MODES.pop("complete_doc")
    for registry in (TASK_REGISTRY, TASK_DATACLASS_REGISTRY, CRITERION_REGISTRY, CRITERION_DATACLASS_REGISTRY):
        registry.pop(f"xl_{TASK_TYPE}")
    TASK_CLASS_NAMES.discard(class_name)
    for module in modules:
        sys.modules.pop(module)
    importlib.invalidate_caches()


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """A data-bin with its SentencePiece model. Read only."""
    return write_encoded(tmp_path_factory.mktemp("encoded"))


def test_an_objective_of_another_package_is_trained_and_validated(install, data_bin, tmp_path):
    install("my_objectives")
    objectives.load_all()
    assert OBJECTIVES[OBJECTIVE].__module__ == "my_objectives"
    arguments = pretraining(data_bin, tmp_path / "run", "--max-update", 4, objectives=f"mlm,{OBJECTIVE}")
    output = run_train([*arguments, "--updates-per-epoch", 4, "--no-epoch-checkpoints"])
    assert f"{OBJECTIVE}_en_loss" in output.log
    checkpoint = tmp_path / "run/checkpoint_last.pt"
    assert load(checkpoint)[f"heads.{OBJECTIVE}.weight"].shape == (1, 16)
    common = ["--task", "xl_pretraining", "--max-tokens", 256, "--user-dir", "fairseq_xl"]
    assert f"{OBJECTIVE}_ppl" in run_validate([data_bin, "--path", checkpoint, *common]).log


def test_a_batch_without_tokens_is_one_sentence(in_the_package, data_bin, tmp_path, monkeypatch):
    monkeypatch.setattr(OBJECTIVES[OBJECTIVE], "collate", lambda *_: {"x": 1, "y": 2})
    line = pretraining(data_bin, tmp_path / "run", "--max-update", 1, objectives=OBJECTIVE)
    with pytest.raises(UserError) as error:
        run_train(line)
    one_sentence(error, "`collate` of the objective replaced_tokens returned x, y", "the key 'tokens'")


def test_an_entry_point_that_leads_nowhere_names_its_package(install, caplog):
    """fairseq imports objectives before a command can end with one sentence, and most commands need none of them."""
    install("no_such_module")
    objectives.load_all()
    (message,) = caplog.messages
    assert "objective 'replaced_tokens' of the installed package my-objectives" in message
    assert "no_such_module" in message and "uninstall" in message and OBJECTIVE not in OBJECTIVES


def test_an_objective_whose_name_is_taken_is_left_out(install, caplog):
    mlm = OBJECTIVES["mlm"]
    install("my_objectives", name="mlm")
    objectives.load_all()
    (message,) = caplog.messages
    assert "installed package my-objectives" in message and "'mlm' is registered twice" in message
    assert OBJECTIVES["mlm"] is mlm


def test_the_example_computes_what_it_says(in_the_package, build, spec, stream, model):
    objective = build(OBJECTIVE, f"{OBJECTIVE}.replace_prob=1 {OBJECTIVE}.length=6")
    model.add_heads(objective.heads(model.cfg))
    model.double().heads[OBJECTIVE].weight.data.zero_()
    model.heads[OBJECTIVE].bias.data.fill_(math.log(3))  # 3 to 1 that a piece is replaced
    batch = objective.collate(spec([0, 5], np.arange(2)), stream)
    tokens, original = batch["tokens"].flatten()[batch["pieces"]].tolist(), [4, 5, 6, 7, 8, 9, 10, 11]
    replaced = [one != other for one, other in zip(tokens, original, strict=True)]  # a random piece may be the same
    assert batch["target"].tolist() == replaced and sum(replaced) > 4
    assert batch["tokens"][:, 0].tolist() == [0, 0] and batch["tokens"][0, 5] == 2
    term = model(objective.loss, batch)[OBJECTIVE]
    assert term.count == 8
    assert term.sum.item() == pytest.approx(-sum(math.log(0.75 if each else 0.25) for each in replaced), rel=1e-6)
    nothing = build(OBJECTIVE, f"{OBJECTIVE}.replace_prob=0 {OBJECTIVE}.length=6").collate(spec([0, 5]), stream)
    assert not nothing["target"].any() and nothing["tokens"].flatten()[batch["pieces"]].tolist() == original


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


def test_a_task_type_of_another_package_is_trained_and_predicts(installed_type, encoded, tmp_path, caplog):
    """It is a task and a criterion with an option of its own; a wrong entry point beside it is only named."""
    messages = [record.getMessage() for record in caplog.get_records("setup")]
    assert any("objective 'wrong' of the installed package my-types cannot be used" in each for each in messages)
    write_pairs(tmp_path)
    task = cli(task=f"xl_{TASK_TYPE}", criterion=f"xl_{TASK_TYPE}", arch="xl_xlm_tiny", layers=1, largest=5.0)
    more = ["--max-epoch", 8, "--lr", 0.01, "--dropout", 0, "--attention-dropout", 0, "--head-dropout", 0]
    select = ["--best-checkpoint-metric", "pearson", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
    run_train([encoded, *task, *labeled(tmp_path, tmp_path / "run"), *more, *select])
    checkpoint = tmp_path / "run/checkpoint_best.pt"
    assert load(checkpoint)[f"heads.{TASK_TYPE}.1.weight"].shape == (1, 16)
    options = cli(task=f"xl_{TASK_TYPE}", path=checkpoint, user_dir="fairseq_xl", batch_size=8)
    (found,) = validation_losses(run_validate([encoded, *options, "--predictions-to", tmp_path / "to"]))
    for code in ("en", "de"):
        rows = (tmp_path / f"to/valid.{code}.tsv").read_text(encoding="utf-8").splitlines()
        gold, predicted = zip(*(map(float, row.split("\t")) for row in rows), strict=True)
        expected = 100 * statistics.correlation(gold, predicted)
        assert len(rows) == 15 and float(found[f"pearson_{code}"]) == pytest.approx(expected, abs=0.05)
    assert float(found["pearson"]) > 80
    with redirect_stdout(io.StringIO()) as printed:
        score_labelled.main([TASK_TYPE, str(tmp_path / "to"), "--langs", "en,de", "--split", "valid"])
    scores = json.loads(printed.getvalue())
    for code, values in scores["languages"].items():
        low, high = values["pearson_interval"]
        assert values["n"] == 15 and low <= values["pearson"] <= high
        assert values["pearson"] == pytest.approx(float(found[f"pearson_{code}"]), abs=0.01)
    assert scores["pearson"] == pytest.approx(float(found["pearson"]), abs=0.01)
    assert scores["signature"].startswith(f"metric:pearson|type:{TASK_TYPE}|")
    pairs = (tmp_path / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "text").write_text("".join(pair.partition("\t")[2] + "\n" for pair in pairs), encoding="utf-8")
    with redirect_stdout(io.StringIO()) as printed:
        predict.main([*map(str, (checkpoint, encoded)), "--lang", "de", "--input", str(tmp_path / "text")])
    assert list(map(float, printed.getvalue().split())) == pytest.approx(list(predicted), abs=1e-4)


@pytest.mark.slow
def test_all_commands_know_a_corpus_and_a_task_type_of_another_package(
    installed_type, encoded, tmp_path, capsys, monkeypatch
):
    """One training of both; validation, prediction, conversion and export of its checkpoint."""
    (tmp_path / "files").mkdir()
    write_pairs(tmp_path / "files")
    read, blocks = set(), BREAK_MODES["complete_doc"]
    rows_of = blocks.rows_of
    monkeypatch.setattr(blocks, "rows_of", lambda self, length: read.add(self.language) or rows_of(self, length))
    settings = f"{TASK_TYPE}.task_files={tmp_path / 'files'} {TASK_TYPE}.train_langs=en,de {TASK_TYPE}.eval_langs=en,de"
    more = ["--arch", "xl_xlmr_tiny", "--max-update", 6, "--updates-per-epoch", 6, "--objective-options"]
    options = f"mlm.length=32 mlm.sample_break_mode=complete_doc {TASK_TYPE}.length=32 {settings}"
    output = run_train([*pretraining(encoded, tmp_path / "run", objectives=f"mlm,{TASK_TYPE}"), *more, options])
    assert output.statistics("mlm_en_loss", "train") and output.statistics(f"pearson_{TASK_TYPE}_de", "valid")
    assert read == {"en", "de", "fr"}
    checkpoint, to = tmp_path / "run/checkpoint_last.pt", tmp_path / "to"
    evaluated = cli(task="xl_pretraining", path=checkpoint, user_dir="fairseq_xl", batch_size=8, predictions_to=to)
    scores = run_validate([encoded, *evaluated])
    rows = (to / TASK_TYPE / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    gold, written = zip(*(map(float, row.split("\t")) for row in rows), strict=True)

    pairs = [row.partition("\t")[2] for row in (tmp_path / "files/valid.de.tsv").read_text("utf-8").splitlines()]
    (tmp_path / "text").write_text("".join(f"{pair}\n" for pair in pairs), encoding="utf-8")
    capsys.readouterr()
    predict.main([*map(str, (checkpoint, encoded)), "--lang", "de", "--input", str(tmp_path / "text")])
    predicted = list(map(float, capsys.readouterr().out.split()))
    assert predicted == pytest.approx(list(written), abs=1e-4)
    (score,) = scores.statistics(f"pearson_{TASK_TYPE}_de", "valid")
    assert float(score) == pytest.approx(100 * statistics.correlation(gold, predicted), abs=0.006)

    model_convert.main([str(checkpoint), str(tmp_path / "xlmr"), "--data", str(encoded)])
    assert json.loads((tmp_path / "xlmr/config.json").read_text("utf-8"))["model_type"] == "xlm-roberta"
    model_export.main([str(checkpoint), str(tmp_path / "onnx"), "--data", str(encoded)])
    exported = Exported(tmp_path / "onnx", threads=1)
    assert exported.description["kind"] == TASK_TYPE
    encode, symbols = TextEncoder(encoded, XLDictionary.load(encoded / "dict.txt")), exported.description["symbols"]
    first, second = (encode(text, "de").tolist() for text in pairs[0].split("\t"))
    tokens = np.array([[symbols["start"], *first, symbols["end"], *second]])
    outputs = exported.graphs["model"]({"tokens": tokens, "padding_mask": tokens == symbols["pad"]})
    assert 5 * outputs["scores"][0] == pytest.approx(predicted[0], abs=1e-4)


@pytest.mark.slow
def test_a_head_of_another_package_is_converted_and_its_training_planned(installed_type, encoded, tmp_path, capsys):
    """transformers computes the same similarities; a dry run reads generated pairs."""
    from transformers import AutoModelForSequenceClassification

    write_pairs(tmp_path)
    task = cli(task=f"xl_{TASK_TYPE}", criterion=f"xl_{TASK_TYPE}", arch="xl_xlmr_tiny", layers=1)
    run_train([encoded, *task, *labeled(tmp_path, tmp_path / "run"), "--pooler", "--max-update", 2])
    checkpoint, text = tmp_path / "run/checkpoint_last.pt", "Haus\tGarten"
    model_convert.main([str(checkpoint), str(tmp_path / "xlmr"), "--data", str(encoded)])
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "xlmr").eval()
    (tmp_path / "text").write_text(f"{text}\n", encoding="utf-8")
    capsys.readouterr()
    predict.main([*map(str, (checkpoint, encoded)), "--lang", "de", "--input", str(tmp_path / "text")])
    dictionary = XLDictionary.load(encoded / "dict.txt")
    encode, end = TextEncoder(encoded, dictionary), dictionary.eos()
    first, second = (encode(part, "de").tolist() for part in text.split("\t"))
    logits = model(torch.tensor([[dictionary.bos(), *first, end, *second]])).logits
    assert type(model).__name__ == "XLMRobertaForSequenceClassification" and logits.shape == (1, 1)
    assert 5 * logits.sigmoid().item() == pytest.approx(float(capsys.readouterr().out), abs=1e-4)

    (tmp_path / "run.yaml").write_text(f"task: xl_{TASK_TYPE}\ncriterion: xl_{TASK_TYPE}\n", encoding="utf-8")
    words = cli(arch="xl_xlmr_tiny", optimizer="adam", lr=0.001, batch_size=8, length=32, max_update=2)
    plan.main([str(tmp_path / "run.yaml"), *map(str, words), "--train-langs", "en,de"])
    batch = json.loads(capsys.readouterr().out)["batches"][f"xl_{TASK_TYPE}"]
    assert (batch["examples"], batch["tokens"]) == (8, 256)


def test_a_task_type_may_read_no_lines():
    with pytest.raises(
        UserError, match="ranking: this task type reads no lines of unlabeled text, it has no `from_line`"
    ):
        LabelledObjective.from_line(Ranking(Ranking.Config(), None, None), "text", "en", "file", 1)
