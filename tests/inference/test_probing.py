"""Probing of checkpoints through its commands; the numbers are those of a direct forward pass of each input."""

import itertools
import json

import numpy as np
import pytest
import torch

from fairseq_xl.commands import main
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bootstrap import spearman
from fairseq_xl.evaluation.probing_tasks import WordInText, WordPair, read_minimal_pairs
from fairseq_xl.inference.embedder import Embedder
from fairseq_xl.inference.probing import both_words, masked_log_probabilities, pair_hidden_states, word_tokens
from tests.commands import pretraining, run_train, trained, translation
from tests.tasks.tiny_text import sentences, write


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    return trained([*pretraining(data_bin, folder), "--max-update", 3, "--disable-validation"])


@pytest.fixture(scope="module")
def embedder(data_bin, checkpoint):
    return Embedder(checkpoint, data_bin)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """WiC, SCWS and minimal pairs in English: small files in the official formats."""
    root = tmp_path_factory.mktemp("probing")
    for split, count in (("train", 30), ("test", 12)):
        one, two = (sentences(["en"], count, f"{split} {side}")["en"] for side in (1, 2))
        write(root / f"{split}.data.txt", [f"word\tN\t1-2\t{left}\t{right}" for left, right in zip(one, two)])
        write(root / f"{split}.gold.txt", ["T" if number % 3 else "F" for number in range(count)])
    contexts = "the small <b> house </b> under water", "a <b> garden </b> walks", "green <b>stone</b> over the river"
    pairs = [(0, 1, 7.5), (0, 2, 1.25), (1, 2, 3.0), (2, 2, 9.75)]
    rows = [f"{n}\tx\tn\ty\tn\t{contexts[i]}\t{contexts[j]}\t{rating}\t1\t2" for n, (i, j, rating) in enumerate(pairs)]
    write(root / "ratings.txt", rows)
    minimal = ["agreement\tx\tthe house walks\tthe house reads", "agreement\tx\ta book walks\ta book walks under"]
    write(root / "pairs.tsv", [*minimal, "order\tx\tthe small house\tthe green house"])
    return root


def probe(capsys, *arguments):
    capsys.readouterr()
    main(["probe", *map(str, arguments)])
    return json.loads(capsys.readouterr().out)


def states(embedder, tokens, segments):
    """Last states (T, C) of one framed text without padding."""
    with torch.no_grad():
        language = torch.tensor([[embedder.task.dictionary.language_id("en")]])
        return embedder.model.encode(torch.tensor([tokens]), languages=language, segments=segments)[0]


def test_vectors_of_words_are_means_of_their_pieces_in_a_direct_pass(embedder):
    """`spelled` has several pieces; inputs of other lengths are in the same batch."""
    text = "the small garden spelled water"
    words = [WordInText(text, text.index(word), text.index(word) + len(word), "here") for word in text.split()]
    pairs = [WordPair((word, words[0]), 0) for word in words] + [WordPair((WordInText("a", 0, 1, ""), words[2]), 0)]
    found, _ = both_words(embedder, pairs, "en")
    processor = embedder.encode.subwords[None][0].model
    pieces = processor.encode(text, out_type=str)
    indices = [embedder.task.dictionary.index(piece) for piece in pieces]
    hidden = states(embedder, [0, *indices, 2], None)
    starts = [number for number, piece in enumerate(pieces) if piece.startswith("▁")] + [len(pieces)]
    assert len(starts) == 6 and starts[4] - starts[3] > 1
    for number, (begin, end) in enumerate(itertools.pairwise(starts)):
        np.testing.assert_allclose(found[number], hidden[begin + 1 : end + 1].mean(0), atol=2e-6)


def test_vectors_of_pairs_are_first_states_of_both_texts(embedder):
    first, second = "the house", "a green book walks"
    pair = WordPair((WordInText(first, 0, 3, ""), WordInText(second, 0, 1, "")), 0)
    tokens = [0, *embedder.encode(first, "en"), 2, *embedder.encode(second, "en")]
    np.testing.assert_allclose(
        pair_hidden_states(embedder, [pair], "en")[0], states(embedder, tokens, None)[0], atol=2e-6
    )


def test_a_long_text_is_cut_around_the_word(embedder):
    """The model has 40 positions."""
    words = ["the"] * 50 + ["garden"] + ["a"] * 60
    text = " ".join(words)
    word = WordInText(text, 4 * 50, 4 * 50 + 6, "here")
    tokens, places = word_tokens(embedder, word, "en")
    garden = embedder.encode("garden", "en")[:-1]
    assert len(tokens) == 40 and tokens[places].tolist() == garden.tolist() and tokens[0] == 0 and tokens[-1] == 2
    assert abs(places.mean() - 19.5) <= 1.5
    for edge in (WordInText(text, 0, 3, ""), WordInText(text, len(text) - 1, len(text), "")):
        tokens, places = word_tokens(embedder, edge, "en")
        assert len(tokens) == 40 and len(places) == 1 and places[0] in (1, 38)
    with pytest.raises(UserError, match="here: the word has 0 pieces, expected 1 to 38"):
        word_tokens(embedder, WordInText("a", 1, 1, "here"), "en")


def test_probabilities_of_minimal_pairs_are_those_of_a_direct_pass(embedder, files):
    pairs = read_minimal_pairs([str(files / "pairs.tsv")])
    found = masked_log_probabilities(embedder, pairs, "en")
    assert list(found) == [0, 2]
    dictionary = embedder.task.dictionary
    (walks, reads) = (int(embedder.encode(word, "en")[0]) for word in ("walks", "reads"))
    the, house, _, *stop = embedder.encode("the house walks.", "en").tolist()  # a full stop and </s>
    masked = [0, the, house, dictionary.mask_index, *stop]
    with torch.no_grad():
        logits = embedder.model.output(states(embedder, masked, None))[3].double()
    expected = [float(logits[piece] - logits.exp().sum().log()) for piece in (walks, reads)]
    assert found[0] == pytest.approx(expected, abs=1e-5)


def test_the_commands(data_bin, checkpoint, embedder, files, capsys):
    found = probe(capsys, "wic", checkpoint, data_bin, files / "train", files / "test")
    assert (found["train"], found["n"], found["majority"]) == (30, 12, 66.67)
    for name in ("pair", "words"):
        low, high = found[name]["interval"]
        assert low <= found[name]["accuracy"] <= high
    assert set(found["versions"]) == {"fairseq_xl", "torch", "scikit-learn"} and None not in found["versions"].values()
    found = probe(capsys, "scws", checkpoint, data_bin, files / "ratings.txt")
    vectors = []
    for text, word in (
        ("the small house under water", "house"),
        ("a garden walks", "garden"),
        ("green stone over the river", "stone"),
    ):
        place = text.split().index(word) + 1
        vectors.append(states(embedder, [0, *embedder.encode(text, "en")], None)[place])
    cosines = [
        float(torch.cosine_similarity(vectors[one], vectors[two], 0)) for one, two in ((0, 1), (0, 2), (1, 2), (2, 2))
    ]
    assert found["n"] == 4 and found["context"]["score"] == round(100 * spearman(cosines, [7.5, 1.25, 3, 9.75]), 2)
    assert found["embeddings"]["score"] != 0 and found["chance"] == 0
    found = probe(capsys, "minimal-pairs", checkpoint, data_bin, files / "pairs.tsv")
    assert (found["n"], found["left_out"], found["categories"]["agreement"]["left_out"]) == (2, 1, 1)
    assert found["accuracy"] in (0, 50, 100)


def test_mistakes(data_bin, checkpoint, files, tmp_path):
    run_train([*translation(data_bin, tmp_path, "-s", "en", "-t", "de"), "--max-update", 1, "--disable-validation"])
    write(tmp_path / "long.tsv", [f"{'the ' * 50}house\t{'the ' * 50}book"])
    for command, message in (
        (
            ["minimal-pairs", tmp_path / "checkpoint_last.pt", data_bin, files / "pairs.tsv"],
            "need a masked language model, found",
        ),
        (["minimal-pairs", checkpoint, data_bin, tmp_path / "long.tsv"], "has more than 38 pieces"),
        (["scws", checkpoint, data_bin, files / "ratings.txt", "--lang", "xx"], "language 'xx' has no symbol"),
        (["scws", checkpoint, data_bin, files / "ratings.txt", "--language-module", "no.pt"], "no.pt"),
    ):
        with pytest.raises(UserError, match=message):
            main(["probe", *map(str, command)])
