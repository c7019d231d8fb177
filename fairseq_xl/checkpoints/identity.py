"""The identity of a checkpoint, stored under ``task_state.fairseq_xl``.

It has the format, the task, a hash of the dictionary, the languages, the framing, the number of attention heads (key
``heads``), the sub-words and tokenizers (``encoding``), and keys that some tasks add.
"""

import enum
from pathlib import Path

from fairseq_xl.checkpoints.language_modules import check_languages
from fairseq_xl.data.encoding import check_encoding
from fairseq_xl.data.framing import FRAMINGS
from fairseq_xl.errors import UserError
from fairseq_xl.io.configuration import check_values

FORMAT_VERSION = 1
#: keys of every identity beside "format", with their types
REQUIRED = {
    "task": str,
    "dictionary": str,
    "languages": list[str],
    "framing": enum.Enum("Framing", [(name, name) for name in FRAMINGS]),
    "heads": int | None,
}
#: keys that some tasks add
OPTIONAL = {
    "head": str,
    "type_state": dict,
    "lang_pairs": list[str],
    "objectives": str,
    "objective_options": str,
    "writes": list[str],
    "length": int | None,
    "body": str,
    "encoding": dict,
}


def check_identity(identity, origin, dictionary, dictionary_file, trained=None):
    """Raises `UserError` for an identity that is missing, damaged, or of another format, dictionary or sub-words.

    Args:
        identity: as stored in a checkpoint, or None.
        origin: the checkpoint's file, for messages.
        dictionary: the run's dictionary; None accepts any.
        dictionary_file: its file, in the data folder whose sub-words are compared.
        trained: DATA of the checkpoint's training, for messages; None if it is not known.
    """
    if not isinstance(identity, dict) or "format" not in identity:
        raise UserError(f"{origin} was not written by fairseq_xl")
    if identity["format"] != FORMAT_VERSION:
        raise UserError(f"{origin} has format {identity['format']}, this version reads {FORMAT_VERSION}")
    missing = REQUIRED.keys() - identity.keys()
    if missing:
        raise UserError(f"{origin} is damaged: its identity lacks {', '.join(sorted(missing))}")
    check_values(identity, REQUIRED | OPTIONAL, "task_state.fairseq_xl", origin)
    if identity["languages"]:
        check_languages(identity["languages"], origin)
    if dictionary is not None and identity["dictionary"] != dictionary.digest():
        raise UserError(
            f"{origin} was trained with another dictionary ({f'data folder {trained}, ' if trained else ''}languages "
            f"{', '.join(identity['languages'])}) than "
            f"{dictionary_file} ({len(dictionary)} symbols, languages {', '.join(dictionary.languages)}); "
            "`python -m preprocess … --spm-model FILE --dict FILE` with the checkpoint's own files encodes text for it,"
            " and `fairseq-xl extend-vocabulary` makes a checkpoint for another dictionary"
        )
    if dictionary is not None:
        check_encoding(identity.get("encoding"), origin, Path(dictionary_file).parent)
