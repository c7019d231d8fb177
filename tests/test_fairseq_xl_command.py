"""The command fairseq-xl: what it lists, refuses and imports."""

import argparse
import configparser
import importlib
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_xl import commands
from fairseq_xl.commands import plot_curves
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from fairseq_xl.io.result_tables import table

ROOT = Path(__file__).resolve().parents[1]


def run(*words):
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def _same_hook(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def shown(capsys, line, status):
    with pytest.raises(SystemExit) as ended:
        commands.main(line.split())
    assert ended.value.code == status
    return capsys.readouterr()


def test_commands_are_listed(capsys):
    for line, status in (("--help", 0), ("-h", 0), ("", 2)):
        text = shown(capsys, line, status).out
        assert all(f"  {name} " in text and commands.description(name) in text for name in commands.COMMANDS)
    assert {"model average", "score bleu", "probe wic", "data read wmt"} < commands.COMMANDS.keys()
    text = shown(capsys, "score --help", 0).out
    assert "score bleu" in text and "search" not in text


def test_an_unknown_command_is_refused(capsys):
    for line, meant in (
        *(("preditc", "predict"), ("score-bleu x", "score bleu")),
        *(("score blue", "score bleu"), ("average", "model average")),
    ):
        assert f"did you mean {meant!r}?" in shown(capsys, line, 2).err
    for line, wrong in (("scores file", "'scores'"), ("score blue file", "'score blue'")):
        output = shown(capsys, line, 2)
        assert not output.out and wrong in output.err and "expected one of" in output.err and "score" in output.err


@pytest.mark.parametrize("line", ["predict {}", "embed {} --lang en --output o", "model convert {} o", "model show {}"])
def test_names_of_a_hub_are_no_files(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("xlm-roberta-base", "FacebookAI/xlm-roberta-base"):
        with pytest.raises(UserError, match=f"{name}: .*nothing is downloaded: `fairseq-xl model convert"):
            commands.main(line.format(name).split())


class Parsed(Exception):
    pass


PARSING = {"config": "parse_known_args", "plan": "parse_known_args", "search bitext": "parse_intermixed_args"}


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_shows_its_arguments_and_an_example(name, capsys, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        commands.main([*name.split(), "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and shown.startswith(f"usage: fairseq-xl {name} ")
    parse = getattr(argparse.ArgumentParser, PARSING.get(name, "parse_args"))

    def stop(*arguments):
        parse(*arguments)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, parse.__name__, stop)
    examples = re.findall(rf"^    (fairseq-xl {name} (?:.*\\\n)*.*)", shown, re.MULTILINE)
    for example in examples:
        with pytest.raises(Parsed):
            commands.main(shlex.split(example.replace("\\\n", ""))[1:])
    assert examples


def test_results_are_tables_on_a_terminal(capsys, monkeypatch):
    line = "score bleu README.md README.md --plain --tokenize 13a --bootstrap 0"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for words in ([], ["--json"]):
        commands.main([*line.split(), *words])
        shown = capsys.readouterr().out
        assert (
            shown.startswith('{"sacrebleu": ')
            if words
            else shown.split()[:4] == "score signature sacrebleu 100".split()
        )


def test_languages_are_rows_and_metrics_columns():
    english = {"n": 12, "accuracy": 50.0, "accuracy_interval": [40.0, 60.5], "bigram": {"nats": 2 / 3}}
    result = {"split": "test", "missing": [], "languages": {"en": english, "de": english | {"n": 3}}}
    assert table(result | {"dev": [{"layer": 0, "f1": None}], "best": {"layer": 0}}).split("\n") == [
        *("split       test", "missing     none", "best layer  0"),
        *("", "languages", "    n   accuracy      bigram nats"),
        *("en  12  50 (40–60.5)  0.666667", "de  3   50 (40–60.5)  0.666667"),
        *("", "dev", "   layer  f1", "1  0      None", ""),
    ]


def test_arguments_without_effect_or_named_twice(tmp_path, monkeypatch):
    """Refused before a file is read."""
    monkeypatch.chdir(tmp_path)
    for prefix in "pq":
        for code in ("en", "de"):
            (tmp_path / f"{prefix}.{code}").write_text("a\n")
    extend = "model extend-vocabulary x --data d --output o --text t --pieces"
    pairs = "search pairs x d --layer 1 --pooling mean --test"
    for line, sentence in (
        ("predict x --beam 99999999", "--beam 99999999: a number below"),
        (f"{extend} 1000000000", "--pieces 1000000000: a number below"),
        (f"{extend} 9 --like en", "--like en: there is no new language"),
        ("model export x o --lang de", "--lang de is the language of --language-module"),
        ("plot curves a=x a=y --output z.json", "a=y: a is named twice"),
        (f"{pairs} en-en=p", "en-en=p: 'en-en' is not a pair of two different"),
        (f"{pairs} en-de=p en-de=q", "en-de=q: en-de is named twice"),
        ("back-translate x d -s en -t de --seed 3", "--seed 3: only --sampling is random"),
        (
            "search bitext --embeddings a b en=x de=y --nearest --neighbors 3",
            "leave out --gold, --threshold and --neigh",
        ),
        ("search negatives x d --exact-below -1", "--exact-below -1: 0 or more is needed"),
    ):
        with pytest.raises(UserError, match=sentence):
            commands.main(line.split())


@pytest.mark.parametrize("name", [name for name in commands.COMMANDS if not name.startswith("data read")])
def test_numbers_have_a_range(name, monkeypatch):
    """Each option with a number refuses huge numbers, NaN and infinity; readers check theirs with their files."""
    parsers = []

    def stop(parser, *_):
        parsers.append(parser)
        sys.exit()

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
    with pytest.raises(SystemExit):
        commands.main([*name.split(), "x.yaml"])
    for action in parsers[0]._actions:
        parsers += action.choices.values() if action.nargs == argparse.PARSER else []
    actions = [action for parser in parsers for action in parser._actions if not action.choices]
    for action in actions:
        for text in {int: ["9" * 12], float: ["nan", "inf", "1e12"]}.get(action.type, []):
            with pytest.raises(UserError, match=f"{action.option_strings[0]} "):
                action(parsers[0], argparse.Namespace(), action.type(text), action.option_strings[0])


def test_help_and_scores_import_neither_torch_nor_fairseq():
    code = """
import contextlib, io, sys
from fairseq_xl import commands
from fairseq_xl.errors import UserError
for words in [["--help"], *([*name.split(), "--help"] for name in commands.COMMANDS)]:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
        commands.main(words)
    assert shown.getvalue().startswith("usage: fairseq-xl")
for task, files in {"wic": 2, "scws": 1, "minimal-pairs": 1}.items():
    with contextlib.suppress(UserError):  # files are read before the model
        commands.main(["probe", task, "x", "y", *["absent"] * files])
lines = sys.argv[1]
commands.main(["score", "bleu", lines, lines, "--plain", "--tokenize", "13a"])
assert not {"torch", "fairseq"} & sys.modules.keys()
"""
    done = run("-c", code, "README.md")
    assert done.returncode == 0 and '"score": 100.0' in done.stdout, done.stderr


def test_a_mistake_is_one_sentence():
    done = run("-m", "fairseq_xl", "score", "bleu", "absent", "README.md", "--lang", "de")
    assert done.returncode == 1 and done.stderr == "fairseq_xl: error: absent: no such file\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_removes_what_is_incomplete(tmp_path, monkeypatch, number):
    def work(words):
        with replacing(tmp_path / "out") as file:
            file.write(b"a part")
            signal.raise_signal(number)

    monkeypatch.setattr(plot_curves, "main", work)
    with pytest.raises(SystemExit) as ended:
        commands.main(["plot", "curves"])
    assert ended.value.code == 128 + number and not list(tmp_path.iterdir())


@pytest.mark.parametrize("lines", [1, 100_000])
def test_output_that_is_closed_ends_the_command(lines):
    """Whether the output is written while the command runs, or what is left of it at its end; so does --help."""
    code = f"""
import sys
from fairseq_xl import commands
from fairseq_xl.commands import plot_curves
plot_curves.main = lambda words: [sys.stdout.write("a line of output\\n") for _ in range({lines})]
commands.main(sys.argv[1:])
"""
    for words in (["plot", "curves"], ["--help"]):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            **{"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        )
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == commands.CLOSED
        process.stdin.close()
        process.stderr.close()


def test_the_console_script_is_the_command():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    name, _, place = setup["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = place.partition(":")
    assert name == "fairseq-xl" and getattr(importlib.import_module(module), function) is commands.main
