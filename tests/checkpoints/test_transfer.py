"""What a transfer of weights copies and reports, and the config fields that change the meaning of weights."""

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

import fairseq_xl
from fairseq_xl.checkpoints.transfer import PARTS, Pretrained, transfer_fields, transfer_weights

fairseq_xl.register()


def state(*names, fill):
    return {name: torch.full((2, 3), float(fill)) for name in names}


TOKENS, FFN, CROSS = "token_embeddings.table.weight", "layers.0.ffn.up.weight", "layers.0.cross_attention.query.weight"


@pytest.fixture
def encoder():
    """An encoder with an output layer and a head: every tensor is 7."""
    parameters = state(f"encoder.{TOKENS}", f"encoder.{FFN}", "output.dense.weight", "heads.nsp.weight", fill=7)
    return Pretrained("a.pt", parameters, {"languages": ["de"]})


@pytest.fixture
def translation():
    """A translation model: every tensor is 0."""
    names = (*(f"encoder.{name}" for name in (TOKENS, FFN)), *(f"decoder.{name}" for name in (TOKENS, FFN, CROSS)))
    return state(*names, fill=0)


@pytest.mark.parametrize(
    "parts, copied, new, unused",
    [
        (["encoder"], {"encoder": 2}, {"encoder": []}, ["output", "heads"]),
        (["decoder"], {"decoder": 2}, {"decoder": [CROSS]}, ["output", "heads"]),
        (["embeddings"], {"embeddings": 2}, {"embeddings": []}, ["encoder.layers", "output", "heads"]),
        (
            ["encoder", "decoder"],
            {"encoder": 2, "decoder": 2},
            {"encoder": [], "decoder": [CROSS]},
            ["output", "heads"],
        ),
    ],
)
def test_parts_of_a_translation_model(encoder, translation, parts, copied, new, unused):
    made, report = transfer_weights(encoder, translation, parts, "all", {})
    assert (report.copied, report.new, report.unused) == (copied, new, unused) and report.pretrained is encoder
    stacks = ("encoder", "decoder") if parts == ["embeddings"] else tuple(parts)
    for name, value in made.items():
        taken = name.startswith(stacks) and CROSS not in name and (parts != ["embeddings"] or TOKENS in name)
        assert (value == (7 if taken else 0)).all(), name
    assert made.keys() == translation.keys() and all((value == 0).all() for value in translation.values())


@pytest.mark.parametrize("part, new, unused", [("model", ["heads.mlm.weight"], ["heads"]), ("encoder", [], ["heads"])])
def test_parts_of_an_encoder_model(encoder, part, new, unused):
    """Its output layer is copied with the encoder, the head of another objective is not."""
    wanted = state(f"encoder.{TOKENS}", f"encoder.{FFN}", "output.dense.weight", "heads.mlm.weight", fill=0)
    made, report = transfer_weights(encoder, wanted, [part], "all", {})
    assert (report.copied, report.new, report.unused) == ({part: 3}, {part: new}, unused)
    assert [name for name, value in made.items() if (value == 0).all()] == ["heads.mlm.weight"]


def test_a_transfer_is_logged(encoder, translation, caplog):
    caplog.set_level("INFO")
    transfer_weights(encoder, translation, ["encoder", "decoder"], "all", {})[1].log()
    assert caplog.messages == [
        "encoder from a.pt: 2 tensors, new: none",
        f"decoder from a.pt: 2 tensors, new: {CROSS}",
        "a.pt: not used: output, heads",
    ]


@pytest.mark.parametrize("architecture", sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith("xl_")))
def test_every_config_declares_what_its_weights_depend_on(architecture):
    declared = transfer_fields(architecture)
    assert declared["embed_dim"]["transfer"] == "embeddings"
    assert {metadata["transfer"] for metadata in declared.values()} <= PARTS.keys()
    assert {"heads", "activation", "layer_norm_eps"} <= declared.keys() or architecture == "xl_dan"
    default = MODEL_DATACLASS_REGISTRY[architecture]()
    for name, metadata in declared.items():  # a default that no other model has would be refused everywhere
        own_form = name == "segment_embeddings" or architecture.startswith("xl_mbart_")
        assert "absent" not in metadata or own_form or getattr(default, name) == metadata["absent"]


def test_a_name_that_is_no_architecture_declares_nothing():
    assert transfer_fields("transformer_tiny") == transfer_fields(None) == {}
