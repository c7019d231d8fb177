"""A corpus is added by one file of another package: the example of fairseq_xl/README.md."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset
from tiny_data import write_items

from fairseq_xl import objectives
from fairseq_xl.data.corpora.base import BREAK_MODES
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives import build_objectives

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "tests/examples/document_blocks.py"
EOS = 2


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The example as an installed package, whose entry point names its module."""
    site = tmp_path / "site-packages"
    (site / "my_corpora-1.0.dist-info").mkdir(parents=True)
    (site / "my_corpora.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    (site / "my_corpora-1.0.dist-info/METADATA").write_text("Name: my-corpora\nVersion: 1.0\n")
    entry = "[fairseq_xl.data.corpora]\ndocument_blocks = my_corpora\nwrong = no_such_module\n"
    (site / "my_corpora-1.0.dist-info/entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(site)
    objectives.load_all()
    yield
    BREAK_MODES.pop("complete_doc")
    sys.modules.pop("my_corpora")
    importlib.invalidate_caches()


def test_the_readme_shows_the_example():
    readme = (ROOT / "fairseq_xl/README.md").read_text(encoding="utf-8")
    assert "tests/examples/document_blocks.py" in readme
    entries = re.findall(r"^ +(\[project\.entry-points.*\n.*)$", readme, re.MULTILINE)
    assert any('"fairseq_xl.data.corpora"' in entry and "document_blocks =" in entry for entry in entries)
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("length", [9, 12, 40])
def test_objectives_on_blocks_read_a_corpus_of_another_package(installed, caplog, dictionary, tmp_path, length):
    """Its blocks are fairseq's; a wrong entry point beside it is only named."""
    messages = [record.getMessage() for record in caplog.get_records("setup")]
    assert any("corpus 'wrong' of the installed package my-corpora cannot be used" in each for each in messages)
    options = f"mlm.sample_break_mode=complete_doc mlm.length={length + 1}"
    mlm = build_objectives("mlm", options, dictionary, Framing.of("xl", dictionary))["mlm"]
    rng = np.random.default_rng(length)
    items = [[*rng.integers(4, 100, int(rng.integers(9))).tolist(), EOS] for _ in range(400)]  # some lines are empty
    corpus = mlm.corpus_class(write_items(tmp_path / "train", items), "en")
    theirs = TokenBlockDataset(
        [torch.tensor(item) for item in items], [len(item) for item in items], length, 1, EOS, break_mode="complete_doc"
    )
    examples, sizes = corpus.all_examples(mlm.input_length.text)
    blocks = [block.tolist() for (block,) in corpus.texts(examples, mlm.input_length.text)]
    assert blocks == [block.tolist() for block in theirs]
    assert sizes.tolist() == list(map(len, blocks))


def test_a_break_mode_is_registered_once():
    with pytest.raises(ValueError, match="a corpus with sample_break_mode=eos is registered twice"):
        Sentences.register(Sentences)
