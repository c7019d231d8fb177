"""Skip-gram embeddings of pieces, and language modules made of embeddings (M8)."""

import numpy as np
import pytest
import torch

from fairseq_xl.checkpoints import language_modules, parameter_names
from fairseq_xl.checkpoints.embedding_files import Vectors, read
from fairseq_xl.checkpoints.language_modules import LanguageModule
from fairseq_xl.commands import embeddings_skipgram, model_language_module as command
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.tiny_data import write_data_bin, write_dictionary, write_items

#: two groups of words that stand beside their own only
GROUPS = ["abc", "xyz"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text in which pieces occur with others of their group; one piece never occurs."""
    folder = tmp_path_factory.mktemp("data")
    letters = [*"abc", *"xyz"]
    counts = {f"▁{letter}": 10 + place for place, letter in enumerate(letters)} | {"▁unseen": 0}
    dictionary = XLDictionary.load(write_dictionary(folder / "dict.txt", counts, ["de"]))
    rng = np.random.default_rng(0)
    lines = [rng.choice(list(GROUPS[number % 2]), size=6) for number in range(400)]
    items = [[dictionary.index(f"▁{letter}") for letter in line] + [dictionary.eos()] for line in lines]
    write_items(folder / "de/train", items)
    return folder


def test_pieces_of_the_same_context_are_near(data, tmp_path):
    flags = ["--dim", "8", "--epochs", "20", "--subsample", "0", "--buckets", "50"]
    embeddings_skipgram.main([str(data), "de", str(tmp_path / "one.npz"), *flags])
    found = read(tmp_path / "one.npz")
    assert found.symbols == ["▁z", "▁y", "▁x", "▁c", "▁b", "▁a", "▁unseen"]  # the most frequent first
    assert found.rows.dtype == np.float32 and found.rows.shape == (7, 8)
    np.testing.assert_allclose(np.linalg.norm(found.rows, axis=1), 1, rtol=1e-5)
    similarity = found.rows[:6] @ found.rows[:6].T
    assert similarity[:3, :3].min() > similarity[:3, 3:].max() and similarity[3:, 3:].min() > similarity[:3, 3:].max()
    embeddings_skipgram.main([str(data), "de", str(tmp_path / "two.npz"), *flags])
    np.testing.assert_array_equal(read(tmp_path / "two.npz").rows, found.rows)


def test_rare_pieces_are_left_out(data, tmp_path):
    given = [str(data), "de", str(tmp_path / "out.npz"), "--dim", "4", "--subsample", "0", "--buckets", "50"]
    text = [
        piece
        for line in embeddings_skipgram.Sentences(
            embeddings_skipgram.open_text(data / "de/train", "de"), XLDictionary.load(data / "dict.txt")
        )
        for piece in line
    ]
    counts = sorted((text.count(f"▁{letter}"), f"▁{letter}") for letter in "abcxyz")
    embeddings_skipgram.main([*given, "--min-count", str(counts[1][0])])
    assert set(read(tmp_path / "out.npz").symbols) == {piece for _, piece in counts[1:]} and counts[0][0] < counts[1][0]
    with pytest.raises(UserError, match="--min-count 9999: no piece occurs so many times"):
        embeddings_skipgram.main([*given, "--min-count", "9999"])


def test_numbers_that_train_nothing_are_reported(data, tmp_path):
    given = [str(data), "de", str(tmp_path / "out.npz")]
    for name, number in (
        ("dim", 0),
        ("epochs", 0),
        ("negative", 0),
        ("subsample", -1),
        ("buckets", 0),
        ("min-count", -1),
        ("threads", 0),
        ("seed", -1),
    ):
        with pytest.raises(UserError, match=f"--{name} {number}"):
            embeddings_skipgram.main([*given, f"--{name}", str(number)])
    with pytest.raises(UserError, match="--std 0.0: more than 0 is needed"):
        command.main(["from-embeddings", "none.pt", str(data), "none.npz", "none", "--std", "0"])
    assert not list(tmp_path.iterdir())


def test_sentences_are_pieces_alone(tmp_path):
    folder = write_data_bin(tmp_path / "data")
    dictionary = XLDictionary.load(folder / "dict.txt")
    text = embeddings_skipgram.open_text(folder / "en/train", "en")
    sentences = list(embeddings_skipgram.Sentences(text, dictionary))
    assert 0 < len(sentences) < len(text)  # empty lines end documents
    assert all(piece.startswith("▁") for sentence in sentences for piece in sentence)


def own_module(channels=2):
    state = {parameter_names.TOKENS: torch.ones(9, channels), parameter_names.BIAS: torch.ones(9)}
    return LanguageModule(["en"], "another", "of this", False, 0, state)


def test_a_language_module_by_hand(data):
    dictionary = XLDictionary.load(data / "dict.txt")
    symbols = [dictionary.symbols[index] for index in dictionary.pieces][::-1]
    rows = np.array([[0.6, 0.8]] * 6 + [[1.0, 0.0]], dtype=np.float32)
    made = language_modules.from_embeddings(own_module(), Vectors(symbols, rows), dictionary, std=0.5)
    tokens = made.state[parameter_names.TOKENS]
    factor = 0.5 * 2**0.5
    expected = torch.zeros(len(dictionary), 2)
    expected[4] = torch.tensor([factor, 0.0])  # the first piece has the last vector
    expected[5:11] = torch.tensor([0.6 * factor, 0.8 * factor])
    torch.testing.assert_close(tokens, expected)
    assert not made.state[parameter_names.BIAS].any() and made.state[parameter_names.BIAS].shape == (len(dictionary),)
    assert (made.body, made.languages, made.dictionary) == ("of this", ["de"], dictionary.digest())


def test_what_makes_no_language_module_is_reported(data):
    dictionary = XLDictionary.load(data / "dict.txt")
    symbols = [dictionary.symbols[index] for index in dictionary.pieces]
    more = own_module()
    more.state[parameter_names.POSITIONS] = torch.ones(4, 2)
    for given, names, channels, message in (
        (own_module(), symbols, 3, "3 channels, the model 2"),
        (own_module(), symbols[:-1], 2, "1 pieces of the dictionary have no embedding"),
        (more, symbols, 2, "only embeddings can be mapped"),
    ):
        vectors = Vectors(names, np.ones((len(names), channels), np.float32))
        with pytest.raises(UserError, match=message):
            language_modules.from_embeddings(given, vectors, dictionary, 1.0)
