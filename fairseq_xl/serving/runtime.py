"""Exported models in onnxruntime. Imports neither torch nor fairseq."""

from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import check_format, json_object

DESCRIPTION = "model.json"
OUTPUTS = ("hidden", "logits", "head")  # of an encoder
INT8 = ".int8"  # in the names of files with 8-bit weights, before .onnx

Arrays = dict[str, np.ndarray]


class OnnxGraph:
    """An ONNX file as a function of named arrays, on some threads (0: all cores); `UserError` for a damaged file."""

    def __init__(self, path: Path, threads: int = 0):
        import onnxruntime

        if not path.is_file():
            raise UserError(f"{path}: no such file; `fairseq-xl model export` writes it")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # a damaged file ends in many of its exceptions, which have no common class
            raise UserError(f"{path} is not an ONNX file that onnxruntime reads, or it is damaged") from error
        self.inputs = [node.name for node in self.session.get_inputs()]
        self.outputs = [node.name for node in self.session.get_outputs()]

    def __call__(self, inputs: Arrays) -> Arrays:
        """The outputs by name; `inputs` may have more arrays than the graph reads."""
        outputs = self.session.run(None, {name: inputs[name] for name in self.inputs})
        return dict(zip(self.outputs, outputs))


class Exported:
    """A folder of `fairseq-xl model export`, with 8-bit weights if `int8`; `UserError` for another or a damaged one."""

    def __init__(self, folder: Path, int8: bool = False, threads: int = 0):
        path = folder / DESCRIPTION
        if not path.is_file():
            raise UserError(f"{path}: no such file; expected a folder of `fairseq-xl model export`")
        self.description: dict[str, Any] = json_object(path)
        check_format("ONNX export", self.description, path)
        self.path, suffix = path, INT8 if int8 else ""
        self.graphs = {name: OnnxGraph(folder / f"{name}{suffix}.onnx", threads) for name in self.description["graphs"]}

    def language(self, code: str) -> dict[str, int]:
        """{"id", "symbol"} of a language; raises `UserError` for one that the model lacks."""
        languages: dict[str, dict[str, int]] = self.description["languages"]
        if code not in languages:
            raise UserError(f"language {code!r} is not one of the model's, {', '.join(languages)}")
        return languages[code]
