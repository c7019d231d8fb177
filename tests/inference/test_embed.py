"""Embeddings of lines of text by fairseq-xl embed, and mining with them."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fairseq_xl.commands import embed, search_bitext
from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import Embedder
from tests.commands import pretraining, trained
from tests.tasks.tiny_text import WORDS, sentences, write


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    return trained(pretraining(data_bin, folder, "--layers", 2, "--max-update", 1, "--disable-validation"))


@pytest.fixture
def run(data_bin, checkpoint, tmp_path, capsys, monkeypatch):
    """Runs the command on lines of standard input; returns what it printed and the rows that it wrote."""

    def run_on(lines, *more):
        stdin = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        output = tmp_path / "rows.npy"
        capsys.readouterr()
        embed.main(list(map(str, (checkpoint, data_bin, "--lang", "de", "--output", output, *more))))
        return json.loads(capsys.readouterr().out), np.load(output)

    return run_on


def test_rows_are_those_of_the_embedder(data_bin, checkpoint, run):
    text = sentences(["de"], 25, "embed")["de"]
    text[3:3] = ["", "  "]
    embedder = Embedder(checkpoint, data_bin)
    result, rows = run(text)
    assert result == {"lines": 27, "channels": 16, "layer": 2, "pooling": "mean"}
    filled = [line for line in text if line.strip()]
    whole = embedder(filled, "de", [(2, "mean"), (1, "first")])
    assert rows.dtype == np.float32 and not rows[3:5].any()
    assert np.array_equal(np.delete(rows, (3, 4), axis=0), whole[2, "mean"])
    for more in (["--buffer-size", 4], ["--max-tokens", 1], ["--buffer-size", 1]):
        chosen, parts = run(text, "--layer", 1, "--pooling", "first", *more)
        assert (chosen["layer"], chosen["pooling"]) == (1, "first")
        np.testing.assert_allclose(np.delete(parts, (3, 4), axis=0), whole[1, "first"], atol=2e-6)


def test_only_a_buffer_is_in_memory(checkpoint, data_bin, run, monkeypatch):
    sizes, call = [], Embedder.__call__
    count = lambda self, text, *more, **options: sizes.append(len(text)) or call(self, text, *more, **options)  # noqa: E731
    monkeypatch.setattr(Embedder, "__call__", count)
    _, rows = run(sentences(["de"], 25, "buffers")["de"], "--buffer-size", 10)
    assert sizes == [10, 10, 5] and len(rows) == 25


def test_no_line_and_only_blank_lines(run):
    assert run([])[1].shape == (0, 16)
    assert not run(["", " "])[1].any()


def test_unknown_text_is_named_once(run, caplog):
    run(["das Haus und der Garten", "我"])
    assert not caplog.messages
    run(["我们 我们", "我们"], "--buffer-size", 1)
    assert caplog.messages == ["text of de: 50 % of the tokens are <unk>"]


def test_mistakes(data_bin, checkpoint, run, tmp_path):
    write(tmp_path / "text", ["a"])
    for more, message in (
        (["--layer", 3], "layer 3, pooling 'mean': expected a layer from 0 to 2 and mean or first"),
        (["--lang", "xx"], "language 'xx' has no symbol in the dictionary"),
        (["--input", tmp_path / "no"], "no: no such file"),
        (["--max-tokens", 0], "--max-tokens 0: 1 or more is needed"),
        (["--output", tmp_path / "no" / "x.npy"], "x.npy was not written: No such file or directory"),
    ):
        with pytest.raises(UserError, match=message):
            run(["a"], *more)
    assert not (tmp_path / "rows.npy").exists()


# Mining


@pytest.fixture
def files(data_bin, checkpoint, tmp_path):
    """Lines with blank and repeated ones, in two orders, and their embeddings: the arguments for both."""
    lines = list(dict.fromkeys(sentences(WORDS, 20, "mining")["en"]))[:12]
    for name, order in (("one", range(12)), ("two", range(11, -1, -1))):
        text = [lines[number] for number in order]
        write(tmp_path / name, ["", text[3], *text[:6], "", *text[6:]])
        more = ["--layer", 1, "--input", tmp_path / name, "--output", tmp_path / f"{name}.npy"]
        embed.main(list(map(str, (checkpoint, data_bin, "--lang", "en", *more))))
    return [f"en={tmp_path / name}" for name in ("one", "two")], [tmp_path / f"{name}.npy" for name in ("one", "two")]


def mined(tmp_path, *words):
    search_bitext.main(list(map(str, (*words, "--output", tmp_path / "out"))))
    return (tmp_path / "out").read_text(encoding="utf-8")


def test_mining_with_files_of_embeddings(data_bin, checkpoint, files, tmp_path):
    """As from the checkpoint; a line that occurs twice is in no pair, and blank lines are in none."""
    texts, rows = files
    found = mined(tmp_path, "--embeddings", *rows, *texts)
    assert found == mined(tmp_path, checkpoint, data_bin, *texts, "--layer", 1)
    assert found == mined(tmp_path, checkpoint, data_bin, "--layer", 1, *texts) and len(found.splitlines()) == 10
    first = [line.split("\t")[1:] for line in found.splitlines()]
    one, two = (Path(each.partition("=")[2]).read_text(encoding="utf-8").splitlines() for each in texts)
    assert all(one[int(source)] == two[int(target)] != "" for source, target in first)


def test_wrong_files_of_embeddings(data_bin, checkpoint, files, tmp_path):
    texts, rows = files
    np.save(tmp_path / "short.npy", np.load(rows[1])[:-1])
    np.save(tmp_path / "narrow.npy", np.load(rows[1])[:, :-1])
    np.save(tmp_path / "none.npy", np.load(rows[1])[:, :0])
    broken = np.load(rows[1])
    broken[8, 3] = np.nan
    np.save(tmp_path / "nan.npy", broken)
    (tmp_path / "cut.npy").write_bytes(rows[1].read_bytes()[:-4])
    for name, message in (
        ("short", "short.npy has 14 rows, but .*two has 15 lines"),
        ("narrow", "one.npy has 16 columns, but .*narrow.npy has 15"),
        ("cut", "cut.npy is not an .npy file of numbers, or it is damaged or cut short"),
        ("no", "no.npy: no such file"),
        ("none", r"none.npy: expected a matrix of floats, a row for each sentence, found float32 \(15, 0\)"),
        ("nan", "nan.npy, row 9: expected finite numbers, found nan"),
    ):
        with pytest.raises(UserError, match=message):
            mined(tmp_path, "--embeddings", rows[0], tmp_path / f"{name}.npy", *texts)
    for more in (["--layer", 1], ["--pooling", "first"], ["--pooling", "mean"], ["--fp16"]):
        with pytest.raises(UserError, match="--embeddings: leave out --layer, --pooling, --prompt, --language-module"):
            mined(tmp_path, "--embeddings", *rows, *texts, *more)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="two.npy is of text in 'en': expected de"):
        mined(tmp_path, "--embeddings", *rows, texts[0], texts[1].replace("en=", "de="))
    for line, message in ((["a", "b", *texts], "arguments are required: --layer"), (texts, "expected CHECKPOINT DATA")):
        with pytest.raises(UserError, match=message):
            search_bitext.main(line)
    note = Path(f"{rows[1]}.json")
    note.write_text(note.read_text().replace("layer 1", "layer 2"))
    with pytest.raises(UserError, match=r"two.npy is of .*checkpoint_last.pt \(layer 2, mean\), but .*one.npy of"):
        mined(tmp_path, "--embeddings", *rows, *texts)
