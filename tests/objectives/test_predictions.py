"""Predictions of a validation: written once a split is complete, for each objective."""

from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.prediction_folders import Origin
from fairseq_xl.objectives.predictions import Predictions


class Labels(SimpleNamespace):
    """An objective that writes examples and predictions as lines."""

    name, suffix = "tagging", "tsv"

    @staticmethod
    def prediction_file(rows):
        return "".join(f"{example}{prediction}\n" for example, prediction in rows)


def objective(named, languages):
    """It evaluates two examples in each language."""
    corpus = SimpleNamespace(sentences=2, examples=["a", "b"])
    return Labels(
        named=named, languages_of=lambda split: languages, evaluated={"test": dict.fromkeys(languages, corpus)}
    )


def batch(name, language):
    return {"split": "test", "objective": name, "corpus": language}


def test_files_are_written_when_all_predictions_are_there(tmp_path):
    both = {"ner": objective(True, ["en", "de"]), "pos": objective(True, ["en"])}
    kept = Predictions(both, tmp_path, Origin("x.pt", None, "ner,pos"), ["test"])
    for name, language in (("ner", "en"), ("ner", "de")):
        both[name].collect(batch(name, language), np.array([1, 0]), ["B", "A"])
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="--max-valid-steps 3 skipped 2 of 4 examples of en of the split test; remove"):
        kept.check_complete("--max-valid-steps 3")
    both["pos"].collect(batch("pos", "en"), np.array([0, 1]), ["C", "D"])
    assert (tmp_path / "ner/test.de.tsv").read_text() == "aA\nbB\n"
    assert (tmp_path / "pos/test.en.tsv").read_text() == "aC\nbD\n"
    kept.check_complete("--max-valid-steps 3")


def test_a_single_objective_needs_no_subfolder(tmp_path):
    alone = {"tagging": objective(False, ["en"])}
    Predictions(alone, tmp_path, Origin("x.pt", None, "tagging"), ["test"])
    alone["tagging"].collect(batch("tagging", "en"), np.array([0, 1]), ["A", "B"])
    assert (tmp_path / "test.en.tsv").is_file()


def test_several_processes_are_refused_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq.distributed.utils.get_data_parallel_world_size", lambda: 2)
    with pytest.raises(UserError, match="--predictions-to works in one process only"):
        Predictions({}, str(tmp_path), None, ["valid"])
