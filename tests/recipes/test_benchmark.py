"""The benchmark runs for real at nano size; nothing here looks at how long anything took."""

import json
import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.models.encoder_decoder import Decoder
from recipes.benchmark import back_translation, beam_search, measure, systems
from recipes.benchmark.breakdown import KINDS
from recipes.benchmark.measure import cases
from recipes.benchmark.systems import NANO, OUTPUT_LOSSES, SYSTEMS, Trainer, batch_of
from recipes.benchmark.worker import is_out_of_memory
from tests.command_line import cli
from tests.commands import run_train, unsupervised
from tests.recipes.scripts import run

pytestmark = pytest.mark.usefixtures("warm")
STILL = replace(NANO, layers=2, dropout=0.0)


def benchmark(*arguments):
    return run("bash", Path(systems.__file__).parent / "run.sh", *arguments, timeout=1200)


@pytest.fixture(scope="module")
def translation(data_bin, tmp_path_factory):
    """A checkpoint of unsupervised translation after one update, and its data folder."""
    folder = tmp_path_factory.mktemp("unsupervised")
    run_train(unsupervised(data_bin, folder, *cli(langs="en,de", max_update=1, disable_validation=True)))
    return [str(folder / "checkpoint_last.pt"), str(data_bin)]


@pytest.fixture(scope="module")
def finished(translation, tmp_path_factory):
    """The folder of a run of two rounds, and its benchmark.json."""
    folder = tmp_path_factory.mktemp("benchmark")
    sizes = [f"{name}={value}" for name, value in asdict(NANO).items()]
    options = ["--unsupervised", *translation, "--rounds", "2", "--large-vocabulary", "300", "--shape", *sizes]
    options += ["--compile-backend", "aot_eager"]  # needs no compiler
    done = benchmark(str(folder), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, json.loads((folder / "benchmark.json").read_text())


@pytest.mark.slow
def test_every_system_took_the_same_steps_and_is_reported(finished):
    folder, found = finished
    ((name, case),) = found["cases"].items()
    assert set(case["losses"]) == set(SYSTEMS) and set(case["seconds"]) == {*SYSTEMS, "matmul"}
    for system, losses in case["losses"].items():
        rounds = case["rounds"][system]
        assert len(losses) == rounds["run"]
        assert len(case["seconds"][system]) == len(case["output_layer"]["seconds"][system]) == rounds["counted"] == 2
        for loss in losses:  # of a model that knows nothing yet
            assert abs(loss - math.log(NANO.vocabulary)) < 0.5
    parameters = case["parameters"]
    assert parameters["fairseq_xl"] == parameters["fairseq_xl --compile"] == parameters["fairseq"]
    # the embedding of transformers' one token type
    assert parameters["transformers"] == parameters["fairseq"] + NANO.embed_dim
    assert name == "1 x 16, 2 x 16 tokens, vocabulary 100, float32"
    assert case["shape"] == asdict(NANO) and found["memory"]["vocabulary"] == 300 and not case["failed"]
    assert all(found["versions"][name] for name in ("python", "torch", "fairseq", "transformers"))
    losses = {"torch linear_cross_entropy"} if hasattr(torch.nn.functional, "linear_cross_entropy") else set()
    for name, more in (("times_fairseq", set()), ("share_of_matmul_bound", set()), ("output_layer", losses)):
        ratios = case[name]["times_fairseq"] if name == "output_layer" else case[name]
        assert set(ratios) == {*SYSTEMS, *more}
        assert all(ratio["low"] <= ratio["median"] <= ratio["high"] for ratio in ratios.values())
    assert case["times_fairseq"]["fairseq"]["median"] == found["memory"]["times_fairseq"]["fairseq"] == 1
    for profile in case["profile"].values():
        assert list(profile["kinds"]) == [*KINDS, "other"] and profile["operators"]
        assert all(profile["kinds"][kind] > 0 for kind in ("matrix products", "optimizer", "GELU", "layer norm"))
    assert case["profile"]["fairseq_xl"]["kinds"]["cross-entropy"] > 0
    assert (folder / "benchmark.png").read_bytes().startswith(b"\x89PNG")
    assert all(kind in (folder / "profile.txt").read_text() for kind in KINDS)


class Failing:
    """A worker without a process, for which the memory does not suffice in the request `at`."""

    def __init__(self, at=None):
        self.at, self.requests = at, []

    def ask(self, do, **request):
        self.requests.append(do)
        if do == self.at:
            return {"failed": "out of memory"}
        kinds = dict.fromkeys([*KINDS, "other"], 1.0)
        return {
            "build": {"parameters": 7, "threads": 1},
            "peak": {"mib": 5.0},
            "profile": {"kinds": kinds, "operators": [["aten::mm", 1.0, 2]]},
            "free": {},
            "peak_of_products": {"flops_per_second": 1e12 if request.get("precision") == "float32" else 4e12},
        }.get(do, {"seconds": 0.5, "loss": 3.0, "processor_seconds": 1.0})


EVERY = [*SYSTEMS, "matmul"]


@pytest.mark.parametrize("at", ["build", "step", "peak", "output_step", "profile"])
@pytest.mark.parametrize("systems, device", [(["fairseq"], "cpu"), (["matmul"], "cuda"), (EVERY, "cpu")])
def test_a_system_without_enough_memory_is_listed_and_the_others_stay(systems, device, at):
    (case, *_) = cases(device, [])
    workers = {system: Failing(at if system in systems else None) for system in EVERY}
    found = measure.measure_speed(case._replace(output_losses=[]), workers, 2)
    failed = {system for system in systems if system != "matmul" or at in ("build", "step")}
    assert found["failed"] == dict.fromkeys(failed, "out of memory")
    left = [system for system in SYSTEMS if system not in failed]
    assert set(found["seconds"]) == {*left, "matmul"} - failed
    assert all(set(found[quantity]) == set(left) for quantity in ("losses", "peak_mib", "profile", "parameters"))
    with_ratios = set() if "fairseq" in failed else set(left)
    assert set(found["times_fairseq"]) == set(found["output_layer"]["times_fairseq"]) == with_ratios
    assert set(found["share_of_matmul_bound"]) == (set() if "matmul" in failed else set(left))
    assert all(worker.requests.count("free") == 1 for worker in workers.values())


@pytest.mark.parametrize("at", ["build", "output_step", "step", None])
def test_of_other_losses_only_the_output_layer_is_measured(at):
    (case, *_) = cases("cpu", [])
    one, other = OUTPUT_LOSSES
    workers = {system: Failing() for system in [*EVERY, other]} | {one: Failing(at)}
    found = measure.measure_speed(case._replace(output_losses=list(OUTPUT_LOSSES)), workers, 2)
    fails = at in ("build", "output_step")
    assert found["failed"] == ({one: "out of memory"} if fails else {})
    assert set(found["output_layer"]["times_fairseq"]) == {*SYSTEMS, other} | (set() if fails else {one})
    assert set(found["losses"]) == set(found["profile"]) == set(SYSTEMS) and set(found["seconds"]) == set(EVERY)
    begin, *steps, end = workers[other].requests  # more steps if other programs run
    assert (begin, set(steps), end) == ("build", {"output_step"}, "free")
    assert all(worker.requests.count("free") == 1 for worker in workers.values())


def test_results_without_some_systems_are_written(tmp_path):
    """Of one case without fairseq, of one without the matrix products, and of one with nothing."""
    found = {}
    for case, failed in zip(cases("cuda", []), (["fairseq"], ["matmul"], EVERY)):
        workers = {system: Failing("step" if system in failed else None) for system in [*EVERY, *OUTPUT_LOSSES]}
        found[case.name] = measure.measure_speed(case, workers, 2)
    measure._write(tmp_path, {"cases": found})
    assert {path.name for path in tmp_path.iterdir()} == {"benchmark.json", "benchmark.png", "profile.txt"}


def test_a_gpu_is_measured_in_the_order_of_importance(monkeypatch, tmp_path):
    """Its peak first, then each system after the other, the compiled one last; shares are of the precision's peak."""
    made, asked = {}, []

    def worker(system, *more):
        made[system] = Failing()
        recorded = lambda do, **request: asked.append((system, do)) or made[system].ask(do, **request)  # noqa: E731
        return SimpleNamespace(ask=recorded, end=lambda: None)

    monkeypatch.setattr(measure, "Worker", worker)
    monkeypatch.setattr(measure, "surroundings", lambda device: {"machine": {"device": device}})
    monkeypatch.setattr("sys.argv", ["measure", str(tmp_path), "--quick", "--device", "cuda"])
    measure.main()
    assert asked[:3] == [("matmul", "peak_of_products")] * 2 + [("matmul", "free")]
    assert list(dict.fromkeys(system for system, _ in asked[3:])) == [
        *["fairseq_xl", "fairseq", "transformers", "matmul", "fairseq_xl --compile", *systems.available_losses("cuda")]
    ]
    found = json.loads((tmp_path / "benchmark.json").read_text())
    assert found["peak_flops_per_second"] == {"bfloat16": 4e12, "float32": 1e12} and "memory" not in found
    for case in found["cases"].values():
        peak = 1e12 if case["precision"] == "float32" else 4e12
        assert case["share_of_peak"] == dict.fromkeys(case["seconds"], pytest.approx(case["flops"] / 0.5 / peak))
        assert len(case["share_of_peak"]) == (4 if case["precision"] == "float32" else 5)


def test_a_peak_that_fails_leaves_its_precision_out():
    class Half(Failing):
        def ask(self, do, **request):
            return {"failed": "absent"} if request.get("precision") == "bfloat16" else super().ask(do, **request)

    assert measure.measure_peaks(Half(), ["bfloat16", "float32"]) == {"float32": 1e12}


def test_any_error_of_a_system_is_its_first_line_and_the_next_request_gets_a_new_process(tmp_path):
    worker = measure.Worker("matmul", "cpu", "inductor", tmp_path / "log")
    assert worker.ask("free") == {} and worker.process is None
    build = {"shape": asdict(NANO), "precision": "float32", "optimize": True}
    failed = worker.ask("build", **build | {"precision": "float33"})
    assert failed == {"failed": "AttributeError: module 'torch' has no attribute 'float33'"}
    assert "Traceback" in (tmp_path / "log").read_text() and worker.process is None
    assert worker.ask("build", **build)["parameters"] == 0
    worker.process.terminate()  # kill() may leave a fork for a moment (tests/warm_python.py)
    worker.process.wait()
    assert worker.ask("step", batch=0) == {"failed": "the process ended with status -15, see log"}
    assert worker.process is None


def test_a_worker_is_ended_at_the_deadline(tmp_path):
    """It takes longer than a hundredth of a second to start; later requests start nothing."""
    worker = measure.Worker("matmul", "cpu", "inductor", tmp_path / "log", time.monotonic() + 0.01)
    for _ in range(2):
        assert worker.ask("step", batch=0) == {"failed": "not done within --deadline"}
        assert worker.process is None


def test_after_the_deadline_everything_is_listed_as_failed(tmp_path):
    done = benchmark(str(tmp_path), "--quick", "--deadline", "0")
    assert done.returncode == 0, done.stderr
    found, search = (json.loads((tmp_path / name).read_text()) for name in ("benchmark.json", "beam-search.json"))
    late = "not done within --deadline"
    (case,) = found["cases"].values()
    assert case["failed"] == dict.fromkeys([*EVERY, *systems.available_losses("cpu")], late) and not case["seconds"]
    assert found["memory"]["failed"] == dict.fromkeys([name for name in SYSTEMS if "compile" not in name], late)
    assert {name: case["failed"] for name, case in search["cases"].items()} == {"short": late, "long": late}
    refused = benchmark(str(tmp_path), "--deadline", "soon")
    assert refused.returncode == 2 and refused.stderr.endswith("--deadline needs a whole number of seconds\n")


def test_memory_of_a_system_that_fails(monkeypatch, tmp_path):
    made = lambda system, *more: SimpleNamespace(  # noqa: E731
        ask=Failing("step" if system == "fairseq" else None).ask, end=lambda: None
    )
    monkeypatch.setattr(measure, "Worker", made)
    (case,) = cases("cpu", [])
    found = measure.measure_memory(case, "aot_eager", tmp_path / "log")
    assert found["failed"] == {"fairseq": "out of memory"} and found["times_fairseq"] == {}
    assert found["peak_mib"] == dict.fromkeys([system for system in SYSTEMS if system != "fairseq"], 5.0)


def test_too_little_memory_is_noticed():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55)
    assert is_out_of_memory(raised.value) and is_out_of_memory(torch.OutOfMemoryError())
    assert not is_out_of_memory(RuntimeError("sizes differ"))


def test_an_unknown_size_is_refused():
    (case,) = measure.cases("cpu", ["embed_dim=64"])
    assert (case.shape.embed_dim, case.shape.ffn_dim) == (64, 256)
    (case,) = measure.cases("cpu", ["embed_dim=64", "ffn_dim=100", "layers=1"])
    assert (case.shape.embed_dim, case.shape.ffn_dim) == (64, 100)
    with pytest.raises(SystemExit, match="--shape layer: expected one of layers, embed_dim"):
        measure.cases("cpu", ["layer=2"])


def test_batches_are_the_same_everywhere_and_differ():
    one, again, other = batch_of(NANO, 3), batch_of(NANO, 3), batch_of(NANO, 4)
    assert all(torch.equal(left, right) for left, right in zip(one, again))
    assert not torch.equal(one.tokens, other.tokens)
    assert len(one.predicted) == len(one.predicted.unique()) == len(one.target) == NANO.predictions
    assert (one.tokens.view(-1)[one.predicted] == NANO.vocabulary - 1).all()


@pytest.mark.parametrize("system, layout", [("fairseq", "fairseq_roberta"), ("transformers", "xlm-roberta")])
def test_with_equal_weights_a_step_is_the_same(system, layout):
    """The loss, and the direction of the token table's gradient, in which every part of a step has a share.

    Its length depends on the other gradients, which transformers has one more of, through clipping.
    """
    batch = batch_of(STILL, 0)
    theirs, ours = SYSTEMS[system](STILL), SYSTEMS["fairseq_xl"](STILL)
    ours.model.load_state_dict(LAYOUTS[layout].to_ours(theirs.model.state_dict(), {}))
    losses, gradients = [], []
    for found in (theirs, ours):
        trainer = Trainer(found, optimize=False)
        losses.append(trainer.step(batch))
        gradient = next(p.grad for p in found.model.parameters() if p.shape == (STILL.vocabulary, 16))
        gradients.append(gradient / gradient.norm())
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_loss_decreases_in_bfloat16(system):
    """Ten steps on one batch lower the loss. Runs on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    trainer = Trainer(SYSTEMS[system](STILL), device, precision="bfloat16")
    wrapper = trainer.optimizer
    for group in (wrapper.torch_optimizer if hasattr(wrapper, "torch_optimizer") else wrapper.optimizer).param_groups:
        group["lr"] = 0.01
    batch = batch_of(STILL, 0, device)
    losses = [trainer.step(batch) for _ in range(10)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", OUTPUT_LOSSES)
def test_other_losses_are_ours(name):
    """The loss and the gradients of hidden states, matrix and dense layer."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in systems.available_losses(device):
        pytest.skip("needs torch 2.13 (linear_cross_entropy), or a GPU and the package liger-kernel")
    torch.manual_seed(1)
    theirs = systems.with_loss(name, NANO)
    theirs.model.to(device)
    hidden, target = torch.randn(9, NANO.embed_dim), torch.randint(NANO.vocabulary, (9,))
    hidden, target = hidden.to(device), target.to(device)
    found = []
    for output_loss in (theirs.output_loss, theirs.model.output.cross_entropy):
        theirs.model.zero_grad(set_to_none=True)
        inputs = hidden.clone().requires_grad_()
        loss = output_loss(inputs, target)
        loss.backward()
        weights = theirs.model.output.token_embeddings.output_matrix
        found.append((loss.detach(), inputs.grad, weights.grad, theirs.model.output.dense.weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_products_are_those_of_a_step():
    """Counted by torch while fairseq's step runs: with dropout all of its products are plain ones."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        Trainer(SYSTEMS["fairseq"](NANO)).step(batch_of(NANO, 0))
    assert counted.get_total_flops() == systems.flops(NANO)


@pytest.mark.slow
def test_generation_and_beam_search_are_kept(finished):
    folder, found = finished
    share, search = (json.loads((folder / f"{name}.json").read_text()) for name in ("back-translation", "beam-search"))
    assert all(each[name] == found[name] for name in ("machine", "versions") for each in (share, search))
    assert (share["model"]["encoder_layers"], share["model"]["embed_dim"], share["max_tokens"]) == (1, 16, 2048)
    assert share["share"]["median"] > 0 and len(share["seconds"]["generation"]) == len(share["seconds"]["step"]) > 0
    assert [case["shape"]["length"] for case in search["cases"].values()] == [25, 250]
    for case in search["cases"].values():
        assert (case["shape"]["layers"], case["shape"]["vocabulary"], case["shape"]["sentences"]) == (1, 100, 32)
        assert case["times_fairseq"]["median"] > 0 and len(case["seconds"]["fairseq_xl"]) == 2


@pytest.mark.parametrize(
    "options, message",
    [(["model.pt"], "--unsupervised needs CHECKPOINT and DATA"), (["no.pt", "."], "no.pt: no such file or folder")],
)
def test_a_model_that_is_not_there_is_refused(options, message, tmp_path):
    done = benchmark(str(tmp_path), "--unsupervised", *options)
    assert done.returncode == 2 and done.stderr.endswith(f"{message}\n") and not list(tmp_path.iterdir())


def test_the_share_of_generation(translation, monkeypatch, capsys):
    """The clock counts calls of the decoder: some in a translation, one more in a step."""
    calls, through_layers = [], Decoder.through_layers

    def counted(*arguments, **more):
        calls.append(None)
        return through_layers(*arguments, **more)

    monkeypatch.setattr(Decoder, "through_layers", counted)
    monkeypatch.setattr(back_translation.time, "perf_counter", lambda: len(calls))
    back_translation.main([*translation, *"--batches 3 --max-tokens 256".split()])
    found = json.loads(capsys.readouterr().out)
    assert (found["machine"]["device"], found["max_tokens"]) == ("cpu", 256)
    generation, step = (np.array(found["seconds"][name]) for name in ("generation", "step"))
    assert len(generation) == 3 and (generation > 1).all()
    assert (step == generation + 1).all()
    assert 0 < found["share"]["low"] <= found["share"]["median"] <= found["share"]["high"] < 1


TINY_SEARCH = beam_search.Shape(
    embed_dim=16, ffn_dim=32, heads=2, vocabulary=60, sentences=3, shortest=4, longest=9, length=6
)


def test_beam_search_finds_the_same_as_fairseq_with_the_same_weights(capsys):
    sizes = [f"{name}={value}" for name, value in asdict(replace(TINY_SEARCH, layers=1)).items()]
    beam_search.main(["--rounds", "2", "--cases", "short", "--shape", *sizes])
    found = json.loads(capsys.readouterr().out)
    assert (found["machine"]["device"], found["precision"]) == ("cpu", "fp32")
    assert list(found["cases"]) == ["short"]
    case = found["cases"]["short"]
    assert (case["shape"], case["same_outputs"]) == (asdict(replace(TINY_SEARCH, layers=1)), 1.0)
    assert {system: len(taken) for system, taken in case["seconds"].items()} == {"fairseq_xl": 2, "fairseq": 2}
    assert 0 < case["times_fairseq"]["low"] <= case["times_fairseq"]["median"] <= case["times_fairseq"]["high"]
    assert set(case["operators_per_step"]) == {"fairseq_xl", "fairseq"}


def test_beam_search_goes_on_after_an_error_and_stops_at_the_deadline(monkeypatch, capsys):
    """The clock of the test counts rounds."""
    sizes = [f"{name}={value}" for name, value in asdict(replace(TINY_SEARCH, layers=1)).items()]
    rounds, batch = [], beam_search.batch_of

    def batch_of(shape, number, device):
        rounds.append(number)
        if len(rounds) == 1:
            raise RuntimeError("no kernel\nfor this GPU")
        return batch(shape, number, device)

    monkeypatch.setattr(beam_search, "batch_of", batch_of)
    monkeypatch.setattr(beam_search.time, "monotonic", lambda: len(rounds))
    beam_search.main(["--rounds", "9", "--deadline", "4", "--shape", *sizes])
    short, long = json.loads(capsys.readouterr().out)["cases"].values()
    assert short == {"shape": asdict(replace(TINY_SEARCH, layers=1)), "failed": "RuntimeError: no kernel"}
    assert len(long["seconds"]["fairseq_xl"]) == 2 and long["same_outputs"] == 1 and "failed" not in long
    # one round, which does not count
    beam_search.main(["--rounds", "9", "--deadline", "1", "--cases", "short", "--shape", *sizes])
    assert json.loads(capsys.readouterr().out)["cases"]["short"]["failed"] == "not done within --deadline"


def test_scores_of_beam_search_are_fairseqs():
    batch, found = beam_search.batch_of(TINY_SEARCH, 0, "cpu"), []
    for search in beam_search.searches(TINY_SEARCH, "cpu", "fp32").values():
        found.append([[(each["tokens"].tolist(), each["score"].item()) for each in beam] for beam in search(batch, 6)])
    for ours, theirs in zip(*found, strict=True):
        assert len(ours) == 5 and [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-5)
    assert all(len(tokens) == 6 for beam in found[0] for tokens, _ in beam)


def test_a_step_of_beam_search_runs_half_of_fairseqs_operators():
    """With 6 layers; on a GPU, whose kernels they are, their number bounds the speed."""
    batch, every = beam_search.batch_of(TINY_SEARCH, 0, "cpu"), beam_search.searches(TINY_SEARCH, "cpu", "fp32")
    counts = {system: beam_search.operators_per_step(search, batch) for system, search in every.items()}
    assert counts["fairseq_xl"] <= 119 and 2 * counts["fairseq_xl"] <= counts["fairseq"]
