"""Cross-lingual MLM (U6): sentences at even places are translations; windows of documents; literal batches."""

import pickle

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.data.parallel_documents import ParallelDocuments
from fairseq_xl.errors import UserError

NOTHING, PAD, MASK = "cross_lingual_mlm.mask_prob=0", 1, 20
#: a document of three lines, a line that only English has among them; one of two lines; one of a single line
ENGLISH = [[4, 2], [5, 5, 2], [9, 2], [6, 2], [2], [7, 2], [8, 2], [2], [10, 2]]
GERMAN = [[14, 14, 2], [15, 2], [2], [16, 16, 2], [2], [17, 2], [18, 2], [2], [19, 2]]


@pytest.fixture
def documents(tmp_path):
    write_items(tmp_path / "train.en-de.en", ENGLISH)
    write_items(tmp_path / "train.en-de.de", GERMAN)
    return ParallelDocuments(tmp_path / "train.en-de", "en", "de")


def as_lists(windows):
    return [[sentence.tolist() for sentence in window] for window in windows]


def test_sentences_at_even_places_are_replaced_by_their_translation(documents):
    """Both ways: of an English document the German sentences stand at places 0 and 2, and the other way round."""
    examples, sizes = documents.every(50)
    assert as_lists(documents.texts(examples, 50)) == [
        [[14, 14, 2], [5, 5, 2], [16, 16, 2]], [[4, 2], [15, 2], [6, 2]],
        [[17, 2], [8, 2]], [[7, 2], [18, 2]],
    ]  # fmt: skip
    assert documents.languages(examples, 50) == [("de", "en", "de"), ("en", "de", "en"), ("de", "en"), ("en", "de")]
    assert sizes.tolist() == [9, 6, 4, 4]


def test_windows_are_truncated_and_go_on_with_the_next_sentence(documents):
    examples, sizes = documents.every(5)
    first = as_lists(documents.texts(examples, 5))[:2]
    assert first == [[[14, 14, 2], [5, 5]], [[4, 2], [15, 2], [6]]]  # the third German one alone is no window
    assert sizes.tolist() == [5, 5, 4, 4]
    assert documents.languages(examples, 5)[0] == ("de", "en")


def test_a_pass_takes_every_window_once(documents):
    examples, sizes = documents.draw(np.random.default_rng(1), 8, 50)
    assert sorted(examples[:4].tolist()) == sorted(examples[4:].tolist()) == [0, 1, 2, 3]
    assert sizes.tolist() == [[9, 6, 4, 4][example] for example in examples]
    assert documents.mean_size(50) == 23 / 4


def test_batch(build, draws, documents):
    batch = build("cross_lingual_mlm", NOTHING).collate(draws([0, 2]), documents)
    assert batch["tokens"].tolist() == [[0, 14, 14, 2, 5, 5, 2, 16, 16, 2], [0, 17, 2, 8, 2, *[PAD] * 5]]
    assert batch["languages"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, *[0] * 5]]  # de 0, en 1


def test_both_languages_are_masked_and_no_separator(build, draws, documents):
    everything = (
        "cross_lingual_mlm.mask_prob=1 cross_lingual_mlm.mask_token_prob=1 cross_lingual_mlm.random_token_prob=0"
    )
    batch = build("cross_lingual_mlm", everything).collate(draws([2]), documents)
    assert batch["tokens"].tolist() == [[0, MASK, 2, MASK, 2]] and batch["target"].tolist() == [17, 8]


def test_length_counts_the_frame(build, draws, documents):
    objective = build("cross_lingual_mlm", f"{NOTHING} cross_lingual_mlm.length=6")
    assert objective.collate(draws([0]), documents)["tokens"].tolist() == [[0, 14, 14, 2, 5, 5]]
    assert build("cross_lingual_mlm").cfg.length == 256 and objective.positions == 6  # U6


def test_workers_open_the_files_anew(documents):
    again = pickle.loads(pickle.dumps(documents))
    assert as_lists(again.texts(np.array([1]), 50)) == [[[4, 2], [15, 2], [6, 2]]]


def test_bitext_without_documents_is_refused(tmp_path):
    for code, token in (("en", 4), ("de", 14)):
        write_items(tmp_path / f"train.en-de.{code}", [[token, 2], [2], [token, 2]])
    with pytest.raises(UserError, match="no document has two sentences in both languages; documents are separated by"):
        ParallelDocuments(tmp_path / "train.en-de", "en", "de").every(9)


def test_batches_are_the_sums_of_their_examples(build, model, draws, documents):
    objective = build("cross_lingual_mlm", "cross_lingual_mlm.mask_prob=0.5")
    together = model(objective, objective.collate(draws([0, 2], [5, 9]), documents))["cross_lingual_mlm"]
    alone = [
        model(objective, objective.collate(draws([n], [key]), documents))["cross_lingual_mlm"]
        for n, key in ((0, 5), (2, 9))
    ]
    assert together.sum.item() == pytest.approx(sum(part.sum.item() for part in alone))
    assert together.count == sum(part.count for part in alone) > 0
