"""No loss of a training step waits for the GPU: each is computed on the meta device, which has no data to wait for."""

import copy
import json
import shutil

import pytest
import torch
from fairseq import utils

from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.tasks.base import XLTask
from tests.command_line import cli
from tests.commands import dan, denoising, generation, labeled, pretraining, run_train, translation, unlabelled
from tests.tiny_data import write_items
from tests.waits import no_waits


def on_meta(value):
    """A model or a batch without data; arrays and numbers stay."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).to("meta")
    return utils.apply_to_sample(lambda tensor: tensor.to("meta"), value)


@pytest.fixture
def checked(monkeypatch):
    """Names of what was computed on the meta device: before each training step its loss and gradients are, too."""
    found, step = [], XLTask.train_step

    def checked_step(self, sample, model, criterion, *more, **named):
        if "objective" in sample and sample["objective"] == "back_translation":  # generates text step by step
            translated = self.objectives["back_translation"].translated(model, sample["batch"])
            sample = sample | {"batch": sample["batch"] | {"source": translated}}
        without_data, batch = on_meta(model), on_meta(sample)
        with no_waits():
            loss, _, _ = criterion(without_data.train(), batch)
            loss.backward()
        assert any(parameter.grad is not None for parameter in without_data.parameters())
        found.append(sample.get("objective", self.cfg._name))
        return step(self, sample, model, criterion, *more, **named)

    monkeypatch.setattr(XLTask, "train_step", checked_step)
    return found


ONCE = [*cli(max_update=1), "--disable-validation", "--no-save"]


def all_in_one_update(names):
    """Options of a pre-training whose only update has a batch of each of the objectives."""
    return [*cli(schedule="cycle", update_freq=len(names), updates_per_epoch=1), *ONCE]


@pytest.fixture(scope="module")
def documents(data_bin, tmp_path_factory):
    """The data folder with an empty line after every ten lines of the training text."""
    folder = shutil.copytree(data_bin, tmp_path_factory.mktemp("documents") / "data-bin")
    (folder / "manifest.json").unlink()
    bitexts = [folder / f"{name}/train.{name}.{code}" for name in ("en-de", "en-fr") for code in name.split("-")]
    for path in [folder / f"{code}/train" for code in ("en", "de", "fr")] + bitexts:
        text = open_text(path, path.suffix.removeprefix(".") or path.parent.name)
        lines = [text[line].tolist() for line in range(len(text))]
        del text
        write_items(path, [line for n in range(0, len(lines), 10) for line in [*lines[n : n + 10], [2]]])
    return folder


PRETRAINING = {
    "encoder": (pretraining, "xl_xlmr_tiny", "mlm tlm clm cross_lingual_mlm word_recovery paraphrase"),
    "veco": (pretraining, "xl_veco_tiny", "veco_mono veco_bi"),
    "monotrans": (pretraining, "xl_monotrans_tiny", "nsp"),
    "denoising": (denoising, "xl_xdae_tiny", "xdae translation back_translation"),
    "future n-grams": (denoising, "xl_xfnp_tiny", "xfnp"),
}


@pytest.mark.parametrize("kind", PRETRAINING)
def test_pretraining_does_not_sync(documents, tmp_path, checked, kind):
    command, arch, names = PRETRAINING[kind]
    names = names.split()
    more = [*cli(arch=arch), *all_in_one_update(names)]
    run_train(command(documents, tmp_path, *more, objectives=",".join(names)))
    assert sorted(checked) == sorted(names)


def test_the_first_stage_of_veco_does_not_sync(data_bin, tmp_path, checked):
    names = ["veco_mono", "veco_bi"]
    more = [*cli(arch="xl_veco_tiny", train_only="*.cross_attention*"), *all_in_one_update(names)]
    run_train(pretraining(data_bin, tmp_path, *more, objectives=",".join(names)))
    assert sorted(checked) == sorted(names)


def test_the_network_for_mining_does_not_sync(data_bin, tmp_path, checked):
    run_train(dan(data_bin, tmp_path, *ONCE))
    assert checked == ["paraphrase_similarity"]


def test_all_objectives_are_checked():
    named = {name for *_, names in PRETRAINING.values() for name in names.split()} | {"paraphrase_similarity"}
    ours = set(unlabelled())
    assert named == ours


def test_translation_does_not_sync(data_bin, tmp_path, checked):
    run_train(translation(data_bin, tmp_path, *cli(s="en", t="de", label_smoothing=0.1), *ONCE))
    assert checked == ["translation"]


CONTEXT = "one two three four"
SQUAD = [
    {"context": CONTEXT, "qas": [{"id": "q", "question": "five", "answers": [{"text": "two", "answer_start": 4}]}]}
]
#: task type -> ending and content of its files
FILES = {
    "classification": {"tsv": "yes\tone two three\nno\tfour\n"},
    "tagging": {"tsv": "one\tB-X\ntwo\tO\n\nthree\tO\n\n"},
    "ranking": {"tsv": "2\tquery\tone two\n0\tquery\tthree\n1\tother\tfour\n"},
    "question_answering": {"json": json.dumps({"data": [{"paragraphs": SQUAD}]})},
    "generation": {"src": "one two three\nfour\n", "tgt": "one\nfour four\n"},
}


@pytest.mark.parametrize("name", FILES)
def test_fine_tuning_does_not_sync(data_bin, tmp_path, checked, name):
    for suffix, content in FILES[name].items():
        for code in ("en", "de"):
            (tmp_path / f"train.{code}.{suffix}").write_text(content, encoding="utf-8")
    if name == "generation":
        line = generation(data_bin, tmp_path, tmp_path, *cli(arch="xl_xfnp_tiny", label_smoothing=0.1))
    else:
        task = cli(task=f"xl_{name}", criterion=f"xl_{name}", arch="xl_xlm_tiny", layers=1)
        short = cli(question_length=8, stride=8) if name == "question_answering" else []
        line = [data_bin, *task, *labeled(tmp_path, tmp_path), *short]
    run_train([*line, *ONCE])
    assert checked == [name]
