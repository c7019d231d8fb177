"""The comparison of recipes/xglue/run.sh, the studies, the smoke script: tables, equal budgets, at nano size all."""

import json
import re

import pytest

from fairseq_xl.checkpoints.stacks import copy_stack
from preprocess.readers.xglue_generation import main as read_release
from preprocess.sample.__main__ import main as write_sample
from recipes.xglue import report
from tests.recipes.test_configurations import RECIPES, XLM, build, configuration, objectives_of
from tests.recipes.test_lohelp import run
from tests.recipes.test_xglue_generation import succeed
from tests.tasks.conftest import data_bin  # noqa: F401

XGLUE, LOHELP = RECIPES / "xglue", RECIPES / "lohelp"


def pretraining(name):
    return configuration(
        [XGLUE / f"config/{name}.yaml", XGLUE / f"config/{name}-toy.yaml", XGLUE / f"lohelp/{name}.yaml"]
    )


def finetuning(*flags):
    files = [XGLUE / f"config/{name}.yaml" for name in ("generation", "generation-toy")]
    return configuration([*files, XGLUE / "lohelp/titles.yaml"], *flags)


def test_both_are_pretrained_on_as_many_tokens(dictionary):
    budgets = []
    for name in ("xdae", "xfnp"):
        cfg = pretraining(name)
        (objective,) = objectives_of(cfg, dictionary).values()
        settings = objective.cfg
        budgets.append(
            (
                cfg.optimization.max_update,
                cfg.optimization.update_freq,
                settings.batch_tokens,
                settings.length,
                settings.mixed,
                settings.alpha,
            )
        )
        assert cfg.optimization.max_update == cfg.lr_scheduler.total_num_update
    assert budgets[0] == budgets[1]


def test_all_start_from_what_fits(dictionary):
    xlm = build(configuration([XLM / "pretrain.yaml", LOHELP / "pretrain.yaml"]), dictionary).state_dict()
    xdae = build(pretraining("xdae"), dictionary).state_dict()
    titles = build(finetuning(), dictionary).state_dict()
    for recipient in (xdae, titles):
        assert copy_stack(recipient, xlm, "encoder", "xlm")[1] == []
        new = copy_stack(recipient, xlm, "decoder", "xlm")[1]
        assert new and all(".cross_attention" in key for key in new)
    for stack in ("encoder", "decoder"):
        assert copy_stack(titles, xdae, stack, "xdae")[1] == []
    assert finetuning().optimization.max_epoch == 0 and finetuning().optimization.max_update > 0  # equal updates


def around(value, half):
    return value and [value - half, value + half]


def scored(folder, **scores):
    """A score file of English and German: name -> (score of English, of German); intervals are ±1 and ±2."""
    languages = {
        code: {
            name: {"score": values[number], "interval": half if name == "bleu" else around(values[number], half)}
            for name, values in scores.items()
        }
        | {"references_wrong_language": {"score": 5.0 + number}}
        for number, (code, half) in enumerate((("en", 1.0), ("de", 2.0)))
    }
    folder.mkdir(parents=True)
    (folder / "scores.json").write_text(json.dumps({"languages": languages, "copy": {"languages": languages}}))


def test_tables_over_seeds_over_examples_and_of_what_was_not_run(tmp_path):
    for seed, english in ((1, 10.0), (2, 14.0)):
        scored(tmp_path / f"xdae/ntg-pivot-{seed}", bleu=(english, 2.0), rouge_l=(20.0, 30.0))
    scored(tmp_path / "random/ntg-pivot-1", bleu=(1.0, 2.0))
    rows = report.titles(tmp_path, ["random", "xdae", "xfnp"], "pivot", "bleu", ["en", "de"], [1, 2])
    assert rows[0] == "| BLEU-4 | en | de | average |" and rows[2] == "| random |  |  |  |"
    # Student's t of two seeds is 12.706, the error half their difference: logit 12 % = -1.992 ± 0.254 / (0.12 · 0.88)
    # and, of the averages 6 and 8, logit 7 % = -2.587 ± 0.127 / (0.07 · 0.93)
    assert rows[3] == "| xDAE | 12.0 (1.2–60.2) | 2.0 | 7.0 (1.1–34.6) |" and rows[4] == "| xFNP |  |  |  |"
    one = report.titles(tmp_path, ["xdae"], "pivot", "rouge_l", ["en", "de"], [1])
    assert one[2:] == ["| xDAE | 20.0 (19.0–21.0) | 30.0 (28.0–32.0) | 25.0 |"]


def test_table_of_wrong_languages_has_the_references(tmp_path):
    scored(tmp_path / "xdae/ntg-pivot-1", bleu=(1.0, 2.0), wrong_language=(50.0, 10.0))
    scored(tmp_path / "xfnp/ntg-pivot-1", bleu=(1.0, 2.0), wrong_language=(None, 20.0))
    rows = report.titles(tmp_path, ["xdae", "xfnp"], "pivot", "wrong_language", ["en", "de"], [1])
    assert rows[2:] == [
        "| xDAE | 50.0 (49.0–51.0) | 10.0 (8.0–12.0) | 30.0 |",
        "| xFNP |  | 20.0 (18.0–22.0) |  |",
        "| references | 5.0 | 6.0 | 5.5 |",
    ]


def test_the_first_words_are_as_many_as_score_best_on_validation_text(tmp_path):
    """Of English two words and of Chinese two characters."""
    for name, text in {
        "valid.en.src": "Save all files\n",
        "valid.en.tgt": "Save all\n",
        "test.en.src": "Open a file\nSave all\n",
        "test.en.tgt": "Opening\nSave all now\n",
        "valid.zh.src": "打印文件\n",
        "valid.zh.tgt": "打印\n",
        "test.zh.src": "打开文件\n",
        "test.zh.tgt": "打印\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    scores = report.first_words(tmp_path, ["en", "zh"])
    # F1 of the longest common subsequences: of "Save all" 2 of 2 and 2 of 3 words, of 打开 and 打印 1 of 2 and 1 of 2
    assert scores["en"]["rouge_l"]["score"] == 40 and scores["zh"]["rouge_l"]["score"] == 50
    rows = report.titles(tmp_path, ["xdae"], "pivot", "rouge_l", ["en", "zh"], [1, 2], scores)
    assert rows[-1].startswith("| the page's first words | 40.0 (") and rows[-1].endswith("| 45.0 |")


def test_table_of_denoising_has_the_copies(tmp_path):
    scored(tmp_path / "xfnp/denoise", bleu=(40.0, 50.0))
    rows = report.denoising(tmp_path, ["random", "xdae", "xfnp"], ["en", "de"])
    assert rows[2:] == [
        "| xFNP | 40.0 ± 1.0 | 50.0 ± 2.0 | 45.0 |",
        "| xFNP, its input copied | 40.0 ± 1.0 | 50.0 ± 2.0 | 45.0 |",
    ]


def test_ten_outputs_beside_source_and_reference(tmp_path):
    for side in ("src", "tgt"):
        (tmp_path / f"test.de.{side}").write_text("".join(f"{side} {number}\n" for number in range(25)))
    folder = tmp_path / "xdae/ntg-pivot-1/outputs/de"
    folder.mkdir(parents=True)
    (folder / "generate-test.txt").write_text("".join(f"D-{number}\t-1\tout {number}\n" for number in range(25)))
    lines = report.outputs(tmp_path, ["random", "xdae"], "pivot", "de", 1, tmp_path)
    shown = [line for line in lines if line.startswith("   - xDAE")]
    assert shown == [f"   - xDAE: out {number}" for number in (0, 2, 5, 7, 10, 12, 15, 17, 20, 22)]
    assert lines[:5] == ["", "1.", "   - source: src 0", "   - reference: tgt 0", "   - xDAE: out 0"]


@pytest.mark.parametrize("script", ["smoke-generation.sh", "run.sh"])
def test_help_and_mistakes(tmp_path, script):
    assert run("bash", f"recipes/xglue/{script}", "--help").stdout.startswith(script)
    done = run("bash", f"recipes/xglue/{script}", "--output", str(tmp_path / "out"), "--updates", "0")
    assert done.returncode == 2 and done.stderr == "xglue: --updates 0: that is no number of updates\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_smoke_ends_with_its_scores(warm, tmp_path):
    output = tmp_path / "out"
    last = succeed("bash", "recipes/xglue/smoke-generation.sh", "--output", output, "--updates", 2).stdout.splitlines()[
        -2:
    ]
    denoised = json.loads((output / "denoise/scores.json").read_text())
    titles = {name: json.loads((output / f"ntg-{name}/scores.json").read_text()) for name in ("xdae", "xfnp", "random")}
    assert last == [
        f"denoise BLEU={denoised['average']['bleu']} copy={denoised['copy']['average']['bleu']}",
        "ntg BLEU " + " ".join(f"{name}={found['average']['bleu']}" for name, found in titles.items()),
    ]


@pytest.mark.slow
def test_comparison_on_a_corpus_folder(warm, tmp_path):
    corpus, output = tmp_path / "corpus", tmp_path / "out"
    write_sample([str(corpus), "--documents", "40"])
    for path in (*corpus.glob("mono/valid.*"), *corpus.glob("tasks/ntg/*")):
        lines = 64 if path.name.startswith("train") else 12
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]), encoding="utf-8")
    chosen = ["--langs", "en,de", "--seeds", "1", "--vocabulary", "300", "--updates", 2]
    command = ["bash", "recipes/xglue/run.sh", "--corpus", corpus, "--output", output, *chosen]
    tables = succeed(*command, GENERATE="--beam 1 --max-len-b 8").stdout
    assert tables.endswith((output / "report.md").read_text(encoding="utf-8"))
    models = {"random": "random", "xlm": "XLM (MLM + TLM)", "xdae": "xDAE", "xfnp": "xFNP"}
    for mode, part in zip(("pivot", "multi-language"), tables.split("| BLEU-4 | en | de | average |")[1:]):
        scores = [json.loads((output / f"{model}/ntg-{mode}-1/scores.json").read_text()) for model in models]
        averages = [[found["languages"][code]["bleu"]["score"] for code in ("en", "de")] for found in scores]
        rows = part.splitlines()[2:6]
        assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in models.values()]
        assert [row.split(" | ")[-1] for row in rows] == [f"{sum(pair) / 2:.1f} |" for pair in averages]
        log = (output / f"xfnp/ntg-{mode}-1/train.log").read_text()
        assert "'_name': 'xl_xfnp_tiny'" in log and str(output / "xfnp/checkpoint_last.pt") in log
    assert all(f"{name}, its input copied" in tables for name in ("xDAE", "xFNP"))
    assert tables.count("\n   - reference: ") == 40 and (output / "ntg-pivot.png").is_file()
    assert str(output / "xlm/checkpoint_last.pt") in (output / "xdae/train.log").read_text()
    before = {path: path.stat().st_mtime_ns for path in output.glob("*/**/*.pt")}
    succeed(*command, GENERATE="--beam 1 --max-len-b 8")
    assert before == {path: path.stat().st_mtime_ns for path in output.glob("*/**/*.pt")}
    start, other = output / "xlm/checkpoint_last.pt", tmp_path / "other"
    more = [*command[:4], "--output", other, *chosen, "--stages", "data,pretrain", "--models", "xdae", "--start", start]
    succeed(*more)
    assert (other / "xlm/checkpoint_last.pt").read_bytes() == start.read_bytes() and not (
        other / "xlm/train.log"
    ).exists()
    assert not (other / "xfnp").exists()
    done = run(*map(str, [*more[:-1], output / "xdae/checkpoint_last.pt"]))
    assert done.returncode == 2 and "xlm was made with other settings or weights" in done.stderr


# Studies: recipes/xglue/sweep-generation.sh on files as XGLUE has them


def written_release(root, task):
    """XGLUE's files of a task, of the bundled sample's titles: training text in English only."""
    write_sample([str(root / "sample"), "--documents", "40"])
    folder = root / "release" / task.upper()
    folder.mkdir(parents=True)
    for path in (root / "sample/tasks/ntg").iterdir():
        split, code, side = path.name.split(".")
        if code in ("en", "de") and (split, code) != ("train", "de"):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[: 64 if split == "train" else 12]
            name = f"xglue.{task}.{code}.{side}.{'dev' if split == 'valid' else split}"
            (folder / name).write_text("".join(lines), encoding="utf-8")
    return root / "release"


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """A function: task -> the folder that the reader writes of XGLUE's files of it."""
    root = tmp_path_factory.mktemp("official")

    def read(task):
        folder = root / task
        if not folder.exists():
            release = written_release(root / f"{task}-release", task)
            assert read_release([task, str(release), str(folder), "--langs", "en,de"]) == 0
        return folder

    return read


TOY = ["--encoder-layers", 1, "--decoder-layers", 1, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2, "--cpu"]
SHORT = [*TOY, "--max-positions", 128, "--max-update", 2]


def sweep(study, data, output, files, languages, *more, **environment):
    command = [
        "bash",
        "recipes/xglue/sweep-generation.sh",
        study,
        data,
        output,
        files,
        languages,
        "random",
        XGLUE / "config/generation-toy.yaml",
        *SHORT,
        *more,
    ]
    return run("env", *(f"{key}={value}" for key, value in environment.items()), *map(str, command))


WRITING = {"GENERATE": "--beam 1 --max-len-b 6"}


@pytest.mark.slow
def test_the_noises_of_the_paper(warm, data_bin, official, tmp_path):  # noqa: F811
    """G14, on XGLUE's titles; run again it makes nothing."""
    pretrain = [XGLUE / "config/xdae-toy.yaml", *SHORT, "--warmup-updates", 1]
    environment = WRITING | {"PRETRAIN": " ".join(map(str, pretrain))}
    done = sweep("noise", data_bin, tmp_path / "out", official("ntg"), "en,de", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (tmp_path / "out/noise.md").read_text().splitlines()
    assert done.stdout.endswith("\n".join(rows) + "\n") and rows[0] == "| BLEU-4 | en | de | average |"
    names = ["shuffle+drop+mask", "infill", "shuffle+drop+mask+infill"]
    assert [row.split(" | ")[0] for row in rows[2:]] == [f"| {name}" for name in names]
    for name in names:
        assert re.search(rf"xdae.noise={re.escape(name)}[ ']", (tmp_path / f"out/xdae/{name}/train.log").read_text())
        checkpoint = tmp_path / f"out/xdae/{name}/checkpoint_last.pt"
        assert f"'init_from': '{checkpoint}'" in (tmp_path / f"out/noise/{name}/train.log").read_text()
        scores = json.loads((tmp_path / f"out/noise/{name}/scores.json").read_text())
        assert rows[2 + names.index(name)].endswith(f" {scores['average']['bleu']:.1f} |")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    assert sweep("noise", data_bin, tmp_path / "out", official("ntg"), "en,de", **environment).returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}


@pytest.mark.slow
def test_studies_of_languages(warm, data_bin, official, tmp_path):  # noqa: F811
    """G11, G12 and, by ROUGE-L, G15, on XGLUE's questions, with the English files as those of German too."""
    files = tmp_path / "qg"
    files.mkdir()
    for path in official("qg").glob("*.*.*"):
        (files / path.name).write_bytes(path.read_bytes())
    done = sweep("pivots", data_bin, tmp_path / "out", files, "en,de", **WRITING)
    assert (done.returncode, done.stderr) == (2, f"sweep-generation.sh: {files}/train.de.src: no such file\n")
    assert not (tmp_path / "out").exists()
    for side in ("src", "tgt"):
        (files / f"train.de.{side}").write_bytes((files / f"train.en.{side}").read_bytes())
    studies = {
        "pivots": {"en": "en", "de": "de"},
        "modes": {"pivot": "en", "multi-language": "en,de"},
        "each": {"en": "en", "de": "de"},
    }
    for study, models in studies.items():
        score = {"SCORE": "rouge_l"} if study == "each" else {}
        done = sweep(study, data_bin, tmp_path / "out", files, "en,de", **WRITING, **score)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = (tmp_path / f"out/{study}.md").read_text().splitlines()
        assert rows[0] == f"| {'ROUGE-L' if score else 'BLEU-4'} | en | de | average |"
        assert [row.split(" | ")[0] for row in rows[2:]] == [f"| {name}" for name in models]
        for name, trained in models.items():
            assert f"'train_langs': '{trained}'" in (tmp_path / f"out/{study}/{name}/train.log").read_text()
    assert rows[2].endswith(" |  |  |") and rows[3].startswith("| de |  | ")  # each language on its own


def test_a_study_that_there_is_not(tmp_path):
    done = sweep("any", "data", tmp_path / "out", tmp_path, "en,de")
    assert (done.returncode, done.stderr) == (2, "sweep-generation.sh: STUDY any: one of noise, pivots, modes, each\n")
    assert not list(tmp_path.iterdir())
