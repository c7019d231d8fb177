"""Exported graphs in onnxruntime against the models in torch, with other sizes than those of the export."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairseq_xl.data.labelled.labelled_examples import segments
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig, NgramDecoderConfig
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from fairseq_xl.objectives.ranking import Ranking
from fairseq_xl.objectives.tagging import Tagging
from fairseq_xl.serving.export import build_graphs, describe
from tests.serving.builders import END, PAD, xlm
from tests.serving.conftest import SIZES, export, make_task, randomized

ROWS = (  # batches of sentences and pairs: one token; one row; padding; the model's longest input
    [[0]],
    [[0, 5, 6, 7, 2, 2, 9, 10, 2]],
    [[0, 5, 6, 7, 2, 2, 9, 10, 2], [0, 4, 2], [0, 8, 8, 2, 2, 2], [0, 11, 12, 13, 14, 2], [0, 2]],
    [[0, *range(4, 20), 4, 5, 6, 7, 8, 9, 2], [0, 15, 2]],
)


def xlmr(dictionary):
    form = dict(language_embeddings="none", output_form="dense", position_offset=2, layer_norm_eps=1e-5)
    return XLEncoderModel(EncoderConfig(**SIZES, **form, layers=2), len(dictionary), PAD, 3)


def monotrans(dictionary):
    form = dict(language_embeddings="none", output_form="dense", language_positions=True, adapters=4)
    return XLMonoTransModel(MonoTransConfig(**SIZES, **form, layers=1), len(dictionary), PAD, 3, dictionary.shared)


def batches(rows):
    """The inputs of a batch as `model.encode` takes them, and as the graph does."""
    longest = max(map(len, rows))
    tokens = np.array([row + [PAD] * (longest - len(row)) for row in rows])
    padding, languages = tokens == PAD, np.arange(len(rows))[:, None] % 3
    arrays = {"tokens": tokens, "padding_mask": padding, "languages": languages}
    arrays["segments"] = segments(tokens, END, PAD)
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    return tensors | {"padding_mask": tensors["padding_mask"] if padding.any() else None}, arrays


def in_torch(graph):
    return lambda arrays: graph(*(torch.from_numpy(arrays[name]) for name in graph.inputs)).numpy()


def check(run, expected):
    """Compares the output of a graph with `expected`, a function of a batch, at the tokens that are not padding."""
    for rows in ROWS:
        tensors, arrays = batches(rows)
        with torch.no_grad():
            found, wanted = run(arrays), expected(tensors).numpy()
        assert found.shape == wanted.shape
        kept = ~arrays["padding_mask"] if found.shape[:2] == arrays["tokens"].shape else slice(None)
        assert np.abs(found[kept] - wanted[kept]).max() <= 1e-5


def test_an_encoder(task, tmp_path):
    model = randomized(monotrans(task.dictionary))
    graph = export(model, task, tmp_path, "logits").graphs["model"]
    assert graph.inputs == ["tokens", "padding_mask", "segments"]
    check(lambda arrays: graph(arrays)["logits"], lambda batch: model.output(model.encode(**batch)))


@pytest.mark.parametrize(
    "make, output, inputs",
    [
        (xlm, "hidden", ["tokens", "padding_mask", "languages"]),
        (xlmr, "logits", ["tokens", "padding_mask"]),
    ],
)
def test_an_encoder_in_torch(task, make, output, inputs):
    """tests/tasks/test_onnx_export.py has an encoder with languages in onnxruntime."""
    model = randomized(make(task.dictionary))
    graph = build_graphs(model, task, output)[1]["model"]
    assert list(graph.inputs) == inputs
    read = model.output if output == "logits" else torch.nn.Identity()
    check(in_torch(graph), lambda batch: read(model.encode(**batch)))


def test_heads_in_torch(tmp_path):
    """Of every token, and of the first one: tests/tasks/test_onnx_export.py has such a head in onnxruntime."""
    for kind, options in ((Tagging, {}), (Ranking, {"pooler": True})):
        objective = kind(kind.Config(**options), None, None)
        objective.labels = ["B", "I", "O"]
        task = make_task(tmp_path, objective)
        model = xlmr(task.dictionary)
        model.add_heads(objective.heads(model.cfg))
        name, graphs = build_graphs(randomized(model), task)
        if kind is Tagging:
            description = describe(name, graphs, model, task)
            assert description["kind"] == name == "tagging" and description["labels"] == ["B", "I", "O"]
            check(in_torch(graphs["model"]), lambda batch: model.heads["tagging"](model.encode(**batch)))
        else:
            assert name == "ranking" and graphs["model"].outputs == {"scores": ("batch",)}
            check(in_torch(graphs["model"]), lambda batch: model.heads["ranking"](model.encode(**batch)[:, 0])[:, 0])


def steps(model, exported, source, outputs):
    """Compares the decoder's steps with the model's forward pass of the whole output (B, T)."""
    tensors, arrays = batches(source)
    state = exported.graphs["encoder"](arrays)
    with torch.no_grad():
        encoder_out = model.encoder.encode(tensors["tokens"], tensors["languages"], tensors["padding_mask"])
        hidden, _ = model.decoder.extract_features(torch.from_numpy(outputs), encoder_out)
        wanted = model.decoder.output(hidden).numpy()
    assert np.abs(state.pop("hidden") - encoder_out["encoder_out"][0].numpy())[~arrays["padding_mask"]].max() <= 1e-5
    state |= {name.replace("memory", "past"): value[:, :, :0] for name, value in state.items()}
    state |= {"padding_mask": arrays["padding_mask"], "languages": outputs[:, :1] - 21}
    for step in range(outputs.shape[1]):
        found = exported.graphs["decoder"](state | {"tokens": outputs[:, step : step + 1]})
        assert np.abs(found.pop("logits") - wanted[:, step]).max() <= 1e-5
        assert found["key_0"].shape == (len(outputs), 2, step + 1, 8)
        state |= {f"past_{name}": value for name, value in found.items()}


def test_a_decoder_by_steps(translator):
    outputs = np.array([[22, 5, 9, 4, 7, 7, 2], [21, 8, 6, 13, 12, 11, 10], [23, 12, 4, 4, 5, 6, 2]])
    steps(*translator, [[0, 4, 2], [0, 5, 6, 7, 2], [0, 8, 2]], outputs)
    longest = np.concatenate(([[22]], np.arange(23)[None] % 16 + 4), axis=1)
    steps(*translator, [[0, *range(4, 20), 4, 5, 2]], longest)


def test_a_decoder_of_several_streams(task, tmp_path):
    form = dict(language_embeddings="none", relative_buckets=8, relative_distance=12, predicting_streams=2)
    cfg = NgramDecoderConfig(**SIZES, **form, encoder_layers=1, decoder_layers=1)
    model = randomized(XLNgramDecoderModel(cfg, task.dictionary))
    exported = export(model, task, tmp_path)
    assert "languages" not in exported.graphs["decoder"].inputs
    longest = np.concatenate(([[22], [21]], np.arange(46).reshape(2, 23) % 16 + 4), axis=1)  # to the last bucket
    steps(model, exported, [[0, 4, 2], [0, 5, 6, 7, 2]], longest)


def test_sizes_have_names(translator):
    session = translator[1].graphs["decoder"].session
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes["tokens"] == ["batch", 1] and shapes["padding_mask"] == ["batch", "time"]
    assert shapes["past_key_0"] == ["batch", 2, "past", 8] and shapes["memory_value_1"] == ["batch", 2, "time", 8]


def test_outputs_that_are_not_there(task, translator):
    encoder = xlm(task.dictionary)
    with pytest.raises(UserError, match="--returns head: the checkpoint has no fine-tuned head"):
        build_graphs(encoder, task, "head")
    with pytest.raises(UserError, match="--returns logits: an encoder-decoder has no choice of outputs"):
        build_graphs(translator[0], task, "logits")
    unnamed = type("Unnamed", (Ranking,), {"name": "similarity", "graph_output": None})
    other = SimpleNamespace(dictionary=task.dictionary, labelled={"sts": unnamed(unnamed.Config(), None, None, "sts")})
    with pytest.raises(UserError, match="a head of similarity cannot be exported: it has no `graph_output`"):
        build_graphs(encoder, other)
    several = SimpleNamespace(dictionary=task.dictionary, labelled={"nc": None, "ner": None})
    with pytest.raises(UserError, match="several heads, nc, ner, cannot be exported: expected --returns hidden"):
        build_graphs(encoder, several)
    assert build_graphs(encoder, several, "logits")[0] == "masked-lm"
    with pytest.raises(UserError, match="Identity cannot be exported: expected an encoder or an encoder-decoder"):
        build_graphs(torch.nn.Identity(), task)
