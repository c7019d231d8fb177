"""8-bit weights: what they stand for, read from the file, and the outputs that they give."""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from fairseq_xl.serving.export import write_int8
from fairseq_xl.serving.runtime import OnnxGraph
from tests.serving.conftest import SIZES, export, randomized


@pytest.fixture(scope="module")
def files(translator):
    """The encoder of `translator` with 32-bit and with 8-bit weights."""
    path = translator[1].path.parent / "encoder.onnx"
    return path, write_int8(path)


def restored(arrays, name):
    """The weights that the 8-bit array `name` stands for, and the scales."""
    scale, zero = arrays[f"{name}_scale"], arrays[f"{name}_zero_point"].astype(np.float32)
    assert arrays[f"{name}_quantized"].dtype.itemsize == 1
    return (arrays[f"{name}_quantized"].astype(np.float32) - zero) * scale, scale


def test_weights_are_rounded_to_8_bits(translator, files):
    """To within half a step of the scale: one for each table of embeddings, one for each output of a linear layer."""
    content, encoder = onnx.load(files[1]), translator[0].encoder
    arrays = {each.name: numpy_helper.to_array(each) for each in content.graph.initializer}
    table, scale = restored(arrays, "model.encoder.token_embeddings.table.weight")
    assert scale.shape == ()
    assert (np.abs(table - encoder.token_embeddings.table.weight.detach().numpy()) <= 0.501 * scale).all()
    products = [node for node in content.graph.node if node.op_type == "MatMulInteger"]
    # 4 linear layers in a layer, and the keys and values of 2 layers of the decoder
    assert len(products) == 6
    matrix, scale = restored(arrays, products[0].input[1].removesuffix("_quantized"))
    assert scale.shape == (48,)
    assert (np.abs(matrix - encoder.layers[0].self_attention.qkv.weight.detach().numpy().T) <= 0.501 * scale).all()
    assert files[1].stat().st_size < files[0].stat().st_size


def test_hidden_states_are_nearly_the_same(files):
    ours, theirs = (OnnxGraph(path, threads=1) for path in files)
    tokens = torch.randint(4, 20, (5, 9), generator=torch.Generator().manual_seed(0)).numpy()
    inputs = {"tokens": tokens, "padding_mask": tokens < 0, "languages": np.zeros((5, 1), np.int64)}
    hidden, rounded = ours(inputs)["hidden"], theirs(inputs)["hidden"]
    assert np.abs(hidden - rounded).max() > 1e-3
    cosine = (hidden * rounded).sum(-1) / np.linalg.norm(hidden, axis=-1) / np.linalg.norm(rounded, axis=-1)
    assert cosine.min() > 0.99


def test_large_parameters_are_in_a_file_beside_it(task, tmp_path, monkeypatch):
    """As those of a model of more than 2 GB are, with 8 bits too."""
    monkeypatch.setattr("fairseq_xl.serving.export.LARGEST_FILE", 0)
    model = randomized(XLEncoderModel(EncoderConfig(**SIZES, layers=1), len(task.dictionary), 1, 3))
    path = tmp_path / "model.onnx"
    whole = export(model, task, tmp_path).graphs["model"]
    assert path.with_name("model.onnx.data").stat().st_size > 5000 > path.with_name("model.json").stat().st_size
    inputs = {"tokens": np.full((2, 3), 5), "padding_mask": np.zeros((2, 3), bool), "languages": np.zeros((2, 1), int)}
    with torch.no_grad():
        expected = model.encode(torch.full((2, 3), 5), languages=torch.zeros(2, 1, dtype=torch.int64)).numpy()
    assert np.abs(whole(inputs)["hidden"] - expected).max() <= 1e-5
    assert 1e-4 < np.abs(OnnxGraph(write_int8(path), threads=1)(inputs)["hidden"] - expected).max() < 0.2
    path.with_name("model.onnx.data").unlink()
    with pytest.raises(UserError, match="model.onnx is not an ONNX file that onnxruntime reads, or it is damaged"):
        OnnxGraph(path)
