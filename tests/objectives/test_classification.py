"""Classification: labels of files, the head, the state."""

import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import LabeledExample, TaggedSentence
from fairseq_xl.objectives.classification import Classification
from fairseq_xl.objectives.tagging import Tagging


@pytest.fixture
def task():
    return Classification(Classification.Config(), None, None)


def test_columns_that_are_swapped(task):
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(20)]
    examples = [LabeledExample(text, (label,), "en", "train.en.tsv", 1) for text, label in rows]
    tags = [(f"w{number}", f"x{number}") for number in range(9)]
    sentences = [TaggedSentence(("O", "B"), words, "en", "train.en.tsv", 1) for words in tags]
    for tested, data in ((task, examples), (Tagging(Tagging.Config(), None, None), sentences)):
        with pytest.raises(UserError, match="train.en.tsv: .*are the columns swapped?"):
            tested.learn(data)
    task.learn([LabeledExample(label, (text,), "en", "train.en.tsv", 1) for text, label in rows])
    with pytest.raises(UserError, match="valid.en.tsv, line 1: label 'text 0' .*are the columns swapped?"):
        task.check_examples([LabeledExample("text 0", ("a",), "en", "valid.en.tsv", 1)])


def test_a_label_that_was_not_trained(task):
    task.learn([LabeledExample(label, ("x",), "en", "train.en.tsv", 1) for label in "ab"])
    with pytest.raises(UserError, match="valid.en.tsv, line 4: label 'c' is not one of the classes a, b"):
        task.check_examples([LabeledExample("c", ("x",), "en", "valid.en.tsv", 4)])


@pytest.mark.parametrize("pooling, expected", [("first", [[1, 2, 3], [3, 4, 7]]), ("max", [[50, 60, 110], [3, 4, 7]])])
def test_the_head_reads_the_first_token_or_pooled_ones(task, pooling, expected):
    class Model:
        heads = {"classification": torch.nn.Linear(2, 3, bias=False)}

        def encode(self, tokens, padding_mask):
            return hidden

    hidden = torch.tensor([[[1.0, 2.0], [50.0, 60.0]], [[3.0, 4.0], [70.0, 80.0]]])
    Model.heads["classification"].weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    task.cfg.pooling = pooling
    batch = {"tokens": None, "padding_mask": torch.tensor([[False, False], [False, True]])}
    assert task.outputs(Model(), batch).tolist() == expected


def test_a_damaged_state_is_one_sentence(task):
    with pytest.raises(UserError, match="x.pt is damaged: its identity lacks labels"):
        task.load_state({"num_texts": 1}, "x.pt")
    with pytest.raises(UserError, match=r"fairseq_xl.type_state.num_texts is expected to be int, found 'one'"):
        task.load_state({"labels": ["a"], "num_texts": "one"}, "x.pt")
