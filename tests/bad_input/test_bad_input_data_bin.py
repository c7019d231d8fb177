"""A data-bin with a mistake in it: every command that reads it says so, before it computes anything."""

import io
import shutil

import pytest
import sentencepiece

from fairseq_xl.data.indexed import open_text
from tests.bad_input.every_command import COMMANDS, WITH_DATA, WITH_RAW_TEXT, told


def write(name, change):
    """A mistake: the content of a file of the data-bin changed; None takes it away."""

    def spoil(data):
        path = data / name
        content = change(path.read_bytes())
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    return spoil


def without_manifest(spoil):
    def both(data):
        spoil(data)
        (data / "manifest.json").unlink()

    return both


def exchanged(content):
    lines = content.split(b"\n")
    return b"\n".join([lines[0], lines[2], lines[1], *lines[3:]])


def another_model(_):
    model = io.BytesIO()
    words = (f"{first}{second}" for first in "BCDFGHKLMNPRSTVWZ" for second in "AEIOUY")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words, model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


#: name -> (mistake, parts of the sentence besides the file)
DICTIONARY = {
    "missing": (write("dict.txt", lambda _: None), ["dict.txt: no such dictionary", "python -m preprocess"]),
    "empty": (write("dict.txt", lambda _: b""), ["dict.txt is not the dictionary", "manifest.json"]),
    "cut short": (write("dict.txt", lambda text: text[:300]), ["dict.txt is not a fairseq dictionary", "symbol count"]),
    "a line without count": (
        write("dict.txt", lambda text: text.replace(b" 0\n", b"\n", 1)), ["dict.txt is not a fairseq dictionary"]),
    "not UTF-8": (write("dict.txt", lambda text: b"\xff" + text), ["dict.txt is not a fairseq dictionary"]),
    "same size, other symbols": (write("dict.txt", exchanged), ["dict.txt is not the dictionary", "manifest.json"]),
    "same size, other symbols, no manifest": (
        without_manifest(write("dict.txt", exchanged)), ["dict.txt is not the dictionary", "of de was binarised"]),
    "other size": (write("dict.txt", lambda text: b"new 1\n" + text), ["dict.txt is not the dictionary"]),
    "other size, no manifest": (
        without_manifest(write("dict.txt", lambda text: b"new 1\n" + text)), ["dict.txt is not the dictionary"]),
    "beside a text": (write("fr/dict.txt", exchanged), ["dict.txt is not the dictionary", "of fr was", "fr/dict.txt"]),
    "manifest cut short": (write("manifest.json", lambda text: text[:300]), ["manifest.json is damaged"]),
    "manifest empty": (write("manifest.json", lambda _: b""), ["manifest.json is damaged"]),
    "manifest of something else": (write("manifest.json", lambda _: b"[]"), ["manifest.json is no manifest"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", DICTIONARY)
def test_dictionary(place, tmp_path, mistake):
    spoil, parts = DICTIONARY[mistake]
    wrong = place.copy_of_data(tmp_path)
    spoil(wrong.data)
    told(lambda: COMMANDS["train pretraining"](wrong, tmp_path / "out"), wrong.data, *parts)
    assert not list((tmp_path / "out").rglob("*.pt"))


@pytest.mark.parametrize("name", WITH_DATA)
def test_every_command_looks_at_the_dictionary(place, tmp_path, name):
    wrong = place.copy_of_data(tmp_path)
    write("dict.txt", exchanged)(wrong.data)
    told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / "dict.txt", "is not the dictionary")


MODEL = {
    "missing": (lambda _: None, "no such SentencePiece model"),
    "cut short": (lambda content: content[:500], "is not a SentencePiece model, or it is damaged"),
    "empty": (lambda _: b"", "is not a SentencePiece model, or it is damaged"),
    "text": (lambda _: b"the house\n", "is not a SentencePiece model, or it is damaged"),
    "of another corpus": (another_model, "is not the SentencePiece model that the text was encoded with"),
}


@pytest.mark.parametrize("mistake", MODEL)
def test_sub_words(place, tmp_path, mistake):
    change, sentence = MODEL[mistake]
    wrong = place.copy_of_data(tmp_path)
    write("sentencepiece.model", change)(wrong.data)
    for name in ("interactive", "retrieval"):
        told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / "sentencepiece.model", sentence)


@pytest.mark.parametrize("name", WITH_RAW_TEXT)
def test_every_command_looks_at_the_sub_words(place, tmp_path, name):
    wrong = place.copy_of_data(tmp_path)
    write("sentencepiece.model", another_model)(wrong.data)
    told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / "sentencepiece.model", "is not the Sentence")


def test_sub_words_of_another_dictionary_without_manifest(place, tmp_path):
    wrong = place.copy_of_data(tmp_path)
    without_manifest(write("sentencepiece.model", another_model))(wrong.data)
    told(lambda: COMMANDS["retrieval"](wrong, tmp_path / "out"), wrong.data / "sentencepiece.model", "of its", "pieces")


TEXT = {
    "cut in the middle": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "longer by a byte": lambda content: content + b"\0",
}
INDEX = {
    **TEXT,
    "empty": lambda _: b"",
    "another kind of file": lambda content: b"x" * len(content),
    "zeros behind the first bytes": lambda content: content[:9] + bytes(len(content) - 9),
}
READERS = {
    "train": ["train pretraining", "train translation"],
    "valid": ["train pretraining", "train translation", "validate pretraining", "validate translation", "eval-lm"],
    "test": ["generate"],
}


def files_of(name, split, end):
    """What a command reads of a split, of which one file is spoilt: German bitext, or English text."""
    if "translation" in name or name == "generate":
        return f"en-de/{split}.en-de.de.{end}"
    return f"en/{split}.{end}"


@pytest.mark.parametrize("end, mistake", [("bin", key) for key in TEXT] + [("idx", key) for key in INDEX])
def test_binarised_text_is_damaged(place, tmp_path, end, mistake):
    wrong = place.copy_of_data(tmp_path)
    prefix = wrong.data / "en" / "train"
    assert len(open_text(prefix, "en")) == 120
    write(f"en/train.{end}", (TEXT if end == "bin" else INDEX)[mistake])(wrong.data)
    told(lambda: open_text(prefix, "en"), f"{prefix}.{end}", "is damaged")


@pytest.mark.parametrize("split, name", [(split, name) for split, names in READERS.items() for name in names])
def test_every_command_looks_at_the_text(place, tmp_path, split, name):
    wrong = place.copy_of_data(tmp_path)
    for end in ("bin", "idx"):
        file = files_of(name, split, end)
        whole = (wrong.data / file).read_bytes()
        write(file, lambda content: content[:-1])(wrong.data)
        told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / file, "is damaged or cut short")
        (wrong.data / file).write_bytes(whole)


@pytest.mark.parametrize("end", ["bin", "idx"])
@pytest.mark.parametrize("split", READERS)
def test_binarised_text_lacks_a_file(place, tmp_path, split, end):
    name = READERS[split][-1]
    wrong = place.copy_of_data(tmp_path)
    file = files_of(name, split, end)
    write(file, lambda _: None)(wrong.data)
    told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / file, "no binarised text of language")


@pytest.mark.parametrize("lacking", ["en", "de"])
@pytest.mark.parametrize("split", READERS)
def test_bitext_with_one_side_only(place, tmp_path, split, lacking):
    wrong = place.copy_of_data(tmp_path)
    for end in ("bin", "idx"):
        (wrong.data / "en-de" / f"{split}.en-de.{lacking}.{end}").unlink()
    for name in READERS[split][:2]:
        sentence = f"no binarised text of language '{lacking}'"
        told(lambda: COMMANDS[name](wrong, tmp_path / "out"), f"{split}.en-de.{lacking}.idx", sentence)


@pytest.mark.parametrize("split", READERS)
def test_empty_text(place, tmp_path, split):
    wrong, name = place.copy_of_data(tmp_path), READERS[split][-1]
    write(files_of(name, split, "bin"), lambda _: b"")(wrong.data)
    told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data, "is empty")


def test_sides_of_different_runs(place, tmp_path):
    """As many tokens, and another number of lines."""
    wrong = place.copy_of_data(tmp_path)
    for end in ("bin", "idx"):
        shutil.copy(wrong.data / "en" / f"train.{end}", wrong.data / "en-de" / f"train.en-de.de.{end}")
    for name in READERS["train"]:
        told(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data, "90 lines of 'en' but 120 of 'de'")
