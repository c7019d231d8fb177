"""Training in 16 bits: close to 32 bits, exact on resume; parameters that an update does not use stay."""

import itertools
import sys

import pytest
import torch
from fairseq import checkpoint_utils, options

from fairseq_xl.models.model_options import EncoderConfig
from fairseq_xl.modules.embeddings import TokenEmbeddings
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.objectives import OBJECTIVES
from tests.builders import eval_lm, validation_losses, write_task
from tests.command_line import cli
from tests.commands import (
    ON,
    classification,
    denoising,
    equal_parameters,
    load,
    pretraining,
    run_train,
    run_validate,
    translation,
    unsupervised,
)
from tests.devices import needs_cuda
from tests.distributed.headed import Headed
from tests.tasks.generating import generate, hypotheses
from tests.tasks.resuming import SAVING, losses_after

#: flag -> the type of the model's parameters
PRECISIONS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "memory-efficient-fp16": torch.float16,
    "memory-efficient-bf16": torch.bfloat16,
}
UPDATES = 40
#: that of the weights with which the bounds below were measured
INITIAL = ("--init-std", 0.02)


def losses(output):
    return [float.fromhex(loss) for loss in output.losses]


def state_of(path):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))


def trained_parameters(path):
    """{name: the values that the optimizer updates}: the 32-bit copies if there are any."""
    state = state_of(path)
    masters = state["last_optimizer_state"].get("fp32_params")
    return state["model"] if masters is None else dict(zip(state["model"], masters, strict=True))


@pytest.fixture(scope="module")
def in_32_bits(data_bin, tmp_path_factory):
    """Losses of every update of MLM and TLM."""
    line = pretraining(data_bin, tmp_path_factory.mktemp("fp32"), "--max-update", UPDATES, *INITIAL)
    return losses(run_train([*line, "--disable-validation", "--no-save"]))


@pytest.mark.parametrize("name", PRECISIONS)
def test_losses_are_those_of_32_bits_but_for_rounding(data_bin, in_32_bits, tmp_path, name):
    """Within a quarter of the type's `eps`, the largest rounding of one number: errors average out.

    Measured over two seeds: 0.06 of it for fp16, 0.13 for bf16. Without parameters in 32 bits updates are rounded too,
    and small ones lost: 0.3 and 2.1 of it, so 4 are allowed.
    """
    line = pretraining(data_bin, tmp_path, "--max-update", UPDATES, f"--{name}", *INITIAL)
    found = losses(run_train([*line, "--disable-validation", "--no-save"]))
    eps = torch.finfo(PRECISIONS[name]).eps
    assert found == pytest.approx(in_32_bits, rel=4 * eps if name.startswith("memory") else eps / 4)
    assert found != in_32_bits
    for objective in (0, 1):  # mlm and tlm take turns
        assert sum(found[objective::2][-5:]) < 0.93 * sum(found[objective::2][:5])


@pytest.mark.parametrize("objective, name", [("xdae", "bf16"), ("xfnp", "fp16")])
def test_decoders_too(data_bin, tmp_path, objective, name):
    """Their one table of tokens is looked up twice; bounds as above, from fewer updates.

    Updates are plain gradient descent: Adam divides a gradient by its own size, so a gradient near zero whose rounding
    has the wrong sign moves its parameter by the whole learning rate, on one kind of processor and not on another.
    """
    more = cli(optimizer="sgd", lr=0.1, max_update=10, disable_validation=True, no_save=True)
    line = denoising(data_bin, tmp_path, *cli(arch=f"xl_{objective}_tiny"), *more, *INITIAL, objectives=objective)
    expected, found = (losses(run_train([*line, *flags])) for flags in ([], [f"--{name}"]))
    assert sum(expected[5:]) < 0.98 * sum(expected[:5])
    assert found == pytest.approx(expected, rel=torch.finfo(PRECISIONS[name]).eps / 4)
    assert found != expected


# Resume

#: the scale is too high at first, and grows again every third update: it overflows before and after the stop
SCALING = ["--fp16-init-scale", 2**24, "--fp16-scale-window", 3]


@pytest.mark.parametrize("name", PRECISIONS)
def test_resume_is_exact(data_bin, tmp_path, name):
    """From a checkpoint with 16 bits for the model and 32 for training."""
    scaling = SCALING if name.endswith("fp16") else []

    def line(folder, last):
        more = ["--updates-per-epoch", 5, "--max-update", last, f"--{name}", *scaling, *SAVING]
        return pretraining(data_bin, tmp_path / folder, *more)

    def fits(values):
        return all(torch.equal(value, value.to(PRECISIONS[name]).float()) for value in values)

    whole = run_train(line("whole", 12))
    first, rest = run_train(line("parts", 7)), run_train(line("parts", 12))
    assert losses_after(rest, 0) == losses_after(whole, 7)
    paths = [tmp_path / run / "checkpoint_last.pt" for run in ("whole", "parts")]
    assert equal_parameters(*map(trained_parameters, paths))
    for part in (first, rest):
        assert ("overflow" in part.log) == bool(scaling)
    model = state_of(paths[0])["model"].values()
    assert all(value.dtype == torch.float32 for value in model) and fits(model)
    assert fits(trained_parameters(paths[0]).values()) == name.startswith("memory")
    moments = state_of(paths[0])["last_optimizer_state"]["state"].values()
    assert not fits([moment["exp_avg"] for moment in moments])


def test_an_overflow_on_cpu_beside_a_gpu(data_bin, tmp_path, monkeypatch):
    """With --cpu, moving anything to this GPU would be an error."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("current_device", "get_rng_state", "set_rng_state", "manual_seed", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *args: None)
    monkeypatch.setattr(torch.Tensor, "cuda", None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor)  # needs a GPU
    line = pretraining(data_bin, tmp_path, "--max-update", 3, "--disable-validation", "--no-save", "--fp16", *SCALING)
    output = run_train(line)
    assert "overflow" in output.log and 3 in output.updates


# What an update does not use


@pytest.mark.parametrize("name", [None, "fp16", "memory-efficient-bf16"])  # with scaling, with rounded parameters
def test_a_parameter_that_an_update_does_not_use_stays(data_bin, tmp_path, monkeypatch, name):
    """headed and tlm alternate; with zeros for gradients Adam would change headed's parameters in tlm's updates too."""
    monkeypatch.setitem(OBJECTIVES, Headed.name, Headed)
    flags = [f"--{name}"] if name else []
    flags += cli(max_update=4, save_interval_updates=1, disable_validation=True)
    run_train(pretraining(data_bin, tmp_path, *flags, objectives="headed,tlm"))
    after = [trained_parameters(tmp_path / f"checkpoint_1_{update}.pt") for update in (1, 2, 3, 4)]
    own = {"heads.headed.weight", "heads.headed.bias"}
    for update, (before, now) in enumerate(itertools.pairwise(after), start=2):
        same = {key for key in now if torch.equal(before[key], now[key])}
        assert same & own == (own if update % 2 == 0 else set()), update
        assert len(same - own) < 3  # what rounding to 16 bits hides


# Other tasks, and evaluation


def both_directions(data, files, folder, *more):
    return translation(data, folder, "--lang-pairs", "en-de,de-en", "--eval-bleu", *more)


def both_directions_unsupervised(data, files, folder, *more):
    return unsupervised(data, folder, *more, *cli(langs="en,de", updates_per_epoch=16, max_epoch=2))


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    return write_task(tmp_path_factory.mktemp("classes") / "sentences", sides=1)


@pytest.mark.parametrize(
    "command_line, name",
    [(both_directions, "bf16"), (both_directions_unsupervised, "fp16"), (classification, "bf16")],
)
def test_other_tasks_learn_and_are_validated(data_bin, task_files, tmp_path, name, command_line):
    output = run_train([*command_line(data_bin, task_files, tmp_path, "--max-epoch", 4, "--no-save"), f"--{name}"])
    seen = [float(found["loss"]) for found in validation_losses(output)]
    assert seen[-1] < seen[0] and all(loss == loss for loss in losses(output))
    assert bool(output.statistics("bleu", "valid")) == (command_line is not classification)


def test_generation_with_fp16(data_bin, tmp_path):
    """The hypotheses are the same, except one or two near ties; scores agree within the type's rounding."""
    more = cli(max_epoch=10, max_tokens=512, lr=0.01, fp16=True, no_epoch_checkpoints=True, disable_validation=True)
    run_train(both_directions(data_bin, None, tmp_path, *more))
    plain, half = (hypotheses(generate(data_bin, tmp_path / "checkpoint_last.pt", *more)) for more in ([], ["--fp16"]))
    same = [(one, other) for one, other in zip(plain, half, strict=True) if one[3] == other[3]]
    assert len(same) >= len(plain) - 2 and plain != half
    for one, other in same:
        assert one[1] == pytest.approx(other[1], abs=0.01)


def test_evaluation_with_fp16(data_bin, task_files, tmp_path):
    clm = ["--objectives", "clm", "--objective-options", "clm.length=32"]
    short = ["--max-update", 5, "--disable-validation"]
    run_train(pretraining(data_bin, tmp_path / "clm", *short, objectives="clm"))
    run_train(classification(data_bin, task_files, tmp_path / "nc", *short))

    def validate(task, folder, *more):
        line = ["--task", task, "--path", folder / "checkpoint_last.pt", "--max-tokens", 256]
        (found,) = validation_losses(run_validate([data_bin, "--user-dir", "fairseq_xl", *line, *more]))
        return float(found["loss"])

    language_model = tmp_path / "clm" / "checkpoint_last.pt"
    scores = {
        "eval-lm": lambda *more: eval_lm(data_bin, language_model, *clm, *more).result["loss"],
        "pre-training": lambda *more: validate("xl_pretraining", tmp_path / "clm", *more),
        "classification": lambda *more: validate("xl_classification", tmp_path / "nc", *more),
    }
    for name, score in scores.items():
        assert float(score("--fp16")) == pytest.approx(float(score()), rel=1e-3), name


def test_the_sum_of_many_losses_in_bfloat16():
    """With 2**24 logits torch's chunked loss would sum in 8 bits of precision."""
    layer = OutputLayer(EncoderConfig(embed_dim=8), TokenEmbeddings(2**14, 8, pad=1, output_bias=True)).bfloat16()
    layer.token_embeddings.bfloat16()
    hidden, target = torch.randn(2**10, 8).bfloat16(), torch.randint(2, 2**14, (2**10,))
    each = [layer.cross_entropy(part, goal) for part, goal in zip(hidden.split(64), target.split(64))]
    torch.testing.assert_close(layer.cross_entropy(hidden, target), sum(each), rtol=1e-5, atol=0.0)


# The command line


def parsed(monkeypatch, data, *flags):
    line = [str(argument) for argument in pretraining(data, "runs", *flags)]
    monkeypatch.setattr(sys, "argv", ["fairseq-train", *line])
    return [options.parse_args_and_arch(options.get_training_parser(), *given) for given in ([], [line])]


def test_bf16_asks_for_no_tpu(data_bin, monkeypatch):
    for flag in ("--bf16", "--memory-efficient-bf16"):
        assert all(args.bf16 and not args.tpu for args in parsed(monkeypatch, data_bin, flag))
        assert all(args.bf16 and args.tpu for args in parsed(monkeypatch, data_bin, flag, "--tpu"))
    assert not any(args.bf16 or args.tpu for args in parsed(monkeypatch, data_bin))


def test_amp_is_32_bits_on_cpu(data_bin, in_32_bits, tmp_path):
    line = pretraining(data_bin, tmp_path, "--max-update", 5, "--disable-validation", "--no-save", "--amp", *INITIAL)
    assert losses(run_train(line)) == in_32_bits[:5]


# On a GPU


@needs_cuda
@pytest.mark.parametrize("name", [*PRECISIONS, "amp"])
def test_on_a_gpu(data_bin, in_32_bits, tmp_path, name):
    """Losses fall as on CPU (dropout draws other numbers there, hence the tolerance), and a stopped run resumes."""

    def run(folder, last):
        more = ["--max-update", last, "--disable-validation", "--no-epoch-checkpoints", f"--{name}"]
        return run_train(pretraining(data_bin, tmp_path / folder, *more, *INITIAL), ON["cuda"])

    whole = run("whole", UPDATES)
    assert losses(whole) == pytest.approx(in_32_bits, rel=0.1)
    run("parts", 3)
    rest = run("parts", UPDATES)
    found = [float.fromhex(loss) for update in losses_after(rest, 0) for loss in update]
    assert found == pytest.approx(losses(whole)[3:], rel=0.01)  # sums on a GPU have no fixed order
    assert next(iter(load(tmp_path / "parts" / "checkpoint_last.pt").values())).isfinite().all()
