"""Question answering: reading, windows, offsets, the choice of the answer."""

import json

import numpy as np
import pytest
import torch

from fairseq_xl.data.framing import Framing
from fairseq_xl.data.labelled.labelled_examples import Input
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.squad import Question, read_questions
from fairseq_xl.objectives.question_answering import QuestionAnswering, answer_tokens, best_span
from tests.objectives.builders import options

END = 2
CONTEXT = "abcdefghijklmnopqrstuvwxyz" * 2


class Letters:
    """An encoder with a piece for each letter: a = 10, b = 11, …"""

    def __call__(self, text, language):
        return np.array([*(ord(letter) - 87 for letter in text), END])

    def spans(self, text, language):
        places = np.arange(len(text))
        return self(text, language)[:-1], np.stack([places, places + 1], axis=1)


@pytest.fixture
def task():
    return QuestionAnswering(options(), None, Framing("xl", 0, END, 200))


def squad(**changed):
    answers = [{"text": "in Rome", "answer_start": 10}]
    question = {"id": "q1", "question": "Where?", "answers": answers} | changed
    return {"data": [{"paragraphs": [{"context": "She lives in Rome.", "qas": [question]}]}]}


def test_reading(tmp_path):
    path = tmp_path / "valid.en.json"
    path.write_text("\ufeff" + json.dumps(squad()), encoding="utf-8")
    (example,) = read_questions(path, "en")
    assert (example.id, example.question, example.context) == ("q1", "Where?", "She lives in Rome.")
    assert example.answers == (("in Rome", 10),)


def test_windows_cover_the_context(task):
    """The question "abc" leaves room for 23 letters; windows begin every 10 letters."""
    inputs = task.inputs(Question("q", "abc", CONTEXT, (("xyzab", 23),), "en", "file"), Letters())
    starts = [0, 10, 20, 30]
    letters = Letters()(CONTEXT, "en")[:-1].tolist()
    for start, each in zip(starts, inputs, strict=True):
        assert each.tokens.tolist() == [0, 10, 11, 12, END, END, *letters[start : start + 23], END]
        assert len(each.tokens) <= 30 and each.target["offset"] == 6 and not each.truncated
        first, last = each.target["span"]
        if start in (10, 20):  # the windows that hold the whole answer
            assert each.tokens[first : last + 1].tolist() == letters[23:28]
        else:
            assert (first, last) == (0, 0)
    # each letter is best in a window with the most context around it
    best = [dict(zip(each.target["characters"][:, 0].tolist(), each.target["max_context"])) for each in inputs]
    assert all(any(of_one.get(place) for of_one in best) for place in range(52))
    assert best[0][12] and not best[1][12] and best[1][20] and not best[0][20]


def test_a_long_question_is_truncated(task):
    (made,) = task.inputs(Question("q", "abcdefghij", "xy", (), "en", "file"), Letters())
    assert made.tokens.tolist() == [0, *range(10, 18), END, END, 33, 34, END] and made.truncated
    with pytest.raises(UserError, match="length 27 is too small for question-length 8: 28 or more is needed"):
        QuestionAnswering(options(length=27), None, None)


def test_training_takes_each_window_by_itself(task):
    example = Question("q", "abc", CONTEXT, (("xyzab", 23),), "en", "file")
    examples, items = task.training_items([example], [task.inputs(example, Letters())])
    assert examples == [example] * 4 and [len(item) for item in items] == [1] * 4


@pytest.mark.parametrize("longest, named", [(4, True), (5, False)])
def test_answers_that_are_too_long_to_be_predicted_are_counted(task, caplog, longest, named):
    """An answer of five tokens, and a question without an answer."""
    task.cfg.answer_length = longest
    found = [Question("q", "abc", CONTEXT, answers, "en", "file") for answers in ((("xyzab", 23),), ())]
    task.training_items(found, [task.inputs(example, Letters()) for example in found])
    expected = f"1 of 2 training questions have an answer of more than {longest} tokens (--answer-length)"
    assert (expected in caplog.text) == named


def test_tokens_of_an_answer():
    """Tokens with the space before them; the answer may begin or end within a token."""
    characters = np.array([[0, 3], [3, 9], [9, 9], [9, 12]])
    assert answer_tokens(("lives", 4), characters) == (1, 1)
    assert answer_tokens(("she lives", 0), characters) == (0, 1)
    assert answer_tokens(("ves i", 6), characters) == (1, 3)
    assert answer_tokens(("x", 40), characters) is None


def window(best):
    characters = np.stack([np.arange(4), np.arange(4) + 1], axis=1)
    return Input(np.arange(7), {"offset": 2, "characters": characters, "max_context": np.array(best)})


def test_the_best_answer():
    first, last = [9, 9, 0, 1, 5, 2, 9], [9, 9, 8, 3, 0, 1, 9]  # context: the tokens 2 to 5
    logits = np.array([first, last], dtype=np.float32).T
    assert best_span(logits, window([True] * 4), 30) == (0, 1, 8)  # not 5 + 8: the last token is not before the first
    assert best_span(logits, window([False, True, True, True]), 30) == (2, 4, 6)
    assert best_span(logits, window([False, True, True, True]), 1) == (2, 3, 5)
    assert best_span(logits, window([False] * 4), 30)[-1] == -np.inf  # no answer may start here


def test_the_best_answer_is_that_of_all_pairs():
    rng = np.random.default_rng(3)
    for longest in (1, 2, 7, 50):
        logits = rng.normal(size=(7, 2))
        pairs = {(s, e): logits[2 + s, 0] + logits[2 + e, 1] for s in range(4) for e in range(s, min(4, s + longest))}
        start, end = max(pairs, key=pairs.get)
        assert best_span(logits, window([True] * 4), longest) == (start, end + 1, pairs[start, end])


def test_the_loss_by_hand(task):
    inputs = task.inputs(Question("q", "a", "xyz", (("y", 1),), "en", "file"), Letters())
    target = task.targets(inputs)
    assert target["context"].tolist() == [[True, False, False, False, True, True, True, False]]
    assert (target["start"].tolist(), target["end"].tolist()) == ([5], [5])

    class Model:
        heads = {"question_answering": lambda hidden: hidden}

        def encode(self, tokens):
            return torch.zeros(1, 8, 2)

    logits = task.outputs(Model(), {"tokens": None, "target": target})
    loss, count = task.output_loss(logits, {"target": target})
    assert count == 1 and loss.item() == pytest.approx(np.log(4))  # <s> and three letters


def test_statistics(task):
    example = Question("q", "a", "She lives in Rome.", (("in Rome", 10), ("Rome", 13)), "en", "file")
    assert task.count(example, (9, 17, 1.0)) == {"f1": 1, "exact": 1}
    assert task.count(example, (3, 17, 1.0)) == {"f1": pytest.approx(0.8), "exact": 0}
    assert task.is_labeled(example) and not task.is_labeled(Question("q", "a", "b", (), "en", "file"))
    assert json.loads(task.prediction_file([(example, (9, 17, 1.0))])) == {"q": "in Rome"}
