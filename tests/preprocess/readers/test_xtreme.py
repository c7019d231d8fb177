"""XTREME's tasks, from small files made here in the formats that its download_data.sh writes."""

import json

import pytest

from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.finetuning.classification import read_examples
from fairseq_xl.finetuning.tagging import read_sentences
from preprocess.readers.xtreme import LANGUAGES, SPLITS, file_of, main


def squad(**answer):
    question = {"id": "a", "question": "Wie?", "answers": [answer]}
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": "Die Elbe.", "qas": [question]}]}]})


LABELED = squad(text="Elbe", answer_start=4)
SECRET = squad(text="", answer_start=0)  # as XTREME's program removes answers
#: task -> (its labeled files, what is written of them, its test files, what is written of them)
FILES = {
    "xnli": ('a\t"b ""quoted"""\tneutral\n', 'neutral\ta\tb "quoted"\n', "a\tb\n", "_\ta\tb\n"),
    "pawsx": ("a\tb\t1\n", "1\ta\tb\n", "a\tb\n", "_\ta\tb\n"),
    "udpos": ("New\tPROPN\n,\tPUNCT\n\n", "New\tPROPN\n,\tPUNCT\n\n", "New\n,\n\n", "New\t_\n,\t_\n\n"),
    "panx": ("New\tB-LOC\n\nx\tO\n", "New\tB-LOC\n\nx\tO\n\n", "New\n\nx\n", "New\t_\n\nx\t_\n\n"),
    **dict.fromkeys(("xquad", "mlqa", "tydiqa"), (LABELED, LABELED, SECRET, SECRET)),
}
READERS = {"udpos": read_sentences, "panx": read_sentences}


def each_file():
    for task, languages in LANGUAGES.items():
        for language in languages:
            for split, theirs in SPLITS:
                name = file_of(task, theirs, language)
                if name and (split != "train" or language == "en"):
                    yield task, name, split, language


@pytest.fixture
def source(tmp_path):
    """The folder `download`; Thai has no validation text of parts of speech."""
    for task, name, split, language in each_file():
        if (task, split, language) != ("udpos", "valid", "th"):
            path = tmp_path / "download" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(FILES[task][2 if split == "test" else 0], encoding="utf-8")
    return tmp_path / "download"


def read(*arguments):
    return main([str(argument) for argument in arguments])


def test_every_file_of_every_task(source, tmp_path):
    """What is written is what the fine-tuning tasks read; labels of test text are unknown."""
    assert read(source, tmp_path / "out") == 0
    for task, name, split, language in each_file():
        path = tmp_path / f"out/{task}/{split}.{language}{source.joinpath(name).suffix}"
        if (task, split, language) == ("udpos", "valid", "th"):
            assert not path.exists()
            continue
        assert path.read_text(encoding="utf-8") == FILES[task][3 if split == "test" else 1]
        if path.suffix == ".json":
            (question,) = read_questions(path, language)
            assert bool(question.answers) == (split != "test")
        else:
            assert READERS.get(task, read_examples)(path, language)
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("valid.*")}
    assert "xquad/valid.en.json" in written and "xquad/valid.de.json" not in written
    assert "tydiqa/valid.en.json" not in written


def test_the_paths_of_the_download(source):
    for name in (
        *("xnli/train-en.tsv", "xnli/dev-sw.tsv", "pawsx/test-ko.tsv", "udpos/test-yo.tsv", "panx/dev-my.tsv"),
        *("squad/train-v1.1.json", "xquad/xquad.th.json", "mlqa/MLQA_V1/dev/dev-context-hi-question-hi.json"),
        *("tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json",),
        *("tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.te.dev.json",),
    ):
        assert (source / name).is_file(), name


def test_a_word_of_white_space_is_no_end_of_a_sentence(source, tmp_path):
    (source / "panx/test-de.tsv").write_text("a\n\u00a0\nb\n\n", encoding="utf-8")
    (source / "xnli/test-de.tsv").write_text("a\u2028b\tc\n", encoding="utf-8")
    assert read(source, tmp_path / "out", "--tasks", "panx,xnli", "--langs", "en,de") == 0
    assert (tmp_path / "out/panx/test.de.tsv").read_text(encoding="utf-8") == "a\t_\n_\t_\nb\t_\n\n"
    assert (tmp_path / "out/xnli/test.de.tsv").read_text(encoding="utf-8") == "_\ta b\tc\n"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("panx/dev-de.tsv", None, "{path}: there is no such file"),
        ("panx/dev-de.tsv", "Haus\n", "{path}, line 1: expected a word and a tag, found 'Haus'"),
        ("xnli/dev-de.tsv", "a\tb\n", "{path}, line 1: expected two texts and a label, found 2 fields"),
        ("xnli/dev-de.tsv", "a\tb\tyes\n", "{path}, line 1: label 'yes' is none of contradiction, entailment, neutral"),
        ("xnli/dev-de.tsv", "", "{path}, line 1: the file is empty"),
        ("xquad/xquad.de.json", "{", "{path}, line 1: not JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_problems_are_one_sentence(name, content, message, source, tmp_path, capsys):
    path = source / name
    path.unlink()
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert read(source, tmp_path / "out", "--langs", "en,de", "--tasks", "panx,xnli,xquad") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "xtreme: " + message.format(path=path)
    assert not (tmp_path / "out/manifest.json").exists() and not list(tmp_path.rglob("*.tmp"))


def test_an_unknown_task_is_one_sentence(source, tmp_path, capsys):
    assert read(source, tmp_path / "out", "--tasks", "tatoeba") == 1
    assert "xtreme: --tasks tatoeba: tatoeba is none of xnli, pawsx, udpos" in capsys.readouterr().err
