"""XNLI 1.0 and XNLI-MT 1.0, from small files made here in the releases' formats."""

import json
import re
import shutil

import pytest

from preprocess.readers.xnli import main
from tests.preprocess.readers.written_files import texts

HEADER = (
    "language gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 "
    "sentence2 promptID pairID genre label1 label2 label3 label4 label5 sentence1_tokenized sentence2_tokenized match"
).split()
TRAIN = {
    "en": [
        'The new rights are nice enough\tEveryone " really likes the newest benefits\tneutral',
        '" Yes , " he said .\tHe agreed .\tentailment',
        "I burst through a set of doors .\tI didn 't move .\tcontradictory",
    ],
    "de": [
        "Die neuen Rechte sind gut .\tAlle mögen sie .\tneutral",
        "Leer\t\tentailment",
        "Ich stürmte hinein .\tIch stand still .\tcontradictory",
    ],
}


def row(language, label, premise, hypothesis, pair):
    """A line of an evaluation file; the release leaves the columns of parses empty."""
    tokenized = [text.replace(".", " .") for text in (premise, hypothesis)]
    fields = [language, label, "", "", "", "", premise, hypothesis, pair, pair, "fiction", *[label] * 5, *tokenized]
    return "\t".join([*fields, "True"])


DEV = [
    row("de", "neutral", "Er sagte: Mama, ich bin da.", 'Er rief "Mama" an.', "1"),
    row("de", "contradiction", "Er kam.", "Er kam\u2028\u00a0nie.", "2"),
    row("en", "neutral", "And he said, Mama, I'm home.", 'He called his "mom.', "1"),
    row("en", "contradiction", "He came.", "He never came.", "2"),
    row("zh", "entailment", "他来了。", "有人来了。", "3"),
]
TEST = [
    row("de", "entailment", "Es regnet.", "Es ist nass.", "4"),
    row("en", "entailment", "It rains.", "It is wet.", "4"),
    row("zh", "entailment", "下雨了。", "天气潮湿。", "4"),
]
DEV_INTO_ENGLISH = [row("de", "contradiction", "He's coming.", "He came never.", "2")]
INTO_ENGLISH = [
    row("de", "entailment", "It's raining.", "It is moist.", "4"),
    row("en", "entailment", "It rains.", "It is wet.", "4"),
    row("zh", "entailment", "Rain.", "Weather is damp.", "4"),
]


def write(path, lines, ending="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}{ending}" for line in lines).encode())


@pytest.fixture
def source(tmp_path):
    """Both releases, unpacked."""
    folder = tmp_path / "in"
    for language, lines in TRAIN.items():
        name = f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv"
        write(folder / name, ["premise\thypo\tlabel", *lines])
    for name, lines in (
        ("XNLI-1.0/xnli.dev.tsv", DEV),
        ("XNLI-1.0/xnli.test.tsv", TEST),
        ("XNLI-MT-1.0/xnli/xnli.dev.en.tsv", DEV_INTO_ENGLISH),
        ("XNLI-MT-1.0/xnli/xnli.test.en.tsv", INTO_ENGLISH),
    ):
        write(folder / name, ["\t".join(HEADER), *lines])
    return folder


def command(source, tmp_path, *more):
    return main([str(source), str(tmp_path / "out"), "--langs", "de,en", *more])


EXPECTED = {
    "train.en.tsv": (
        'neutral\tThe new rights are nice enough\tEveryone " really likes the newest benefits\n'
        'entailment\t" Yes , " he said .\tHe agreed .\n'
        "contradiction\tI burst through a set of doors .\tI didn 't move .\n"
    ),
    "translate_train/train.de.tsv": (
        "neutral\tDie neuen Rechte sind gut .\tAlle mögen sie .\n"
        "contradiction\tIch stürmte hinein .\tIch stand still .\n"
    ),
    "valid.de.tsv": ('neutral\tEr sagte: Mama, ich bin da.\tEr rief "Mama" an.\ncontradiction\tEr kam.\tEr kam nie.\n'),
    "valid.en.tsv": (
        "neutral\tAnd he said, Mama, I'm home.\tHe called his \"mom.\ncontradiction\tHe came.\tHe never came.\n"
    ),
    "test.de.tsv": "entailment\tEs regnet.\tEs ist nass.\n",
    "test.en.tsv": "entailment\tIt rains.\tIt is wet.\n",
    "translate_test/de/valid.en.tsv": "contradiction\tHe's coming.\tHe came never.\n",
    "translate_test/de/test.en.tsv": "entailment\tIt's raining.\tIt is moist.\n",
}


def test_every_file_has_its_language(source, tmp_path):
    """The manifest counts what is left out."""
    assert command(source, tmp_path) == 0
    assert texts(tmp_path / "out") == EXPECTED
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == ["XNLI 1.0", "XNLI-MT 1.0"] and manifest["languages"] == ["de", "en"]
    counts, labels = manifest["counts"], {"neutral": 1, "contradiction": 1}
    assert counts["translate_train/train.de.tsv"] == {"lines": 2, "empty": 1, "labels": labels}
    assert counts["valid.en.tsv"] == {"lines": 2, "empty": 0, "labels": labels} and set(counts) == set(EXPECTED)
    assert set(manifest["files"]) == {str(path.relative_to(source)) for path in source.rglob("*.tsv")}


def test_tokenized_evaluation_text(source, tmp_path):
    assert command(source, tmp_path) == command(source, tmp_path, "--tokenized") == 0
    assert texts(tmp_path / "out") == {name: re.sub(r"(?<=\w)\.", " .", text) for name, text in EXPECTED.items()}


def test_line_ends_byte_order_mark_and_empty_lines_are_no_text(source, tmp_path):
    lines = ["\ufeffpremise\thypo\tlabel", *TRAIN["en"][:2], "", TRAIN["en"][2], ""]
    write(source / "XNLI-MT-1.0/multinli/multinli.train.en.tsv", lines, ending="\r\n")
    assert command(source, tmp_path) == 0
    assert texts(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("zipped", [False, True])
def test_both_releases_may_be_in_one_folder(source, tmp_path, zipped):
    """Or one of them, beside the zip file of the other one."""
    if zipped:
        packed(source, source, "XNLI-MT-1.0")
        shutil.rmtree(source / "XNLI-MT-1.0")
    for folder in list(source.glob("XNLI*-1.0")):
        for path in list(folder.iterdir()):
            path.rename(source / path.name)
        folder.rmdir()
    assert command(source, tmp_path) == 0
    assert texts(tmp_path / "out") == EXPECTED


def packed(source, folder, *names):
    """Makes the zip files of the releases, with all their files."""
    for name in names:
        shutil.make_archive(str(folder / name), "zip", source, name)


@pytest.mark.parametrize("zips", [("XNLI-1.0", "XNLI-MT-1.0"), ("XNLI-1.0",), ("XNLI-MT-1.0",)])
def test_the_zip_files_are_read_like_their_folders(zips, source, tmp_path):
    assert main([str(source), str(tmp_path / "folder"), "--langs", "de,en"]) == 0
    packed(source, source, *zips)
    for name in zips:
        shutil.rmtree(source / name)
    for _ in range(2):
        assert command(source, tmp_path) == 0
        assert texts(tmp_path / "out") == EXPECTED
        manifest = (tmp_path / "out/manifest.json").read_bytes()
        assert manifest == (tmp_path / "folder/manifest.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "in", "out"]


def test_a_zip_file_alone_is_no_release(source, tmp_path, capsys):
    packed(source, tmp_path, "XNLI-1.0")
    assert command(tmp_path / "XNLI-1.0.zip", tmp_path) == 1
    reason = "is a file: the folder that contains XNLI-1.0.zip and XNLI-MT-1.0.zip is needed"
    assert capsys.readouterr().err.splitlines()[-1] == f"xnli: {tmp_path}/XNLI-1.0.zip {reason}"


def test_without_translations_into_english_the_rest_is_written(source, tmp_path):
    shutil.rmtree(source / "XNLI-MT-1.0/xnli")
    assert command(source, tmp_path) == 0
    rest = {name: text for name, text in EXPECTED.items() if not name.startswith("translate_test")}
    assert texts(tmp_path / "out") == rest


def test_translations_that_do_not_name_their_language_are_not_written(source, tmp_path, caplog):
    lines = [row("en", "entailment", "It's raining.", "It is moist.", "4")]
    write(source / "XNLI-MT-1.0/xnli/xnli.test.en.tsv", ["\t".join(HEADER), *lines])
    assert command(source, tmp_path) == 0
    assert "translate_test/de/test.en.tsv" not in texts(tmp_path / "out")
    assert "no examples in de; translate_test/de/test.en.tsv is not written" in caplog.text


def test_english_alone_has_no_translations(source, tmp_path):
    assert main([str(source), str(tmp_path / "out"), "--langs", "en"]) == 0
    assert set(texts(tmp_path / "out")) == {"train.en.tsv", "valid.en.tsv", "test.en.tsv"}


def test_a_second_run_does_nothing_and_a_changed_file_is_read_again(source, tmp_path):
    def times():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*") if path.is_file()}

    assert command(source, tmp_path) == 0
    before = times()
    assert command(source, tmp_path) == 0 and times() == before
    name = "translate_train/train.de.tsv"
    write(source / "XNLI-MT-1.0/multinli/multinli.train.de.tsv", ["premise\thypo\tlabel", "Ja .\tNein .\tneutral"])
    assert command(source, tmp_path) == 0
    assert texts(tmp_path / "out") == EXPECTED | {name: "neutral\tJa .\tNein .\n"}
    changed = {str(path.relative_to(tmp_path / "out")) for path, time in times().items() if before[path] != time}
    assert {entry for entry in changed if not entry.startswith(".stages")} == {name, "manifest.json"}


def test_problems_are_one_sentence(source, tmp_path, capsys):
    path, folder, header = source / "XNLI-1.0/xnli.dev.tsv", tmp_path / "out", "\t".join(HEADER)
    languages = "ar, bg, de, el, en, es, fr, hi, ru, sw, th, tr, ur, vi, zh"
    for lines, message in (
        ([header, *DEV[2:]], ": there is no example in language 'de'"),
        (
            DEV,
            ", line 1: expected a header with language, gold_label, sentence1, sentence2; language, gold_label, sent",
        ),
        ([header, DEV[0], "de\ta"], ", line 3: expected 19 fields as in the first line, found 2"),
        ([header, row("nl", "neutral", "", "", "1")], f", line 2: language 'nl' is not one of {languages}"),
        (
            [header, row("de", "-", "Ja.", "Nein.", "1")],
            ", line 2: label '-' is not one of contradiction, entailment, neutral, contradictory",
        ),
    ):
        write(path, lines)
        assert command(source, tmp_path) == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"xnli: {path}{message}")
        assert not (folder / "manifest.json").exists() and not [*folder.rglob("*.tmp"), *folder.glob("valid*")]
