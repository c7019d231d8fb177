"""Counts of a training against tensors of a real one, on CPU: one update alone, and two processes with shards."""

import functools
import multiprocessing
import os
import types

import pytest
import torch
from fairseq import tasks
from fairseq.distributed import LegacyDistributedDataParallel
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import fairseq_xl
from fairseq_xl.engine.trainer import Trainer
from fairseq_xl.modules.data_parallel import wrap
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.optimizers import _sharded as sharded, precision
from fairseq_xl.planning import counting
from fairseq_xl.planning.generated_text import prepare
from fairseq_xl.planning.setting import Setting
from tests.planning.builders import PRETRAIN

fairseq_xl.register()

#: of the generated dictionary: 4 special symbols, 200 words, <mask>, [de] and [en]
VOCABULARY = 207
#: without dropout, whose mask on CPU has the type of the values
ARGUMENTS = (*PRETRAIN, "--dropout", "0", "--attention-dropout", "0", "--cpu")


def size(tensors):
    return sum(each.nbytes for each in tensors if each is not None)


def built(arguments, folder):
    """Configuration, task, model and criterion of a real training, in 32 bits."""
    cfg, _ = prepare(Setting(flags=tuple(arguments), vocabulary=VOCABULARY), folder)
    task = tasks.setup_task(cfg.task)
    return cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion)


def sample_of(task, cfg, model):
    (collate,) = counting._largest_batches(task, cfg, model).values()
    return collate()


def updated(arguments, folder):
    """{part: bytes} of a real update on one process; the part "activations" without what the output layer saves."""
    cfg, task, model, criterion = built(arguments, folder)
    trainer = Trainer(cfg, task, model, criterion)
    trainer.begin_epoch(1)
    sample = sample_of(task, cfg, model)
    parameters, gradients, saved, bytes_of = list(model.parameters()), {}, {}, {}
    for number, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(functools.partial(_note_gradient, gradients, number))
    step = trainer.optimizer.fairseq_optimizer.step

    def counted_step(*args, **kwargs):
        copies = [each for group in trainer.optimizer.torch_optimizer.param_groups for each in group["params"]]
        copies = [each for each in copies if not any(each is parameter for parameter in parameters)]
        bytes_of["fp32_master_weights"] = size(copies) + size(each.grad for each in copies)
        return step(*args, **kwargs)

    trainer.optimizer.fairseq_optimizer.step = counted_step
    known = {each.untyped_storage().data_ptr() for each in parameters}
    counts = [True]

    def pack(tensor):
        storage = tensor.untyped_storage()
        if counts[-1] and storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    for module in model.modules():
        if isinstance(module, OutputLayer):
            module.forward = _uncounted(module.forward, counts)
            for name in [name for name, each in vars(OutputLayer).items() if callable(each) and name[0] != "_"]:
                setattr(module, name, _uncounted(getattr(module, name), counts))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.train_step([sample])
    state = trainer.optimizer.torch_optimizer.state
    return bytes_of | {
        "weights": size(parameters),
        "gradients": sum(gradients.values()),
        "optimizer_state": size(each for of in state.values() for each in of.values() if torch.is_tensor(each)),
        "activations": sum(each for each, _ in saved.values()),
    }


def _note_gradient(gradients, number, parameter):
    gradients[number] = parameter.grad.nbytes


def _uncounted(method, counts):
    @functools.wraps(method)
    def called(*args, **kwargs):
        counts.append(False)
        try:
            return method(*args, **kwargs)
        finally:
            counts.pop()

    return called


@pytest.mark.parametrize(
    "more",
    [
        ["--optimizer", "adam"],
        ["--optimizer", "xl_lamb"],
        ["--optimizer", "xl_adam", "--fp16"],
        ["--optimizer", "xl_adam", "--memory-efficient-bf16"],
    ],
    ids="-".join,
)
def test_plan_counts_what_a_real_update_holds(more, tmp_path):
    """Of the activations, the count has the batch too, and for attention in 16 bits the statistics of CUDA's kernel."""
    real = updated([*ARGUMENTS, *more], tmp_path / "real")
    counted = counting.count(Setting(flags=(*ARGUMENTS, *more), vocabulary=VOCABULARY), tmp_path / "counted")["memory"]
    for part in ("weights", "gradients", "fp32_master_weights", "optimizer_state"):
        assert counted[part] == real[part], part
    assert real["activations"] <= counted["activations"] <= 1.005 * real["activations"]


def test_plan_counts_the_operations_of_a_real_update(tmp_path):
    """Also by hand: 3 layers of C = 128 and F = 512, T = 64. Attention that is not fused takes 12 L C T, not 14."""
    cfg, task, model, criterion = built(ARGUMENTS, tmp_path / "real")
    sample = sample_of(task, cfg, model)
    in_place = {torch.ops.aten.addmm_: lambda total, left, right, **more: 2 * left[0] * left[1] * right[1]}
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=in_place) as real:
        criterion(model, sample)[0].backward()
    (batch,) = counting.count(Setting(flags=ARGUMENTS, vocabulary=VOCABULARY), tmp_path / "counted")["batches"].values()
    tokens, attention = batch["tokens"], 3 * 128 * 64
    products = tokens * 6 * (4 * 128**2 + 2 * 128 * 512) * 3 + 6 * len(sample["batch"]["target"]) * 128 * VOCABULARY
    assert real.get_total_flops() == products + 12 * tokens * attention
    assert batch["flops"] == products + 14 * tokens * attention


SHARDED = (*ARGUMENTS, "--optimizer", "xl_adam", "--zero-sharding", "os", "--train-only", "*.ffn.*")


def of_rank(rank, backend, folder, writer):
    """Sends the bytes of this process's optimizer state and of the buffers of its gradients after an update."""
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    cfg, task, model, criterion = built([*SHARDED, "--ddp-backend", backend], folder / str(rank))
    sample = sample_of(task, cfg, model)
    wrapped = wrap(model, cfg.distributed_training, torch.device("cpu"))
    updates = precision.build(cfg, [each for each in model.parameters() if each.requires_grad])
    sharded.shard(updates.fairseq_optimizer)
    loss, *_ = criterion(wrapped, sample)
    updates.backward(loss)
    if backend == "legacy_ddp":
        wrapped.all_reduce_grads()
        buffers = wrapped.module.buffer.nbytes
    else:
        sizes = wrapped.module._get_ddp_logging_data()["bucket_sizes"]
        buffers = sum(map(int, sizes.split(",")))
    updates.step()
    state = updates.torch_optimizer.optim.state
    writer.send((size(each for of in state.values() for each in of.values() if torch.is_tensor(each)), buffers))
    os._exit(0)


@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_plan_counts_what_two_real_processes_hold(backend, tmp_path):
    context, readers = multiprocessing.get_context("fork"), []
    processes = []
    for rank in range(2):
        reader, writer = context.Pipe(duplex=False)
        processes.append(context.Process(target=of_rank, args=(rank, backend, tmp_path, writer)))
        processes[-1].start()
        writer.close()
        readers.append(reader)
    try:
        states, buffers = zip(*(reader.recv() for reader in readers))
    finally:
        for process in processes:
            process.kill()
            process.join()
    arguments = (*SHARDED, "--ddp-backend", backend, "--distributed-world-size", "2")
    counted = counting.count(Setting(flags=arguments, vocabulary=VOCABULARY), tmp_path / "counted")
    trained = 3 * (2 * 128 * 512 + 512 + 128)
    assert counted["trained_parameters"] == trained and sum(states) == 8 * trained
    assert counted["memory"]["optimizer_state"] == max(states)
    assert {counted["memory"]["ddp_buckets"]} == set(buffers)
    assert set(buffers) == {4 * (trained if backend == "pytorch_ddp" else counted["parameters"])}


@pytest.mark.parametrize("elements, expected", [(2**28 + 2, 2**29), (1000, 2000)])
def test_plan_counts_the_buffer_of_legacy_ddp(elements, expected):
    """2^28 elements at most; of torch's DDP all gradients, unless they are parts of its buckets."""
    module = nn.Linear(elements // 2, 2, bias=False, device="meta", dtype=torch.float16)

    def buckets(backend, as_views=False):
        settings = {"ddp_backend": backend, "gradient_as_bucket_view": as_views, "distributed_world_size": 2}
        return counting.bucket_bytes([module, nn.Identity()], types.SimpleNamespace(**settings))

    assert buckets("legacy_ddp") == LegacyDistributedDataParallel(module, None).buffer_size * 2 == expected
    assert (buckets("pytorch_ddp"), buckets("pytorch_ddp", as_views=True)) == (2 * elements, 0)
