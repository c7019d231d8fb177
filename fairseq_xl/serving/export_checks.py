"""Exported graphs compared with torch and with 8-bit weights: differences, agreement, speed.

Shapes: B batch, T time, C channels, K outputs.
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.labelled.labelled_examples import frame, segments
from fairseq_xl.errors import UserError
from fairseq_xl.io.text import is_blank
from fairseq_xl.serving.graphs import Graph, only_objective
from fairseq_xl.serving.runtime import Arrays, OnnxGraph

#: sizes (batch, time, past) of the random inputs that are compared
COMPARED = ((1, 1, 0), (1, 13, 0), (3, 5, 1), (8, 32, 9), (2, 64, 30))
#: sizes (batch, time, past) of the random inputs that are timed
TIMED = ((1, 32, 16), (8, 32, 16), (8, 128, 64))
REPEATS = 15  # calls of each function; the median counts
BATCH = 8  # texts of a batch of `text_batches`
#: largest difference of an output from torch's, as a share of the largest absolute value of this output
BOUND = 1e-3


def random_inputs(
    graph: Graph, ranges: dict[str, int], sizes: tuple[tuple[int, int, int], ...]
) -> list[tuple[str, list[Tensor]]]:
    """("batch x time x past", inputs) for each of `sizes`, at most the largest that the model reads."""
    generator, inputs = torch.Generator().manual_seed(1), {}
    for shape in sizes:
        lengths = dict(zip(("batch", "time", "past"), shape))
        lengths = {name: min(size, graph.largest.get(name, size)) for name, size in lengths.items()}
        present = [name for name in lengths if any(name in axes for axes in graph.inputs.values())]
        label = " x ".join(f"{name} {lengths[name]}" for name in present)
        inputs[label] = graph.example(lengths, ranges, generator)
    return list(inputs.items())


def named_arrays(graph: Graph, inputs: list[Tensor]) -> Arrays:
    """{name of the input: array}"""
    return {name: tensor.numpy() for name, tensor in zip(graph.inputs, inputs)}


@torch.no_grad()
def differences(graph: Graph, onnx: OnnxGraph, ranges: dict[str, int]) -> dict[str, float]:
    """{sizes: maximum difference from torch's outputs} on random inputs; `UserError` if above `BOUND` or not finite."""
    result = {}
    largest, largest_deviation = (dict.fromkeys(graph.outputs, 0.0) for _ in range(2))
    for label, inputs in random_inputs(graph, ranges, COMPARED):
        expected = graph(*inputs)
        expected = [expected] if isinstance(expected, Tensor) else expected
        arrays = named_arrays(graph, inputs)
        padding, outputs = arrays["padding_mask"], onnx(arrays)
        deviations = []
        for name, tensor in zip(graph.outputs, expected):
            pair = [tensor.numpy(), outputs[name]]
            if graph.outputs[name][1:2] == ("time",):
                pair = [values[~padding] for values in pair]
            deviations.append(np.abs(pair[0] - pair[1]).max())
            largest[name] = float(np.maximum(largest[name], np.abs(pair[0]).max()))  # unlike `max`, it keeps NaN
            largest_deviation[name] = float(np.maximum(largest_deviation[name], deviations[-1]))
        result[label] = float(np.max(deviations))
    for name, difference in largest_deviation.items():
        if not difference <= BOUND * largest[name] < math.inf:
            raise UserError(
                f"{name} of the ONNX file differs from torch by {difference:.3g}: expected at most {BOUND:g} of the "
                f"largest value, {largest[name]:.3g}"
            )
    return result


def text_batches(texts: dict[str, tuple[str, list[str]]], encode: Callable, task: Any, longest: int) -> list[Arrays]:
    """Inputs of an encoder for lines of text, in batches; empty lines are left out.

    `texts` are {language: (file, its lines)}; the parts of a pair or triple are separated by TAB. Inputs have at most
    `longest` tokens; the longest part of a line is truncated first. Raises `UserError` for another number of parts than
    a fine-tuned model reads, and for a file without text.
    """
    pad, end = task.dictionary.pad(), task.dictionary.eos()
    parts = getattr(only_objective(task), "num_texts", None)
    batches = []
    for language, (path, lines) in texts.items():
        language_id, rows = task.dictionary.language_id(language), []
        for line, text in enumerate(lines, start=1):
            fields = text.split("\t")
            if is_blank(text):
                continue
            if parts and len(fields) != parts:
                raise UserError(f"{path}, line {line}: expected {parts} texts separated by TAB, found {len(fields)}")
            rows.append(frame([encode(part, language) for part in fields], task.framing, longest).tokens)
        if not rows:
            raise UserError(f"{path} has no text")
        for start in range(0, len(rows), BATCH):
            tokens = pad_rows(rows[start : start + BATCH], pad)
            batches.append({"tokens": tokens, "padding_mask": tokens == pad, "segments": segments(tokens, end, pad)})
            batches[-1]["languages"] = np.full((len(tokens), 1), language_id)
    return batches


@torch.no_grad()
def agreement(graph: Graph, onnx: OnnxGraph, batches: list[Arrays]) -> dict[str, float]:
    """Agreement of an ONNX file with a graph in torch on text.

    Of hidden states: mean and minimum of the cosine over tokens. Of logits: the percentage of equal predictions and the
    maximum difference of a probability. Of scores: the maximum difference.
    """
    (name,) = onnx.outputs
    parts = []
    for batch in batches:
        pair = [graph(*(torch.from_numpy(batch[name]) for name in graph.inputs)).numpy(), onnx(batch)[name]]
        if pair[0].ndim == 3:  # of every token
            pair = [values[~batch["padding_mask"]] for values in pair]
        parts.append(_compare(name, *(values.astype(np.float64) for values in pair)))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if name == "scores":
        return {"maximum_difference": float(columns["difference"].max())}
    if name == "hidden":
        return {"mean_cosine": float(columns["cosine"].mean()), "minimum_cosine": float(columns["cosine"].min())}
    return {
        "predictions": len(columns["equal"]),
        "equal_predictions_percent": 100 * float(columns["equal"].mean()),
        "maximum_difference_of_a_probability": float(columns["difference"].max()),
    }


def _compare(name: str, expected: np.ndarray, actual: np.ndarray) -> Arrays:
    """Compares one batch of outputs `name` for `agreement`: hidden states or logits (N, K), scores (N, …)."""
    if name == "scores":
        return {"difference": np.abs(expected - actual)}
    if name == "hidden":
        norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(actual, axis=1)
        return {"cosine": (expected * actual).sum(axis=1) / norms}
    probabilities = [torch.from_numpy(logits).softmax(dim=1).numpy() for logits in (expected, actual)]
    difference = np.abs(probabilities[0] - probabilities[1]).max(axis=1)
    return {"equal": expected.argmax(axis=1) == actual.argmax(axis=1), "difference": difference}


@torch.no_grad()
def benchmark(graph: Graph, graphs: dict[str, OnnxGraph], ranges: dict[str, int]) -> dict[str, dict[str, float]]:
    """{sizes: {"torch": milliseconds, NAME: milliseconds, "NAME speedup": torch's time / its time}}.

    The graphs in onnxruntime, {name: graph}, have the same number of threads. All functions run in turns, so that other
    work on the machine slows all of them; medians of `REPEATS` calls.
    """
    result = {}
    for label, inputs in random_inputs(graph, ranges, TIMED):
        arrays = named_arrays(graph, inputs)
        calls: dict[str, Callable[[], Any]] = {"torch": partial(graph, *inputs)}
        calls |= {name: partial(onnx, arrays) for name, onnx in graphs.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(REPEATS + 2):  # two turns to warm up
            for name, call in calls.items():
                begin = time.perf_counter()
                call()
                if turn >= 2:
                    times[name].append(1000 * (time.perf_counter() - begin))
        medians = {name: statistics.median(values) for name, values in times.items()}
        speedups = {f"{name} speedup": medians["torch"] / medians[name] for name in graphs}
        result[label] = {name: round(value, 3) for name, value in (medians | speedups).items()}
    return result


def report(
    graph: Graph, files: dict[str, Path], ranges: dict[str, int], batches: list[Any], timed: bool
) -> dict[str, Any]:
    """Sizes of a graph's {"onnx" or "int8": file}, differences from torch, agreement on text in `batches`, times."""
    threads = torch.get_num_threads()
    opened = {name: OnnxGraph(path, threads) for name, path in files.items()}
    sizes = {  # with their large parameters, FILE.data
        path.name: sum(map(os.path.getsize, path.parent.glob(f"{path.name}*"))) for path in files.values()
    }
    result: dict[str, Any] = {"bytes": sizes}
    result["maximum_difference"] = differences(graph, opened["onnx"], ranges)
    if batches:
        result["text"] = {name: agreement(graph, onnx, batches) for name, onnx in opened.items()}
    if timed:
        result["threads"], result["milliseconds"] = threads, benchmark(graph, opened, ranges)
    return result
