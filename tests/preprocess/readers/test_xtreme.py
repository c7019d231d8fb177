"""XTREME's tasks, from small files made here in the formats that its download_data.sh writes."""

import json
from pathlib import Path

import pytest

from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.evaluation.task_files import read_examples, read_sentences
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
    (source / "panx/dev-de.tsv").write_text("\u00a0\tO\nb\tB-LOC \n", encoding="utf-8")
    assert read(source, tmp_path / "out", "--tasks", "panx,xnli", "--langs", "en,de") == 0
    assert (tmp_path / "out/panx/valid.de.tsv").read_text(encoding="utf-8") == "_\tO\nb\tB-LOC\n\n"
    assert (tmp_path / "out/panx/test.de.tsv").read_text(encoding="utf-8") == "a\t_\n_\t_\nb\t_\n\n"
    assert (tmp_path / "out/xnli/test.de.tsv").read_text(encoding="utf-8") == "_\ta b\tc\n"


def test_empty_words_and_empty_lines_of_pan_x(source, tmp_path, caplog):
    """An empty word is `_`; without tags it is an empty line, which is counted, as is a second end of a sentence."""
    (source / "panx/dev-de.tsv").write_text("a\tO\n\tO\nb\tB-LOC\n\n", encoding="utf-8")
    (source / "panx/test-de.tsv").write_text("a\n\n\nb\n\n\n", encoding="utf-8")
    assert read(source, tmp_path / "out", "--tasks", "panx", "--langs", "en,de") == 0
    assert (tmp_path / "out/panx/valid.de.tsv").read_text(encoding="utf-8") == "a\tO\n_\tO\nb\tB-LOC\n\n"
    assert (tmp_path / "out/panx/test.de.tsv").read_text(encoding="utf-8") == "a\t_\n\nb\t_\n\n"
    assert f"{source}/panx/test-de.tsv: left out 1 empty lines" in caplog.text


def test_all_problems_are_listed(source, tmp_path, capsys):
    """A test file has no labels: a line with two columns is wrong. Lines of csv are those of the file."""
    names = ("panx/test-de.tsv", "panx/dev-de.tsv", "udpos/dev-de.tsv", "xnli/dev-de.tsv")
    test, panx, udpos, xnli = (source / name for name in names)
    test.write_text("New\tB-LOC\n", encoding="utf-8")
    panx.write_text("New\tB-MISC\n", encoding="utf-8")
    udpos.write_text("New\tADJ\tJJ\nYork\tNNP\n", encoding="utf-8")
    xnli.write_bytes(b'"a\nb"\tc\tneutral\na\xff\tb\tneutral\na\tb\tyes\n')
    assert read(source, tmp_path / "out", "--langs", "en,de", "--tasks", "panx,udpos,xnli") == 1
    assert capsys.readouterr().err.split("xtreme: ", 1)[1].splitlines() == [
        "6 problems:",
        f"  - {panx}, line 1: tag 'B-MISC' is not one of B-LOC, B-ORG, B-PER, I-LOC, I-ORG, I-PER, O",
        f"  - {test}, line 1: expected a word, found 'New\\tB-LOC'",
        f"  - {udpos}, line 1: expected a word and a tag, found 'New\\tADJ\\tJJ'",
        f"  - {udpos}, line 2: tag 'NNP' is not one of ADJ, ADP, ADV, AUX, CCONJ, DET, INTJ, NOUN, NUM, PART, PRON, "
        "PROPN, PUNCT, SCONJ, SYM, VERB, X",
        f"  - {xnli}, line 3: not UTF-8",
        f"  - {xnli}, line 4: label 'yes' is not one of contradiction, entailment, neutral",
    ]


STORED = Path(__file__).parents[1] / "files/xtreme/download"
WRITTEN = {  # of the files that are stored with the tests
    "xnli/train.en.tsv": "entailment\tHe opened the window .\tThe window was closed before .\n"
    'contradiction\tShe never left town .\tShe left " town " twice .\nneutral\tThey ate early .\tThey ate soup .\n',
    "xnli/translate_train/train.de.tsv": "entailment\tEr öffnete das Fenster.\tDas Fenster war vorher zu.\n"
    'contradiction\tSie verließ die Stadt nie.\tSie verließ die "Stadt" zweimal.\n',
    "xnli/translate_test/de/test.en.tsv": "contradiction\tHe is asleep.\tHe is awake.\n"
    'neutral\tShe paints.\tShe calls it "art".\ncontradiction\tIt is snowing.\tIt is summer.\n'
    "entailment\tHe eats soup.\t_\n",
    "pawsx/translate_train/train.ko.tsv": "1\t그는 노래를 쓰고 불렀다.\t그는 노래를 부르고 썼다.\n",
    "pawsx/test.de.tsv": "_\tHoch ist der Turm.\tDer Turm ist hoch.\n_\tAnn lehrte Bo.\tBo lehrte Ann.\n",
    "udpos/train.en.tsv": (
        "Birds\tNOUN\nsing\tVERB\n.\tPUNCT\n\nIt\tPRON\ncost\tVERB\n1000\tNUM\neuros\tNOUN\n.\tPUNCT\n\n"
    ),
    "panx/test.de.tsv": "Bad\t_\nEms\t_\nan\t_\nder\t_\nLahn\t_\n\nAnna\t_\n\n",
}


def test_files_in_the_formats_of_the_download(tmp_path, capsys):
    """A translated answer that is not in its context is an error; with --skip-invalid it is left out.

    Its question is left out too, but only in training text.
    """
    arguments = (STORED, tmp_path, "--langs", "en,de,ko")
    assert read(*arguments) == 1
    translations = STORED / "xtreme_translations"
    assert capsys.readouterr().err.splitlines()[-2:] == [
        f"  - {translations}/{path}: the answer '{answer}' is not at -1, where there is no text"
        for path, answer in (
            ("SQuAD/translate-train/squad.translate.train.en-de.json, line 1, question 't2'", "Ein Hochwasser"),
            ("XQuAD/translate-test/xquad.translate.test.de-en.json, line 1, question 'en-2'", "in the Sund lake"),
        )
    ]
    assert read(*arguments, "--skip-invalid") == 0
    for name, text in WRITTEN.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text, name
    for task in ("xquad", "mlqa"):
        (question,) = read_questions(tmp_path / task / "translate_train/train.de.json", "de")
        assert question.answers == (("1802", 26),) and question.id == "t1"
    (question,) = read_questions(tmp_path / "xquad/translate_train/valid.de.json", "de")
    assert question.answers == (("Holz", 28), ("aus Holz", 24))
    assert not (tmp_path / "mlqa/translate_train/valid.de.json").exists()  # it has its own
    (question,) = read_questions(tmp_path / "tydiqa/translate_train/train.ko.json", "ko")
    assert question.answers == (("1802년", 9),)
    answered, unanswered = read_questions(tmp_path / "xquad/translate_test/de/test.en.json", "en")
    assert answered.answers == (("near the village of Tov", 21),) and unanswered.answers == ()
    (question,) = read_questions(tmp_path / "tydiqa/test.ko.json", "ko")
    assert question.answers == ()
    # XTREME's program keeps the last part of the ids of training text only, so that they repeat
    training = read_questions(tmp_path / "tydiqa/train.en.json", "en")
    assert [(each.id, each.answers[0][0]) for each in training] == [
        ("0", "1802"),
        ("0#2", "40 metres"),
        ("1", "A flood"),
    ]
    counts = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["counts"]
    expected = {"questions without a right answer": 1, "wrong answers": 1}
    assert counts["mlqa/translate_train/train.de.json"]["left out"] == expected


def test_translations_are_read_as_they_are(tmp_path, source, capsys):
    """Two texts in English, two translations and a label; a folder that is there has every language of the task."""
    path = source / "xtreme_translations/PAWSX/translate-train/en-de-translated.tsv"
    path.parent.mkdir(parents=True)
    path.write_text('a\tb\t"c\td"\t1\na\tb\tc\t\t1\na\tb\tc\td\te\na\tb\tc\t1\n', encoding="utf-8")
    arguments = (source, tmp_path / "out", "--tasks", "pawsx", "--langs", "en,de")
    assert read(*arguments) == 1
    assert capsys.readouterr().err.split("xtreme: ", 1)[1].splitlines() == [
        "2 problems:",
        f"  - {path}, line 3: label 'e' is not one of 0, 1",
        f"  - {path}, line 4: expected 5 fields as in the first line, found 4",
    ]
    assert read(*arguments, "--skip-invalid") == 0
    assert (tmp_path / "out/pawsx/translate_train/train.de.tsv").read_text(encoding="utf-8") == '1\t"c\td"\n'
    counts = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["counts"]
    assert counts["pawsx/translate_train/train.de.tsv"] == {
        **{"lines": 1, "empty": 1, "labels": {"1": 1}},
        "left out": {"wrong columns": 1, "wrong label": 1},
    }
    assert read(*arguments[:-1], "en,de,ko") == 1
    assert "en-ko-translated.tsv: there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, written",
    [
        ("a\tb\tc\td\ne\tf\t\th\n", "_\tc\td\n_\t_\th\n"),  # without labels
        ("a\tb\tc\td\t1\ne\tf\tg\th\t\n", "1\tc\td\n_\tg\th\n"),
        ("a\tb\tc\td\t1\ne\tf\tg\th\n", "1\tc\td\n_\tg\th\n"),
        ("a\tb\tc\td\t1\ne\tf\tg\th\t2\n", "line 2: label '2' is not one of 0, 1"),
        ("a\tb\tc\n", "line 1: expected two texts, two translations and possibly a label, found 3 fields"),
    ],
)
def test_a_translated_test_file_keeps_its_lines(tmp_path, source, capsys, content, written):
    """A label may be missing; a wrong line is an error with --skip-invalid too, since predictions are by line."""
    path = source / "xtreme_translations/PAWSX/translate-test/test-de-en-translated.tsv"
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    status = read(source, tmp_path / "out", "--tasks", "pawsx", "--langs", "en,de", "--skip-invalid")
    if status:
        assert capsys.readouterr().err.splitlines()[-1] == f"xtreme: {path}, {written}"
    else:
        assert (tmp_path / "out/pawsx/translate_test/de/test.en.tsv").read_text(encoding="utf-8") == written
