"""Folders of transformers.js: ONNX files of a model of transformers, with its config and tokenizer.

Shapes: B batch, T time, C channels, V vocabulary, K labels.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import json_object, write_json
from fairseq_xl.serving.export import write_graph, write_int8
from fairseq_xl.serving.graphs import FIRST_PIECE, Axes, Graph

ONNX, WEIGHTS, TOKENIZER_CONFIG = "onnx", "model.safetensors", "tokenizer_config.json"


class TransformersGraph(Graph):
    """An encoder of transformers, with or without head, as transformers.js calls it.

    Inputs: `input_ids`, `attention_mask` and with BERT's segments `token_type_ids`, all (B, T).
    Outputs: `last_hidden_state` (B, T, C) without a fine-tuned head, `logits` (B, T, V), (B, T, K) or (B, K) of an
    output layer, `start_logits` and `end_logits` (B, T) of question answering.
    """

    def __init__(self, model: Any, longest: int):
        config, name, axes = model.config, type(model).__name__, ("batch", "time")
        inputs: dict[str, Axes] = {"input_ids": axes, "attention_mask": axes}
        if config.type_vocab_size > 1:
            inputs["token_type_ids"] = axes
        outputs: dict[str, Axes] = {"logits": axes}
        if name.endswith("QuestionAnswering"):
            outputs = {"start_logits": axes, "end_logits": axes}
        elif name.endswith("Model"):
            outputs = {"last_hidden_state": axes}
        elif name.endswith("MaskedLM"):
            outputs["last_hidden_state"] = axes
        super().__init__(model, inputs, outputs, {"time": longest})

    def example(self, sizes: dict[str, int], ranges: dict[str, int], generator: torch.Generator) -> list[Tensor]:
        ids = torch.randint(FIRST_PIECE, ranges["tokens"], (sizes["batch"], sizes["time"]), generator=generator)
        return [ids, torch.ones_like(ids), torch.zeros_like(ids)][: len(self.inputs)]

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        result = self.model(**dict(zip(self.inputs, inputs)), output_hidden_states=True)
        return [result.hidden_states[-1] if name == "last_hidden_state" else result[name] for name in self.outputs]


def write(source: Path, folder: Path) -> None:
    """Writes a folder of transformers as one of transformers.js: config, tokenizer, `onnx/model.onnx`, and 8 bits.

    Moves the files of `source` but for the weights. Raises `UserError` for an encoder-decoder, a model with language
    embeddings or a tokenizer that transformers.js does not read.
    """
    import transformers

    config, tokenizer = json_object(source / "config.json"), json_object(source / TOKENIZER_CONFIG)
    name = (config.get("architectures") or ["AutoModel"])[0]  # of a folder that came in without
    if config["model_type"] not in ("xlm-roberta", "bert") or not (source / "tokenizer.json").is_file():
        raise UserError(
            f"--to transformers.js: expected an encoder of XLM-R's or BERT's form with tokenizer.json, found {name}"
        )
    model = getattr(transformers, name).from_pretrained(source, attn_implementation="eager")
    offset = 2 if config["model_type"] == "xlm-roberta" else 0
    graph = TransformersGraph(model.float().eval(), config["max_position_embeddings"] - offset)
    (folder / ONNX).mkdir()
    write_graph(graph, folder / ONNX / "model.onnx", {"tokens": config["vocab_size"]})
    write_int8(folder / ONNX / "model.onnx").rename(folder / ONNX / "model_quantized.onnx")
    if "token_type_ids" in graph.inputs and "token_type_ids" in tokenizer.get("model_input_names", ["token_type_ids"]):
        tokenizer["tokenizer_class"] = "BertTokenizer"  # transformers.js gives token types of BERT's class only
        write_json(source / TOKENIZER_CONFIG, tokenizer)
    for path in source.iterdir():
        if path.name != WEIGHTS:
            path.rename(folder / path.name)
    (source / WEIGHTS).unlink()
    source.rmdir()
