"""Models whose weights have no neutral values, and their exported graphs."""

from types import SimpleNamespace

import pytest
import torch
from tiny_data import write_dictionary
from torch import nn

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.io.files import write_json
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderDecoderConfig
from fairseq_xl.serving.export import build_graphs, describe, input_ranges, write_graph
from fairseq_xl.serving.runtime import Exported

SIZES = dict(embed_dim=16, ffn_dim=32, heads=2, max_positions=24)


def make_task(folder, objective=None):
    """What the export needs of a task: 16 pieces with ids 4 … 19, <mask> 20, [de] 21, [en] 22, [fr] 23."""
    path = write_dictionary(folder / "dict.txt", {f"p{number}": 1 for number in range(16)}, ["de", "en", "fr"])
    dictionary = XLDictionary.load(path)
    framing = Framing.of("xl", dictionary)
    labelled = {} if objective is None else {objective.name: objective}
    identity = {"lang_pairs": ["de-en", "en-fr"]}
    return SimpleNamespace(dictionary=dictionary, framing=framing, labelled=labelled, identity=lambda: identity)


def randomized(model):
    """The model in evaluation mode with random weights, biases and layer norms included."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    return model.eval()


def export(model, task, folder, output=None):
    """The `Exported` model, whose files are in `folder`."""
    kind, graphs = build_graphs(model, task, output)
    for name, graph in graphs.items():
        write_graph(graph, folder / f"{name}.onnx", input_ranges(task))
    write_json(folder / "model.json", describe(kind, graphs, model, task))
    return Exported(folder, threads=1)


@pytest.fixture(scope="package")
def task(tmp_path_factory):
    """A task without fine-tuned head."""
    return make_task(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="package")
def translator(task, written_once):
    """An encoder-decoder with language embeddings, whose outputs differ in length, and the same exported."""
    cfg = EncoderDecoderConfig(**SIZES, encoder_layers=1, decoder_layers=2)
    model = randomized(XLEncoderDecoderModel(cfg, task.dictionary))
    model.decoder.token_embeddings.output_bias.data[task.dictionary.eos()] = 6
    folder = written_once("exported-translator", lambda folder: export(model, task, folder))
    return model, Exported(folder, threads=1)
