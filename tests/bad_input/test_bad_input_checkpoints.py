"""Damaged and foreign checkpoints: every command that reads one says so, and no file is lost."""

import functools

import pytest
import torch

from tests.bad_input.every_command import COMMANDS, TASKS, WITH_MODEL, fails, line_of
from tests.commands import run_train


def content(change):
    """An error: other bytes."""

    def spoil(path):
        path.write_bytes(change(path.read_bytes()))

    return spoil


def state(change):
    """An error: a checkpoint with other content."""

    def spoil(path):
        loaded = torch.load(path, weights_only=True)
        torch.save(change(loaded) or loaded, path)

    return spoil


def zeros(raw):
    """Zeros in the middle of the largest tensor, as in a block that was never written to the disk."""
    place = len(raw) // 3
    return raw[:place] + bytes(512) + raw[place + 512 :]


def integers(loaded):
    name = min(name for name in loaded["model"] if name.endswith("table.weight"))
    loaded["model"][name] = loaded["model"][name].long()


def not_finite(loaded):
    name, value = max((item for item in loaded["model"].items() if item[0].startswith("encoder.")), key=str)
    value.view(-1)[3] = float("nan")


def deeper(loaded):
    """Layers that would be built before the parameters are read."""
    for name in {"layers", "encoder_layers"} & loaded["cfg"]["model"].keys():
        loaded["cfg"]["model"][name] = 10**9


DAMAGED = "is not a checkpoint, or it is damaged or cut short"
NAN = "has NaN or infinite values in encoder."
NOT_OURS = "was not written by fairseq_xl"
MISTAKES = {
    "zeros in the middle": (content(zeros), DAMAGED),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), ""),
    "missing": (lambda path: path.unlink(), ""),
    "weights alone": (state(lambda loaded: loaded["model"]), "is not a fairseq checkpoint"),
    "without a configuration": (state(lambda loaded: loaded.pop("cfg") and None), "is not a"),
    "with a number as configuration": (state(lambda loaded: loaded.update(cfg=3)), "is not a"),
    "not finite": (state(not_finite), NAN),
    "integers": (state(integers), "values of torch.int64"),
    "a billion layers": (state(deeper), "layers 1000000000"),
    "of another fairseq task": (state(lambda loaded: loaded.pop("task_state") and None), NOT_OURS),
    "of another program": (state(lambda loaded: loaded["task_state"].update(fairseq_xl=[1])), NOT_OURS),
    "without its framing": (state(lambda loaded: loaded["task_state"]["fairseq_xl"].pop("framing") == 0), "framing"),
    "of a later format": (state(lambda loaded: loaded["task_state"]["fairseq_xl"].update(format=2)), "of format 2"),
}
#: mistakes that each command tells; tests/io/test_checkpoints.py has what is told of all files alike
EVERYWHERE = ["zeros in the middle", "missing", "of another fairseq task"]


@pytest.fixture(scope="module")
def damaged(place, tmp_path_factory):
    """A function: a mistake -> a place whose checkpoints have it. Read only."""

    @functools.cache
    def damaged(mistake):
        wrong = place.copy_of_checkpoints(tmp_path_factory.mktemp("wrong") / "checkpoints")
        for task in TASKS:
            MISTAKES[mistake][0](getattr(wrong, task))
        return wrong

    return damaged


def check(place, out, mistake, name):
    out.mkdir()
    folder = place.translation.parent
    fails(lambda: COMMANDS[name](place, out), folder, ".pt", MISTAKES[mistake][1])
    written = [path.name for path in out.rglob("*") if path.is_file()]
    assert written in ([], ["generate-test.txt"])  # fairseq's log, without a hypothesis


@pytest.mark.parametrize("mistake", [mistake for mistake in MISTAKES if mistake not in EVERYWHERE])
def test_what_is_no_checkpoint_of_ours(damaged, tmp_path, mistake):
    check(damaged(mistake), tmp_path / "out", mistake, "generate")


@pytest.mark.parametrize("name", WITH_MODEL)
def test_every_command_looks_at_its_checkpoint(damaged, tmp_path, name):
    for mistake in EVERYWHERE[: 2 if name == "average" else 3]:  # it works on any model's
        check(damaged(mistake), tmp_path / mistake, mistake, name)


RESUMED = ["zeros in the middle", "not finite", "a folder", "weights alone", "of another fairseq task"]


@pytest.mark.parametrize("mistake", RESUMED)
def test_resuming_keeps_what_it_refuses(place, tmp_path, mistake):
    spoil, sentence = MISTAKES[mistake]
    last = tmp_path / "run" / "checkpoint_last.pt"
    last.parent.mkdir()
    last.write_bytes(place.pretraining.read_bytes())
    spoil(last)
    before = last.read_bytes() if last.is_file() else None
    line = line_of("pretraining", place, tmp_path / "run", "--max-update", 2, "--disable-validation")
    remedies = "its folder has no other one: remove it", "continue from another checkpoint of its folder with --restore"
    for count, remedy in enumerate(remedies, start=1):
        fails(lambda: run_train(line), last, sentence, remedy if sentence in (DAMAGED, NAN) else "")
        assert len([*last.parent.iterdir()]) == count
        (last.parent / "checkpoint_1_1.pt").write_bytes(place.pretraining.read_bytes())
    assert before == (last.read_bytes() if last.is_file() else None)


def test_training_does_not_begin_anew_over_checkpoints_without_the_last(place, tmp_path):
    left = tmp_path / "run/checkpoint_1_20.pt"
    left.parent.mkdir()
    left.write_bytes(place.pretraining.read_bytes())
    line = line_of("pretraining", place, left.parent, "--max-update", 2, "--disable-validation")
    fails(lambda: run_train(line), "checkpoint_last.pt is missing", f"--restore-file {left}", "an empty --save-dir")
    assert [path.name for path in left.parent.iterdir()] == [left.name]
    assert list(run_train([*line, "--restore-file", left]).updates) == [2]


def test_parameters_that_its_own_configuration_lacks(place, tmp_path):
    wrong = place.copy_of_checkpoints(tmp_path / "checkpoints")
    for task in TASKS:
        state(lambda loaded: loaded["model"].pop(min(loaded["model"])) is None)(getattr(wrong, task))
    first = "embeddings.languages.weight"
    for name, missing in (("generate", f"decoder.{first}"), ("retrieval", f"encoder.{first}")):
        fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), tmp_path / "checkpoints", "Cannot load", missing)


def test_with_parts_of_a_configuration(place, tmp_path):
    wrong = place.copy_of_checkpoints(tmp_path / "checkpoints")
    parts = dict.fromkeys(("dataset", "optimization"))
    state(lambda loaded: loaded["cfg"].update(parts) or loaded["cfg"].pop("optimizer") is None)(wrong.translation)
    COMMANDS["validate translation"](wrong, tmp_path / "out")  # which has those of its own
    state(lambda loaded: loaded["cfg"].update(task=None))(wrong.translation)
    fails(lambda: COMMANDS["validate translation"](wrong, tmp_path / "out"), wrong.translation, "lacks task")


def test_another_architecture(place, tmp_path):
    (tmp_path / "run").mkdir()
    last = tmp_path / "run" / "checkpoint_last.pt"
    last.write_bytes(place.translation.read_bytes())
    line = line_of("translation", place, last.parent, "--max-update", 2, "--disable-validation")
    fails(lambda: run_train([*line, "--ffn-dim", 48]), last, "Cannot load model parameters", "(32, 16)", "(48, 16)")
    fails(lambda: run_train([*line, "--optimizer", "sgd"]), "Optimizer does not match", "--reset-optimizer")
    assert last.read_bytes() == place.translation.read_bytes()


@pytest.mark.parametrize(
    "before, now, sentence",
    [
        ("bf16", None, "adam, --bf16, this run has --criterion xl_translation, --optimizer adam, 32 bits: give the"),
        (
            "fp16",
            "memory-efficient-fp16",
            "adam, --fp16, this run has --criterion xl_translation, --optimizer adam, --memory-efficient-fp16: give",
        ),
    ],
)
def test_another_precision(place, tmp_path, before, now, sentence):
    """Its optimizer state is another one."""
    (tmp_path / "run").mkdir()
    last = tmp_path / "run" / "checkpoint_last.pt"
    last.write_bytes(place.translation.read_bytes())
    if before:
        state(lambda loaded: loaded["cfg"]["common"].update({before: True}))(last)
        state(lambda loaded: loaded["optimizer_history"][-1].update(optimizer_name="FP16Optimizer"))(last)
    content = last.read_bytes()
    line = line_of("translation", place, last.parent, "--max-update", 1, "--disable-validation")
    line += [f"--{now}"] if now else []
    fails(lambda: run_train(line), last, sentence)
    assert last.read_bytes() == content
    if before == "bf16" and now is None:
        run_train([*line, "--reset-optimizer"])


def test_models_of_two_framings_are_no_ensemble(place, tmp_path):
    wrong = place.copy_of_checkpoints(tmp_path / "checkpoints")
    state(lambda loaded: loaded["task_state"]["fairseq_xl"].update(framing="xlm"))(wrong.translation)
    both = place.but(translation=f"{place.translation}:{wrong.translation}")
    fails(lambda: COMMANDS["generate"](both, tmp_path / "out"), wrong.translation, "--framing xlm", "xl")


@pytest.mark.parametrize(
    "name, given, sentence",
    [
        ("generate", "pretraining", "is not a translation model"),
        ("back-translate", "pretraining", "is not a translation model: train one from it with"),
        ("eval-lm", "translation", "was trained with"),
        ("generate generation", "translation", "was not fine-tuned by xl_generation"),
        (
            "validate classification",
            "pretraining",
            "was trained with --task xl_pretraining, not with xl_classification",
        ),
    ],
)
def test_checkpoint_of_another_task(place, tmp_path, name, given, sentence):
    reads = {"generate": "translation", "back-translate": "translation", "eval-lm": "pretraining"}
    path = getattr(place, given)
    wrong = place.but(**{reads.get(name, name.split()[-1]): path})
    fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), path, sentence)
