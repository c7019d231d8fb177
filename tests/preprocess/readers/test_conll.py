"""Tagged words in columns and in CoNLL-U, from small files in those formats."""

import json
from pathlib import Path

import pytest

from fairseq_xl.evaluation.task_files import read_sentences
from preprocess.readers.conll import main

FILES = Path(__file__).parents[1] / "files/conll"


def read(destination, *arguments):
    return main([str(destination), *map(str, arguments)])


@pytest.mark.parametrize(
    "name, options, expected",
    [
        (
            *("eng.train", ("--columns", "4")),
            "Mary/I-PER left/O New/I-LOC Haven/I-LOC ./O | Baker/I-ORG Bank/I-ORG grew/O",
        ),
        ("deu.testa", ("--columns", "5", "--encoding", "iso-8859-1"), "Ärzte/O aus/O Köln/I-LOC"),
        ("esp.testa", ("--columns", "2"), "La/B-LOC Coruña/I-LOC ,/O | Ana/B-PER"),
        ("ned.testa", ("--columns", "3"), "Jan/B-PER werkt/O in/O België/B-LOC"),
        (
            *("fr-ud-dev.conllu", ("--conllu",)),
            "Il/PRON vend/VERB de/ADP le/DET pain/NOUN à/ADP 1 000/NUM euros/NOUN ./PUNCT | "
            "Elle/PRON chante/VERB ,/PUNCT #/SYM",
        ),
    ],
)
def test_what_is_written_is_what_tagging_reads(name, options, expected, tmp_path):
    """In CoNLL-U, the lines of a token of several words, of an empty word and of comments are skipped."""
    assert read(tmp_path, f"valid.xx={FILES / name}", *options) == 0
    sentences = read_sentences(tmp_path / "valid.xx.tsv", "xx")
    found = [" ".join(map("/".join, zip(sentence.words, sentence.tags))) for sentence in sentences]
    assert " | ".join(found) == expected


def test_wikiann(tmp_path, capsys):
    """The language before each word is left out; a word may have colons, spaces, or be empty."""
    (tmp_path / "dev").write_text("de:Bad  Ems\tB-LOC\nde:10:30\tO\nde:\tO\n\n", encoding="utf-8")
    assert read(tmp_path / "out", f"valid.de={tmp_path / 'dev'}", "--wikiann") == 0
    assert (tmp_path / "out/valid.de.tsv").read_text(encoding="utf-8") == "Bad Ems\tB-LOC\n10:30\tO\n_\tO\n\n"
    (tmp_path / "dev").write_text("fr:Ems\tB-LOC\n", encoding="utf-8")
    assert read(tmp_path / "out", f"valid.de={tmp_path / 'dev'}", "--wikiann") == 1
    assert capsys.readouterr().err.endswith("dev, line 1: expected de:WORD, found 'fr:Ems'\n")


def test_several_files_and_another_column(tmp_path):
    """The third column has chunks, whose types are named."""
    source = tmp_path / "a.txt"
    source.write_text("EU NNP B-NP B-ORG\n", encoding="utf-8")
    arguments = ("train.en=" + str(source), f"valid.en={source}", "--columns", "4", "--tag-column", "3")
    assert read(tmp_path / "out", *arguments, "--types", "NP,VP") == 0
    for split in ("train", "valid"):
        assert (tmp_path / f"out/{split}.en.tsv").read_text(encoding="utf-8") == "EU\tB-NP\n\n"
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["counts"]["train.en.tsv"]["labels"] == {"B-NP": 1, "sentences": 1}
    assert list(manifest["files"]) == [str(source)]
    assert read(tmp_path / "out", *arguments, "--types", "NP") == 0  # other settings: it is read again
    assert read(tmp_path / "out", *arguments, "--types", "VP") == 1


@pytest.mark.parametrize(
    "text, options, problems",
    [
        (
            *("EU NNP B-NP B-ORG\nrejects VBZ O\n", ("--columns", "3")),
            ["line 1: expected 3 columns, the word in 1 and the tag in 3, found 'EU NNP B-NP B-ORG'"],
        ),
        (
            *("EU B-ORG\nrejects VBZ\nAnn\n", ("--columns", "2")),
            [
                "line 2: tag 'VBZ' is not one of B-LOC, B-MISC, B-ORG, B-PER, I-LOC, I-MISC, I-ORG, I-PER, O",
                "line 3: expected a word and a tag, found 'Ann'",
            ],
        ),
        (
            *("1\tEU\t_\tNNP\t_\t_\t0\troot\t_\t_\n2\tis\t_\tVERB\n", ("--conllu",)),
            [
                "line 1: tag 'NNP' is not one of ADJ, ADP, ADV, AUX, CCONJ, DET, INTJ, NOUN, NUM, PART, PRON, PROPN, "
                "PUNCT, SCONJ, SYM, VERB, X",
                "line 2: expected 10 columns, the word in 2 and the tag in 4, found '2\\tis\\t_\\tVERB'",
            ],
        ),
        ("K\xf6ln O\n", ("--columns", "2"), ["line 1: not UTF-8"]),
        ("", ("--columns", "2"), ["line 1: the file is empty"]),
    ],
)
def test_problems_name_their_lines(text, options, problems, tmp_path, capsys):
    source = tmp_path / "source"
    source.write_text(text, encoding="iso-8859-1")
    assert read(tmp_path / "out", f"train.en={source}", *options) == 1
    found = capsys.readouterr().err.split("conll: ", 1)[1].splitlines()
    shown = [f"{source}, {problem}" for problem in problems]
    assert found == (shown if len(shown) == 1 else [f"{len(shown)} problems:", *(f"  - {line}" for line in shown)])
    assert not list((tmp_path / "out").glob("*.tsv"))


def test_wrong_arguments(tmp_path, capsys):
    for words, message in (
        ("train.en", "expected SPLIT.XX=FILE such as train.en=FILE, with train, valid, test; found 'train.en'"),
        ("dev.en=a", "found 'dev.en=a'"),
        ("train.zh-CN=a", "train.zh-CN=a: 'zh-CN' is not a language code"),
        ("train.en=a train.en=b", "train.en is named twice"),
        ("train.en=a valid.de=b", "2 problems:"),
        ("train.en,de=a", "a: expected one language, found en, de"),
        ("train.en=a --tag-column 1", "--columns 2: expected the tag in a column from 2 to 2, found 1"),
        ("train.en=a --wikiann --tag-column 2", "--tag-column is for --columns"),
    ):
        kind = () if "--wikiann" in words else ("--columns", "2")
        assert read(tmp_path / "out", *words.split(), *kind) == 1
        assert message in capsys.readouterr().err
