"""Several labelled objectives in one run, by themselves and beside pre-training.

They are learned, scored, predicted and resumed; mistakes are refused.
"""

import json
import math
import re
import statistics

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_xl.commands import score_classification, score_tagging
from fairseq_xl.errors import UserError
from tests.builders import (
    TYPES,
    folders,  # noqa: F401
    line as line_of,
    several,
    validation_losses,
)
from tests.command_line import cli
from tests.commands import equal_parameters, load, pretraining, run_train, run_validate
from tests.tasks.resuming import LAST, check_stop

PLAIN = ["--dropout", 0, "--attention-dropout", 0]
EPOCHS = 3  # of the run `learned`


def chosen(folders, *names):
    return {name: folders[name] for name in names}


@pytest.fixture(scope="module")
def learned(data_bin, folders, tmp_path_factory):
    """(folder of a run, its output): MLM, and objectives with a name of their own or that of their type."""
    folder = tmp_path_factory.mktemp("learned")
    named = {"nc": folders["nc"], "tagging": folders["ner"], "qa": folders["qa"]}
    options = "mlm.length=32 nc.eval_langs=en,de,fr " + " ".join(f"{name}.head_dropout=0" for name in named)
    select = ["--best-checkpoint-metric", "score", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
    more = [*select, *PLAIN, *cli(max_epoch=EPOCHS, lr=0.01, embed_dim=32, ffn_dim=64)]
    return folder, run_train(several(data_bin, named, folder, *more, others=["mlm"], options=options))


def test_each_objective_is_learned_and_scored(learned):
    folder, output = learned
    names = ("nc", "tagging", "qa")
    last = {key: float(value) for key, value in validation_losses(output)[-1].items() if key != "checkpoint"}
    (whole,) = [text for text in output.log.splitlines() if text.startswith(f'{{"epoch": {EPOCHS}, "train_')]
    assert "accuracy_nc_de" in whole and "f1_tagging_de" not in whole  # what training counts
    assert last["accuracy_nc_en"] + last["accuracy_nc_de"] > 2 * 90 and last["accuracy_nc"] > 75  # fr is not trained
    assert last["f1_tagging"] > 80 and last["f1_qa"] > 60
    assert last["score"] == pytest.approx((last["accuracy_nc"] + last["f1_tagging"] + last["f1_qa"]) / 3, abs=0.002)
    for name in ("accuracy_nc", "f1_tagging", "accuracy_tagging", "f1_qa", "exact_match_qa"):
        mean = statistics.mean(last[f"{name}_{code}"] for code in ("en", "de", "fr")[: 3 if "nc" in name else 2])
        assert last[name] == pytest.approx(mean, abs=0.01)
    assert {"mlm_de_ppl", "nc_loss", "qa_de_loss"} <= last.keys()
    heads = {name.split(".")[1] for name in load(folder / "checkpoint_best.pt") if name.startswith("heads.")}
    assert heads == set(names)


def test_each_batch_is_of_one_objective_and_each_example_in_one(learned):
    """A pass has 240, 100 and 100 examples; a question with a long context has several windows, each by itself."""
    _, output = learned
    samples = [sample for update in range(1, len(output.samples) // EPOCHS + 1) for sample in output.samples[update]]
    seen = {"mlm": [], "nc": [], "tagging": [], "qa": []}
    for sample in samples:
        seen[sample["objective"]] += sample["id"].tolist()
    assert len(seen["nc"]) == 240 and len(seen["tagging"]) == 100 and len(seen["qa"]) >= 100
    assert all(sorted(seen[name]) == list(range(len(seen[name]))) for name in ("nc", "tagging", "qa"))
    kinds = [sample["objective"] for sample in samples]
    assert set(kinds) == seen.keys() and kinds != sorted(kinds)


def test_predictions_are_written_for_each_labelled_objective(data_bin, learned, tmp_path, capsys):
    options = cli(task="xl_pretraining", path=learned[0] / "checkpoint_best.pt", user_dir="fairseq_xl", batch_size=8)
    (found,) = validation_losses(run_validate([data_bin, *options, "--predictions-to", tmp_path]))
    best = max(float(each["score"]) for each in validation_losses(learned[1]))
    assert float(found["score"]) == pytest.approx(best, abs=0.01)
    for command, name, measures in (
        (score_classification, "nc", ["accuracy"]),
        (score_tagging, "tagging", ["f1", "accuracy"]),
    ):
        capsys.readouterr()
        command.main([str(tmp_path / name), "--split", "valid", "--langs", "en,de"])
        scored = json.loads(capsys.readouterr().out)
        for measure in measures:
            for code in ("en", "de"):
                assert float(found[f"{measure}_{name}_{code}"]) == scored["languages"][code][measure]
    answers = json.loads((tmp_path / "qa/valid.de.json").read_text(encoding="utf-8"))
    assert len(answers) == 13 and len(list(tmp_path.rglob("valid.*"))) == 7


@pytest.mark.parametrize("name", ["nc", "ner"])
def test_the_loss_of_a_batch_is_that_of_the_task_by_itself(data_bin, folders, tmp_path, name):
    """The mean loss is the same in every update, and so are the parameters."""
    more = ["--max-update", 8, "--disable-validation", "--no-epoch-checkpoints", *PLAIN]
    options, task = f"{name}.head_dropout=0", TYPES[name]
    together = run_train(several(data_bin, {name: folders[name]}, tmp_path / "several", *more, options=options))
    line = line_of(data_bin, {task: folders[name]}, task, tmp_path / "alone", *more, "--head-dropout", 0)
    alone = run_train(line)
    for update, (one,) in together.samples.items():
        (other,) = alone.samples[update]
        assert torch.equal(one["batch"]["tokens"], other["batch"]["tokens"])
        expected = float.fromhex(alone.updates[update][0]) / other["batch"]["target"]["labeled"]
        assert float.fromhex(together.updates[update][0]) == pytest.approx(expected, rel=1e-5)
    one, other = (load(tmp_path / folder / LAST) for folder in ("several", "alone"))
    one = {key.replace(f"heads.{name}", f"heads.{task}"): value for key, value in one.items()}
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[key], other[key], atol=1e-4) for key in one)
    assert name == "ner" or equal_parameters(one, other)


def test_a_batch_counts_as_one_whatever_its_objective(data_bin, folders, tmp_path):
    """The loss of an update of one batch is the mean over its predictions."""
    more = [*cli(updates_per_epoch=6, max_update=6, disable_validation=True), "--no-epoch-checkpoints"]
    options = dict(others=["mlm"], options="mlm.length=32")
    output = run_train(several(data_bin, chosen(folders, "nc", "ner"), tmp_path, *more, **options))
    kinds = [samples[0]["objective"] for samples in output.samples.values()]
    assert kinds == ["mlm", "nc", "ner"] * 2
    losses = [float.fromhex(loss) for loss in output.losses]
    assert all(0.3 < loss < 6 for loss in losses)  # nats of a token, a class or a tag
    found = output.statistics("loss", "train"), *(output.statistics(f"{name}_loss", "train") for name in kinds[:3])
    (loss,), *parts = [[float(value) for value in values] for values in found]
    assert loss == pytest.approx(sum(losses) / 6 / math.log(2), abs=1e-3)
    # the terms of MLM are means over the tokens of two batches, those of labels too
    assert sum(value for (value,) in parts) / 3 == pytest.approx(loss, abs=0.1)


@pytest.mark.parametrize("epoch", ["auto", 9])
def test_a_stopped_run_beside_pretraining_resumes(data_bin, folders, tmp_path, epoch):
    def line(folder, *more):
        more = [*cli(updates_per_epoch=epoch, save_interval_updates=1), "--no-epoch-checkpoints", *more]
        options = dict(others=["mlm"], options="mlm.length=32")
        return several(data_bin, chosen(folders, "nc", "ner"), folder, *more, "--disable-validation", **options)

    whole = run_train(line(tmp_path / "whole", "--max-update", 12))
    check_stop(line, tmp_path / "parts", (tmp_path / "whole", whole), 5, 12)


def test_resume_is_exact(data_bin, folders, tmp_path):
    """An epoch has 4 batches of 60 examples of nc and 2 of 20 of ner; the second one is left in its middle."""

    def trained(folder, *ends):
        losses, options = [], "nc.examples_per_epoch=60 ner.examples_per_epoch=20"
        line = several(data_bin, chosen(folders, "nc", "ner"), tmp_path / folder, options=options)
        for end in ends:
            output = run_train([*line, "--max-update", end, "--disable-validation", "--no-epoch-checkpoints"])
            losses += output.losses
        return output, losses, load(tmp_path / folder / LAST)

    whole, parts = trained("whole", 13), trained("parts", 2, 8, 13)
    assert parts[1] == whole[1] and equal_parameters(whole[2], parts[2])
    counts = {"nc": 0, "ner": 0}
    for (sample,) in [whole[0].samples[update] for update in range(1, 7)]:
        counts[sample["objective"]] += len(sample["id"])
    assert counts == {"nc": 60, "ner": 20}


def test_objectives_in_other_languages(data_bin, folders, tmp_path):
    """ner has no German: its mean is that of English, and so is its part of the score."""
    (tmp_path / "ner").mkdir()
    for split in ("train", "valid"):
        (tmp_path / f"ner/{split}.en.tsv").write_bytes((folders["ner"] / f"{split}.en.tsv").read_bytes())
    named = chosen(folders | {"ner": tmp_path / "ner"}, "nc", "ner")
    only = "nc.train_langs=en ner.train_langs=en"

    def line(options, *more):
        more = [*more, "--max-update", 2, "--no-save"]
        return several(data_bin, named, tmp_path / "run", *more, options=f"{only} {options}")

    (found,) = validation_losses(run_train(line("ner.eval_langs=en")))
    assert found["f1_ner"] == found["f1_ner_en"] and "f1_ner_de" not in found and "accuracy_nc_de" in found
    parts = [float(found[name]) for name in ("accuracy_nc", "f1_ner")]
    assert float(found["score"]) == pytest.approx(statistics.mean(parts), abs=0.01)
    (found,) = validation_losses(run_train(line("ner.eval_langs=en nc.valid_langs=de")))
    assert found["accuracy_nc"] == found["accuracy_nc_de"] and "accuracy_nc_en" not in found
    refused(line(""), f"missing files: {tmp_path}/ner/valid.de.tsv of ner")
    metric = ["--best-checkpoint-metric", "f1_ner_de"]
    refused(line("ner.eval_langs=en", *metric), "--best-checkpoint-metric f1_ner_de: choose one of ppl, loss, score, ")


def test_the_only_language_of_a_run(data_bin, folders, tmp_path):
    """--lang is that of all objectives, and of a later evaluation; other languages can be evaluated."""
    line = several(data_bin, chosen(folders, "nc", "ner"), tmp_path, "--max-update", 3, options="nc.valid_langs=en")
    output = run_train([*line, "--lang", "de"])
    languages = {
        sample["batch"]["languages"].unique().tolist()[0] for each in output.samples.values() for sample in each
    }
    assert len(languages) == 1 and "accuracy_nc_de" in validation_losses(output)[-1]
    options = cli(task="xl_pretraining", path=tmp_path / LAST, user_dir="fairseq_xl", batch_size=8)
    (found,) = validation_losses(run_validate([data_bin, *options]))
    assert "f1_ner_de" in found and not {"accuracy_nc_en", "f1_ner_en"} & found.keys()
    (found,) = validation_losses(run_validate([data_bin, *options, "--objective-options", "nc.eval_langs=en"]))
    assert "accuracy_nc_en" in found and "accuracy_nc_de" not in found


def test_objectives_that_are_not_trained_have_no_part_in_the_score(data_bin, folders, tmp_path):
    more = ["--max-update", 1, "--no-save"]
    line = several(data_bin, chosen(folders, "nc", "ner"), tmp_path, *more, options="ner.weight=0")
    (found,) = validation_losses(run_train(line))
    assert "score" not in found and {"f1_ner", "accuracy_nc"} <= found.keys()
    refused([*line, "--best-checkpoint-metric", "score"], "score: choose one of ppl, loss, accuracy_nc")


def test_an_epoch_of_labelled_objectives_is_a_pass(data_bin, folders, tmp_path):
    """By default; 240 examples in batches of 16. With a number of updates there are no examples of an epoch."""
    more, options = ["--no-save", "--disable-validation"], "nc.examples_per_epoch=9"
    line = several(data_bin, chosen(folders, "nc"), tmp_path, *more, options=options)
    updates = run_train([*line, "--max-update", 1, "--updates-per-epoch", 2])
    assert f"no effect: --objective-options {options} (it is for --upd" in updates.log
    line = several(data_bin, chosen(folders, "nc"), tmp_path, "--max-epoch", 1, *more)
    place = line.index("--updates-per-epoch")
    assert len(run_train([*line[:place], *line[place + 2 :]]).updates) == 240 / 16


def refused(line, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)) as error:
        run_train(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "objectives, sentence",
    [
        ("mlm,x=tlm", "x=tlm: tlm reads no files of its own"),
        ("mlm,clm=classification", "clm=classification: clm is an objective: choose another name"),
        ("mlm,a.b=tagging", "a.b=tagging: a name has letters, digits, _ and - only"),
        ("mlm,mlm_en=tagging", "mlm_en_loss would stand for two values in the log"),
        ("mlm,a=tagging,b=tagging a.length=4", "--objective-options: a.length=4 should be at least 8 tokens"),
        ("mlm,a=ranking a.pooler_activation=relu", "a.pooler_activation=relu should be tanh without --pooler"),
        ("mlm,tagging tagging.eval_langs=", "expected names joined by commas"),
        ("mlm,classification", "--objective-options classification.task_files: name a folder of files"),
        (
            "nc=classification,t=generation nc.task_files=none nc.eval_langs=de t.task_files=/no",
            "missing files: none/train.en.tsv of nc, none/valid.de.tsv of nc, /no/train.en.src of t, "
            "/no/train.en.tgt of t, /no/valid.en.src of t, /no/valid.en.tgt of t",
        ),
        ("mlm,classification classification.alpha=0.3", "classification.alpha=0.3 should be left out"),
        ("mlm,tagging mlm.weight=0:1,9:0", "mlm.weight=0:1,9:0: it becomes 0, which needs a number of --updates"),
        ("mlm,tagging tagging.eval_langs=xx", "language 'xx' has no symbol"),
        ("mlm,tagging tagging.examples_per_epoch=0", "tagging.examples_per_epoch=0 should be 1 or more"),
    ],
)
def test_mistakes(data_bin, folders, tmp_path, objectives, sentence):
    objectives, _, options = objectives.partition(" ")
    options = f"mlm.length=32 tagging.task_files={folders['ner']} {options}"
    more = cli(objectives=objectives, objective_options=options, updates_per_epoch="auto", max_update=1)
    refused(pretraining(data_bin, tmp_path, *more), sentence)


def test_other_objectives_and_files_are_another_training(data_bin, folders, tmp_path):
    """Their classes are stored."""

    def line(named, *more):
        return several(data_bin, named, tmp_path / "run", *more, "--disable-validation")

    named = chosen(folders, "nc", "ner")
    run_train(line(named, "--max-update", 1))
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "run" / LAST))
    assert state["task_state"]["fairseq_xl"]["type_state"]["nc"] == {"labels": ["river", "stone"], "num_texts": 1}
    for path in (folders["nc"]).glob("*.tsv"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8").replace("stone", "rock"), encoding="utf-8")
    refused(line(named | {"nc": tmp_path}, "--max-update", 2), "was trained on other files, with nc labels")
    for others in ("ner", "nc"), ("nc",):
        sentence = f"was trained with the labelled objectives nc, ner; this run has {', '.join(others)}"
        refused(line(chosen(folders, *others), "--max-update", 2), sentence)
    options = cli(task="xl_pretraining", path=tmp_path / "run" / LAST, user_dir="fairseq_xl", batch_size=8)
    with pytest.raises(UserError, match="the model of this run is another one .*heads.ner"):
        run_validate([data_bin, *options, "--objectives", "nc=classification"])


def test_long_examples(data_bin, folders, tmp_path):
    """Messages name the option of the objective; limits of its batches replace those of the command line."""
    more = cli(max_update=1, no_save=True, max_tokens=9)
    line = [*several(data_bin, chosen(folders, "nc"), tmp_path, *more, options="nc.length=10"), "--disable-validation"]
    refused(line, "9: raise --max-tokens or lower --objective-options nc.length")
    place = line.index("--objective-options") + 1
    line[place] += " nc.batch_tokens=64"
    truncated = r"train: \d+ of 240 examples are truncated to --objective-options nc.length=10 "
    assert re.search(truncated, run_train(line).log)


def test_only_heads_of_the_first_token_have_the_pooler(data_bin, folders, tmp_path):
    line = several(data_bin, folders, tmp_path / "run", "--max-update", 1, options="nc.pooler=True")
    run_train([*line, "--disable-validation"])
    heads = {name.split(".")[1] for name in load(tmp_path / "run" / LAST) if ".pooler." in name}
    assert heads == {"nc"}
