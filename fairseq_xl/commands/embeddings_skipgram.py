"""Trains fastText's skip-gram embeddings of the pieces of a language.

    fairseq-xl embeddings skipgram data-bin/my en en.npz --dim 128 --min-count 5

The program is gensim; the embeddings are those of Artetxe et al. 2020, section 3.1.
"""

from pathlib import Path

import numpy as np

from fairseq_xl.checkpoints.embedding_files import Vectors, space_of, write
from fairseq_xl.commands import BEAM_SIZE, Options, argument, command
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.store.manifest import one_folder
from fairseq_xl.embeddings.mapping import normalize
from fairseq_xl.embeddings.skipgram_training import Sentences, train
from fairseq_xl.errors import in_range, natural_number
from fairseq_xl.io import bounds

BUCKETS, THREADS = (in_range(int, "1 or more", most) for most in (bounds.MOST_BUCKETS, bounds.MOST_PROCESSES))


@command(
    argument("data", "folder that `fairseq-xl data prepare` wrote", type=Path),
    argument("language", "language of the training text that is read"),
    argument("output", "file to write"),
    argument("--dim", "channels", in_range(int, "1 or more", bounds.MOST_CHANNELS), 768),
    argument("--epochs", "passes over the text", BEAM_SIZE, 5),
    argument("--negative", "negative samples for each word", BEAM_SIZE, 10),
    argument("--subsample", "more frequent pieces are dropped at random", in_range(float, "0 or more"), 1e-5),
    argument("--buckets", "hash buckets of n-grams; those in one share a vector", BUCKETS, 2000000),
    argument("--min-count", "minimum occurrences; 0 keeps all of the dictionary", natural_number, 0),
    argument("--threads", "threads; with several, results differ between runs", THREADS, 1),
    argument("--seed", "random seed", natural_number, 1),
)
def main(options: Options) -> None:
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary

    options.data = one_folder(options.data)
    dictionary = XLDictionary.load(options.data / "dict.txt")
    dictionary.language_id(options.language)
    text = open_text(options.data / options.language / "train", options.language, len(dictionary))
    pieces = dictionary.pieces[np.argsort(-dictionary.counts[dictionary.pieces], kind="stable")]
    symbols = [dictionary.symbols[index] for index in pieces]
    symbols, rows = train(Sentences(text, dictionary), symbols, options)
    rows = normalize(rows)
    write(Vectors(symbols, rows, space_of(rows)), options.output)
