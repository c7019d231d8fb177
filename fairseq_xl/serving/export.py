"""A model's parts as ONNX files with dynamic sizes, and a description of them for servers."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import FORMATS
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.serving.graphs import Axes, EncoderGraph, Graph, SourceGraph, StepGraph, only_objective
from fairseq_xl.serving.runtime import INT8

#: bytes of parameters from which on they are in a file FILE.data beside FILE: a protobuf has at most 2 GB
LARGEST_FILE = 1_800_000_000

#: sizes of the tensors that the exporter traces; none is 0 or 1, which it would take for constants
TRACED = {"batch": 3, "time": 7, "past": 5}


def build_graphs(model: Any, task: Any, output: str | None = None) -> tuple[str, dict[str, Graph]]:
    """The kind of a model and its graphs by the names of their files; `UserError` for a model of another kind.

    The output of an encoder is one of the runtime's `OUTPUTS`: its last hidden states, the logits of the masked
    language model, or the outputs of a fine-tuned head. By default, it is the head's of a fine-tuned model, otherwise
    the hidden states.
    """
    if isinstance(model, XLEncoderDecoderModel):
        if output is not None:
            raise UserError(f"--returns {output}: an encoder-decoder has no choice of outputs")
        return "encoder-decoder", {"encoder": SourceGraph(model), "decoder": StepGraph(model)}
    if not isinstance(model, XLEncoderModel):
        raise UserError(f"{type(model).__name__} cannot be exported: expected an encoder or an encoder-decoder")
    labelled = getattr(task, "labelled", {})
    output = output or ("head" if labelled else "hidden")
    channels, vocabulary = model.cfg.embed_dim, len(task.dictionary)
    if output == "hidden":
        outputs: dict[str, Axes] = {"hidden": ("batch", "time", channels)}
        return "encoder", {"model": EncoderGraph(model, lambda model, batch: model.encode(**batch), outputs)}
    if output == "logits":
        outputs = {"logits": ("batch", "time", vocabulary)}
        graph = EncoderGraph(model, lambda model, batch: model.output(model.encode(**batch)), outputs)
        return "masked-lm", {"model": graph}
    if not labelled:
        raise UserError("--returns head: the checkpoint has no fine-tuned head; expected hidden or logits")
    if len(labelled) > 1:
        raise UserError(
            f"several heads, {', '.join(labelled)}, cannot be exported: expected --returns hidden or logits"
        )
    (objective,) = labelled.values()
    return type(objective).name, {"model": _head_graph(model, objective)}


def _head_graph(model: Any, objective: Any) -> Graph:
    """The graph of a fine-tuned head: outputs (B, K) or (B,) of the first token, or (B, T, K) of every token."""
    name, count = objective.graph_output, objective.num_outputs()
    if name is None:
        raise UserError(
            f"a head of {type(objective).name} cannot be exported: it has no `graph_output`; expected --returns hidden "
            "or --returns logits for the encoder alone"
        )
    if objective.reads_every_token:
        head = model.heads[objective.name]
        outputs: dict[str, Axes] = {name: ("batch", "time", count)}
        return EncoderGraph(model, lambda model, batch: head(model.encode(**batch)), outputs)
    return EncoderGraph(model, objective.outputs, {name: ("batch",) if count == 1 else ("batch", count)})


def write_graph(graph: Graph, path: Path, ranges: dict[str, int]) -> None:
    """Writes a graph as an ONNX file, large parameters beside it; `ranges` as in `Graph.example`."""
    import onnxscript  # noqa: F401  its absence would be an error of torch's exporter

    dims = {
        name: torch.export.Dim(name, max=graph.largest[name]) if name in graph.largest else torch.export.Dim(name)
        for name in TRACED
    }
    dynamic = tuple(
        {index: dims[axis] for index, axis in enumerate(axes) if isinstance(axis, str)}
        for axes in graph.inputs.values()
    )
    sizes = {name: min(size, graph.largest.get(name, size)) for name, size in TRACED.items()}
    example = graph.example(sizes, ranges, torch.Generator().manual_seed(0))
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            tuple(example),
            dynamo=True,
            verbose=False,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=(dynamic,),
        )
        assert program is not None, "without a file name the exporter returns the program"
        large = sum(value.numel() * value.element_size() for value in graph.parameters()) > LARGEST_FILE
        program.save(str(path), external_data=large)


def write_int8(path: Path) -> Path:
    """Writes NAME.int8.onnx beside NAME.onnx and returns its path (dynamic quantization of onnxruntime).

    The matrices of linear layers have a scale for each output channel, tables of embeddings one scale. Weights use 7 of
    their 8 bits: on x86 processors without VNNI instructions the products of full ones saturate. Activations are
    rounded when they are computed. The products of queries, keys and values are in float32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    output = path.with_name(f"{path.stem}{INT8}.onnx")
    with quiet():
        quantize_dynamic(
            path,
            output,
            weight_type=QuantType.QInt8,
            reduce_range=True,
            per_channel=True,
            use_external_data_format=path.with_name(f"{path.name}.data").exists(),
        )
    return output


def describe(kind: str, graphs: dict[str, Graph], model: Any, task: Any) -> dict[str, Any]:
    """Describes an export for servers: symbols, languages, directions, framing, longest input, labels."""
    dictionary = task.dictionary
    description = {
        "format": FORMATS["ONNX export"],
        "kind": kind,
        "graphs": {
            name: {"inputs": list(graph.inputs), "outputs": list(graph.outputs)} for name, graph in graphs.items()
        },
        "dictionary": dictionary.digest(),
        "framing": task.framing.name,
        "symbols": {
            **{"start": int(task.framing.start), "pad": dictionary.pad(), "end": dictionary.eos()},
            **{"unknown": dictionary.unk(), "mask": dictionary.mask_index},
        },
        "languages": {
            language: {"id": dictionary.language_id(language), "symbol": dictionary.language_symbol(language)}
            for language in dictionary.languages
        },
        "vocabulary": len(dictionary),
        "longest_input": model.encoder.embeddings.max_positions,
    }
    if directions := task.identity().get("lang_pairs"):
        description["directions"] = directions
    if kind == "encoder-decoder":
        description |= {"decoder_layers": len(model.decoder.layers), "longest_output": model.decoder.max_positions()}
    if labels := getattr(only_objective(task), "labels", None):
        description["labels"] = list(labels)
    return description


def input_ranges(task: Any) -> dict[str, int]:
    """The ranges of random inputs, for `Graph.example`."""
    dictionary = task.dictionary
    return {"tokens": dictionary.mask_index, "languages": max(dictionary.num_languages, 1), "pad": dictionary.pad()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides the warnings and logs of the exporter and of the quantizer in its block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
