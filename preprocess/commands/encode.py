"""Encodes raw text as sub-words, for fairseq-preprocess.

    fairseq-xl data encode corpora/my.yaml pieces
    fairseq-preprocess --only-source -s en --srcdict pieces/dict.txt --trainpref pieces/train --destdir data-bin/my
    fairseq-preprocess -s en -t de --joined-dictionary --srcdict pieces/dict.txt --trainpref pieces/train.en-de \\
        --destdir data-bin/my

The folder gets SPLIT.XX of monolingual text and SPLIT.XX-YY.XX of bitext, sub-words separated by spaces, dict.txt and
the files of the sub-words. An interrupted run is resumed. --vocabulary-from DATA reuses a vocabulary,
with its tokenizers; manifest.json names both.
"""

from preprocess.commands import parser_of, run
from preprocess.pipeline import prepare


def main(words: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    parser.add_argument("output", metavar="PIECES", help="folder to write; an interrupted run is resumed")
    options = parser.parse_args(words)
    arguments = options.config, options.output, options.jobs, options.vocabulary_from
    return run(lambda: prepare(*arguments, encode_only=True), options.output)
