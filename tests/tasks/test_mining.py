"""Hard negatives (U5): the miner against brute force, stopped and restarted, and through its command."""

import json
import shutil

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl import mining
from fairseq_xl.data.negatives import negatives_file, read_negatives
from fairseq_xl.data.parallel import SentencePairs
from fairseq_xl.errors import UserError
from tests.commands import averaging, pretraining, run_train

MADE_WITH = {"checkpoint": 1}


class FixedVectors:
    """A vector for each sentence: random, and a function of its tokens alone."""

    def __init__(self, channels=6):
        self.channels, self.calls = channels, 0

    def __call__(self, side, lines):
        self.calls += 1
        return np.stack([self.vector(side[line].tolist()) for line in lines])

    def vector(self, tokens):
        return np.random.default_rng(tokens).normal(size=self.channels).astype(np.float32)


@pytest.fixture
def pairs(tmp_path):
    """300 pairs of two words of few; many sentences are there several times, and some sides are equal."""
    rng = np.random.default_rng(11)
    for code in ("en", "de"):
        items = [[*rng.integers(4, 16, size=2).tolist(), 2] for _ in range(300)]
        items[7] = [2]
        write_items(tmp_path / f"train.en-de.{code}", items)
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


def brute_force(pairs, vectors, count):
    """{line: similarities of its `count` nearest negatives} by the definition."""
    texts = [[tuple(side[line].tolist()) for side in pairs.sides] for line in range(len(pairs.sizes))]
    translations = {}
    for line in pairs.filled:
        translations.setdefault(texts[line][0], set()).add(texts[line][1])
    candidates = {texts[line][1] for line in pairs.filled}
    found = {}
    for line in pairs.filled:
        source = texts[line][0]
        allowed = candidates - translations[source] - {source}
        scores = [float(vectors.vector(list(source)) @ vectors.vector(list(each))) for each in allowed]
        found[line] = sorted(scores, reverse=True)[:count]
    return found


def check(pairs, vectors, count):
    """The file's negatives are those of brute force."""
    mined = read_negatives(pairs.prefix, pairs.sizes)
    assert mined.shape == (300, count) and (mined[7] == -1).all()
    for line, expected in brute_force(pairs, vectors, count).items():
        source = vectors.vector(pairs.sides[0][line].tolist())
        scores = [float(source @ vectors.vector(pairs.sides[1][other].tolist())) for other in mined[line]]
        assert scores == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("count", [1, 3])
def test_negatives_are_those_of_brute_force(pairs, count):
    vectors = FixedVectors()
    statistics = mining.mine(vectors, pairs, count, 10**6, MADE_WITH)
    check(pairs, vectors, count)
    assert statistics["pairs"] == 299 and statistics["similarity"]["mined"] > statistics["similarity"]["random"]
    mined = read_negatives(pairs.prefix, pairs.sizes)
    assert statistics["different_negatives"] == len(np.unique(mined[mined >= 0]))


def test_more_candidates_are_looked_up_where_the_nearest_are_translations(pairs, monkeypatch):
    monkeypatch.setattr(mining, "SPARE", 0)
    vectors = FixedVectors()
    mining.mine(vectors, pairs, 1, 10**6, MADE_WITH)
    check(pairs, vectors, 1)


@pytest.mark.parametrize("probes", [1, 32])
def test_an_approximate_search_keeps_the_promises(pairs, monkeypatch, probes):
    """It may miss the nearest, but what it finds is no translation and no copy, and it always finds something."""
    monkeypatch.setattr(mining, "PROBES", probes)
    monkeypatch.setattr(mining, "SPARE", 0)
    vectors = FixedVectors()
    mining.mine(vectors, pairs, 1, 2, MADE_WITH)
    mined = read_negatives(pairs.prefix, pairs.sizes)[:, 0]
    texts = [[tuple(side[line].tolist()) for side in pairs.sides] for line in range(300)]
    translations = {tuple(texts[line]) for line in pairs.filled}
    for line in pairs.filled:
        negative = texts[mined[line]][1]
        assert (texts[line][0], negative) not in translations and negative != texts[line][0]


def test_a_stopped_miner_goes_on(pairs, monkeypatch):
    monkeypatch.setattr(mining, "CHUNK", 50)
    whole, stopped, rest = FixedVectors(), FixedVectors(), FixedVectors()
    mining.mine(whole, pairs, 1, 10**6, MADE_WITH)
    expected = negatives_file(pairs.prefix).read_bytes()
    negatives_file(pairs.prefix).unlink()

    def until_the_fourth_part(side, lines, ask=stopped.__call__):
        if stopped.calls == 1 + 3 * 3:
            raise KeyboardInterrupt
        return ask(side, lines)

    with pytest.raises(KeyboardInterrupt):
        mining.mine(until_the_fourth_part, pairs, 1, 10**6, MADE_WITH)
    assert not negatives_file(pairs.prefix).exists()
    mining.mine(rest, pairs, 1, 10**6, MADE_WITH)
    assert rest.calls == whole.calls - 3 * 3
    assert negatives_file(pairs.prefix).read_bytes() == expected
    assert not list(negatives_file(pairs.prefix).parent.glob("*.part"))


def test_what_is_there_is_not_mined_again_and_what_is_of_another_model_is(pairs):
    vectors = FixedVectors()
    first = mining.mine(vectors, pairs, 1, 10**6, MADE_WITH)
    calls = vectors.calls
    assert mining.mine(vectors, pairs, 1, 10**6, MADE_WITH) == first and vectors.calls == calls
    mining.mine(vectors, pairs, 2, 10**6, MADE_WITH)
    mining.mine(vectors, pairs, 2, 10**6, {"checkpoint": 2})
    assert vectors.calls == 3 * calls


def test_a_text_of_one_sentence_has_no_negative(tmp_path):
    for code, token in (("en", 5), ("de", 15)):
        write_items(tmp_path / f"train.en-de.{code}", [[token, 2]] * 3)
    with pytest.raises(UserError, match="there is no negative for line 1"):
        mining.mine(FixedVectors(), SentencePairs(tmp_path / "train.en-de", "en", "de"), 1, 10, MADE_WITH)


@pytest.fixture
def text(data_bin, tmp_path):
    """A copy of the data-bin to write into."""
    return shutil.copytree(data_bin, tmp_path / "data-bin")


def test_the_network_is_trained_and_mines_and_paraphrases_are_classified(text, tmp_path, capsys):
    output = run_train(averaging(text, tmp_path / "dan", "--max-update", 90, "--updates-per-epoch", 90))
    losses = [float.fromhex(loss) for loss in output.losses]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    capsys.readouterr()
    mining.main([str(tmp_path / "dan/checkpoint_best.pt"), str(text), "--count", "2"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["prefix"].split("/")[-1] for entry in found] == [
        "train.en-de", "train.en-fr", "valid.en-de", "valid.en-fr"
    ]  # fmt: skip
    for entry in found:
        similarity = entry["similarity"]
        assert similarity["translations"] > similarity["random"] and similarity["mined"] > similarity["random"]
        prefix = text / entry["prefix"].split(".")[-1] / entry["prefix"].split("/")[-1]
        assert read_negatives(prefix, SentencePairs(prefix, *prefix.name.split(".")[1].split("-")).sizes).shape[1] == 2
    mined = ["--objective-options", "paraphrase.length=32"]
    output = run_train(
        pretraining(text, tmp_path / "model", *mined, "--max-update", 3, "--updates-per-epoch", 3,
                    objectives="paraphrase")
    )  # fmt: skip
    assert len(output.losses) == 3 and "paraphrase_en-de_loss" in output.log


def test_mistakes_of_the_command(text, tmp_path):
    run_train(averaging(text, tmp_path / "dan", "--max-update", 1, "--updates-per-epoch", 1))
    run_train(pretraining(text, tmp_path / "mlm", "--max-update", 1, "--updates-per-epoch", 1))
    dan, mlm = (str(tmp_path / name / "checkpoint_last.pt") for name in ("dan", "mlm"))
    for arguments, message in (
        ([mlm, str(text)], "mining needs a deep averaging network: --arch xl_dan"),
        ([dan, str(text), "--pairs", "en-it"], "--pairs en-it"),
        ([dan, str(text), "--splits", "dev"], "no language pair has the split 'dev'"),
        ([dan, str(text), "--count", "0"], "--count 0"),
        ([dan, str(tmp_path)], "dict.txt"),
        ([str(tmp_path / "none.pt"), str(text)], "none.pt"),
    ):
        with pytest.raises(UserError, match=message):
            mining.main(arguments)
