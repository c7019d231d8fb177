"""fairseq-train with --compile and --checkpoint-activations has the losses of a training without them."""

import re

import pytest
import torch
from torch._inductor import config as inductor

from fairseq_xl.errors import UserError
from tests.commands import ON, dan, denoising, equal_parameters, load, pretraining, run_train, translation
from tests.devices import DEVICES
from tests.distributed.two_processes import run_jobs

AOT = ["--compile", "--compile-backend", "aot_eager"]
#: inductor on a GPU; it is slow to compile for CPU
COMPILE = {"cpu": AOT, "cuda": ["--compile"]}
SAVING = ["--save-interval-updates", 1, "--disable-validation", "--no-epoch-checkpoints"]
NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0]
LAST = "checkpoint_last.pt"
RUNS = {
    "encoder": lambda data, folder, *more: pretraining(data, folder, "--updates-per-epoch", 4, "--layers", 2, *more),
    "denoising": lambda data, folder, *more: denoising(data, folder, "--updates-per-epoch", 4, *more),
    "translation": lambda data, folder, *more: translation(data, folder, "--lang-pairs", "en-de,de-en", *more),
}


@pytest.fixture(autouse=True)
def counters():
    """The counters of torch.compile of this test."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


def losses(output):
    return [float.fromhex(loss) for loss in output.losses]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(  # decoders are compiled in models/test_stacks.py too
    "name", ["encoder", *(pytest.param(name, marks=pytest.mark.slow) for name in ("translation", "denoising"))]
)
def test_compiled_training_has_the_same_losses(name, device, data_bin, tmp_path, counters):
    """With validation, which is not compiled, between the updates."""
    more = [*NO_DROPOUT, "--max-update", 5, "--validate-interval-updates", 2]
    plain = run_train(RUNS[name](data_bin, tmp_path / "plain", *more), ON[device])
    assert not counters
    compiled = run_train(RUNS[name](data_bin, tmp_path / "compiled", *more, *COMPILE[device]), ON[device])
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-5) and len(plain.losses) >= 5
    assert 0 < counters["stats"]["unique_graphs"] <= 6 and not counters["graph_break"]
    states = [load(tmp_path / folder / LAST) for folder in ("plain", "compiled")]
    assert list(states[0]) == list(states[1])


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_training_in_16_bits(device, data_bin, tmp_path):
    more, found = [*NO_DROPOUT, "--max-update", 3, "--disable-validation", "--bf16"], []
    for name, compile in {"plain": [], "compiled": COMPILE[device]}.items():
        found.append(run_train(RUNS["encoder"](data_bin, tmp_path / name, *more, *compile), ON[device]))
    assert losses(found[1]) == pytest.approx(losses(found[0]), rel=1e-3)


def test_compiled_training_resumes_what_is_not_compiled_and_the_reverse(data_bin, tmp_path):
    def run(folder, last, *more):
        return run_train(pretraining(data_bin, tmp_path / folder, *NO_DROPOUT, *SAVING, "--max-update", last, *more))

    parts = [run("parts", 2), run("parts", 4, *AOT), run("parts", 6)]
    assert sum(map(losses, parts), []) == pytest.approx(losses(run("whole", 6)), rel=1e-5)


def test_compiled_training_with_dropout_resumes_exactly(data_bin, tmp_path):
    def run(folder, last):
        more = [*AOT, "--checkpoint-activations", *SAVING, "--max-update", last]
        return run_train(pretraining(data_bin, tmp_path / folder, *more))

    whole = run("whole", 4)
    assert run("parts", 2).losses + run("parts", 4).losses == whole.losses
    assert equal_parameters(*(load(tmp_path / folder / LAST) for folder in ("whole", "parts")))


@pytest.mark.parametrize(  # of the families and types of models/test_stacks.py
    "name, precision", [("translation", []), ("encoder", ["--fp16", "--fp16-no-flatten-grads"])]
)
def test_checkpointed_training_gives_the_same_bits(name, precision, data_bin, tmp_path):
    """With dropout."""
    more = [*precision, "--max-update", 3, "--disable-validation"]
    plain = run_train(RUNS[name](data_bin, tmp_path / "plain", *more))
    checkpointed = run_train(RUNS[name](data_bin, tmp_path / "checkpointed", *more, "--checkpoint-activations"))
    assert plain.losses == checkpointed.losses and len(plain.losses) >= 3
    assert equal_parameters(*(load(tmp_path / folder / LAST) for folder in ("plain", "checkpointed")))


@pytest.mark.parametrize("backend", ["pytorch_ddp", pytest.param("legacy_ddp", marks=pytest.mark.slow)])
def test_compiled_training_in_two_processes(data_bin, tmp_path, backend):
    """With --checkpoint-activations too. Losses are those of layers that are not compiled."""
    shared = [*NO_DROPOUT, "--updates-per-epoch", 2, "--max-update", 2, "--disable-validation"]
    shared += ["--ddp-backend", backend]
    jobs = {"plain": [], "compiled": [*AOT, "--checkpoint-activations"]}
    lines = {name: pretraining(data_bin, tmp_path / name, *shared, *more) for name, more in jobs.items()}
    results = run_jobs(tmp_path / "results", lines)
    for rank in range(2):
        losses = [results[name][rank]["losses"] for name in ("plain", "compiled")]
        plain, compiled = ([float.fromhex(loss) for micro in each.values() for loss in micro] for each in losses)
        assert compiled == pytest.approx(plain, rel=1e-5) and len(plain) == 2


@inductor.patch({"cpp.cxx": ("no-such-compiler",)})
def test_compile_without_a_compiler_is_one_sentence(data_bin, tmp_path):
    expected = "--compile needs a C++ compiler, and none was found: install g++ (or set CXX), or leave out --compile"
    with pytest.raises(UserError, match=re.escape(expected)):
        run_train(pretraining(data_bin, tmp_path, "--compile", "--max-update", 1))


@pytest.mark.parametrize(
    "more, expected",
    [
        (["--compile", "--compile-backend", "inductr"], "--compile-backend inductr: choose one of "),
        (["--compile"], "--compile needs a Transformer, not a deep averaging network"),
        (["--checkpoint-activations"], "--checkpoint-activations needs a Transformer, not a deep averaging network"),
    ],
)
def test_compile_is_refused_in_one_sentence(more, expected, data_bin, tmp_path):
    line = pretraining if "inductr" in more else dan
    with pytest.raises(UserError, match=re.escape(expected)):
        run_train(line(data_bin, tmp_path, *more, "--max-update", 1))
