"""The benchmark of serving, at nano size: both sides compute the same; nothing here looks at how long anything took."""

import json

import pytest

from fairseq_xl.commands import model_convert
from recipes.benchmark import serving
from tests.command_line import cli
from tests.commands import pretraining, trained, translation
from tests.tasks.conftest import write_encoded
from tests.tasks.tiny_text import WORDS


@pytest.fixture(scope="module")
def data_bin(tmp_path_factory):
    return write_encoded(tmp_path_factory.mktemp("text"))


def served(capsys, *arguments):
    serving.main([*map(str, arguments), "--rounds", "2"])
    result = json.loads(capsys.readouterr().out)
    for name, ratio in result["times_theirs"].items():
        assert ratio["low"] <= ratio["median"] <= ratio["high"] and len(result["seconds"][name]) == 2
    return result


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("".join(" ".join(WORDS["en"][index : index + 4]) + "\n" for index in range(9)), encoding="utf-8")
    return path


def test_translation_beside_transformers_and_ctranslate2(data_bin, tmp_path, text, capsys):
    line = translation(data_bin, tmp_path / "model", "-s", "en", "-t", "de", "--disable-validation")
    checkpoint = trained([*line, *cli(max_update=100, lr=0.01, embed_dim=32)])  # until it writes words alone
    result = served(capsys, "translate", checkpoint, text, "--lang", "en-de", "--length", "9")
    assert result["lines"] == 9 and result["versions"]["transformers"]
    for name in ("transformers", "CTranslate2 float32"):
        assert result["agreement"][name]["equal_lines"] == 1


def test_embeddings_beside_sentence_transformers(data_bin, tmp_path, text, capsys):
    line = pretraining(data_bin, tmp_path / "model", "--disable-validation", objectives="mlm")
    checkpoint = trained([*line, *cli(max_update=1, language_embeddings="none")])
    model_convert.main([str(checkpoint), str(tmp_path / "folder"), "--to", "sentence-transformers"])
    result = served(capsys, "embed", tmp_path / "folder", text, "--lang", "en")
    assert result["agreement"]["sentence-transformers"]["largest_difference"] < 1e-5
