"""Format numbers of the files that this package writes and reads again.

A file's number is its entry ``format``. Each change of how a kind of file is read increases the number of that kind.
"""

from collections.abc import Mapping
from typing import Any

from fairseq_xl.errors import UserError, quoted

#: kind of file -> what to do with one of another format
REMEDIES = {
    "checkpoint": "train the model again, or convert the published one again with `fairseq-xl convert`",
    "language module": "extract it again with `fairseq-xl language-module extract`",
    "ONNX export": "export the model again with `fairseq-xl export-onnx`",
    "data folder": "write the folder again with the command that wrote it, `python -m preprocess` for text",
    "corpus": "run the same `python -m preprocess.readers…` again",
    "note of added files": "remove it, and run the same `fairseq-xl back-translate` or `mine-negatives` again",
    "note of predictions": "remove it with its predictions, and predict again",
    "partial results": "remove the folder: the command begins anew",
    "score file": "score the predictions again with `fairseq-xl score`",
    "record of settings": "remove the folder or name another one",
}
FORMATS = dict.fromkeys(REMEDIES, 1)


def check_format(kind: str, content: Mapping[str, Any], path: object) -> None:
    """Raises `UserError` unless the content of a file, or its part with the number, has the format of its kind."""
    number = content.get("format")
    if number != FORMATS[kind]:
        raise UserError(
            f"{path}: {kind} of format {quoted(number)}, this version of fairseq_xl reads format {FORMATS[kind]}: "
            f"{REMEDIES[kind]}"
        )
