"""PAWS-X, from small files made here in the release's format."""

import json

import pytest

from preprocess.readers.pawsx import main
from tests.preprocess.readers.written_files import texts

HEADER = "id\tsentence1\tsentence2\tlabel"
FILES = {
    "en/train.tsv": [
        '1\tIn Paris , in " October 1560 " , he met him .\tIn " October 1560 , he met him in Paris .\t0',
        "2\tThe NBA season was the 30th .\tIt was the 30th season of the NBA .\t1",
    ],
    "en/dev_2k.tsv": ["1\tThe road goes west .\tWest goes the road .\t1"],
    "en/test_2k.tsv": ["1\tShe was born in Bonn .\tBonn was born in her .\t0"],
    "de/translated_train.tsv": [
        "1\tIn Paris traf er ihn.\tEr traf ihn in Paris.\t0",
        "2\t\t\t1",
        "3\tNS-Zeit\tDie NS -Zeit\t1",
    ],
    "de/dev_2k.tsv": [
        "1\tDie Straße führt nach Westen.\tNS\t0",
        "2\tNS\tNS\t0",
        "3\tDer Weg ist lang.\tLang ist der Weg.\t1",
        "4\t \tLang.\t1",
    ],
    "de/test_2k.tsv": ["1\tSie kam aus Bonn.\tAus ihr kam Bonn.\t0"],
}
EXPECTED = {
    "train.en.tsv": (
        '0\tIn Paris , in " October 1560 " , he met him .\tIn " October 1560 , he met him in Paris .\n'
        "1\tThe NBA season was the 30th .\tIt was the 30th season of the NBA .\n"
    ),
    "valid.en.tsv": "1\tThe road goes west .\tWest goes the road .\n",
    "test.en.tsv": "0\tShe was born in Bonn .\tBonn was born in her .\n",
    "translate_train/train.de.tsv": ("0\tIn Paris traf er ihn.\tEr traf ihn in Paris.\n1\tNS-Zeit\tDie NS -Zeit\n"),
    "valid.de.tsv": "1\tDer Weg ist lang.\tLang ist der Weg.\n",
    "test.de.tsv": "0\tSie kam aus Bonn.\tAus ihr kam Bonn.\n",
}


@pytest.fixture
def source(tmp_path):
    """The unpacked release."""
    for name, lines in FILES.items():
        path = tmp_path / "in/x-final" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}\n" for line in [HEADER, *lines]).encode())
    return tmp_path / "in"


@pytest.mark.parametrize("place", [".", "x-final"])
def test_pairs_without_a_translation_are_left_out_and_counted(place, source, tmp_path):
    assert main([str(source / place), str(tmp_path / "out"), "--langs", "en,de"]) == 0
    assert texts(tmp_path / "out") == EXPECTED
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == ["PAWS-X"] and manifest["languages"] == ["en", "de"]
    assert manifest["counts"] == {
        "train.en.tsv": {"lines": 2, "empty": 0, "NS": 0, "labels": {"0": 1, "1": 1}},
        "valid.en.tsv": {"lines": 1, "empty": 0, "NS": 0, "labels": {"1": 1}},
        "test.en.tsv": {"lines": 1, "empty": 0, "NS": 0, "labels": {"0": 1}},
        "translate_train/train.de.tsv": {"lines": 2, "empty": 1, "NS": 0, "labels": {"0": 1, "1": 1}},
        "valid.de.tsv": {"lines": 1, "empty": 1, "NS": 2, "labels": {"1": 1}},
        "test.de.tsv": {"lines": 1, "empty": 0, "NS": 0, "labels": {"0": 1}},
    }
