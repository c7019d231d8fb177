"""Measures sentence embeddings and translation beside the programs that serve the same weights.

    python -m recipes.benchmark.serving embed FOLDER TEXT
    python -m recipes.benchmark.serving translate CHECKPOINT TEXT --lang en-de [--data FOLDER] [--length 25]

`embed` takes a folder of sentence-transformers, and compares with that package. `translate` takes a checkpoint that
`fairseq-xl model convert` exports, and compares with transformers and, where it is installed, CTranslate2, in float32
and in 8 bits. In each round every system reads the whole text, from lines to vectors or lines, one after the other.
Prints JSON: machine, versions, seconds, and the median ratio of their seconds to ours with its 95 % bootstrap interval.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fairseq_xl
from fairseq_xl.commands.model_convert import main as convert
from fairseq_xl.io.lines import read_lines
from recipes.benchmark.measure import ratio, surroundings

OURS, BEAM = "fairseq_xl", 5
SENTENCES = 32  # of a batch of transformers; sentence-transformers has the same by default
TOKENS = 4096  # of a batch of CTranslate2, as here

System = Callable[[list[str]], Any]


def embedders(folder: Path, lang: str, work: Path) -> dict[str, System]:
    """{name: a function from lines to vectors (n, C)} of a folder of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    convert([str(folder), str(work / "ours")])
    model, reference = fairseq_xl.load(work / "ours"), SentenceTransformer(str(folder), device="cpu")
    return {OURS: lambda lines: model.encode(lines, lang), "sentence-transformers": reference.encode}


def translators(checkpoint: Path, data: str | None, lang: str, length: int, work: Path) -> dict[str, System]:
    """{name: a function from lines to translations of at most `length` tokens by beam search} of a checkpoint."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = work / "theirs"
    convert([str(checkpoint), str(folder), "--lang", lang, *(["--data", data] if data else [])])
    model, tokenizer = fairseq_xl.load(checkpoint, data), AutoTokenizer.from_pretrained(folder)
    reference, (source, target) = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), lang.split("-")

    def generate(lines: list[str]) -> list[str]:
        order = sorted(range(len(lines)), key=lambda index: len(lines[index]))
        outputs: dict[int, str] = {}
        for first in range(0, len(order), SENTENCES):
            part = order[first : first + SENTENCES]
            inputs = tokenizer([lines[index] for index in part], return_tensors="pt", padding=True)
            ids = reference.generate(**inputs, num_beams=BEAM, max_new_tokens=length, early_stopping=True)
            outputs |= zip(part, tokenizer.batch_decode(ids, skip_special_tokens=True))
        return [outputs[index] for index in range(len(lines))]

    options = {"max_len_a": 0, "max_len_b": length - 1}  # without </s>
    systems: dict[str, System] = {
        OURS: lambda lines: model.translate(lines, source, target, BEAM, **options),
        "transformers": generate,
    }
    return systems | {
        f"CTranslate2 {kind}": _ctranslate2(folder, reference.config, tokenizer, kind, length)
        for kind in ("float32", "int8")
    }


def _ctranslate2(folder: Path, config: Any, tokenizer: Any, kind: str, length: int) -> System:
    import ctranslate2

    converter = ctranslate2.converters.TransformersConverter(str(folder))
    threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
    translator = ctranslate2.Translator(converter.convert(f"{folder}-{kind}", quantization=kind), **threads)
    limits = {"max_decoding_length": length, "max_batch_size": TOKENS, "batch_type": "tokens"}
    is_mbart = config.model_type == "mbart"  # its outputs begin with the symbol of the language
    start = [tokenizer.convert_ids_to_tokens(config.decoder_start_token_id)] if is_mbart else None

    def translate(lines: list[str]) -> list[str]:
        tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(lines)["input_ids"]]
        prefix = [start] * len(tokens) if start else None
        results = translator.translate_batch(tokens, beam_size=BEAM, target_prefix=prefix, **limits)
        ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        return list(tokenizer.batch_decode(ids, skip_special_tokens=True))

    return translate


def agreement(result: Any, expected: Any) -> dict[str, float]:
    """The largest difference of vectors (n, C), or the share of equal lines."""
    if isinstance(result, np.ndarray):
        return {"largest_difference": float(np.abs(result - expected).max())}
    return {"equal_lines": sum(map(str.__eq__, result, expected)) / len(result)}


def measure(systems: dict[str, System], lines: list[str], rounds: int) -> dict[str, Any]:
    """Seconds of each system in each round, {system: median ratio of its seconds to ours}, and their agreement."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    results: dict[str, Any] = {}
    for index in range(rounds + 1):  # the first round allocates memory and does not count
        for name, run in systems.items():
            start = time.perf_counter()
            results[name] = run(lines)
            if index:
                seconds[name].append(time.perf_counter() - start)
    programs = [name for name in systems if name != OURS]
    return {
        "times_theirs": {name: ratio(seconds[name], seconds[OURS]) for name in programs},
        "agreement": {name: agreement(results[OURS], results[name]) for name in programs},
        "seconds": seconds,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.benchmark.serving", description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("embed", "translate"))
    parser.add_argument("model", type=Path, help="folder of sentence-transformers, or checkpoint of translation")
    parser.add_argument("text", help="file of sentences")
    parser.add_argument("--lang", default="", metavar="XX", help="language, or XX-YY, the direction")
    parser.add_argument("--data", help="data folder of the checkpoint (default: that of its training)")
    parser.add_argument("--length", type=int, default=200, help="most tokens of a translation (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="counted rounds (default: %(default)s)")
    options = parser.parse_args(arguments)
    lines = [line for line in read_lines(options.text) if line.strip()]
    with tempfile.TemporaryDirectory() as work:
        if options.what == "embed":
            systems = embedders(options.model, options.lang, Path(work))
        else:
            systems = translators(options.model, options.data, options.lang, options.length, Path(work))
        result = surroundings("cpu") | {"threads": torch.get_num_threads(), "lines": len(lines)}
        packages = {name.split()[0].lower() for name in systems if name != OURS}
        result["versions"] |= {name: version(name) for name in sorted(packages)}
        sys.stdout.write(json.dumps(result | measure(systems, lines, options.rounds), indent=1) + "\n")


if __name__ == "__main__":
    main()
