"""Learns XLM's kind of sub-words, as fastBPE does: merges of the most frequent pairs in words, and a vocabulary.

subword-nmt learns the merges from the counts of words; the vocabulary are the most frequent pieces of the same words
(Lample & Conneau 2019, section 3.1: 80,000 merges, of which 95,000 pieces are kept).
"""

import contextlib
import io
import logging
import time
from collections import Counter
from pathlib import Path

from fairseq_xl.data.vocabulary.xlm_bpe import WordSplitter, read_codes, read_vocabulary
from fairseq_xl.data.vocabulary.xlm_text import without_accents
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines
from preprocess.config import Vocabulary

PACKAGE = "subword-nmt"
SECONDS = 60  # between lines of progress

logger = logging.getLogger("preprocess")


class _Merges(io.StringIO):
    """The lines that subword-nmt writes; logs their number once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.logged = -1, time.monotonic()  # the first line is the version

    def write(self, text: str) -> int:
        self.count += 1
        if time.monotonic() - self.logged > SECONDS:
            self.logged = time.monotonic()
            logger.info("vocabulary: %d merges learned", self.count)
        return super().write(text)


def first_words(vocab: Path, size: int) -> list[str]:
    """The lines `word count` of the first `size` words of a vocabulary; raises `UserError` if it has fewer."""
    lines = {line.rpartition(" ")[0]: line for line in reversed(read_lines(vocab))}
    words = [word for word in read_vocabulary(vocab) if word in lines]  # vocab.json has none
    if len(words) < size:
        raise UserError(f"vocabulary: xlm: size {size}: {vocab} has {len(words)} lines 'word count'")
    return [lines[word] for word in words[:size]]


def learn(sample: Path, options: Vocabulary, codes: Path, vocab: Path) -> dict[str, int]:
    """Learns merges from the words of `sample`, separated by spaces, and writes the files of `XLMPieces`.

    Returns the numbers of merges and of pieces for the manifest. Raises UserError for a sample without words.
    """
    from subword_nmt.learn_bpe import learn_bpe

    words: Counter[str] = Counter()
    with open(sample, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            words.update((without_accents(line) if options.lowercase_and_remove_accent else line).split())
    if not any(len(word) > 1 for word in words):
        raise UserError("vocabulary: the training text has no word of two characters to learn merges from")
    most = sum(len(word) - 1 for word in words)  # each merge makes a word shorter
    if most < options.codes:
        logger.warning("vocabulary: codes %d is too large: this corpus gives at most %d merges", options.codes, most)
    logger.info("vocabulary: learning merges from %d different words, up to %d", len(words), min(most, options.codes))
    merges = _Merges()
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar without the name of the stage
        learn_bpe([f"{word} {count}" for word, count in words.items()], merges, options.codes, 1, is_dict=True)
    learned = merges.getvalue().splitlines()[1:]  # after the version
    write_lines(codes, learned)
    split, pieces = WordSplitter(read_codes(codes)), Counter[str]()
    for word, count in words.items():
        for piece in split(word):
            pieces[piece] += count
    vocabulary = sorted(pieces.items(), key=lambda item: (-item[1], item[0]))[: options.size]
    write_lines(vocab, [f"{piece} {count}" for piece, count in vocabulary])
    if len(learned) < options.codes:
        logger.warning("vocabulary: codes %d is too large for this corpus, which gave %d", options.codes, len(learned))
    return {"codes": len(learned), "pieces": len(vocabulary)}
