"""Word embeddings of checkpoints and of .npz files through the command."""

import json

import numpy as np
import pytest

from fairseq_xl.checkpoints.embedding_files import Vectors, write as write_vectors
from fairseq_xl.commands import main
from fairseq_xl.embeddings.words import WordEmbeddings
from fairseq_xl.errors import UserError
from tests.commands import load, pretraining, trained
from tests.tasks.tiny_text import WORDS, write

TABLE = "encoder.token_embeddings.table.weight"


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    return trained([*pretraining(data_bin, folder), "--max-update", 1, "--disable-validation"])


@pytest.fixture(scope="module")
def dictionary_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("dictionary") / "en-de.txt"
    write(path, [*map("\t".join, zip(WORDS["en"], WORDS["de"])), "spelled\tgeht", "日\tgeht"])
    return path


def score(capsys, *arguments):
    capsys.readouterr()
    main(["score", "word-embeddings", *map(str, arguments)])
    return json.loads(capsys.readouterr().out)


def test_a_word_is_the_mean_of_its_pieces(data_bin, checkpoint):
    embeddings = WordEmbeddings({None: str(checkpoint)}, data_bin)
    pieces = embeddings.encode.subwords[None][0].model.encode("spelled", out_type=str)
    rows = load(checkpoint)[TABLE].numpy()[[embeddings.dictionary.index(piece) for piece in pieces]]
    house, spelled, unknown = embeddings(["house", "spelled", "日"], "en")
    assert len(pieces) > 2 and unknown is None
    np.testing.assert_allclose(spelled, rows.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(house, load(checkpoint)[TABLE][embeddings.dictionary.index("▁house")])


def test_a_checkpoint_and_the_same_rows_in_files_have_equal_scores(
    data_bin, checkpoint, dictionary_file, tmp_path, capsys
):
    write(tmp_path / "data.txt", ["house\tHaus", "river\tgeht", "walks\tgeht"])
    write(tmp_path / "gold.txt", ["4", "0.5", "3"])
    rated = f"en-de={tmp_path / 'data.txt'}:{tmp_path / 'gold.txt'}"
    command = [data_bin, f"en-de={dictionary_file}", "--similarity", rated]
    found = score(capsys, checkpoint, *command)
    assert None not in found["versions"].values()
    scores = found["dictionaries"]["en-de"]
    assert (scores["n"], scores["left_out"]) == (len(WORDS["en"]) + 1, 1)
    assert found["similarity"]["en-de"]["n"] == 3
    assert scores["no_common_piece"]["n"] == len(WORDS["en"]) + 1  # each word but `spelled` is a piece of its own
    dictionary = WordEmbeddings({None: str(checkpoint)}, data_bin).dictionary
    symbols = [dictionary.symbols[index] for index in dictionary.pieces]
    write_vectors(Vectors(symbols, load(checkpoint)[TABLE].numpy()[dictionary.pieces]), tmp_path / "all.npz")
    files = f"en={tmp_path / 'all.npz'},de={tmp_path / 'all.npz'}"
    for embeddings in (tmp_path / "all.npz", files):
        assert score(capsys, embeddings, *command) == found
    few = Vectors(["▁house", "▁Haus", "▁river", "▁Fluss", "▁nowhere"], np.eye(5, dtype=np.float32))
    write_vectors(few, tmp_path / "few.npz")
    scores = score(capsys, tmp_path / "few.npz", data_bin, f"en-de={dictionary_file}")["dictionaries"]["en-de"]
    assert (scores["n"], scores["cosine"]["score"], scores["l2"]["score"]) == (2, 0, 1.414)


def test_mistakes(data_bin, checkpoint, dictionary_file, tmp_path):
    pair = f"en-de={dictionary_file}"
    write_vectors(Vectors(["x"], np.ones((1, 2), dtype=np.float32)), tmp_path / "none.npz")
    write_vectors(Vectors(["▁house"], np.ones((1, 2), dtype=np.float32)), tmp_path / "one.npz")
    (tmp_path / "dict.txt").write_text((data_bin / "dict.txt").read_text(encoding="utf-8").replace("[fr]", "[it]"))
    (tmp_path / "sentencepiece.model").write_bytes((data_bin / "sentencepiece.model").read_bytes())
    for arguments, message in (
        ([checkpoint, data_bin, "en-de"], "en-de: expected XX-YY=DICTIONARY"),
        ([checkpoint, data_bin, pair, pair], "en-de is named twice"),
        ([checkpoint, data_bin, "de-de=x"], "de-de=x: 'de-de' is not a pair"),
        ([checkpoint, data_bin, pair, "--similarity", "en-de=x"], "--similarity en-de=x: expected XX-YY=DATA:GOLD"),
        ([tmp_path / "none.npz", data_bin, pair], "none.npz has none of the pieces of"),
        ([tmp_path / "one.npz", data_bin, pair], "en-de: 0 of 18 pairs of words have embeddings; two are needed"),
        ([f"en={tmp_path}/one.npz,de={checkpoint}", data_bin, pair], "the embeddings differ in their channels"),
        ([f"en={tmp_path}/one.npz", data_bin, pair], "EMBEDDINGS has no file of de: it has those of en"),
        ([f"en={tmp_path}/one.npz,de=", data_bin, pair], "expected XX=FILE.npz,YY=FILE.npz, each language once"),
        ([checkpoint, tmp_path, pair], "was trained with another dictionary"),
    ):
        with pytest.raises(UserError, match=message):
            main(["score", "word-embeddings", *map(str, arguments)])
