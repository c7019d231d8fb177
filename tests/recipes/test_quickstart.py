"""The recipes run for real, at nano size, through their own scripts."""

import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import flags, merge_objective_options
from recipes import corpus, quickstart as quickstart_script, test_set
from recipes.experiment_file import Experiment
from tests.command_line import cli
from tests.recipes.scripts import ROOT, run

CORPUS = """
languages: [en, de]
vocabulary: {model: unigram, size: 300}
monolingual:
  en: {train: sample/mono/train.en, valid: sample/mono/valid.en}
  de: {train: sample/mono/train.de, valid: sample/mono/valid.de}
bitext:
  en-de: {train: sample/bitext/train.en-de, valid: sample/bitext/valid.en-de, test: [sample/bitext/test.en-de]}
"""


def start(folder, updates=4):
    """quickstart.sh on the corpus beside its output folder."""
    given = ["--corpus", str(folder.parent / "corpus.yaml"), "--output", str(folder), "--updates", str(updates)]
    return run("bash", "recipes/quickstart.sh", *given)


@pytest.fixture(scope="module")
def quickstart(warm, tmp_path_factory, copy_sample):
    """The folder and the output of a quickstart of a few updates that failed once and was repeated."""
    folder = tmp_path_factory.mktemp("quickstart")
    copy_sample(folder / "sample")
    (folder / "corpus.yaml").write_text(CORPUS)
    output = folder / "out"
    output.mkdir()
    (output / "random").write_text("where a folder has to be\n")
    failed = start(output)
    assert failed.returncode == 1 and failed.stderr.splitlines()[-1].startswith("fairseq_xl: error: ")
    assert str(output / "random") in failed.stderr.splitlines()[-1]
    (output / "random").unlink()
    resumed = start(output)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    return output, failed.stderr, resumed


def test_quickstart_resumes_where_it_stopped_and_shows_validations(quickstart):
    """From another folder too."""
    folder, failed, resumed = quickstart
    began = [re.findall(r"^--- \d+:\d\d (\S+):", output, re.M) for output in (failed, resumed.stderr)]
    assert began[0] == ["text", "test-set", "pretrain", "translate/pretrained"]
    assert began[1] == ["translate/random", "copy", "compare", "curves", "done"]
    line = r"^  validation on valid after update 4 \| loss [\d.]+ \| .*ppl [\d.]+"
    assert [len(re.findall(line, text, re.M)) for text in (failed, resumed.stderr)] == [2, 1]
    given = ["--corpus", "corpus.yaml", "--output", "out", "--updates", "4"]
    done = run("bash", ROOT / "recipes/quickstart.sh", *given, folder=folder.parent)
    assert done.returncode == 0 and done.stdout == resumed.stdout, done.stderr


def test_quickstart_prints_the_bleu_of_its_files(quickstart):
    folder, _, resumed = quickstart
    difference, scores = resumed.stdout.splitlines()[-2:]
    found = re.fullmatch(r"BLEU pretrained=(\S+) random=(\S+) copy=(\S+)", scores)
    references = (folder / "test-set/reference.de").read_text().splitlines()
    hypotheses = [folder / "pretrained/hypotheses.de", folder / "random/hypotheses.de", folder / "test-set/source.en"]
    for file, score in zip(hypotheses, found.groups()):
        lines = file.read_text().splitlines()
        assert len(lines) == len(references) > 50
        assert float(score) == round(BLEU().corpus_score(lines, [references]).score, 2)
    paired = json.loads((folder / "comparison/paired.json").read_text())["paired"]
    assert difference == (
        f"pretrained - random: {paired['difference']:+.2f} BLEU, paired bootstrap p = {paired['p']:.3f}"
    )


def test_quickstart_keeps_logs_and_curves(quickstart):
    folder, *_ = quickstart
    for picture in ("pretraining.png", "translation.png"):
        assert (folder / "curves" / picture).read_bytes().startswith(b"\x89PNG")
    for step in ("pretrain", "pretrained", "random"):
        assert "fairseq-train" in (folder / step / "out.log").read_text()
    assert json.loads((folder / "pretrained/bleu.json").read_text())["sacrebleu"]["signature"].startswith("nrefs:1|")


def test_quickstart_differs_only_in_the_initialization(quickstart):
    folder, *_ = quickstart
    commands = []
    for model in ("pretrained", "random"):
        log = (folder / model / "out.log").read_text().splitlines()
        commands.append(next(line for line in log if line.startswith("+ ")).replace(str(folder / model), "OUT"))
    assert "--init-from" in commands[0]
    weights = re.sub(r" --init-from \S+", "", commands[0])
    assert weights == commands[1].replace(" --init-std 0.02 --position-init normal", "", 1)


@pytest.mark.parametrize("given, longer", [([], False), (["--corpus", "corpus.yaml"], True)])
def test_quickstart_trains_longer_on_another_corpus_than_the_sample(tmp_path, monkeypatch, given, longer):
    started = []
    monkeypatch.setattr(quickstart_script.experiment, "main", started.append)
    monkeypatch.setattr(quickstart_script, "prepare", lambda name: tmp_path / "corpus.yaml")
    (tmp_path / "corpus.yaml").write_text(CORPUS)
    quickstart_script.main([*given, "--output", str(tmp_path / "out")])
    commands = Experiment(started[0][0], [word for word in started[0] if "=" in word]).steps
    for name in ("pretrain", "translate"):
        words = [word for step in commands for command in step.commands for word in command]
        assert (f"recipes/xlm/config/{name}-longer.yaml" in words) is longer
        assert f"recipes/xlm/config/{name}-toy.yaml" in words


def test_quickstart_reads_a_corpus_by_its_name(tmp_path):
    """Where there is no apt-get, the reader that the name stands for says so, and nothing else is done."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "basename", "cat", "cksum", "date", "mkdir", "sed", "grep"):
        (programs / name).symlink_to(shutil.which(name))
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "recipes", copy / "recipes")
    for name in ("preprocess", "fairseq_xl", "setup.cfg"):
        (copy / name).symlink_to(ROOT / name)
    environment = {"PATH": f"{sys.prefix}/bin:{programs}", "VIRTUAL_ENV": sys.prefix}
    done = run("bash", str(copy / "recipes/quickstart.sh"), "--corpus", "libreoffice-help", **environment)
    assert done.returncode == 1 and "apt-get is not installed" in done.stderr.splitlines()[-1]
    assert (copy / "corpora/libreoffice-help").is_dir() and not (copy / "runs/libreoffice-help/data-bin").exists()


def test_quickstart_refuses_wrong_arguments(tmp_path, capsys):
    for arguments, message in (
        (["--corpus", "absent.yaml"], "absent.yaml: no such file"),
        (["--curpus", "x.yaml"], "unrecognized arguments: --curpus x.yaml"),
        (["--corpus"], "argument --corpus: expected one argument"),
    ):
        with pytest.raises((UserError, SystemExit)) as refused:
            quickstart_script.main(["--output", str(tmp_path / "out"), *arguments])
        told = capsys.readouterr().err or str(refused.value)
        assert told.rstrip().endswith(message)
    assert not (tmp_path / "out").exists()


SCRIPTS = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/**/*.sh") if "\narguments " in path.read_text()
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_name_their_arguments(script):
    """As the comment at the top does."""
    text = (ROOT / script).read_text()
    names = re.search(r"\narguments (.*) --", text)[1].upper().split()
    comment = " ".join(line.removeprefix("# ") for line in text.split("\nset -")[0].splitlines()[1:])
    described = comment.split(": ")[0].split("[")[0].replace("xlm|veco", "SYSTEM").replace("LANGUAGE=DATA", "LANGUAGE")
    assert [word for word in described.split() if word.isupper()][: len(names)] == names
    for words, status in ((["--help"], 0), (["x"] * (len(names) - 1), 2), (["", *["x"] * (len(names) - 1)], 2)):
        done = run("bash", script, *words)
        assert done.returncode == status
        usage = f"usage: {Path(script).name} {' '.join(names)} [--config FILE ...] [--flag value ...]\n"
        assert (done.stderr if status else done.stdout).startswith(usage) and not (done.stdout and done.stderr)
        assert status or done.stdout.removeprefix(usage).split() == comment.replace(" # ", " ").split()


def test_a_later_file_changes_the_settings_that_it_names(tmp_path):
    both, several = "mlm.length=256 mlm.mask_prob=0.2", "mlm.length=64 mlm.mask_prob=0.2 tlm.length=9"
    (tmp_path / "none.yaml").write_text("lr: 64\n")
    for files, merged in (
        ([both, "tlm.length=9 mlm.length=64"], several),
        (["mlm.length=256", "mlm.length=64", "mlm.alpha=0"], "mlm.length=64 mlm.alpha=0"),
        ([both, "null", "mlm.length=64"], "mlm.length=64"),
        (["mlm.length=256", "null"], None),
        (["mlm.batch_sentences=64", "mlm.batch_sentences=null"], "mlm.batch_sentences=null"),
    ):
        paths = [tmp_path / f"{number}.yaml" for number in range(len(files))]
        for path, settings in zip(paths, files):
            path.write_text(f"lr: 64\nobjective-options: {settings}\n")
        expected = ["--lr", "64", *(["--objective-options", merged] if merged else [])]
        assert flags([*paths, tmp_path / "none.yaml"]) == expected


def test_the_command_line_changes_the_settings_that_it_names():
    both, more = "mlm.length=256 mlm.mask_prob=0.2", ["--lr", "1"]
    for given, others in (
        (["--objective-options", both, *more], ["--objective-options", "mlm.length=64"]),
        (["--objective-options", both, *more], ["--objective-options=mlm.length=64"]),
        (["--objective-options=mlm.length=7", *more], ["--objective-options", "mlm.mask_prob=0.2 mlm.length=64"]),
    ):
        assert merge_objective_options(given + others + ["--cpu"]) == cli(
            objective_options="mlm.length=64 mlm.mask_prob=0.2", lr="1", cpu=True
        )
    assert merge_objective_options(more) == more


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "fairseq_xl", "data", "prepare", "x.yaml", "data"],
        ["-m", "fairseq_xl", "data", "disjoint"],
        ["-m", "fairseq_xl", "data", "read", "wmt"],
        ["-m", "fairseq_xl", "search", "negatives"],
        ["-m", "fairseq_xl", "score", "bleu"],
    ],
)
def test_without_the_environment(command):
    done = run(sys.executable, "-S", *command)
    assert done.returncode == 1 and "is missing: `. recipes/environment.sh` in the repository prep" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_script_without_the_environment():
    done = run("bash", "recipes/xlm/pretrain.sh", "data", "save", PATH="/usr/bin:/bin")
    assert done.returncode == 2 and done.stderr.startswith(
        "pretrain.sh: fairseq is missing: `. recipes/environment.sh`"
    )


def test_what_is_no_list_of_flags(tmp_path):
    path = tmp_path / "x.yaml"
    for content, sentence in (
        ("- a\n", ": expected lines 'flag: value', found ['a']"),
        ("only text\n", ": expected lines 'flag: value', found 'only text'"),
        ("# nothing\n", ": expected lines 'flag: value', found an empty file"),
        ("save-dir: ${oc.env:HOME}/x\n", ": save-dir: expected a value, found the reference '${oc.env:HOME}/x'"),
        ("lr: ${a\n", ": lr: expected a value, found the reference '${a'"),
        ("lr: ???\n", ": lr: expected a value, found the reference '???'"),
        ("lr: 1\nlangs: [en]\n", ": langs: a flag has one value, found ['en']: write \"en\""),
        ("adam-betas: [0.9, 0.98]\n", ': adam-betas: a flag has one value, found [0.9, 0.98]: write "(0.9,0.98)"'),
        ("? [a, b]\n: 1\n", " is not YAML in line 1: a key must be one value"),
    ):
        path.write_text(content)
        with pytest.raises(UserError) as refused:
            flags([path])
        assert str(refused.value).startswith(f"{path}{sentence}") and "\n" not in str(refused.value)


def test_the_first_test_set_is_written_as_plain_text(tmp_path):
    (tmp_path / "t.en-de.en.gz").write_bytes(gzip.compress(b"one\n"))
    (tmp_path / "t.en-de.de").write_bytes(b"eins\n")
    path, folder = tmp_path / "corpus.yaml", tmp_path / "out"
    path.write_text("languages: [de, en]\nbitext:\n  en-de: {valid: v, test: [t.en-de, u]}\n")
    test_set.main(str(path), str(folder))
    assert (folder / "source.en").read_bytes() == b"one\n" and (folder / "reference.de").read_bytes() == b"eins\n"
    for content, message in (
        ("languages: [de, en]\nbitext:\n  en-de: {valid: v}\n", "no bitext pair has a test set"),
        ("- a\n", "expected a mapping"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            test_set.main(str(path), str(folder))


def test_an_incomplete_sample_is_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "sample"
    monkeypatch.setattr(corpus, "MADE", (tmp_path / "lohelp", folder))
    calls = []

    def fail(arguments):
        calls.append(arguments)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("preprocess.commands.sample.main", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            corpus.make(folder, [])
        assert not (folder / ".stages/records/sample.json").exists()
    assert calls == [[str(folder)]] * 2
