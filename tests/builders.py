"""Files of tasks, command lines and values that several tests build."""

import json
import random

import pytest

from tests.command_line import cli
from tests.commands import (
    MAX_POSITIONS,
    OPTIMIZATION,
    SIZE,
    evaluated,
    labeled,
    run_eval_lm,
)
from tests.tasks.tiny_text import WORDS, sentences

SPLITS = {"train": 120, "valid": 31, "test": 29}  # odd: last batches are partial
TYPES = {"nc": "classification", "ner": "tagging", "qa": "question_answering"}
CODES = ("en", "de", "fr")
FILES = {"ranking": "tsv", "tagging": "tsv", "question_answering": "json"}  # endings of their names
NAMES = tuple(FILES)


def write(path, *lines):
    """Writes lines to a file in a folder that it makes if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def squad(*paragraphs):
    """A file in SQuAD's format of paragraphs (context, (id, question, answer …) …)."""

    def question(context, name, text, *answers):
        found = [{"text": answer, "answer_start": context.index(answer)} for answer in answers]
        return {"id": name, "question": text, "answers": found}

    data = [
        {"paragraphs": [{"context": context, "qas": [question(context, *each) for each in questions]}]}
        for context, *questions in paragraphs
    ]
    return json.dumps({"data": data}, ensure_ascii=False)


def write_task(root, sides):
    """SPLIT.XX.tsv: the label of a sentence says whether its word is that for `river` or for `stone`.

    In pairs, the second side decides the label; the first has either word at random.
    """
    root.mkdir()
    for split, count in SPLITS.items():
        rng = random.Random(split)
        drawn = sentences(WORDS, count * sides, f"{split} classes")
        for code in ("en", "de", "fr"):
            lines = []
            for number in range(count):
                texts, topic = [], None
                for side in range(sides):
                    topic = rng.randrange(2)
                    plain = [
                        word for word in drawn[code][number * sides + side].split() if word not in WORDS[code][3:5]
                    ]
                    plain.insert(rng.randint(0, len(plain)), WORDS[code][3 + topic])
                    texts.append(" ".join(plain))
                lines.append("\t".join((("river", "stone")[topic], *texts)))
            (root / f"{split}.{code}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return root


def write_others(root):
    """Writes files of tagging and of questions in English and German: {name of the task: folder}."""
    for name in ("ner", "qa"):
        (root / name).mkdir()
    for split, count in {"train": 50, "valid": 13, "test": 7}.items():
        drawn, rng = sentences(WORDS, count, f"{split} several"), random.Random(split)
        for code in ("en", "de"):
            tags = "\n".join(tagged(code, drawn[code], rng)).replace("B-X", "X").replace("I-X", "LOC")
            (root / f"ner/{split}.{code}.tsv").write_text(tags, encoding="utf-8")
            (root / f"qa/{split}.{code}.json").write_text(asked(code, drawn[code], rng), encoding="utf-8")
    return {"ner": root / "ner", "qa": root / "qa"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{name of a task: folder of its files}: 240 sentences to classify, 100 to tag, 100 questions. Read only."""
    root = tmp_path_factory.mktemp("several")
    return {"nc": write_task(root / "nc", sides=1)} | write_others(root)


def several(data, folders, save_dir, *more, others=(), options=""):
    """A command line of fairseq-train: one layer of 16 channels in passes over several objectives.

    Args:
        folders: {a name of `TYPES`, or of a task type: folder of its files in English and German}.
        others: names of objectives without labels.
        options: further --objective-options, which override.
    """
    common = {"train_langs": "en,de", "eval_langs": "en,de", "length": MAX_POSITIONS}
    short = {"qa": {"question_length": 8, "stride": 8}}
    settings = [
        f"{name}.{key}={value}"
        for name, folder in folders.items()
        for key, value in ({"task_files": folder} | common | short.get(name, {})).items()
    ]
    names = [*others, *(f"{name}={TYPES[name]}" if name in TYPES else name for name in folders)]
    return [
        data,
        *cli(task="xl_pretraining", criterion="xl_pretraining", arch="xl_xlm_tiny", layers=1, save_dir=save_dir),
        *cli(objectives=",".join(names), objective_options=" ".join([*settings, options]).strip()),
        *cli(updates_per_epoch="auto", batch_size=16),
        *SIZE,
        *OPTIMIZATION,
        *more,
    ]


def with_pair(code, line, rng, times=1):
    """The words of a line, repeated, without those for `river` and `stone`, then these two at a random place."""
    pair = WORDS[code][3:5]
    words = [word for word in line.split() if word not in pair] * times or [WORDS[code][0]]
    place = rng.randrange(len(words) + 1)
    return [*words[:place], *pair, *words[place:]], place


def tagged(code, lines, rng):
    """The words for `river` and `stone` are a span."""
    for line in lines:
        words, place = with_pair(code, line, rng)
        tags = ["O"] * place + ["B-X", "I-X"] + ["O"] * (len(words) - place - 2)
        yield from map("\t".join, zip(words, tags))
        yield ""


def ranked(code, lines):
    """A text is as relevant as it has words for `river`, at most 3; four texts a query, in two fields."""
    for number, line in enumerate(lines):
        words = line.split()
        count = min(3, words.count(WORDS[code][3]))
        yield f"{count}\tquery {number // 4}\t{words[0]}\t{line}"


def asked(code, lines, rng):
    """The answer is the words for `river` and `stone`."""
    articles = []
    for number, line in enumerate(lines):
        words, place = with_pair(code, line, rng, rng.choice((1, 1, 6)))
        answer = {"text": " ".join(words[place : place + 2]), "answer_start": len(" ".join([*words[:place], ""]))}
        question = {"id": f"{code}-{number}", "question": WORDS[code][0], "answers": [answer]}
        articles.append({"paragraphs": [{"context": " ".join(words), "qas": [question]}]})
    return json.dumps({"data": articles}, ensure_ascii=False)


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    """{name of the task: folder of its files}. Read only."""
    folders = {name: tmp_path_factory.mktemp(name) for name in NAMES}
    for split, count in SPLITS.items():
        drawn, rng = sentences(WORDS, count, f"{split} words"), random.Random(split)
        for code in CODES:
            made = {
                "tagging.tsv": "\n".join(tagged(code, drawn[code], rng)),
                "ranking.tsv": "\n".join(ranked(code, drawn[code])),
                "question_answering.json": asked(code, drawn[code], rng),
            }
            for name, content in made.items():
                task, suffix = name.split(".")
                (folders[task] / f"{split}.{code}.{suffix}").write_text(content, encoding="utf-8")
    return folders


def line(data, files, name, save_dir, *more):
    """A command line of fairseq-train: one layer of 16 channels on the files of a task in English and German."""
    arguments = [
        *cli(task=f"xl_{name}", criterion=f"xl_{name}", arch="xl_xlm_tiny", layers=1),
        *labeled(files[name], save_dir),
    ]
    short = ["--question-length", 8, "--stride", 8] if name == "question_answering" else []
    return [data, *arguments, *short, *more]


def rows(path):
    return [row.split("\t") for row in path.read_text(encoding="utf-8").splitlines()]


def read_predictions(name, path):
    """What a file of predictions says of each example: scores, or tags and answers."""
    if name == "question_answering":
        return list(json.loads(path.read_text(encoding="utf-8")).values())
    last = [row[-1] for row in rows(path)]
    return [float(score) for score in last] if name == "ranking" else last


def validation_losses(output):
    """[{name: value}] of every validation, from the log."""
    found = []
    for message in output.log.splitlines():
        if message.startswith('{"epoch"') and '"valid_' in message:  # of a training
            found.append({name.removeprefix("valid_"): value for name, value in json.loads(message).items()})
        elif "valid on 'valid' subset" in message:  # of fairseq-validate
            parts = [part.strip().partition(" ") for part in message.split(" | ")]
            found.append({name: value for name, _, value in parts})
    return found


def eval_lm(data, checkpoint, *more):
    return run_eval_lm(evaluated(data, "pretraining", checkpoint, *more, gen_subset="valid", max_tokens=256))
