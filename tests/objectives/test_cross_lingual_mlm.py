"""Cross-lingual MLM (U6): literal batches. The documents themselves: tests/data/corpora/test_parallel_documents.py."""

import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.parallel_documents import ParallelDocuments

NOTHING, PAD, MASK = "cross_lingual_mlm.mask_prob=0", 1, 20
#: a document of three lines, a line that only English has among them; one of two lines; one of a single line
ENGLISH = [[4, 2], [5, 5, 2], [9, 2], [6, 2], [2], [7, 2], [8, 2], [2], [10, 2]]
GERMAN = [[14, 14, 2], [15, 2], [2], [16, 16, 2], [2], [17, 2], [18, 2], [2], [19, 2]]


@pytest.fixture
def documents(tmp_path):
    write_items(tmp_path / "train.en-de.en", ENGLISH)
    write_items(tmp_path / "train.en-de.de", GERMAN)
    return ParallelDocuments(tmp_path / "train.en-de", "en", "de")


def test_batch(build, spec, documents):
    batch = build("cross_lingual_mlm", NOTHING).collate(spec([0, 2]), documents)
    assert batch["tokens"].tolist() == [[0, 14, 14, 2, 5, 5, 2, 16, 16, 2], [0, 17, 2, 8, 2, *[PAD] * 5]]
    assert batch["languages"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, *[0] * 5]]  # de 0, en 1


def test_both_languages_are_masked_and_no_separator(build, spec, documents):
    everything = (
        "cross_lingual_mlm.mask_prob=1 cross_lingual_mlm.mask_token_prob=1 cross_lingual_mlm.random_token_prob=0"
    )
    batch = build("cross_lingual_mlm", everything).collate(spec([2]), documents)
    assert batch["tokens"].tolist() == [[0, MASK, 2, MASK, 2]] and batch["target"].tolist() == [17, 8]


def test_length_counts_the_frame(build, spec, documents):
    objective = build("cross_lingual_mlm", f"{NOTHING} cross_lingual_mlm.length=6")
    assert objective.collate(spec([0]), documents)["tokens"].tolist() == [[0, 14, 14, 2, 5, 5]]
    assert build("cross_lingual_mlm").cfg.length == 256 and objective.input_length.positions == 6  # U6


def test_batches_are_the_sums_of_their_examples(build, check_sums, spec, documents):
    objective = build("cross_lingual_mlm", "cross_lingual_mlm.mask_prob=0.5")
    check_sums(objective, documents, spec([0, 2], [5, 9]), [spec([0], [5]), spec([2], [9])])
