"""Hard negatives (U5): the miner against brute force, stopped and restarted, and through its command."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from fairseq.tasks import FairseqTask
from tiny_data import write_items

from fairseq_xl import compat, mining
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
    index = whole.calls - 6  # what the index takes, beside a call for each part
    expected = negatives_file(pairs.prefix).read_bytes()
    negatives_file(pairs.prefix).unlink()

    class UntilTheFourthPart(FixedVectors):
        def __call__(self, side, lines):
            if stopped.calls == index + 3:
                raise KeyboardInterrupt
            return stopped(side, lines)

    with pytest.raises(KeyboardInterrupt):
        mining.mine(UntilTheFourthPart(), pairs, 1, 10**6, MADE_WITH)
    assert not negatives_file(pairs.prefix).exists()
    mining.mine(rest, pairs, 1, 10**6, MADE_WITH)
    assert rest.calls == whole.calls - 3
    assert negatives_file(pairs.prefix).read_bytes() == expected
    assert not list(negatives_file(pairs.prefix).parent.glob("*.part"))


def test_begun_parts_that_are_damaged_are_mined_anew(pairs, monkeypatch):
    monkeypatch.setattr(mining, "CHUNK", 50)
    mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH)
    expected, folder = negatives_file(pairs.prefix).read_bytes(), Path(f"{pairs.prefix}.negatives.part")
    for spoilt in ("made_with.json", "000000000050.npz"):
        negatives_file(pairs.prefix).unlink()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(mining, "_write", raise_interrupt)
            mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH)
        (folder / spoilt).write_bytes((folder / spoilt).read_bytes()[:20])
        mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH)
        assert negatives_file(pairs.prefix).read_bytes() == expected


def raise_interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["npz", "json"])
@pytest.mark.parametrize("kept", [0, 40, None], ids=["empty", "cut", "gone"])
def test_a_damaged_result_is_mined_anew(pairs, name, kept):
    """As the error of a training that finds it promises."""
    vectors, path = FixedVectors(), Path(f"{pairs.prefix}.negatives.{name}")
    first = mining.mine(vectors, pairs, 1, 10**6, MADE_WITH)
    calls, whole = vectors.calls, path.read_bytes()
    path.unlink() if kept is None else path.write_bytes(whole[:kept])
    assert mining.mine(vectors, pairs, 1, 10**6, MADE_WITH) == first and vectors.calls == 2 * calls
    assert path.read_bytes() == whole


def test_statistics_are_never_those_of_other_negatives(pairs, monkeypatch):
    """Killed between the two files, and then asked for what the older one was made with."""
    first = mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH)
    expected, replacing = negatives_file(pairs.prefix).read_bytes(), compat.replacing
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            compat, "replacing", lambda path: raise_interrupt() if str(path).endswith("s.json") else replacing(path)
        )
        mining.mine(FixedVectors(), pairs, 2, 10**6, MADE_WITH)
    assert mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH) == first
    assert negatives_file(pairs.prefix).read_bytes() == expected


@pytest.mark.parametrize("sentences", [1, 2, 5, 60])
def test_an_approximate_index_of_few_sentences(tmp_path, sentences):
    vectors, items = FixedVectors(), [[4 + number, 2] for number in range(sentences)]
    for code in ("en", "de"):
        write_items(tmp_path / f"train.en-de.{code}", items)
    side = SentencePairs(tmp_path / "train.en-de", "en", "de").sides[1]
    index = mining.build_index(vectors, side, np.arange(sentences), 1)
    assert index.ntotal == sentences and hasattr(index, "nprobe")


def test_the_recall_of_an_approximate_index(tmp_path):
    """Of 2,000 sentences in clusters, it finds nearly all of the nearest that the exact index finds, and not all."""
    rng = np.random.default_rng(9)
    centres = rng.normal(size=(100, 16))
    every = (centres[rng.integers(100, size=2000)] + 0.3 * rng.normal(size=(2000, 16))).astype(np.float32)

    def vectors(side, lines):
        return every[lines]

    vectors.channels = 16
    exact, approximate = (mining.build_index(vectors, None, np.arange(2000), below) for below in (10**6, 1))
    approximate.nprobe = 4
    queries = (every + 0.1 * rng.normal(size=every.shape)).astype(np.float32)
    nearest, found = (index.search(queries, 1) for index in (exact, approximate))
    recall = (nearest[1] == found[1]).mean()
    assert approximate.nlist > 20 and 0.9 < recall < 1
    assert (found[0] <= nearest[0] + 1e-5).all()
    for index in (exact, approximate):
        np.testing.assert_array_equal(index.reconstruct_batch(np.array([7, 3])), every[[7, 3]])


def test_the_index_is_built_chunk_by_chunk(pairs, monkeypatch, caplog):
    monkeypatch.setattr(mining, "CHUNK", 50)
    with caplog.at_level(logging.INFO):
        statistics = mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH)
    total = statistics["candidates"]
    assert [f"index: {n} of {total}" in caplog.text for n in (50, 100, total)] == [True] * 3


def test_statistics_are_of_translations_random_and_mined_sentences(pairs):
    vectors = FixedVectors()
    statistics = mining.mine(vectors, pairs, 1, 10**6, MADE_WITH)["similarity"]
    sides = [np.stack([vectors.vector(side[line].tolist()) for line in pairs.filled]) for side in pairs.sides]
    assert statistics["translations"] == pytest.approx((sides[0] * sides[1]).sum(1).mean(), abs=1e-4)
    mined = read_negatives(pairs.prefix, pairs.sizes)[pairs.filled, 0]
    negatives = np.stack([vectors.vector(pairs.sides[1][line].tolist()) for line in mined])
    assert statistics["mined"] == pytest.approx((sides[0] * negatives).sum(1).mean(), abs=1e-4)


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
    with pytest.raises(UserError, match="train.en-de: there is no negative for line 1,"):
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


def test_shards_are_mined_one_by_one_and_with_the_pairs_of_the_training(data_bin, text, tmp_path, capsys):
    other = shutil.copytree(data_bin, tmp_path / "other")
    for path in other.glob("en-*/valid.*"):
        path.unlink()
    run_train(averaging(text, tmp_path / "dan", "--max-update", 1, "--updates-per-epoch", 1, "--pairs", "en-de"))
    capsys.readouterr()
    arguments = [str(tmp_path / "dan/checkpoint_last.pt"), f"{text}:{other}"]
    mining.main(arguments)
    found = [json.loads(line)["prefix"] for line in capsys.readouterr().out.splitlines()]
    assert found == [f"{folder}/en-de/{name}" for folder, name in (
        (text, "train.en-de"), (other, "train.en-de"), (text, "valid.en-de")
    )]  # fmt: skip
    mining.main([*arguments, "--pairs", "en-fr", "--splits", "valid"])
    assert [json.loads(line)["prefix"] for line in capsys.readouterr().out.splitlines()] == [
        f"{text}/en-fr/valid.en-fr"
    ]


@pytest.mark.parametrize("missing", ["train", "valid"])
def test_missing_negatives_are_told_before_the_first_update(text, tmp_path, missing, monkeypatch):
    for path in (text / "en-de", text / "en-fr"):
        for split in {"train", "valid"} - {missing}:
            pairs = SentencePairs(path / f"{split}.{path.name}", *path.name.split("-"))
            mining.mine(FixedVectors(), pairs, 1, 10**6, MADE_WITH)
    options = ["--objective-options", "mlm.length=32 paraphrase.length=32", "--max-update", 3]
    updates = []
    monkeypatch.setattr(FairseqTask, "train_step", lambda *_, **__: updates.append(1))
    with pytest.raises(UserError, match=f"{missing}.en-de.negatives.npz: no mined negatives"):
        run_train(pretraining(text, tmp_path / "model", *options, objectives="mlm,paraphrase"))
    assert not updates


def test_all_splits_are_looked_for_before_the_first_is_mined(text, tmp_path):
    run_train(averaging(text, tmp_path / "dan", "--max-update", 1, "--updates-per-epoch", 1))
    with pytest.raises(UserError, match="no language pair has the split 'dev'"):
        mining.main([str(tmp_path / "dan/checkpoint_last.pt"), str(text), "--splits", "train,dev"])
    assert not list(text.glob("*/*.negatives.*"))


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
