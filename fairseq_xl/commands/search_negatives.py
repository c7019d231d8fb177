"""Finds hard negatives for paraphrase classification (Huang et al. 2019, section 3).

    fairseq-xl search negatives runs/my/dan/checkpoint_best.pt data-bin/my --pairs en-de

Writes DATA/en-de/train.en-de.negatives.npy, which `paraphrase.negatives=mined` reads, and prints statistics for every
pair and split. A stopped run continues; finished files are not mined again.
"""

from collections.abc import Iterator
from typing import Any

from fairseq_xl.commands import BEAM_SIZE, Options, argument, command
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.errors import UserError, in_range, names_of, natural_number
from fairseq_xl.io.fingerprints import sha256_of


@command(
    argument("checkpoint", "checkpoint of --arch xl_dan"),
    argument("data", "folder of binarized text"),
    argument("--pairs", "language pairs, separated by commas (default: those of its training)"),
    argument("--splits", "splits, separated by commas", default="train,valid"),
    argument("--count", "negatives for each sentence; training samples one", BEAM_SIZE, 1),
    argument(
        "--length",
        "maximum tokens of a sentence: `paraphrase.length` of the training that uses the negatives (default: 128)",
        in_range(int),
    ),
    argument("--exact-below", "use an exact index for fewer distinct sentences than this", natural_number, 100000),
)
def main(options: Options) -> Iterator[dict[str, Any]]:
    from fairseq_xl.mining.hard_negatives import SentenceVectors, mine, prefixes

    if options.length is not None and options.length < 2:
        raise UserError(f"--length {options.length}: a sentence has two tokens or more, of which </s> is one")
    vectors = SentenceVectors(options.checkpoint, options.data, options.pairs)
    longest = options.length or vectors.task.objectives["paraphrase_similarity"].input_length.text
    made_with = {"checkpoint": sha256_of(options.checkpoint)}
    splits = names_of("--splits", options.splits)
    for prefix in [prefix for split in splits for prefix in prefixes(vectors.task, options.data, split)]:
        first, second = prefix.parent.name.split("-")
        pairs = SentencePairs(prefix, first, second, len(vectors.task.dictionary))
        yield mine(vectors, pairs, options.count, options.exact_below, longest, made_with)
