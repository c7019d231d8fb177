"""`fairseq-xl score` on the small files in the benchmarks' formats, which are stored with the readers' tests."""

import json
from pathlib import Path

import pytest

from fairseq_xl.commands import score_xglue, score_xtreme
from tests.evaluation.builders import write

FILES = Path(__file__).parents[1] / "preprocess/files"
#: task -> (predictions of the German test file, scores worked out by hand)
XGLUE = {
    # two of three predicted and three right spans
    "NER": ("B-LOC\nI-LOC\nO\nO\nO\nB-ORG\nO\n\nB-PER\nO\n\n", {"n": 2, "f1": 66.67}),
    "POS": ("DET\nNOUN\nVERB\nADV\nPUNCT\n\nPRON\nNOUN\n\n", {"precision": 100 * 6 / 7}),
    "NC": ("sports\nfoodanddrink\nnews\nvideo\n", {"accuracy": 75}),
    # "bei dorf tov" and "dorf tov" without the article: F1 0.8; the other one is exact without article and full stop
    "MLQA": (json.dumps({"en-1": "dem Dorf Tov", "en-2": "der Sundsee."}), {"f1": 90, "exact_match": 50}),
    "XNLI": ("contradiction\ncontradiction\n", {"accuracy": 50}),
    "PAWSX": ("1\n1\n", {"n": 2, "accuracy": 50}),
    "QADSM": ("Good\nBad\n", {"accuracy": 100}),
    # order 1, 3, 0: (1 + 3 / log2 3) / (3 + 1 / log2 3) = 0.7967; order 0, 4: 1 / log2 3 = 0.6309
    "WPR": ("0.2\n0.9\n0.1\n0.5\n0.7\n", {"n": 2, "ndcg": 71.38}),
    "QAM": ("0\n0\n", {"accuracy": 50}),
    "QG": ("wann wurde die MÜHLE von Orrin gebaut?\n", {"bleu": 100}),  # lower-cased
    "NTG": ("Hochwasser an der Sund geht zurück\nneue Brücke Eröffnet\n", {"n": 2, "bleu": 100}),
}
XTREME = {
    "xnli": ("de", "contradiction\nneutral\nneutral\nentailment\n", {"accuracy": 75}),
    "pawsx": ("ko", "1\n1\n", {"accuracy": 50}),
    # NOUN NOUN is one span: four right ones of five predicted and six
    "udpos": ("de", "DET\nNOUN\nNOUN\nPUNCT\n\nPRON\nVERB\n", {"f1": 100 * 8 / 11}),
    "panx": ("de", "B-LOC\nO\nO\nO\nB-LOC\n\nB-PER\n\n", {"f1": 66.67}),
    # two words of four; articles of German are words here
    "xquad": ("de", json.dumps({"en-1": "Dorf Tov", "en-2": "Sundsee"}), {"f1": 83.33, "exact_match": 50}),
    "mlqa": ("de", json.dumps({"en-1": "Dorf Tov", "en-2": "Sundsee"}), {"f1": 90, "exact_match": 50}),
    "tydiqa": ("ko", json.dumps({"korean-2001-0": "토브"}), {"f1": 66.67, "exact_match": 0}),
    # one of two pairs is right, and one of two is found
    "bucc2018": ("de", "de-000000004\ten-000000005\nde-000000006\ten-000000006\n", {"f1": 50}),
    "tatoeba": ("de", "2\n1\n1\n", {"accuracy": 100 * 2 / 3}),
}


def scores(capsys, main, folder, references):
    main(["--predictions", str(folder), "--references", str(references)])
    return json.loads(capsys.readouterr().out)["tasks"]


def check(entry, language, expected):
    assert list(entry["languages"]) == [language] and "average" not in entry
    for metric, value in expected.items():
        assert entry["languages"][language][metric] == pytest.approx(value, abs=0.01), metric


def test_xglue(tmp_path, capsys):
    for task, (text, _) in XGLUE.items():
        write(tmp_path / task / "de.prediction", text)
    found = scores(capsys, score_xglue.main, tmp_path, FILES / "xglue")
    assert list(found) == list(XGLUE)
    for task, (_, expected) in XGLUE.items():
        check(found[task], "de", expected)


def test_xtreme(tmp_path, capsys):
    for task, (language, text, _) in XTREME.items():
        suffix = "json" if text.startswith("{") else "tsv"
        write(tmp_path / task / f"test-{language}.{suffix}", text)
    found = scores(capsys, score_xtreme.main, tmp_path, FILES / "xtreme/labels")
    assert list(found) == list(XTREME)
    for task, (language, _, expected) in XTREME.items():
        check(found[task], language, expected)
