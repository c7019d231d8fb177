"""Stacks of layers in training: packed, compiled, with checkpoints, without waiting for the device."""

import gc

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_xl.errors import UserError
from fairseq_xl.modules import attention, features, packing
from fairseq_xl.modules.compilation import check_compiler
from fairseq_xl.modules.stack import Stack
from tests.devices import moved, needs_cuda, no_sync, relative_error
from tests.models.families import FAMILIES, kept_states, loss_of, make_batch, stacks, unpacked

LENGTHS = [9, 4, 6, 2]
#: 2 of 32 tokens are padding, one sixteenth; and 1 of 32
MUCH, LITTLE = [8, 8, 8, 6], [8, 8, 8, 7]
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.2}


def build(family, dictionary, dtype=torch.float64, **options):
    torch.manual_seed(1)
    model = FAMILIES[family].build(dictionary, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.to(dtype).train()


def step(family, model, batch):
    """The loss and the gradients by name."""
    model.zero_grad()
    loss = loss_of(family, model, batch)
    loss.backward()
    return loss.detach(), {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def in_one_vector(family, model, batch):
    """All hidden states that are not of padding, and all gradients."""
    states = [hidden[kept].flatten() for hidden, kept in kept_states(family, model, batch)]
    return tuple(
        torch.cat(each) for each in (states, [each.flatten() for each in step(family, model, batch)[1].values()])
    )


def count_tokens(model):
    """A list that gets the numbers of tokens, or of rows and columns, that each layer computes."""
    computed = []
    for stack in stacks(model):
        for layer in stack:
            layer.ffn.register_forward_hook(lambda module, inputs, output: computed.append(tuple(inputs[0].shape[:-1])))
    return computed


# Packed sequences


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_sequences_give_the_loss_and_gradients_of_padded_ones(family, dictionary):
    model = build(family, dictionary)
    batch = make_batch(dictionary, LENGTHS, [3, 8, 2, 5])
    assert batch["packing"] is not None
    torch.testing.assert_close(step(family, model, batch), step(family, model, unpacked(batch)))


@pytest.mark.parametrize(
    "device, lengths",  # a CPU packs much padding only
    [("cpu", LENGTHS), *(pytest.param("cuda", lengths, marks=needs_cuda) for lengths in (LENGTHS, LITTLE))],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_sequences_in_16_bits(family, lengths, device, dictionary):
    """Against padded ones in 32 bits. FlashAttention on a GPU takes 16 channels per head, and any padding."""
    sizes = {"embed_dim": 32, "layer_norm_eps": 1e-5}
    batch = moved(make_batch(dictionary, lengths), device)
    model = build(family, dictionary, torch.bfloat16, **sizes).to(device)
    states, gradients = in_one_vector(family, model, batch)
    expected, expected_gradients = in_one_vector(family, model.float(), unpacked(batch))
    assert relative_error(states, expected) < 1e-2  # of each state: those of a loss cancel each other
    assert relative_error(gradients, expected_gradients) < 5e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loop_over_packed_sentences_agrees_too(family, dictionary, monkeypatch):
    """On CPU, with dropout of attention weights that drops none."""
    expected = step(family, build(family, dictionary), unpacked(make_batch(dictionary, LENGTHS)))
    lengths = []

    def keep_all(shape, probability):
        lengths.append(shape)
        return torch.ones(shape, dtype=torch.bool), 1.0

    monkeypatch.setattr(attention, "draw_keep_mask", keep_all)
    if family == "streams":  # their attention has a dropout of its own
        monkeypatch.setattr("fairseq_xl.modules.ngram_attention.drop_values", lambda weights, probability: weights)
    model = build(family, dictionary, attention_dropout=0.5)
    torch.testing.assert_close(step(family, model, make_batch(dictionary, LENGTHS)), expected)
    heads = 2
    assert lengths[0] == (heads * sum(length**2 for length in LENGTHS),)  # no weight of padding is drawn


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_compute_nothing_for_padding(family, dictionary):
    model = build(family, dictionary)
    computed = count_tokens(model)
    loss_of(family, model, make_batch(dictionary, LENGTHS))
    assert set(computed) == (
        {(21,), (4, 27)} if family == "streams" else {(21,)}
    )  # 9 + 4 + 6 + 2 tokens; 3 streams of 9


def test_the_packing_of_a_batch(dictionary):
    assert make_batch(dictionary, [8, 8])["packing"] is None
    assert make_batch(dictionary, [17, 16])["packing"]["indices"].tolist() == list(range(33))
    packing = make_batch(dictionary, [4, 2])["packing"]
    assert packing["indices"].tolist() == [0, 1, 2, 3, 4, 5] and packing["offsets"].tolist() == [0, 4, 6]
    assert packing["padding_mask"].tolist() == [[False] * 4, [False, False, True, True]]


@pytest.mark.parametrize("lengths, shape", [(MUCH, (30,)), (LITTLE, (4, 8))])
def test_a_batch_is_packed_on_cpu_if_a_sixteenth_of_it_is_padding(lengths, shape, dictionary):
    model = build("encoder", dictionary)
    computed = count_tokens(model)
    loss_of("encoder", model, make_batch(dictionary, lengths))
    assert set(computed) == {shape}


def test_a_stack_without_layers_returns_its_input(dictionary):
    found = packing.Packing.from_tensors(make_batch(dictionary, [4, 2])["packing"])
    hidden = torch.randn(2, 4, 8)
    assert found.has_much_padding and torch.equal(Stack()(hidden, packing=found), hidden)


def test_source_and_target_are_packed_if_one_has_much_padding(dictionary):
    """The decoder packs both then, and the encoder decides by the source alone."""
    for lengths, targets, expected in (
        (LITTLE, MUCH, [(4, 8), (30,)]),
        (MUCH, LITTLE, [(30,), (31,)]),
        (LITTLE, LITTLE, [(4, 8), (4, 8)]),
        ([8] * 4, MUCH, [(4, 8), (30,)]),
    ):
        model = build("translation", dictionary, encoder_layers=1, decoder_layers=1)
        computed = count_tokens(model)
        loss_of("translation", model, make_batch(dictionary, lengths, targets))
        assert computed == expected


@pytest.fixture
def varlen(monkeypatch):
    """The meta device plays a GPU with a variable-length kernel, whose calls are recorded: (queries, keys)."""
    calls = []

    def recorded(query, key, *arguments):
        calls.append((len(query), len(key)))
        return features.attend_varlen(query, key, *arguments)

    monkeypatch.setattr(packing, "has_varlen_attention", lambda device: device.type == "meta")
    monkeypatch.setattr(attention, "attend_varlen", recorded)
    return calls


def without_data(family, dictionary, dtype, lengths, **options):
    """A model and a batch on the meta device."""
    return build(family, dictionary, dtype, **options).to("meta"), moved(make_batch(dictionary, lengths), "meta")


@pytest.mark.parametrize("family", ["encoder", "causal", "veco", "denoising", "translation"])
def test_any_padding_is_packed_where_a_kernel_takes_packed_sequences(family, dictionary, varlen):
    model, batch = without_data(family, dictionary, torch.bfloat16, LITTLE, **DROPOUT)
    computed = count_tokens(model)
    loss_of(family, model, batch).backward()
    assert set(computed) == {(31,)} and set(varlen) == {(31, 31)}


def test_without_padding_nothing_is_packed(dictionary, varlen):
    model, batch = without_data("encoder", dictionary, torch.bfloat16, [8] * 4)
    computed = count_tokens(model)
    loss_of("encoder", model, batch)
    assert set(computed) == {(4, 8)} and not varlen


@pytest.mark.parametrize("lengths, shape", [(MUCH, (30,)), (LITTLE, (4, 8))])
@pytest.mark.parametrize("dtype, heads", [(torch.float32, 2), (torch.bfloat16, 4)])
def test_what_the_kernel_does_not_take_is_packed_as_on_cpu(dtype, heads, lengths, shape, dictionary, varlen):
    """32 bits, or 4 channels per head."""
    model, batch = without_data("encoder", dictionary, dtype, lengths, heads=heads)
    computed = count_tokens(model)
    loss_of("encoder", model, batch)
    assert set(computed) == {shape} and not varlen


# torch.compile


def compiled(model, backend="aot_eager"):
    for stack in stacks(model):
        stack.backend = backend
    return model


@pytest.fixture
def counters():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


# one graph for each of the stack's uses, whatever its number of layers: VECO's layers have two uses
GRAPHS = {"veco": 2, "monotrans": 1, "streams": 2, "translation": 2}


@pytest.mark.parametrize("family", GRAPHS)
def test_compiled_layers_are_one_graph_for_all_layers_and_lengths(family, dictionary, counters):
    model = build(family, dictionary, torch.float32, layer_norm_eps=1e-5)
    batches = [make_batch(dictionary, LENGTHS), make_batch(dictionary, [3, 12, 7, 5, 2, 10], seed=1)]
    expected = [step(family, model, batch) for batch in batches]
    compiled(model)
    found = [step(family, model, batches[0])]
    with torch._dynamo.config.patch(error_on_recompile=True):
        found.append(step(family, model, batches[1]))
        step(family, model, make_batch(dictionary, [5, 2], seed=2))
    assert counters["stats"]["unique_graphs"] == GRAPHS[family] and not counters["graph_break"]
    for (loss, gradients), (expected_loss, expected_gradients) in zip(found, expected):
        assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-5)
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)


def test_compiled_layers_without_padding_are_a_graph_of_their_own(dictionary, counters):
    """So is a batch of one sentence. Evaluation is not compiled."""
    model = compiled(build("veco", dictionary, torch.float32), "eager")
    shapes = [[4, 4], [6, 6, 6, 6], LENGTHS, [5, 5], [9, 3]]
    for lengths in shapes[:3]:
        step("veco", model, make_batch(dictionary, lengths))
    graphs = counters["stats"]["unique_graphs"]
    assert graphs == 4  # with and without cross-attention, with and without padding
    with torch._dynamo.config.patch(error_on_recompile=True):
        for lengths in shapes:
            step("veco", model, make_batch(dictionary, lengths, seed=1))
        model.eval()
        with torch.no_grad():
            loss_of("veco", model, unpacked(make_batch(dictionary, [7, 3])))


def has_compiler():
    """Whether the backend inductor finds what it needs, for CPU a C++ compiler, for a GPU triton."""
    try:
        check_compiler("inductor", torch.cuda.is_available())
    except UserError:
        return False
    return True


@pytest.mark.skipif(not has_compiler(), reason="no compiler for inductor here")
@pytest.mark.parametrize(
    "device, dtype, error",
    [
        ("cpu", torch.float32, 1e-5),
        pytest.param("cpu", torch.bfloat16, 1e-3, marks=pytest.mark.slow),
        pytest.param("cuda", torch.float32, 1e-5, marks=needs_cuda),
        pytest.param("cuda", torch.bfloat16, 1e-3, marks=needs_cuda),
    ],
)
def test_layers_compiled_by_inductor(device, dtype, error, dictionary, counters):
    """The losses of layers that are not compiled, over several lengths without another graph."""
    model = build("encoder", dictionary, torch.float32, layers=1, layer_norm_eps=1e-5).to(device, dtype)
    lengths = (LENGTHS, [3, 12, 7, 5, 2, 10], [5, 2])
    batches = [moved(make_batch(dictionary, each, seed=len(each)), device) for each in lengths]
    expected = [step("encoder", model, batch) for batch in batches]
    compiled(model, "inductor")
    found = [step("encoder", model, batches[0])]
    with torch._dynamo.config.patch(error_on_recompile=True):
        found += [step("encoder", model, batch) for batch in batches[1:]]
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    for (loss, gradients), (expected_loss, expected_gradients) in zip(found, expected):
        assert loss.item() == pytest.approx(expected_loss.item(), rel=error, abs=error)
        for name, gradient in gradients.items():
            bound = 1e-4 if dtype == torch.float32 else 3e-2
            assert relative_error(gradient, expected_gradients[name]) < bound, name


def test_compiled_dropout_drops_its_share(dictionary, counters):
    """Of 64 x 256 values as compiled graphs drop them; and the mean loss over draws is that of layers not compiled."""
    from fairseq_xl.modules.dropout import Dropout

    dropout = torch.compile(Dropout(0.3), backend="aot_eager", fullgraph=True)
    share = (dropout(torch.ones(64, 256)) == 0).float().mean().item()
    assert share == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / (64 * 256)) ** 0.5)
    model = build("encoder", dictionary, torch.float32, **DROPOUT)
    batch = make_batch(dictionary, LENGTHS)

    def draws():
        losses = torch.tensor([loss_of("encoder", model, batch).item() for _ in range(100)])
        return losses.mean().item(), losses.std().item() / 10

    eager, error = draws()
    compiled(model)
    other, other_error = draws()
    assert error > 0 and other_error > 0
    assert other == pytest.approx(eager, abs=4 * (error**2 + other_error**2) ** 0.5)


def test_compiling_changes_no_name(dictionary):
    model = build("veco", dictionary)
    names = list(model.state_dict())
    assert list(compiled(model).state_dict()) == names
    assert "encoder.layers.0.self_attention.qkv.weight" in names


# Activation checkpointing


@pytest.mark.parametrize(
    "family, dtype",
    [*((family, torch.float32) for family in FAMILIES), ("veco", torch.bfloat16), ("streams", torch.float16)],
)
def test_checkpointed_layers_give_the_same_bits(family, dtype, dictionary):
    model, batch, found = build(family, dictionary, dtype, layer_norm_eps=1e-5, **DROPOUT), None, []
    batch = make_batch(dictionary, LENGTHS)
    for checkpoints in (False, True):
        for stack in stacks(model):
            stack.checkpoint_activations = checkpoints
        torch.manual_seed(3)
        found.append(step(family, model, batch))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0, equal_nan=True)
    assert found[0][0].isfinite()


class Storages(TorchDispatchMode):
    """Knows the storages that operators made, and how many bytes of them are still held; not those of parameters."""

    def __init__(self, parameters):
        super().__init__()
        self.found, self.left_out = {}, {each.untyped_storage()._cdata for each in parameters}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in torch.utils._pytree.tree_leaves(out):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                if storage._cdata not in self.left_out:
                    self.found[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        return out

    def held(self):
        return sum(size for reference, size in self.found.values() if not reference.expired())


@pytest.mark.parametrize("packed", [False, True])
def test_checkpoints_hold_the_inputs_of_layers_only(packed, dictionary):
    layers, channels, lengths = 6, 128, [40, 24]
    model = build("encoder", dictionary, torch.float32, layers=layers, embed_dim=channels, ffn_dim=256, **DROPOUT)
    batch = make_batch(dictionary, lengths)
    batch = batch if packed else unpacked(batch)
    tokens = sum(lengths) if packed else 2 * max(lengths)
    held = []
    for checkpoints in (False, True):
        (stack,) = stacks(model)
        stack.checkpoint_activations = checkpoints
        hidden = model.encoder.embeddings(batch["tokens"], languages=batch["languages"])
        with Storages(model.parameters()) as storages:
            packing = {
                "packing": None if batch["packing"] is None else attention.Packing.from_tensors(batch["packing"])
            }
            loss = stack(hidden, padding_mask=batch["padding_mask"], **packing)
        gc.collect()
        held.append(storages.held())
        del loss
    states = layers * tokens * channels * 4  # inputs of layers, and the output of the last one
    padded = 2 * max(lengths) * channels * 4  # the result, and what it is copied from
    assert states <= held[1] <= states + 2 * padded + layers * 2**13  # and states of the generator
    assert held[0] > 10 * states


def test_checkpointed_layers_are_compiled_too(dictionary, counters):
    model = build("veco", dictionary, torch.float32)
    batch = make_batch(dictionary, LENGTHS)
    expected = step("veco", model, batch)
    for stack in stacks(compiled(model)):
        stack.checkpoint_activations = True
    torch.testing.assert_close(step("veco", model, batch), expected, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 2 and not counters["graph_break"]


# Waiting for the device


@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("lengths, checkpoints", [(LENGTHS, False), (LENGTHS, True), ([5, 5], False)])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_sync_in_forward_and_backward(family, lengths, checkpoints, device, dictionary):
    """The meta device takes the paths of a GPU and has no values to read."""
    model = build(family, dictionary, torch.float32, **DROPOUT).to(device)
    for stack in stacks(model):
        stack.checkpoint_activations = checkpoints
    for batch in (make_batch(dictionary, lengths), unpacked(make_batch(dictionary, lengths))):
        batch = moved(batch, device)
        with no_sync(device):
            step(family, model, batch)
