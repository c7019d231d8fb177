"""wmt.sh at nano size: one direction, both, and several pairs; back-translated pairs, Romanian, wrong arguments."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fairseq_xl.evaluation.bleu import chrf
from fairseq_xl.io.files import write_json
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.result_tables import table
from preprocess.commands.prepare import main as preprocess
from preprocess.commands.sample import main as write_sample
from preprocess.readers.romanian import normalize
from preprocess.readers.wmt.read_wmt import main as read_wmt
from recipes.wmt import description
from recipes.wmt_arguments import corpus_content, pair_of, parse
from tests.recipes.scripts import ROOT, run, succeeded

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


def tables_of(scores):
    return "".join(map(table, scores))


@pytest.fixture
def pretrained(official, tmp_path):
    """A folder with the corpus wmt, the configuration nano.yaml, data-bin, and mlm: a nano XLM of its languages."""
    assert read_wmt([str(tmp_path / "wmt"), "--pairs", "en-ro", "--remove-diacritics"]) == 0
    write_sample([str(tmp_path / "sample"), "--documents", "30"])
    (tmp_path / "corpus.yaml").write_text(CORPUS)
    (tmp_path / "nano.yaml").write_text(NANO)
    assert preprocess([str(tmp_path / "corpus.yaml"), str(tmp_path / "data-bin")]) == 0
    config = ["--config", "recipes/xlm/config/pretrain-toy.yaml", "--config", tmp_path / "nano.yaml"]
    config += ["--objectives", "mlm"]
    succeeded(run("bash", "recipes/xlm/pretrain.sh", tmp_path / "data-bin", tmp_path / "mlm", *config))
    return tmp_path


@pytest.mark.slow
def test_both_directions_of_romanian_and_back_translation(pretrained):
    """The second and third row of X13."""
    folder, out, back = pretrained, pretrained / "out", pretrained / "back"
    weights = folder / "mlm/checkpoint_last.pt"
    small = ["--corpus", folder / "wmt", "--config", "recipes/xlm/config/translate-toy.yaml"]
    small += ["--config", folder / "nano.yaml"]
    shown, printed = succeeded(wmt("xlm", "ro-en,en-ro", folder / "data-bin", weights, out, *small))
    assert f"--init-from {weights} --lang-pairs ro-en\\,en-ro" in shown
    files = ("ro-en/bleu.json", "en-ro/bleu.json", "en-ro/bleu-with-diacritics.json")
    scores = [json.loads((out / file).read_text()) for file in files]
    assert tables_of(scores) in printed
    assert all(score["lines"] == 4 for score in scores)
    hypotheses = [out / "en-ro/hypotheses.ro", folder / "wmt/bitext/test-diacritics.en-ro.ro"]
    assert scores[2]["chrf"]["score"] == chrf(*map(read_lines, hypotheses))["score"]
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
    assert "--init-" not in shown and "--back-translated --lang-pairs ro-en\\,en-ro" in shown
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
    assert printed.endswith(tables_of([json.loads((folder / "alone/ro-en/bleu.json").read_text())]))


def test_three_directions_of_two_pairs_with_romanian_diacritics(official, tmp_path):
    """Only en-fr is filtered. Romanian is scored as it is, and without diacritics on both sides."""
    assert read_wmt([str(tmp_path / "wmt"), "--pairs", "en-fr,en-ro"]) == 0
    for code in ("en", "fr"):
        with open(tmp_path / f"wmt/bitext/train.en-fr.{code}", "a") as file:
            file.write("a b c\n" if code == "en" else "a\n")
    texts = {code: f"wmt/bitext/train.en-{code}.{code}" for code in ("fr", "ro")} | {"en": "wmt/bitext/train.en-ro.en"}
    described = {"languages": ["en", "fr", "ro"], "vocabulary": {"size": 60}}
    described |= {"monolingual": {code: {"train": text} for code, text in texts.items()}}
    (tmp_path / "corpus.yaml").write_text(yaml.safe_dump(described))
    (tmp_path / "nano.yaml").write_text(NANO)
    assert preprocess([str(tmp_path / "corpus.yaml"), str(tmp_path / "data-bin")]) == 0
    out = tmp_path / "out"
    small = ["--config", "recipes/xlm/config/translate-toy.yaml", "--config", tmp_path / "nano.yaml"]
    options = ["--keep-diacritics", "--corpus", tmp_path / "wmt", *small, "--sampling-temperature", "5"]
    shown, printed = succeeded(wmt("xlm", "en-fr,fr-en,en-ro", tmp_path / "data-bin", "random", out, *options))
    assert r"--sampling-temperature 5 --lang-pairs en-fr\,fr-en\,en-ro" in shown
    manifest = json.loads((out / "data-bin/manifest.json").read_text())
    cleaned = {Path(entry["path"]).name: entry["cleaned"] for entry in manifest["files"] if "cleaned" in entry}
    assert list(cleaned) == ["train.en-fr.en", "train.en-fr.fr"] and cleaned["train.en-fr.en"]["token_ratio"] == 1
    files = ("en-fr/bleu.json", "fr-en/bleu.json", "en-ro/bleu.json", "en-ro/bleu-without-diacritics.json")
    scores = [json.loads((out / file).read_text()) for file in files]
    assert tables_of(scores) in printed
    assert "T-0\twmt16 ro sentence 0 țară" in (out / "en-ro/generate-test.txt").read_text().splitlines()
    reference = (out / "en-ro/reference-without-diacritics.ro").read_text()
    assert reference == "".join(f"wmt16 ro sentence {number} tara\n" for number in range(4))
    hypotheses = [(out / f"en-ro/hypotheses{form}.ro").read_text() for form in ("", "-without-diacritics")]
    assert normalize(hypotheses[0], remove_diacritics=True) == hypotheses[1] and hypotheses[1].count("\n") == 4


GIVEN = ["xlm", "de-en,en-de,en-ro", "data", "random", "out"]


def test_arguments_of_the_script_are_before_those_of_the_training():
    assert [pair_of(direction) for direction in ("de-en", "en-de", "en-ro")] == ["en-de", "en-de", "en-ro"]
    plain = parse([*GIVEN, "--config", "toy.yaml", "--corpus", "x"])
    assert (plain.corpus, plain.flags) == ("", ["--config", "toy.yaml", "--corpus", "x"])
    assert (plain.pairs, plain.languages, plain.clean) == (["en-de", "en-ro"], ["en", "de", "ro"], "")
    assert plain.folder("en-ro") == f"{ROOT}/corpora/wmt-en-ro"
    flags = ["--back-translate-flags", "--sampling --beam 1", "--keep-diacritics", "--back-translate", "model.pt"]
    given = parse([*GIVEN, *flags, "--lr", "1"])
    assert (given.back, given.flags) == (("model.pt", "--sampling", "--beam", "1"), ["--lr", "1"])
    assert [given.folder(pair) for pair in given.pairs] == [
        f"{ROOT}/corpora/wmt-{name}" for name in ("en-de", "en-ro-diacritics")
    ]
    assert given.monolingual["en"] == f"{ROOT}/corpora/wmt-en-de/mono/train.en"
    assert given.monolingual["ro"] == f"{ROOT}/corpora/wmt-en-ro-diacritics/mono/train.ro"
    assert parse(["xlm", "fr-en", "data", "random", "out", "--back-translate-flags", ""]).back == ()


def test_the_description_of_a_filtered_pair():
    arguments = parse(["veco", "fr-en", "data", "random", "out", "--corpus", "/wmt", "--back-translate", "model.pt"])
    rules = {"longest": 250, "length_ratio": 0, "token_ratio": 1.5}
    rules |= {"copies": False, "language": False, "duplicates": False}
    splits = {split: f"/wmt/bitext/{split}.en-fr" for split in ("train", "valid", "test")}
    assert description(arguments) == {
        "languages": ["en", "fr"],
        "bitext": {"en-fr": splits | {"clean": rules}},
        "monolingual": {"en": {"train": "/wmt/mono/train.en"}},
    }


@pytest.mark.parametrize(
    "manifest, content",
    [
        (None, ([], "with")),
        ('{"pairs": ["en-de"', ([], "with")),
        (
            '{"format": 1, "counts": {"en-de": 1}, "pairs": ["en-ro"], "remove diacritics": true}',
            (["en-ro"], "without"),
        ),
        ('{"format":1,"pairs":["en-de","en-ro"],"remove diacritics":false}', (["en-de", "en-ro"], "with")),
    ],
)
def test_the_content_of_a_corpus_folder_is_that_of_its_manifest(manifest, content, tmp_path):
    if manifest:
        (tmp_path / "manifest.json").write_text(manifest)
    assert corpus_content(str(tmp_path)) == content


MANIFEST = {"format": 1, "pairs": ["en-ro"], "remove diacritics": True}
READ = "-m fairseq_xl data read wmt {corpus} --pairs"
CHECKED = "-m recipes.settings"


@pytest.fixture
def data(tmp_path):
    """Stands for a data folder of four languages."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dict.txt").write_text("".join(f"[{code}] 1\n" for code in ("de", "en", "fr", "ro")))
    (tmp_path / "data/sentencepiece.model").touch()
    return tmp_path / "data"


def stand_in(folder, monkeypatch, then):
    """A program `python` that prints its arguments and runs a line of shell; only wmt.py gets the real Python."""
    (folder / "bin").mkdir()
    own = f'case $1 in */recipes/wmt.py) exec {sys.executable} "$@" ;; esac'
    (folder / "bin/python").write_text(f'#!/bin/sh\n{own}\necho "$@"\n{then}\n')
    (folder / "bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


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
        ("en-de", MANIFEST | {"pairs": ["en-de", "en-fr"]}, False, CHECKED, ""),
    ],
)
def test_the_reader_is_called_unless_the_corpus_has_the_text(
    direction, manifest, named, command, shown, data, tmp_path, monkeypatch
):
    """In a copy of the repository's folders; a stand-in for Python fails."""
    for name in ("recipes", "fairseq_xl"):
        (tmp_path / name).symlink_to(ROOT / name)
    stand_in(tmp_path, monkeypatch, "exit 3")
    corpus = tmp_path / ("named" if named else f"corpora/wmt-en-{direction.replace('en', '').strip('-')}")
    if manifest:
        corpus.mkdir(parents=True)
        write_json(corpus / "manifest.json", manifest)
    given = ["--corpus", corpus] if named else []
    done = run("bash", tmp_path / "recipes/wmt.sh", "xlm", direction, data, "random", tmp_path / "out", *given)
    (called,) = done.stdout.splitlines()
    command, expected = (text.format(corpus=corpus) for text in (command, shown))
    assert called.startswith(command) if command == CHECKED else called == command, called
    assert (done.returncode, done.stderr) == (3, expected)


def test_each_pair_has_its_folder(data, tmp_path, monkeypatch):
    """Text into English is from the first one. A stand-in for Python fails at `fairseq-xl data prepare`."""
    for name in ("recipes", "fairseq_xl"):
        (tmp_path / name).symlink_to(ROOT / name)
    stand_in(tmp_path, monkeypatch, '[ "${4-}" != prepare ] || exit 3')
    corpora = tmp_path / "corpora"
    german, romanian = (corpora / f"wmt-{name}" for name in ("en-de", "en-ro-diacritics"))
    for path in (german / "mono/train.de", german / "mono/train.en.gz", romanian / "mono/train.ro"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "model.pt").touch()
    given = [data, "random", tmp_path / "out", "--keep-diacritics", "--back-translate", tmp_path / "model.pt"]
    done = run("bash", tmp_path / "recipes/wmt.sh", "veco", "en-de,de-en,en-ro,ro-en", *given)
    assert done.returncode == 3 and done.stderr == f"wmt.sh: {romanian} has Romanian text with diacritics\n"
    read_german, read_romanian, checked, _ = done.stdout.splitlines()
    assert read_german == f"-m fairseq_xl data read wmt {german} --pairs en-de"
    assert read_romanian == f"-m fairseq_xl data read wmt {romanian} --pairs en-ro"
    assert f" {german}/manifest.json {romanian}/manifest.json " in checked
    described = yaml.safe_load((tmp_path / "out/corpus.yaml").read_text())
    splits = ("train", "valid", "test")
    assert described == {
        "languages": ["en", "de", "ro"],
        "bitext": {
            "en-de": {split: f"{german}/bitext/{split}.en-de" for split in splits},
            "en-ro": {split: f"{romanian}/bitext/{split}.en-ro" for split in splits},
        },
        "monolingual": {
            "de": {"train": f"{german}/mono/train.de"},
            "en": {"train": f"{german}/mono/train.en"},
            "ro": {"train": f"{romanian}/mono/train.ro"},
        },
    }


def test_the_reader_goes_on_with_a_corpus_that_is_not_complete(data, tmp_path):
    """The test set is there and the manifest is not: the reader is called, and finds another one at work."""
    corpus = tmp_path / "wmt"
    (corpus / "bitext").mkdir(parents=True)
    (corpus / "bitext/test.en-de.de").write_text("Hallo\n")
    (corpus / ".stages").mkdir()
    with open(corpus / ".stages/lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = wmt("veco", "en-de", data, "random", tmp_path / "out", "--corpus", corpus)
    assert done.returncode == 1 and f"{corpus}: another run is writing there" in done.stderr


@pytest.mark.parametrize(
    "system, directions, options, message",
    [
        ("unicoder", "en-de", "", "unicoder is neither xlm nor veco"),
        ("veco", "en-cs", "", "DIRECTIONS en-cs: en-cs is not a direction of en-de, en-fr or en-ro"),
        ("xlm", "ro-en,de-ro", "", "DIRECTIONS ro-en,de-ro: de-ro is not a direction of en-de, en-fr or en-ro"),
        ("xlm", "en-de,de-en,en-de", "", "DIRECTIONS en-de,de-en,en-de: en-de is named twice"),
        ("xlm", "en-de", "--keep-all-pairs", "--keep-all-pairs: only en-fr is filtered"),
        ("xlm", "en-de", "--keep-diacritics", "--keep-diacritics: only Romanian text has them"),
        ("xlm", "ro-en", "--back-translate-flags x", "--back-translate-flags needs --back-translate MODEL"),
        ("xlm", "ro-en", "--back-translate no.pt", "--back-translate no.pt: no such file"),
        ("xlm", "ro-en", "--keep-diacritics --back-translate", "--back-translate needs a checkpoint"),
    ],
)
def test_wrong_arguments_are_one_sentence(system, directions, options, message, data, tmp_path):
    done = wmt(system, directions, data, "random", tmp_path / "out", "--corpus", tmp_path / "wmt", *options.split())
    assert (done.returncode, done.stderr) == (2, f"wmt.sh: {message}\n")
    assert not (tmp_path / "out").exists() and not (tmp_path / "wmt").exists()


def test_missing_inputs_are_refused_before_the_corpus_is_read(data, tmp_path):
    def refused(directions="en-de,de-en", data=data, checkpoint="random", *options):
        given = ["--corpus", tmp_path / "wmt", *options]
        done = wmt("xlm", directions, data, checkpoint, tmp_path / "out", *given)
        assert done.returncode == 2 and not (tmp_path / "out").exists() and not (tmp_path / "wmt/bitext").exists()
        return done.stderr.removeprefix("wmt.sh: ").removesuffix("\n")

    assert refused(data=tmp_path) == f"DATA {tmp_path}: it has no dict.txt"
    assert refused(checkpoint="none.pt") == "CHECKPOINT none.pt: no such file"
    text = tmp_path / "wmt/mono/train.en"
    model = ["--back-translate", data / "dict.txt"]
    text.parent.mkdir(parents=True)
    text.with_name("train.de").touch()
    needed = "--back-translate needs monolingual text: there is no"
    assert refused("en-de,de-en", data, "random", *model) == f"{needed} {text}"
    (data / "sentencepiece.model").unlink()
    assert refused() == f"DATA {data}: it has no sentencepiece.model"
    (data / "sentencepiece.model").touch()
    (data / "dict.txt").write_text("[en] 1\n[fr] 1\n")
    assert refused() == f"{data}/dict.txt has no symbol of language 'de'"


def test_a_corpus_of_another_pair_stays(data, tmp_path):
    """Its description may have been edited."""
    (tmp_path / "wmt").mkdir()
    write_json(tmp_path / "wmt/manifest.json", {"format": 1, "pairs": ["en-de"], "remove diacritics": False})
    done = wmt("xlm", "en-de,en-fr", data, "random", tmp_path / "out", "--corpus", tmp_path / "wmt")
    assert done.returncode == 2
    assert done.stderr == f"wmt.sh: --corpus {tmp_path / 'wmt'} has no text of en-fr: name another folder\n"


def test_a_corpus_without_diacritics_stays(data, tmp_path):
    (tmp_path / "wmt").mkdir()
    write_json(tmp_path / "wmt/manifest.json", MANIFEST)
    done = wmt("xlm", "en-ro", data, "random", tmp_path / "out", "--keep-diacritics", "--corpus", tmp_path / "wmt")
    assert done.returncode == 2
    expected = f"--keep-diacritics: --corpus {tmp_path / 'wmt'} has Romanian text without diacritics"
    assert done.stderr == f"wmt.sh: {expected}\n"


def test_monolingual_text_with_diacritics_is_refused(data, tmp_path):
    (tmp_path / "wmt/mono").mkdir(parents=True)
    write_json(tmp_path / "wmt/manifest.json", MANIFEST)
    path = tmp_path / "wmt/mono/train.ro"
    path.write_text("una\no țară\n", encoding="utf-8")
    path.with_name("train.en").touch()
    given = ["--corpus", tmp_path / "wmt", "--back-translate", data / "dict.txt"]
    done = wmt("xlm", "ro-en,en-ro", data, "random", tmp_path / "out", *given)
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert done.stderr.splitlines()[-1].startswith(f"romanian: {path} has 'ț' in line 2: remove its diacritics with")


@pytest.mark.parametrize(
    "pair, options, cleaned", [("en-fr", [], 1.5), ("en-fr", ["--keep-all-pairs"], None), ("en-de", [], None)]
)
def test_pairs_of_english_and_french_are_filtered(pair, options, cleaned, data, tmp_path, monkeypatch):
    """A stand-in for Python fails at `fairseq-xl data prepare`."""
    stand_in(tmp_path, monkeypatch, '[ "${4-}" != prepare ] || exit 3')
    (tmp_path / "wmt").mkdir()
    write_json(tmp_path / "wmt/manifest.json", MANIFEST | {"pairs": [pair]})
    done = wmt("xlm", pair, data, "random", tmp_path / "out", "--corpus", tmp_path / "wmt", *options)
    assert done.returncode == 3
    (checked,) = [line for line in done.stdout.splitlines() if line.startswith(CHECKED)]
    described = yaml.safe_load((tmp_path / "out/corpus.yaml").read_text())
    rules = described["bitext"][pair].get("clean", {})
    assert rules.get("token_ratio") == cleaned and ("token_ratio: 1.5" in checked) == bool(cleaned)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_nothing_is_left_running(number, data, tmp_path, monkeypatch):
    """The command takes half a second to end after the signal, as a training that saves; its shell ends at once."""
    script = "import pathlib, signal, sys, time\n"
    script += "def end(*_):\n    time.sleep(0.5)\n    pathlib.Path(sys.argv[1]).touch()\n    sys.exit(1)\n"
    script += "signal.signal(int(sys.argv[2]), end)\nprint('begun', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "wait.py").write_text(script)
    stand_in(tmp_path, monkeypatch, f"{sys.executable} {tmp_path}/wait.py {tmp_path}/ended {int(number)}; exit 3")
    command = ["bash", "recipes/wmt.sh", "xlm", "en-de", data, "random", tmp_path / "out", "--corpus", tmp_path / "wmt"]
    with subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("-m fairseq_xl data read wmt")
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert (tmp_path / "ended").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "system, direction, vocabulary, tokenizer",
    [
        ("xlm", "de-en", {"model": "fastbpe", "codes": 60, "size": 90}, "xlm"),
        pytest.param("veco", "de-en", {"size": 60}, None, marks=pytest.mark.slow),
        pytest.param("xlm", "en-ro", {"size": 60}, "moses", marks=pytest.mark.slow),
    ],
)
def test_from_raw_text_to_bleu_through_fairseqs_commands(official, tmp_path, system, direction, vocabulary, tokenizer):
    """`pretrain.sh` and `wmt14.sh` or `wmt16.sh` encode and binarize the text; repeated, they resume.

    The text of translation has the sub-words and the tokenizer of pre-training.
    """
    other = direction.replace("en", "").strip("-")
    pair, without = f"en-{other}", ["--remove-diacritics"] if other == "ro" else []
    folder = tmp_path / f"corpora/wmt-{pair}"
    assert read_wmt([str(folder), "--pairs", pair, *without]) == 0
    (tmp_path / "nano.yaml").write_text(NANO)
    pretraining = {"languages": ["en", other], "vocabulary": vocabulary}
    if tokenizer == "moses":  # XLM's is the default of its kind of sub-words
        pretraining["tokenizer"] = dict.fromkeys(pretraining["languages"], tokenizer)
    text = {code: f"{folder}/bitext/train.{pair}.{code}" for code in ("en", other)}
    pretraining["monolingual"] = {code: {"train": path, "valid": path} for code, path in text.items()}
    pretraining["bitext"] = {pair: dict.fromkeys(("train", "valid"), f"{folder}/bitext/train.{pair}")}
    (tmp_path / "corpus.yaml").write_text(yaml.safe_dump(pretraining))
    toy = f"{ROOT}/recipes/{system}/config"
    nano = ["--config", tmp_path / "nano.yaml", "--cpu"]
    save, out = tmp_path / "save", tmp_path / "out"
    first = ["--config", f"{toy}/{'pretrain-toy' if system == 'xlm' else 'toy'}.yaml", *nano]
    init = ["random"] if system == "veco" else []
    pretrain = ["bash", ROOT / f"recipes/{system}/pretrain.sh", tmp_path / "corpus.yaml", save, *init, *first]
    shown, _ = succeeded(run(*pretrain, folder=tmp_path))
    assert shown.count("+ fairseq-preprocess ") == 3 and "+ fairseq-train " in shown
    checkpoint = save / "checkpoint_last.pt"
    script = ROOT / f"recipes/{system}/{'wmt16' if other == 'ro' else 'wmt14'}.sh"
    translate = ["bash", script, direction, save / "data-bin", checkpoint, out]
    translate += ["--config", f"{toy}/translate-toy.yaml", *nano]
    shown, printed = succeeded(run(*translate, folder=tmp_path))
    commands = [line.split()[1] for line in shown.splitlines() if line.startswith("+ ")]
    assert commands == ["fairseq-preprocess", "fairseq-train", "fairseq-generate"]
    files = ["bleu.json", "bleu-with-diacritics.json"] if direction == "en-ro" else ["bleu.json"]
    scores = [json.loads((out / file).read_text()) for file in files]
    manifests = [json.loads((place / "data-bin/manifest.json").read_text()) for place in (save, out)]
    assert [manifest["config"].get("tokenizer") for manifest in manifests] == [
        dict.fromkeys(pretraining["languages"], tokenizer) if tokenizer else None
    ] * 2
    assert manifests[0]["vocabulary"] == manifests[1]["vocabulary"]
    assert not re.search(r"(?m)^[TD]-.*(@@|\u2581)", (out / "generate-test.txt").read_text())
    shown = [line.split()[1] for line in printed.splitlines() if line.startswith("sacrebleu ")]
    assert shown == [f"{score['sacrebleu']['score']:.6g}" for score in scores]
    assert "tok:13a" in scores[0]["sacrebleu"]["signature"]
    if direction == "en-ro":
        assert "ro sentence 0 tara\n" in (out / "generate-test.txt").read_text()
    shown, _ = succeeded(run(*translate, folder=tmp_path))
    assert "+ fairseq-preprocess" not in shown and json.loads((out / "bleu.json").read_text()) == scores[0]
