"""Sampling with p^alpha, the model, the dictionary's order, and encoding."""

import configparser
import random
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from packaging.specifiers import SpecifierSet
from tiny_corpus import change
from tqdm import tqdm

from fairseq_xl.data.vocabulary.subwords import Source
from fairseq_xl.errors import UserError
from preprocess import encode, files, vocabulary
from preprocess.config import Vocabulary
from preprocess.pipeline import prepare


def trained(folder, lines, **options):
    sample, model = folder / "sample.txt", folder / "spm.model"
    sample.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    vocabulary.train_model(sample, Vocabulary(**{"size": 40, "coverage": 0.9995, **options}), model)
    return model


def encoded(model, path):
    output, subwords = path.with_name("encoded"), Source("sentencepiece", (model,))
    with files.Workers(1, encode.start, (subwords, ("<mask>", "[en]"))) as pool, tqdm(disable=True) as bar:
        counts = encode.encode([path], [False], output, pool, bar)
    return output.read_bytes().decode("utf-8").split("\n")[:-1], counts


LINES = ["the house is green", "the garden is small", "a house in the garden", "see [en] and <mask> there"] * 5


def test_quotas_by_hand():
    assert vocabulary.quotas({"en": 900, "de": 100}, 0.5, 100) == {"en": 75, "de": 25}
    # 10 x (0.75, 0.25) = 7.5, 2.5: the sum is kept
    assert sum(vocabulary.quotas({"en": 900, "de": 100}, 0.5, 10).values()) == 10
    # German has 100 of its 250; English gives no more for it
    assert vocabulary.quotas({"en": 900, "de": 100}, 0.5, 5000) == {"en": 750, "de": 100}
    # largest remainders: 7 x (0.510957, 0.361303, 0.127740) = 3.58, 2.53, 0.89
    assert vocabulary.quotas({"en": 64, "de": 32, "fr": 4}, 0.5, 7) == {"en": 4, "de": 2, "fr": 1}


def test_draw():
    sentences = [str(number) for number in range(10)]
    assert list(vocabulary.draw(sentences, 10, 10, random.Random(1))) == sentences
    assert list(vocabulary.draw(sentences, 10, 0, random.Random(1))) == []
    again = [list(vocabulary.draw(sentences, 10, 4, random.Random(7))) for _ in range(2)]
    assert again[0] == again[1] and len(set(again[0])) == 4
    # every sentence as likely as another: 4000 of 10 000 each, standard deviation 49
    drawn = Counter()
    for seed in range(10000):
        drawn.update(vocabulary.draw(sentences, 10, 4, random.Random(seed)))
    assert all(3750 < drawn[sentence] < 4250 for sentence in sentences)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_model_and_its_symbols(tmp_path, model):
    subwords = vocabulary.load_model(trained(tmp_path, LINES, model=model))
    processor, symbols = subwords.model, vocabulary.new_symbols(subwords, ["en", "de"])
    pieces = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]
    assert symbols == [*pieces, "<mask>", "[en]", "[de]"]
    assert "<unk>" not in pieces and "<s>" not in pieces
    # a unigram's scores are log probabilities, those of BPE the order of the merges: whole numbers
    assert all(processor.get_score(index).is_integer() for index in range(3, 40)) == (model == "bpe")


def test_too_large_and_too_small(tmp_path, caplog):
    trained(tmp_path, LINES, size=5000)
    assert "vocabulary: size 5000 is too large for this corpus, which gave" in caplog.text
    with pytest.raises(UserError, match="can't learn 5 unigram pieces from this corpus") as error:
        trained(tmp_path, LINES, size=5)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="can't learn 5 bpe pieces from this corpus"):
        trained(tmp_path, LINES, size=5, model="bpe")


@pytest.mark.parametrize(
    "version, model, refused",
    [("0.2.2", "unigram", True), ("0.2.2", "bpe", False), ("0.2.3", "unigram", False)],
)
def test_the_version_that_does_not_finish_is_refused_before_learning(
    corpus, tmp_path, monkeypatch, version, model, refused
):
    change(corpus, vocabulary={"model": model, "size": 60})
    monkeypatch.setattr(sentencepiece, "__version__", version)
    monkeypatch.setattr(vocabulary, "train_model", lambda *_: 1 / 0)
    expected = "vocabulary: sentencepiece 0.2.2 does not finish learning unigram pieces: pip install"
    with pytest.raises(UserError, match=expected) if refused else pytest.raises(ZeroDivisionError):
        prepare(corpus, tmp_path / "data-bin")


def test_the_version_that_does_not_finish_is_not_installed():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    (line,) = [line for line in setup["options"]["install_requires"].split() if line.startswith("sentencepiece")]
    versions = SpecifierSet(line.removeprefix("sentencepiece"))
    assert [version for version in ("0.2.0", "0.2.1", "0.2.2", "0.2.3") if version in versions] == ["0.2.1", "0.2.3"]


def test_pieces_never_become_symbols(tmp_path):
    # a model of another project, in which they are pieces
    model = tmp_path / "spm.model"
    options = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
    options["user_defined_symbols"] = ["[en]", "<mask>", "<pad>"]
    with open(model, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=file, **options)
    subwords = vocabulary.load_model(model)
    processor = subwords.model
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    assert {"[en]", "<mask>", "<pad>"} <= set(pieces)
    symbols = vocabulary.new_symbols(subwords, ["en"])
    assert symbols[-2:] == ["<mask>", "[en]"]
    assert len(set(symbols)) == len(symbols)
    assert "<pad>" not in symbols
    path = tmp_path / "text"
    path.write_text("the[en] house<mask> a<pad>\n", encoding="utf-8")
    lines, counts = encoded(model, path)
    assert not {"[en]", "<mask>", "<pad>"} & set(lines[0].split(" "))
    assert lines[0].split(" ").count("<unk>") == counts["unknown"] == 3


def test_reused_symbols(tmp_path):
    path = tmp_path / "dict.txt"
    for text, symbols in (
        ("a 1\nb 1\n", ["a", "b", "<mask>", "[en]", "[de]"]),
        ("a 1\n<mask> 0\n[de] 0\n", ["a", "<mask>", "[de]", "[en]"]),
    ):
        path.write_text(text, encoding="utf-8")
        assert vocabulary.reused_symbols(path, ["en", "de"]) == symbols
    for text, message in (
        ("a 1\n[de] 0\n", "has language symbols but no <mask>"),
        ("a 1\nb\n", "line 2 is not 'symbol count': 'b'"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            vocabulary.reused_symbols(path, ["en", "de"])
    with pytest.raises(UserError, match="is not a dictionary"):
        vocabulary.reused_symbols(tmp_path / "missing", ["en"])


def test_odd_white_space_adds_and_loses_nothing(tmp_path):
    model = trained(tmp_path, LINES)
    odd = (
        "\t \x0b \x0c \x1c \x1d \x1e \x85 \xa0 \u1680 \u2003 \u2028 \u2029 \u202f \u3000 \ufeff \u200b \x00 \r"
    ).split(" ")
    path = tmp_path / "text"
    text = [f"the{char}house " for char in odd] + ["\x85", " ", "\u200b", "end\r\n"]
    path.write_bytes("\n".join(text).encode("utf-8"))
    lines, counts = encoded(model, path)
    assert len(lines) == counts["lines"] == len(odd) + 4
    # what splits as fairseq does must give the pieces that were counted
    assert sum(len(line.split()) for line in lines) == counts["tokens"]
    the_house = " ".join(vocabulary.load_model(model).model.encode("the house", out_type=str))
    white = [line for char, line in zip(odd, lines) if char.isspace()]
    assert len(white) >= 14 and set(white) == {the_house}
    assert lines[-4:-1] == ["", "", ""]  # also of invisible characters alone
    assert counts["blank"] == 3


def test_a_killed_process_is_reported():
    with files.Workers(2) as workers, pytest.raises(UserError, match="worker process was killed"):
        list(workers.map(files.os._exit, [1, 1]))
