"""Measures beam search of this package and of fairseq's Transformer with the same weights.

    python -m recipes.benchmark.beam_search [--quick] [--device cuda] [--precision bf16] [--shape layers=6 …]

In each round both systems translate the same batch of random tokens, one after the other. All outputs of a case have
the same length, 25 or 250 tokens. Prints JSON: the machine, the versions of packages, and for each case its sizes, the
seconds, the median ratio of fairseq's seconds to ours with its 95 % bootstrap interval, and the operators per search
step without views; on a GPU most of them launch a kernel.
"""

import argparse
import json
import logging
import math
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.sequence_generator import SequenceGenerator
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_xl import register
from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.generator import XLSequenceGenerator
from fairseq_xl.models.model_options import EncoderDecoderConfig
from recipes.benchmark.measure import LATE, ratio, surroundings
from recipes.benchmark.systems import ModelShape, changed
from recipes.benchmark.worker import failure

logger = logging.getLogger(__name__)

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SYSTEMS = ("fairseq_xl", "fairseq")
CASES = ("short", "long")
COUNTED = (4, 12)  # lengths of two outputs whose operators are counted
EOS = 2


@dataclass(frozen=True)
class Shape(ModelShape):
    """Sizes of the model, of a batch and of its outputs."""

    sentences: int = 32
    beam: int = 5
    shortest: int = 20  # tokens of a source
    longest: int = 30
    length: int = 25  # tokens of an output, </s> included


LONG = Shape(shortest=200, longest=250, length=250)
#: the long case with --quick on CPU, where a batch of the other one takes minutes
QUICK_LONG = replace(LONG, layers=2, embed_dim=256, ffn_dim=1024, heads=4, vocabulary=8000, sentences=4)


class Language(Dictionary):
    """fairseq's dictionary for our decoder, whose outputs begin with ``</s>`` here."""

    num_languages, first_language = 0, EOS


def build_models(shape: Shape) -> dict[str, tuple[Any, type[SequenceGenerator]]]:
    """Returns {system: (model, class of its generator)}; both models have the same random weights."""
    register()
    torch.manual_seed(1)
    dictionary = Language()
    for i in range(shape.vocabulary - len(dictionary)):
        dictionary.add_symbol(f"p{i}")
    positions = max(shape.longest, shape.length, *COUNTED) + 1
    cfg = Namespace(
        encoder_embed_dim=shape.embed_dim,
        encoder_ffn_embed_dim=shape.ffn_dim,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_learned_pos=True,
        decoder_learned_pos=True,
        share_all_embeddings=True,
        layernorm_embedding=True,
        max_source_positions=positions,
        max_target_positions=positions,
    )
    base_architecture(cfg)
    reference = TransformerModel.build_model(
        cfg, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    )
    config = EncoderDecoderConfig(
        embed_dim=shape.embed_dim,
        ffn_dim=shape.ffn_dim,
        heads=shape.heads,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        max_positions=positions,
        position_offset=reference.decoder.embed_positions.padding_idx + 1,
        embedding_scale="sqrt",
        activation="relu",
        layer_norm_eps=reference.decoder.layernorm_embedding.eps,
        language_embeddings="none",
        share_embeddings=True,
    )
    model = XLEncoderDecoderModel(config, dictionary)
    model.load_state_dict(LAYOUTS["fairseq_transformer"].to_ours(reference.state_dict(), {}))
    return {"fairseq_xl": (model.eval(), XLSequenceGenerator), "fairseq": (reference.eval(), SequenceGenerator)}


def batch_of(shape: Shape, index: int, device: str) -> dict[str, Any]:
    """Makes batch `index`: sources of random tokens and lengths, ``x </s>``, padded on the right."""
    generator = torch.Generator().manual_seed(index)
    size = (shape.sentences, shape.longest)
    lengths = torch.randint(shape.shortest, shape.longest + 1, size[:1], generator=generator)
    lengths[0] = shape.longest
    tokens = torch.randint(EOS + 2, shape.vocabulary, size, generator=generator)
    positions = torch.arange(shape.longest)
    tokens[positions == lengths[:, None] - 1] = EOS
    tokens[positions >= lengths[:, None]] = 1
    return {"net_input": {"src_tokens": tokens.to(device), "src_lengths": lengths.to(device)}}


def searches(shape: Shape, device: str, precision: str) -> dict[str, Callable[[Any, int], list]]:
    """Returns {system: function of a batch and a length that returns the hypotheses}."""
    return {system: _search(shape, *parts, device, precision) for system, parts in build_models(shape).items()}


def _search(shape: Shape, model: Any, generator: type, device: str, precision: str) -> Callable[[Any, int], list]:
    model = model.to(device, PRECISIONS[precision])

    def search(batch: Any, length: int) -> list:
        limits = dict(min_len=length - 1, max_len_b=length - 1)
        searcher = generator([model], model.decoder.dictionary, beam_size=shape.beam, **limits)
        return searcher.generate([model], batch)

    return search


class Operators(TorchDispatchMode):
    """Counts operators in its context, without those that return a view."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        """Runs and counts an operator."""
        results = operator._schema.returns
        views = results and results[0].alias_info is not None and not results[0].alias_info.is_write
        self.count += not views and operator.name() not in ("aten::lift_fresh", "aten::detach", "aten::_unsafe_view")
        return operator(*arguments, **(keywords or {}))


def operators_per_step(search: Callable[[Any, int], list], batch: Any) -> float:
    """Counts the operators for one more token of an output, without those that return a view."""
    counts = []
    for length in COUNTED:
        with Operators() as operators:
            search(batch, length)
        counts.append(operators.count)
    return (counts[1] - counts[0]) / (COUNTED[1] - COUNTED[0])


def measured(shape: Shape, device: str, precision: str, rounds: int, end: float) -> dict[str, Any]:
    """Returns the result of `measure`, or {"shape": …, "failed": the first line of its error}: other cases continue."""
    try:
        return measure(shape, device, precision, rounds, end)
    except Exception as error:
        logger.exception("beam search failed")
        return {"shape": asdict(shape), "failed": failure(error)}


def measure(shape: Shape, device: str, precision: str, rounds: int, end: float = math.inf) -> dict[str, Any]:
    """Measures the seconds of each system in each round, their ratio, and the operators of a step.

    No round begins after `end` (`time.monotonic`); without a counted round there is only `failed`.
    """
    if time.monotonic() >= end:
        return {"shape": asdict(shape), "failed": LATE}
    search_functions = searches(shape, device, precision)
    seconds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    same = 0.0
    for index in range(rounds + 1):  # the first round allocates memory and does not count
        if time.monotonic() >= end:
            break
        batch, best = batch_of(shape, index, device), {}
        for system in SYSTEMS:
            taken, outputs = _timed(lambda: search_functions[system](batch, shape.length), device)
            seconds[system].append(taken)
            best[system] = [hypotheses[0]["tokens"].tolist() for hypotheses in outputs]
        same += math.fsum(first == second for first, second in zip(*best.values())) / shape.sentences
    run = len(seconds["fairseq"])
    if run < 2:
        return {"shape": asdict(shape), "failed": LATE}
    seconds = {system: taken[1:] for system, taken in seconds.items()}
    return {
        "shape": asdict(shape),
        "times_fairseq": ratio(seconds["fairseq"], seconds["fairseq_xl"]),
        "same_outputs": same / run,
        "operators_per_step": {system: operators_per_step(search_functions[system], batch) for system in SYSTEMS},
        "seconds": seconds,
    }


def _timed(run: Callable[[], Any], device: str) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def cases(device: str, quick: bool, changes: list[str]) -> dict[str, Shape]:
    """Returns {name: shape} with changes such as ``layers=12``; exits with a message for an unknown name."""
    shapes = {"short": Shape(), "long": QUICK_LONG if quick and device == "cpu" else LONG}
    return {name: changed(shape, changes) for name, shape in shapes.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.benchmark.beam_search", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="counted batches (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a small model for the long case on CPU")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES, help="default: %(default)s")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument(
        "--shape", action="extend", nargs="*", default=[], metavar="KEY=VALUE", help="other sizes: vocabulary=8000 …"
    )
    parser.add_argument(
        "--deadline", type=float, default=math.inf, metavar="SECONDS", help="begin no round later (default: none)"
    )
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.deadline
    shapes = cases(options.device, options.quick, options.shape)
    result = surroundings(options.device) | {"threads": torch.get_num_threads(), "precision": options.precision}
    result["cases"] = {
        name: measured(shapes[name], options.device, options.precision, options.rounds, end) for name in options.cases
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
