"""Several tasks in one run: batches, losses, metrics, selection, predictions, resuming, mistakes."""

import json
import random
import statistics

import pytest
import torch

from fairseq_xl.commands import score_classification, score_tagging
from fairseq_xl.errors import UserError
from tests.command_line import cli
from tests.commands import classification, equal_parameters, labeled, load, run_train, run_validate
from tests.tasks.test_classification import write_task
from tests.tasks.test_evaluation_commands import validation_losses
from tests.tasks.test_finetuning_tasks import asked, line as line_of, tagged
from tests.tasks.tiny_text import WORDS, sentences

PLAIN = ["--dropout", 0, "--attention-dropout", 0, "--head-dropout", 0]
LEARNING = ["--embed-dim", 32, "--ffn-dim", 64, *PLAIN]
SHORT = ["--question-length", 8, "--stride", 8]


def write_others(root):
    """Writes files of tagging and of questions in English and German: {name of the task: folder}."""
    for name in ("ner", "qa"):
        (root / name).mkdir()
    for split, count in {"train": 50, "valid": 13, "test": 7}.items():
        drawn, rng = sentences(WORDS, count, f"{split} several"), random.Random(split)
        for code in ("en", "de"):
            tags = "\n".join(tagged(code, drawn[code], rng)).replace("B-X", "X").replace("I-X", "LOC")
            (root / f"ner/{split}.{code}.tsv").write_text(tags, encoding="utf-8")
            (root / f"qa/{split}.{code}.json").write_text(asked(code, drawn[code], rng), encoding="utf-8")
    return {"ner": root / "ner", "qa": root / "qa"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{name of a task: folder of its files}: 240 sentences to classify, 100 to tag, 100 questions. Read only."""
    root = tmp_path_factory.mktemp("several")
    return {"nc": write_task(root / "nc", sides=1)} | write_others(root)


TYPES = {"nc": "classification", "ner": "tagging", "qa": "question_answering"}


def named(folders, names=("nc", "ner", "qa")):
    """--subtasks with these names."""
    return " ".join(f"{name}={TYPES[name]}:{folders[name]}" for name in names)


def multitask(data, subtasks, save_dir, *more):
    """A command line of fairseq-train: one layer of 16 channels on several tasks in English and German."""
    line = labeled("none", save_dir)
    place = line.index("--task-files")
    chosen = cli(task="xl_multitask", criterion="xl_multitask", arch="xl_xlm_tiny", layers=1, subtasks=subtasks)
    return [data, *chosen, *line[:place], *line[place + 2 :], *SHORT, *more]


@pytest.fixture(scope="module")
def learned(data_bin, folders, tmp_path_factory):
    """(folder of a run, its output)."""
    folder = tmp_path_factory.mktemp("learned")
    select = ["--best-checkpoint-metric", "score", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
    return folder, run_train(
        multitask(data_bin, named(folders), folder, "--max-epoch", 8, "--lr", 0.01, *select, *LEARNING)
    )


def test_each_task_is_learned_and_scored(learned):
    _, output = learned
    measured = validation_losses(output)[-1].items()
    last = {
        name: float(value) for name, value in measured if name.split("_")[0] in ("score", "accuracy", "f1", "exact")
    }
    (whole,) = [text for text in output.log.splitlines() if text.startswith('{"epoch": 8, "train_')]
    assert "accuracy_nc_de" in whole and "f1_ner_de" not in whole  # what training counts
    assert last["accuracy_nc"] > 90 and last["f1_ner"] > 80 and last["f1_qa"] > 60
    assert last["score"] == pytest.approx((last["accuracy_nc"] + last["f1_ner"] + last["f1_qa"]) / 3, abs=0.002)
    for name in ("accuracy_nc", "f1_ner", "accuracy_ner", "f1_qa", "exact_match_qa"):
        mean = (last[f"{name}_en"] + last[f"{name}_de"]) / 2
        assert last[name] == pytest.approx(mean, abs=0.01)
    parameters = load(learned[0] / "checkpoint_best.pt")
    assert {name.split(".")[1] for name in parameters if name.startswith("heads.")} == {"nc", "ner", "qa"}


def test_each_batch_is_of_one_task_and_each_example_in_one(learned, folders):
    """An epoch has 240, 100 and 100 examples; a question with a long context has several windows, each by itself."""
    _, output = learned
    samples = [sample for update in range(1, len(output.samples) // 8 + 1) for sample in output.samples[update]]
    seen = {name: [] for name in TYPES}
    for sample in samples:
        seen[sample["objective"]] += sample["id"].tolist()
    assert len(seen["nc"]) == 240 and len(seen["ner"]) == 100 and len(seen["qa"]) >= 100
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in seen.values())


def test_predictions_are_written_for_each_task(data_bin, learned, folders, tmp_path, capsys):
    options = cli(task="xl_multitask", path=learned[0] / "checkpoint_best.pt", user_dir="fairseq_xl", batch_size=8)
    output = run_validate([data_bin, *options, "--predictions-to", tmp_path])
    (found,) = validation_losses(output)
    best = max(float(each["score"]) for each in validation_losses(learned[1]))
    assert float(found["score"]) == pytest.approx(best, abs=0.01)
    for command, name, measures in (
        (score_classification, "nc", ["accuracy"]),
        (score_tagging, "ner", ["f1", "accuracy"]),
    ):
        capsys.readouterr()
        command.main([str(tmp_path / name), "--split", "valid", "--langs", "en,de"])
        scored = json.loads(capsys.readouterr().out)
        for measure in measures:
            for code in ("en", "de"):
                assert float(found[f"{measure}_{name}_{code}"]) == scored["languages"][code][measure]
    answers = json.loads((tmp_path / "qa/valid.de.json").read_text(encoding="utf-8"))
    assert len(answers) == 13 and len(list(tmp_path.rglob("valid.*"))) == 6
    options = [*options, "--subtasks", named(folders, ["nc"])]
    with pytest.raises(UserError, match="has the subtasks nc=classification ner=tagging qa=.*--subtasks names nc="):
        run_validate([data_bin, *options])


@pytest.mark.parametrize("name", ["nc", "ner"])
def test_the_loss_of_a_batch_is_that_of_the_task_by_itself(data_bin, folders, tmp_path, name):
    """The mean loss is the same in every update, and so are the parameters; a sentence counts as one example."""
    more = ["--max-update", 8, "--disable-validation", "--no-epoch-checkpoints", *PLAIN]
    several = run_train(multitask(data_bin, named(folders, [name]), tmp_path / "several", *more))
    if name == "nc":
        alone = run_train(classification(data_bin, folders[name], tmp_path / "alone", *more))
    else:
        alone = run_train(line_of(data_bin, {"tagging": folders[name]}, "tagging", tmp_path / "alone", *more))
    for update, (one,) in several.samples.items():
        (other,) = alone.samples[update]
        assert torch.equal(one["batch"]["tokens"], other["batch"]["tokens"])
        size = other["batch"]["target"]["labeled"]
        expected = float.fromhex(alone.updates[update][0]) * len(one["id"]) / size
        assert float.fromhex(several.updates[update][0]) == pytest.approx(expected, rel=1e-5)
    one, other = (load(tmp_path / folder / "checkpoint_last.pt") for folder in ("several", "alone"))
    one = {key.replace(f"heads.{name}", f"heads.{TYPES[name]}"): value for key, value in one.items()}
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[key], other[key], atol=1e-4) for key in one)
    assert name == "ner" or equal_parameters(one, other)


def test_resume_is_exact(data_bin, folders, tmp_path):
    """An epoch of 70 examples has 4 batches of nc and 2 of ner each; the second one is left in its middle."""

    def trained(folder, *ends):
        losses = []
        for end in ends:
            sampling = ["--examples-per-epoch", 70, "--subtask-alpha", 0.5]
            more = ["--max-update", end, "--disable-validation", "--no-epoch-checkpoints", *sampling]
            losses += run_train(multitask(data_bin, named(folders, ["nc", "ner"]), tmp_path / folder, *more)).losses
        return losses, load(tmp_path / folder / "checkpoint_last.pt")

    whole, parts = trained("whole", 13), trained("parts", 2, 8, 13)
    assert parts[0] == whole[0] and equal_parameters(whole[1], parts[1])


def test_tasks_in_other_languages(data_bin, folders, tmp_path):
    """ner has no German: its mean is that of English, and so is its part of the score."""
    (tmp_path / "ner").mkdir()
    for split in ("train", "valid"):
        (tmp_path / f"ner/{split}.en.tsv").write_bytes((folders["ner"] / f"{split}.en.tsv").read_bytes())
    chosen = named(folders | {"ner": tmp_path / "ner"}, ["nc", "ner"])
    more = ["--train-langs", "en", "--max-update", 2, "--no-save"]
    line = multitask(data_bin, chosen, tmp_path / "run", *more)
    (found,) = validation_losses(run_train([*line, "--subtask-eval-langs", "ner=en"]))
    assert found["f1_ner"] == found["f1_ner_en"] and "f1_ner_de" not in found and "accuracy_nc_de" in found
    parts = [float(found[name]) for name in ("accuracy_nc", "f1_ner")]
    assert float(found["score"]) == pytest.approx(statistics.mean(parts), abs=0.01)
    refused(line, "ner/valid.de.tsv: no such file of labeled text")
    refused([*line, "--subtask-eval-langs", "ner=fr"], "--subtask-eval-langs ner=fr: fr is not in --eval-langs en,de")
    refused([*line, "--subtask-eval-langs", "qa=en"], "'qa=en': expected NAME=LANGUAGES once for each of nc, ner")
    only = ["--subtask-eval-langs", "ner=en", "--valid-langs", "de"]
    refused([*line, *only], "--subtask-eval-langs ner: none of its languages is among those of the split valid: de")
    metric = ["--subtask-eval-langs", "ner=en", "--best-checkpoint-metric", "f1_ner_de"]
    refused([*line, *metric], "--best-checkpoint-metric f1_ner_de: choose one of score, accuracy_nc, f1_ner,")


def refused(line, sentence):
    with pytest.raises(UserError) as error:
        run_train(line)
    assert sentence in str(error.value) and "\n" not in str(error.value), str(error.value)


@pytest.mark.parametrize(
    "subtasks, sentence",
    [
        ("nc=classification", "--subtasks 'nc=classification': expected NAME=TYPE:FOLDER"),
        ("n.c=classification:x", "NAME of letters, digits, - and _"),
        ("nc=classification:x nc=tagging:y", "--subtasks: nc is named twice"),
        ("nc=parsing:x", "task type 'parsing' is not one of classification, question-answering, ranking, tagging"),
        ("nc=classification:none", "none/train.en.tsv: no such file of labeled text in language 'en'"),
        ("nc=tagging:{nc}", "line 1: expected word TAB tag"),
        (" ", "--subtasks: name the subtasks, NAME=TYPE:FOLDER"),
    ],
)
def test_wrong_names_types_and_folders(data_bin, folders, tmp_path, subtasks, sentence):
    chosen = subtasks.format(**folders) if "{nc}" not in subtasks else f"nc=tagging:{write_wrong(tmp_path)}"
    refused(multitask(data_bin, chosen, tmp_path / "run"), sentence)


def write_wrong(folder):
    (folder / "train.en.tsv").write_text("no tags here\n")
    return folder


def test_other_files_and_options(data_bin, folders, tmp_path):
    line = multitask(data_bin, named(folders, ["nc", "ner"]), tmp_path / "run", "--max-update", 1)
    run_train([*line, "--disable-validation"])
    refused([*line, "--task-files", folders["nc"]], "--subtasks names the folder of each subtask instead")
    other = multitask(data_bin, named(folders, ["ner", "nc"]), tmp_path / "run", "--max-update", 2)
    refused(other, "with subtasks nc=classification ner=tagging; this run has ner=tagging nc=classification")
    refused([*line, "--subtask-alpha", -1], "--subtask-alpha -1.0: 0 or more")


def test_only_heads_of_the_first_token_have_the_pooler(data_bin, folders, tmp_path):
    line = multitask(data_bin, named(folders), tmp_path / "run", "--pooler", "--max-update", 1)
    run_train([*line, "--disable-validation"])
    heads = {name.split(".")[1] for name in load(tmp_path / "run/checkpoint_last.pt") if ".pooler." in name}
    assert heads == {"nc"}
