"""Perplexity of a causal language model, per prediction and by word (Lample & Conneau 2019, section 4.4).

    fairseq-xl score perplexity runs/my/clm/checkpoint_best.pt data-bin/my --langs en,de

Reads the binarized text of a split as the validation of fairseq-train does, with the settings of the checkpoint. The
perplexity per prediction (pieces and </s>) is exp(nats / predictions); each token is predicted once, from the tokens
before it in its block. By word: exp(nats / words); words are counted by ▁ (SentencePiece) or @@ (BPE), and a dictionary
with neither is refused. Only the perplexity by word can be compared between vocabularies. It means nothing for
languages written without spaces. `bigram` has the same for a bigram model of the language's training text.
"""

import math
from pathlib import Path
from typing import Any

from fairseq_xl.commands import Options, argument, command
from fairseq_xl.data.store.manifest import one_folder
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.versions import version

LARGEST = 700  # nats whose exponential is a 64-bit number


@command(
    argument("checkpoint", "checkpoint of xl_pretraining with the objective clm"),
    argument("data", "data folder", type=Path),
    argument("--langs", "languages, separated by commas", required=True),
    argument("--split", "split", default="valid"),
)
def main(options: Options) -> dict[str, Any]:
    if options.split == "train":
        raise UserError("--split train: only held-out text can be scored")
    names_of("--langs", options.langs)
    from fairseq_xl.inference.perplexity import bigram_totals, totals  # --help does not wait for torch

    options.data = one_folder(options.data)  # the bigrams are those of its training text
    sums_by_language, settings = totals(options.checkpoint, options.data, options.langs, options.split)
    languages = {
        code: scores(**sums) | {"bigram": scores(**bigram_totals(options.data, code, options.split))}
        for code, sums in sums_by_language.items()
    }
    versions = {package: version(package) for package in ("fairseq_xl", "fairseq", "torch")}
    return {"split": options.split, "versions": versions, "settings": settings, "languages": languages}


def scores(nats: float, tokens: float, words: float, sentences: float) -> dict[str, Any]:
    """Perplexity per prediction (pieces and </s>) and by word, with the sums that they are computed from.

    The perplexity by word is None if there is no word, or if it is too large for a number. Chinese, which has no spaces
    between words, has few and long "words".
    """
    return {
        "perplexity": _perplexity(nats, tokens),
        "word_perplexity": _perplexity(nats, words),
        **{"nats": round(nats, 3), "tokens": int(tokens), "words": int(words), "sentences": int(sentences)},
    }


def _perplexity(nats: float, count: float) -> float | None:
    return round(math.exp(nats / count), 3) if count and nats / count < LARGEST else None
