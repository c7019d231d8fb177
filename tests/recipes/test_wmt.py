"""wmt.sh at nano size: Romanian in one and both directions, back-translated pairs, the corpus, wrong arguments."""

import fcntl
import json
import os

import pytest
import yaml

from fairseq_xl.io.files import write_json
from preprocess.__main__ import main as preprocess
from preprocess.readers.wmt.__main__ import main as read_wmt
from preprocess.sample.__main__ import main as write_sample
from tests.recipes.test_veco import ROOT, run, succeeded

pytest_plugins = "tests.preprocess.readers.small_wmt"
pytestmark = pytest.mark.usefixtures("warm")
CORPUS = """
languages: [en, ro]
vocabulary: {model: unigram, size: 300}
monolingual:
  en: {train: sample/mono/train.en, valid: sample/mono/valid.en}
  ro: {train: [sample/mono/train.fr, wmt/bitext/train.en-ro.ro], valid: sample/mono/valid.fr}
"""
NANO = "embed-dim: 16\nffn-dim: 32\nheads: 2\nmax-update: 2\nsave-interval-updates: 1\nlog-interval: 1\n"


def wmt(*arguments):
    return run("bash", "recipes/wmt.sh", *arguments)


@pytest.fixture
def pretrained(official, tmp_path):
    """A folder with the corpus wmt, the configuration nano.yaml, data-bin, and mlm: a nano XLM of its languages."""
    assert read_wmt([str(tmp_path / "wmt"), "--pairs", "en-ro", "--remove-diacritics"]) == 0
    write_sample([str(tmp_path / "sample"), "--documents", "30"])
    (tmp_path / "corpus.yaml").write_text(CORPUS)
    (tmp_path / "nano.yaml").write_text(NANO)
    assert preprocess([str(tmp_path / "corpus.yaml"), str(tmp_path / "data-bin")]) == 0
    config = ["recipes/xlm/config/pretrain-toy.yaml", tmp_path / "nano.yaml", "--objectives", "mlm"]
    succeeded(run("bash", "recipes/xlm/pretrain.sh", tmp_path / "data-bin", tmp_path / "mlm", *config))
    return tmp_path


def test_both_directions_of_romanian_and_back_translation(pretrained):
    """The second and third row of X13."""
    folder, out, back = pretrained, pretrained / "out", pretrained / "back"
    weights = folder / "mlm/checkpoint_last.pt"
    small = ["--corpus", folder / "wmt", "recipes/xlm/config/translate-toy.yaml", folder / "nano.yaml"]
    shown, printed = succeeded(wmt("xlm", "ro-en,en-ro", folder / "data-bin", weights, out, *small))
    assert f"--init-encoder-from {weights} --init-decoder-from {weights} --lang-pairs ro-en,en-ro" in shown
    scores = [json.loads((out / direction / "bleu.json").read_text()) for direction in ("ro-en", "en-ro")]
    assert [json.loads(line) for line in printed.splitlines() if line.startswith("{")][-2:] == scores
    assert all(score["lines"] == 4 for score in scores)
    for direction, reference in (("ro-en", "wmt16 en sentence 0"), ("en-ro", "wmt16 ro sentence 0 tara")):
        assert f"T-0\t{reference}" in (out / direction / "generate-test.txt").read_text().splitlines()
    done = wmt("xlm", "ro-en", folder / "data-bin", weights, out, *small)
    assert done.returncode == 1 and f"{out} was made with other settings" in done.stderr
    assert "(then ro-en,en-ro, now ro-en)" in done.stderr

    (folder / "wmt/mono").mkdir()
    for language, text in (("en", "one sentence\ntwo\n"), ("ro", "o propozitie\n")):
        (folder / f"wmt/mono/train.{language}").write_text(text)
    again = ["--back-translate", out / "checkpoint_best.pt", *small]
    shown, printed = succeeded(wmt("xlm", "ro-en,en-ro", folder / "data-bin", "random", back, *again))
    assert "--init-" not in shown and "--back-translated --lang-pairs ro-en,en-ro" in shown
    counted = [json.loads(line) for line in printed.splitlines() if line.startswith('{"made_with"')]
    assert [[*count["mean_length"], count["pairs"]] for count in counted] == [["ro", "en", 2], ["en", "ro", 1]]
    shown, repeated = succeeded(wmt("xlm", "ro-en,en-ro", folder / "data-bin", "random", back, *again))
    assert repeated.splitlines()[-2:] == printed.splitlines()[-2:] and shown.count("exists: skipped") == 2

    sampled = ["--back-translate", out / "checkpoint_best.pt", "--back-translate-flags", "--sampling --sampling-topk 5"]
    (folder / "wmt/mono/train.ro").unlink()
    alone = ["xlm", "ro-en", folder / "data-bin", "random", folder / "alone", *sampled, *small]
    shown, printed = succeeded(wmt(*alone))
    (count,) = [json.loads(line) for line in printed.splitlines() if line.startswith('{"made_with"')]
    assert [*count["mean_length"], count["pairs"]] == ["ro", "en", 2]
    assert count["made_with"]["options"]["sampling_topk"] == 5
    assert "--back-translated --lang-pairs ro-en --save-dir" in shown and not (folder / "alone/en-ro").exists()
    assert json.loads(printed.splitlines()[-1]) == json.loads((folder / "alone/ro-en/bleu.json").read_text())


MANIFEST = {"pairs": ["en-ro"], "remove diacritics": True}
READ = "-m preprocess.readers.wmt {corpus} --pairs"
CHECKED = "-m recipes.settings"


@pytest.mark.parametrize(
    "direction, manifest, named, command, shown",
    [
        ("ro-en", None, False, f"{READ} en-ro --remove-diacritics", ""),
        ("ro-en", MANIFEST | {"remove diacritics": False}, False, f"{READ} en-ro --remove-diacritics", ""),
        ("ro-en", MANIFEST | {"pairs": ["en-de"]}, False, f"{READ} en-ro --remove-diacritics", ""),
        ("ro-en", MANIFEST, False, CHECKED, "wmt.sh: {corpus} has Romanian text without diacritics\n"),
        ("ro-en", None, True, f"{READ} en-ro --remove-diacritics", ""),
        ("en-ro", MANIFEST, True, CHECKED, "wmt.sh: {corpus} has Romanian text without diacritics\n"),
        (
            "en-ro",
            MANIFEST | {"remove diacritics": False},
            True,
            CHECKED,
            "wmt.sh: {corpus} has Romanian text with diacritics\n",
        ),
        ("en-de", None, False, f"{READ} en-de", ""),
        ("en-de", {"pairs": ["en-de", "en-fr"], "remove diacritics": False}, False, CHECKED, ""),
    ],
)
def test_the_reader_is_called_unless_the_corpus_has_the_text(
    direction, manifest, named, command, shown, tmp_path, monkeypatch
):
    """In a copy of the repository's folders; a stand-in for Python writes its arguments and fails."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    (tmp_path / "bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    corpus = tmp_path / ("named" if named else f"corpora/wmt-en-{direction.replace('en', '').strip('-')}")
    if manifest:
        corpus.mkdir(parents=True)
        write_json(corpus / "manifest.json", manifest)
    given = ["--corpus", corpus] if named else []
    done = run("bash", tmp_path / "recipes/wmt.sh", "xlm", direction, "data", "random", tmp_path / "out", *given)
    (called,) = done.stdout.splitlines()
    command, expected = (text.format(corpus=corpus) for text in (command, shown))
    assert called.startswith(command) if command == CHECKED else called == command, called
    assert (done.returncode, done.stderr) == (3, expected)


def test_the_reader_goes_on_with_a_corpus_that_is_not_complete(tmp_path):
    """The test set is there and the manifest is not: the reader is called, and finds another one at work."""
    corpus = tmp_path / "wmt"
    (corpus / "bitext").mkdir(parents=True)
    (corpus / "bitext/test.en-de.de").write_text("Hallo\n")
    (corpus / ".stages").mkdir()
    with open(corpus / ".stages/lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = wmt("veco", "en-de", "data", "random", tmp_path / "out", "--corpus", corpus)
    assert done.returncode == 1 and f"{corpus}: another run is writing there" in done.stderr


ONE_PAIR = "DIRECTIONS ro-en,en-de: expected one pair, such as ro-en,en-ro"


@pytest.mark.parametrize(
    "system, directions, status, message",
    [
        ("veco", "en-cs", 1, "wmt: --pairs: unknown 'en-cs'; valid: en-de, en-fr, en-ro\n"),
        ("xlm", "cs-en,en-cs", 1, "wmt: --pairs: unknown 'en-cs'; valid: en-de, en-fr, en-ro\n"),
        ("xlm", "de-ro", 1, "wmt: --pairs: unknown 'de-ro'; valid: en-de, en-fr, en-ro\n"),
        ("xlm", "ro-en,en-de", 2, f"wmt.sh: {ONE_PAIR}, not ro-en and en-de\n"),
        ("unicoder", "en-de", 2, "wmt.sh: unicoder is neither xlm nor veco\n"),
    ],
)
def test_wrong_arguments_are_one_sentence(system, directions, status, message, tmp_path):
    done = wmt(system, directions, "data", "checkpoint", tmp_path / "out", "--corpus", tmp_path / "wmt")
    assert done.returncode == status and done.stderr == message
    assert not (tmp_path / "out").exists()


def test_a_corpus_of_another_pair_stays(tmp_path):
    """Its description may have been edited."""
    (tmp_path / "wmt").mkdir()
    write_json(tmp_path / "wmt/manifest.json", {"pairs": ["en-de"], "remove diacritics": False})
    done = wmt("xlm", "en-fr", "data", "random", tmp_path / "out", "--corpus", tmp_path / "wmt")
    assert done.returncode == 2
    assert done.stderr == f"wmt.sh: --corpus {tmp_path / 'wmt'} has no text of en-fr: name another folder\n"


def test_monolingual_text_with_diacritics_is_refused(tmp_path):
    (tmp_path / "wmt/mono").mkdir(parents=True)
    write_json(tmp_path / "wmt/manifest.json", MANIFEST)
    path = tmp_path / "wmt/mono/train.ro"
    path.write_text("una\no țară\n", encoding="utf-8")
    given = ["--corpus", tmp_path / "wmt", "--back-translate", "model.pt"]
    done = wmt("xlm", "ro-en,en-ro", "data", "random", tmp_path / "out", *given)
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert done.stderr.splitlines()[-1].startswith(f"romanian: {path} has 'ț' in line 2: remove its diacritics with")


@pytest.mark.parametrize(
    "pair, options, cleaned", [("en-fr", [], 1.5), ("en-fr", ["--keep-all-pairs"], None), ("en-de", [], None)]
)
def test_pairs_of_english_and_french_are_filtered(pair, options, cleaned, tmp_path, monkeypatch):
    """A stand-in for Python fails at `python -m preprocess`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text('#!/bin/sh\necho "$@"\n[ "$2" != preprocess ] || exit 3\n')
    (tmp_path / "bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "wmt").mkdir()
    write_json(tmp_path / "wmt/manifest.json", {"pairs": [pair]})
    done = wmt("xlm", pair, "data", "random", tmp_path / "out", "--corpus", tmp_path / "wmt", *options)
    assert done.returncode == 3
    (checked,) = [line for line in done.stdout.splitlines() if line.startswith(CHECKED)]
    described = yaml.safe_load((tmp_path / "out/corpus.yaml").read_text())
    assert described.get("clean", {}).get("token_ratio") == cleaned and ("token_ratio: 1.5" in checked) == bool(cleaned)


def test_only_english_and_french_is_filtered(tmp_path):
    done = wmt("xlm", "en-de", "data", "random", tmp_path / "out", "--keep-all-pairs")
    assert (done.returncode, done.stderr) == (2, "wmt.sh: --keep-all-pairs: only en-fr is filtered\n")


def test_flags_of_back_translation_need_its_model(tmp_path):
    given = ["--corpus", tmp_path / "wmt", "--back-translate-flags", "--beam 1"]
    done = wmt("xlm", "ro-en", "data", "random", tmp_path / "out", *given)
    assert done.returncode == 2
    assert done.stderr == "wmt.sh: --back-translate-flags needs --back-translate MODEL\n"
