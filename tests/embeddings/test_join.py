"""Joint embeddings of several languages: the owner of each piece, training from them, mistakes."""

import json

import numpy as np
import pytest

from fairseq_xl.checkpoints.embedding_files import Vectors, read, write
from fairseq_xl.commands import embeddings_join
from fairseq_xl.data.corpora.token_stream import piece_counts
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.tiny_data import WORDS, write_data_bin, write_items


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_bin(tmp_path_factory.mktemp("join") / "data-bin")


@pytest.fixture
def files(data, tmp_path):
    """Embeddings of all pieces: ones for English, twos for German."""
    symbols = [f"▁{word}" for words in WORDS.values() for word in words]
    for code, value in (("en", 1), ("de", 2)):
        write(Vectors(symbols, np.full((len(symbols), 4), value, dtype=np.float32)), tmp_path / f"{code}.npz")
    return [f"{code}={tmp_path / code}.npz" for code in ("en", "de")]


def test_a_piece_has_the_vector_of_the_language_with_the_largest_share_of_it(data, files, tmp_path, capsys):
    embeddings_join.main([str(data), *files, str(tmp_path / "joint.npz")])
    joint = read(tmp_path / "joint.npz")
    values = dict(zip(joint.symbols, joint.rows[:, 0].tolist()))
    expected = {f"▁{word}": value for code, value in (("en", 1), ("de", 2)) for word in WORDS[code]}
    assert values == expected  # without French
    assert json.loads(capsys.readouterr().out) == {"en": len(WORDS["en"]), "de": len(WORDS["de"])}


def test_shares_are_compared_not_counts(tmp_path, capsys):
    """The word is 2 of 100 English tokens, and 1 of 4 German ones."""
    data = write_data_bin(tmp_path / "data-bin")
    symbols = XLDictionary.load(data / "dict.txt").symbols
    word, others = symbols.index("▁house"), symbols.index("▁stone")
    write_items(data / "en/train", [[word, 2], [word, 2], *[[others, 2]] * 48])
    write_items(data / "de/train", [[word, 2], [others, 2]])
    rows = np.ones((2, 4), dtype=np.float32)
    write(Vectors(["▁house", "▁stone"], rows), tmp_path / "en.npz")
    write(Vectors(["▁house", "▁stone"], 2 * rows), tmp_path / "de.npz")
    embeddings_join.main([str(data), f"en={tmp_path}/en.npz", f"de={tmp_path}/de.npz", str(tmp_path / "joint.npz")])
    joint = read(tmp_path / "joint.npz")
    assert dict(zip(joint.symbols, joint.rows[:, 0].tolist())) == {"▁house": 2, "▁stone": 1}
    counts = piece_counts(data / "en/train", "en", len(symbols))
    assert counts[word] == 2 and counts[others] == 48 and counts[2] == counts.sum() / 2


def test_mistakes(data, files, tmp_path):
    output = str(tmp_path / "joint.npz")
    write(Vectors(["▁house"], np.ones((1, 3), dtype=np.float32)), tmp_path / "three.npz")
    write(read(tmp_path / "de.npz")._replace(space="of German"), tmp_path / "unmapped.npz")
    for given, message in (
        (files[:1], "expected LANGUAGE=FILE for two languages or more"),
        ([files[0], files[0]], "expected LANGUAGE=FILE for two languages or more"),
        ([files[0], f"de={tmp_path}/three.npz"], "differ in their channels: {'en': 4, 'de': 3}"),
        ([files[0], f"de={tmp_path}/unmapped.npz"], "unmapped.npz is not in the space of .*en.npz"),
        ([files[0], f"de={tmp_path}/none.npz"], "no such file of embeddings"),
        ([files[0], files[1].replace("de=", "it=")], "it"),
    ):
        with pytest.raises(UserError, match=message):
            embeddings_join.main([str(data), *given, output])
