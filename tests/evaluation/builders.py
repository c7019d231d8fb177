"""Small benchmarks."""

import json

from tests.builders import squad

QUESTIONS = squad(("Der Fluss heißt Elbe.", ("a", "Wie?", "Elbe"), ("b", "Was?", "Der Fluss")))
ANSWERS = {"a": "Elbe.", "b": "Fluss"}  # exact without articles of German; else F1 2/3
XGLUE = {  # task -> (labeled file of German, predictions, figure)
    "NER": ("xde.test", "New B-LOC\nYork I-LOC\n\nan O\n\n", "B-LOC\nI-LOC\n\nB-PER\n\n", 66.67),
    "POS": ("", "an NOUN\nis VERB\nbig ADJ\n\nx NOUN\n\n", "NOUN\nNOUN\nADJ\n\nNOUN\n\n", 66.67),
    "NC": ("", "q\tt\tsports\nq\tt\tnews\n", "sports\nsports\n", 50),
    "MLQA": ("", QUESTIONS, json.dumps(ANSWERS), 100),
    "XNLI": ("", "a\tb\tneutral\na\tb\tentailment\n", "neutral\nneutral\n", 50),
    "PAWSX": ("", "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n2\ta\tb\t1\n", "0\n1\n", 100),
    "QADSM": ("", "q\ta\td\tGood\n", "Bad\n", 0),
    "WPR": ("", "q\tt\ts\t4\nq\tt\ts\t0\nr\tt\ts\t1\nq\tt\ts\t0\nq\tt\ts\t1\n", "0\n4\n2\n0.1\n0.7\n", 81.55),
    "QAM": ("", "q\ta\t1\n", "1\n", 100),
    "QG": ("", "Was ist das für ein Haus ?\n", "was ist das für ein haus ?\n", 100),
    "NTG": ("", "Was ist das für ein Haus ?\n", "anderes\n", 0),
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
