"""Files of another format, one of each kind that the package writes and reads again."""

import json

import pytest
import torch

from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.identity import check_identity
from fairseq_xl.errors import UserError
from fairseq_xl.io.format_numbers import FORMATS, REMEDIES
from fairseq_xl.serving.runtime import Exported


def checkpoint(path, number):
    check_identity(number, path, None, path)


def language_module(path, number):
    torch.save({"kind": language_modules.KIND, **number}, path)
    language_modules.read(path)


def onnx_export(path, number):
    path.write_text(json.dumps(number))
    Exported(path.parent)


#: kind -> name of a file, and function that reads a file with an entry `format`
READERS = {
    "checkpoint": ("checkpoint.pt", checkpoint),
    "language module": ("de.language-module.pt", language_module),
    "ONNX export": ("model.json", onnx_export),
}


def test_every_kind_has_a_reader_and_a_remedy():
    assert FORMATS.keys() == READERS.keys() == REMEDIES.keys()


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("difference", [-1, 1])
def test_another_format_is_refused_in_a_sentence(tmp_path, kind, difference):
    name, read = READERS[kind]
    number = FORMATS[kind] + difference
    with pytest.raises(UserError) as refused:
        read(tmp_path / name, {"format": number})
    assert str(refused.value) == (
        f"{tmp_path / name}: {kind} of format {number}, this version of fairseq_xl reads format {FORMATS[kind]}: "
        f"{REMEDIES[kind]}"
    )
