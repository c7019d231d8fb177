"""The sub-words that a data folder names: kind, options and files, and folders that are damaged."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import Source, check_pieces, in_folder, open_subwords, vocabulary_kind
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from tests.data.vocabulary.builders import (
    LINES,
    OPTIONS,
    folder,  # noqa: F401
    write_manifest,
)
from tests.published_text import write
from tests.tiny_data import write_dictionary


def changed(data, **entry):
    """Changes the entry of the vocabulary in the manifest."""
    content = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    content["vocabulary"] |= entry
    write_manifest(data, content)


def test_a_byte_order_mark_is_no_part_of_a_vocabulary(folder):
    source = in_folder(folder, vocabulary_kind(folder), OPTIONS[vocabulary_kind(folder)])
    before, dictionary = source.open(), XLDictionary.load(folder / "dict.txt")
    for path in (*source.files, folder / "dict.txt"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert source.open().symbols == before.symbols and source.open().encode(LINES) == before.encode(LINES)
    assert XLDictionary.load(folder / "dict.txt").symbols == dictionary.symbols


def test_raw_text_is_encoded(folder):
    kind = vocabulary_kind(folder)
    dictionary = XLDictionary.load(folder / "dict.txt")
    encode = TextEncoder(folder, dictionary)
    found = dictionary.string(encode("the house,  Été", "fr"), "@@ ")
    assert found == ("the house , ete" if kind == "xlm" else "the house , Été")
    assert encode("Q\u200b", "en").tolist() == [dictionary.unk(), dictionary.eos()]
    ids, places = encode.spans("the  house,", "en")
    assert ids.tolist() == encode("the  house,", "en")[:-1].tolist()
    assert places[0, 0] == 0 and places[-1].tolist() == [10, 11]


def test_accents_and_case_do_not_move_answers(folder):
    """XLM's text loses them; an answer is still where it is in the raw text."""
    encode = TextEncoder(folder, XLDictionary.load(folder / "dict.txt"))
    text = "la ÉTÉ,  été"
    _, places = encode.spans(text, "fr")
    assert "".join(text[begin:end] for begin, end in places.tolist()) == text.replace(" ", "")


def test_changed_punctuation_is_refused_where_answers_are_located(folder):
    encode = TextEncoder(folder, XLDictionary.load(folder / "dict.txt"))
    if vocabulary_kind(folder) == "wordpiece":
        assert len(encode.spans("the “house”", "en")[0]) == 4
        return
    with pytest.raises(UserError, match="the tokenizer 'xlm' of en changes characters of the text .'“house”' becomes"):
        encode.spans("the “house”", "en")


def test_a_changed_file_is_refused(folder):
    kind = vocabulary_kind(folder)
    path = in_folder(folder, kind).files[-1]
    path.write_bytes(path.read_bytes() + b"x 1\n")
    with pytest.raises(UserError, match=f"{path.name} is not the file that the text was encoded with: .*manifest.json"):
        open_subwords(folder)
    path.unlink()
    with pytest.raises(UserError, match=f"{path.name}: no such file"):
        open_subwords(folder)


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"kind": "mecab"}, "manifest.json: 'mecab' is no kind of vocabulary; known: sentencepiece, xlm, wordpiece"),
        ({"sha256": 3}, "manifest.json is damaged: its 'vocabulary' has 3 as sha256"),
        ({"lowercase": None, "lowercase_and_remove_accent": "no"}, "is damaged: its 'vocabulary' needs lowercase"),
    ],
)
def test_a_damaged_manifest(folder, entry, message):
    changed(folder, **entry)
    with pytest.raises(UserError, match=message):
        open_subwords(folder)


def test_without_a_manifest_the_files_show_the_kind(folder, tmp_path):
    kind = vocabulary_kind(folder)
    (folder / "manifest.json").unlink()
    assert vocabulary_kind(folder) == kind
    assert vocabulary_kind(tmp_path) == "sentencepiece"
    with pytest.raises(UserError, match="data: manifest.json is missing, which says how text is prepared"):
        open_subwords(folder)


def test_the_vocabulary_of_another_dictionary(folder, tmp_path):
    write(tmp_path / "dict.txt", ["x 1", "y 1", "<mask> 0", "[en] 0"])
    with pytest.raises(UserError, match="vocab is not the .* of the dictionary, which has . of its"):
        TextEncoder(folder, XLDictionary.load(tmp_path / "dict.txt"))


@pytest.mark.parametrize(
    "symbols, message",
    [
        ({f"p{number}": 1 for number in range(20)}, None),
        ({f"p{number}": 1 for number in range(10)}, None),  # fairseq-preprocess left out rare ones
        ({f"p{number}": 1 for number in range(9)}, "which has 9 of its 20 pieces"),
        ({f"p{number}": 100 for number in range(18)} | {"字": 9, "文": 9}, None),  # characters that spm_encode keeps
        ({f"p{number}": 100 for number in range(18)} | {"字": 9, "文": 10}, "it lacks 2 of 20 pieces, .* '字"),
        ({f"p{number}": 0 for number in range(18)} | {"pa": 0, "pb": 0, "pc": 0}, "it lacks 3 of 21 pieces"),
        (
            {f"p{number}": 900 for number in range(18)} | dict.fromkeys("漢字文書化", 9),
            None,
        ),  # of no character of a piece
        ({f"p{number}": 1 for number in range(20)} | {f"madeupword{number}": 0 for number in range(9)}, None),
    ],
)
def test_pieces_are_those_of_the_dictionary(tmp_path, symbols, message):
    subwords = SimpleNamespace(symbols=[f"p{number}" for number in range(20)], title="model")
    for suffix in ("", "@en"):
        counts = {f"{name}{'' if 'madeup' in name else suffix}": count for name, count in symbols.items()}
        dictionary = XLDictionary.load(write_dictionary(tmp_path / "dict.txt", counts, ["en"]))
        with nullcontext() if message is None else pytest.raises(UserError, match=f"^x is not the model .*{message}"):
            check_pieces(subwords, "x", dictionary, suffix)


def test_a_sentencepiece_model_of_another_name_opens(tmp_path):
    with pytest.raises(UserError, match="x.model: no such SentencePiece model"):
        Source("sentencepiece", (tmp_path / "x.model",)).open()
