"""Weights of a pre-trained encoder in a translation model, and checkpoints that do not fit."""

import pytest
import torch

from fairseq_xl.checkpoints.stacks import choose_layers, copy_common, copy_stack, count_layers, unused_parameters
from fairseq_xl.errors import UserError

LAYER = ["self_attention.qkv.weight", "ffn.up.weight"]
COMMON = [
    "token_embeddings.table.weight",
    "token_embeddings.output_bias",
    "embeddings.positions.weight",
    *(f"layers.{number}.{name}" for number in (0, 1) for name in LAYER),
]
CROSS = [f"layers.{number}.cross_attention.query.weight" for number in (0, 1)]


def state(*names, fill, shape=(2, 3)):
    return {name: torch.full(shape, float(fill)) for name in names}


@pytest.fixture
def pretrained():
    """A pre-trained encoder: every tensor is 7."""
    return state(*(f"encoder.{name}" for name in COMMON), "output.dense.weight", "heads.clm.weight", fill=7)


@pytest.fixture
def recipient():
    """A translation model: every tensor is 0; its encoder has no output bias, its decoder cross-attention."""
    encoder = [f"encoder.{name}" for name in COMMON if name != "token_embeddings.output_bias"]
    return state(*encoder, *(f"decoder.{name}" for name in COMMON + CROSS), fill=0)


def shared(model):
    """A translation model with one table."""
    return {key: value for key, value in model.items() if not key.startswith("decoder.token_embeddings")} | {
        "encoder.token_embeddings.output_bias": model["decoder.token_embeddings.output_bias"]
    }


def test_the_decoder_of_a_translation_model(recipient):
    """A trained decoder is copied with its cross-attention, output layer and table; the encoder does not replace it."""
    output = "decoder.output.dense.weight"
    wanted = recipient | state(output, fill=0)
    pretrained = {key: value + (3 if key.startswith("decoder.") else 7) for key, value in wanted.items()}
    copied, new = copy_stack(wanted, pretrained, "decoder", "a.pt")
    assert sorted(copied) == sorted([*(f"decoder.{name}" for name in COMMON + CROSS), output]) and not new
    assert all((tensor == 3).all() for tensor in copied.values())
    copied, _ = copy_stack(wanted, pretrained, "encoder", "a.pt")
    assert all((tensor == 7).all() for tensor in copied.values()) and all(key.startswith("encoder.") for key in copied)


def test_a_shared_table_is_the_decoders_too(recipient):
    other = {key: value + 3 for key, value in recipient.items()}
    names = [f"token_embeddings.{name}" for name in ("output_bias", "table.weight")]
    for model, place in ((recipient, "decoder"), (shared(recipient), "encoder")):
        for pretrained in (other, shared(other)):
            copied, new = copy_stack(model, pretrained, "decoder", "a.pt")
            assert sorted(key for key in copied if "token_embeddings" in key) == [f"{place}.{name}" for name in names]
            assert all((tensor == 3).all() for tensor in copied.values()) and not new


def test_unused_parameters(recipient, pretrained):
    copied, _ = copy_stack(recipient, pretrained, "decoder", "a.pt")
    assert unused_parameters(pretrained, copied.values()) == ["output", "heads"]
    assert unused_parameters(
        recipient, [recipient[f"encoder.{name}"] for name in COMMON if name != "token_embeddings.output_bias"]
    ) == ["decoder"]
    some = [
        value
        for key, value in recipient.items()
        if CROSS[0][len("layers.0.") :] not in key and "token_embeddings" not in key
    ]
    assert unused_parameters(recipient, some) == [
        "encoder.token_embeddings",
        "decoder.token_embeddings",
        "decoder.layers.*.cross_attention",
    ]
    first = [value for key, value in pretrained.items() if "layers.1" not in key and not key.startswith("output")]
    assert unused_parameters(pretrained | state("heads.mlm.weight", fill=1), first) == [
        "encoder.layers.1",
        "output",
        "heads.mlm",
    ]
    assert unused_parameters(pretrained, pretrained.values()) == []
    cross = [value for key, value in recipient.items() if CROSS[1] in key]
    assert unused_parameters(recipient | state("decoder.layers.2.ffn.up.weight", fill=1), cross) == [
        "encoder",
        "decoder.token_embeddings",
        "decoder.embeddings",
        "decoder.layers.0",
        "decoder.layers.{1}.self_attention",
        "decoder.layers.{1}.ffn",
        "decoder.layers.2",
    ]


def test_what_does_not_fit(recipient, pretrained):
    """Embeddings alone may come from another number of layers."""
    wider = pretrained | state("encoder.embeddings.positions.weight", fill=7, shape=(4, 3))
    shapes = "embeddings.positions.weight has shape (4, 3), the new decoder needs (2, 3): choose another --arch or size"
    deeper = pretrained | state("encoder.layers.2.ffn.up.weight", fill=7)
    fewer = {name: tensor for name, tensor in pretrained.items() if "layers.1" not in name}
    choice = ": choose them with --init-decoder-layers first or last"
    for stack, weights, sentence in (
        ("encoder", deeper, "a.pt has 3 layers, the new encoder has 2"),
        ("decoder", deeper, f"a.pt has 3 layers, the new decoder has 2{choice}"),
        ("decoder", fewer, "a.pt has 1 layers, the new decoder has 2"),
        ("encoder", {"encoder.layers.10.ffn.up.weight": torch.zeros(1)}, "a.pt has 11 layers, the new encoder has 2"),
        ("decoder", wider, f"a.pt: {shapes}"),
        ("encoder", state("decoder.token_embeddings.output_bias", fill=1), "a.pt holds no encoder weights"),
    ):
        with pytest.raises(UserError) as refused:
            copy_stack(recipient, weights, stack, "a.pt")
        assert str(refused.value) == sentence
    assert copy_stack(recipient, deeper, "encoder", "a.pt", only="token_embeddings.table")[0]
    with pytest.raises(UserError, match="a.pt has 3 layers, 4 are needed"):
        choose_layers(deep(3), 4, "last", "a.pt")


def deep(count):
    """A stack of `count` layers; layer n is filled with n."""
    layers = {f"layers.{number}.{name}": torch.full((2, 3), float(number)) for number in range(count) for name in LAYER}
    return layers | state("embeddings.positions.weight", fill=99)


@pytest.mark.parametrize("which, expected", [("first", range(6)), ("last", range(18, 24))])
def test_layers_are_chosen_by_their_index(which, expected):
    """V10: layer 1 is not confused with 10 to 19, nor layer 2 with 20."""
    chosen = choose_layers(deep(24), 6, which, "a.pt")
    assert count_layers(chosen) == 6 and len(chosen) == 6 * len(LAYER) + 1
    for number, source in enumerate(expected):
        assert [chosen[f"layers.{number}.{name}"][0, 0].item() for name in LAYER] == [source, source]
    assert chosen["embeddings.positions.weight"][0, 0] == 99


def test_continuing_from_another_model():
    """All common parameters are copied, heads and output included; the others stay new."""
    given = state("encoder.layers.0.ffn.up.weight", "output.dense.weight", "heads.old.weight", fill=7)
    cross = "encoder.layers.0.cross_attention.query.weight"
    wanted = state("encoder.layers.0.ffn.up.weight", "output.dense.weight", cross, fill=0)
    copied, new = copy_common(wanted, given, "a.pt")
    assert sorted(copied) == ["encoder.layers.0.ffn.up.weight", "output.dense.weight"]
    assert all((tensor == 7).all() for tensor in copied.values()) and new == [cross]
    with pytest.raises(UserError, match="a.pt has 1 layers, the new model has 2"):
        copy_common(wanted | state("encoder.layers.1.ffn.up.weight", fill=0), given, "a.pt")
    wide = state("encoder.layers.0.ffn.up.weight", fill=0, shape=(4, 3))
    with pytest.raises(UserError, match=r"ffn.up.weight has shape \(2, 3\), the new model needs \(4, 3\)"):
        copy_common(wide, given, "a.pt")
