"""The command export-onnx on checkpoints of every task, and what it refuses."""

import copy
import json

import numpy as np
import pytest

from fairseq_xl.commands.model_export import main
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.serving.beam_search import BeamSearch
from fairseq_xl.serving.export import write_graph
from fairseq_xl.serving.runtime import Exported
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import classification, dan, evaluated, run_generate, run_train, run_validate, translation
from tests.tasks.tiny_text import EMPTY, LONG, TEST_LINES, write


@pytest.fixture(scope="module")
def classifier(data_bin, tmp_path_factory):
    """(folder of files, a checkpoint) of pairs of sentences."""
    folder = tmp_path_factory.mktemp("classifier")
    files = write_task(folder / "files", 2)
    run_train([*classification(data_bin, files, folder, "--max-update", 8), "--disable-validation"])
    return files, folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def translator(data_bin, tmp_path_factory):
    """A checkpoint that translates from English into German, with outputs that differ."""
    folder = tmp_path_factory.mktemp("translator")
    more = cli(s="en", t="de", max_epoch=40, max_tokens=512, lr=0.01, no_epoch_checkpoints=True)
    run_train([*translation(data_bin, folder), *more, "--disable-validation"])
    return folder / "checkpoint_last.pt"


def export(capsys, *arguments):
    capsys.readouterr()
    main([str(argument) for argument in arguments])
    return json.loads(capsys.readouterr().out)


def test_a_classifier_predicts_what_it_does_in_torch(data_bin, classifier, tmp_path, capsys):
    files, checkpoint = classifier
    to = cli(task_files=files, predictions_to=tmp_path, valid_subset="test", eval_langs="de", train_langs="de")
    run_validate(evaluated(data_bin, "classification", checkpoint, *to, batch_size=7))
    predicted = [line.split("\t") for line in (tmp_path / "test.de.tsv").read_text(encoding="utf-8").splitlines()]
    lines = [line.split("\t", 1)[1] for line in (files / "test.de.tsv").read_text(encoding="utf-8").splitlines()]
    write(tmp_path / "pairs.de", [*lines, ""])
    text = f"de={tmp_path / 'pairs.de'}"
    report = export(capsys, checkpoint, tmp_path / "out", "--data", data_bin, "--int8", "--text", text)

    exported = Exported(tmp_path / "out", threads=1)
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    encode, symbols = TextEncoder(data_bin, dictionary), exported.description["symbols"]
    for line, (_, _, label, probability) in zip(lines, predicted, strict=True):
        first, second = (encode(part, "de").tolist() for part in line.split("\t"))
        tokens = np.array([[symbols["start"], *first, symbols["end"], *second]])
        language = np.array([[exported.language("de")["id"]]])
        inputs = {"tokens": tokens, "padding_mask": tokens == symbols["pad"], "languages": language}
        (logits,) = exported.graphs["model"](inputs)["logits"]
        probabilities = np.exp(logits) / np.exp(logits).sum()
        assert exported.description["labels"][probabilities.argmax()] == label
        assert probabilities.max() == pytest.approx(float(probability), abs=2e-6)  # the file has 6 digits
    graph = report["graphs"]["model"]
    assert graph["bytes"] == {
        name: (tmp_path / "out" / name).stat().st_size for name in ("model.onnx", "model.int8.onnx")
    }
    assert len(graph["maximum_difference"]) == 5 and max(graph["maximum_difference"].values()) <= 1e-5
    assert graph["text"]["onnx"]["equal_predictions_percent"] == 100
    assert graph["text"]["onnx"]["predictions"] == graph["text"]["int8"]["predictions"] == len(lines)
    assert 0 < graph["text"]["int8"]["maximum_difference_of_a_probability"] < 0.1
    assert report == json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))


def test_beam_search_translates_as_fairseq_generate(data_bin, translator, tmp_path, capsys):
    options = ["-s", "en", "-t", "de", "--beam", 4, "--nbest", 4, "--lenpen", 1, "--max-len-b", 12]
    output = run_generate(evaluated(data_bin, "translation", translator, *options))
    report = export(capsys, translator, tmp_path / "out", "--data", data_bin)
    assert set(report["graphs"]) == {"encoder", "decoder"}
    for graph in report["graphs"].values():
        assert max(graph["maximum_difference"].values()) <= 1e-5
    search = BeamSearch(Exported(tmp_path / "out", threads=1), beam=4, length_penalty=1, max_length=12)
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    encode, outputs = TextEncoder(data_bin, dictionary), set()
    sources = (data_bin.parent / "test.en-de.en").read_text(encoding="utf-8").splitlines()
    for number in set(range(TEST_LINES)) - {EMPTY, LONG}:
        found = search([0, *encode(sources[number], "en").tolist()], "en", "de")
        expected = [line.split("\t") for line in output.lines("H")[number]]
        assert [dictionary.string(each.tokens) for each in found] == [text for _, text in expected]
        nats = [each.score / np.log(2) for each in found]  # fairseq prints logarithms to base 2
        assert nats == pytest.approx([float(score) for score, _ in expected], abs=1e-5)
        outputs.update(tuple(each.tokens) for each in found)
    assert len(outputs) > 10


def test_mistakes(data_bin, classifier, translator, tmp_path):
    files, checkpoint = classifier
    run_train([*dan(data_bin, tmp_path / "dan"), "--max-update", 1, "--disable-validation"])

    write(tmp_path / "one.de", ["a\tb", "a"])
    write(tmp_path / "none.de", [""])
    (tmp_path / "there").mkdir()

    out = tmp_path / "out"
    for arguments, sentence in (
        ([tmp_path / "dan/checkpoint_last.pt", out], "cannot be exported: expected an encoder or an encoder-decoder"),
        ([checkpoint, tmp_path / "there"], "there exists: name a new folder"),
        ([checkpoint, checkpoint / "out"], "out was not written: .* is a file"),
        ([checkpoint, out, "--text", "de"], "--text de: expected XX=FILE, a language and a file of its text"),
        ([checkpoint, out, "--text", f"de={tmp_path / 'none.de'}"], "none.de has no text"),
        ([checkpoint, out, "--text", f"de={tmp_path / 'one.de'}"], "one.de, line 2: expected 2 texts separated by TAB"),
        ([translator, out, "--text", f"de={tmp_path / 'one.de'}"], "--text: an encoder-decoder has no predictions"),
    ):
        with pytest.raises(UserError, match=sentence):
            main([str(argument) for argument in (*arguments, "--data", data_bin)])
        assert not out.exists() and not list(tmp_path.glob("*.tmp"))


def test_a_graph_that_computes_something_else_is_not_written(data_bin, classifier, tmp_path, monkeypatch):
    def broken(graph, path, ranges):
        changed = copy.deepcopy(graph)
        changed.model.encoder.layers[0].ffn_norm.bias.data[0] += 0.1
        write_graph(changed, path, ranges)

    monkeypatch.setattr("fairseq_xl.serving.export.write_graph", broken)
    with pytest.raises(UserError, match="logits of the ONNX file differs from torch by"):
        main([str(classifier[1]), str(tmp_path / "out"), "--data", str(data_bin)])
    assert not list(tmp_path.iterdir())
