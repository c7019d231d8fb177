"""Measures the share of generation in a training step of unsupervised translation.

    python -m recipes.benchmark.back_translation CHECKPOINT DATA [--batches 15] [--max-tokens 2000] [--device cuda]

The first batches of back-translation of an epoch are translated, and then trained on: translation, loss, gradients,
clipping and Adam. Prints JSON: the machine, the versions of packages, the sizes of the model, the seconds, and the
median share with its 95 % bootstrap interval.
"""

import argparse
import json
import sys
import time
from typing import Any

import torch
from fairseq import utils

import fairseq_xl
from recipes.benchmark.measure import ratio, surroundings

SIZES = ("encoder_layers", "decoder_layers", "embed_dim")


def measure(checkpoint: str, data: str, batches: int, max_tokens: int, device: str) -> dict[str, Any]:
    """Measures the seconds of generation and of whole steps for each batch, and the share of generation."""
    model, task = fairseq_xl.load(checkpoint, data)
    objective = task.objectives["back_translation"]
    objective.scorer = None  # counting translations is not measured
    task.load_dataset("train")
    epoch = task.get_batch_iterator(task.datasets["train"], max_tokens=max_tokens, training=True).next_epoch_itr()
    model = model.to(device).train()
    optimizer = torch.optim.Adam([weights for weights in model.parameters() if weights.requires_grad])
    seconds: dict[str, list[float]] = {"generation": [], "step": []}
    for sample in epoch:
        if sample["objective"] != "back_translation":
            continue
        batch = utils.move_to_cuda(sample["batch"]) if device == "cuda" else sample["batch"]
        seconds["generation"].append(_timed(lambda: objective.translated(model, batch), device))
        seconds["step"].append(_timed(lambda: _step(model, objective, batch, optimizer), device))
        if len(seconds["step"]) > batches:  # the first batch allocates memory and does not count
            break
    seconds = {name: values[1:] for name, values in seconds.items()}
    return surroundings(device) | {
        "threads": torch.get_num_threads(),
        "model": {name: getattr(model.cfg, name) for name in SIZES} | {"vocabulary": len(task.dictionary)},
        "max_tokens": max_tokens,
        "share": ratio(*seconds.values()),
        "seconds": seconds,
    }


def _step(model: Any, objective: Any, batch: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    (term,) = model(objective.loss, batch).values()
    (term.sum / term.count).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
    optimizer.step()


def _timed(run: Any, device: str) -> float:
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.benchmark.back_translation", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", help="checkpoint of xl_unsupervised_translation")
    parser.add_argument("data", help="its data folder")
    parser.add_argument("--batches", type=int, default=15, help="counted batches (default: 15)")
    parser.add_argument("--max-tokens", type=int, default=2000, help="tokens of a batch (default: 2000)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = vars(parser.parse_args(arguments))
    sys.stdout.write(json.dumps(measure(**options), indent=1) + "\n")


if __name__ == "__main__":
    main()
