"""One data-bin of languages that share no piece."""

import shutil

import numpy as np
import pytest

from fairseq_xl.data.store import binarized_text
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.io import indexed_text
from preprocess import disjoint
from tests.preprocess.builders import SPLITS, joined, parts  # noqa: F401


def text_of(folder, code, split):
    symbols = XLDictionary.load(folder / "dict.txt").symbols
    return [[symbols[index] for index in item.tolist()] for item in open_text(folder / code / split, code)]


def test_special_symbols_alone_are_shared(parts, joined):
    dictionary = XLDictionary.load(joined / "dict.txt")
    assert dictionary.languages == ["en", "de"]
    read = {code: {symbol for line in text_of(joined, code, "train") for symbol in line} for code in ("en", "de")}
    assert read["en"] & read["de"] == {"</s>"}
    apart = [{symbol for line in text_of(parts / "data" / code, code, "train") for symbol in line} for code in read]
    assert len(apart[0] & apart[1]) > 2  # the same text shares more by its own dictionaries
    used = [{index for index in dictionary.pieces if dictionary.symbols[index].endswith(f"@{code}")} for code in read]
    assert not used[0] & used[1] and used[0] | used[1] == set(dictionary.pieces)


def test_a_folder_of_something_else_stays(parts, joined, tmp_path, capsys):
    """The data-bin of a language or of other joined languages stays; one of the same languages is made again."""
    alone, more = tmp_path / "de", tmp_path / "more"
    shutil.copytree(parts / "data/de", alone)
    shutil.copytree(joined, more)
    (more / "fr").mkdir()
    for folder, other in ((alone, "sentencepiece.model"), (more, "fr")):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert disjoint.main([str(folder), str(parts / "data/en"), str(parts / "data/de")]) == 1
        assert f"{folder} has something else already, {other}: name another folder\n" in capsys.readouterr().err
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (more / "fr").rmdir()
    for unfinished in ("dict.txt.tmp", "manifest.json.tmp"):
        (more / unfinished).write_bytes(b"half")  # left by one that was killed
    assert disjoint.main([str(more), str(parts / "data/en"), str(parts / "data/de")]) == 0


def test_the_text_is_the_same_under_other_numbers(parts, joined):
    for code in ("en", "de"):
        for split in SPLITS:
            own = text_of(parts / "data" / code, code, split)
            tagged = [
                [f"{symbol}@{code}" if symbol not in ("</s>", "<unk>") else symbol for symbol in line] for line in own
            ]
            assert text_of(joined, code, split) == tagged and own


def test_frequencies_are_those_of_the_parts(parts, joined):
    dictionary, own = (XLDictionary.load(folder / "dict.txt") for folder in (joined, parts / "data/de"))
    for index in own.pieces:
        assert dictionary.count[dictionary.index(f"{own.symbols[index]}@de")] == own.count[index]


def test_raw_text_is_encoded_by_its_language(parts, joined):
    dictionary = XLDictionary.load(joined / "dict.txt")
    encode = TextEncoder(joined, dictionary)
    for code in ("en", "de"):
        lines = (parts / f"valid.{code}").read_text().splitlines()
        binarised = open_text(joined / code / "valid", code)
        for line, item in zip(lines, binarised):
            np.testing.assert_array_equal(encode(line, code) if line else [dictionary.eos()], item)
    assert encode.tokenizers == {"de": "moses"}


def test_more_symbols_take_wider_numbers(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(indexed_text, "UINT16_SYMBOLS", 10)
    monkeypatch.setattr(binarized_text, "BLOCK_TOKENS", 7)
    disjoint.join(tmp_path / "wide", [parts / "data/en", parts / "data/de"])
    monkeypatch.undo()
    disjoint.join(tmp_path / "narrow", [parts / "data/en", parts / "data/de"])
    wide, narrow = ((tmp_path / name / "de/train.bin").read_bytes() for name in ("wide", "narrow"))
    assert len(wide) == 2 * len(narrow)
    assert text_of(tmp_path / "wide", "de", "train") == text_of(tmp_path / "narrow", "de", "train")


def test_what_is_not_complete_has_no_dictionary_and_nothing_of_before_stays(parts, joined, tmp_path, monkeypatch):
    """The run is killed between two languages; or the text has one split less than before."""
    made, folders = tmp_path / "made", [parts / "data/en", parts / "data/de"]
    shutil.copytree(joined, made)
    for suffix in ("bin", "idx"):
        shutil.copy(joined / f"de/valid.{suffix}", made / f"de/test.{suffix}")

    def killed(source, target, *arguments):
        if target.parent.name == "de":
            raise KeyboardInterrupt
        return renumber(source, target, *arguments)

    renumber = disjoint.renumber
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(disjoint, "renumber", killed)
        disjoint.join(made, folders)
    assert sorted(path.name for path in made.iterdir()) == ["de", "en"]
    disjoint.join(made, folders)
    files = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (made, joined)]
    assert files[0] == files[1]


def test_what_cannot_be_joined_is_reported(parts, joined, tmp_path, capsys):
    en = str(parts / "data/en")
    for arguments, message in (
        ([str(tmp_path / "out"), en, en], "must have a language of its own"),
        ([str(tmp_path / "out"), en, str(joined)], "is not a complete data folder"),
        ([str(tmp_path / "out"), en, str(tmp_path)], "is not a complete data folder"),
        ([en, en, str(parts / "data/de")], "is, or has, one of the folders"),
        ([str(parts / "data"), en, str(parts / "data/de")], "is, or has, one of the folders"),
        ([str(tmp_path / "out"), en], "en alone: folders of two languages or more are joined"),
        ([str(parts / "en.yaml"), en, str(parts / "data/de")], "en.yaml/manifest.json: Not a directory"),
        ([str(tmp_path / "out"), en, str(parts / "de.yaml")], "de.yaml/manifest.json: Not a directory"),
    ):
        assert disjoint.main(arguments) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out/dict.txt").exists()
