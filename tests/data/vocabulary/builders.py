"""Data folders with sub-words."""

import json

import pytest

from fairseq_xl.data.vocabulary.subwords import in_folder
from tests.published_text import write_wordpiece, write_xlm
from tests.tiny_data import write_dictionary

LINES = ["the house , the garden", "das Haus , der Garten", "la été , Été"]
OPTIONS = {"xlm": {"lowercase_and_remove_accent": True}, "wordpiece": {"lowercase": False}}


@pytest.fixture(params=["xlm", "wordpiece"])
def folder(request, tmp_path):
    """A data folder of each kind, without binarized text."""
    kind, made = request.param, tmp_path / "made"
    made.mkdir()
    write_xlm(made, [line.lower().replace("é", "e") for line in LINES], merges=10)
    write_wordpiece(made / "vocab.txt", LINES, least=1)
    data = tmp_path / "data"
    data.mkdir()
    files = [made / "codes", made / "vocab"] if kind == "xlm" else [made / "vocab.txt"]
    source = in_folder(data, kind, OPTIONS[kind])
    for given, copied in zip(files, source.files, strict=True):
        copied.write_bytes(given.read_bytes())
    tokenizers = {"en": "xlm", "fr": "xlm"} if kind == "xlm" else {}
    write_manifest(data, source.manifest_entry() | {"format": 1, "config": {"tokenizer": tokenizers}})
    pieces = {symbol: 1 for symbol in source.open().symbols if symbol != "<unk>"}
    write_dictionary(data / "dict.txt", pieces, ["en", "fr"])
    return data


def write_manifest(data, content):
    (data / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
