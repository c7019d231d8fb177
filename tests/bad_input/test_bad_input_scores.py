"""score.sh scores the translations that it has just made, and keeps the scores there were if it fails."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.warm_python import warm_environment

SCRIPT = Path(__file__).resolve().parents[2] / "recipes/xlm/score.sh"


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    with warm_environment(tmp_path_factory.mktemp("environment")):
        yield


def test_only_new_translations_are_scored(place, tmp_path, warm):
    reference, kept = f"{place.pairs}.de", tmp_path / "bleu.json"
    lines = Path(reference).read_text(encoding="utf-8").splitlines()
    for split in ("test", "valid"):
        copied = "".join(f"D-{number}\t-1\t{line}\n" for number, line in enumerate(lines))
        (tmp_path / f"generate-{split}.txt").write_text(copied)
    kept.write_text("old")

    def run(checkpoint, reference, *more):
        line = ["bash", SCRIPT, place.data, checkpoint, tmp_path, "en", "de", reference, *more, "--max-len-b", 4]
        return subprocess.run([*map(str, line), "--cpu"], capture_output=True, text=True, timeout=300)

    failed = run(tmp_path / "nowhere.pt", reference)
    assert failed.returncode and "nowhere.pt" in failed.stderr
    assert "D-" not in (tmp_path / "generate-test.txt").read_text()  # fairseq-generate has begun it
    failed = run(place.translation, reference, "--gen-subset", "nosplit")
    assert failed.returncode and "nosplit" in failed.stderr
    (tmp_path / "short").write_text("x\n")
    failed = run(place.translation, tmp_path / "short", "--gen-subset=valid")
    assert failed.returncode and f"{len(lines)} hypotheses but 1 references" in failed.stderr
    assert kept.read_text() == "old"
    done = run(place.translation, reference, "--gen-subset", "valid")
    assert done.returncode == 0 and done.stdout == kept.read_text()
    assert json.loads(done.stdout)["lines"] == len(lines) and json.loads(done.stdout)["sacrebleu"]["score"] < 90
