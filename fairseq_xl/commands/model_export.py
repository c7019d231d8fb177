"""Writes a checkpoint's model as ONNX files for onnxruntime, and compares them with torch.

The folder OUT gets `model.onnx` (an encoder, a masked language model or a fine-tuned head), or `encoder.onnx` and
`decoder.onnx` (one step of the decoder, with caches of keys and values). Batches and texts of any size are allowed.
`model.json` lists inputs, outputs, special symbols, languages and labels. `report.json`, which is also printed, has the
sizes of the files and the maximum differences from torch on random inputs. Nothing is written if an output differs by
more than 1/1000 of its largest value; outputs of the 8-bit files (--int8) are not bounded.
"""

import logging
import os
from pathlib import Path
from typing import Any

import torch

from fairseq_xl.commands import MODULE, Options, argument, command, flag, several
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError, named_values
from fairseq_xl.inference.model_loading import load_model
from fairseq_xl.io.files import write_json
from fairseq_xl.io.folders import new_folder
from fairseq_xl.io.lines import read_lines
from fairseq_xl.serving import export_checks
from fairseq_xl.serving.export import OUTPUTS, build_graphs, describe, input_ranges, write_graph, write_int8
from fairseq_xl.serving.graphs import Graph
from fairseq_xl.serving.runtime import DESCRIPTION, OnnxGraph

logger = logging.getLogger(__name__)

REPORT = "report.json"


@command(
    argument("checkpoint", "checkpoint of an encoder, a fine-tuned encoder or an encoder-decoder"),
    argument("out", "new folder to write"),
    argument("--data", "folder with the checkpoint's dict.txt (default: that of its training)"),
    argument(
        "--output",
        "output of an encoder: hidden, the last hidden states; logits, those of the masked language model; head, the "
        "outputs of the fine-tuned head (default: head for a fine-tuned model, otherwise hidden)",
        choices=OUTPUTS,
    ),
    MODULE,
    argument("--lang", "language of --language-module", metavar="XX"),
    flag("--int8", "write files with 8-bit weights too: NAME.int8.onnx"),
    several("--text", "text, or TAB-separated pairs, on which predictions are compared with torch's", "XX=FILE"),
    flag("--benchmark", "measure times, of torch too"),
)
def main(options: Options) -> dict[str, Any]:
    if options.lang and not options.language_module:
        raise UserError(f"--lang {options.lang} is the language of --language-module, which is missing")
    text_files = named_values("--text", options.text, "XX=FILE, a language and a file of its text")
    texts = {language: (path, read_lines(path)) for language, path in text_files.items()}
    names = [name for name in ("language_module", "lang") if getattr(options, name)]
    model, task = load_model(options.checkpoint, options.data, **{name: getattr(options, name) for name in names})
    kind, graphs = build_graphs(model.eval(), task, options.output)
    if texts and len(graphs) > 1:
        raise UserError("--text: an encoder-decoder has no predictions for single texts; leave it out")
    batches: list[Any] = []
    if texts:
        longest = model.encoder.embeddings.max_positions
        longest = min(longest, getattr(task.cfg, "length", None) or longest)
        batches = export_checks.text_batches(texts, TextEncoder(task.folder(), task.dictionary), task, longest)
    with new_folder(options.out) as folder:
        write_json(folder / DESCRIPTION, describe(kind, graphs, model, task))
        report: dict[str, Any] = {"checkpoint": str(options.checkpoint), "kind": kind, "graphs": {}}
        for name, graph in graphs.items():
            files = {"onnx": folder / f"{name}.onnx"}
            write_graph(graph, files["onnx"], input_ranges(task))
            if options.int8:
                files["int8"] = write_int8(files["onnx"])
            report["graphs"][name] = _report(graph, files, input_ranges(task), batches, options.benchmark)
        write_json(folder / REPORT, report)
    return report


def _report(
    graph: Graph, files: dict[str, Path], ranges: dict[str, int], batches: list[Any], timed: bool
) -> dict[str, Any]:
    """Sizes of a graph's {"onnx" or "int8": file}, differences from torch, agreement on text in `batches`, times."""
    threads = torch.get_num_threads()
    opened = {name: OnnxGraph(path, threads) for name, path in files.items()}
    sizes = {  # with their large parameters, FILE.data
        path.name: sum(map(os.path.getsize, path.parent.glob(f"{path.name}*"))) for path in files.values()
    }
    report: dict[str, Any] = {"bytes": sizes}
    report["maximum_difference"] = export_checks.differences(graph, opened["onnx"], ranges)
    if batches:
        report["text"] = {name: export_checks.agreement(graph, onnx, batches) for name, onnx in opened.items()}
    if timed:
        report["threads"], report["milliseconds"] = threads, export_checks.benchmark(graph, opened, ranges)
    return report
