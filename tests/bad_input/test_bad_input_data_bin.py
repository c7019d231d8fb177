"""Damaged and inconsistent data-bins: every command that reads one says so before it computes anything."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from fairseq import options, tasks

from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import open_subwords
from tests.bad_input.every_command import COMMANDS, SHORT, WITH_DATA, WITH_RAW_TEXT, fails, line_of
from tests.commands import configuration, pretraining, run_train
from tests.tiny_data import write_items


def write(name, change):
    """An error: other content of a file of the data-bin; None removes the file."""

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
    "missing": (write("dict.txt", lambda _: None), ["dict.txt: no such dictionary", "fairseq-xl data prepare"]),
    "empty": (write("dict.txt", lambda _: b""), ["dict.txt is not the dictionary", "manifest.json"]),
    "cut short": (write("dict.txt", lambda text: text[:300]), ["dict.txt is not a fairseq dictionary", "symbol count"]),
    "same size, other symbols": (write("dict.txt", exchanged), ["dict.txt is not the dictionary", "manifest.json"]),
    "same size, other symbols, no manifest": (
        without_manifest(write("dict.txt", exchanged)),
        ["dict.txt is not the dictionary", "of de was binarized"],
    ),
    "other size": (write("dict.txt", lambda text: b"new 1\n" + text), ["dict.txt is not the dictionary"]),
    "other size, no manifest": (
        without_manifest(write("dict.txt", lambda text: b"new 1\n" + text)),
        ["dict.txt is not the dictionary"],
    ),
    "beside a text": (write("fr/dict.txt", exchanged), ["dict.txt is not the dictionary", "of fr was", "fr/dict.txt"]),
    "manifest cut short": (write("manifest.json", lambda text: text[:300]), ["manifest.json is damaged"]),
    "manifest of something else": (write("manifest.json", lambda _: b"[]"), ["manifest.json is not a manifest"]),
}


@pytest.mark.parametrize("mistake", DICTIONARY)
def test_dictionary(place, tmp_path, mistake):
    spoil, parts = DICTIONARY[mistake]
    wrong = place.copy_of_data(tmp_path)
    spoil(wrong.data)
    fails(lambda: COMMANDS["train pretraining"](wrong, tmp_path / "out"), wrong.data, *parts)
    assert not list((tmp_path / "out").rglob("*.pt"))


@pytest.mark.parametrize("name", WITH_DATA)
def test_every_command_looks_at_the_dictionary(place, tmp_path, name):
    wrong = place.copy_of_data(tmp_path)
    write("dict.txt", exchanged)(wrong.data)
    fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / "dict.txt", "is not the dictionary")


def test_sub_words(place, tmp_path):
    wrong = place.copy_of_data(tmp_path)
    path = wrong.data / "sentencepiece.model"
    for content in (path.read_bytes()[:500], b"", b"the house\n"):
        path.write_bytes(content)
        fails(lambda: open_subwords(wrong.data), path, "is not a SentencePiece model, or it is damaged")
    path.unlink()
    fails(lambda: COMMANDS["retrieval"](wrong, tmp_path / "out"), path, "no such SentencePiece model")
    path.write_bytes(another_model(None))
    (wrong.data / "manifest.json").unlink()
    fails(lambda: COMMANDS["retrieval"](wrong, tmp_path / "out"), path, "has other sub-words than")


@pytest.mark.parametrize("name", WITH_RAW_TEXT)
def test_every_command_looks_at_the_sub_words(place, tmp_path, name):
    wrong = place.copy_of_data(tmp_path)
    write("sentencepiece.model", another_model)(wrong.data)
    fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / "sentencepiece.model", "is not the")


def test_binarized_text_is_damaged(place, tmp_path):
    wrong = place.copy_of_data(tmp_path)
    prefix = wrong.data / "en" / "train"
    assert len(open_text(prefix, "en")) == 120
    for end, more in (
        ("bin", []),
        ("idx", [b"", b"x" * 500, wrong.data.joinpath("en/train.idx").read_bytes()[:9] + bytes(491)]),
    ):
        path = wrong.data / f"en/train.{end}"
        whole = path.read_bytes()
        for content in (whole[: len(whole) // 2], whole[:-1], whole + b"\0", *more):
            path.write_bytes(content)
            fails(lambda: open_text(prefix, "en"), path, "is damaged")
        path.write_bytes(whole)
    path = wrong.data / "en/train.bin"
    path.write_bytes(b"")
    fails(lambda: open_text(prefix, "en"), prefix, "is empty")


READERS = {
    "train": ["train pretraining", "train translation"],
    "valid": ["train pretraining", "train translation", "validate translation", "eval-lm"],
    "test": ["generate"],
}


def files_of(name, split, end):
    """The files of a split that a command reads, one of them damaged: German bitext, or English text."""
    if "translation" in name or name == "generate":
        return f"en-de/{split}.en-de.de.{end}"
    return f"en/{split}.{end}"


@pytest.mark.parametrize("split, name", [(split, name) for split, names in READERS.items() for name in names])
def test_every_command_looks_at_the_text(place, tmp_path, split, name):
    wrong = place.copy_of_data(tmp_path)
    for end in ("bin", "idx"):
        file = files_of(name, split, end)
        whole = (wrong.data / file).read_bytes()
        write(file, lambda content: content[:-1])(wrong.data)
        fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data / file, "is damaged or cut short")
        if end == "bin":
            (wrong.data / file).write_bytes(zeros(whole))
            fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), f"{wrong.data / file} is not the file", "other cont")
        (wrong.data / file).write_bytes(whole)


def zeros(content):
    """Zeros, as in a block that was never written to the disk."""
    middle = len(content) // 2
    return content[: middle - 40] + bytes(80) + content[middle + 40 :]


def reordered(content):
    """The sizes of an index's lines in reverse order."""
    sizes = np.frombuffer(content, np.int32, (len(content) - 26) // 12, 26)
    return content[:26] + sizes[::-1].tobytes() + content[26 + sizes.nbytes :]


CHANGES = {
    "zeros in the middle": ("en/train.bin", lambda data: zeros),
    "one token": ("en/train.bin", lambda data: lambda content: content[:6] + content[8:10] + content[8:]),
    "another language's text": ("en/train.bin", lambda data: lambda content: (data / "fr/train.bin").read_bytes()),
    "lines of other lengths": ("en/train.idx", lambda data: reordered),
    "other frequencies": ("dict.txt", lambda data: lambda content: content.replace(b" 0\n", b" 7\n")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_longer_as_it_was_binarized(place, tmp_path, change):
    """Two languages, translated word by word, have texts of the same size here."""
    wrong = place.copy_of_data(tmp_path)
    name, made = CHANGES[change]
    if change.startswith("another"):
        shutil.copy(wrong.data / "fr/train.idx", wrong.data / "en/train.idx")
    write(name, made(wrong.data))(wrong.data)
    file = wrong.data / "en/train.idx" if change.startswith("another") else wrong.data / name
    sentence = ["is not the file that `fairseq-xl data prepare` wrote", f"`fairseq-xl data verify {wrong.data}`"]
    fails(lambda: COMMANDS["train pretraining"](wrong, tmp_path / "out"), file, *sentence)
    assert not list((tmp_path / "out").rglob("*.pt"))


def test_a_data_bin_without_fingerprints_opens(place, tmp_path):
    wrong = place.copy_of_data(tmp_path)
    manifest = json.loads((wrong.data / "manifest.json").read_text())
    entry = manifest["fingerprints"].pop("en/train.bin")
    (wrong.data / "manifest.json").write_text(json.dumps(manifest))
    write("en/train.bin", zeros)(wrong.data)
    assert len(open_text(wrong.data / "en/train", "en")) == 120
    for broken in (3, {}, entry | {"sampled": 3}):
        manifest["fingerprints"]["en/train.bin"] = broken
        (wrong.data / "manifest.json").write_text(json.dumps(manifest))
        fails(lambda: open_text(wrong.data / "en/train", "en"), wrong.data, "damaged" if broken in (3, {}) else "other")
    (wrong.data / "manifest.json").write_text('{"fingerprints": []}')
    fails(lambda: open_text(wrong.data / "en/train", "en"), wrong.data / "manifest.json", "is not a manifest")


def full_of(number, data, prefix):
    """Replaces every token of a text except the ends of lines by a number; without a manifest nothing else shows it."""
    (data / "manifest.json").unlink(missing_ok=True)
    tokens = np.fromfile(f"{data / prefix}.bin", np.uint16)
    np.where(tokens == 2, tokens, np.uint16(number)).tofile(f"{data / prefix}.bin")


NUMBERS = {"mlm": "en/train", "tlm": "en-de/train.en-de.de", "cross_lingual_mlm": "en-de/train.en-de.de"}


@pytest.mark.parametrize("name", [*NUMBERS, "translation"])
def test_numbers_that_the_dictionary_lacks(place, documents, tmp_path, name):
    """Also in a process that loads data."""
    wrong = (documents if name == "cross_lingual_mlm" else place).copy_of_data(tmp_path)
    prefix = NUMBERS.get(name, "en-de/train.en-de.en")
    full_of(60000, wrong.data, prefix)
    short = ["--max-update", 1, "--no-save", "--disable-validation", "--langs", "en", "--pairs", "en-de"]
    if name == "translation":
        line = line_of(name, wrong, tmp_path / "out", *short[:4])
    else:
        line = pretraining(wrong.data, tmp_path / "out", *short, objectives=name)
    language, symbols = prefix[-2:].replace("in", "en"), len(XLDictionary.load(wrong.data / "dict.txt"))
    sentence = [f"{wrong.data / prefix}.bin: the text of language '{language}' has the token id 60000, the dictio"]
    fails(lambda: run_train(line), *sentence, f"the dictionary {symbols} symbols")
    if name == "mlm":
        fails(lambda: run_train(line, ["--cpu", "--num-workers", 1]), *sentence)


def test_a_negative_number(tmp_path):
    text = open_text(write_items(tmp_path / "train", [[4, 2], [-5, 2]], np.int32), "en", 10)
    assert text[0].tolist() == [4, 2]
    fails(lambda: text[1], f"{tmp_path}/train.bin: the text of language 'en' has the token id -5")


@pytest.fixture(scope="module")
def documents(place, tmp_path_factory):
    """A place whose bitext has empty lines."""
    copied = place.copy_of_data(tmp_path_factory.mktemp("documents"))
    for language in ("en", "de"):
        prefix = copied.data / f"en-de/train.en-de.{language}"
        items = [item.tolist() for item in open_text(prefix, language)]
        write_items(prefix, [*items[:9], [2], *items[10:]])
    (copied.data / "manifest.json").unlink()
    return copied


def shard(place, folder, change):
    folder.mkdir()
    other = place.copy_of_data(folder)
    change(other.data)
    return place.but(data=f"{place.data}:{other.data}"), other.data


@pytest.mark.parametrize("task", ["pretraining", "translation"])
def test_a_broken_shard_is_told_before_the_first_update(place, tmp_path, task):
    file = "en-de/train.en-de.de.bin" if task == "translation" else "en/train.bin"
    for number, (change, sentence) in enumerate(
        ((zeros, "is not the file that"), (lambda _: None, "no binarized text"))
    ):
        both, broken = shard(place, tmp_path / str(number), write(file, change))
        line = line_of(task, both, tmp_path / "out", *SHORT)
        if task == "pretraining":
            line = pretraining(both.data, tmp_path / "out", *SHORT, objectives="mlm")
        fails(lambda: run_train(line), broken / file, sentence)
    both, broken = shard(place, tmp_path / "lacks", lambda data: shutil.rmtree(data / file.split("/")[0]))
    line[0] = both.data
    fails(lambda: run_train(line), broken, "no bi")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="sees what is mapped in /proc")
def test_other_shards_are_not_kept_open(place, tmp_path):
    both, other = shard(place, tmp_path / "other", lambda data: None)
    for line in (line_of("translation", both, tmp_path), pretraining(both.data, tmp_path, objectives="mlm,tlm")):
        task = tasks.setup_task(configuration(options.get_training_parser(), line).task)
        task.load_dataset("train", epoch=1)
        mapped = Path("/proc/self/maps").read_text()
        assert f"{place.data}/en-de/train.en-de.de.bin" in mapped and str(other) not in mapped
        task.load_dataset("train", epoch=2)
        assert f"{other}/en-de/train.en-de.de.bin" in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("split, lacking", [("train", "en"), ("valid", "de"), ("test", "en")])
def test_bitext_with_one_side_only(place, tmp_path, split, lacking):
    wrong = place.copy_of_data(tmp_path)
    for end in ("bin", "idx"):
        (wrong.data / "en-de" / f"{split}.en-de.{lacking}.{end}").unlink()
    for name in READERS[split][:2]:
        sentence = f"no binarized text of language '{lacking}'"
        fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), f"{split}.en-de.{lacking}.idx", sentence)


def test_sides_of_different_runs(place, tmp_path):
    """The same number of tokens and another number of lines."""
    wrong = place.copy_of_data(tmp_path)
    for end in ("bin", "idx"):
        shutil.copy(wrong.data / "en" / f"train.{end}", wrong.data / "en-de" / f"train.en-de.de.{end}")
    file = "en-de/train.en-de.de.idx"
    for name in READERS["train"]:
        fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), f"{wrong.data / file} is not the file", "120 lines, exp")
        (wrong.data / "manifest.json").rename(wrong.data / "manifest.old")
        fails(lambda: COMMANDS[name](wrong, tmp_path / "out"), wrong.data, "90 lines of 'en' but 120 of 'de'")
        (wrong.data / "manifest.old").rename(wrong.data / "manifest.json")
