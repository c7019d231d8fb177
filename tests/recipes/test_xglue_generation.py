"""Fine-tuning for generation and denoising through XGLUE's scripts: their values, and at nano size everything."""

import itertools
import json
import re
import shutil

import pytest
import sacrebleu

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import generation_scores as scores, xglue
from fairseq_xl.evaluation.bleu import read_generated
from fairseq_xl.evaluation.prediction_folders import Origin, check_same_origin, write_origin
from recipes.best_of_grid import join_outputs
from tests.command_line import cli
from tests.commands import load
from tests.recipes.configurations import RECIPES
from tests.recipes.scripts import run
from tests.tasks.conftest import data_bin  # noqa: F401
from tests.tasks.titles import SPLITS, write_titles

pytestmark = pytest.mark.usefixtures("warm")
CONFIG = RECIPES / "xglue/config"
FIRST = CONFIG / "generation.yaml"


def succeed(*command, **environment):
    done = run("env", *(f"{key}={value}" for key, value in environment.items()), *map(str, command))
    assert done.returncode == 0, done.stdout + done.stderr
    return done


NANO = "--encoder-layers 1 --decoder-layers 1 --embed-dim 16 --ffn-dim 32 --heads 2 --max-positions 128 --cpu".split()


@pytest.fixture(scope="module")
def nano(data_bin, tmp_path_factory):
    """Its folder: files, titles in three languages; text, a test set; xdae and xfnp, models of two updates."""
    folder = tmp_path_factory.mktemp("nano")
    write_titles(folder / "files")
    (folder / "text").mkdir()
    for code in ("en", "de"):
        lines = (data_bin.parent / f"test.en-de.{code}").read_text(encoding="utf-8").splitlines(keepends=True)
        for split in ("test", "valid"):
            (folder / "text" / f"{split}.{code}").write_text("".join(lines[:5]), encoding="utf-8")
    few = ["--max-update", 2, "--warmup-updates", 1]
    for name in ("xdae", "xfnp"):
        configs = ["--config", CONFIG / f"{name}.yaml", "--config", CONFIG / f"{name}-toy.yaml"]
        succeed("bash", "recipes/xglue/pretrain.sh", data_bin, folder / name, "random", *configs, *NANO, *few)
    return folder


def test_pretraining_starts_from_a_checkpoint_and_goes_on(nano, data_bin, tmp_path):
    path, configs = (
        nano / "xdae/checkpoint_last.pt",
        [f"--config={CONFIG}/{name}.yaml" for name in ("xdae", "xdae-toy")],
    )
    command = ["bash", "recipes/xglue/pretrain.sh", data_bin, tmp_path, path, *configs, *NANO, "--warmup-updates", 1]
    told = succeed(*command, "--max-update", 1, "--lr", 0, "--no-epoch-checkpoints").stdout
    assert f"decoder from {path}" in told and load(path).keys() == load(tmp_path / "checkpoint_last.pt").keys()
    told = succeed(*command, "--max-update", 2).stdout
    assert "Loaded checkpoint" in told and "@ 1 updates" in told


def command_of(nano, data, mode, folder, *more):
    return [
        "bash",
        "recipes/xglue/generation.sh",
        mode,
        data,
        folder,
        nano / "files",
        "en,de,fr",
        nano / "xdae/checkpoint_last.pt",
        *("--config", CONFIG / "generation-toy.yaml"),
        *NANO,
        *cli(length=64, max_update=2),
        *more,
    ]


WRITING = ["--generate", "--beam 1 --max-len-b 8"]


@pytest.fixture(scope="module")
def pivot(nano, data_bin):
    """Fine-tuning on English with sources of 8 tokens: its command and what it printed."""
    command = command_of(nano, data_bin, "pivot", nano / "pivot", "--length", 8)
    return command, succeed(*command, *WRITING).stderr


@pytest.mark.parametrize("mode, trained", [("pivot", "en"), ("multi-language", "en,de,fr")])
def test_every_language_is_scored(nano, data_bin, pivot, mode, trained):
    if mode != "pivot":
        succeed(*command_of(nano, data_bin, mode, nano / mode), *WRITING)
    result = json.loads((nano / mode / "scores.json").read_text())
    assert list(result["languages"]) == ["en", "de", "fr"] and result["missing"] == []
    assert set(result["average"]) >= {"bleu", "bleu_lower", "rouge_l"}
    log = (nano / mode / "train.log").read_text()
    assert f"'train_langs': '{trained}'" in log and "valid_ppl_fr" in log
    for code, entry in result["languages"].items():
        assert entry["n"] == SPLITS["test"] and entry["bleu"]["interval"] >= 0
        hypotheses = read_generated(nano / mode / "outputs" / code / "generate-test.txt")[0]
        references = (nano / f"files/test.{code}.tgt").read_text(encoding="utf-8").splitlines()
        assert entry["bleu"]["score"] == scores.bleu(hypotheses, references)["score"]


def test_one_checkpoint_is_selected_for_english_and_one_for_the_rest(nano, data_bin):
    """Their notes name both, so that they are scored together; a repeated run changes nothing."""
    select = ["--config", CONFIG / "generation-bleu.yaml", *WRITING]
    command = command_of(nano, data_bin, "pivot", nano / "bleu", *select)
    log = succeed(*command).stderr
    paths = [nano / f"bleu/checkpoint_best_{name}.pt" for name in ("en", "zero-shot")]
    assert [log.count(f"loading model(s) from {path}") for path in paths] == [1, 2]
    notes = [nano / f"bleu/outputs/{code}/generate-test.txt.json" for code in ("en", "de", "fr")]
    assert [json.loads(note.read_text())["model"] for note in notes] == [":".join(map(str, paths))] * 3
    assert json.loads((nano / "bleu/scores.json").read_text())["missing"] == []
    assert "loading model(s)" not in succeed(*command).stderr


def test_outputs_of_several_checkpoints_are_joined(tmp_path):
    """Those of a checkpoint that is not named stay refused."""
    outputs = {code: tmp_path / f"outputs/{code}/generate-test.txt" for code in ("en", "de", "fr")}
    for code, path in outputs.items():
        (tmp_path / f"{code}.pt").write_text(code)
        write_origin(path, Origin.from_checkpoint(tmp_path / f"{code}.pt", "xl_generation"))
        path.write_text(code)
    for _ in range(2):  # also after a repeated run
        join_outputs(str(tmp_path / "outputs"), "test", *(str(tmp_path / f"{code}.pt") for code in ("en", "de", "de")))
        check_same_origin([outputs["en"], outputs["de"]])
        with pytest.raises(UserError, match="expected files of one model"):
            check_same_origin(outputs.values())


def test_repeated_run_generates_only_what_is_missing(nano, pivot):
    """Of two languages without outputs, one was interrupted; other settings are refused; warnings were shown."""
    (command, told), folder = pivot, nano / "pivot"
    warning = r"WARNING \| fairseq_xl.objectives.generation \| test: of 11 examples \d+ sources have more than 8 tokens"
    assert re.search(warning, told)
    log, result = (folder / "train.log").read_text(), (folder / "scores.json").read_text()
    (folder / "scores.json").unlink()
    outputs = {path.parent.name: path for path in folder.glob("outputs/*/generate-test.txt")}
    texts = {language: path.read_text() for language, path in outputs.items()}
    kept = {path: path.stat().st_mtime_ns for path in (outputs["en"], folder / "checkpoint_best.pt")}
    outputs["fr"].unlink()
    outputs["de"].parent.rename(folder / "outputs/de.part")
    (folder / "outputs/de.part/generate-test.txt").write_text("D-0\t-1\thalf")
    succeed(*command, *WRITING)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert texts == {language: path.read_text() for language, path in outputs.items()}
    assert sorted(path.name for path in (folder / "outputs").iterdir()) == ["de", "en", "fr"]
    assert (folder / "scores.json").read_text() == result
    entry = '"epoch": 1, "valid_loss"'
    assert (folder / "train.log").read_text().count(entry) == log.count(entry) > 0
    done = run(*map(str, command))
    refused = "then --generate --beam 1, now --generate nothing): remove it or choose another folder\n"
    assert done.returncode == 1 and refused in done.stderr
    assert f"error: {folder} was made with other settings or weights" in done.stderr


def test_a_test_set_without_targets_is_generated_and_not_scored(nano, pivot):
    """The outputs are the same as with them; fairseq-validate has nothing to score."""
    command, _ = pivot
    files = shutil.copytree(nano / "files", nano / "unlabeled")
    for code in ("en", "de", "fr"):
        (files / f"test.{code}.tgt").unlink()
    save_dir = shutil.copytree(nano / "pivot", nano / "without", ignore=shutil.ignore_patterns("outputs", "s*.json"))
    command = [{nano / "files": files, nano / "pivot": save_dir}.get(word, word) for word in command]
    assert succeed(*command, *WRITING).stdout.endswith(f"\nnot scored (no targets): {save_dir}/outputs\n")
    assert not (save_dir / "scores.json").exists()
    for code in ("en", "de", "fr"):
        hypotheses, targets = read_generated(save_dir / f"outputs/{code}/generate-test.txt")
        assert not targets and hypotheses == read_generated(nano / f"pivot/outputs/{code}/generate-test.txt")[0]
    (files / "test.en.tgt").write_text("a\n")  # of one language only
    done = run(*map(str, command))
    assert done.returncode == 2 and done.stderr == f"generation.sh: {files}/test.de.tgt: no such file\n"


def test_from_the_release_to_a_submission_and_its_scores(nano, data_bin, tmp_path):
    """Both tasks at nano size; BLEU is sacreBLEU's of lower case against the files of the release."""
    for task, code, split in itertools.product(("qg", "ntg"), ("en", "de", "fr"), ("train", "valid")):
        for side in ("src", "tgt"):
            path = tmp_path / f"in/{task.upper()}/xglue.{task}.{code}.{side}.{'dev' if split == 'valid' else split}"
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(nano / f"files/{split}.{code}.{side}", path)
            shutil.copy(path, path.with_suffix(".test"))
    base = RECIPES / "xglue/generation.yaml"
    tasks = "{QG: {reader: qg, langs: 'en,de,fr'}, NTG: {reader: ntg, langs: 'en,de'}}"
    (tmp_path / "nano.yaml").write_text(f"base: {base}\nvalues:\n  tasks: {tasks}\n")
    settings = f"--config {CONFIG}/generation-toy.yaml {' '.join(NANO)} --length 64 --max-update 2"
    values = {"release": tmp_path / "in", "data": data_bin, "xdae": nano / "xdae/checkpoint_last.pt", "models": "xdae"}
    values |= {"settings": settings, "generate": "--beam 1 --max-len-b 8"}
    words = [f"{name}={value}" for name, value in values.items()]
    command = ["python", "-m", "recipes.experiment", tmp_path / "nano.yaml", *words, "--output", tmp_path / "out"]
    succeed(*command)
    valid = tmp_path / "out/xdae/valid"
    result = json.loads((valid / "scores/scores.json").read_text())
    assert result["split"] == "dev" and result["missing"] == [*xglue.GROUPS["understanding"], "NTG"]
    for code, entry in result["tasks"]["QG"]["languages"].items():
        files = valid / f"submission/QG/{code}.prediction", tmp_path / f"in/QG/xglue.qg.{code}.tgt.dev"
        hypotheses, references = (file.read_text(encoding="utf-8").splitlines() for file in files)
        expected = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True).score
        assert entry["bleu"] == pytest.approx(expected, abs=0.005)
    assert "not comparable: the figure is of the split test" in (valid / "scores/table.md").read_text()
    average = result["tasks"]["QG"]["average"]
    assert f"| xDAE | {average:.2f} |  |  |" in (tmp_path / "out/report.md").read_text()
    assert "Scores of the split dev." in (tmp_path / "out/page/valid/page.html").read_text()
    logs = {path: path.read_bytes() for path in (tmp_path / "out").glob("xdae/*/*.log")}
    succeed(*command, "split=test", "release-split=test")  # trains nothing again
    assert logs == {path: path.read_bytes() for path in logs} and len(logs) >= 4
    result = json.loads((tmp_path / "out/xdae/test/scores/scores.json").read_text())
    assert result["split"] == "test" and result["missing"] == [*xglue.GROUPS["understanding"], "NTG"]
    assert "Scores of the split test." in (tmp_path / "out/page/test/page.html").read_text()


@pytest.mark.slow
def test_an_xfnp_is_fine_tuned(nano, data_bin, tmp_path):
    checkpoint = nano / "xfnp/checkpoint_last.pt"
    command = command_of(nano, data_bin, "pivot", tmp_path / "titles", "--arch", "xl_xfnp_tiny")
    command[command.index(nano / "xdae/checkpoint_last.pt")] = checkpoint
    succeed(*command, *WRITING)
    assert set(json.loads((tmp_path / "titles/scores.json").read_text())["languages"]) == {"en", "de", "fr"}
    assert f"'init_from': '{checkpoint}'" in (tmp_path / "titles/train.log").read_text()


@pytest.mark.parametrize("objective, split, more", [("xdae", "test", []), ("xfnp", "valid", ["--gen-subset=valid"])])
def test_denoising_beside_copying(nano, data_bin, objective, split, more):
    checkpoint = nano / objective / "checkpoint_last.pt"
    command = [
        "bash",
        "recipes/xglue/denoise.sh",
        objective,
        data_bin,
        checkpoint,
        nano / "denoised" / objective,
        nano / "text",
        "en,de",
        *cli(objective_options=f"{objective}.length=32", beam=1, cpu=True),
        *more,
    ]
    succeed(*command)
    result = json.loads((nano / f"denoised/{objective}/scores.json").read_text())
    assert list(result["languages"]) == list(result["copy"]["languages"]) == ["en", "de"]
    assert result["copy"]["average"]["bleu"] > result["average"]["bleu"]  # after two updates
    assert {path.name for path in (nano / f"denoised/{objective}/text").iterdir()} == {
        f"{split}.{code}.{side}" for code in ("en", "de") for side in ("src", "tgt")
    }


def test_denoising_and_generation_look_at_their_arguments_first(nano, data_bin, tmp_path):
    checkpoint = nano / "xdae/checkpoint_last.pt"
    for arguments, said in (
        (["foo", data_bin, checkpoint, "en"], "OBJECTIVE foo: one of xdae, xfnp"),
        (["xdae", tmp_path, checkpoint, "en"], f"{tmp_path}/dict.txt: no such file"),
        (["xdae", data_bin, tmp_path / "no.pt", "en"], f"{tmp_path}/no.pt: no such file"),
        (["xdae", data_bin, checkpoint, "en,xx"], f"{data_bin}/dict.txt has no symbol of language 'xx'"),
        (["xdae", data_bin, checkpoint, "de", "--gen-subset", "other"], f"{nano}/text/other.de: no such file"),
        (["xdae", data_bin, checkpoint, "de", "--gen-subset=more"], f"{nano}/text/more.de: no such file"),
    ):
        named, more = [*arguments[:3], tmp_path / "out", nano / "text", *arguments[3:4]], arguments[4:]
        done = run("bash", "recipes/xglue/denoise.sh", *map(str, named + more))
        assert done.returncode == 2 and done.stderr == f"denoise.sh: {said}\n"
    done = run("bash", "recipes/xglue/generation.sh", "any", "data", tmp_path / "save", "files", "en,de", "random")
    assert done.returncode == 2 and done.stderr == "generation.sh: MODE any: one of pivot, multi-language, en, de\n"
    assert not list(tmp_path.iterdir())
