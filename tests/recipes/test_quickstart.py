"""The recipes run for real, at nano size, through their own scripts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from preprocess.sample.__main__ import main as write_sample

ROOT = Path(__file__).resolve().parents[2]

CORPUS = """
languages: [en, de]
vocabulary: {model: unigram, size: 300}
monolingual:
  en: {train: sample/mono/train.en, valid: sample/mono/valid.en}
  de: {train: sample/mono/train.de, valid: sample/mono/valid.de}
bitext:
  en-de: {train: sample/bitext/train.en-de, valid: sample/bitext/valid.en-de, test: [sample/bitext/test.en-de]}
"""


def run(*command, **environment):
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"XL_EXTRAS": "tests"} | environment,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """A finished quickstart of a few updates: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    write_sample([str(folder / "sample"), "--documents", "40"])
    (folder / "corpus.yaml").write_text(CORPUS)
    done = run(
        "bash",
        "recipes/quickstart.sh",
        "--corpus",
        str(folder / "corpus.yaml"),
        "--output",
        str(folder / "out"),
        "--updates",
        "4",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out", done.stdout


def test_quickstart_prints_the_bleu_of_its_files(quickstart):
    folder, printed = quickstart
    found = re.fullmatch(r"BLEU pretrained=(\S+) random=(\S+) copy=(\S+)", printed.splitlines()[-1])
    references = (folder / "reference.de").read_text().splitlines()
    hypotheses = [folder / "pretrained/hypotheses.de", folder / "random/hypotheses.de", folder / "source.en"]
    for file, score in zip(hypotheses, found.groups()):
        lines = file.read_text().splitlines()
        assert len(lines) == len(references) > 50
        assert float(score) == round(BLEU().corpus_score(lines, [references]).score, 2)


def test_quickstart_keeps_logs_and_curves(quickstart):
    folder, _ = quickstart
    for picture in ("pretraining.png", "translation.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert "fairseq-train" in (folder / "pretrain.log").read_text()
    assert json.loads((folder / "pretrained/bleu.json").read_text())["sacrebleu"]["signature"].startswith("nrefs:1|")


def test_quickstart_differs_only_in_the_initialisation(quickstart):
    folder, _ = quickstart
    commands = []
    for model in ("pretrained", "random"):
        first = next(line for line in (folder / f"{model}.log").read_text().splitlines() if line.startswith("+ "))
        commands.append(first.replace(str(folder / model), "OUT"))
    assert "--init-encoder-from" in commands[0] and "--init-decoder-from" in commands[0]
    assert re.sub(r" --init-(encoder|decoder)-from \S+", "", commands[0]) == commands[1]


def test_quickstart_reads_a_corpus_by_its_name(tmp_path):
    """Where there is no apt-get, the reader that the name stands for says so, and nothing else is done."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "basename", "cat", "cksum", "date", "mkdir", "sed", "grep"):
        (programs / name).symlink_to(shutil.which(name))
    copy = tmp_path / "copy"
    for name in ("recipes", "preprocess", "fairseq_xl", "setup.cfg"):
        copy.mkdir(exist_ok=True)
        (copy / name).symlink_to(ROOT / name)
    environment = {"PATH": f"{sys.prefix}/bin:{programs}", "VIRTUAL_ENV": sys.prefix}
    done = run("bash", str(copy / "recipes/quickstart.sh"), "--corpus", "libreoffice-help", **environment)
    assert done.returncode == 1 and "there is no apt-get here" in done.stderr.splitlines()[-1]
    assert (copy / "corpora/libreoffice-help").is_dir() and not (copy / "runs/libreoffice-help/data-bin").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--corpus", "absent.yaml"], "quickstart: absent.yaml: no such file"),
        (["--curpus", "x.yaml"], "quickstart: unknown argument --curpus"),
    ],
)
def test_quickstart_refuses_wrong_arguments_in_one_sentence(arguments, message):
    done = run("bash", "recipes/quickstart.sh", *arguments)
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count("\n") == 1


def test_launch_merges_yaml_in_order(tmp_path):
    (tmp_path / "base.yaml").write_text("lr: 0.1\nfp16: true\npatience: 3\nadam-betas: (0.9, 0.98)\ncpu: false\n")
    (tmp_path / "more.yaml").write_text("lr: 0.2\npatience: null\n")
    code = "import sys; from recipes.launch import flags; print(flags(sys.argv[1:]))"
    done = run(sys.executable, "-c", code, str(tmp_path / "base.yaml"), str(tmp_path / "more.yaml"))
    assert done.stdout.strip() == "['--lr', '0.2', '--fp16', '--adam-betas', '(0.9, 0.98)']", done.stderr


def test_launch_names_a_missing_configuration(tmp_path):
    done = run(sys.executable, "recipes/launch.py", "train", "data", "absent.yaml")
    assert done.returncode == 1 and done.stderr == "launch.py: absent.yaml: no such file\n"
