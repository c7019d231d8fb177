"""Same-language generation as an objective: files, truncation, names in the log."""

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_xl.data.framing import Framing
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import Inputs
from fairseq_xl.objectives.generation import Generation, GenerationConfig
from fairseq_xl.objectives.task_file_objectives import check_files_exist


def made(dictionary, named=True, **options):
    return Generation(GenerationConfig(**options), dictionary, Framing.of("xl", dictionary), named=named)


def test_files_are_read_and_truncated(dictionary, tmp_path, caplog):
    """A source of 9 tokens keeps 7 beside <s>; with one language it is the corpus, with two they are mixed."""
    (tmp_path / "train.en.src").write_text("a b c d e f g h\na\n")
    (tmp_path / "train.en.tgt").write_text("a\nb\n")
    ids = {letter: 4 + number for number, letter in enumerate("abcdefgh")}

    def encode(text, language):
        return np.array([*map(ids.get, text.split()), 2])

    folder = SimpleNamespace(inputs=Inputs(), encode=encode)
    objective = made(dictionary, named=False, task_files=str(tmp_path), length=8)
    with pytest.raises(UserError, match="--length 8 is more than the model's --max-positions 6"):
        objective.check_model(SimpleNamespace(max_positions=6))
    objective.check_model(SimpleNamespace(max_positions=20))
    (corpus,) = objective.open(folder, "train", trains=True).values()
    assert [source.tolist() for source, _ in corpus.texts([0, 1], None)] == [[4, 5, 6, 7, 8, 9, 2], [4, 2]]
    assert "train: of 2 examples 1 sources have more than 8 tokens (--length) and 0 targets more than 20" in caplog.text
    assert folder.inputs.read["train"].keys() == {"train.en.src", "train.en.tgt"}
    for side in ("src", "tgt"):
        (tmp_path / f"train.de.{side}").write_text("a\n" * 6)
    two = made(dictionary, task_files=str(tmp_path), train_langs="en,de")
    (mixed,) = two.open(folder, "train", trains=True).values()
    assert mixed.shares.tolist() == [0.25, 0.75]  # each example is drawn as often as any other


@pytest.mark.parametrize("weight, missing", [("0", None), ("1", "train.en.src")])
def test_files_of_training_are_read_if_it_is_trained(dictionary, tmp_path, weight, missing):
    for side in ("src", "tgt"):
        (tmp_path / f"valid.en.{side}").write_text("a\n")
    objective = made(dictionary, task_files=str(tmp_path), weight=weight)
    for check in (
        lambda: check_files_exist([objective], ["train", "valid"]),
        lambda: objective.check_files(None, ["valid"]),
    ):
        with pytest.raises(UserError, match=missing) if missing else contextlib.nullcontext():
            check()


def test_names_in_the_log(dictionary):
    """2 bits per token in English and 3 in German, of as many tokens: 2.5."""
    sums = {"nll": {"en": (4 * math.log(2), 2), "de": (6 * math.log(2), 2)}}
    alone, beside = made(dictionary, named=False), made(dictionary)
    assert alone.values(sums) == {"nll_loss": 2.5, "ppl_en": 4.0, "ppl_de": 8.0}
    found = beside.values(sums)
    assert found["generation_loss"] == 2.5 and found["generation_en_ppl"] == 4.0
    assert alone.values(sums).keys() <= set(alone.metric_names(["en", "de"]))
    assert found.keys() == set(beside.metric_names(["en", "de"]))
