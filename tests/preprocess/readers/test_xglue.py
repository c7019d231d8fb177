"""XGLUE's understanding tasks, from small files made here in the release's formats."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.evaluation.task_files import read_examples, read_queries, read_sentences
from preprocess.readers.xglue import LANGUAGES, SPLITS, file_of, main
from tests.preprocess.readers.written_files import contents

QUESTION = {"id": "a", "question": "Wie?", "answers": [{"text": "Elbe", "answer_start": 16}]}
QUESTIONS = {"data": [{"title": "Elbe", "paragraphs": [{"context": "Der Fluss heißt Elbe.", "qas": [QUESTION]}]}]}
TRAIN = "premise\thypo\tlabel\na .\tb .\tcontradictory\n"
PAIRS = "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n2\tc\td\t1\n"
#: task -> (content of its files, what is written)
FILES = {
    "NER": ("-DOCSTART- O\n\nNew B-LOC\nYork I-LOC\n\nis O\n", "New\tB-LOC\nYork\tI-LOC\n\nis\tO\n\n"),
    "POS": ("1 000 NUM\n\n\nx X\n\n", "1 000\tNUM\n\nx\tX\n\n"),
    "NC": ('a "title\tbody  text\tsports\n', 'sports\ta "title\tbody text\n'),
    "MLQA": (json.dumps(QUESTIONS), json.dumps(QUESTIONS)),
    "XNLI": ("a .\tb .\tneutral\n", "neutral\ta .\tb .\n"),
    "PAWSX": (PAIRS, "0\ta\tb\n1\tc\td\n"),
    "QADSM": ("query\tad\tdescription\tGood\n", "Good\tquery\tad\tdescription\n"),
    "WPR": ("query\tpage\tsnippet\t4\n", "4\tquery\tpage\tsnippet\n"),
    "QAM": ("what is k2\tK2 is a mountain .\t1\n", "1\twhat is k2\tK2 is a mountain .\n"),
}
READERS = {"NER": read_sentences, "POS": read_sentences, "MLQA": read_questions, "WPR": read_queries}


def each_file():
    for task, languages in LANGUAGES.items():
        for language in languages:
            for split, theirs in SPLITS:
                if split != "train" or language == "en":
                    yield task, f"{task}/{file_of(task, theirs, language)}", split, language


@pytest.fixture
def source(tmp_path):
    """The unpacked release, with the paths of XGLUE's description of its files."""
    for task, name, split, _ in each_file():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TRAIN if (task, split) == ("XNLI", "train") else FILES[task][0], encoding="utf-8")
    return tmp_path / "in"


def read(*arguments):
    return main([str(argument) for argument in arguments])


def test_every_file_of_every_task(source, tmp_path):
    """What is written is what the fine-tuning tasks read."""
    assert read(source, tmp_path / "out") == 0
    count = 0
    for task, _, split, language in each_file():
        path = tmp_path / f"out/{task}/{split}.{language}.{'json' if task == 'MLQA' else 'tsv'}"
        expected = "contradiction\ta .\tb .\n" if (task, split) == ("XNLI", "train") else FILES[task][1]
        assert path.read_text(encoding="utf-8") == expected
        assert READERS.get(task, read_examples)(path, language)
        count += 1
    assert count == 2 * (4 + 18 + 5 + 7 + 15 + 4 + 3 + 7 + 3) + 9
    counts = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["counts"]
    assert counts["NER/test.nl.tsv"]["labels"] == {"B-LOC": 1, "I-LOC": 1, "O": 1, "sentences": 2}
    assert counts["QAM/valid.de.tsv"] == {"lines": 1, "empty": 0, "labels": {"1": 1}}


def test_the_paths_of_the_release(source):
    """As in the description that comes with it; those of XNLI as in its evaluation program."""
    for name in (
        *("NER/en.train", "NER/nl.dev", "POS/th.test", "NC/xglue.nc.ru.dev", "MLQA/squad1.1/train-v1.1.json"),
        *("MLQA/MLQA_V1/dev/dev-context-de-question-de.json", "XNLI/multinli.train.en.tsv", "XNLI/sw.test"),
        *("PAWSX/en/train.tsv", "PAWSX/fr/test_2k.tsv", "QADSM/xglue.qadsm.de.dev", "WPR/xglue.wpr.zh.test"),
    ):
        assert (source / name).is_file(), name


def test_xnli_as_in_the_description(source, tmp_path):
    """There its validation and test files are those of XNLI, with all languages in one file."""
    header = "language gold_label sentence1_binary_parse sentence1 sentence2".replace(" ", "\t")
    for split in ("dev", "test"):
        for path in (source / "XNLI").glob(f"*.{split}"):
            path.unlink()
        rows = [f"{code}\tneutral\t( {code} )\ta {code}\tb {code}\n" for code in ("de", "en", "fr")]
        (source / f"XNLI/xnli.{split}.tsv").write_text("".join((f"{header}\n", *rows)), encoding="utf-8")
    assert read(source, tmp_path / "out", "--tasks", "XNLI", "--langs", "en,de") == 0
    for name in ("valid.de", "test.de"):
        assert (tmp_path / f"out/XNLI/{name}.tsv").read_text(encoding="utf-8") == "neutral\ta de\tb de\n"
    assert sorted(path.name for path in (tmp_path / "out/XNLI").glob("valid.*")) == ["valid.de.tsv", "valid.en.tsv"]
    archive = shutil.make_archive(str(tmp_path / "xglue_full_dataset"), "gztar", source.parent, source.name)
    assert read(archive, tmp_path / "packed", "--tasks", "XNLI", "--langs", "en,de") == 0
    assert (tmp_path / "packed/XNLI/test.de.tsv").read_text() == (tmp_path / "out/XNLI/test.de.tsv").read_text()


def test_one_task_from_its_folder_compressed(source, tmp_path):
    for path in list((source / "QAM").iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert read(source / "QAM", tmp_path / "out", "--tasks", "QAM", "--langs", "en,de") == 0
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.tsv"))
    assert names == [f"QAM/{name}.tsv" for name in ("test.de", "test.en", "train.en", "valid.de", "valid.en")]


def test_the_archive_is_read_like_its_folder(source, tmp_path):
    """That of all tasks, and that of one task."""
    dataset = source.rename(tmp_path / "xglue_full_dataset")
    arguments = ("--tasks", "NER,QAM,MLQA", "--langs", "en,de")
    assert read(dataset, tmp_path / "folder", *arguments) == 0
    archive = shutil.make_archive(str(dataset), "gztar", tmp_path, dataset.name)
    for _ in range(2):
        assert read(archive, tmp_path / "out", *arguments) == 0
        assert contents(tmp_path / "out") == contents(tmp_path / "folder")
    assert "NER/de.dev" in json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["files"]
    archive = shutil.make_archive(str(tmp_path / "QAM"), "tar", dataset, "QAM")
    for release, out in ((dataset / "QAM", "one"), (archive, "two")):
        assert read(release, tmp_path / out, "--tasks", "QAM") == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert not list(tmp_path.glob("*unpacked*"))


def test_problems_in_an_archive_name_it_and_the_file(source, tmp_path, capsys, caplog):
    (source / "QAM/xglue.qam.de.dev").write_text("was\tDas .\tGood\n", encoding="utf-8")
    (source / "QAM/xglue.qam.en.train").write_text("a\tb\t1\na\tb\tx\n", encoding="utf-8")
    archive = shutil.make_archive(str(tmp_path / "xglue"), "gztar", tmp_path, "in")
    assert read(archive, tmp_path / "out", "--tasks", "QAM", "--langs", "en,de", "--skip-invalid") == 1
    wrong = f"xglue: {archive}/in/QAM/xglue.qam.de.dev, line 1: label 'Good' is not one of 0, 1"
    assert capsys.readouterr().err.splitlines()[-1] == wrong
    assert read(archive, tmp_path / "out", "--tasks", "QAM", "--langs", "en", "--skip-invalid") == 0
    assert f"{archive}/in/QAM/xglue.qam.en.train: left out 1 wrong label" in caplog.messages


def test_test_files_without_labels_are_unlabeled(source, tmp_path):
    """The release as it was before its test labels were published; NC with a query, as its description has it."""
    for task, text in (("QADSM", "q\tad\td\n"), ("WPR", "q\tp\ts\n"), ("QAM", "q\ta\n"), ("NC", "t\tb\n")):
        (source / f"{task}/xglue.{task.lower()}.de.test").write_text(text, encoding="utf-8")
    packed = source / "QAM/xglue.qam.de.test"
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    (source / "NC/xglue.nc.de.dev").write_text("query\ttitle\tbody\tnews\n", encoding="utf-8")

    def written(tasks, *names):
        if read(source, tmp_path / "out", "--tasks", tasks, "--langs", "en,de"):
            return None
        return [(tmp_path / "out" / name).read_text(encoding="utf-8") for name in names]

    names = [f"{task}/test.de.tsv" for task in ("QADSM", "WPR", "QAM", "NC")]
    assert written("QADSM,WPR,QAM,NC", *names, "NC/valid.de.tsv") == [
        *("_\tq\tad\td\n", "_\tq\tp\ts\n", "_\tq\ta\n", "_\tt\tb\n", "news\ttitle\tbody\n")
    ]
    for text, expected in (
        ("q\ttitle\tbody\nq\ttitle\tnews\n", ["_\ttitle\tbody\n_\ttitle\tnews\n"]),
        ("title\tbody\tnews\ntitle\tbody\tnew\n", None),  # the first line has a label
        ("q\ttitle\tbody\ntitle\tbody\n", None),
        ("q\ttitle\tbody\nq\ttitle\tbody\tnews\n", None),
    ):
        (source / "NC/xglue.nc.de.test").write_text(text, encoding="utf-8")
        assert written("NC", "NC/test.de.tsv") == expected


def test_titles_are_joined_as_in_the_released_system(source, tmp_path):
    """The files are written again with the option and without it; an empty title leaves no space."""
    (source / "WPR/xglue.wpr.de.test").write_text("q\tpage\tsnippet\t4\nq\t \tsnippet\t0\n", encoding="utf-8")
    (source / "QADSM/xglue.qadsm.de.test").write_text("q\tad\td\n", encoding="utf-8")
    for more, expected in (
        (["--join-titles"], {"WPR": "4\tq\tpage snippet\n0\tq\tsnippet\n", "QADSM": "_\tq\tad d\n"}),
        ([], {"WPR": "4\tq\tpage\tsnippet\n0\tq\t_\tsnippet\n", "QADSM": "_\tq\tad\td\n"}),
    ):
        assert read(source, tmp_path / "out", "--tasks", "QADSM,WPR,QAM", "--langs", "en,de", *more) == 0
        for task, text in expected.items():
            assert (tmp_path / f"out/{task}/test.de.tsv").read_text(encoding="utf-8") == text
        assert (tmp_path / "out/QAM/test.de.tsv").read_text(encoding="utf-8") == FILES["QAM"][1]


def test_no_line_is_lost_for_an_empty_text(source, tmp_path, caplog):
    caplog.set_level("INFO")
    (source / "QADSM/xglue.qadsm.de.test").write_text("q\tad\t \tGood\nq\tad\td\tBad\n", encoding="utf-8")
    assert read(source, tmp_path / "out", "--tasks", "QADSM", "--langs", "en,de") == 0
    assert (tmp_path / "out/QADSM/test.de.tsv").read_text(encoding="utf-8") == "Good\tq\tad\t_\nBad\tq\tad\td\n"
    assert "QADSM/test.de.tsv: wrote as _ 1 empty" in caplog.text


def test_problems_are_one_sentence(source, tmp_path, capsys):
    for name, content, message in (
        ("WPR/xglue.wpr.de.dev", b"q\tt\ts\t5\n", "line 1: label '5' is not one of 0, 1, 2, 3, 4"),
        ("QAM/xglue.qam.de.dev", b"", "line 1: the file is empty"),
        ("QAM/xglue.qam.de.dev", b"was\tDas\n", "line 1: expected 2 texts and a label, found 2 fields"),
        ("QAM/xglue.qam.de.dev", b"7\ta\tb\t1\n", "line 1: expected 2 texts and a label, found 4 fields"),
        ("QAM/xglue.qam.de.dev", b"was\tDas .\t1\n\nwas\tDie .\t0\n\n", "line 2: the line is empty"),
    ):
        path = source / name
        path.write_bytes(content)
        assert read(source, tmp_path / "out", "--langs", "en,de", "--tasks", name.split("/")[0]) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"xglue: {path}, {message}"
        assert not (tmp_path / "out/manifest.json").exists() and not list(tmp_path.rglob("*.tmp"))


def listed(error):
    """The lines of a message, without the name of the command."""
    first, *rest = error.split("xglue: ", 1)[1].splitlines()
    return [first, *rest]


def test_all_problems_of_all_files_are_listed_and_nothing_is_written(source, tmp_path, capsys):
    """Wrong columns, labels and tags, invalid UTF-8, and wrong answers; of many problems, the first twenty."""
    ner, qam, mlqa = "NER/de.dev", "QAM/xglue.qam.de.dev", "MLQA/MLQA_V1/dev/dev-context-de-question-de.json"
    (source / ner).write_bytes(b"EU NNP B-NP B-ORG\nlehnt O\nab VERB\nSch\xf6n O\n")
    (source / qam).write_text("was\tDas .\t2\nwas\t1\nwas\tDas .\t1\nwas\tDas .\t\n", encoding="utf-8")
    two = json.dumps(QUESTIONS, indent=1, ensure_ascii=False).replace("16", "15")
    (source / mlqa).write_text(two, encoding="utf-8")
    line = next(number for number, text in enumerate(two.splitlines(), start=1) if '"id"' in text)
    assert read(source, tmp_path / "out", "--tasks", "NER,MLQA,QAM", "--langs", "en,de") == 1
    tags = "B-LOC, B-MISC, B-ORG, B-PER, I-LOC, I-MISC, I-ORG, I-PER, O"
    assert listed(capsys.readouterr().err) == [
        "7 problems:",
        f"  - {source / ner}, line 1: expected a word and a tag, found 'EU NNP B-NP B-ORG'",
        f"  - {source / ner}, line 3: tag 'VERB' is not one of {tags}",
        f"  - {source / ner}, line 4: not UTF-8",
        f"  - {source / mlqa}, line {line}, question 'a': the answer 'Elbe' is not at 15, where there is ' Elb'",
        f"  - {source / qam}, line 1: label '2' is not one of 0, 1",
        f"  - {source / qam}, line 2: expected 3 fields as in the first line, found 2",
        f"  - {source / qam}, line 4: label '' is not one of 0, 1",
    ]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name != "lock"]
    (source / qam).write_text("was\tDas .\t2\n" * 30, encoding="utf-8")
    assert read(source, tmp_path / "out", "--tasks", "NER,MLQA,QAM", "--langs", "en,de") == 1
    found = listed(capsys.readouterr().err)
    assert found[0] == "34 problems:" and found[-1] == "  and 14 more" and len(found) == 22


def test_all_missing_files_are_named(source, tmp_path, capsys):
    missing = [source / "NER/de.dev", source / "NER/de.test"]
    for path in missing:
        path.unlink()
    assert read(source, tmp_path / "out", "--tasks", "NER", "--langs", "en,de") == 1
    assert listed(capsys.readouterr().err) == [
        "2 problems:",
        *(f"  - {path}: there is no such file" for path in missing),
        "  --tasks and --langs choose a part of the release",
    ]


def test_parts_of_speech_are_those_of_universal_dependencies(source, tmp_path, capsys):
    """A word may contain blanks; if every line has more than two columns, they are not in words."""
    path = source / "POS/de.dev"
    for text, problem in (
        ("the NOUN\nEU NNP\n", ", line 2: tag 'NNP' is not one of ADJ, ADP"),
        ("EU NNP PROPN\nis VBZ VERB\n", ": expected a word and a tag, found 3 columns or more in every line"),
    ):
        path.write_text(text, encoding="utf-8")
        assert read(source, tmp_path / "out", "--tasks", "POS", "--langs", "en,de") == 1
        assert listed(capsys.readouterr().err)[0].startswith(f"{path}{problem}")


def test_wrong_training_lines_and_answers_can_be_left_out(source, tmp_path, capsys, caplog):
    """The manifest counts them. A wrong line of an evaluation file is an error all the same."""
    answers = [{"text": "Elbe", "answer_start": 1}, {"text": "Elbe", "answer_start": 16}]
    both = [
        {"id": "a", "question": "Wie?", "answers": answers},
        {"id": "b", "question": "Wie?", "answers": answers[:1]},
    ]
    content = {"data": [{"paragraphs": [{"context": "Der Fluss heißt Elbe.", "qas": both}]}]}
    for name in ("squad1.1/train-v1.1.json", "MLQA_V1/test/test-context-de-question-de.json"):
        (source / "MLQA" / name).write_text(json.dumps(content), encoding="utf-8")
    (source / "QAM/xglue.qam.en.train").write_text("a\tb\t1\na\tb\tx\na\t1\n", encoding="utf-8")
    arguments = (source, tmp_path / "out", "--tasks", "MLQA,QAM", "--langs", "en,de")
    assert read(*arguments) == 1 and listed(capsys.readouterr().err)[0] == "6 problems:"
    assert read(*arguments, "--skip-invalid") == 0
    counts = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["counts"]
    assert counts["MLQA/train.en.json"]["left out"] == {"questions without a right answer": 1, "wrong answers": 2}
    assert counts["MLQA/test.de.json"]["left out"] == {"wrong answers": 2}
    assert counts["QAM/train.en.tsv"]["left out"] == {"wrong columns": 1, "wrong label": 1}
    assert "left out" not in counts["QAM/valid.de.tsv"]
    right = (("Elbe", 16),)
    assert [each.answers for each in read_questions(tmp_path / "out/MLQA/train.en.json", "en")] == [right]
    assert [each.answers for each in read_questions(tmp_path / "out/MLQA/test.de.json", "de")] == [right, ()]
    assert (tmp_path / "out/QAM/train.en.tsv").read_text(encoding="utf-8") == "1\ta\tb\n"
    assert "xglue.qam.en.train: left out 1 wrong columns, 1 wrong label" in caplog.text
    (source / "QAM/xglue.qam.de.dev").write_text("a\tb\tx\n", encoding="utf-8")
    assert read(*arguments, "--skip-invalid") == 1
    assert "xglue.qam.de.dev, line 1: label 'x' is not one of 0, 1" in capsys.readouterr().err


FILES_OF_TESTS = Path(__file__).parents[1] / "files"
WRITTEN = {  # of the files that are stored with the tests
    "NER/train.en.tsv": (
        "Mary\tI-PER\nmoved\tO\nto\tO\nNew\tI-LOC\nHaven\tI-LOC\n.\tO\n\n"
        "Baker\tB-ORG\nBank\tI-ORG\nhired\tO\nher\tO\n.\tO\n\n"
    ),
    "POS/train.en.tsv": (
        "Birds\tNOUN\nsing\tVERB\n.\tPUNCT\n\nIt\tPRON\ncost\tVERB\n1 000\tNUM\neuros\tNOUN\n.\tPUNCT\n\n"
    ),
    "NC/valid.de.tsv": "news\tEine neue Brücke\tSie wird im Mai eröffnet.\n",
    "XNLI/train.en.tsv": "entailment\tHe opened the window .\tThe window was closed before .\n"
    'contradiction\tShe never left town .\tShe left town twice .\nneutral\tThey ate early .\tThey ate " soup " .\n',
    "PAWSX/test.de.tsv": "1\tAnn traf Bo im Mai.\tIm Mai traf Ann Bo.\n0\tAnn lehrte Bo.\tBo lehrte Ann.\n",
    "QADSM/valid.de.tsv": "Good\tzelte\tZelte für zwei\tLeicht und trocken\n",
    "WPR/test.en.tsv": "3\tmaps\tMaps of cities\tTo print\n0\tmaps\tMops\tFor floors\n",
    "QAM/valid.en.tsv": "1\twho made the lamp\tThe lamp was made by Ida .\n",
}


def test_files_in_the_formats_of_the_release(tmp_path):
    assert read(FILES_OF_TESTS / "xglue", tmp_path, "--langs", "en,de") == 0
    for name, text in WRITTEN.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text, name
    assert len(list(tmp_path.rglob("*.tsv"))) == 8 * 5 and len(list(tmp_path.rglob("MLQA/*.json"))) == 5
    (question, _) = read_questions(tmp_path / "MLQA/test.de.json", "de")
    assert question.answers == (("bei dem Dorf Tov", 26),) and question.context[26:42] == "bei dem Dorf Tov"


def test_unknown_names_are_one_sentence(source, tmp_path, capsys):
    """WPR has Italian, NC does not."""
    for options, message in (
        ("--langs xx", "--langs: unknown 'xx'; valid: ar, bg,"),
        ("--tasks NTG", "xglue: --tasks NTG: NTG is not one of NER, POS, NC"),
        ("--tasks NC --langs en,it", "xglue: --langs en,it: language 'it' is in none of the tasks NC\n"),
    ):
        assert read(source, tmp_path / "out", *options.split()) == 1
        assert message in capsys.readouterr().err
