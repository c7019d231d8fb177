"""The comparison of recipes/xglue, the studies, the smoke script: tables, equal budgets, at nano size all."""

import json
import re

import pytest

from fairseq_xl.commands import main as fairseq_xl_command
from fairseq_xl.errors import UserError
from preprocess.commands.sample import main as write_sample
from preprocess.readers.xglue_generation import main as read_release
from recipes import experiment
from recipes.experiment_file import Experiment
from recipes.report import Report
from tests.recipes.configurations import RECIPES
from tests.tasks.conftest import data_bin  # noqa: F401

XGLUE, LOHELP = RECIPES / "xglue", RECIPES / "lohelp"


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


def tables(folder, first, *overrides):
    """Tables of the report whose header begins with `first`, each a list of lines."""
    made = Experiment(XGLUE / "experiment.yaml", ["others=de", *overrides], folder)
    parts = [[line for line in part if line.startswith("|")] for part in Report(made, [folder]).parts()]
    return [part for part in parts if part and part[0].startswith(f"| {first} |")]


def test_tables_over_seeds_over_examples_and_of_what_was_not_run(tmp_path):
    """Those of wrong languages have the references, those of denoising the copies."""
    for seed, english in ((1, 10.0), (2, 14.0)):
        scored(
            tmp_path / f"xdae/ntg-pivot-{seed}", bleu=(english, 2.0), rouge_l=(20.0, 30.0), wrong_language=(50.0, 10.0)
        )
    scored(tmp_path / "random/ntg-pivot-1", bleu=(1.0, 2.0))
    scored(tmp_path / "xfnp/denoise", bleu=(40.0, 50.0))
    (rows,) = tables(tmp_path, "BLEU-4, cased", "models=random,xdae,xfnp", "seeds=1,2")
    assert rows[0] == "| BLEU-4, cased | en | de | average |" and rows[2] == "| random |  |  |  |"
    # Student's t of two seeds is 12.706, the error half their difference: logit 12 % = -1.992 ± 0.254 / (0.12 · 0.88)
    # and, of the averages 6 and 8, logit 7 % = -2.587 ± 0.127 / (0.07 · 0.93)
    assert rows[3] == "| xDAE | 12.0 (1.2–60.2) | 2.0 | 7.0 (1.1–34.6) |" and rows[4] == "| xFNP |  |  |  |"
    (rows,) = tables(tmp_path, "ROUGE-L", "models=xdae", "seeds=1")  # the other mode's table has no scores
    assert rows[2:] == ["| xDAE | 20.0 (19.0–21.0) | 30.0 (28.0–32.0) | 25.0 |"]
    scored(tmp_path / "xfnp/ntg-pivot-1", bleu=(1.0, 2.0), wrong_language=(None, 20.0))
    (rows,) = tables(tmp_path, "outputs in a wrong language, %", "models=xdae,xfnp", "seeds=1")
    assert rows[2:] == [
        "| xDAE | 50.0 (49.0–51.0) | 10.0 (8.0–12.0) | 30.0 |",
        "| xFNP |  | 20.0 (18.0–22.0) |  |",
        "| references | 5.0 | 6.0 | 5.5 |",
    ]
    (rows,) = tables(tmp_path, "denoising: BLEU-4, cased")
    assert rows[2:] == [f"| xFNP{more} | 40.0 ± 1.0 | 50.0 ± 2.0 | 45.0 |" for more in ("", ", its input copied")]


def test_the_first_words_are_as_many_as_score_best_on_validation_text(tmp_path, capsys):
    """Of English two words and of Chinese two characters; by the commands of the experiment's step."""
    files = tmp_path / "tasks/ntg"
    files.mkdir(parents=True)
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
        (files / name).write_text(text, encoding="utf-8")
    output = tmp_path / "out"
    made = Experiment(XGLUE / "experiment.yaml", [f"corpus={tmp_path}", "others=zh"], output)
    (step,) = [step for step in made.steps if step.name == "first-words"]
    for program, *arguments in step.commands:
        assert program == "fairseq-xl"
        capsys.readouterr()
        fairseq_xl_command(arguments)
    (output / "first-words/scores.json").write_text(capsys.readouterr().out)
    rows, _ = tables(output, "ROUGE-L", "others=zh", "models=xdae", "seeds=1,2")
    # F1 of the longest common subsequences: of "Save all" 2 of 2 and 2 of 3 words, of 打开 and 打印 1 of 2 and 1 of 2
    assert re.fullmatch(r"\| the page's first words \| 40.0 \(.* \| 50.0( \(.*)? \| 45.0 \|", rows[-1])


def test_ten_outputs_beside_source_and_reference(tmp_path):
    files, folder = tmp_path / "tasks/ntg", tmp_path / "xdae/ntg-pivot-1/outputs/de"
    files.mkdir(parents=True)
    for side in ("src", "tgt"):
        (files / f"test.de.{side}").write_text("".join(f"{side} {number}\n" for number in range(25)))
    folder.mkdir(parents=True)
    (folder / "generate-test.txt").write_text("".join(f"D-{number}\t-1\tout {number}\n" for number in range(25)))
    made = Experiment(XGLUE / "experiment.yaml", [f"corpus={tmp_path}", "models=random,xdae"], tmp_path)
    *_, lines = Report(made, [tmp_path]).parts()
    shown = [line for line in lines if line.startswith("   - xDAE")]
    assert shown == [f"   - xDAE: out {number}" for number in (0, 2, 5, 7, 10, 12, 15, 17, 20, 22)]
    assert lines[0] == "Titles in de, trained on en alone, seed 1; not selected."
    assert lines[1:6] == ["", "1.", "   - source: src 0", "   - reference: tgt 0", "   - xDAE: out 0"]


@pytest.mark.slow
def test_comparison_on_a_corpus_folder(warm, tmp_path, capsys):
    corpus, output = tmp_path / "corpus", tmp_path / "out"
    write_sample([str(corpus), "--documents", "40"])
    for path in (*corpus.glob("mono/valid.*"), *corpus.glob("tasks/ntg/*")):
        lines = 64 if path.name.startswith("train") else 12
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]), encoding="utf-8")
    small = [f"corpus={corpus}", "others=de", "seeds=1", "vocabulary=300", "generate=--beam 1 --max-len-b 8"]
    command = [str(XGLUE / "experiment.yaml"), *small, "--updates", "2"]
    capsys.readouterr()
    experiment.main([*command, "--output", str(output)])
    printed = capsys.readouterr().out
    assert printed == (output / "report.md").read_text(encoding="utf-8")
    models = {"random": "random", "xlm": "XLM (MLM + TLM)", "xdae": "xDAE", "xfnp": "xFNP"}
    for mode, part in zip(
        ("pivot", "multi-language"), printed.split("| BLEU-4, lower-cased | en | de | average |")[1:]
    ):
        scores = [json.loads((output / f"{model}/ntg-{mode}-1/scores.json").read_text()) for model in models]
        averages = [[found["languages"][code]["bleu_lower"]["score"] for code in ("en", "de")] for found in scores]
        rows = part.splitlines()[2:7]
        assert [row.split(" | ")[0] for row in rows] == [
            f"| {name}" for name in (*models.values(), "the page's first words")
        ]
        assert [row.split(" | ")[-1] for row in rows[:4]] == [f"{sum(pair) / 2:.1f} |" for pair in averages]
        log = (output / f"xfnp/ntg-{mode}-1/train.log").read_text()
        assert "'_name': 'xl_xfnp_tiny'" in log and str(output / "xfnp/checkpoint_last.pt") in log
        assert (output / f"{mode}-rouge_l.png").read_bytes().startswith(b"\x89PNG")
    assert all(f"| {name}, its input copied |" in printed for name in ("xDAE", "xFNP"))
    assert printed.count("\n   - reference: ") == 40
    assert str(output / "xlm/checkpoint_last.pt") in (output / "xdae/train.log").read_text()
    before = {path: path.stat().st_mtime_ns for path in output.glob("*/**/*")}
    experiment.main([*command, "--output", str(output)])
    assert before == {path: path.stat().st_mtime_ns for path in output.glob("*/**/*")}
    assert (output / "report.md").read_text(encoding="utf-8") == printed
    # an XLM that is there already
    given, other = output / "xlm/checkpoint_last.pt", tmp_path / "other"
    more = [*command, f"data={output}/data-bin", "--output", str(other), "--only", "pretrain/xdae"]
    experiment.main([*more, f"xlm={given}"])
    assert str(given) in (other / "xdae/train.log").read_text()
    assert not (other / "xlm").exists() and not (other / "xfnp").exists()
    with pytest.raises(UserError, match="other/xdae was made with other settings or weights"):
        experiment.main([*more, f"xlm={output}/xdae/checkpoint_last.pt"])


# Studies: recipes/xglue/sweep.yaml on files as XGLUE has them


def written_release(root, task, copy_sample):
    """XGLUE's files of a task, of the bundled sample's titles: training text in English only."""
    copy_sample(root / "sample")
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
def official(tmp_path_factory, copy_sample):
    """A function: task -> the folder that the reader writes of XGLUE's files of it."""
    root = tmp_path_factory.mktemp("official")

    def read(task):
        folder = root / task
        if not folder.exists():
            release = written_release(root / f"{task}-release", task, copy_sample)
            assert read_release([task, str(release), str(folder), "--langs", "en,de"]) == 0
        return folder

    return read


TOY = ["--encoder-layers", 1, "--decoder-layers", 1, "--embed-dim", 16, "--ffn-dim", 32, "--heads", 2, "--cpu"]
SHORT = [*TOY, "--max-positions", 128, "--max-update", 2]


def sweep(study, data, output, files, *more):
    """Runs a study and its report on English and German; the rows of its table, without those of the paper."""
    settings = f"settings=--config {XGLUE}/config/generation-toy.yaml {' '.join(map(str, SHORT))}"
    values = [f"data={data}", f"files={files}", "languages=en,de", settings, "generate=--beam 1 --max-len-b 6", *more]
    experiment.main([str(XGLUE / "sweep.yaml"), *values, "--output", str(output), "--only", f"{study},report"])
    rows = (output / "report.md").read_text().split(f"| {study}: ")[1].splitlines()
    return [f"| {study}: {rows[0]}", *(row for row in rows[2:] if row.startswith("|") and "Liang et al." not in row)]


@pytest.mark.slow
def test_the_noises_of_the_paper(warm, data_bin, official, tmp_path):
    """G14, on XGLUE's titles; a repeated run writes no checkpoint."""
    pretraining = " ".join(map(str, ["--config", XGLUE / "config/xdae-toy.yaml", *SHORT, "--warmup-updates", 1]))
    command = ["noise", data_bin, tmp_path / "out", official("ntg"), f"pretraining={pretraining}"]
    rows = sweep(*command)
    assert rows[0] == "| noise: BLEU-4, lower-cased | en | de | average |"
    names = ["shuffle+drop+mask", "infill", "shuffle+drop+mask+infill"]
    assert [row.split(" | ")[0] for row in rows[1:]] == [f"| {name}" for name in names]
    for name, row in zip(names, rows[1:]):
        assert re.search(rf"xdae.noise={re.escape(name)}[ ']", (tmp_path / f"out/xdae/{name}/train.log").read_text())
        checkpoint = tmp_path / f"out/xdae/{name}/checkpoint_last.pt"
        assert f"'init_from': '{checkpoint}'" in (tmp_path / f"out/noise/{name}/train.log").read_text()
        scores = json.loads((tmp_path / f"out/noise/{name}/scores.json").read_text())
        assert row.endswith(f" {scores['average']['bleu']:.1f} |")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}
    assert sweep(*command) == rows
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.pt")}


@pytest.mark.slow
def test_studies_of_languages(warm, data_bin, official, tmp_path):
    """G11, G12 and, by ROUGE-L, G15, on XGLUE's questions, with the English files as those of German too."""
    files = tmp_path / "qg"
    files.mkdir()
    for path in official("qg").glob("*.*.*"):
        (files / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UserError, match="step pivots/de: train.de.src: no such file in .*/qg"):
        sweep("pivots", data_bin, tmp_path / "out", files)
    assert not (tmp_path / "out").exists()
    for side in ("src", "tgt"):
        (files / f"train.de.{side}").write_bytes((files / f"train.en.{side}").read_bytes())
    studies = {
        "pivots": {"en": "en", "de": "de"},
        "modes": {"pivot": "en", "multi-language": "en,de"},
        "each": {"en": "en", "de": "de"},
    }
    for study, models in studies.items():
        score, name = ("rouge_l", "ROUGE-L") if study == "each" else ("bleu_lower", "BLEU-4, lower-cased")
        rows = sweep(study, data_bin, tmp_path / "out", files, f"scores={score}", "valid-langs=en")
        assert rows[0] == f"| {study}: {name} | en | de | average |"
        assert [row.split(" | ")[0] for row in rows[1:]] == [f"| {name}" for name in models]
        for name, trained in models.items():
            log = (tmp_path / f"out/{study}/{name}/train.log").read_text()
            assert f"'train_langs': '{trained}'" in log
            assert ("'valid_langs': 'en'" in log) == (study == "pivots")
    assert rows[1].endswith(" |  |  |") and rows[2].startswith("| de |  | ")  # each language on its own


def test_summaries_at_nano_size(warm, data_bin, official, tmp_path):
    """G15: trained on and selected by English, tested in both languages, by ROUGE-L."""
    settings = f"settings=--config {XGLUE}/config/generation-toy.yaml {' '.join(map(str, SHORT))}"
    files = [f"data={data_bin}", f"files={official('ntg')}", "languages=en,de", "averaged=de"]
    options = ["--output", str(tmp_path / "out"), "--only", "pivots,report"]
    experiment.main([str(XGLUE / "summaries.yaml"), *files, settings, "generate=--beam 1 --max-len-b 6", *options])
    log = (tmp_path / "out/pivots/en/train.log").read_text()
    assert "'train_langs': 'en'" in log and "'valid_langs': 'en'" in log
    (cells,) = re.findall(
        r"\| en \| \d+\.\d \(.*\) \| (\d+\.\d) \(.*\| (\S+) \|", (tmp_path / "out/report.md").read_text()
    )
    assert cells[0] == cells[1]  # the average leaves English out
