"""Files of another format, one of each kind that the package writes and reads again."""

import json

import pytest
import torch

from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.data.store.manifest import read_manifest, read_note
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import prediction_folders
from fairseq_xl.evaluation.score_files import read_score_file
from fairseq_xl.io.files import FORMATS, REMEDIES
from fairseq_xl.io.step_records import begin_parts
from fairseq_xl.serving.runtime import Exported
from recipes import settings
from recipes.wmt_arguments import corpus_content


def checkpoint(path, number):
    open_checkpoint(path, content={"model": {}, "optimizer_history": [], "task_state": {"fairseq_xl": number}})


def language_module(path, number):
    torch.save({"kind": language_modules.KIND, **number}, path)
    language_modules.read(path)


def check_record(path):
    (path.parent / "checkpoint.pt").touch()
    settings.check(path.parent, path.name, {"commands": [], "files": {}}, "")


def json_file(read, **more):
    """A function that writes a number to a JSON file and calls `read` with its path."""

    def written(path, number):
        path.write_text(json.dumps(number | more | {"fingerprints": {}}))
        read(path)

    return written


#: kind -> name of a file, and function that reads a file with an entry `format`
READERS = {
    "checkpoint": ("checkpoint.pt", checkpoint),
    "language module": ("de.language-module.pt", language_module),
    "ONNX export": ("model.json", json_file(lambda path: Exported(path.parent))),
    "data folder": ("manifest.json", json_file(lambda path: read_manifest(path.parent))),
    "corpus": ("manifest.json", json_file(lambda path: corpus_content(str(path.parent)))),
    "note of added files": ("train.en-de.negatives.json", json_file(read_note)),
    "note of predictions": ("predictions.json", json_file(lambda path: prediction_folders.read_note(path.parent))),
    "score file": ("scores.json", json_file(lambda path: read_score_file(str(path), "system"), benchmark="xtreme")),
    "record of settings": ("step.json", json_file(check_record)),
    "partial results": ("made_with.json", json_file(lambda path: begin_parts(path.parent, {}))),
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
