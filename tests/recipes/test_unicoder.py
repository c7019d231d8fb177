"""Unicoder's recipes: their values, tables of studies, and at nano size everything through the scripts."""

import json
import shutil

import pytest

from fairseq_xl.checkpoints.surgery import donate
from fairseq_xl.data.framing import Framing
from fairseq_xl.objectives import build_objectives
from preprocess.__main__ import main as preprocess
from preprocess.sample.__main__ import main as write_sample
from recipes.unicoder.table import table
from tests.recipes.test_configurations import RECIPES, XLM, build, configuration
from tests.recipes.test_lohelp import run

CONFIG = RECIPES / "unicoder/config"
FIVE = ["mlm", "tlm", "word_recovery", "paraphrase", "cross_lingual_mlm"]
SIZES = {"paper": [CONFIG / "pretrain.yaml"], "toy": [CONFIG / "pretrain.yaml", CONFIG / "toy.yaml"]}
CLASSIFICATION = {"paper": [XLM / "classify.yaml", CONFIG / "classify.yaml"],
                  "toy": [XLM / "classify.yaml", CONFIG / "classify.yaml", CONFIG / "classify-toy.yaml"]}  # fmt: skip


def objectives_of(cfg, dictionary):
    framing = Framing.of("xl", dictionary)
    return build_objectives(cfg.task.objectives, cfg.task.objective_options, dictionary, framing)


@pytest.mark.parametrize("size", SIZES)
def test_all_five_tasks_in_every_update_with_several_languages_drawn_uniformly(size, dictionary):
    cfg = configuration(SIZES[size])
    built = objectives_of(cfg, dictionary)
    assert list(built) == FIVE and cfg.task.schedule == "cycle" and cfg.optimization.update_freq[0] % 5 == 0  # U2
    assert all(objective.cfg.mixed and objective.cfg.alpha == 0 for objective in built.values())  # U2
    assert all(objective.positions <= cfg.model.max_positions for objective in built.values())


def test_the_papers_values(dictionary):
    cfg = configuration(SIZES["paper"])
    built = objectives_of(cfg, dictionary)
    model = cfg.model
    assert (model.layers, model.embed_dim, model.heads, model.dropout) == (12, 1024, 16, 0.1)  # U1
    assert {name: objective.cfg.length for name, objective in built.items()} == {
        "mlm": 256, "cross_lingual_mlm": 256, "tlm": 128, "word_recovery": 128, "paraphrase": 128
    }  # U3  # fmt: skip
    batches = cfg.optimization.update_freq[0] // 5
    assert {batches * objective.cfg.batch_sentences for objective in built.values()} == {512}  # U2
    assert cfg.optimization.lr == [1e-5] and cfg.lr_scheduler._name == "inverse_sqrt"  # U2
    assert configuration(CLASSIFICATION["paper"]).dataset.batch_size == 32  # U8


def test_the_values_of_unicoder_for_xglue(dictionary):
    cfg = configuration([CONFIG / "pretrain.yaml", CONFIG / "xglue.yaml"])
    built = objectives_of(cfg, dictionary)
    model = cfg.model
    assert (model.layers, model.embed_dim, model.heads, model.language_embeddings) == (12, 768, 12, "none")  # G1
    assert list(built) == ["mlm", "tlm"] and cfg.task.schedule == "random"  # G1
    assert all(objective.cfg.mixed and objective.cfg.alpha == 0.3 for objective in built.values())  # G1, G2
    assert {cfg.optimization.update_freq[0] * objective.cfg.batch_sentences for objective in built.values()} == {8192}
    assert built["mlm"].cfg.length == 512 and cfg.optimization.lr == [3e-5]  # G1


@pytest.mark.parametrize("size", SIZES)
def test_a_classifier_starts_from_the_pretraining_of_its_size(size, dictionary):
    donor = build(configuration(SIZES[size]), dictionary).state_dict()
    recipient = build(configuration(CLASSIFICATION[size]), dictionary).state_dict()
    _, new = donate(recipient, donor, "encoder", size)
    assert new == []


def test_table(tmp_path):
    for name, accuracy in (("en", 61.25), ("en-de", 70.0)):
        (tmp_path / name).mkdir()
        languages = {code: {"accuracy": accuracy, "interval": [accuracy - 3, accuracy + 4]} for code in ("en", "de")}
        scores = {"languages": languages, "accuracy": accuracy + 1}
        (tmp_path / name / "scores.json").write_text(json.dumps(scores))
    assert table(tmp_path, ["en", "de"], ["en", "en,de"]) == [
        "| trained on | en | de | average |",
        "|---|---|---|---|",
        "| en | 61.2 ± 3.5 | 61.2 ± 3.5 | 62.2 |",
        "| en + de | 70.0 ± 3.5 | 70.0 ± 3.5 | 71.0 |",
    ]


@pytest.mark.parametrize("script, what", [("finetune.sh", "modes"), ("sweep.sh", "studies")])
def test_a_mode_or_study_that_there_is_not(script, what):
    done = run("bash", f"recipes/unicoder/{script}", "any", "data", "save", "files", "en,de", "random")
    assert done.returncode == 2 and done.stderr == f"{script}: any is none of the {what} of --help\n"


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """A tiny sample in two languages, binarised; a model of two updates; flags that make the rest as small."""
    folder = tmp_path_factory.mktemp("unicoder")
    write_sample([str(folder / "sample"), "--documents", "40"])
    texts = {code: f"{{train: sample/mono/train.{code}, valid: sample/mono/valid.{code}}}" for code in ("en", "de")}
    (folder / "corpus.yaml").write_text(
        "languages: [en, de]\nvocabulary: {model: unigram, size: 300}\nmonolingual:\n"
        + "".join(f"  {code}: {text}\n" for code, text in texts.items())
        + "bitext:\n  en-de: {train: sample/bitext/train.en-de, valid: sample/bitext/valid.en-de}\n"
    )
    preprocess([str(folder / "corpus.yaml"), str(folder / "data-bin")])
    return folder


def succeed(*command):
    done = run(*map(str, command))
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def predictions(folder, language):
    return [line.split("\t") for line in (folder / f"predictions/test.{language}.tsv").read_text().splitlines()]


@pytest.mark.slow
def test_mining_pretraining_and_four_modes(nano):
    data, config, two = nano / "data-bin", "recipes/unicoder/config", ["--max-update", 2, "--save-interval-updates", 2]
    succeed("bash", "recipes/unicoder/mine.sh", data, nano / "dan", f"{config}/dan-toy.yaml", *two)
    mined = [json.loads(line) for line in (nano / "dan/mined.json").read_text().splitlines()]
    assert [entry["prefix"].split("/")[-1] for entry in mined] == ["train.en-de", "valid.en-de"]
    succeed("bash", "recipes/unicoder/pretrain.sh", data, nano / "model", "random", f"{config}/toy.yaml", *two)
    log = (nano / "model/train.log").read_text()
    assert all(f"valid_{name}_loss" in log for name in FIVE)

    files, init = nano / "sample/tasks/nc", nano / "model/checkpoint_last.pt"
    folder = files / "translate_test/de"
    folder.mkdir(parents=True)
    shutil.copy(files / "test.en.tsv", folder)  # perfect translations
    scores = {}
    for mode in ("cross-lingual", "multi-language", "translate-train", "translate-test"):
        command = ["bash", "recipes/unicoder/finetune.sh", mode, data, nano / mode, files, "en,de", init]
        succeed(*command, f"{config}/classify-toy.yaml", "--max-update", 2)
        scores[mode] = json.loads((nano / mode / "scores.json").read_text())
        assert scores[mode]["languages"].keys() == {"en", "de"}
    # what the translations into the source come to is what the source does
    assert scores["translate-test"]["languages"]["de"] == scores["translate-test"]["languages"]["en"]
    assert predictions(nano / "translate-test", "de") == predictions(nano / "cross-lingual", "en")
    # a model of its own for each language
    trained = {code: (nano / f"translate-train/{code}/train.log").read_text() for code in ("en", "de")}
    assert trained["en"] != trained["de"]


@pytest.mark.slow
def test_a_study_fills_its_table_and_goes_on(nano):
    arguments = [nano / "data-bin", nano / "studies", nano / "sample/tasks/nc", "en,de", "random",
                 "recipes/unicoder/config/classify-toy.yaml", "--max-update", 1]  # fmt: skip
    first = succeed("bash", "recipes/unicoder/sweep.sh", "matrix", *arguments)
    rows = (nano / "studies/matrix.md").read_text().splitlines()
    assert [row.split(" |")[0] for row in rows[2:]] == ["| en", "| de"] and first.stdout.endswith(
        "\n".join(rows) + "\n"
    )
    made = (nano / "studies/matrix/en/checkpoint_last.pt").stat().st_mtime_ns
    shutil.rmtree(nano / "studies/matrix/de")
    again = succeed("bash", "recipes/unicoder/sweep.sh", "matrix", *arguments)
    assert again.stdout.endswith("\n".join(rows) + "\n")
    assert (nano / "studies/matrix/en/checkpoint_last.pt").stat().st_mtime_ns == made
    succeed("bash", "recipes/unicoder/sweep.sh", "pairs", *arguments)
    assert "| en + de |" in (nano / "studies/pairs.md").read_text()


@pytest.mark.slow
def test_smoke_ends_with_its_scores(tmp_path):
    done = succeed("bash", "recipes/unicoder/smoke.sh", "--output", tmp_path, "--updates", 2)
    last = done.stdout.splitlines()[-1]
    found = [json.loads((tmp_path / mode / "scores.json").read_text()) for mode in ("cross-lingual", "multi-language")]
    zero_shot, together = (scores["accuracy"] for scores in found)
    assert last == f"unicoder zero-shot={zero_shot} multi-language={together} majority={found[0]['majority']}"
