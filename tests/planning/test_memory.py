"""Memory counted on the meta device: by hand, and as real tensors show it."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from fairseq_xl.planning.memory import MemoryCount, count_as_loss, count_gradients, cuda_kernels


def half(*shape, **more):
    return torch.empty(*shape, dtype=torch.float16, **more)


def test_plan_counts_a_feed_forward_layer_by_hand():
    """16 x 8 values of two bytes: 256 bytes; four times as many between the linear layers."""
    memory = MemoryCount()
    with memory, cuda_kernels(), torch.device("meta"):
        layer = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 8)).half()
        memory.forget_peaks()
        assert dict(memory.largest) == {"weights": 2 * (8 * 32 + 32 + 32 * 8 + 8)}
        count_gradients(memory, layer)
        with memory.as_part("activations"):
            made = layer(half(16, 8))
        # input; up and after GELU and dropout, whose mask has a byte a value; output. GELU's output is freed
        assert memory.bytes["activations"] == 256 + 1024 + 1024 + 512 + 256
        assert memory.largest["activations"] == 256 + 1024 + 1024 + 1024 + 512
        with memory.as_part("temporary"):
            made.sum().backward()
    assert memory.bytes["gradients"] == memory.bytes["weights"] == 1104
    del made
    assert memory.bytes["activations"] == 0
    assert memory.total == sum(memory.bytes.values())


def test_plan_sees_that_checkpointed_layers_keep_their_inputs_only():
    kept = {}
    for name in ("whole", "checkpointed"):
        memory = MemoryCount()
        with memory, cuda_kernels(), torch.device("meta"):
            layers = [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)).half() for _ in range(3)]
            with memory.as_part("activations"):
                hidden = half(16, 8, requires_grad=True)
                for layer in layers:
                    hidden = checkpoint(layer, hidden, use_reentrant=False) if name == "checkpointed" else layer(hidden)
                kept[name] = memory.bytes["activations"]
            with memory.as_part("temporary"):
                hidden.sum().backward()
            assert all(each.grad is not None for layer in layers for each in layer.parameters())
    assert kept == {"whole": 4 * 256 + 3 * 2 * 1024, "checkpointed": 4 * 256}


@pytest.mark.parametrize("dtype, mask, extra", [("float16", False, 0), ("float32", False, 0), ("float32", True, 1)])
def test_plan_counts_fused_attention(dtype, mask, extra):
    """Output, and log sum exp in 32 bits, and no B x H x T x T weights; of a mask one value a key."""
    memory, dtype = MemoryCount(), getattr(torch, dtype)
    shape = batch, heads, time, channels = 2, 4, 64, 8
    with memory, cuda_kernels(), torch.device("meta"):
        query = torch.empty(shape, dtype=dtype, requires_grad=True)
        hidden = torch.empty(batch, 1, 1, time, dtype=torch.bool) if mask else None
        with memory.as_part("activations"):
            made = nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=hidden, dropout_p=0.1)
    assert made.shape == shape
    of_mask = extra * batch * time * dtype.itemsize
    seeds = memory.bytes["activations"] - made.nbytes - 4 * batch * heads * time - of_mask
    assert 0 <= seeds <= 32


def test_plan_separates_the_loss_in_both_passes():
    class Output(nn.Module):
        def loss(self, hidden):
            return hidden.float().exp().sum()  # 128 values of four bytes, twice

    memory, output = MemoryCount(), Output()
    count_as_loss(memory, output, "loss")
    with memory, cuda_kernels(), torch.device("meta"):
        weight = torch.empty(8, 8, requires_grad=True)
        with memory.as_part("activations"):
            hidden = half(16, 8) @ weight.half()
            loss = output.loss(hidden)
        assert memory.bytes["loss"] == 512 + 4  # exp's result, and the sum
        assert memory.largest["loss"] == 2 * 512
        with memory.as_part("temporary"):
            loss.backward()
    assert memory.largest["loss"] > 1024  # gradients of the loss
    assert memory.part == "weights" and weight.grad.shape == (8, 8)


def test_plan_gives_values_that_nothing_computed():
    with cuda_kernels(), torch.device("meta"):
        value = torch.empty(())
        assert value.item() == float(value) == int(value) == 1 and not value > 0


def encoded(model, tokens, positions, languages):
    return model.encode(tokens, positions=positions, languages=languages)


def saved_bytes(model, *inputs):
    """Bytes of the storages that autograd saves in a forward pass of real tensors, without parameters and inputs."""
    known = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *inputs)}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = encoded(model, *inputs)
    return sum(size for size, _ in found.values()), made


def test_plan_counts_what_a_real_forward_pass_saves():
    """In 32 bits without dropout the CPU runs the same fused kernels as CUDA, but for the seeds of their dropout."""
    cfg = EncoderConfig(layers=3, embed_dim=32, ffn_dim=64, heads=4, dropout=0.0, attention_dropout=0.0)
    tokens, languages = torch.randint(5, 90, (4, 64)), torch.zeros(4, 1, dtype=torch.long)
    positions = torch.arange(64).repeat(4, 1)
    real = XLEncoderModel(cfg, 100, 1, 2)
    saved, made = saved_bytes(real, tokens, positions, languages)

    memory = MemoryCount()
    with memory, cuda_kernels(), torch.device("meta"):
        model = XLEncoderModel(cfg, 100, 1, 2)
        inputs = [torch.empty_like(each, device="meta") for each in (tokens, positions, languages)]
        with memory.as_part("activations"):
            counted = encoded(model, *inputs)
    assert counted.shape == made.shape
    seeds = 2 * 8 * cfg.layers
    assert memory.bytes["activations"] - counted.nbytes - seeds == saved
