"""Extends WordPiece vocabularies: pieces that are learned from text follow the old ones.

WordPiece takes the longest piece that a word begins with, so that old words of several pieces may get new ones too.
"""

from collections.abc import Collection

from tokenizers import Tokenizer, models, trainers

from fairseq_xl.checkpoints.sentencepiece_surgery import ATTEMPTS
from fairseq_xl.data.vocabulary.wordpiece import CONTINUATION, LONGEST, UNKNOWN, WordPieces


def learn(old: WordPieces, text: list[str], count: int, reserved: Collection[str]) -> list[str]:
    """Up to `count` pieces of text that the old vocabulary lacks, none of them in `reserved`.

    First characters without a piece, at the beginning of words and inside of them, then the others in the order in
    which they are merged.
    """
    taken, characters = {*old.pieces, *reserved}, set().union(*text)
    for attempt in range(ATTEMPTS):
        learned = Tokenizer(models.WordPiece(unk_token=UNKNOWN, max_input_chars_per_word=LONGEST))
        learned.normalizer, learned.pre_tokenizer = old.tokenizer.normalizer, old.tokenizer.pre_tokenizer
        size = 2 ** (attempt + 1) * count + 2 * len(characters)
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, show_progress=False, continuing_subword_prefix=CONTINUATION, min_frequency=1
        )
        learned.train_from_iterator(text, trainer)
        vocabulary = learned.get_vocab()
        pieces = [piece for piece in sorted(vocabulary, key=vocabulary.__getitem__) if piece not in taken]
        if len(pieces) >= count:
            break
    return sorted(pieces, key=lambda piece: len(piece.removeprefix(CONTINUATION)) > 1)[:count]  # a stable sort


def spell(piece: str, vocabulary: Collection[str]) -> list[str]:
    """The longest pieces of a vocabulary that a new piece consists of, from left to right, without unknown characters.

    They begin a word or continue it as the piece does.
    """
    prefix = CONTINUATION if piece.startswith(CONTINUATION) else ""
    rest, parts = piece.removeprefix(CONTINUATION), []
    while rest:
        end = next((end for end in range(len(rest), 0, -1) if prefix + rest[:end] in vocabulary), 0)
        parts += [prefix + rest[:end]] if end else []
        rest, prefix = rest[max(end, 1) :], CONTINUATION
    return parts
