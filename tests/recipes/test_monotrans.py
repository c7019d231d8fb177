"""MonoTrans' recipes on a tiny sample: four steps, the best of several seeds, what is refused, the configurations."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_xl.checkpoints import banks
from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives import build_objectives
from preprocess.__main__ import main as preprocess
from preprocess.sample.__main__ import main as write_sample
from recipes.launch import flags
from tests.warm_python import warm_python

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "recipes/monotrans"
CONFIGS = ROOT / RECIPE / "config"
TOY, CLASSIFY_TOY = f"{RECIPE}/config/toy.yaml", f"{RECIPE}/config/classify-toy.yaml"
ONE = ["--layers", 1, "--embed-dim", 16, "--ffn-dim", 32]
UPDATE = ["--max-update", 1]


def run(script, *arguments, **environment):
    return subprocess.run(
        ["bash", f"{RECIPE}/{script}", *map(str, arguments)], cwd=ROOT, env=os.environ | environment,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def succeed(*command, **environment):
    done = run(*command, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """Recipes start Python some twenty times here."""
    with warm_python(tmp_path_factory.mktemp("python")) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """A folder with a tiny sample, and data/XX of each of two languages."""
    folder = tmp_path_factory.mktemp("monotrans")
    write_sample([str(folder / "sample"), "--documents", "40"])
    for path in (*folder.glob("sample/*/valid.*"), *folder.glob("sample/tasks/nc/[vt][ae][ls]*")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: 16 if path.suffix == ".tsv" else 60]))
    for code in ("en", "de"):
        text = {split: str(folder / f"sample/mono/{split}.{code}") for split in ("train", "valid")}
        description = {"languages": [code], "vocabulary": {"size": 300}, "monolingual": {code: text}}
        (folder / f"{code}.yaml").write_text(json.dumps(description))
        preprocess([str(folder / f"{code}.yaml"), str(folder / "data" / code)])
    return folder


@pytest.fixture(scope="module")
def made(nano):
    """Steps 1 and 3, an update each: body and classifier."""
    succeed("pretrain.sh", nano / "data/en", nano / "body", TOY, *ONE, *UPDATE)
    body = nano / "body/checkpoint_last.pt"
    files = nano / "sample/tasks/nc"
    succeed("finetune.sh", nano / "data/en", nano / "classifier", files, "en", body, CLASSIFY_TOY, *ONE, *UPDATE)
    return body, nano / "classifier/checkpoint_best.pt"


def test_best_of_two_banks_and_zero_shot(nano, made):
    body, classifier = made
    files, data = nano / "sample/tasks/nc", nano / "data/de"
    command = ["best-bank.sh", data, nano / "de", body, classifier, files, "de", TOY, *ONE, *UPDATE]
    done = succeed(*command, SEEDS="3 5")
    scores = {seed: json.loads((nano / f"de/{seed}/valid/scores.json").read_text())["accuracy"] for seed in (3, 5)}
    best = 5 if scores[5] > scores[3] else 3
    assert f"best: seed {best}" in done.stderr
    assert (nano / "de/bank.pt").read_bytes() == (nano / f"de/{best}/bank.pt").read_bytes()
    states = [banks.read(nano / f"de/{seed}/bank.pt", "de")["state"] for seed in (3, 5)]
    assert not (states[0][banks.TOKENS] == states[1][banks.TOKENS]).all()
    languages = f"de={data}:{nano / 'de/bank.pt'}", f"en={nano / 'data/en'}"
    succeed("zero-shot.sh", classifier, nano / "scores", files, *languages)
    found = json.loads((nano / "scores/scores.json").read_text())
    assert found["languages"].keys() == {"de", "en"}
    gold = (files / "test.de.tsv").read_text().splitlines()
    rows = (nano / "scores/predictions/test.de.tsv").read_text().splitlines()
    assert [row.split("\t")[1] for row in rows] == [line.split("\t")[0] for line in gold]


def test_a_bank_of_another_body_or_setting_is_refused(nano, made):
    body, _ = made
    command = ["learn-bank.sh", nano / "data/de", nano / "other", body, TOY, *ONE]
    succeed(*command, *UPDATE)
    before = (nano / "other/bank.pt").read_bytes()
    done = run(*command, "--max-update", 2)
    assert done.returncode == 2 and "was made with other settings or weights" in done.stderr
    assert (nano / "other/bank.pt").read_bytes() == before


def test_a_language_without_data():
    done = run("zero-shot.sh", "checkpoint", "output", "files", "de")
    assert done.returncode == 2 and done.stderr == "zero-shot.sh: de: expected LANGUAGE=DATA or LANGUAGE=DATA:BANK\n"


@pytest.mark.slow
def test_smoke_ends_with_its_scores(tmp_path):
    done = succeed("smoke.sh", "--output", tmp_path, "--updates", 2)
    scores = json.loads((tmp_path / "zero-shot/scores.json").read_text())
    last = done.stdout.splitlines()[-1]
    assert last == f"monotrans zero-shot={scores['accuracy']} majority={scores['majority']}"
    assert scores["languages"].keys() == {"de", "fr"}


def configuration(*files):
    arguments = ["data", "--user-dir", str(ROOT / "fairseq_xl"), *flags(files)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def test_the_papers_values(dictionary):
    cfg = configuration(CONFIGS / "pretrain.yaml")
    model = cfg.model
    assert (model.layers, model.embed_dim, model.heads, model.ffn_dim) == (12, 768, 12, 3072)
    assert cfg.optimizer._name == "xl_lamb" and cfg.optimization.max_update == 250000
    objective = build_objectives(
        cfg.task.objectives, cfg.task.objective_options, dictionary, Framing.of("xl", dictionary)
    )["nsp"]
    assert objective.cfg.length == objective.positions == 512
    batch = objective.cfg.batch_sentences * cfg.optimization.update_freq[0]
    assert cfg.optimization.lr[0] == pytest.approx(0.005 * (batch / 2**15) ** 0.5)
    assert cfg.lr_scheduler.warmup_updates / 250000 == pytest.approx(0.2 * batch / 2**15)
    tuning = configuration(ROOT / "recipes/xlm/config/classify.yaml", CONFIGS / "classify.yaml")
    assert (tuning.optimization.lr[0], tuning.dataset.batch_size, tuning.optimization.max_epoch) == (2e-5, 32, 2)
    assert tuning.task.freeze == "bank"
