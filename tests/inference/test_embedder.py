"""Sentence retrieval through its command, from checkpoints of every task."""

import json
from argparse import Namespace

import pytest

from fairseq_xl.commands.search_pairs import main
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval_scores import averages, cosine, evaluate_similarity, read_pairs
from fairseq_xl.inference.embedder import Embedder, Embedders, batches
from tests.commands import pretraining, run_train, translation
from tests.tasks.tiny_text import sentences, write


@pytest.fixture(scope="module")
def checkpoints(data_bin, tmp_path_factory):
    """{task: a checkpoint after one update}; the pre-training one has two layers."""
    folder = tmp_path_factory.mktemp("checkpoints")
    lines = {
        "pretraining": pretraining(data_bin, folder / "pretraining", "--layers", 2),
        "translation": translation(data_bin, folder / "translation", "-s", "en", "-t", "de"),
    }
    for line in lines.values():
        run_train([*line, "--max-update", 1, "--disable-validation"])
    return {task: folder / task / "checkpoint_last.pt" for task in lines}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Prefixes of 40 held-out and 30 test pairs in en and de."""
    root = tmp_path_factory.mktemp("pairs")
    for name, count in (("dev", 40), ("test", 30)):
        for code, lines in sentences(("en", "de"), count, f"retrieval {name}").items():
            write(root / f"{name}.{code}", [*lines[:10], "", *lines[10:]])
    return root


def retrieve(capsys, *arguments):
    capsys.readouterr()
    main([str(argument) for argument in arguments])
    return json.loads(capsys.readouterr().out)


def test_the_sentences_found_are_written_to_a_file(data_bin, checkpoints, pairs, tmp_path, capsys):
    """Their accuracies are those of the scores, without the empty line of the test pairs."""
    result = retrieve(
        capsys,
        checkpoints["pretraining"],
        data_bin,
        *("--layer", 1, "--pooling", "mean", "--test", f"en-de={pairs / 'test'}", "--found-to", tmp_path / "found"),
    )
    rows = [line.split("\t") for line in (tmp_path / "found/en-de.tsv").read_text().splitlines()]
    entry = result["test"]["en-de"]
    assert [row[0] for row in rows] == [str(number) for number in range(1, entry["pairs"] + 1)] and len(rows) == 30
    for column, way in ((1, "forward"), (2, "backward")):
        right = sum(row[column] == row[0] for row in rows)
        assert entry["margin"][way]["accuracy"] == round(100 * right / len(rows), 2)
    assert 0 < sum(row[1] == row[0] for row in rows) < 30


def test_every_layer_and_pooling_is_tried_and_the_best_is_reported(data_bin, checkpoints, pairs, capsys):
    checkpoint = checkpoints["pretraining"]
    named = [f"en-de={pairs / name}" for name in ("dev", "test")]
    result = retrieve(capsys, checkpoint, data_bin, "--dev", named[0], "--test", named[1])
    tried = {(row["layer"], row["pooling"]): row["margin"] for row in result["dev"]}
    assert set(tried) == {(layer, pooling) for layer in (0, 1, 2) for pooling in ("mean", "first")}
    best = result["layer"], result["pooling"]
    assert tried[best] == max(tried.values()) > min(tried.values())
    single = retrieve(capsys, checkpoint, data_bin, "--layer", best[0], "--pooling", best[1], "--test", named[1])
    assert single == {key: value for key, value in result.items() if key != "dev"}
    on_dev = retrieve(capsys, checkpoint, data_bin, "--layer", best[0], "--pooling", best[1], "--test", named[0])
    assert on_dev["average"]["margin"] == tried[best]
    entry = result["test"]["en-de"]
    accuracies = [entry["margin"][way]["accuracy"] for way in ("forward", "backward")]
    tests = "--test", named[1], "--test", named[0].replace("en-de", "de-en")
    repeated = retrieve(capsys, checkpoint, data_bin, "--dev", named[0], *tests)
    assert list(repeated["test"]) == ["en-de", "de-en"] and repeated["test"]["en-de"] == entry
    assert entry["pairs"] == 30 and result["average"]["margin"] == round(sum(accuracies) / 2, 2)


@pytest.mark.parametrize("task", ["pretraining", "translation"])
def test_sentences_find_themselves(data_bin, checkpoints, tmp_path, capsys, task):
    """The same files under the same language twice: 100 % in either direction."""
    for code in ("en", "de"):
        write(tmp_path / f"same.{code}", sentences(["en"], 30, "self")["en"])
    embedder = Embedder(checkpoints[task], data_bin)
    texts = read_pairs(tmp_path / "same", "en", "de")
    vectors = [embedder(text, "en", [(1, "mean")])[1, "mean"] for text in texts]
    result = evaluate_similarity(cosine(*vectors))
    assert all(result[score][way]["accuracy"] == 100 for score in result for way in result[score])


def test_batches_hold_sentences_of_similar_length():
    assert list(batches([3, 9, 2, 3, 20], 10)) == [[2, 0, 3], [1], [4]]
    assert list(batches([5] * 4, 10)) == [[0, 1], [2, 3]]


def test_average_over_pairs_and_directions():
    def entry(forward, backward):
        directions = {"forward": {"accuracy": forward}, "backward": {"accuracy": backward}}
        return {"pairs": 1, "cosine": directions | {"forward": {"accuracy": 0}}, "margin": directions}

    assert averages({"en-de": entry(10, 20), "en-fr": entry(30, 60)}) == {"cosine": 20, "margin": 30}


def test_pairs_that_are_blank_or_repeated(tmp_path):
    write(tmp_path / "x.en", ["a", "b", "", "c", "a", "d", "e"])
    write(tmp_path / "x.de", ["1", "2", "", "", "3", "2", "5 "])
    assert read_pairs(tmp_path / "x", "en", "de") == [["a", "b", "e"], ["1", "2", "5"]]


def test_sentences_longer_than_the_model(data_bin, checkpoints, caplog):
    embedder = Embedder(checkpoints["pretraining"], data_bin)
    row = embedder.rows(["house " * 60], "en")[0]
    assert len(row) == 40 and row[-1] == 2 and "1 sentences are truncated to 40 tokens" in caplog.text


def test_mistakes(data_bin, checkpoints, pairs, tmp_path, monkeypatch):
    checkpoint, good = checkpoints["pretraining"], f"en-de={pairs / 'test'}"
    write(tmp_path / "short.en", ["a"])
    write(tmp_path / "short.de", ["a", "b"])
    for code in ("en", "xx"):
        write(tmp_path / f"other.{code}", ["a", "b"])
    write(tmp_path / "one.en", ["a", "a"])
    write(tmp_path / "one.de", ["a", "b"])
    (tmp_path / "dict.txt").write_text((data_bin / "dict.txt").read_text(encoding="utf-8").replace("[de]", "[xx]"))
    chosen = ["--layer", 0, "--pooling", "mean"]
    for arguments, sentence in (
        ([data_bin, "--test", good], "give --layer and --pooling, or --dev"),
        ([data_bin, "--test", good, "--layer", 9, "--pooling", "mean"], "--layer 9: the model has the layers 0 to 2"),
        ([data_bin, "--test", "en-de", *chosen], "en-de: expected XX-YY=PREFIX"),
        ([data_bin, "--test", "en-en=x", *chosen], "en-en=x: 'en-en' is not a pair of two different languages"),
        ([data_bin, "--test", good, good, *chosen], "en-de is named twice"),
        ([data_bin, "--test", f"en-xx={pairs / 'test'}", *chosen], f"{pairs / 'test'}.xx: no such file"),
        ([data_bin, "--test", f"en-de={tmp_path / 'short'}", *chosen], "short: 1 lines of 'en' but 2 of 'de'"),
        ([data_bin, "--test", f"en-de={tmp_path / 'one'}", *chosen], "one: retrieval needs at least two different"),
        ([tmp_path, "--test", good, *chosen], "trained with another dictionary"),
        ([data_bin, "--test", f"en-xx={tmp_path / 'other'}", *chosen], "language 'xx' has no symbol in the dictionary"),
        (
            [data_bin, "--test", good, *chosen, "--language-module", f"de={data_bin}:no.pt"],
            "--language-module: .*checkpoint_last.pt is not an xl_monotrans_[*] model; only those have",
        ),
    ):
        with pytest.raises(UserError, match=sentence):
            main([str(argument) for argument in (checkpoint, *arguments)])
    with monkeypatch.context() as patched, pytest.raises(UserError, match="extend-vocabulary --langs xx"):
        patched.setattr(Embedder, "__call__", None)  # before the sentences of other languages are encoded
        options = Namespace(checkpoint=checkpoint, data=data_bin, language_module=(), fp16=False, prompt=None)
        Embedders(options, {"en", "xx"})
    with pytest.raises(UserError, match="no.pt"):
        main([str(argument) for argument in (tmp_path / "no.pt", data_bin, "--test", good, *chosen)])
