"""ONNX files with 8-bit weights (dynamic quantization of onnxruntime)."""

from pathlib import Path

from fairseq_xl.serving.export import quiet
from fairseq_xl.serving.runtime import INT8


def write_int8(path: Path) -> Path:
    """Writes NAME.int8.onnx beside NAME.onnx and returns its path.

    The matrices of linear layers have 8 bits and a scale for each output channel, tables of embeddings 8 bits and one
    scale. Activations are rounded when they are computed. The products of queries, keys and values are in float32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    found = path.with_name(f"{path.stem}{INT8}.onnx")
    with quiet():
        quantize_dynamic(
            path,
            found,
            weight_type=QuantType.QInt8,
            per_channel=True,
            use_external_data_format=path.with_name(f"{path.name}.data").exists(),
        )
    return found
