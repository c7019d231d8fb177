"""Chooses the old rows for each row of a new dictionary.

- A symbol of both dictionaries keeps its row.
- A new piece gets the mean over the old pieces of its text, without those of unknown characters. Its logit is then the
  mean of theirs, with any hidden state: it begins no more probable than the most probable of them.
- A new piece without a known character gets random embeddings, as in a new model, and the mean output bias of all old
  pieces. If they all began with the mean embedding they would be equal, and learn more slowly.
- A new language gets the row of a language that is named, or the mean over all old languages.
"""

import logging
from collections.abc import Callable

from fairseq_xl.checkpoints.vocabulary_surgery import Rows
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import WORD_START
from fairseq_xl.errors import UserError

logger = logging.getLogger(__name__)


def initial_rows(
    old: XLDictionary, new: XLDictionary, segment: Callable[[str], list[str]], like: str | None = None
) -> Rows:
    """Returns the old rows of each symbol and language of a new dictionary, and logs their numbers.

    Args:
        segment: function that returns the old pieces of a new piece, without unknown ones.
        like: old language whose rows new languages get; None: the mean over all.

    Raises `UserError` for a language `like` that the old dictionary lacks.
    """
    old_rows = {symbol: row for row, symbol in enumerate(old.symbols)}
    pieces = old.pieces.tolist()
    initial = [old.language_id(like)] if like else list(range(old.num_languages))
    languages = [[old.languages.index(code)] if code in old.languages else initial for code in new.languages]
    symbols, added, random_rows = [], 0, []
    for new_row, symbol in enumerate(new.symbols):
        if new_row >= new.first_language:
            language_rows = languages[new_row - new.first_language]
            symbols.append([old.first_language + row for row in language_rows] or pieces)
        elif symbol in old_rows and (old.is_piece[old_rows[symbol]] == new.is_piece[new_row]):
            symbols.append([old_rows[symbol]])
        else:
            rows = [old_rows[piece] for piece in segment(symbol) if piece != WORD_START and piece in old_rows]
            rows = [row for row in rows if old.is_piece[row]]
            added += 1
            random_rows += [] if rows else [new_row]
            symbols.append(rows or pieces)
    left_out = len(set(old.symbols) - set(new.symbols))
    codes = [code for code in new.languages if code not in old.languages]
    logger.info(
        "new pieces: %d (%d with random embeddings); new languages: %s; removed symbols: %d",
        *(added, len(random_rows), ", ".join(codes) or "none", left_out),
    )
    if not added and not codes and old.symbols == new.symbols:
        raise UserError("the new dictionary has the symbols of the old one: there is nothing to add")
    return Rows(symbols, languages, random_rows)
