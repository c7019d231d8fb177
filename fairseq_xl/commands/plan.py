"""Dry run of a training, without its text or a GPU: its memory, tokens, operations and hours, computed.

    fairseq-xl plan recipes/veco/config/pretrain.yaml --gpus 16 --gpu A100
    fairseq-xl plan my/pretrain.yaml --vocabulary 120000 --max-tokens 8192 --bf16 --tokens-per-second 300000

CONFIG … are YAML files of flags of fairseq-train, as --config names them; flags of fairseq-train on the command line
override them. The command computes the parameters, the peak memory of each GPU and its parts in GiB, the tokens and
floating-point operations (flops) of an update of all processes, and those of the training if --max-update or
--max-epoch ends it. With --gpu or --tokens-per-second it computes the hours, with --gpu or --memory the largest batches
that fit.

For a configuration listed in a papers.yaml in one of its parent folders, the vocabulary, the languages, the published
number of parameters and the paper's GPUs come from there.
"""

import dataclasses
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_xl import register
from fairseq_xl.commands import Options, argument, command, several
from fairseq_xl.errors import UserError, in_range, positive_integer
from fairseq_xl.io import bounds
from fairseq_xl.planning.gpus import GPUS, SHARE, count_and_name, gpu_named, hours

logger = logging.getLogger(__name__)
GIB = 2**30
USABLE_SHARE = 0.9  # of a GPU's memory; CUDA's context and what its allocator rounds up take the rest
DEFAULT_UPDATES = 100_000  # updates whose hours are shown where nothing ends a training
MEMORY, LINE_TOKENS = in_range(float, "more than 0", 4096), in_range(int, "1 or more", 100_000)
SYMBOLS = in_range(int, "1 or more", bounds.LARGEST_VOCABULARY)
USAGE = """fairseq-xl plan CONFIG.yaml … [options] [--flag value …]
       fairseq-xl plan --list LIST.yaml [options]"""
LIST_OPTIONS = ("gpus", "vocabulary", "languages", "examples", "line_tokens")


@command(
    several("--config", "a YAML file of flags, as in fairseq-train", "FILE", "append"),
    argument("--gpu", f"GPU for hours and memory: {', '.join(GPUS)}", metavar="GPU"),
    argument("--gpus", "number of GPUs, --distributed-world-size (default: this machine's)", positive_integer),
    argument("--share", f"share of the GPU's peak speed (default: {SHARE})", in_range(float, "more than 0", 1)),
    argument("--tokens-per-second", "speed for hours, of all GPUs together", positive_integer),
    argument("--memory", "memory of a GPU in GiB (default: that of --gpu)", MEMORY),
    argument("--vocabulary", "symbols in the dictionary (default: the list's, or 32000)", SYMBOLS),
    argument("--languages", "language symbols in the dictionary (default: the list's, or 2)", SYMBOLS),
    argument("--examples", "sentence pairs or labeled texts, from which updates of an epoch follow", positive_integer),
    argument("--line-tokens", "tokens per side of a sentence pair, with </s> (default: 32)", LINE_TOKENS),
    argument("--list", "plan the trainings of a list, such as recipes/papers.yaml", metavar="FILE"),
    flags=True,
    usage=USAGE,
    allow_abbrev=False,
)
def main(options: Options) -> Iterator[dict[str, Any]]:
    """Runs the command."""
    words = options.flags
    first = next((index for index, word in enumerate(words) if not word.endswith((".yaml", ".yml"))), len(words))
    configs, flags = words[:first] + options.config, words[first:]
    if bool(configs) == bool(options.list):
        raise UserError("plan: name CONFIG.yaml …, or --list LIST.yaml")
    memory = options.memory or (options.gpu and gpu_named(options.gpu).memory)
    values = {name: getattr(options, name) for name in LIST_OPTIONS if getattr(options, name) is not None}
    if options.list and (unused := [f"--{name.replace('_', '-')}" for name in values] + flags):
        raise UserError(f"plan: unexpected {unused[0]}: with --list, the list sets it")
    flags += ["--distributed-world-size", str(values.pop("gpus"))] if "gpus" in values else []
    register()
    from fairseq_xl.planning.counting import count
    from fairseq_xl.planning.setting import listed_setting, read_list

    settings = [dataclasses.replace(listed_setting(configs, flags), **values)] if configs else []
    settings = settings or read_list(Path(options.list))
    if options.share and not options.gpu and not any(setting.gpus for setting in settings):
        raise UserError(f"plan: --share {options.share}: name the GPU, --gpu V100")
    try:
        for setting in settings:
            logger.info("%s: counting an update, which takes a minute or more for a large model", setting.name)
            logging.disable(logging.WARNING)  # of tasks, about the generated text
            with tempfile.TemporaryDirectory(prefix="plan-") as folder:
                counts = count(setting, Path(folder) / "data", memory and USABLE_SHARE * GIB * memory)
            logging.disable(logging.NOTSET)
            yield result_of(setting, counts, options)
    finally:
        logging.disable(logging.NOTSET)


def result_of(setting: Any, counts: dict[str, Any], options: Options) -> dict[str, Any]:
    """The counts of a `Setting` as the result of the command: memory in GiB, hours, and what a paper says."""

    def gib(size: int) -> float:
        return round(size / GIB, 2)

    def entry(source: str, gpus: str, number: int, time: float) -> dict[str, Any]:
        hours = float(f"{time:.3g}")
        return {"source": source, "gpus": gpus, "count": number, "hours": hours, "updates": updates}

    updates, precision, share = counts["updates"] or DEFAULT_UPDATES, counts["precision"], options.share or SHARE
    sources = {"--gpu": options.gpu and (counts["gpus"], options.gpu)}
    sources |= {"paper": setting.gpus and count_and_name(setting.gpus)}
    sources, flops = {source: gpus for source, gpus in sources.items() if gpus}, counts["flops_per_update"] * updates
    times = [entry(source, name, n, hours(flops, n, name, precision, share)) for source, (n, name) in sources.items()]
    if speed := options.tokens_per_second:
        time = counts["tokens_per_update"] * updates / speed / 3600
        times.append(entry(f"{speed} tokens per second", options.gpu or "", counts["gpus"], time))
    names = dict.fromkeys(name for _, name in sources.values())
    in_bf16 = [name for name in names if precision == "fp32" and GPUS[name].half == GPUS[name].single]
    if in_bf16 and (in_fp32 := [name for name in names if name not in in_bf16]):
        counts["notes"].append(
            f"hours are not comparable: {in_fp32[0]} at its FP32 peak, {in_bf16[0]}, which multiplies FP32 values in "
            f"bf16, at its bf16 peak; with {'--bf16' if GPUS[in_fp32[0]].bf16 else '--fp16'} both are at 16-bit peaks"
        )
    for name in names:
        if precision.endswith("bf16") and not GPUS[name].bf16:
            counts["notes"].append(f"{name} has no bf16 tensor cores: hours are those at its FP32 peak")
    for batch in counts["batches"].values():
        batch |= {f"{part}_GiB": gib(batch.pop(part)) for part in ("activations", "loss", "peak")}
    result = {
        "training": setting.name,
        "published_parameters": setting.parameters,
        "memory_GiB": {part: gib(size) for part, size in counts.pop("memory").items()},
        **counts,
        "share_of_peak": share if sources else None,
        "hours": times,
    }
    return {name: value for name, value in result.items() if value is not None}
