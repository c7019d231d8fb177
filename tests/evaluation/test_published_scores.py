"""Scores of published predictions are the published scores, with every digit that they have.

XL_REAL_DATA names a folder with nc-wmt21_systems.tar.xz, xglue_evaluation.tar.xz, nc-xglue_full_dataset.tar.xz and
xtreme_mock_test_data.tar.xz.
"""

import ast
import csv
import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from fairseq_xl.commands import main

REAL = os.environ.get("XL_REAL_DATA")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(REAL is None, reason="XL_REAL_DATA: folder of published data, as .tar.xz"),
]

#: task of XGLUE -> the file of a language's labels in the task's folder of the release, and the metric
LABELS = {
    "NER": ("{language}.{split}", "f1"),
    "POS": ("{language}.{split}", "precision"),
    "XNLI": ("{language}.{split}", "accuracy"),
    "PAWSX": ("{language}/{split}_2k.tsv", "accuracy"),
    "MLQA": ("MLQA_V1/{split}/{split}-context-{language}-question-{language}.json", "f1"),
}


def unpacked(name, folder):
    with tarfile.open(Path(REAL) / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name.removeprefix("nc-")


def scored(capsys, *words):
    main(["score", *map(str, words), "--json"])
    return json.loads(capsys.readouterr().out)


def test_wmt21(tmp_path, capsys):
    release = unpacked("nc-wmt21_systems", tmp_path)
    scores = scored(capsys, "bleu", "--plain", release / "txt/system-outputs", release / "txt/references")
    with open(release / "scores/automatic-scores.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 1270
    ours = [scores[row["pair"]][row["system"]][row["metric"]] for row in rows]
    assert ours == pytest.approx([float(row["score"]) for row in rows], abs=1e-6, rel=0)


def test_xglue(tmp_path, capsys):
    release, labels = unpacked("xglue_evaluation", tmp_path), unpacked("nc-xglue_full_dataset", tmp_path)
    compared = 0
    for split, published in (("dev", "dev"), ("test", "eval")):
        text = (release / f"evaluation_results_unicoder_{published}.txt").read_text(encoding="utf-8")
        expected = {task: ast.literal_eval(line) for task, line in re.findall(r"^(\w+)\n(\{.*?\})", text, re.M | re.S)}
        for task, (name, _) in LABELS.items():
            for path in (release / f"Unicoder_prediction_on_XGLUE_{split}" / task).iterdir():
                if (labels / task / name.format(language=path.stem, split=split)).is_file():
                    (tmp_path / split / task).mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, tmp_path / split / task)
        folders = "--predictions", tmp_path / split, "--references", labels
        for task, scores in scored(capsys, "xglue", *folders, "--split", split)["tasks"].items():
            for language, score in scores["languages"].items():
                assert score[LABELS[task][1]] == pytest.approx(100 * expected[task][language], abs=0.005001), task
                compared += 1
    assert compared == 79


def test_xtreme(tmp_path, capsys):
    release = unpacked("xtreme_mock_test_data", tmp_path)
    folders = "--predictions", release / "predictions", "--references", release / "labels"
    tasks = scored(capsys, "xtreme", *folders)["tasks"]
    published = json.loads((release / "expected.json").read_text(encoding="utf-8"))
    compared = 0
    for task, scores in published.items():
        for metric in {"accuracy", "f1", "exact_match"} & {name.removeprefix("avg_") for name in scores}:
            assert tasks[task][metric] == pytest.approx(scores[f"avg_{metric}"], abs=0.005001), task
            compared += 1
    assert len(published) == 9 and compared == 12  # two of question answering
