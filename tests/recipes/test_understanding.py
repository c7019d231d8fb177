"""Fine-tuning of every type by finetune.sh, and XGLUE's understanding tasks on the small made-up release."""

import json
import re

import pytest

from preprocess.readers import xglue
from recipes.xglue import small_release
from tests.commands import MAX_POSITIONS
from tests.recipes.test_configurations import RECIPES
from tests.recipes.test_veco import run, succeeded
from tests.tasks.conftest import write_encoded

TAGGED = "the\tO\nriver\tB-X\nstone\tI-X\n\nwater\tO\n\n"
RANKED = "1\triver\tthe river\n0\triver\twater\n"


def asked(name):
    answers = [{"text": "river", "answer_start": 4}]
    question = {"id": name, "question": "river", "answers": answers}
    return json.dumps({"data": [{"paragraphs": [{"context": "the river stone", "qas": [question]}]}]})


@pytest.fixture(scope="module")
def data_bin(tmp_path_factory):
    """A data-bin with its SentencePiece model. Read only."""
    return write_encoded(tmp_path_factory.mktemp("encoded"))


@pytest.mark.parametrize(
    "kind, suffix, content, measure",
    [
        ("tagging", "tsv", TAGGED, "f1"),
        ("ranking", "tsv", RANKED, "ndcg"),
        ("question-answering", "json", asked("1"), "exact_match"),
    ],
    ids=["tagging", "ranking", "question-answering"],
)
def test_finetune_trains_predicts_and_scores(data_bin, tmp_path, kind, suffix, content, measure):
    for split in ("train", "valid", "test"):
        for code in ("en", "de"):
            (tmp_path / f"{split}.{code}.{suffix}").write_text(content, encoding="utf-8")
    more = ["--question-length", 8] if kind == "question-answering" else []
    arguments = [data_bin, tmp_path / "run", tmp_path, "en", "en,de", RECIPES / "xlm/config/classify-toy.yaml"]
    small = ["--length", 32, "--max-positions", MAX_POSITIONS, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2]
    limits = ["--layers", 1, "--max-update", 2, "--cpu", *more]
    succeeded(run("bash", "recipes/finetune.sh", kind, *arguments, *small, *limits))
    scores = json.loads((tmp_path / "run/scores.json").read_text(encoding="utf-8"))
    assert 0 <= scores[measure] <= 100 and set(scores["languages"]) == {"en", "de"} and scores["missing"] == []


def test_an_unknown_type_is_one_sentence(tmp_path):
    done = run("bash", "recipes/finetune.sh", "parsing", "a", "b", "c", "en", "en")
    assert done.returncode == 2
    assert done.stderr == "finetune.sh: TYPE parsing: choose classification, ranking, tagging or question-answering\n"


def test_the_small_release_is_read(tmp_path):
    """It has all files of the release, equal in each run, and more than one label for each task."""
    small_release.main([str(tmp_path / "release"), str(tmp_path / "corpus")])
    small_release.main([str(tmp_path / "again"), str(tmp_path / "corpus")])
    assert xglue.main([str(tmp_path / "release"), str(tmp_path / "tasks")]) == 0
    counts = json.loads((tmp_path / "tasks/manifest.json").read_text(encoding="utf-8"))["counts"]
    files = [path for path in (tmp_path / "release").rglob("*") if path.is_file()]
    assert len(counts) == len(files) == 2 * 66 + 9
    for path in files:
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "release")).read_bytes()
    for task in ("NER", "POS", "NC", "XNLI", "PAWSX", "QADSM", "WPR", "QAM"):
        assert len(counts[f"{task}/train.en.tsv"]["labels"]) > 1, task
    assert len({len(words.split()) for words in small_release.WORDS.values()}) == 1
    assert set(small_release.WORDS) == set(xglue.ALL)


@pytest.mark.slow
def test_smoke_ends_with_its_scores(tmp_path):
    done = run("bash", "recipes/xglue/smoke-understanding.sh", "--output", tmp_path, "--updates", 3)
    _, printed = succeeded(done)
    names = "NER POS NC MLQA XNLI PAWSX QADSM WPR QAM avg".split()
    figures = " ".join(rf"{name}=\d+\.\d+" for name in names)
    assert re.fullmatch(rf"xglue tasks=9 {figures}", printed.splitlines()[-1])
    assert (tmp_path / "scores/table.md").read_text(encoding="utf-8").count("\n") == 11
    assert (tmp_path / "page/page.html").read_text(encoding="utf-8").count("<h3 id=") == 9
