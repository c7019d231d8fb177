"""Tagging: reading, division of long sentences, loss, statistics."""

import numpy as np
import pytest
import torch

from fairseq_xl.data.framing import Framing
from fairseq_xl.errors import LISTED, UserError
from fairseq_xl.evaluation import spans
from fairseq_xl.evaluation.task_files import TaggedSentence, read_sentences
from fairseq_xl.objectives.labelled import NO_CLASS
from fairseq_xl.objectives.tagging import Tagging

END = 2


def spelled(word, language):
    """A piece for each letter: a = 10, b = 11, …"""
    return np.array([*(ord(letter) - 87 for letter in word), END])


@pytest.fixture
def task():
    made = Tagging(Tagging.Config(length=8), None, Framing("xl", 0, END, 200))
    made.learn([sentence("x y", "B-A O"), sentence("x", "I-A")])
    return made


def sentence(words, tags):
    return TaggedSentence(tuple(words.split()), tuple(tags.split()), "en", "file", 1)


def test_reading(tmp_path):
    path = tmp_path / "train.en.tsv"
    path.write_bytes("\ufeffNew York\tB-LOC\r\nis\tO\r\n\r\n\n \nbig\tO".encode())
    first, second = read_sentences(path, "en")
    assert (first.words, first.tags, first.line) == (("New York", "is"), ("B-LOC", "O"), 1)
    assert (second.words, second.tags, second.line) == (("big",), ("O",), 6)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\tO\nb O\n", "line 2: expected word TAB tag, found 'b O'"),
        (b"a\tO\tO\n", "line 1: expected word TAB tag"),
        (b"a\t\n", "line 1: expected word TAB tag"),
        (b"1\tA whole text\n", "line 1: expected word TAB tag, but 'A whole text' has white space"),
        (b"a\tO\n\xff\tO\n", "line 2: not UTF-8"),
        (b"\n \n", "line 1: the file is empty"),
    ],
)
def test_files_that_are_wrong(tmp_path, content, message):
    (tmp_path / "f.tsv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_sentences(tmp_path / "f.tsv", "en")


def test_long_sentences_are_divided_between_words_and_none_is_lost(task):
    """Six pieces fit between <s> and </s>; the word of seven is truncated."""
    example = sentence("abc de fgh ijklmno p", "B-A O I-A O B-A")
    inputs = task.inputs(example, spelled)
    assert [each.tokens.tolist() for each in inputs] == [
        [0, 10, 11, 12, 13, 14, END],
        [0, 15, 16, 17, END],
        [0, 18, 19, 20, 21, 22, 23, END],
        [0, 25, END],
    ]
    assert [each.target["first"].tolist() for each in inputs] == [[1, 4], [1], [1], [1]]
    tags = [task.labels[tag] for each in inputs for tag in each.target["tags"]]
    assert tags == list(example.tags) and all(each.truncated for each in inputs)
    assert not task.inputs(sentence("abc de", "O O"), spelled)[0].truncated


def test_a_batch_and_its_loss_by_hand(task):
    """Logits are 0 except for one: cross-entropies log 3 and log(e + 2) - 1 or log(e + 2)."""
    inputs = [*task.inputs(sentence("ab c", "B-A O"), spelled), *task.inputs(sentence("c", "X"), spelled)]
    target = task.targets(inputs)
    assert target["positions"].tolist() == [1, 3, 6] and target["labeled"] == 2
    assert target["tags"].tolist() == [task.labels.index("B-A"), task.labels.index("O"), NO_CLASS]

    class Model:
        heads = {"tagging": lambda hidden: hidden[:, :3]}

        def encode(self, tokens):
            assert tokens.shape == (2, 5)
            return torch.arange(10.0).view(2, 5, 1).expand(2, 5, 4)

    sample = {"tokens": torch.zeros(2, 5), "target": target}
    assert task.outputs(Model(), sample)[:, 0].tolist() == [1, 3, 6]
    logits = torch.zeros(3, 3)
    logits[1, task.labels.index("O")] = 1.0
    loss, count = task.output_loss(logits, sample)
    assert count == 2 and loss.item() == pytest.approx(np.log(3) + np.log(np.e + 2) - 1)
    assert task.predictions(torch.eye(3), sample, [inputs[:1], inputs[1:]]) == [task.labels[:2], task.labels[2:]]


def test_statistics_by_hand(task):
    example = sentence("a b c d", "B-A I-A O B-A")
    counted = task.count(example, ["B-A", "I-A", "B-A", "O"])
    assert counted == {"words": 4, "correct_words": 2, "correct_spans": 1, "predicted_spans": 2, "gold_spans": 2}
    metrics = task.metrics()
    assert metrics["f1"](counted) == 50 and metrics["accuracy"](counted) == 50
    assert task.format_prediction(example, ["O"] * 4) == "a\tB-A\tO\nb\tI-A\tO\nc\tO\tO\nd\tB-A\tO\n\n"


def test_words_without_tags_are_left_out(task, tmp_path):
    """A sentence is unlabeled if none of its words has a tag; a single word without a tag has no loss and no score."""
    example = sentence("a b c", "B-A _ I-A")
    assert task.is_labeled(example) and not task.is_labeled(sentence("a b", "_ _"))
    counted = task.count(example, ["B-A", "O", "I-A"])
    assert counted == {"words": 2, "correct_words": 2, "correct_spans": 1, "predicted_spans": 1, "gold_spans": 1}
    unlabeled = task.format_prediction(sentence("d", "_"), ["B-A"])
    text = task.format_prediction(example, ["B-A", "O", "I-A"]) + unlabeled
    (tmp_path / "test.de.tsv").write_text(text, encoding="utf-8")
    assert spans.read_tags(tmp_path / "test.de.tsv") == ([["B-A", "I-A"]], [["B-A", "I-A"]])


def test_white_space_around_tags_is_no_tag(tmp_path):
    (tmp_path / "train.en.tsv").write_text("a\tB-X \nb\t O\n\n", encoding="utf-8")
    (found,) = read_sentences(tmp_path / "train.en.tsv", "en")
    assert found.tags == ("B-X", "O")


def test_tags_without_training_sentence_are_named(task, caplog):
    task.check_examples([sentence("a b", "O Z"), sentence("a", "Y"), sentence("a b c", "Z Z Y")])
    assert "file: no training sentence has the tags Y (line 1), Z (line 2); they count as errors" in caplog.text
    tags = [f"T{number:02}" for number in range(LISTED + 2)]
    task.check_examples([sentence("a", tag) for tag in tags])
    assert (
        f"{tags[LISTED - 1]} (line 1) and 2 more; they count as errors" in caplog.text
        and tags[LISTED] not in caplog.text
    )


def test_words_of_a_line_are_separated_by_spaces_and_tabs(task):
    """As many tags as words: other white space is part of a word, and a word is not invisible."""
    example = task.from_line("a\u00a0b  c\td \u200b ", "en", "file", 1)
    assert example.words == ("a\u00a0b", "c", "d") and len(example.tags) == 3
