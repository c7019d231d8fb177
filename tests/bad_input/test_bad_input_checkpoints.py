"""Damaged and foreign checkpoints: every command that reads one says so, and no file is lost."""

import zipfile

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


def not_finite(loaded):
    name, value = max((item for item in loaded["model"].items() if item[0].startswith("encoder.")), key=str)
    value.view(-1)[3] = float("nan")


def of_transformers(loaded):
    return {"roberta.embeddings.word_embeddings.weight": torch.zeros(5, 4)}


def with_table(change):
    """An error: other values of the first table of token embeddings."""

    def spoil(loaded):
        name = min(name for name in loaded["model"] if name.endswith("table.weight"))
        loaded["model"][name] = change(loaded["model"][name])

    return state(spoil)


def compressed(path):
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)


def deeper(loaded):
    """Layers that would be built before the parameters are read."""
    for name in {"layers", "encoder_layers"} & loaded["cfg"]["model"].keys():
        loaded["cfg"]["model"][name] = 10**9


def nested(loaded):
    inner = loaded["extra_state"]
    for _ in range(100):
        inner["inner"] = inner = {}


def zeros(raw):
    """Zeros in the middle of the largest tensor, as in a block that was never written to the disk."""
    place = len(raw) // 3
    return raw[:place] + bytes(512) + raw[place + 512 :]


DAMAGED = "is not a checkpoint, or it is damaged or cut short"
NAN = "has NaN or infinite values in encoder."
NOT_OURS = "was not written by fairseq_xl"
MISTAKES = {
    "cut in the middle": (content(lambda raw: raw[: len(raw) // 2]), DAMAGED),
    "without its last bytes": (content(lambda raw: raw[:-10]), DAMAGED),
    "empty": (content(lambda raw: b""), DAMAGED),
    "zeros in the middle": (content(zeros), DAMAGED),
    "zeros only": (content(lambda raw: bytes(len(raw))), DAMAGED),
    "text": (content(lambda raw: b"the cat sat on the mat\n" * 30), DAMAGED),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), ""),
    "not finite": (state(not_finite), NAN),
    "weights alone": (state(lambda loaded: loaded["model"]), "is not a fairseq checkpoint"),
    "of transformers": (state(of_transformers), "is not a fairseq checkpoint"),
    "compressed": (compressed, "bytes declare"),
    "a sparse table": (with_table(lambda table: table.to_sparse()), "table.weight' is a sparse"),
    "a table of one number": (with_table(lambda table: torch.zeros(1, 1).expand(10**6, 10**6)), "(1000000, 1000000)"),
    "complex numbers": (with_table(lambda table: table.to(torch.complex64)), "torch.complex64"),
    "integers": (with_table(lambda table: table.long()), "values of torch.int64"),
    "a billion layers": (state(deeper), "layers 1000000000"),
    "nested": (state(nested), "nested more than"),
    "half of a character": (
        state(lambda loaded: loaded["cfg"]["task"].update(data="\ud800")),
        "'cfg.task.data' is text",
    ),
    "of another fairseq task": (state(lambda loaded: loaded.pop("task_state") and None), NOT_OURS),
    "of another program": (state(lambda loaded: loaded["task_state"].update(fairseq_xl=[1])), NOT_OURS),
    "without its framing": (state(lambda loaded: loaded["task_state"]["fairseq_xl"].pop("framing") == 0), "framing"),
    "of a later format": (state(lambda loaded: loaded["task_state"]["fairseq_xl"].update(format=2)), "of format 2"),
}
FOR_A_MODEL = ["not finite", "integers", "a billion layers"]
FOR_A_TASK = ["of another fairseq task", "of another program", "without its framing", "of a later format"]


def check(place, tmp_path, mistake, names):
    spoil, sentence = MISTAKES[mistake]
    wrong = place.copy_of_checkpoints(tmp_path / "checkpoints")
    for task in TASKS:
        spoil(getattr(wrong, task))
    for name in names:
        out = tmp_path / name.replace(" ", "-")
        out.mkdir()
        fails(lambda: COMMANDS[name](wrong, out), tmp_path / "checkpoints", ".pt", sentence)
        written = [path.name for path in out.rglob("*") if path.is_file()]
        assert written in ([], ["generate-test.txt"]), name  # fairseq's log, without a hypothesis
    return wrong


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_no_checkpoint_of_ours(place, tmp_path, mistake):
    check(place, tmp_path, mistake, ["generate"] + ["average"] * (mistake not in [*FOR_A_TASK, *FOR_A_MODEL]))


@pytest.mark.parametrize("name", WITH_MODEL)
def test_every_command_looks_at_its_checkpoint(place, tmp_path, name):
    check(place, tmp_path, "zeros in the middle", [name])
    if name != "average":  # which works on any model's
        (tmp_path / "more").mkdir()
        check(place, tmp_path / "more", "of another fairseq task", [name])


RESUMED = ["empty", "zeros in the middle", "not finite", "a folder", "weights alone", *FOR_A_TASK[::2]]


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


def test_without_a_configuration(place, tmp_path):
    wrong = place.copy_of_checkpoints(tmp_path / "checkpoints")
    for change in (lambda loaded: loaded.pop("cfg") and None, lambda loaded: loaded.update(cfg=3)):
        state(change)(wrong.translation)
        fails(lambda: COMMANDS["generate"](wrong, tmp_path / "out"), wrong.translation, "is not a")


def test_with_parts_of_a_configuration(place, tmp_path):
    wrong = place.copy_of_checkpoints(tmp_path / "checkpoints")
    parts = dict.fromkeys(("dataset", "optimization"))
    state(lambda loaded: loaded["cfg"].update(parts) or loaded["cfg"].pop("optimizer") is None)(wrong.translation)
    COMMANDS["validate translation"](wrong, tmp_path / "out")  # which has those of its own
    state(lambda loaded: loaded["cfg"].update(task=None))(wrong.translation)
    fails(lambda: COMMANDS["validate translation"](wrong, tmp_path / "out"), wrong.translation, "lacks task")


def test_missing(place, tmp_path):
    nowhere = tmp_path / "nowhere.pt"
    wrong = place.but(**dict.fromkeys(TASKS, nowhere))
    for name in WITH_MODEL:
        fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), nowhere)


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
        ("generate", "classification", "is not a translation model"),
        ("generate", "pretraining", "is not a translation model"),
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
    reads = {"generate": "translation", "eval-lm": "pretraining"}.get(name, name.split()[-1])
    path = getattr(place, given)
    fails(lambda: COMMANDS[name](place.but(**{reads: path}), tmp_path / "out"), path, sentence)
