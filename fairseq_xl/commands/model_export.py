"""Writes a checkpoint's model as ONNX files for onnxruntime, and compares them with torch.

    fairseq-xl model export runs/my/nc/checkpoint_best.pt models/nc-onnx --data data-bin/my --int8 --text de=test.de

The folder OUT gets `model.onnx` (an encoder, a masked language model or a fine-tuned head), or `encoder.onnx` and
`decoder.onnx` (one step of the decoder, with caches of keys and values). Batches and texts of any size are allowed.
`model.json` lists inputs, outputs, special symbols, languages and labels. `report.json`, which is also printed, has the
sizes of the files and the maximum differences from torch on random inputs. Nothing is written if an output differs by
more than 1/1000 of its largest value; outputs of the 8-bit files (--int8) are not bounded.
"""

import logging
from typing import Any

from fairseq_xl.commands import MODULE, Options, argument, command, flag, several
from fairseq_xl.errors import UserError, named_values
from fairseq_xl.io.files import write_json
from fairseq_xl.io.folders import new_folder
from fairseq_xl.io.lines import read_lines
from fairseq_xl.serving.runtime import DESCRIPTION, OUTPUTS

logger = logging.getLogger(__name__)

REPORT = "report.json"


@command(
    argument("checkpoint", "checkpoint of an encoder, a fine-tuned encoder or an encoder-decoder"),
    argument("out", "new folder to write"),
    argument("--data", "folder with the checkpoint's dict.txt (default: that of its training)"),
    argument(
        "--returns",
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
    from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
    from fairseq_xl.inference.model_loading import load_model
    from fairseq_xl.serving import export, export_checks

    if options.lang and not options.language_module:
        raise UserError(f"--lang {options.lang} is the language of --language-module, which is missing")
    text_files = named_values("--text", options.text, "XX=FILE, a language and a file of its text")
    texts = {language: (path, read_lines(path)) for language, path in text_files.items()}
    names = [name for name in ("language_module", "lang") if getattr(options, name)]
    model, task = load_model(options.checkpoint, options.data, **{name: getattr(options, name) for name in names})
    kind, graphs = export.build_graphs(model.eval(), task, options.returns)
    if texts and len(graphs) > 1:
        raise UserError("--text: an encoder-decoder has no predictions for single texts; leave it out")
    batches: list[Any] = []
    if texts:
        longest = model.encoder.embeddings.max_positions
        longest = min(longest, getattr(task.cfg, "length", None) or longest)
        batches = export_checks.text_batches(texts, TextEncoder(task.folder(), task.dictionary), task, longest)
    ranges = export.input_ranges(task)
    with new_folder(options.out) as folder:
        write_json(folder / DESCRIPTION, export.describe(kind, graphs, model, task))
        report: dict[str, Any] = {"checkpoint": str(options.checkpoint), "kind": kind, "graphs": {}}
        for name, graph in graphs.items():
            files = {"onnx": folder / f"{name}.onnx"}
            export.write_graph(graph, files["onnx"], ranges)
            if options.int8:
                files["int8"] = export.write_int8(files["onnx"])
            report["graphs"][name] = export_checks.report(graph, files, ranges, batches, options.benchmark)
        write_json(folder / REPORT, report)
    return report
