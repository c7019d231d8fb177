"""Hard negatives (U5): the miner against brute force, stopped and restarted, and through its command."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_data import write_items

from fairseq_xl.commands import search_negatives
from fairseq_xl.data.corpora import negatives
from fairseq_xl.data.corpora.negatives import LengthRange, negatives_file, read_negatives
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store import binarized_text, cached_tables
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json
from fairseq_xl.mining import hard_negatives
from fairseq_xl.tasks.base import XLTask
from tests.commands import dan, pretraining, run_train
from tests.mining.builders import MADE_WITH, FixedVectors, in_parts


@pytest.fixture
def pairs(tmp_path):
    """300 pairs of two-word sentences with few words: many sentences occur several times, and some sides are equal."""
    rng = np.random.default_rng(11)
    for code in ("en", "de"):
        items = [[*rng.integers(4, 16, size=2).tolist(), 2] for _ in range(300)]
        items[7] = [2]
        write_items(tmp_path / f"train.en-de.{code}", items)
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


def brute_force(pairs, vectors, count):
    """{line: similarities of its `count` nearest negatives}, computed by the definition."""
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
    mined = read_negatives(pairs)
    assert mined.shape == (300, count) and (mined[7] == -1).all()
    for line, expected in brute_force(pairs, vectors, count).items():
        source = vectors.vector(pairs.sides[0][line].tolist())
        scores = [float(source @ vectors.vector(pairs.sides[1][other].tolist())) for other in mined[line]]
        assert scores == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("count, spare", [(3, None), (1, 0)])
def test_negatives_are_those_of_brute_force(pairs, monkeypatch, count, spare):
    """Without spare neighbors the search is wider where the nearest are translations."""
    if spare is not None:
        monkeypatch.setattr(hard_negatives, "SPARE", spare)
    vectors = FixedVectors()
    statistics = hard_negatives.mine(vectors, pairs, count, 10**6, 128, MADE_WITH)
    check(pairs, vectors, count)
    similarity, mined = statistics["similarity"], read_negatives(pairs)[pairs.filled, 0]
    assert statistics["pairs"] == 299 and similarity["mined"] > similarity["random"]
    if count == 1:
        sides = [np.stack([vectors.vector(side[line].tolist()) for line in pairs.filled]) for side in pairs.sides]
        negatives = np.stack([vectors.vector(pairs.sides[1][line].tolist()) for line in mined])
        assert similarity["translations"] == pytest.approx((sides[0] * sides[1]).sum(1).mean(), abs=1e-4)
        assert similarity["mined"] == pytest.approx((sides[0] * negatives).sum(1).mean(), abs=1e-4)


def test_an_approximate_search_always_finds_negatives(pairs, monkeypatch):
    """It may miss the nearest sentences, but never finds a translation, a copy or nothing."""
    monkeypatch.setattr(hard_negatives, "PROBES", 1)
    monkeypatch.setattr(hard_negatives, "SPARE", 0)
    vectors = FixedVectors()
    hard_negatives.mine(vectors, pairs, 1, 2, 128, MADE_WITH)
    mined = read_negatives(pairs)[:, 0]
    texts = [[tuple(side[line].tolist()) for side in pairs.sides] for line in range(300)]
    translations = {tuple(texts[line]) for line in pairs.filled}
    for line in pairs.filled:
        negative = texts[mined[line]][1]
        assert (texts[line][0], negative) not in translations and negative != texts[line][0]


def test_a_stopped_miner_resumes(pairs, monkeypatch):
    in_parts(monkeypatch, 50)
    whole, stopped, rest = FixedVectors(), FixedVectors(), FixedVectors()
    hard_negatives.mine(whole, pairs, 1, 10**6, 128, MADE_WITH)
    index = whole.calls - 12  # what the index takes, beside two calls for each part
    expected = negatives_file(pairs.prefix).read_bytes()
    negatives_file(pairs.prefix).unlink()

    class UntilTheFourthPart(FixedVectors):
        def __call__(self, side, lines):
            if stopped.calls == index + 6:
                raise KeyboardInterrupt
            return stopped(side, lines)

    with pytest.raises(KeyboardInterrupt):
        hard_negatives.mine(UntilTheFourthPart(), pairs, 1, 10**6, 128, MADE_WITH)
    assert not negatives_file(pairs.prefix).exists()
    hard_negatives.mine(rest, pairs, 1, 10**6, 128, MADE_WITH)
    assert rest.calls == whole.calls - 6
    assert negatives_file(pairs.prefix).read_bytes() == expected
    assert not list(negatives_file(pairs.prefix).parent.glob("*.part"))


def test_parts_of_another_size_are_not_read(pairs, monkeypatch):
    """The parts of a stopped run; the negatives are those of a whole run, in any parts."""
    in_parts(monkeypatch, 50)
    hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    expected, folder = negatives_file(pairs.prefix).read_bytes(), Path(f"{pairs.prefix}.negatives.part")
    for chunks, files in ((1, 6), (4, 8)):
        negatives_file(pairs.prefix).unlink()
        in_parts(monkeypatch, 50, chunks)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(np, "save", raise_interrupt)
            hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
        assert len(list(folder.glob("*.npz"))) == files
        negatives_file(pairs.prefix).write_bytes(b"")
    hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    assert negatives_file(pairs.prefix).read_bytes() == expected


def test_damaged_partial_results_are_mined_again(pairs, monkeypatch):
    in_parts(monkeypatch, 50)
    hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    expected, folder = negatives_file(pairs.prefix).read_bytes(), Path(f"{pairs.prefix}.negatives.part")
    for spoilt in ("made_with.json", "000000000050-50.npz"):
        negatives_file(pairs.prefix).unlink()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(np, "save", raise_interrupt)
            hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
        (folder / spoilt).write_bytes((folder / spoilt).read_bytes()[:20])
        hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
        assert negatives_file(pairs.prefix).read_bytes() == expected


def raise_interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("other", ["checkpoint", "text", "length"])
def test_partial_results_of_other_inputs_are_dropped(pairs, monkeypatch, other):
    """The inputs differ by network, by one word of the text, or by length."""
    in_parts(monkeypatch, 50)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(np, "save", raise_interrupt)
        hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    assert len(list(Path(f"{pairs.prefix}.negatives.part").glob("*.npz"))) == 6
    if other == "text":
        items = [side.tolist() for side in pairs.sides[1]]
        items[250][0] = 17
        write_items(Path(f"{pairs.prefix}.de"), items)
        pairs = SentencePairs(pairs.prefix, "en", "de")
    vectors, made_with = FixedVectors(), {"checkpoint": 2} if other == "checkpoint" else MADE_WITH
    hard_negatives.mine(vectors, pairs, 1, 10**6, 64 if other == "length" else 128, made_with)
    assert vectors.calls > 6  # the index and every part
    check(pairs, FixedVectors(), 1)


def test_temporary_files_of_a_killed_run_are_removed(pairs, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(hard_negatives.shutil, "rmtree", raise_interrupt)
        hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    folder, vectors = Path(f"{pairs.prefix}.negatives.part"), FixedVectors()
    assert negatives_file(pairs.prefix).exists() and folder.exists()
    hard_negatives.mine(vectors, pairs, 1, 10**6, 128, MADE_WITH)
    assert not folder.exists() and not vectors.calls


@pytest.fixture
def unequal(tmp_path):
    """200 pairs of different sentences of 1 to 20 words, about as long on both sides, and one of 40 words."""
    rng = np.random.default_rng(3)
    sizes = [*rng.integers(1, 21, size=199), 40]
    for first, code in enumerate(("en", "de")):
        more = np.add(sizes, rng.integers(3, size=200) * first - 1)
        items = [[4 + 2 * line + first, *rng.integers(500, 600, count).tolist(), 2] for line, count in enumerate(more)]
        write_items(tmp_path / f"train.en-de.{code}", items)
    return SentencePairs(tmp_path / "train.en-de", "en", "de")


class LongSentencesFirst(FixedVectors):
    """Vectors with which a longer sentence is more similar to every other one."""

    def vector(self, tokens):
        vector = super().vector(tokens)
        vector[0] = len(tokens)
        return vector


@pytest.mark.parametrize("exact_below", [10**6, 2], ids=["exact", "approximate"])
def test_mined_negatives_are_the_nearest_of_similar_length(unequal, monkeypatch, exact_below):
    monkeypatch.setattr(hard_negatives, "SPARE", 0)
    monkeypatch.setattr(hard_negatives, "PROBES", 10**6)
    vectors = LongSentencesFirst()
    measured = hard_negatives.mine(vectors, unequal, 1, exact_below, 128, MADE_WITH)["length_separability"]
    mined, sizes, reach = read_negatives(unequal)[:, 0], unequal.sizes[:, 1], LengthRange(unequal, 128)
    texts = [[side[line].tolist() for line in range(200)] for side in unequal.sides]
    for line in range(200):
        allowed = [
            other
            for other in range(200)
            if other != line and reach.least[sizes[line]] <= sizes[other] <= reach.most[sizes[line]]
        ]
        query = vectors.vector(texts[0][line])
        best = max(float(query @ vectors.vector(texts[1][other])) for other in allowed)
        assert float(query @ vectors.vector(texts[1][mined[line]])) == pytest.approx(best, rel=1e-5)
    assert measured["mined"] < 80
    monkeypatch.setattr(negatives, "REACH", 10**6)
    monkeypatch.setattr(negatives, "LEAST_REACH", 10**6)
    measured = hard_negatives.mine(vectors, unequal, 1, exact_below, 128, {"checkpoint": 3})["length_separability"]
    assert measured["mined"] > 98  # the sentence of 40 words is nearest to all but its own pair


def test_if_all_of_similar_length_are_translations_the_length_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(negatives, "REACH", 1)
    sizes = [2] * 3 + [5] + [6] * 20 + [7] + [9] * 3
    items = [[10 + number, *[4] * (size - 2), 2] for number, size in enumerate(sizes)]
    write_items(tmp_path / "train.en-de.en", [[4, 2] if 5 <= size <= 7 else [5, 2] for size in sizes])
    write_items(tmp_path / "train.en-de.de", items)
    pairs, vectors = SentencePairs(tmp_path / "train.en-de", "en", "de"), FixedVectors()
    hard_negatives.mine(vectors, pairs, 1, 10**6, 128, MADE_WITH)
    assert set(read_negatives(pairs)[4:24, 0].tolist()) <= {0, 1, 2, 25, 26, 27}
    expected = brute_force(pairs, vectors, 1)
    for line in range(4, 24):
        found = vectors.vector([4, 2]) @ vectors.vector(items[read_negatives(pairs)[line, 0]])
        assert float(found) == pytest.approx(expected[line][0], rel=1e-5)


def test_negatives_keep_the_length_limit_and_longer_pairs_have_none(unequal):
    vectors = LongSentencesFirst()
    statistics = hard_negatives.mine(vectors, unequal, 2, 10**6, 15, MADE_WITH)
    fitting, mined = unequal.all_examples(15)[0], read_negatives(unequal)
    longer = np.setdiff1d(np.arange(200), fitting)
    assert (mined[longer] == -1).all() and (mined[fitting, 0] >= 0).all() and len(longer) > 10
    assert unequal.sizes[mined[mined >= 0], 1].max() == 15
    assert statistics["pairs"] == statistics["candidates"] == len(fitting)
    again = SentencePairs(unequal.prefix, "en", "de")
    again.prepare_negatives(15, True)
    assert "candidates" not in vars(again)  # none has to be drawn at random


def test_statistics_by_hand(tmp_path):
    """Four pairs in two parts."""
    sizes = np.array([[2, 4], [4, 4], [2, 6], [9, 9], [3, 3]])
    sides = [SimpleNamespace(sizes=lengths) for lengths in sizes.T]
    statistics = hard_negatives.Statistics(SimpleNamespace(sides=sides, lines=5), 7, tmp_path)
    whole = {
        "negatives": np.array([[1, 2], [2, -1], [1, -1], [1, 0]]),
        "random_negatives": np.array([1, 0, 4, 2]),
        "mined": np.array([0.5, 0.25, 0.75, 0.5]),
        "translations": np.array([0.75, 0.0, 0.5, 0.75]),
        "random": np.array([0.0, 0.25, -0.25, 0.25]),
    }
    lines = np.array([0, 1, 2, 4])
    for part in (slice(3), slice(3, 4)):
        statistics.add(lines[part], {name: each[part] for name, each in whole.items()})
    assert statistics.result(3) == {
        "pairs": 4,
        "candidates": 3,
        "similarity": {"translations": 0.5, "mined": 0.5, "random": 0.0625},
        # ratios of lengths: translations 2, 1, 3, 1; mined ones 2, 1.5, 2, 4/3: up to 1 two of four and none; random
        # ones 2, 1, 1.5, 2: up to 1 two of four and one
        "length_separability": {"mined": 75.0, "random": 62.5},
        "nearer_than_translation": 50.0,
        "most_uses_of_one": 3,
    }


def separability(sources, translations, negatives):
    """`length_separability` of lengths (n,)."""
    counts = np.zeros((2, 20, 20), np.int64)
    for count, others in zip(counts, (translations, negatives)):
        np.add.at(count, (np.array(sources), np.array(others)), 1)
    return hard_negatives.length_separability(*counts)


def test_the_separability_by_length():
    same = np.array([3, 5, 8])
    assert separability(same, same, same) == 50
    assert separability(same, same, 2 * same) == separability(same, 2 * same, same) == 100
    assert separability([3], [6], [12]) == 100
    assert separability([6, 6], [3, 12], [12, 3]) == 50  # half and double


@pytest.mark.parametrize("exact_below", [10**6, 2], ids=["exact", "approximate"])
def test_blocks_of_any_size_give_the_same_negatives(pairs, monkeypatch, exact_below):
    """Files in place of memory, and a few lines at a time."""
    in_parts(monkeypatch, 50)  # of the random numbers of the statistics
    expected = hard_negatives.mine(FixedVectors(), pairs, 2, exact_below, 128, MADE_WITH)
    content = negatives_file(pairs.prefix).read_bytes()
    negatives_file(pairs.prefix).unlink()
    for module, name, value in (
        (cached_tables, "IN_MEMORY_LINES", 0),
        (binarized_text, "BLOCK_LINES", 7),
        (hard_negatives, "BLOCK_ROWS", 5),
    ):
        monkeypatch.setattr(module, name, value)
    again = SentencePairs(pairs.prefix, "en", "de")
    assert hard_negatives.mine(FixedVectors(), again, 2, exact_below, 128, MADE_WITH) == expected
    assert negatives_file(pairs.prefix).read_bytes() == content


def test_lines_do_not_wrap():
    """Negatives have 32 bits up to 2^31 - 1 lines, then 64."""
    shapes = []

    def made(folder, dtype, value, *shape):
        shapes.append((np.dtype(dtype).itemsize, shape))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hard_negatives, "full", made)
        for lines in (2**31 - 1, 2**31):
            hard_negatives._empty_negatives(Path(), lines, 1)
    assert shapes == [(4, (2**31 - 1, 1)), (8, (2**31, 1))]


def test_a_damaged_result_is_mined_again(pairs):
    """As the error message of training says: empty, cut, gone, or with lines that are no sentences."""
    vectors = FixedVectors()
    first = hard_negatives.mine(vectors, pairs, 1, 10**6, 128, MADE_WITH)
    calls = vectors.calls
    for suffix, size in [(suffix, size) for suffix in ("npy", "json") for size in (0, 40, None)] + [("npy", 300)]:
        path, before = Path(f"{pairs.prefix}.negatives.{suffix}"), vectors.calls
        whole = path.read_bytes()
        path.unlink() if size is None else path.write_bytes(whole[:size])
        if size == 300:
            np.save(path, np.full((300, 1), 300, dtype=np.int32))
        assert hard_negatives.mine(vectors, pairs, 1, 10**6, 128, MADE_WITH) == first
        assert path.read_bytes() == whole and vectors.calls == before + calls, (suffix, size)


def test_statistics_always_belong_to_the_negatives(pairs, monkeypatch):
    """The run is killed between writing the two files, and repeated with the settings of the older one."""
    first = hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    expected = negatives_file(pairs.prefix).read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def killed(path, content):
            raise_interrupt() if str(path).endswith("s.json") else write_json(path, content)

        patch.setattr(hard_negatives, "write_json", killed)
        hard_negatives.mine(FixedVectors(), pairs, 2, 10**6, 128, MADE_WITH)
    assert hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH) == first
    assert negatives_file(pairs.prefix).read_bytes() == expected


@pytest.mark.parametrize("sentences", [1, 2, 5, 60])
def test_an_approximate_index_of_few_sentences(tmp_path, sentences):
    vectors, items = FixedVectors(), [[4 + number, 2] for number in range(sentences)]
    for code in ("en", "de"):
        write_items(tmp_path / f"train.en-de.{code}", items)
    side = SentencePairs(tmp_path / "train.en-de", "en", "de").sides[1]
    index = hard_negatives.build_index(vectors, side, np.arange(sentences), 1, tmp_path / "index")
    assert index.ntotal == sentences and hasattr(index, "nprobe")


def test_results_are_mined_again_only_for_another_model(pairs, caplog):
    vectors = FixedVectors()
    first = hard_negatives.mine(vectors, pairs, 1, 10**6, 128, MADE_WITH)
    calls = vectors.calls
    assert hard_negatives.mine(vectors, pairs, 1, 10**6, 128, MADE_WITH) == first and vectors.calls == calls
    hard_negatives.mine(vectors, pairs, 2, 10**6, 128, MADE_WITH)
    hard_negatives.mine(vectors, pairs, 2, 10**6, 128, {"checkpoint": 2})
    assert vectors.calls == 3 * calls
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    warning = f"{negatives_file(pairs.prefix)}: the negatives of another network, text or setting are replaced"
    assert warnings == [f"{warning} (count: then 1, now 2)", f"{warning} (checkpoint: then 1, now 2)"]


def test_a_text_of_one_sentence_has_no_negative(tmp_path):
    for code, token in (("en", 5), ("de", 15)):
        write_items(tmp_path / f"train.en-de.{code}", [[token, 2]] * 3)
    with pytest.raises(UserError, match="train.en-de: there is no negative for line 1,"):
        hard_negatives.mine(FixedVectors(), SentencePairs(tmp_path / "train.en-de", "en", "de"), 1, 10, 128, MADE_WITH)


@pytest.fixture
def text(data_bin, tmp_path):
    """A copy of the data-bin to write into."""
    return shutil.copytree(data_bin, tmp_path / "data-bin")


def test_the_network_is_trained_and_mines_and_paraphrases_are_classified(text, tmp_path, capsys):
    output = run_train(dan(text, tmp_path / "dan", "--max-update", 90, "--updates-per-epoch", 90))
    losses = [float.fromhex(loss) for loss in output.losses]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    capsys.readouterr()
    search_negatives.main([str(tmp_path / "dan/checkpoint_best.pt"), str(text), "--count", "2"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["prefix"].split("/")[-1] for entry in found] == [
        "train.en-de",
        "train.en-fr",
        "valid.en-de",
        "valid.en-fr",
    ]
    for entry in found:
        similarity = entry["similarity"]
        assert similarity["translations"] > similarity["random"] and similarity["mined"] > similarity["random"]
        prefix = text / entry["prefix"].split(".")[-1] / entry["prefix"].split("/")[-1]
        assert read_negatives(SentencePairs(prefix, *prefix.name.split(".")[1].split("-"))).shape[1] == 2
    mined = ["--objective-options", "paraphrase.length=32"]
    output = run_train(
        pretraining(
            text, tmp_path / "model", *mined, "--max-update", 3, "--updates-per-epoch", 3, objectives="paraphrase"
        )
    )
    assert len(output.losses) == 3 and "paraphrase_en-de_loss" in output.log


def test_shards_are_mined_one_by_one_and_with_the_pairs_of_the_training(data_bin, text, tmp_path, capsys):
    other = shutil.copytree(data_bin, tmp_path / "other")
    for path in other.glob("en-*/valid.*"):
        path.unlink()
    length = ["--objective-options", "paraphrase_similarity.length=20"]
    run_train(dan(text, tmp_path / "dan", "--max-update", 1, "--updates-per-epoch", 1, "--pairs", "en-de", *length))
    capsys.readouterr()
    arguments = [str(tmp_path / "dan/checkpoint_last.pt"), f"{text}:{other}"]
    search_negatives.main(arguments)
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {entry["made_with"]["length"] for entry in entries} == {20}  # that of the network's training
    assert [entry["prefix"] for entry in entries] == [
        f"{folder}/en-de/{name}"
        for folder, name in ((text, "train.en-de"), (other, "train.en-de"), (text, "valid.en-de"))
    ]
    search_negatives.main([*arguments, "--pairs", "en-fr", "--splits", "valid", "--length", "9"])
    found = json.loads(capsys.readouterr().out)
    assert found["prefix"] == f"{text}/en-fr/valid.en-fr" and found["made_with"]["length"] == 9


@pytest.mark.parametrize("missing", ["train", "valid"])
def test_missing_negatives_are_reported_before_the_first_update(text, tmp_path, missing, monkeypatch):
    for path in (text / "en-de", text / "en-fr"):
        for split in {"train", "valid"} - {missing}:
            pairs = SentencePairs(path / f"{split}.{path.name}", *path.name.split("-"))
            hard_negatives.mine(FixedVectors(), pairs, 1, 10**6, 128, MADE_WITH)
    options = ["--objective-options", "mlm.length=32 paraphrase.length=32", "--max-update", 3]
    updates = []
    monkeypatch.setattr(XLTask, "train_step", lambda *_, **__: updates.append(1))
    with pytest.raises(UserError, match=f"{missing}.en-de.negatives.npy: no mined negatives"):
        run_train(pretraining(text, tmp_path / "model", *options, objectives="mlm,paraphrase"))
    assert not updates


def test_mistakes_of_the_command(text, tmp_path):
    run_train(dan(text, tmp_path / "dan", "--max-update", 1, "--updates-per-epoch", 1))
    run_train(pretraining(text, tmp_path / "mlm", "--max-update", 1, "--updates-per-epoch", 1))
    network, mlm = (str(tmp_path / name / "checkpoint_last.pt") for name in ("dan", "mlm"))
    for arguments, message in (
        ([mlm, str(text)], "mining needs a deep averaging network: --arch xl_dan"),
        ([network, str(text), "--pairs", "en-it"], "--pairs: .* has no text of en-it; expected one of "),
        ([network, str(text), "--splits", "train,dev"], "no language pair has the split 'dev'"),
        ([network, str(text), "--count", "0"], "--count 0"),
        ([network, str(text), "--length", "1"], "--length 1: a sentence has two tokens or more"),
        ([network, str(text), "--length", "2"], "every pair has a side of more than 2 tokens"),
        ([network, str(tmp_path)], "dict.txt"),
        ([str(tmp_path / "none.pt"), str(text)], "none.pt"),
    ):
        with pytest.raises(UserError, match=message):
            search_negatives.main(arguments)
        # all splits are looked for before the first is mined
        assert "train,dev" not in arguments or not list(text.glob("*/*.negatives.*"))
