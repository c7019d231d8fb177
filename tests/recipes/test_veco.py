"""VECO's recipes at nano size, through their own scripts: pre-training in two stages, WMT14 in the official format."""

import json
import re

import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.result_tables import table
from preprocess.commands.prepare import main as preprocess
from preprocess.readers.wmt.read_wmt import main as read_wmt
from recipes import experiment, report
from recipes.experiment_file import Experiment
from tests.recipes.configurations import RECIPES, VECO, configuration
from tests.recipes.scripts import run, succeeded

pytest_plugins = "tests.preprocess.readers.small_wmt"
pytestmark = pytest.mark.usefixtures("warm")
COMPARISON = RECIPES / "veco/experiment.yaml"
CORPUS = """
languages: [en, de, fr]
vocabulary: {model: unigram, size: 300}
monolingual:
  en: {train: sample/mono/train.en, valid: sample/mono/valid.en}
  de: {train: sample/mono/train.de, valid: sample/mono/valid.de}
  fr: {train: sample/mono/train.fr, valid: sample/mono/valid.fr}
bitext:
  en-de: {train: sample/bitext/train.en-de, valid: sample/bitext/valid.en-de}
"""
NANO = "max-update: 2\nsave-interval-updates: 1\nlog-interval: 1\n"
SHAPE = "embed-dim: 16\nffn-dim: 32\nheads: 2\n"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, copy_sample):
    """A folder with data-bin, mlm and, from its weights, veco: two updates each; what pretrain.sh showed."""
    folder = tmp_path_factory.mktemp("veco")
    copy_sample(folder / "sample")
    (folder / "corpus.yaml").write_text(CORPUS)
    assert preprocess([str(folder / "corpus.yaml"), str(folder / "data-bin")]) == 0
    (folder / "nano.yaml").write_text(NANO + SHAPE)
    (folder / "cross-attention-nano.yaml").write_text('train-only: "*.cross_attention*"\nmax-update: 1\n')
    config = "recipes/veco/config"
    own = ["--config", f"{config}/toy.yaml", "--config", folder / "nano.yaml"]
    mlm = [f"--config={config}/{name}.yaml" for name in ("pretrain", "toy", "mlm-toy")]
    mlm += ["--config", folder / "nano.yaml", "--save-dir", folder / "mlm"]
    data, init = folder / "data-bin", folder / "mlm/checkpoint_last.pt"
    succeeded(run("fairseq-train", data, "--user-dir", "fairseq_xl", *mlm))
    shown = succeeded(run("bash", "recipes/veco/pretrain.sh", data, folder / "veco", init, *own))
    return folder, "".join(shown)


def test_two_stages_each_from_the_one_before(pretrained):
    folder, shown = pretrained
    first, second = re.findall(r"model from (\S+): \d+ tensors, new: (\S+)", shown)
    assert first[0] == f"{folder}/mlm/checkpoint_last.pt" and first[1].startswith("encoder.layers.0.cross_attention")
    assert second == (f"{folder}/veco/cross-attention/checkpoint_last.pt", "none")


@pytest.mark.parametrize(
    "pair, settings, averaged",
    [
        ("en-de", {"max-update": 2, "max-tokens": 200, "keep-interval-updates": 2}, 2),
        pytest.param(
            "en-fr", {"max-update": 13, "max-tokens": 40, "keep-interval-updates": -1}, 10, marks=pytest.mark.slow
        ),
    ],
    ids=["en-de", "en-fr"],
)
def test_wmt14_from_official_files_to_bleu(pretrained, official, tmp_path, pair, settings, averaged):
    folder, corpus, output = pretrained[0], tmp_path / "wmt", tmp_path / "out"
    assert read_wmt([str(corpus), "--pairs", "en-de,en-fr"]) == 0
    for language, text in (("en", "one two"), ("fr", "un deux trois quatre")):
        with open(corpus / f"bitext/train.en-fr.{language}", "a") as file:
            file.write(f"{text}\n")
    settings = {"save-interval-updates": 1, "log-interval": 1} | settings
    (tmp_path / "nano.yaml").write_text(SHAPE + "".join(f"{name}: {value}\n" for name, value in settings.items()))
    start = [pair, folder / "data-bin", folder / "veco/checkpoint_last.pt", output, "--corpus", corpus]
    small = ["--config", "recipes/veco/config/translate-toy.yaml", "--config", tmp_path / "nano.yaml"]
    shown, printed = succeeded(run("bash", "recipes/wmt.sh", "veco", *start, *small))
    scores = json.loads((output / pair / "bleu.json").read_text(encoding="utf-8"))
    assert printed.endswith(table(scores))
    assert scores["lines"] == 4 and "tok:13a" in scores["sacrebleu"]["signature"]
    assert "case:lc" in scores["tokenized"]["signature"]
    assert "with beam=5:" in (output / pair / "generate-test.txt").read_text()  # V13
    assert "--init-from" in shown
    assert ("translate-en-fr.yaml" in (output / "settings.json").read_text()) == (pair == "en-fr")
    state = load_plain(str(output / "average.pt"))
    cfg = state["cfg"]
    assert (cfg["task"]["init_decoder_layers"], cfg["model"]["decoder_layers"]) == ("last", 2)
    assert cfg["optimization"]["update_freq"] == [1]
    kept = [path.name for path in output.glob("checkpoint_[0-9]*_[0-9]*.pt")]
    assert (len(kept) > averaged) == (pair == "en-fr")
    kept.sort(key=lambda name: int(re.fullmatch(r"checkpoint_\d+_(\d+)\.pt", name)[1]))
    assert state["extra_state"]["averaged_from"] == kept[-averaged:] and len(kept) >= averaged
    data = output / "data-bin"
    assert [path.name for path in data.iterdir() if path.is_dir() and path.name[0] != "."] == [pair]
    symbols = [
        [line.split(" ")[0] for line in (place / "dict.txt").read_text().splitlines()]
        for place in (folder / "data-bin", data)
    ]
    assert symbols[0] == symbols[1]
    manifest = json.loads((data / "manifest.json").read_text())
    if pair == "en-de":
        assert not {"clean", "bitext"} & manifest["config"].keys()
        check_back_translation(tmp_path, start, small)
    else:
        assert manifest["config"]["bitext"]["en-fr"]["clean"]["token_ratio"] == 1.5
        cleaned = next(file["cleaned"] for file in manifest["files"] if file["path"].endswith("train.en-fr.fr"))
        left_out = {name: count for name, count in cleaned.items() if count}
        assert left_out == {"all": 51, "kept": 50, "token_ratio": 1}


def check_back_translation(folder, start, small):
    """A model of de-en learns from two sentences that the model of en-de translates."""
    (folder / "wmt/mono").mkdir()
    (folder / "wmt/mono/train.en").write_text("one sentence\ntwo\n")
    _, *data_and_weights = start[:3]
    more = [folder / "back", "--corpus", folder / "wmt", "--back-translate", folder / "out/average.pt"]
    shown, printed = succeeded(run("bash", "recipes/wmt.sh", "veco", "de-en", *data_and_weights, *more, *small))
    (made,) = [json.loads(line) for line in printed.splitlines() if line.startswith('{"made_with"')]
    assert made["pairs"] == 2 and "--back-translated --lang-pairs de-en" in shown
    assert json.loads((folder / "back/de-en/bleu.json").read_text())["lines"] == 4


def test_nothing_to_average_but_the_last_checkpoint(pretrained, tmp_path):
    folder, save = pretrained[0], tmp_path / "out"
    (tmp_path / "nano.yaml").write_text(NANO.replace("save-interval-updates: 1", "save-interval-updates: 9") + SHAPE)
    small = ["--config", "recipes/veco/config/translate-toy.yaml", "--config", tmp_path / "nano.yaml"]
    small += ["-s", "en", "-t", "de"]
    done = run("bash", "recipes/veco/translate.sh", folder / "data-bin", save, "random", *small)
    told = f"veco: {save} has no checkpoint of --save-interval-updates to average: average.pt is checkpoint_last.pt\n"
    assert done.returncode == 0 and told in done.stderr
    average, last = (torch.load(save / f"{name}.pt")["model"] for name in ("average", "checkpoint_last"))
    assert average.keys() == last.keys() and all(torch.equal(average[key], last[key]) for key in last)


def test_classification_takes_the_encoder_of_a_checkpoint(pretrained, tmp_path):
    folder, save = pretrained[0], tmp_path / "nc"
    (tmp_path / "nano.yaml").write_text("arch: xl_xlmr_tiny\nlength: 64\nmax-update: 2\n" + SHAPE)
    start = [folder / "data-bin", save, folder / "sample/tasks/nc", "en", "en,de"]
    small = ["--config", "recipes/veco/config/finetune.yaml", "--config", tmp_path / "nano.yaml"]
    init = ["--init-from", folder / "veco/checkpoint_last.pt"]
    succeeded(run("bash", "recipes/finetune.sh", "classification", *start, *small, *init))
    cfg = load_plain(str(save / "checkpoint_last.pt"))["cfg"]
    assert cfg["optimization"]["lr"] == [2e-5] and cfg["dataset"]["batch_size"] == 32
    assert set(json.loads((save / "scores.json").read_text())["languages"]) == {"en", "de"}


def test_the_comparison_starts_each_model_from_its_own_weights(tmp_path):
    commands = {step.name: " ".join(step.commands[0]) for step in Experiment(COMPARISON, (), tmp_path).select([])}
    started = {name: re.findall(r"--init-\S+ \S+", command) for name, command in commands.items()}
    weights = {name: f"{tmp_path}/{name}/checkpoint_last.pt" for name in ("mlm", "xlm", "veco")}
    assert started["mlm"] == [] and started["xlm"] == [f"--init-from {weights['mlm']}"]
    assert f"{tmp_path}/veco {weights['mlm']} --config recipes/veco/lohelp/pretrain.yaml" in commands["veco"]
    for target in ("de", "fr"):
        assert started[f"translate/random/{target}"] == ["--init-std 0.02"]
        for name, model, layers in (
            ("xlm-last", "xlm", "last"),
            ("veco-first", "veco", "first"),
            ("veco-last", "veco", "last"),
        ):
            flags = [f"--init-from {weights[model]}", f"--init-decoder-layers {layers}"]
            assert started[f"translate/{name}/{target}"] == flags
    for task in ("nc", "qam"):
        for seed in (1, 2, 3):
            assert started[f"classify/random/{task}/{seed}"] == []
            for model in ("xlm", "veco"):
                command = commands[f"classify/{model}/{task}/{seed}"]
                flags = f"--valid-langs en --seed {seed} --init-from {weights[model]}"
                assert f"recipes/veco/lohelp/classify-{task}.yaml {flags}" in command
    for model in ("xlm", "veco"):
        assert f"fairseq-xl search pairs {weights[model]} " in commands[f"retrieve/{model}"]
    assert "recipes/veco/lohelp/pretrain.yaml --objectives mlm --max-update 1 --lr 0" in commands["untrained"]
    assert f"fairseq-xl search pairs {tmp_path}/random/untrained/checkpoint_last.pt " in commands["retrieve/random"]


def test_the_layers_of_the_decoder_are_compared(tmp_path):
    """V15; given weights are not pre-trained again."""
    file = COMPARISON.with_name("decoder-layers.yaml")
    steps = {step.name: " ".join(step.commands[0]) for step in Experiment(file, (), tmp_path).select([])}
    assert {"mlm", "veco", "copy/de"} <= steps.keys()
    given = {step.name: " ".join(step.commands[0]) for step in Experiment(file, ["weights=FILE"], tmp_path).select([])}
    assert not {"mlm", "veco"} & given.keys() and len([name for name in given if name.startswith("translate/")]) == 8
    for layers in ("first", "last"):
        for number in (1, 2):
            flags = f"--init-from FILE --init-decoder-layers {layers} --decoder-layers {number}"
            assert given[f"translate/{layers}-{number}/de"].endswith(flags)


def test_tables_3_and_4(tmp_path, capsys):
    """V14, V15: nine models of the paper's depths, XLM-R and mBART with their own text; figures stand below scores."""
    file = COMPARISON.with_name("wmt14.yaml")
    steps = {step.name: step.commands[0] for step in Experiment(file, (), tmp_path).steps}
    depths = {}
    for name, command in steps.items():
        if name.startswith("translate/"):  # wmt14.sh DIRECTION DATA INIT SAVE_DIR --flag ...
            model = configuration([VECO / "translate.yaml"], "-s", "en", "-t", "de", *command[6:]).model
            depths[name.removeprefix("translate/")] = model.encoder_layers, model.decoder_layers
    assert depths.pop("mbart") == (12, 12)
    assert depths == {name: (24, 3 if name.endswith("-3") else 6) for name in depths} and len(depths) == 8
    more = f"{tmp_path}/pairs-of-pretraining"
    assert steps["translate/more-bitext"][4:6] == [f"{more}/average.pt", f"{tmp_path}/more-bitext"]
    assert steps["pairs-of-pretraining"][2:] == ["data-bin/veco", more, "random", "-s", "en", "-t", "de"]
    scores = {"sacrebleu": {"score": 29.5, "interval": 0.5}, "tokenized": {"score": 30.5}}
    (tmp_path / "random-6").mkdir()
    (tmp_path / "random-6/bleu.json").write_text(json.dumps(scores))
    report.main([str(file), str(tmp_path), "models=random-6"])
    tables = capsys.readouterr().out
    for row in "| 29.5 ± 0.5 |", "(Luo et al. 2020, table 3) | 28.6/27.7 |", "| 30.5 |":
        assert f"| random 24 + 6 {row}" in tables, tables
    assert tables.count("| 28.6/27.7 |") == 2  # below sacreBLEU and below tokenized BLEU


@pytest.mark.slow
def test_the_comparison_ends_with_tables(lohelp_corpus, tmp_path, capsys):
    values = [f"corpus={lohelp_corpus}", "others=de", "targets=de", "seeds=1", "vocabulary=300"]
    command = [str(COMPARISON), "--output", str(tmp_path), *values]
    experiment.main([*command, "--updates", "3"])
    tables = capsys.readouterr().out
    assert tables == (tmp_path / "report.md").read_text()
    for model in ("random", "XLM, last layers", "VECO, first layers", "VECO, last layers"):
        assert f"| {model} | " in tables
    empty = [line for line in tables.splitlines() if "|  |" in line]  # every model has all scores
    assert [line.split(" |")[0] for line in empty] == ["| tf-idf of character n-grams"]  # it has no layer
    assert tables.count("\n| VECO | ") == tables.count("\n| XLM (MLM + TLM) | ") == 3  # nc, qam, retrieval
    log = (tmp_path / "xlm/out.log").read_text() + (tmp_path / "veco/out.log").read_text()
    assert log.count(f"--init-from {tmp_path}/mlm/checkpoint_last.pt") == 2
    with pytest.raises(UserError, match=f"{tmp_path}/mlm was made with other settings or weights"):
        experiment.main([*command, "--updates", "4", "--only", "mlm"])
    layers = [str(COMPARISON.with_name("decoder-layers.yaml")), *values, f"weights={tmp_path}/veco/checkpoint_last.pt"]
    experiment.main([*layers, "--output", str(tmp_path / "layers"), "--updates", "3"])
    assert re.search(r"\| first layer \| \d", capsys.readouterr().out)
    assert (
        f"--init-from {tmp_path}/veco/checkpoint_last.pt --init-decoder-layers first"
        in (tmp_path / "veco-first/en-de/out.log").read_text()
    )
