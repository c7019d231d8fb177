"""Classification through fairseq-train and fairseq-validate: it learns, selects, resumes, writes and warns."""

import gzip
import json
import re
import shutil

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_xl.commands import score_classification
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import classification_scores as scores
from fairseq_xl.io.checkpoints import load_plain, save_checkpoint
from fairseq_xl.objectives.classification import Classification
from fairseq_xl.objectives.predictions import Predictions
from tests.builders import SPLITS, validation_losses, write_task
from tests.command_line import cli
from tests.commands import classification, run_train, run_validate

LEARNING = ["--embed-dim", 32, "--ffn-dim", 64, "--dropout", 0, "--attention-dropout", 0, "--head-dropout", 0]
EPOCHS = 4  # of the runs `learned`
CUT = gzip.compress(b"river\ta\n")[:-1]


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    """{1: folder of labeled sentences, 2: of pairs}. Read only."""
    root = tmp_path_factory.mktemp("tasks")
    return {sides: write_task(root / str(sides), sides) for sides in (1, 2)}


SELECTION = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]


@pytest.fixture(scope="module")
def learned(data_bin, task_files, tmp_path_factory):
    """{1 or 2: (folder of the run, its output)}."""
    made = {}
    for sides, files in task_files.items():
        folder = tmp_path_factory.mktemp(f"learned{sides}")
        line = classification(data_bin, files, folder, "--max-epoch", EPOCHS, "--lr", 0.01, *SELECTION, *LEARNING)
        made[sides] = folder, run_train(line)
    return made


def validate(data, checkpoint, *more):
    return run_validate(
        [data, *cli(task="xl_classification", path=checkpoint, user_dir="fairseq_xl", batch_size=8), *more]
    )


@pytest.fixture(scope="module")
def predicted(data_bin, learned, tmp_path_factory):
    """{1 or 2: folder with the predictions of the best checkpoint}."""
    folders = {sides: tmp_path_factory.mktemp(f"predicted{sides}") for sides in learned}
    for sides, folder in folders.items():
        checkpoint = learned[sides][0] / "checkpoint_best.pt"
        validate(data_bin, checkpoint, "--valid-subset", "valid,test", "--predictions-to", folder)
    return folders


@pytest.mark.parametrize("sides", [1, 2])
def test_it_learns_and_predicts_every_line(task_files, learned, predicted, sides, capsys):
    output, accuracy = learned[sides][1], {}
    assert re.search(r"classes: \w+ \(\d+ examples\), \w+ \(\d+ examples\)", output.log)
    for split in ("valid", "test"):
        score_classification.main([str(predicted[sides]), "--split", split, "--langs", "en,de"])
        result = json.loads(capsys.readouterr().out)
        assert result["accuracy"] > 90 and result["majority"] < 70
        accuracy[split] = result["accuracy"]
        for code in ("en", "de"):
            rows = (task_files[sides] / f"{split}.{code}.tsv").read_text(encoding="utf-8").splitlines()
            labels, _ = scores.read_predictions(predicted[sides] / f"{split}.{code}.tsv")
            assert labels == [row.split("\t")[0] for row in rows] and len(labels) == SPLITS[split]
    # the best epoch by the average over languages was kept
    seen = validation_losses(output)
    assert accuracy["valid"] == pytest.approx(max(float(found["accuracy"]) for found in seen), abs=0.01)
    for found in seen:
        mean = (float(found["accuracy_en"]) + float(found["accuracy_de"])) / 2
        assert float(found["accuracy"]) == pytest.approx(mean, abs=0.01)
    assert "has collapsed" not in output.log.split(f"epoch {EPOCHS - 1} until")[1]


def test_only_the_command_line_says_where_predictions_go(data_bin, learned, tmp_path):
    """A checkpoint, which may be someone else's, does not."""
    state = load_plain(learned[1][0] / "checkpoint_best.pt")
    without = {name: value for name, value in state["cfg"]["task"].items() if name != "predictions_to"}
    on_command_line = ["--predictions-to", tmp_path / "named"]
    for stored, named in ({"predictions_to": str(tmp_path / "stored")}, []), ({}, on_command_line):
        save_checkpoint(state | {"cfg": state["cfg"] | {"task": without | stored}}, tmp_path / "model.pt")
        validate(data_bin, tmp_path / "model.pt", *named)
        assert (tmp_path / "named").exists() == bool(named) and not (tmp_path / "stored").exists()


def test_predictions_of_some_examples_only_are_refused(data_bin, task_files, learned, tmp_path):
    """Those that --max-valid-steps leaves out are missing; no file is written."""
    more = ["--max-epoch", 2, "--no-save", "--predictions-to", tmp_path / "to", "--max-valid-steps", 1]
    line = classification(data_bin, task_files[1], tmp_path / "run", *more)
    refused(line, "--max-valid-steps 1 skipped", "31 of 31 examples of de", "of the split valid")
    assert not (tmp_path / "to").exists()


def test_predictions_in_training_are_those_of_the_last_validation(data_bin, task_files, tmp_path, monkeypatch):
    """The first of three epochs is validated in part only: its predictions do not complete those of the second."""
    keep, seen = Predictions.collect, []

    def some(predictions, *batch):
        seen.append(len(predictions.predictions.get("valid", ())))
        if len(seen) != 2:
            keep(predictions, *batch)

    monkeypatch.setattr(Predictions, "collect", some)
    monkeypatch.setattr(Predictions, "check_complete", lambda *_: None)
    line = classification(data_bin, task_files[1], tmp_path / "run", "--max-epoch", 3, "--no-save", *LEARNING)
    run_train([*line, "--predictions-to", tmp_path / "to"])
    batches = len(seen) // 3
    assert [seen[epoch * batches] for epoch in range(3)] == [0, 0, 0] and max(seen) > 0
    assert len((tmp_path / "to/valid.en.tsv").read_text(encoding="utf-8").splitlines()) == SPLITS["valid"]


def test_a_folder_has_predictions_of_one_checkpoint(data_bin, learned, tmp_path):
    """Another one may replace all of them: a repeated recipe, with more epochs, does. It does not add to them."""
    to, other = ["--predictions-to", tmp_path / "to"], tmp_path / "other.pt"
    for language in ("en", "de"):
        validate(data_bin, learned[1][0] / "checkpoint_best.pt", "--eval-langs", language, *to)
    save_checkpoint(load_plain(learned[1][0] / "checkpoint_last.pt") | {"extra_state": {}}, other)
    with pytest.raises(UserError, match=r"to has predictions of .*checkpoint_best.pt .*, valid.en.tsv among them"):
        validate(data_bin, other, "--eval-langs", "de,fr", *to)
    validate(data_bin, other, "--eval-langs", "en,de", *to)
    score_classification.main([str(tmp_path / "to"), "--split", "valid", "--langs", "en,de"])


def test_models_of_an_ensemble_have_learned_the_same_classes(learned):
    files = [str(learned[sides][0] / "checkpoint_best.pt") for sides in (1, 2)]
    with pytest.raises(UserError, match=f"{files[1]} was trained on other files than the checkpoint before it"):
        checkpoint_utils.load_model_ensemble_and_task(files)


def test_a_language_that_was_not_trained(data_bin, learned, tmp_path):
    """--eval-langs of the command line wins over --valid-langs of the training."""
    folder, _ = learned[1]
    state = load_plain(folder / "checkpoint_best.pt")
    state["cfg"]["task"]["valid_langs"] = "en"
    save_checkpoint(state, tmp_path / "english.pt")
    output = validate(data_bin, tmp_path / "english.pt", "--eval-langs", "fr", "--predictions-to", tmp_path / "to")
    (found,) = validation_losses(output)
    assert float(found["accuracy"]) == pytest.approx(float(found["accuracy_fr"]), abs=0.01)
    assert "accuracy_en" not in found
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["predictions.json", "valid.fr.tsv"]
    labels, predictions = scores.read_predictions(tmp_path / "to" / "valid.fr.tsv")
    assert float(found["accuracy_fr"]) == scores.score(labels, predictions)["accuracy"]


@pytest.mark.parametrize("sides", [1, 2])
def test_predictions_are_those_of_lines_by_themselves(data_bin, task_files, learned, predicted, sides):
    """The lines are encoded, framed and scored one by one, without padding."""
    import sentencepiece

    checkpoint = learned[sides][0] / "checkpoint_best.pt"
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    model.eval()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    rows = (predicted[sides] / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    lines = (task_files[sides] / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    german = torch.tensor([[task.dictionary.languages.index("de")]])
    for line, row in zip(lines, rows, strict=True):
        texts = [pieces.encode(text, out_type=str) for text in line.split("\t")[1:]]
        ids = [[task.dictionary.index(piece) for piece in text] for text in texts]
        tokens = [0, *ids[0], 2] if sides == 1 else [0, *ids[0], 2, 2, *ids[1], 2]
        with torch.no_grad():
            first = model.encode(torch.tensor([tokens]), languages=german)[0, 0]
            shares = model.heads["classification"](first).softmax(0)
        assert float(row.split("\t")[3]) == pytest.approx(float(shares.max()), abs=2e-6)
        assert row.split("\t")[2] == ("river", "stone")[int(shares.argmax())]


def test_unknown_characters_and_random_weights_are_reported(data_bin, task_files, tmp_path):
    """A tenth of the tokens of a language may be <unk> without a warning."""
    shutil.copytree(task_files[1], tmp_path / "files")
    written = tmp_path / "files/train.de.tsv"
    written.write_text(re.sub(r"\t.*", "\t§§ ¶¶ §§ ¶¶", written.read_text(encoding="utf-8")), encoding="utf-8")
    more = ["--train-langs", "en,de", "--max-update", 1, "--disable-validation"]
    log = run_train(classification(data_bin, tmp_path / "files", tmp_path / "run", *more)).log
    assert re.search(r"train\.de: \d\d % of the tokens are <unk>: the vocabulary lacks characters of this text", log)
    assert "train.en: " not in log and "the encoder has random weights: there is no --init-from" in log


def test_a_collapsed_model_is_reported(data_bin, task_files, tmp_path):
    """All training lines but one have the same class; validation text has balanced classes."""
    files = tmp_path / "files"
    files.mkdir()
    for code in ("en", "de"):
        rows = (task_files[1] / f"train.{code}.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        stone, river = ([row for row in rows if row.startswith(name)] for name in ("stone", "river"))
        (files / f"train.{code}.tsv").write_text("".join([*stone, rows[0], river[0]]))
        shutil.copy(task_files[1] / f"valid.{code}.tsv", files)
    line = classification(data_bin, files, tmp_path / "run", "--no-save")
    log = run_train([*line, "--max-epoch", 1]).log
    for code in ("en", "de"):
        assert log.count(f"the model has collapsed in {code}: 100.0 % of its predictions are 'stone'") == 1
    warm_up = cli(lr_scheduler="inverse_sqrt", warmup_updates=9, max_update=3, validate_interval_updates=1)
    log = run_train([*line, *warm_up]).log
    assert log.count("validation on valid after ") == 3 and log.count("the model has collapsed in en") <= 1
    for code in ("en", "de"):  # the same predictions are no collapse where that is the truth
        (files / f"valid.{code}.tsv").write_text("".join(stone) if code == "de" else "".join(stone[:3]))
    output = run_train([*line, "--max-epoch", 1])
    assert "has collapsed" not in output.log and float(validation_losses(output)[0]["accuracy"]) == 100


def test_a_collapse_in_one_language_is_reported(data_bin, learned, tmp_path):
    """A constant added to the embedding of French, which was not trained, makes all its predictions one class."""
    state = torch.load(learned[1][0] / "checkpoint_best.pt", weights_only=True)
    state["model"]["encoder.embeddings.languages.weight"][2] *= 1000  # of en, de, fr
    torch.save(state, tmp_path / "collapsed.pt")
    log = validate(data_bin, tmp_path / "collapsed.pt", *cli(eval_langs="en,de,fr", valid_subset="valid,test")).log
    assert [log.count(f"the model has collapsed in {code}:") for code in ("en", "de", "fr")] == [0, 0, 2]


# What is logged


def test_training_logs_the_accuracy_of_its_updates(data_bin, task_files, tmp_path, monkeypatch):
    """With a rate of 0 it is that of the same files in validation; no prediction is made for it."""
    files = tmp_path / "files"
    files.mkdir()
    for code in ("en", "de"):
        for split in ("train", "valid"):
            shutil.copy(task_files[1] / f"train.{code}.tsv", files / f"{split}.{code}.tsv")
    predict, predicted = Classification.predictions, []
    monkeypatch.setattr(Classification, "predictions", lambda *batch: predicted.append(1) or predict(*batch))
    line = classification(data_bin, files, tmp_path / "run", "--max-epoch", 1, "--no-save", "--lr", 0, *LEARNING)
    output = run_train([*line, "--log-interval", 100])
    (whole,) = [text for text in output.log.splitlines() if text.startswith('{"epoch": 1, "train_')]
    (valid,) = validation_losses(output)
    for name in ("accuracy", "accuracy_en", "accuracy_de"):
        assert f'"train_{name}": "{valid[name]}"' in whole, whole
    assert len(output.losses) == 15 and len(predicted) == 16  # a batch of validation has one language


# Mistakes


def refused(line, *sentence):
    with pytest.raises(UserError) as error:
        run_train(line)
    assert "\n" not in str(error.value)
    for part in sentence:
        assert str(part) in str(error.value), str(error.value)


@pytest.fixture
def changed(task_files, tmp_path):
    """A function: copies the sentences' files, replaces one, returns the folder."""

    def change(name, content):
        folder = shutil.copytree(task_files[1], tmp_path / "changed")
        (folder / name).write_bytes(content)
        return folder

    return change


def test_files_in_two_folders(data_bin, task_files, tmp_path):
    for name in ("translated", "rest"):
        (tmp_path / name).mkdir()
    for path in task_files[1].iterdir():
        folder = tmp_path / ("translated" if path.name == "train.de.tsv" else "rest")
        if path.name in ("train.de.tsv", "valid.en.tsv"):
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        else:
            shutil.copy(path, folder)
    files = f"{tmp_path / 'rest'}:{tmp_path / 'translated'}"
    seen = run_train(classification(data_bin, files, tmp_path / "run", "--max-update", 1, "--no-save"))
    assert len(seen.updates) == 1


ONE = b"river\ta\n"


@pytest.mark.parametrize(
    "name, content, more, sentence",
    [
        ("train.de.tsv", b"river\ta\tb\n", [], "train.de.tsv: expected label TAB text as in the other files, found 3"),
        ("train.de.tsv", ONE, ["--train-langs", "de"], "changed: the training files have one label only: 'river'"),
        ("valid.en.tsv", ONE + b"River\ta\n", [], "valid.en.tsv, line 2: label 'River' differs only in case"),
        ("test.de.tsv", ONE + b"river\n", [], "test.de.tsv, line 2"),
        ("test.de.tsv", ONE + b"_\ta\n", [], "test.de.tsv, line 2: no label"),
        ("test.de.tsv", CUT, [], "test.de.tsv is truncated: its gzip data has no end"),
        ("test.de.tsv", ONE, ["--best-checkpoint-metric", "f1"], "--best-checkpoint-metric f1: choose one of accuracy"),
        ("test.de.tsv", ONE, ["--valid-subset", "valid,valid1"], "valid1.en.tsv: no such file"),
    ],
)
def test_mistakes(data_bin, changed, tmp_path, monkeypatch, name, content, more, sentence):
    """Those of files for the test, and of options, are found before anything is encoded."""
    if name.startswith("test"):
        monkeypatch.setattr("fairseq_xl.objectives.data_folder.TextEncoder", None)
    refused([*classification(data_bin, changed(name, content), tmp_path / "run"), *more], sentence)


def test_test_files_without_labels_are_said_before_training(data_bin, changed, tmp_path):
    line = classification(data_bin, changed("test.de.tsv", b"_\ta\n"), tmp_path / "run")
    log = run_train([*line, "--max-update", 1, "--no-save"]).log
    said = log.index("without labels, to be predicted and not scored: ")
    assert "test.de.tsv" in log[said:].split("\n")[0] and "test.en.tsv" not in log[said:].split("\n")[0]


def test_resuming_with_other_files(data_bin, task_files, changed, tmp_path):
    """Renamed classes, and pairs instead of sentences, would fit the weights."""
    run_train(classification(data_bin, task_files[1], tmp_path / "run", "--max-update", 1, "--disable-validation"))
    rows = (task_files[1] / "train.en.tsv").read_bytes().replace(b"river\t", b"sand\t")
    line = classification(data_bin, changed("train.en.tsv", rows), tmp_path / "run", "--train-langs", "en")
    refused([*line, "--disable-validation"], "with labels ['river', 'stone']; this run has ['sand', 'stone']")
    refused(classification(data_bin, task_files[2], tmp_path / "run"), "with num texts 1; this run has 2")
