"""Bits per predicted token of unigram and bigram models, beside which the loss of MLM in the log can be read.

    fairseq-xl score ngram-entropy data-bin/my --length 64

The positions are those that MLM would predict in the validation text. The bigram model predicts a token from the one on
its left, "both neighbors" from the tokens on both sides; both see neighbors that MLM may have masked.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fairseq_xl.commands import Options, argument, command
from fairseq_xl.data.noise.masking import choose_positions
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.store.manifest import one_folder
from fairseq_xl.errors import UserError, in_range, names_of, positive_integer
from fairseq_xl.evaluation.ngrams import bits, flat


@command(
    argument("data", "folder that `fairseq-xl data prepare` wrote", type=Path),
    argument("--langs", "languages, separated by commas (default: all of the dictionary)"),
    argument("--split", "text to predict", default="valid"),
    argument("--length", "mlm.length", positive_integer, 256),
    argument("--mask-prob", "mlm.mask_prob", in_range(float, "more than 0"), 0.15),
    argument("--frequency-exponent", "mlm.frequency_exponent", in_range(float), 0.5),
)
def main(options: Options) -> dict[str, dict[str, float]]:
    """Returns {language: {model: bits}}."""
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary

    if options.mask_prob > 1:
        raise UserError(f"--mask-prob {options.mask_prob}: a positive number is needed")
    options.data = one_folder(options.data)
    dictionary = XLDictionary.load(options.data / "dict.txt")
    entropies, end, count = {}, dictionary.eos(), len(dictionary)
    for code in names_of("--langs", options.langs) if options.langs else dictionary.languages:
        dictionary.language_id(code)
        splits = (open_text(options.data / code / split, code, count) for split in ("train", options.split))
        train, valid = ([text[line] for line in range(len(text))] for text in splits)
        text = flat(valid, end)
        predicted = positions(text[1:], dictionary, options) + 1
        if not len(predicted):
            raise UserError(f"{options.data}: the {options.split} text of {code} has no token to predict")
        row = {"tokens": len(predicted)} | bits(train, dictionary.pieces, count, end, text, predicted)
        entropies[code] = {name: round(value, 3) for name, value in row.items()}
    return entropies


def positions(text: np.ndarray, dictionary: Any, options: Options) -> np.ndarray:
    """Positions of a text (N,) that MLM predicts: all pieces if it samples uniformly, or else a sample of them."""
    is_piece = dictionary.is_piece[text]
    if not options.frequency_exponent:
        return np.flatnonzero(is_piece)
    rows = -(-len(text) // options.length)
    missing = rows * options.length - len(text)
    blocks = np.pad(text, (0, missing), constant_values=dictionary.pad()).reshape(rows, options.length)
    weights = np.maximum(dictionary.counts, 1.0) ** -options.frequency_exponent
    keys = np.arange(rows, dtype=np.uint64)
    return np.flatnonzero(choose_positions(dictionary.is_piece[blocks], keys, options.mask_prob, weights[blocks]))
