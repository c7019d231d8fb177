"""Text with disjoint parts."""

import json
import random

import pytest

from preprocess import binarize, disjoint
from preprocess.commands.prepare import main as preprocess
from tests.preprocess.tiny_corpus import documents, write
from tests.tasks.conftest import preprocess_here

SPLITS = {"train": 30, "valid": 3}


def write_parts(folder):
    for code in ("en", "de"):
        for split, count in SPLITS.items():
            lines = documents(code, count, random.Random(f"{split} {code}"))
            write(folder / f"{split}.{code}", [f"Linux {line}" if line else "" for line in lines])
        text = {split: f"{split}.{code}" for split in SPLITS}
        described = {"languages": [code], "vocabulary": {"size": 60}, "monolingual": {code: text}}
        described |= {"tokenizer": {"de": "moses"}} if code == "de" else {}
        (folder / f"{code}.yaml").write_text(json.dumps(described))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(binarize, "run_fairseq", preprocess_here)
            assert preprocess([str(folder / f"{code}.yaml"), str(folder / "data" / code)]) == 0
    assert disjoint.main([str(folder / "joined"), str(folder / "data/en"), str(folder / "data/de")]) == 0


@pytest.fixture(scope="session")
def parts(written_once):
    """data/en and data/de, whose languages have words in common; German is tokenized. Read only."""
    return written_once("disjoint", write_parts)


@pytest.fixture(scope="session")
def joined(parts):
    """The data-bin of both. Read only."""
    return parts / "joined"
