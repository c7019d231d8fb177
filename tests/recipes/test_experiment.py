"""The driver of experiments: steps, values, resuming, stopping; on steps that run small commands."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fairseq_xl.errors import UserError
from recipes import experiment, experiment_file
from recipes.experiment_file import Experiment
from tests.recipes.experiment_builders import ROOT, file, run, steps  # noqa: F401


def test_a_step_runs_once_for_all_values_with_their_fields(file):
    out = file.parent / "out"
    found = steps(file, "seeds=1", updates=3)
    langs = "--langs en,de,fr de=x:de fr=x:fr"
    assert found == {
        "classify/random/1": [f"echo --max-update 3 --seed 1 {langs}"],
        "pretrain/mlm": [f"cp data.txt {out}/mlm/weights"],
        "classify/mlm/1": [f"echo --init {out}/mlm/weights --max-update 3 --seed 1 {langs}"],
    }
    assert list(steps(file, "models=random")) == ["classify/random/1", "classify/random/2"]  # nothing needs the weights
    assert "--langs en,es es=x:es" in steps(file, "others=es", "models=random")["classify/random/1"][0]
    file.write_text("values: {init: []}\nsteps: {a: {run: 'echo {init:each}'}}")
    assert steps(file) == {"a": ["echo"]} and steps(file, "init=a.pt") == {"a": ["echo a.pt"]}


def test_a_text_may_be_empty(tmp_path):
    """The default of `predict` is a flag, which this leaves out."""
    experiment = Experiment(ROOT / "recipes/xglue/understanding.yaml", ["predict="], tmp_path)
    (step,) = [step for step in experiment.select(["finetune/NER"]) if step.name == "finetune/NER"]
    assert "--predict=--valid-subset valid " in step.commands[0] and "--fp16" not in step.commands[0]


def test_wrong_values_and_options_are_one_sentence(file, capsys):
    for override, words in (
        ("model=mlm", "names text, size, seeds"),
        ("models=mlm,xlm", "xlm is not among random, mlm"),
        ("seeds=1,1", "named twice"),
        ("size=0", "above 0"),
        ("models=", "expected name=value"),
        ("seeds=1,", "expected names joined by commas"),
    ):
        with pytest.raises(UserError, match=words):
            steps(file, override)
    for mark in "=:,":
        path = f"{file.parent}/a{mark}b"
        with pytest.raises(UserError, match=f"--output {path}: a path without '=', ':' and ',' is needed"):
            run(file, output=f"a{mark}b")
    with pytest.raises(UserError, match="--only clasify: there is no such step; expected pretrain, classify, report"):
        run(file, "--only", "clasify")
    for option, text, words in (
        *(("limit", text, "a number above 0 is needed") for text in ("0", "-1", "soon", "0.0")),
        ("updates", "0", "a whole number above 0 is needed"),
    ):
        with pytest.raises(SystemExit):
            run(file, f"--{option}={text}")
        assert f"{text}: {words}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, words",
    [
        ("steps: {a: {run: x}}\nstep: 1", "expected an experiment"),
        ("steps: {a: {runs: x}}", "unknown key runs"),
        ("steps: {a: {folder: b}}", "step a: no run"),
        ("steps: {a: {run: 'echo {b}'}}", "no value 'b'"),
        ("values: {b: '{b}'}\nsteps: {a: {run: 'echo {b}'}}", "no value 'b'"),
        ("steps: {a: {run: x, folder: c}, b: {run: x, folder: c}}", "a have the same folder"),
        (
            "steps: {a: {run: 'x {output}/b'}, b: {run: 'x {output}/c'}, c: {run: 'x {output}/b'}}",
            "wrong.yaml: these steps read from each other's folders: b, c",
        ),
        ("values: {a: [b, c, b]}\nsteps: {d: {for: {e: a}, run: x}}", "a b,c,b: b is named twice"),
        ("steps: {a", "is not YAML"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, content, words):
    (tmp_path / "wrong.yaml").write_text(content)
    with pytest.raises(UserError, match=words):
        Experiment(tmp_path / "wrong.yaml", output=tmp_path / "out").select([])


def test_an_experiment_has_another_as_its_base(file):
    """Values, steps and the parts of the report are replaced by name; null leaves one out."""
    lower = "report: [{table: BLEU, rows: []}, {table: '{task}: accuracy'}, {tokens: pre-training}]\n"
    file.write_text(file.read_text() + lower)
    over = file.parent / "over.yaml"
    replaced = "steps:\n  pretrain: null\n  classify: {for: {model: models}, run: 'cat {text} {model.start:words}'}\n"
    replaced += "values: {others: null, languages: en, models: {mlm: {start: -n}}}\n"
    over.write_text(f"base: experiment.yaml\noutput: elsewhere\n{replaced}report: [BLEU, {{tokens: all}}]\n")
    assert steps(over) == {"classify/mlm": ["cat data.txt -n"]}
    made = Experiment(over, ())
    assert made.output == ROOT / "elsewhere" and made.values["size"] == 8 and "others" not in made.values
    assert made.content["report"] == [{"table": "BLEU", "rows": []}, {"tokens": "all"}]
    over.write_text(f"base: experiment.yaml\n{replaced}")
    assert len(Experiment(over, ()).content["report"]) == 3
    over.write_text(f"base: experiment.yaml\n{replaced}report: [BLUE]\n")
    with pytest.raises(UserError, match="over.yaml: report: BLUE: expected one of the titles 'BLEU', "):
        steps(over)


def test_a_loop_over_the_first_names(tmp_path):
    file = tmp_path / "a.yaml"
    loop = "{trained: {first: numbers, of: names}}"
    values = "values: {names: [en, de, fr], numbers: ['1', '3']}"
    file.write_text(f"{values}\nsteps: {{a: {{for: {loop}, run: 'echo {{trained}} {{trained.number}}'}}}}")
    assert steps(file) == {"a/en": ["echo en 1"], "a/en,de,fr": ["echo en,de,fr 3"]}
    for number in ("4", "0", "all"):
        with pytest.raises(UserError, match=rf"numbers: {number}: expected numbers from 1 to 3 \(names\)"):
            steps(file, f"numbers={number}")


def test_a_step_needs_others_by_name(tmp_path):
    """They run before it, also if they run only if needed; a name stands for all that begin with it."""
    file = tmp_path / "a.yaml"
    text = (
        "values: {{n: [x, y]}}\nsteps:\n  b: {{run: echo, needs: ['{}']}}\n"
        "  a: {{for: {{n: n}}, run: echo, only if needed: true}}\n"
    )
    for needs, expected in (("a", ["a/x", "a/y", "b"]), ("a/y", ["a/y", "b"])):
        file.write_text(text.format(needs))
        assert list(steps(file)) == expected
    for needs in ("c", "a/z", "a/"):
        file.write_text(text.format(needs))
        with pytest.raises(UserError, match=f"a.yaml: step b: needs: there is no step {needs}"):
            steps(file)
    file.write_text(text.format("b"))
    with pytest.raises(UserError, match="these steps read from each other's folders: b"):
        steps(file)


def test_files_that_steps_expect_are_looked_for_before_any_begins(tmp_path, capsys):
    file, output = tmp_path / "a.yaml", tmp_path / "out"
    file.write_text(
        "steps:\n  a: {run: 'touch {folder}/made'}\n"
        "  b: {run: 'cp {output}/a/made {folder}', expects: ['{output}/a/made']}\n"
        f"  c: {{run: 'true', expects: ['{tmp_path}/x:{tmp_path}/y/text.tsv']}}\n"
    )
    with pytest.raises(UserError, match=f"step c: text.tsv: no such file in {tmp_path}/x or {tmp_path}/y"):
        run(file)
    assert not output.exists()
    run(file, "--only", "b")  # an earlier step makes what it expects
    for name in ("x/text.tsv", "y/text.tsv.gz"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
        run(file)
        (tmp_path / name).unlink()
    file.write_text("steps: {a: {run: 'true', expects: [/README.md]}}")  # not of the repository
    with pytest.raises(UserError, match="step a: README.md: no such file in /$"):
        run(file)


def test_columns_that_a_report_averages_are_looked_for_before_any_step_begins(tmp_path):
    words = ["languages=en,fr", "--output", str(tmp_path / "out")]
    with pytest.raises(UserError, match="summaries.yaml: pivots: ROUGE-L: average: zh is not a column"):
        run(ROOT / "recipes/xglue/summaries.yaml", *words)
    assert not (tmp_path / "out").exists()


def test_chosen_steps_run_with_what_they_need_and_only_once(file, capsys):
    run(file, "--only", "classify/mlm/2")
    out = file.parent / "out"
    shown = capsys.readouterr().err
    assert [line.split(" ")[2] for line in shown.splitlines()] == ["pretrain/mlm:", "classify/mlm/2:", "done:"]
    assert (out / "mlm/weights").read_text() == "weights\n" and not (out / "random").exists()
    scores = f"--init {out}/mlm/weights --seed 2 --langs en,de,fr de=x:de fr=x:fr\n"
    assert (out / "mlm/nc-2/scores").read_text() == scores
    run(file, "--only", "classify/mlm")
    assert [line.split(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["classify/mlm/1:", "done:"]
    (out / "mlm/nc-2/scores").write_text("kept")
    run(file)
    assert (out / "mlm/nc-2/scores").read_text() == "kept"
    assert [line.split(" ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "classify/random/1:",
        "classify/random/2:",
        "done:",
    ]


def test_a_run_of_several_jobs_makes_the_same(file, capsys):
    """The list of commands runs nothing."""
    run(file, "--list")
    assert "classify/mlm/2\n    echo --init" in capsys.readouterr().out and not (file.parent / "out").exists()
    run(file)
    run(file, "--jobs", "3", output="three")
    names = sorted(path.relative_to(file.parent / "out") for path in (file.parent / "out").rglob("*"))
    assert names == sorted(path.relative_to(file.parent / "three") for path in (file.parent / "three").rglob("*"))
    assert len([name for name in names if name.name == "scores"]) == 4


def test_other_settings_and_inputs_are_refused(file):
    run(file)
    made = re.escape(f"{file.parent}/out/random/nc-1 was made with other settings or weights")
    with pytest.raises(UserError, match=rf"{made} \(then --seed, now --max-update\): remove it"):
        run(file, "--updates", "4")
    with pytest.raises(UserError, match=r"now --langs en,de\): remove it or choose another --output"):
        run(file, "others=de")
    (file.parent / "data.txt").write_text("others\n")
    with pytest.raises(UserError, match=r"out/mlm was made with other settings or weights \(.*/data.txt has changed\)"):
        run(file)
    (file.parent / "out").rename(file.parent / "moved")
    (file.parent / "data.txt").write_text("weights\n")
    run(file, output="moved")  # a folder that was moved is the same


def test_a_step_that_failed_goes_on_or_begins_again_with_other_settings(tmp_path):
    """It leaves a log and a record alone, and no half of an output."""
    file, out = tmp_path / "a.yaml", tmp_path / "out/a"
    file.write_text("values: {command: 'false'}\nsteps: {a: {run: '{command:words}'}}")
    with pytest.raises(UserError, match=r"step a failed: it printed nothing \(see .*/out/a/out.log\)"):
        run(file)
    run(file, "command=true")
    with pytest.raises(UserError, match="then true, now false"):
        (out / "result").touch()
        run(file, "command=false")
    shutil.rmtree(out)
    file.write_text("steps: {a: {stdout: scores.json, run: \"bash -c 'echo half; exit 3'\"}}")
    with pytest.raises(UserError, match="step a failed"):
        run(file)
    assert sorted(path.name for path in out.iterdir()) == ["out.log", "step.json"]
    file.write_text("steps: {a: {run: ['touch {folder}/one', 'test -e {folder}/two', 'touch {folder}/three']}}")
    with pytest.raises(UserError, match="step a failed"):
        run(file)
    (out / "two").touch()
    run(file)
    assert (out / "three").exists() and json.loads((out / "step.json").read_text())["finished"] is True


def test_two_runs_do_not_work_at_one_step(tmp_path):
    """The second run is refused, changes nothing, and finds the step finished afterwards."""
    file, go = tmp_path / "a.yaml", tmp_path / "go"
    wait = f"for i in $(seq 600); do test -e {go} && break; sleep 0.1; done; touch {{folder}}/made"
    file.write_text(f"steps: {{a: {{run: \"bash -c '{wait}'\"}}}}")
    command = [sys.executable, "-m", "recipes.experiment", str(file), "--output", str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr.readline().startswith("--- 0:00 a: ")
        message = f"step a: another run is working in {tmp_path}/out/a: choose another --output"
        with pytest.raises(UserError, match=message):
            run(file)
        assert not (tmp_path / "out/a/made").exists()
        go.touch()
        assert first.wait() == 0
    assert (tmp_path / "out/a/made").exists()
    run(file)


def test_a_failure_is_shown_by_its_own_sentence(tmp_path):
    """With the hint that a script adds, and without the error of an earlier attempt, which is in the same log."""
    file = tmp_path / "a.yaml"
    script = "test -e {folder}/two || { echo fairseq_xl: error: no module; echo hint; touch {folder}/two; exit 3; } >&2"
    file.write_text(f"steps: {{a: {{run: \"bash -c '{script}; echo other; exit 4'\"}}}}")
    with pytest.raises(UserError, match=r"step a failed: no module / hint \(see"):
        run(file)
    with pytest.raises(UserError, match=r"step a failed: other \(see"):
        run(file)
    assert "no module" in (tmp_path / "out/a/out.log").read_text()
    file.write_text("steps: {a: {run: \"bash -c 'echo begin; echo fairseq_xl: error: no such file >&2; exit 3'\"}}")
    with pytest.raises(UserError, match=r"step a failed: no such file \(see"):
        run(file, output="other")
    file.write_text("steps: {a: {run: \"bash -c 'seq 9; exit 3'\"}, b: {run: 'touch {folder}/made'}}")
    with pytest.raises(UserError, match="step a failed: 7 / 8 / 9 "):
        run(file, output="second")
    assert not (tmp_path / "second/b").exists()


def test_a_finished_step_runs_again_if_a_result_is_gone(tmp_path, capsys):
    """Neither a log nor a file that a command removes before its end is a result; other steps have theirs."""
    file, out = tmp_path / "a.yaml", tmp_path / "out"
    make = "touch {folder}/old.pt {folder}/a.log {folder}/last.pt"
    file.write_text(f"steps:\n  a: {{run: ['{make}', 'rm {{folder}}/old.pt']}}\n")
    with open(file, "a") as more:
        more.write("  b: {folder: a/b, run: 'cp {output}/a/last.pt {folder}/copied.pt'}\n")
    run(file)
    assert json.loads((out / "a/step.json").read_text())["results"] == ["last.pt"]
    capsys.readouterr()
    for gone, step in (("a/a.log", None), ("a/b/copied.pt", "b"), ("a/last.pt", "a"), ("a/b", "b")):
        shutil.rmtree(out / gone) if (out / gone).is_dir() else (out / gone).unlink()
        run(file)
        assert [line.split(" ")[2] for line in capsys.readouterr().err.splitlines()] == [f"{step}:"] * bool(step) + [
            "done:"
        ]
    assert (out / "a/last.pt").exists() and (out / "a/b/copied.pt").exists()


def test_steps_wait_for_a_corpus_that_another_step_makes(tmp_path):
    """Another corpus folder must exist, and nothing waits for it."""
    file = tmp_path / "a.yaml"
    file.write_text(
        "values: {corpus: corpora/lohelp}\nsteps:\n"
        "  text: {run: 'python -m recipes.corpus {corpus}'}\n  copy: {run: 'cat {corpus}/bitext/test.en'}\n"
    )
    for values, needed in (([], ["text"]), (["corpus=corpora/mine"], [])):
        _, copy = Experiment(file, values, tmp_path / "out").steps
        assert [step.name for step in copy.required_steps] == needed


def test_experiments_share_a_corpus(tmp_path):
    """A language that another experiment adds changes nothing; changed text is refused by name."""
    corpus, file = tmp_path / "corpus", tmp_path / "a.yaml"
    corpus.mkdir()
    for name in ("manifest.json", "train.en"):
        (corpus / name).write_text("before")
    file.write_text("values: {corpus: x/y}\nsteps: {a: {run: 'touch {folder}/made {corpus}/touched'}}")
    (corpus / "touched").touch()
    run(file, f"corpus={corpus}")
    for name in ("manifest.json", "train.de"):
        (corpus / name).write_text("added")
    run(file, f"corpus={corpus}")
    corpus.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="then .*/corpus/touched, now .*/moved/touched"):
        (tmp_path / "moved/touched").write_text("other")
        run(file, f"corpus={tmp_path}/moved")
    (tmp_path / "moved").rename(corpus)
    with pytest.raises(UserError, match="corpus/touched has changed"):
        run(file, f"corpus={corpus}")


def test_an_input_may_have_another_name(file):
    run(file, "--only", "pretrain")
    (file.parent / "data.txt").rename(file.parent / "renamed.txt")
    written = file.read_text()
    file.write_text(written.replace("text: data.txt", f"data: {file.parent}/renamed.txt").replace("{text}", "{data}"))
    experiment.main([str(file), "--output", f"{file.parent}/out", "--only", "pretrain"])
    (file.parent / "renamed.txt").write_text("other")
    with pytest.raises(UserError, match=r"\(then .*/data.txt, now .*/renamed.txt\)"):
        experiment.main([str(file), "--output", f"{file.parent}/out", "--only", "pretrain"])


def test_steps_hash_their_input_once(file, monkeypatch):
    hashed, sha256 = [], hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda: hashed.append(1) or sha256())
    run(file, "seeds=1,2,3", "models=mlm")
    assert len(hashed) == 2  # the text and the weights, of which three classifiers are trained


COMPARISONS = sorted(path for path in (ROOT / "recipes").glob("*/*.yaml") if path.stem in ("experiment", "sweep"))


@pytest.mark.parametrize("path", COMPARISONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_experiments_name_their_steps_in_one_order(path):
    """`--only STEP/MODEL/TASK/MODE/SEED` is the same everywhere."""
    order = ["model", "task", "mode", "seed"]
    for step in experiment_file.read_yaml(path)["steps"].values():
        named = [name for name in step.get("for") or {} if name in order]
        assert named == sorted(named, key=order.index)


@pytest.mark.parametrize(
    "path", [path for path in COMPARISONS if path.stem == "experiment"], ids=lambda path: path.parent.name
)
def test_a_corpus_and_its_tasks_are_looked_for_before_any_step_begins(path, tmp_path):
    """recipes.corpus makes the default corpus, which need not exist."""
    arguments, folder = [str(path), "--output", str(tmp_path / "out")], tmp_path / "corpus"
    with pytest.raises(UserError, match="step (text|descriptions)(/en-de)?: absent: no such file$"):
        experiment.main([*arguments, "corpus=absent"])
    (folder / "tasks").mkdir(parents=True)
    for task in re.findall("tasks/([a-z]+)", " ".join(Experiment(path, [f"corpus={folder}"]).select([])[0].expects)):
        with pytest.raises(UserError, match=f"step .*: {task}: no such file in {folder}/tasks"):
            experiment.main([*arguments, f"corpus={folder}"])
        (folder / "tasks" / task).mkdir(parents=True)
    for values in ([f"corpus={folder}"], []):
        experiment_file.check_files(Experiment(path, values).select([]))
    assert (folder / "tasks").is_dir() and not (tmp_path / "out").exists()


def test_an_input_that_a_step_fetches_itself_does_not_count(tmp_path):
    """The corpus does not exist when the step begins."""
    file = tmp_path / "a.yaml"
    file.write_text("values: {corpus: x/y}\nsteps: {a: {run: 'touch {corpus} {folder}/made'}}")
    for _ in range(2):
        run(file, f"corpus={tmp_path}/corpus")
    (tmp_path / "corpus").write_text("changed later, but unknown at the beginning")
    run(file, f"corpus={tmp_path}/corpus")


def test_a_step_with_renew_is_run_again(tmp_path, capsys):
    """Its results are removed first, so that no other step may be inside; a step without the key is refused."""
    file = tmp_path / "a.yaml"
    file.write_text("values: {name: one}\nsteps: {a: {run: 'touch {folder}/{name}', renew: true}}")
    for name in ("one", "two"):
        run(file, f"name={name}")
    assert sorted(path.name for path in (tmp_path / "out/a").iterdir()) == ["out.log", "step.json", "two"]
    assert "a is run again: " in capsys.readouterr().err
    file.write_text("values: {name: one}\nsteps: {a: {run: 'touch {folder}/{name}'}}")
    with pytest.raises(UserError, match="was made with other settings"):
        run(file, "name=one")
    file.write_text("steps: {a: {run: 'true', renew: true}, b: {run: 'true', folder: a/b}}")
    with pytest.raises(UserError, match="step a: renew would remove the folder of step b"):
        run(file)


def test_a_training_that_was_stopped_stops_all(tmp_path, capsys):
    file = tmp_path / "a.yaml"
    file.write_text("steps: {a: {run: bash -c 'exit 75'}, b: {run: 'true'}}")
    with pytest.raises(SystemExit) as ended:
        run(file)
    assert ended.value.code == 75 and "stopped: run the same command to continue" in capsys.readouterr().err
    assert not (tmp_path / "out/b").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_commands_and_nothing_is_left_running(tmp_path, number):
    """The command takes half a second to end after the signal, as a training that saves; its shell ends at once."""
    script = "import pathlib, signal, sys, time\n"
    script += "def end(*_):\n    time.sleep(0.5)\n    pathlib.Path(sys.argv[1]).touch()\n    sys.exit(1)\n"
    script += "signal.signal(int(sys.argv[2]), end)\nprint('begun', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "wait.py").write_text(script)
    file = tmp_path / "a.yaml"
    wait = f"bash -c '\"$0\" {tmp_path}/wait.py {{folder}}/signal {int(number)}; exit $?' {sys.executable}"
    file.write_text(f"steps: {{a: {{run: {json.dumps(wait)}}}, b: {{run: 'true'}}}}")
    log = tmp_path / "out/a/out.log"
    command = [sys.executable, "-m", "recipes.experiment", str(file), "--output", str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            if log.exists() and log.read_text().strip():
                break
            time.sleep(0.1)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number and error.endswith("stopped: run the same command to continue\n")
    assert (tmp_path / "out/a/signal").exists() and not (tmp_path / "out/b").exists()
