"""Distillation of sentence embeddings: batches, the loss and its gradient by hand, files that do not fit."""

import numpy as np
import pytest
import torch
from tiny_data import write_items

from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.distillation import TaughtSentences, teacher_file
from tests.objectives.conftest import FixedLogits

PAD = 1
TEACHER = np.array([[1, 0], [0, 2], [3, 3]], np.float32)


@pytest.fixture
def write_taught(tmp_path):
    """write_taught(name, language, teacher) -> three sentences, and the teacher's embeddings."""

    def write(name, language, teacher):
        prefix = write_items(tmp_path / name / "train", [[4, 5, 6, 2], [2], [7, 2]])
        np.save(teacher_file(prefix), teacher)
        return TaughtSentences(prefix, language)

    return write


@pytest.fixture
def taught(write_taught):
    return write_taught("en", "en", TEACHER)


def test_batch(build, taught, spec):
    batch = build("distillation").collate(spec([2, 0]), taught)
    assert batch["tokens"].tolist() == [[0, 7, 2, PAD, PAD], [0, 4, 5, 6, 2]]
    assert batch["target"].tolist() == [[3, 3], [1, 0]] and batch["languages"].tolist() == [[1], [1]]
    assert taught.all_examples(10)[0].tolist() == [0, 2]  # the empty line is no sentence


def test_batch_of_several_languages(build, taught, write_taught, spec):
    mixed = MixedCorpus({"en": taught, "de": write_taught("de", "de", -TEACHER)}, 1.0)
    batch = build("distillation", "distillation.mixed=true").collate(spec([2**48 + 2, 2]), mixed)
    assert batch["target"].tolist() == [[-3, -3], [3, 3]] and batch["languages"].tolist() == [[0], [1]]


@pytest.mark.parametrize("pooling, embeddings", [("mean", [[1, 2], [3, 0]]), ("first", [[0, 3], [1, 1]])])
def test_loss_and_gradient_by_hand(build, taught, spec, pooling, embeddings):
    """The loss is Σ (x - t)² / C; its gradient at the first token is 2 (x - t) / C times the token's share of x."""
    objective = build("distillation", f"distillation.pooling={pooling}")
    batch = objective.collate(spec([2, 0]), taught)
    hidden = torch.zeros(2, 5, 2)
    hidden[0, :3] = torch.tensor([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0]])  # mean 1, 2; padding is not counted
    hidden[0, 3:] = 100
    hidden[1] = torch.tensor([[1.0, 1.0], [5.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, -1.0]])  # mean 3, 0
    hidden.requires_grad_()
    term = objective.loss(FixedLogits(hidden), batch)["distillation"]
    x, t = torch.tensor(embeddings, dtype=torch.float32), torch.tensor([[3.0, 3.0], [1.0, 0.0]])
    assert term.sum.item() == pytest.approx(((x - t) ** 2).sum().item() / 2) and term.count == 2
    term.sum.backward()
    share = torch.tensor([[1 / 3], [1 / 5]]) if pooling == "mean" else 1.0
    torch.testing.assert_close(hidden.grad[:, 0], (x - t) * share)
    assert hidden.grad[0, 3:].eq(0).all() and bool(hidden.grad[:, 1].any()) == (pooling == "mean")


def test_a_batch_is_the_sum_of_its_examples(build, write_taught, spec, check_sums):
    corpus = write_taught("en", "en", np.random.default_rng(1).normal(size=(3, 16)))
    check_sums(build("distillation"), corpus, spec([0, 2]), [spec([0]), spec([2])])


def test_values_of_the_log(build):
    objective = build("distillation")
    sums = {"distillation": {"de": (3.0, 2), "en": (1.0, 2), "fr": (0.0, 0)}}
    assert objective.values(sums) == {"distillation_de_loss": 1.5, "distillation_en_loss": 0.5, "distillation_loss": 1}
    assert objective.metric_names(["de"]) == ["distillation_loss", "distillation_de_loss"] and not objective.values({})


def test_wrong_files(build, taught, write_taught, spec, model):
    with pytest.raises(UserError, match="2 rows, but the text has 3 lines"):
        write_taught("de", "de", TEACHER[:2])
    objective = build("distillation")
    with pytest.raises(UserError, match="the teacher's embeddings have 2 channels, the model's 16"):
        model(objective.loss, objective.collate(spec([0]), taught))
    teacher_file(taught.path).unlink()
    with pytest.raises(UserError, match=r"train\.teacher\.npy: no such file"):
        TaughtSentences(taught.path, "en")
