"""Small task files of recipes."""

import json

TAGGED = "the\tO\nriver\tB-X\nstone\tI-X\n\nwater\tO\n\n"
RANKED = "1\triver\tthe river\n0\triver\twater\n"


def asked(name):
    answers = [{"text": "river", "answer_start": 4}]
    question = {"id": name, "question": "river", "answers": answers}
    return json.dumps({"data": [{"paragraphs": [{"context": "the river stone", "qas": [question]}]}]})
