"""fairseq-xl predict and translate: the same labels and text as fairseq-validate and fairseq-generate, line by line."""

import io
import json
import logging
import shutil
import sys

import pytest

import fairseq_xl
from fairseq_xl.commands import predict, translate
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import read_generated
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.evaluation.task_files import read_sentences
from fairseq_xl.io.text import is_blank
from tests.builders import FILES, NAMES, line as labeled_line, several, task_files, write_task  # noqa: F401
from tests.command_line import cli
from tests.commands import (
    classification,
    evaluated,
    generation,
    pretraining,
    run_generate,
    run_interactive,
    run_train,
    run_validate,
    trained,
    translation,
)
from tests.hostile_text import LINES
from tests.tasks.conftest import write_encoded
from tests.tasks.tiny_text import EMPTY, TEST_LINES
from tests.tasks.titles import write_titles

SHORT = ["--max-update", 4, "--lr", 0.02, "--disable-validation", "--no-epoch-checkpoints"]


ENDINGS = FILES | {"classification": "tsv"}


@pytest.fixture(scope="module")
def files(task_files, tmp_path_factory):
    """{name of a task: folder of its files}. Read only."""
    return task_files | {"classification": write_task(tmp_path_factory.mktemp("predicted") / "classification", 2)}


@pytest.fixture(scope="module")
def checkpoints(data_bin, files, tmp_path_factory):
    """{name of a task: checkpoint after a few updates}."""
    root = tmp_path_factory.mktemp("models")
    lines = {name: labeled_line(data_bin, files, name, root / name, *SHORT) for name in NAMES}
    lines["classification"] = classification(data_bin, files["classification"], root / "classification", *SHORT)
    return {name: trained(arguments) for name, arguments in lines.items()}


@pytest.fixture(scope="module")
def expected(data_bin, checkpoints, files, tmp_path_factory):
    """{name of a task: the German predictions of fairseq-validate}."""
    folder = tmp_path_factory.mktemp("expected")
    for name, checkpoint in checkpoints.items():
        options = dict(batch_size=3, predictions_to=folder / name, task_files=files[name])
        run_validate(evaluated(data_bin, name, checkpoint, **options))
    return {name: (folder / f"{name}/valid.de.{ENDINGS[name]}").read_text(encoding="utf-8") for name in checkpoints}


def unlabeled(name, files):
    """The German validation text as the command reads it."""
    path = files[name] / f"valid.de.{ENDINGS[name]}"
    if name == "question_answering":
        return [f"{each.context}\t{each.question}" for each in read_questions(path, "de")]
    if name == "tagging":
        return [" ".join(each.words) for each in read_sentences(path, "de")]
    return [line.partition("\t")[2] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def run(data_bin, capsys, monkeypatch):
    """Runs predict, or `command`, on lines of standard input; returns the lines that it printed."""

    def run_on(lines, checkpoint, *more, command=predict):
        stdin = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        capsys.readouterr()
        command.main(list(map(str, (checkpoint, data_bin, *more))))
        return capsys.readouterr().out.split("\n")[:-1]

    return run_on


# Labels


@pytest.mark.parametrize("more", [[], ["--batch-size", 2, "--buffer-size", 3], ["--max-tokens", 40]])
def test_classes_are_those_of_validation(checkpoints, expected, files, run, more):
    """A blank line gets a blank line in its place."""
    lines = unlabeled("classification", files)
    found = run([*lines[:4], "", *lines[4:]], checkpoints["classification"], "--lang", "de", *more)
    assert found.pop(4) == ""
    rows = [row.split("\t") for row in expected["classification"].splitlines()]
    shown = [line.split("\t") for line in found]
    assert [label for label, _ in shown] == [label for *_, label, _ in rows] and len(shown) == 31
    assert [float(value) for _, value in shown] == pytest.approx([float(value) for *_, value in rows], abs=2e-6)


def test_all_classes_with_their_probabilities(checkpoints, files, run):
    lines = unlabeled("classification", files)[:3]
    checkpoint = checkpoints["classification"]
    best = [line.split("\t") for line in run(lines, checkpoint, "--lang", "de")]
    for (label, probability), line in zip(best, run(lines, checkpoint, "--lang", "de", "--probabilities"), strict=True):
        first, highest, second, lowest = line.split("\t")
        assert (first, highest) == (label, probability) and {first, second} == {"river", "stone"}
        assert float(highest) + float(lowest) == pytest.approx(1, abs=2e-6) and float(highest) >= float(lowest)
    records = list(map(json.loads, run([*lines, ""], checkpoint, "--lang", "de", "--json")))
    assert records.pop() is None
    for (label, probability), record in zip(best, records, strict=True):
        assert record["label"] == label == max(record["probabilities"], key=record["probabilities"].get)
        assert record["probability"] == record["probabilities"][label] == pytest.approx(float(probability), abs=1e-6)


def test_scores_tags_and_answers_are_those_of_validation(checkpoints, expected, files, run):
    found = {
        name: run(unlabeled(name, files), checkpoints[name], "--lang", "de", "--buffer-size", 4)
        for name in ("ranking", "tagging", "question_answering")
    }
    scores = {int(line): float(score) for line, *_, score in map(str.split, expected["ranking"].splitlines())}
    assert [float(score) for score in found["ranking"]] == pytest.approx([scores[n + 1] for n in range(31)], abs=2e-6)
    of_sentences = [block.split("\n") for block in expected["tagging"].strip("\n").split("\n\n")]
    assert found["tagging"] == [" ".join(row.split("\t")[2] for row in block) for block in of_sentences]
    assert found["question_answering"] == list(json.loads(expected["question_answering"]).values())


def test_records_of_answers_and_tags(checkpoints, files, run):
    lines = unlabeled("question_answering", files)
    for line, shown in zip(lines, run(lines, checkpoints["question_answering"], "--lang", "de", "--json")):
        record = json.loads(shown)
        assert line.startswith(record["answer"], record["start"]) and record["answer"] and record["score"] < 1e3
    (record,) = run(["das  Haus\tGarten"], checkpoints["tagging"], "--lang", "de", "--json")
    assert json.loads(record)["words"] == ["das", "Haus", "Garten"] and len(json.loads(record)["tags"]) == 3


def test_each_buffer_is_answered_before_the_next_line_is_read(data_bin, checkpoints, monkeypatch):
    """As a program that talks to the command through pipes needs it; the output is flushed."""
    written, seen = io.BytesIO(), []

    class Asking:
        def readline(self, size):
            if len(seen) < 3:
                seen.append(written.getvalue().count(b"\n"))
                return b"Haus\n"
            return b""

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stdin", Asking())
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, write_through=False))
    predict.main([str(checkpoints["tagging"]), str(data_bin), "--lang", "de", "--buffer-size", "1"])
    assert seen == [0, 1, 2]


def test_a_folder_with_model_and_dictionary(data_bin, checkpoints, files, tmp_path, run, capsys):
    for name in ("dict.txt", "sentencepiece.model"):
        shutil.copy(data_bin / name, tmp_path)
    shutil.copy(checkpoints["tagging"], tmp_path / "checkpoint.pt")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in unlabeled("tagging", files)), encoding="utf-8")
    predict.main([str(tmp_path), "--lang", "de", "--input", str(tmp_path / "text")])
    found = capsys.readouterr().out.splitlines()
    assert found == run(unlabeled("tagging", files), checkpoints["tagging"], "--lang", "de")


def test_truncated_lines_are_named(checkpoints, run, caplog):
    caplog.set_level(logging.WARNING)
    long = " ".join(["Haus"] * 60)
    lines = ["Haus\tHaus", "", "", f"Haus\t{long}"]
    found = run(lines, checkpoints["classification"], "--lang", "de", "--buffer-size", 2)
    assert len(found) == 4 and "standard input: 1 lines are truncated to --length 40 tokens: 4" in caplog.text


def test_unknown_text_is_named(checkpoints, run, caplog):
    run(["我们\t我们"], checkpoints["classification"], "--lang", "de")
    assert "standard input: 50 % of the tokens are <unk>" in caplog.messages


def test_wrong_lines_and_options(data_bin, checkpoints, run, tmp_path):
    cases = [
        ("classification", ["Haus"], [], "standard input, line 1: expected text TAB text, found 'Haus'"),
        ("classification", ["a\tb", "a\t "], [], r"line 2: expected text TAB text, found 'a\\t '"),
        ("ranking", ["Haus"], [], "line 1: expected query TAB text TAB text, found 'Haus'"),
        ("ranking", ["a\tb"], [], "line 1: expected query TAB text TAB text"),
        ("question_answering", ["Haus"], [], "line 1: expected context TAB question"),
        ("tagging", ["Haus"], ["--probabilities"], "--probabilities: the model has no classes"),
        ("tagging", ["Haus"], ["--json", "--probabilities"], "--probabilities: leave it out"),
        ("tagging", ["Haus"], ["--lang", "xx"], "language 'xx' has no symbol in the dictionary"),
        ("tagging", ["Haus"], ["--objective", "ner"], "--objective ner: expected one of tagging"),
        ("tagging", ["Haus " * 9], ["--max-tokens", 5], "a sentence needs 11 tokens with padding"),
        ("tagging", ["Haus"], ["--batch-size", 0], "--batch-size 0: 1 or more is needed"),
        ("tagging", ["Haus"], ["--beam", 5], "--beam: expected a model that translates or generates text, found .*.pt"),
        ("classification", ["a\tb"], ["--max-len-a", 0, "--lenpen", 1], "--max-len-a, --lenpen: expected a model that"),
        ("tagging", ["Haus"], ["--input", tmp_path / "no"], "no: no such file"),
    ]
    for name, lines, more, message in cases:
        with pytest.raises(UserError, match=message):
            run(lines, checkpoints[name], "--lang", "de", *more)
    with pytest.raises(UserError, match="does not translate: use `fairseq-xl predict`"):
        run(["Haus"], checkpoints["tagging"], "-s", "en", command=translate)
    with pytest.raises(UserError, match="--lang is missing: name the language of the text, one of en, de, fr"):
        run(["Haus"], checkpoints["tagging"])
    with pytest.raises(UserError, match="no.pt"):
        run(["Haus"], tmp_path / "no.pt", "--lang", "de")
    run_train([*pretraining(data_bin, tmp_path), "--max-update", 1, "--disable-validation"])
    with pytest.raises(
        UserError, match="checkpoint_last.pt was trained by xl_pretraining: expected a fine-tuned model"
    ):
        run(["Haus"], tmp_path / "checkpoint_last.pt", "--lang", "de")


@pytest.mark.parametrize("command", [run_generate, lambda line: run_interactive(line, ["Haus"])])
def test_commands_that_generate_text_name_this_one(data_bin, checkpoints, files, command):
    line = [data_bin, *cli(task="xl_tagging", path=checkpoints["tagging"], user_dir="fairseq_xl", length=40)]
    with pytest.raises(UserError, match="generates no text: `fairseq-xl predict CHECKPOINT DATA` predicts classes"):
        command([*line, *cli(task_files=files["tagging"], gen_subset="valid", batch_size=1)])


def test_objectives(data_bin, files, tmp_path, run):
    """Each labelled objective of a model predicts with its own head."""
    folders = {"nc": files["classification"], "ner": files["tagging"]}
    checkpoint = trained(several(data_bin, folders, tmp_path, *SHORT))
    (tags,) = run(["das Haus"], checkpoint, "--lang", "de", "--objective", "ner")
    (label,) = run(["das Haus\tGarten"], checkpoint, "--lang", "de", "--objective", "nc")
    assert len(tags.split(" ")) == 2 and label.split("\t")[0] in ("river", "stone")
    (record,) = fairseq_xl.load(checkpoint, data=data_bin).predict(["das Haus"], "de", objective="ner")
    assert record["tags"] == tags.split(" ")
    for more, message in (
        ([], "--objective is missing: expected one of nc, ner"),
        (["--objective", "x"], "--objective x: expected one of nc, ner"),
    ):
        with pytest.raises(UserError, match=message):
            run(["das Haus"], checkpoint, "--lang", "de", *more)


# Text


@pytest.fixture(scope="module")
def translator(data_bin, tmp_path_factory):
    """A checkpoint of en-de and de-en."""
    folder = tmp_path_factory.mktemp("translator")
    options = cli(lang_pairs="en-de,de-en", max_epoch=16, max_tokens=512, lr=0.01, no_epoch_checkpoints=True)
    run_train(translation(data_bin, folder, *options, "--disable-validation"))
    return folder / "checkpoint_last.pt"


def test_translations_are_those_of_generate(data_bin, corpus, translator, run, tmp_path, caplog):
    """The empty line stays empty; the long one is truncated."""
    common = cli(task="xl_translation", user_dir="fairseq_xl", path=translator, beam=3, max_len_b=12)
    arguments = [data_bin, *common, "-s", "en", "-t", "de", "--remove-bpe", "sentencepiece"]
    run_generate([*arguments, "--results-path", tmp_path])
    lines = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()
    for more in ([], ["--buffer-size", 4, "--batch-size", 2]):
        found = run(lines, translator, "-s", "en", "-t", "de", "--beam", 3, "--max-len-b", 12, *more, command=translate)
        assert found == read_generated(tmp_path / "generate-test.txt")[0] and len(found) == TEST_LINES
        assert found[EMPTY] == "" and len(set(found)) > 5
    assert "standard input: 1 lines are truncated to 40 tokens: 10" in caplog.text
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", data_bin / "sentencepiece.model"]
    output = run_interactive([*arguments, *bpe], lines).lines("D")
    assert found == [output[number][0].partition("\t")[2] for number in range(TEST_LINES)]
    records = [
        json.loads(line)
        for line in run(
            lines, translator, "-s", "en", "-t", "de", "--beam", 3, "--max-len-b", 12, "--json", command=translate
        )
    ]
    for number, record in enumerate(records):
        score, _, text = output[number][0].partition("\t")
        assert record is None if number == EMPTY else record["text"] == text
        assert record is None or record["score"] == pytest.approx(float(score), abs=1e-4)


def test_text_is_that_of_generate_and_of_interactive(translator, run, tmp_path):
    """Whatever it has of white space, line ends and invisible characters: as many lines, and the same output."""
    data = write_encoded(tmp_path, test={"en": LINES, "de": ["" if is_blank(line) else "das" for line in LINES]})
    limit = dict(max_len_a=0.35, max_len_b=1)
    common = cli(task="xl_translation", user_dir="fairseq_xl", path=translator, beam=1, **limit)
    arguments = [data, *common, "-s", "en", "-t", "de", "--remove-bpe", "sentencepiece"]
    run_generate([*arguments, "--results-path", tmp_path])
    found = run(LINES, translator, "-s", "en", "-t", "de", "--beam", 1, *cli(**limit), command=translate)
    assert found == read_generated(tmp_path / "generate-test.txt")[0] and len(found) == len(LINES)
    assert [not text for text in found] == [is_blank(line) for line in LINES]
    output = run_interactive([*arguments, "--bpe", "xl_subwords"], LINES).lines("D")
    assert found == [output[number][0].partition("\t")[2] for number in range(len(LINES))]
    loaded = fairseq_xl.load(translator, data=data)
    assert found == loaded.translate(LINES, "en", "de", beam=1, **limit)


def test_directions_of_translation(translator, run):
    for more, message in (
        ([], "give --source-lang and --target-lang; .*checkpoint_last.pt has en-de, de-en"),
        (["-s", "en"], "give --source-lang and --target-lang"),
        (["-s", "en", "-t", "fr"], "the model was trained for en-de, de-en, not for en-fr"),
        (["-s", "en", "-t", "xx"], "language 'xx' has no symbol in the dictionary"),
        (["-s", "en", "-t", "de", "--max-tokens", 5], "standard input: a line has 7 tokens, more than --max-tokens 5"),
        (["--beam", 99999999], "--beam 99999999: a number below 10000 is needed"),
        (["--max-len-a", "inf"], "--max-len-a inf: a number below"),
        (["--max-len-a", 0.3, "--max-len-b", 0], "--max-len-a 0.3, --max-len-b 0: the text for a source of 3 tokens"),
        (["--lenpen", "nan"], "--lenpen nan: a number below"),
        (["--no-repeat-ngram-size", -1], "--no-repeat-ngram-size -1: 0 or more is needed"),
    ):
        with pytest.raises(UserError, match=message):
            run(["the house garden river stone"], translator, *more, command=translate)
    with pytest.raises(UserError, match="checkpoint_last.pt translates: use `fairseq-xl translate`"):
        run(["the house"], translator, "--lang", "en")


def test_the_shortest_texts(translator, run):
    """A piece at least: also where the length of the text depends on the source's alone."""
    lines = ["the", "the house garden"]
    for more in (["--max-len-b", 1], ["--max-len-a", 0.34, "--max-len-b", 0]):
        assert all(run(lines, translator, "-s", "en", "-t", "de", *more, command=translate))


def test_titles_are_those_of_generate(data_bin, tmp_path, run, caplog):
    files = write_titles(tmp_path / "files")
    options = cli(max_epoch=3, lr=0.02, no_epoch_checkpoints=True, disable_validation=True)
    checkpoint = trained(generation(data_bin, files, tmp_path / "run", *options, "--length", 10))
    common = cli(task="xl_generation", user_dir="fairseq_xl", path=checkpoint, task_files=files, eval_langs="de")
    options = cli(beam=2, max_len_a=0.5, max_len_b=3, lenpen=0.2, no_repeat_ngram_size=1)
    run_generate([data_bin, *common, *options, *cli(remove_bpe="sentencepiece", results_path=tmp_path / "to")])
    lines = (files / "test.de.src").read_text(encoding="utf-8").splitlines()
    found = run(lines, checkpoint, "--lang", "de", *options)
    assert found == read_generated(tmp_path / "to" / "generate-test.txt")[0] and len(set(found)) > 1
    assert run(["das Haus " * 9], checkpoint, "--lang", "de")
    assert "standard input: 1 lines are truncated to 10 tokens: 1" in caplog.text  # --length of the fine-tuning
