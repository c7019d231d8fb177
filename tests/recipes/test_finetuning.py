"""The checks and figures of finetune.sh and multitask.sh."""

import subprocess
import sys

import pytest
import yaml

from fairseq_xl.errors import UserError
from recipes import finetuning
from tests.builders import squad


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text('valid-langs: "de"  # not the others\n')
    return f"--config={path}"


def missing(tmp_path, *words, evaluate="en,fr"):
    """Names of the files that the check misses."""
    try:
        finetuning.check("en,de", evaluate, *words)
    except UserError as error:
        return {path.removeprefix(f"{tmp_path}/") for path in str(error).partition("there is no ")[2].split(", ")}
    return set()


QUESTION = squad(("a", ("1", "q", "a")))


def test_all_missing_files_are_named(tmp_path, config, monkeypatch):
    one, two = f"tagging:{tmp_path}/one:{tmp_path}/two", f"nc=classification:{tmp_path}/one"
    all_of = {f"one/{name}.tsv" for name in ("train.en", "train.de", "valid.de", "test.en", "test.fr")}
    assert missing(tmp_path, one, config) == all_of
    for name in ("one/train.en.tsv", "two/train.de.tsv.gz", "one/test.fr.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert missing(tmp_path, one, config) == {"one/valid.de.tsv", "one/test.en.tsv"}
    assert missing(tmp_path, one, config, "--disable-validation", "--lr", "1") == {"one/test.en.tsv"}
    assert missing(tmp_path, one, config, "--valid-langs=fr") == {"one/valid.fr.tsv", "one/test.en.tsv"}
    predict = "--predict=--fp16 --valid-subset valid"
    with pytest.raises(UserError, match="--predict: --valid-subset valid lacks test, which is scored"):
        finetuning.check("en", "en", one, config, predict)
    only = config, predict, "--no-scores"
    assert missing(tmp_path, one, *only) == {"one/valid.de.tsv"}
    assert missing(tmp_path, one, *only, "--valid-langs", "en,fr") == {"one/valid.en.tsv", "one/valid.fr.tsv"}
    assert missing(tmp_path, one, *only, "--disable-validation") == {"one/valid.de.tsv"}  # predicted
    ner = f"ner=question-answering:{tmp_path}/ner"
    assert missing(tmp_path, two, ner, config, "--valid-langs", "en", evaluate="en,fr ner=en") == {
        *("one/train.de.tsv", "one/valid.en.tsv", "one/test.en.tsv"),
        *(f"ner/{name}.json" for name in ("train.en", "train.de", "valid.en", "test.en")),
    }


def test_files_are_checked_without_torch():
    assert {kind: finetuning.file_reader(kind).suffix for kind in finetuning.SUFFIXES} == finetuning.SUFFIXES
    checked = "import sys; from recipes import finetuning\ntry: finetuning.check('en', 'en', 'ranking:absent')\n"
    ended = (
        "except Exception as error: assert 'train.en.tsv' in str(error) and 'torch' not in sys.modules\nelse: exit(1)"
    )
    assert not subprocess.run([sys.executable, "-c", checked + ended]).returncode


def test_flags_of_task_types_become_options_of_objectives(tmp_path, capsys, config):
    """Of the types that have them; options of one objective override. The other flags are those of the run."""
    (tmp_path / "base.yaml").write_text("task: xl_tagging\nlength: 256\npooler: true\nfp16: true\nlr: 0.1\n")
    flags = ["--length", "64", "--stride=8", "--bf16", "--objective-options", "qa.length=32 qa.weight=2"]
    words = "nc=classification:a:b", "qa=question-answering:c", f"--config={tmp_path}/base.yaml", config, *flags
    finetuning.objectives("en", "en,de qa=de,fr", *words)
    run = yaml.safe_load(capsys.readouterr().out)
    settings = dict(word.split("=") for word in run.pop("objective-options").split())
    languages = {"train_langs": "en", "valid_langs": "de"}
    nc = languages | {"length": "64", "pooler": "True", "task_files": "a:b", "eval_langs": "en,de"}
    qa = languages | {"stride": "8", "task_files": "c", "eval_langs": "de,fr"}
    assert {key.removeprefix("nc."): value for key, value in settings.items() if key.startswith("nc.")} == nc
    assert settings.items() >= {"qa.length": "32", "qa.weight": "2"}.items() | {
        (f"qa.{key}", value) for key, value in qa.items()
    }
    assert len(settings) == len(nc) + len(qa) + 2
    assert run == {
        **{"updates-per-epoch": "auto", "task": "xl_pretraining", "criterion": "xl_pretraining", "lr": "0.1"},
        **{"bf16": True, "objectives": "nc=classification,qa=question_answering", "best-checkpoint-metric": "score"},
    }
    finetuning.objectives("en", "en", "nc=classification:a")
    assert yaml.safe_load(capsys.readouterr().out)["best-checkpoint-metric"] == "accuracy_nc"
    (tmp_path / "list.yaml").write_text("- lr\n")
    for name in ("list", "none"):
        with pytest.raises(UserError, match=f"{name}.yaml"):
            finetuning.check("en", "en", f"tagging:{tmp_path}", f"--config={tmp_path}/{name}.yaml")
    for evaluate, more, message in (
        ("en ner=de", [], "EVAL_LANGS 'ner=de': expected NAME=LANGUAGES for one of nc"),
        ("en", ["nc=tagging:b"], "SUBTASKS: nc is named twice"),
        ("en", [config], "--valid-langs de: nc has only en"),
    ):
        with pytest.raises(UserError, match=message):
            finetuning.objectives("en", evaluate, "nc=classification:a", *more)


@pytest.mark.parametrize(
    "kind, suffix, labeled, unlabeled",
    [
        ("classification", "tsv", "a\tx\n", "_\tx\n"),
        ("ranking", "tsv", "1\tq\tx\n", "_\tq\tx\n"),
        ("tagging", "tsv", "word\t_\n\nword\tO\n", "word\t_\n"),
        ("question-answering", "json", QUESTION, QUESTION.replace('{"text": "a", "answer_start": 0}', "")),
    ],
)
def test_languages_with_labels(tmp_path, capsys, kind, suffix, labeled, unlabeled):
    for code, text in (("en", labeled), ("de", unlabeled)):
        (tmp_path / f"test.{code}.{suffix}").write_text(text)
    finetuning.labeled(f"{kind}:{tmp_path}", "test", "en,de")
    told = f"{tmp_path}: no labels in test of de: predicted, and not scored\n"
    assert capsys.readouterr() == ("en\n", told)
    finetuning.scored("en,de b=de", f"a={kind}:{tmp_path}", f"b={kind}:{tmp_path}")
    rows = [["a", kind, str(tmp_path), "en,de", "en"], ["b", kind, str(tmp_path), "de", ""]]
    assert capsys.readouterr() == ("".join("\t".join(row) + "\n" for row in rows), 2 * told)


def test_settings_are_the_last_ones(tmp_path, capsys):
    """Of files in any order, in any style of YAML, and of flags, which override them."""
    one, two, flow = (f"--config={tmp_path}/{name}" for name in ("one.yaml", "two.yml", "flow.yaml"))
    (tmp_path / "one.yaml").write_text('normalization: "mlqa"  # as in the paper\r\nlr: 0.1\r\n')
    (tmp_path / "two.yml").write_text("lr: 0.2\n")
    (tmp_path / "flow.yaml").write_text("{normalization: squad}\n")
    for words, expected in (
        ((one,), "mlqa\n"),
        ((one, two), "mlqa\n"),
        ((two, one), "mlqa\n"),
        ((one, flow), "squad\n"),
        ((flow, one, "--lr", "1"), "mlqa\n"),
        ((one, "--normalization=squad", "--lr", "1"), "squad\n"),
        ((two, "--lr", "1"), ""),
        ((), ""),
        (("--lr", "1", "--normalization", "mlqa"), "mlqa\n"),
    ):
        for name, default in (("normalization", ""), ("normalization=squad", "squad\n")):
            finetuning.setting(name, *words)
            assert capsys.readouterr().out == (expected or default), words
