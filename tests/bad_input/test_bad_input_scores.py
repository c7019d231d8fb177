"""score.sh scores the translations that it has just made, and keeps the scores there were if it fails."""

import json
import subprocess
from pathlib import Path

import pytest

from fairseq_xl.io.result_tables import table
from tests.warm_python import warm_environment

SCRIPT = Path(__file__).resolve().parents[2] / "recipes/xlm/score.sh"


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    with warm_environment(tmp_path_factory.mktemp("environment")):
        yield


def test_only_new_translations_are_scored(place, tmp_path, warm):
    reference = f"{place.pairs}.de"
    lines = Path(reference).read_text(encoding="utf-8").splitlines()
    old = {"bleu.json": "old", "bleu-valid.json": "old", "hypotheses.de": "old"}
    old |= {f"generate-{split}.txt": "D-0\t-1\told\n" for split in ("test", "valid")}
    for name, text in old.items():
        (tmp_path / name).write_text(text)

    def run(checkpoint, reference, *more):
        line = ["bash", SCRIPT, place.data, checkpoint, tmp_path, "en", "de", reference, *more, "--max-len-b", 4]
        return subprocess.run([*map(str, line), "--cpu"], capture_output=True, text=True, timeout=300)

    failed = run(tmp_path / "nowhere.pt", reference)
    assert failed.returncode and "nowhere.pt" in failed.stderr
    assert {name: (tmp_path / name).read_text() for name in old} == old
    assert {path.name for path in tmp_path.iterdir()} == {*old, "generate.log"}
    (tmp_path / "short").write_text("x\n")
    failed = run(place.translation, tmp_path / "short", "--gen-subset=valid")
    assert failed.returncode and f"{len(lines)} hypotheses but 1 references" in failed.stderr
    assert (tmp_path / "bleu-valid.json").read_text() == "old"
    done = run(place.translation, reference, "--gen-subset", "valid")
    scores = json.loads((tmp_path / "bleu-valid.json").read_text())
    assert done.returncode == 0 and done.stdout == table(scores) and scores["lines"] == len(lines)
    assert len((tmp_path / "hypotheses-valid.de").read_text(encoding="utf-8").splitlines()) == len(lines)
    assert (tmp_path / "bleu.json").read_text() == (tmp_path / "hypotheses.de").read_text() == "old"
