"""Sentence retrieval without training (V11): ``python -m fairseq_xl.retrieval CHECKPOINT DATA --test en-de=PREFIX``.

PREFIX.en and PREFIX.de hold aligned sentences. Each is a vector, the mean over its tokens or its first token in some
layer, and its translation is the sentence of the other side with the best score. With --dev all layers and poolings are
tried on held-out pairs and the best one, by the average accuracy with the margin score, is used for the test pairs.
Prints one JSON line.
"""

import argparse
import json
import logging
import sys
from pathlib import Path

import numpy as np
import torch

from fairseq_xl import error_reporting, load
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.text import TextEncoder, cut
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval import averages, evaluate, read_named_pairs
from fairseq_xl.models.encoder import Encoder
from fairseq_xl.models.monotrans import XLMonoTransModel

logger = logging.getLogger(__name__)

POOLINGS = ("mean", "first")
BATCH_TOKENS = 4096


class Embedder:
    """The encoder of a checkpoint of any task, as a function from sentences to vectors.

    Args:
        checkpoint: its file.
        data: the folder with the dictionary and the SentencePiece model that it was trained with, or those of the bank.
        bank: options `bank` and `lang` of the task, for another bank than the checkpoint's.
    """

    def __init__(self, checkpoint, data, **bank):
        model, self.task = load(checkpoint, data, **bank)
        if not isinstance(getattr(model, "encoder", None), Encoder):
            raise UserError(f"{checkpoint}: retrieval needs a model with an encoder, and this one has none")
        self.has_banks = isinstance(model, XLMonoTransModel)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.encoder = model.encoder.to(self.device)
        self.longest = self.encoder.embeddings.max_positions
        self.encode = TextEncoder(Path(data) / "sentencepiece.model", self.task.dictionary)
        self.choices = [(layer, pooling) for layer in range(len(self.encoder.layers) + 1) for pooling in POOLINGS]

    def rows(self, sentences, language):
        """Sentences of a language -> framed token sequences, cut to what the model takes."""
        ended = [self.encode(sentence, language) for sentence in sentences]
        too_long = sum(len(tokens) >= self.longest for tokens in ended)
        if too_long:
            logger.warning("%d sentences are cut to %d tokens", too_long, self.longest)
        return [self.task.framing.sentence(cut(tokens, self.longest - 1)) for tokens in ended]

    @torch.no_grad()
    def __call__(self, sentences, language, choices, batch_tokens=BATCH_TOKENS):
        """n sentences of one language -> {(layer, pooling): (n, C) float32} for each of `choices`.

        Layer 0 is the embeddings. The mean is over all tokens but padding.
        """
        rows, identity = self.rows(sentences, language), self.task.dictionary.language_id(language)
        found = {choice: [None] * len(rows) for choice in choices}
        for batch in batches([len(row) for row in rows], batch_tokens):
            tokens = torch.from_numpy(pad_rows([rows[index] for index in batch], self.task.dictionary.pad()))
            tokens = tokens.to(self.device)
            padding = tokens.eq(self.task.dictionary.pad())
            # named, since the encoder of a translation model has fairseq's interface
            states = Encoder.forward(
                self.encoder, tokens, languages=torch.full_like(tokens[:, :1], identity),
                padding_mask=padding if padding.any() else None, all_layers=True,
            )  # fmt: skip
            for layer, pooling in choices:
                for index, vector in zip(batch, pool(states[layer], padding, pooling).float().cpu().numpy()):
                    found[layer, pooling][index] = vector
        return {choice: np.stack(vectors) for choice, vectors in found.items()}


def batches(lengths, most_tokens):
    """Indices of sentences of similar length, in lists of at most `most_tokens` tokens with padding, or of one."""
    batch = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and lengths[index] * (len(batch) + 1) > most_tokens:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def pool(hidden, padding, pooling):
    """Hidden states (B, T, C), padding (B, T) bool -> (B, C)"""
    if pooling == "first":
        return hidden[:, 0]
    return hidden.masked_fill(padding[..., None], 0).sum(1) / (~padding).sum(1, keepdim=True)


def retrieve(embedders, texts, choices):
    """Sentences {pair: two lists} -> {choice: {pair: scores of `evaluate`, with "pairs", their number}}.

    Embedders are by language; that of None serves the others.
    """
    results = {choice: {} for choice in choices}
    for pair, sides in texts.items():
        languages = pair.split("-")
        vectors = [
            embedders.get(language, embedders[None])(side, language, choices)
            for side, language in zip(sides, languages)
        ]
        for choice in choices:
            results[choice][pair] = {"pairs": len(sides[0])} | evaluate(vectors[0][choice], vectors[1][choice])
    return results


def main(arguments=None):
    """The command."""
    options = _parser().parse_args(arguments)
    if not options.dev and (options.layer is None or options.pooling is None):
        raise UserError("give --layer and --pooling, or --dev pairs to choose them on")
    test, dev = read_named_pairs(options.test), read_named_pairs(options.dev)
    tested = {language for pair in (*test, *dev) for language in pair.split("-")}
    banks = _banks(options.lang, tested)
    embedder = Embedder(options.checkpoint, options.data)
    if embedder.has_banks:
        own = embedder.task.dictionary.languages
        for language in sorted(tested - banks.keys() - set(own)):
            told = f"--lang {language}=DATA:BANK gives the model a bank of {language}"
            raise UserError(f"{options.data} is of {', '.join(own)}: {told}")
    elif banks:
        raise UserError(f"--lang: {options.checkpoint} is no xl_monotrans_* model, and those alone have banks")
    embedders = {None: embedder} | {
        language: Embedder(options.checkpoint, data, bank=bank, lang=language)
        for language, (data, bank) in banks.items()
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


def _parser():
    parser = argparse.ArgumentParser(prog="python -m fairseq_xl.retrieval", description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of any task")
    parser.add_argument("data", help="folder with its dict.txt and sentencepiece.model")
    parser.add_argument("--test", nargs="+", required=True, metavar="XX-YY=PREFIX", help="test pairs, a file a side")
    parser.add_argument("--dev", nargs="+", default=[], metavar="XX-YY=PREFIX", help="held-out pairs to choose on")
    parser.add_argument(
        "--lang",
        action="append",
        default=[],
        metavar="XX=DATA:BANK",
        help="a language's bank in place of the checkpoint's (MonoTrans), and the folder of its dict.txt",
    )
    parser.add_argument("--layer", type=int, help="only this layer; 0: the embeddings")
    parser.add_argument("--pooling", choices=POOLINGS, help="only the mean over tokens, or only the first token")
    return parser


def _banks(named, tested):
    """{language: its folder and its bank}, each of the languages `tested`."""
    found = {}
    for argument in named:
        language, _, rest = argument.partition("=")
        data, _, bank = rest.partition(":")
        if not language or not data or not bank:
            raise UserError(f"--lang {argument}: expected XX=DATA:BANK, the folder of its dict.txt and its bank")
        if language not in tested:
            raise UserError(f"--lang {argument}: no pair has the language {language}")
        if language in found:
            raise UserError(f"--lang {argument}: {language} has a bank already")
        found[language] = data, bank
    return found


if __name__ == "__main__":
    error_reporting.install()
    main()
