"""Ranking, tagging and question answering by fairseq-train and fairseq-validate: they learn, predict and resume."""

import json
import random

import pytest
import torch

from fairseq_xl.commands import score_tagging
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import spans
from fairseq_xl.evaluation.question_answering_scores import scores
from fairseq_xl.evaluation.ranking_scores import ndcg
from fairseq_xl.evaluation.squad import read_questions
from fairseq_xl.evaluation.task_files import read_queries, read_sentences
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.objectives.tagging import Tagging
from tests.builders import (
    CODES,
    FILES,
    NAMES,
    SPLITS,
    line,
    read_predictions,
    rows,
    task_files,  # noqa: F401
    validation_losses,
)
from tests.command_line import cli
from tests.commands import equal_parameters, load, run_train, run_validate
from tests.tasks.resuming import check_epochs_of_examples
from tests.tasks.tiny_text import WORDS, sentences

LEARNING = ["--embed-dim", 32, "--ffn-dim", 64, "--dropout", 0, "--attention-dropout", 0, "--head-dropout", 0]


@pytest.fixture(scope="module")
def learned(data_bin, task_files, tmp_path_factory):
    """{name of the task: (folder of the run, its output)}."""
    made = {}
    for name, metric in zip(NAMES, ("ndcg", "f1", "f1")):
        folder = tmp_path_factory.mktemp(name)
        select = ["--best-checkpoint-metric", metric, "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
        arguments = line(data_bin, task_files, name, folder, "--max-epoch", 3, "--lr", 0.01, *select, *LEARNING)
        made[name] = folder, run_train(arguments)
    return made


def predicted(data, learned, name, to, *more):
    """Runs fairseq-validate with --predictions-to; returns its metrics."""
    options = cli(task=f"xl_{name}", path=learned[name][0] / "checkpoint_best.pt", user_dir="fairseq_xl", batch_size=8)
    (found,) = validation_losses(run_validate([data, *options, "--predictions-to", to, *more]))
    return found


@pytest.fixture(scope="module")
def validated(data_bin, learned, tmp_path_factory):
    """{name of the task: (folder of the predictions, metrics)}."""
    folders = {name: tmp_path_factory.mktemp(f"validated-{name}") for name in NAMES}
    return {name: (folder, predicted(data_bin, learned, name, folder)) for name, folder in folders.items()}


def test_training_files_are_read_once(data_bin, task_files, tmp_path, monkeypatch):
    read, paths = Tagging.read, []
    monkeypatch.setattr(Tagging, "read", lambda self, *file: paths.append(file[0].name) or read(self, *file))
    run_train(line(data_bin, task_files, "tagging", tmp_path, "--max-update", 1))
    assert paths.count("train.en.tsv") == 1 and "valid.de.tsv" in paths


def test_ranking_is_learned_and_every_line_scored(task_files, validated):
    folder, found = validated["ranking"]
    best = []
    for code in ("en", "de"):
        queries = read_queries(task_files["ranking"] / f"valid.{code}.tsv", code)
        scored = {int(number): float(score) for number, _, _, score in rows(folder / f"valid.{code}.tsv")}
        assert sorted(scored) == list(range(1, SPLITS["valid"] + 1))
        values = [ndcg(query.relevance, [scored[number] for number in query.lines]) for query in queries]
        assert len(values) == 8
        best += [any(query.relevance) for query in queries]  # a query without a relevant text has 0
        assert float(found[f"ndcg_{code}"]) == pytest.approx(100 * sum(values) / len(values), abs=0.01)
    assert float(found["ndcg"]) > 95 * sum(best) / len(best) > 50


def test_tagging_is_learned_and_every_word_tagged(data_bin, task_files, learned, tmp_path):
    found = predicted(data_bin, learned, "tagging", tmp_path, "--eval-langs", "en,de,fr", "--length", 12)
    means = {"f1": [], "accuracy": []}
    for code in CODES:
        expected = read_sentences(task_files["tagging"] / f"valid.{code}.tsv", code)
        written = rows(tmp_path / f"valid.{code}.tsv")
        assert [row[:2] for row in written if row != [""]] == [
            list(pair) for example in expected for pair in zip(example.words, example.tags)
        ]
        tags, place = [], 0
        for example in expected:
            tags.append([row[2] for row in written[place : place + len(example.words)]])
            place += len(example.words) + 1
        score = spans.score([list(example.tags) for example in expected], tags)["f1"]
        assert float(found[f"f1_{code}"]) == pytest.approx(score, abs=0.01)
        for measure, values in means.items():
            values.append(float(found[f"{measure}_{code}"]))
    for measure, values in means.items():
        assert float(found[measure]) == pytest.approx(sum(values) / 3, abs=0.01)
    assert means["f1"][0] > 90 and means["f1"][1] > 90 and means["accuracy"][0] > 95


def parts_of_speech(code, lines, rng):
    """Two in three words are of the part of speech X, whose spans depend on the sentences before; some have another."""
    for text in lines:
        for word in text.split():
            tag = ("X", "NOUN", "X")[len(word) % 3]
            yield f"{word}\t{rng.choice((tag, tag, tag, tag, 'NOUN'))}"
        yield ""


def test_parts_of_speech_are_selected_by_their_score(data_bin, tmp_path, capsys):
    """F1 and accuracy of the log are those of `fairseq-xl score tagging`, whatever the batches."""
    drawn, rng = sentences(WORDS, 31, "parts of speech"), random.Random(1)
    for split in ("train", "valid", "test"):
        for code in ("en", "de"):
            content = "\n".join(parts_of_speech(code, drawn[code], rng))
            (tmp_path / f"{split}.{code}.tsv").write_text(content, encoding="utf-8")
    select = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"]
    files, run = {"tagging": tmp_path}, tmp_path / "run"
    output = run_train(line(data_bin, files, "tagging", run, "--max-epoch", 4, "--lr", 0.01, *select))
    seen = validation_losses(output)
    better = max(float(each["accuracy"]) for each in seen)
    found = predicted(data_bin, {"tagging": (run,)}, "tagging", tmp_path / "to", "--batch-size", 5)
    capsys.readouterr()
    score_tagging.main([str(tmp_path / "to"), "--split", "valid", "--langs", "en,de"])
    scored = json.loads(capsys.readouterr().out)
    for code in ("en", "de"):
        for measure in ("f1", "accuracy"):
            assert float(found[f"{measure}_{code}"]) == scored["languages"][code][measure], scored
    assert float(found["accuracy"]) == pytest.approx(better, abs=0.01)
    assert any(each["f1"] == found["f1"] and each["accuracy"] == found["accuracy"] for each in seen)


def test_answers_are_learned_and_every_question_answered(task_files, validated):
    folder, found = validated["question_answering"]
    windows = 0
    for code in ("en", "de"):
        questions = read_questions(task_files["question_answering"] / f"valid.{code}.json", code)
        answers = json.loads((folder / f"valid.{code}.json").read_text(encoding="utf-8"))
        assert list(answers) == [question.id for question in questions]
        pairs = [scores(answers[each.id], [each.answers[0][0]], "squad", code) for each in questions]
        for name, values in zip(("exact_match", "f1"), zip(*pairs)):
            assert float(found[f"{name}_{code}"]) == pytest.approx(100 * sum(values) / len(values), abs=0.01)
        windows += sum(len(each.context.split()) > 30 for each in questions)
    assert windows > 5  # contexts that are longer than --length
    assert float(found["f1"]) > 90


@pytest.mark.parametrize("name", NAMES)
def test_predictions_in_16_bits(data_bin, learned, validated, tmp_path, name):
    """fairseq-validate --fp16: scores agree within a hundred times the rounding, and 98 % of tags and answers."""
    folder, whole = validated[name]
    half = predicted(data_bin, learned, name, tmp_path, "--fp16")
    assert float(half["loss"]) == pytest.approx(float(whole["loss"]), abs=0.02) and half["loss"] != "nan"
    for code in ("en", "de"):
        one, other = (read_predictions(name, root / f"valid.{code}.{FILES[name]}") for root in (folder, tmp_path))
        if name == "ranking":
            assert one == pytest.approx(other, abs=100 * torch.finfo(torch.float16).eps) and one != other
        else:
            same = sum(left == right for left, right in zip(one, other, strict=True))
            assert same >= 0.98 * len(one) > 0


@pytest.mark.parametrize("name", NAMES)
def test_training_in_bf16(data_bin, task_files, tmp_path, name):
    """The losses are those of 32 bits within the type's rounding; validation scores every language."""
    more = ["--max-update", 3, "--no-save", *LEARNING]
    whole, half = (run_train(line(data_bin, task_files, name, tmp_path, *more, *bits)) for bits in ([], ["--bf16"]))
    losses = [[float.fromhex(loss) for loss in output.losses] for output in (whole, half)]
    assert losses[1] == pytest.approx(losses[0], rel=torch.finfo(torch.bfloat16).eps) and losses[0] != losses[1]
    expected, found = (validation_losses(output)[-1] for output in (whole, half))
    assert expected.keys() == found.keys()
    assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=torch.finfo(torch.bfloat16).eps)


def test_resume_of_windows_is_exact(data_bin, task_files, tmp_path):
    def run(folder, *more):
        return line(data_bin, task_files, "question_answering", folder, *more)

    check_epochs_of_examples(run, tmp_path)


def test_resume_of_ranking_is_exact(data_bin, task_files, tmp_path):
    """An epoch has 60 queries of four texts, 4 updates of 16; the second one is left in its middle."""

    def trained(folder, *ends):
        for end in ends:
            more = ["--max-update", end, "--disable-validation", "--no-epoch-checkpoints"]
            output = run_train(line(data_bin, task_files, "ranking", tmp_path / folder, *more))
        return output, load(tmp_path / folder / "checkpoint_last.pt")

    whole, parts = trained("whole", 8), trained("parts", 6, 8)
    assert parts[0].losses == whole[0].losses[6:] and equal_parameters(whole[1], parts[1])
    state = load_plain(tmp_path / "parts/checkpoint_last.pt")
    assert state["task_state"]["fairseq_xl"]["type_state"] == {"num_texts": 3}


def test_another_task_takes_the_encoder_and_not_the_head(data_bin, task_files, learned, tmp_path):
    checkpoint = learned["tagging"][0] / "checkpoint_best.pt"
    options = cli(task="xl_ranking", path=checkpoint, user_dir="fairseq_xl", batch_size=8)
    with pytest.raises(UserError, match="was trained with --task xl_tagging, not with xl_ranking"):
        run_validate([data_bin, *options, "--task-files", task_files["ranking"]])
    new = line(data_bin, task_files, "ranking", tmp_path, *LEARNING, "--max-update", 1, "--disable-validation")
    with pytest.raises(UserError, match="has no head of xl_ranking: fine-tune its encoder with --init-from"):
        run_train([*new, "--finetune-from-model", checkpoint])
    assert len(run_train([*new, "--init-from", checkpoint]).updates) == 1


def test_validation_in_fewer_languages_than_the_test(data_bin, task_files, tmp_path):
    files = {"tagging": tmp_path / "files"}
    files["tagging"].mkdir()
    for name in ("train.en", "train.de", "valid.en", "test.en", "test.de"):
        (files["tagging"] / f"{name}.tsv").write_bytes((task_files["tagging"] / f"{name}.tsv").read_bytes())
    output = run_train(line(data_bin, files, "tagging", tmp_path / "run", "--max-update", 1, "--valid-langs", "en"))
    (found,) = validation_losses(output)
    assert found["f1_en"] == found["f1"] and "f1_de" not in found
    with pytest.raises(UserError, match="valid.de.tsv: no such file of labeled text"):
        run_train(line(data_bin, files, "tagging", tmp_path / "other", "--max-update", 1))


def test_a_long_query_is_refused_with_a_way_out(data_bin, task_files, tmp_path):
    with pytest.raises(UserError, match=r"a query with all its texts needs \d+ tokens with padding, .*max-tokens 50"):
        run_train(line(data_bin, task_files, "ranking", tmp_path, "--max-tokens", 50))


def test_unknown_tags_count_as_errors(data_bin, task_files, learned, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "valid.en.tsv").write_text("the\tO\nhouse\tB-NEW\n\nriver\tB-X\n", encoding="utf-8")
    more = ["--task-files", files, "--eval-langs", "en"]
    found = predicted(data_bin, learned, "tagging", tmp_path, *more)
    assert (float(found["accuracy"]), float(found["f1"])) == (66.67, 66.67)


ANSWERED = {"id": "1", "question": "a", "answers": [{"text": "river", "answer_start": 4}]}
PARAGRAPH = {"context": "the river stone", "qas": [ANSWERED, {"id": "2", "question": "a"}]}
UNLABELED = {  # files with one labeled and one unlabeled example
    "ranking": ("tsv", "1\tq\ta\twater\n0\tq\ta\tbook\n_\tr\ta\twater\n_\tr\ta\tbook\n"),
    "tagging": ("tsv", "the\tO\n\nriver\t_\n"),
    "question_answering": ("json", json.dumps({"data": [{"paragraphs": [PARAGRAPH]}]})),
}


@pytest.mark.parametrize("name", UNLABELED)
def test_text_without_labels_is_predicted_and_not_scored(data_bin, task_files, learned, tmp_path, name):
    suffix, content = UNLABELED[name]
    files = tmp_path / "files"
    files.mkdir()
    for split in ("train", "valid"):
        (files / f"{split}.en.{suffix}").write_text(content, encoding="utf-8")
    more = ["--task-files", files, "--eval-langs", "en"]
    sample = predicted(data_bin, learned, name, tmp_path, *more)
    lines = content.count("\n") + {"json": 4}.get(suffix, name == "tagging")
    assert sample["loss"] and (tmp_path / f"valid.en.{suffix}").read_text().count("\n") == lines
    arguments = line(data_bin, {name: files}, name, tmp_path / "run", "--train-langs", "en", "--eval-langs", "en")
    with pytest.raises(UserError, match="(line 3|question '2'): training text without a label"):
        run_train(arguments)
