"""A data folder of a published vocabulary."""

import pytest
import yaml

from tests.published_text import write_wordpiece, write_xlm
from tests.tasks.conftest import prepare_here
from tests.tasks.tiny_text import WORDS, write_corpus

KINDS = {"xlm": {"codes": "codes", "vocab": "vocab"}, "wordpiece": "vocab.txt"}
#: raw text, and the words that XLM's vocabulary sees
RAW, WORDS_OF_RAW = "The HOUSE (garden), “river” reads.", 'the house ( garden ) , " river " reads .'


@pytest.fixture(scope="module", params=list(KINDS))
def data(request, tmp_path_factory):
    """A data folder of each kind, in a folder with the raw text and the files of the vocabulary."""
    root = tmp_path_factory.mktemp(request.param)
    path = write_corpus(root)
    lines = [line for code in WORDS for line in (root / f"train.{code}").read_text(encoding="utf-8").splitlines()]
    lines += [WORDS_OF_RAW]
    write_xlm(root, [line.lower() for line in lines], merges=60)
    write_wordpiece(root / "vocab.txt", lines, least=80)
    description = yaml.safe_load(path.read_text(encoding="utf-8"))
    description["vocabulary"] = {request.param: KINDS[request.param]}
    return prepare_here(description, root, "data-bin")
