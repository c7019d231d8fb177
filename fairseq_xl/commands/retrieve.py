"""Finds translations of sentences with the encoder of a checkpoint, without training (Luo et al. 2020).

The files PREFIX.en and PREFIX.de of a pair en-de hold aligned sentences. A sentence is represented
by the mean over its tokens, or by its first token, in one layer. Its translation is the sentence of the other file with
the best score. With --dev, layer and pooling are selected by the average accuracy by margin on held-out pairs, and used
for the test pairs. Prints one JSON line.
"""

import argparse
import json
import sys

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval import averages, read_named_pairs
from fairseq_xl.retrieval import POOLINGS, Embedder, retrieve


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    if not options.dev and (options.layer is None or options.pooling is None):
        raise UserError("give --layer and --pooling, or --dev pairs to select them on")
    test, dev = read_named_pairs(options.test), read_named_pairs(options.dev)
    tested = {language for pair in (*test, *dev) for language in pair.split("-")}
    modules = _language_modules(options.lang, tested)
    embedder = Embedder(options.checkpoint, options.data)
    if embedder.has_language_modules:
        own = embedder.task.dictionary.languages
        for language in sorted(tested - modules.keys() - set(own)):
            remedy = f"--lang {language}=DATA:MODULE gives the model a language module of {language}"
            raise UserError(f"{options.data} is of {', '.join(own)}: {remedy}")
    elif modules:
        raise UserError(
            f"--lang: {options.checkpoint} is not an xl_monotrans_* model; only those have language modules"
        )
    embedders = {None: embedder} | {
        language: Embedder(options.checkpoint, data, language_module=module, lang=language)
        for language, (data, module) in modules.items()
    }
    choices = [
        (layer, pooling)
        for layer, pooling in embedder.choices
        if options.layer in (None, layer) and options.pooling in (None, pooling)
    ]
    if not choices:
        raise UserError(f"--layer {options.layer}: the model has the layers 0 to {len(embedder.encoder.layers)}")
    result = {}
    if dev:
        tried = retrieve(embedders, dev, choices)
        table = [{"layer": choice[0], "pooling": choice[1], **averages(found)} for choice, found in tried.items()]
        best = max(range(len(choices)), key=lambda number: table[number]["margin"])  # the first of equals
        choices, result["dev"] = [choices[best]], table
    (found,) = retrieve(embedders, test, choices).values()
    result |= {"layer": choices[0][0], "pooling": choices[0][1], "average": averages(found), "test": found}
    sys.stdout.write(json.dumps(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl retrieve", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of any task")
    parser.add_argument("data", help="folder with its dict.txt and sentencepiece.model")
    parser.add_argument(
        "--test", action="extend", nargs="+", required=True, metavar="XX-YY=PREFIX", help="test pairs of files"
    )
    parser.add_argument(
        "--dev", action="extend", nargs="+", default=[], metavar="XX-YY=PREFIX", help="held-out pairs of files"
    )
    parser.add_argument(
        "--lang",
        action="append",
        default=[],
        metavar="XX=DATA:MODULE",
        help="a language module that replaces the checkpoint's (MonoTrans), and the folder of its dict.txt",
    )
    parser.add_argument("--layer", type=int, help="only this layer; 0: the embeddings")
    parser.add_argument("--pooling", choices=POOLINGS, help="only the mean over tokens, or only the first token")
    return parser


def _language_modules(named: list[str], tested: set[str]) -> dict[str, tuple[str, str]]:
    """Arguments XX=DATA:MODULE -> {language: (data folder, language module's file)}, each of a `tested` language."""
    found: dict[str, tuple[str, str]] = {}
    for argument in named:
        language, _, rest = argument.partition("=")
        data, _, module = rest.partition(":")
        if not language or not data or not module:
            raise UserError(
                f"--lang {argument}: expected XX=DATA:MODULE, the folder of its dict.txt and its language module"
            )
        if language not in tested:
            raise UserError(f"--lang {argument}: no pair has the language {language}")
        if language in found:
            raise UserError(f"--lang {argument}: {language} has a language module already")
        found[language] = data, module
    return found
