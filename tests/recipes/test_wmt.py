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

import recipes.wmt
from fairseq_xl.evaluation.bleu import chrf
from fairseq_xl.io.files import write_json
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.result_tables import table
from preprocess.commands.prepare import main as preprocess
from preprocess.commands.sample import main as write_sample
from preprocess.readers.romanian import normalize
from preprocess.readers.wmt.read_wmt import main as read_wmt
from recipes import wmt_arguments
from recipes.wmt_arguments import pair_of, parse
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


MANIFEST = {"format": 1, "pairs": ["en-ro"], "remove diacritics": True}
READ = "fairseq_xl data read wmt {corpus} --pairs"


@pytest.fixture
def data(tmp_path):
    """Stands for a data folder of four languages."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dict.txt").write_text("".join(f"[{code}] 1\n" for code in ("de", "en", "fr", "ro")))
    (tmp_path / "data/sentencepiece.model").touch()
    return tmp_path / "data"


class Recorder:
    """In place of the commands of wmt.py: it keeps their words and ends the program at one with a word of `ends`."""

    def __init__(self, ends):
        self.ends, self.commands = {*ends}, []

    def python(self, *words, **streams):
        self.commands.append(" ".join(words))
        if self.ends & {*words}:
            sys.exit(3)

    run = python


@pytest.fixture
def run_wmt(tmp_path, monkeypatch, capsys):
    """run_wmt(argument …) runs wmt.py up to `fairseq-xl data prepare`: exit status, commands, what it said.

    The corpora folder is that of `tmp_path`.
    """
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(wmt_arguments, "ROOT", tmp_path)

    def run_wmt(*arguments, ends=("prepare",)):
        recorder = Recorder(ends)
        monkeypatch.setattr(recipes.wmt, "Commands", lambda: recorder)
        with pytest.raises(SystemExit) as ended:
            recipes.wmt.main(list(map(str, arguments)))
        return ended.value.code, recorder.commands, capsys.readouterr().err

    return run_wmt


@pytest.mark.parametrize(
    "direction, manifest, named, command, shown",
    [
        ("ro-en", None, False, f"{READ} en-ro --remove-diacritics", ""),
        ("ro-en", MANIFEST | {"remove diacritics": False}, False, f"{READ} en-ro --remove-diacritics", ""),
        ("ro-en", MANIFEST | {"pairs": ["en-de"]}, False, f"{READ} en-ro --remove-diacritics", ""),
        ("ro-en", MANIFEST, False, None, "without"),
        ("ro-en", None, True, f"{READ} en-ro --remove-diacritics", ""),
        ("en-ro", MANIFEST, True, None, "without"),
        ("en-ro", MANIFEST | {"remove diacritics": False}, True, None, "with"),
        ("en-de", None, False, f"{READ} en-de", ""),
        ("en-de", '{"format": 1, "pairs": ["en-de"', False, f"{READ} en-de", ""),  # it was cut off
        ("en-de", MANIFEST | {"pairs": ["en-de", "en-fr"]}, False, None, ""),
    ],
)
def test_the_reader_is_called_unless_the_corpus_has_the_text(
    direction, manifest, named, command, shown, data, tmp_path, run_wmt
):
    corpus = tmp_path / ("named" if named else f"corpora/wmt-en-{direction.replace('en', '').strip('-')}")
    if manifest:
        corpus.mkdir(parents=True)
        content = manifest if isinstance(manifest, str) else json.dumps(manifest)
        (corpus / "manifest.json").write_text(content)
    given = [data, "random", tmp_path / "out", *(["--corpus", corpus] if named else [])]
    _, (called, *_), told = run_wmt("xlm", direction, *given, ends=("read", "prepare"))
    assert called == command.format(corpus=corpus) if command else called.startswith("recipes.settings ")
    assert not shown or told == f"wmt.sh: {corpus} has Romanian text {shown} diacritics\n"


def test_each_pair_has_its_folder(data, tmp_path, run_wmt):
    """Text into English is from the first one."""
    corpora = tmp_path / "corpora"
    german, romanian = (corpora / f"wmt-{name}" for name in ("en-de", "en-ro-diacritics"))
    for path in (german / "mono/train.de", german / "mono/train.en.gz", romanian / "mono/train.ro"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "model.pt").touch()
    given = [data, "random", tmp_path / "out", "--keep-diacritics", "--back-translate", tmp_path / "model.pt"]
    status, commands, told = run_wmt("veco", "en-de,de-en,en-ro,ro-en", *given)
    assert (status, told) == (3, f"wmt.sh: {romanian} has Romanian text with diacritics\n")
    read_german, read_romanian, checked, _ = commands
    assert read_german == f"fairseq_xl data read wmt {german} --pairs en-de"
    assert read_romanian == f"fairseq_xl data read wmt {romanian} --pairs en-ro"
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


RULES = {"longest": 250, "length_ratio": 0, "token_ratio": 1.5, "copies": False, "language": False, "duplicates": False}


@pytest.mark.parametrize(
    "pair, options, rules", [("en-fr", [], RULES), ("en-fr", ["--keep-all-pairs"], None), ("en-de", [], None)]
)
def test_pairs_of_english_and_french_are_filtered(pair, options, rules, data, tmp_path, run_wmt):
    (tmp_path / "wmt").mkdir()
    write_json(tmp_path / "wmt/manifest.json", MANIFEST | {"pairs": [pair]})
    _, commands, _ = run_wmt("xlm", pair, data, "random", tmp_path / "out", "--corpus", tmp_path / "wmt", *options)
    (checked,) = [line for line in commands if line.startswith("recipes.settings ")]
    described = yaml.safe_load((tmp_path / "out/corpus.yaml").read_text())
    assert described["bitext"][pair].get("clean") == rules and ("token_ratio: 1.5" in checked) == bool(rules)


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


def test_wrong_arguments_are_one_sentence(data, tmp_path, run_wmt):
    """Before the corpus is read; a complete corpus of other text stays."""
    of_german, of_romanian, text = (tmp_path / name for name in ("de", "ro", "wmt/mono/train.en"))
    for corpus, content in ((of_german, {"pairs": ["en-de"], "remove diacritics": False}), (of_romanian, MANIFEST)):
        corpus.mkdir()
        write_json(corpus / "manifest.json", {"format": 1} | content)
    text.parent.mkdir(parents=True)
    text.with_name("train.de").touch()
    other, no_pieces = tmp_path / "other", tmp_path / "no-pieces"
    for folder in (other, no_pieces):
        folder.mkdir()
        (folder / "dict.txt").write_text("[en] 1\n[fr] 1\n")
    (other / "sentencepiece.model").touch()
    both = "en-de,de-en"
    for directions, options, message, *changed in (
        ("en-de", "", "unicoder is neither xlm nor veco", "unicoder"),
        ("en-cs", "", "DIRECTIONS en-cs: en-cs is not a direction of en-de, en-fr or en-ro"),
        ("ro-en,de-ro", "", "DIRECTIONS ro-en,de-ro: de-ro is not a direction of en-de, en-fr or en-ro"),
        ("en-de,de-en,en-de", "", "DIRECTIONS en-de,de-en,en-de: en-de is named twice"),
        ("en-de", "--keep-all-pairs", "--keep-all-pairs: only en-fr is filtered"),
        ("en-de", "--keep-diacritics", "--keep-diacritics: only Romanian text has them"),
        ("ro-en", "--back-translate-flags x", "--back-translate-flags needs --back-translate MODEL"),
        ("ro-en", "--back-translate no.pt", "--back-translate no.pt: no such file"),
        ("ro-en", "--keep-diacritics --back-translate", "--back-translate needs a checkpoint"),
        ("en-de,en-fr", "", f"--corpus {of_german} has no text of en-fr: name another folder", "xlm", of_german),
        (
            *("en-ro", "--keep-diacritics"),
            f"--keep-diacritics: --corpus {of_romanian} has Romanian text without diacritics",
            *("xlm", of_romanian),
        ),
        (both, "", f"DATA {tmp_path}: it has no dict.txt", "xlm", None, tmp_path),
        (both, "", f"DATA {no_pieces}: it has no sentencepiece.model", "xlm", None, no_pieces),
        (both, "", f"{other}/dict.txt has no symbol of language 'de'", "xlm", None, other),
        (both, "", "CHECKPOINT none.pt: no such file", "xlm", None, None, "none.pt"),
        (
            *(both, f"--back-translate {data}/dict.txt"),
            f"--back-translate needs monolingual text: there is no {text}",
        ),
    ):
        system, corpus, folder, checkpoint = [*changed, *[None] * 4][:4]
        given = [folder or data, checkpoint or "random", tmp_path / "out", "--corpus", corpus or tmp_path / "wmt"]
        found = run_wmt(system or "xlm", directions, *given, *options.split())
        assert found == (2, [], f"wmt.sh: {message}\n")
    assert not (tmp_path / "out").exists() and not (tmp_path / "wmt/bitext").exists()


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_nothing_is_left_running(number, data, tmp_path, monkeypatch):
    """The command takes half a second to end after the signal, as a training that saves; its shell ends at once.

    A program `python` stands for it; only wmt.py gets the real Python.
    """
    script = "import pathlib, signal, sys, time\n"
    script += "def end(*_):\n    time.sleep(0.5)\n    pathlib.Path(sys.argv[1]).touch()\n    sys.exit(1)\n"
    script += "signal.signal(int(sys.argv[2]), end)\nprint('begun', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "wait.py").write_text(script)
    (tmp_path / "bin").mkdir()
    own = f'case $1 in */recipes/wmt.py) exec {sys.executable} "$@" ;; esac'
    then = f"{sys.executable} {tmp_path}/wait.py {tmp_path}/ended {int(number)}; exit 3"
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\n{own}\necho "$@"\n{then}\n')
    (tmp_path / "bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
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

    Text that has changed is refused. The text of translation has the sub-words and the tokenizer of pre-training.
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
    shown, _ = succeeded(run(*pretrain, folder=tmp_path))
    assert "+ fairseq-preprocess" not in shown
    path = Path(text["en"])
    path.write_text(path.read_text(encoding="utf-8").replace("\n", " house\n", 3), encoding="utf-8")
    done = run(*pretrain, folder=tmp_path)
    assert done.returncode == 2 and "has changed since" in done.stderr and "remove" in done.stderr
