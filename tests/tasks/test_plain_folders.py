"""Folders of plain fairseq-preprocess, which tasks read as they are."""

import json
import logging
import shutil

import numpy as np
import pytest

from fairseq_xl.checkpoints import identity
from fairseq_xl.checkpoints.identity import dictionary_of
from fairseq_xl.data.store.plain_folder import plain_files
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from preprocess.verification import verify
from tests.command_line import cli
from tests.commands import BOTH_SIDES, pretraining, run_generate, run_train, training, translation
from tests.tasks.conftest import preprocess_here
from tests.tiny_data import LANGUAGES, write_data_bin

SHORT = cli(updates_per_epoch=2, max_epoch=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The data-bin of `tests.tiny_data`, whose texts are documents. Read only."""
    return write_data_bin(tmp_path_factory.mktemp("tiny") / "data")


@pytest.fixture
def flat(tiny, tmp_path):
    """The files of `tiny` as fairseq-preprocess names them, and its dictionary without `<mask>` and languages."""
    folder = tmp_path / "flat"
    folder.mkdir()
    for path in tiny.glob("*/*.*"):
        split, _, rest = path.name.partition(".")
        language = path.parent.name
        if path.suffix in (".idx", ".bin"):
            name = path.name if "-" in language else f"{split}.{language}-None.{language}.{rest}"
            shutil.copyfile(path, folder / name)
    lines = (tiny / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    for code in LANGUAGES:
        (folder / f"dict.{code}.txt").write_text("".join(lines[: -1 - len(LANGUAGES)]), encoding="utf-8")
    return folder


def line_of(kind, data, folder):
    objectives = "clm,mlm,tlm,paraphrase,cross_lingual_mlm,word_recovery"
    cycle = cli(schedule="cycle", update_freq=6)
    return {
        "pretraining": lambda: pretraining(data, folder, *SHORT, *cycle, objectives=objectives),
        "nsp": lambda: training(
            *(data, folder, SHORT, "pretraining", "xl_monotrans_tiny"),
            **dict(layers=1, objectives="nsp", objective_options="nsp.length=32"),
        ),
        "translation": lambda: translation(data, folder, "-s", "en", "-t", "de", *SHORT),
    }[kind]()


@pytest.mark.parametrize("kind", ["pretraining", "nsp", "translation"])
def test_losses_are_those_of_the_data_folder(tiny, flat, tmp_path, kind):
    losses = [run_train(line_of(kind, data, tmp_path / data.name)).losses for data in (tiny, flat)]
    assert losses[0] and losses[0] == losses[1]
    assert dictionary_of([flat]).symbols == XLDictionary.load(tiny / "dict.txt").symbols


@pytest.fixture(scope="module")
def binarized(corpus, tmp_path_factory):
    """Folders that fairseq-preprocess writes: en-de, en-zh-Hans, de without a language in names. Read only."""
    root = tmp_path_factory.mktemp("binarized")
    shutil.copytree(corpus, root / "text", ignore=lambda *_: ["data-bin"])
    for path in (root / "text").glob("few.en-fr.*"):
        path.rename(path.with_name(f"few.en-zh-Hans.{'en' if path.suffix == '.en' else 'zh-Hans'}"))

    def run(folder, *flags, **options):
        preprocess_here([*map(str, cli(**options, destdir=root / folder)), *flags], root / "text", None)

    pair = dict(trainpref="train.en-de", validpref="valid.en-de,test.en-de", testpref="test.en-de")
    run("en-de", "--joined-dictionary", s="en", t="de", **pair)
    shared = root / "en-de/dict.en.txt"
    few = dict.fromkeys(("trainpref", "validpref", "testpref"), "few.en-zh-Hans")
    run("zh", "--joined-dictionary", s="en", t="zh-Hans", srcdict=shared, **few)
    run("de", "--only-source", srcdict=shared, trainpref="train.de", validpref="valid.de")
    run("apart", s="en", t="de", **pair)
    return root


def test_folders_side_by_side_are_one(binarized, tmp_path):
    """Training reads all directions in each epoch; each folder alone is evaluated with the checkpoint's symbols."""
    for name in ("en-de", "zh"):
        shutil.copytree(binarized / name, tmp_path / "data" / name)
    pairs = cli(lang_pairs="en-de,en-zh_Hans", ignore_unused_valid_subsets=True, updates_per_epoch=2)
    losses = []
    for save_dir, epochs in (("run", 2), ("parts", 1), ("parts", 2)):
        data = tmp_path / "data" if save_dir == "run" else f"{tmp_path}/data/en-de:{tmp_path}/data/zh"
        more = [*pairs, *cli(max_epoch=epochs)]
        output = run_train(training(data, tmp_path / save_dir, more, "translation", "xl_mt_tiny", **BOTH_SIDES))
        losses.append(output.losses)
    assert losses[0] == losses[1] + losses[2]
    checkpoint = tmp_path / "run/checkpoint_last.pt"
    for folder, target, count in (("en-de", "de", 13), ("zh", "zh_Hans", 20)):
        options = cli(task="xl_translation", path=checkpoint, user_dir="fairseq_xl", s="en", t=target, max_len_b=5)
        assert len(run_generate([tmp_path / "data" / folder, *options]).lines("H")) == count
    initial = cli(init_from=checkpoint, ignore_unused_valid_subsets=True)
    run_train(translation(tmp_path / "data/en-de", tmp_path / "new", "-s", "en", "-t", "de", *SHORT, *initial))
    with pytest.raises(UserError, match="also has valid1: name what is read, as in --valid-subset valid,valid1"):
        run_train(translation(tmp_path / "data/en-de", tmp_path / "new", "-s", "en", "-t", "de", *SHORT))


def test_symbols_follow_those_of_the_file_and_of_the_checkpoint(binarized, tmp_path):
    folders = [shutil.copytree(binarized / name, tmp_path / name) for name in ("zh", "en-de", "de")]
    pieces = XLDictionary.load(folders[0] / "dict.en.txt", ()).symbols
    assert any(symbol.startswith("madeupword") for symbol in pieces)
    assert dictionary_of(folders).symbols == [*pieces, "[de]", "[en]", "[zh_Hans]"]
    assert dictionary_of(folders[:2], ["fr", "en"]).symbols == [*pieces, "[fr]", "[en]", "[de]", "[zh_Hans]"]
    (folders[0] / "manifest.json").unlink()
    for path in folders[0].glob("dict.*"):
        path.write_text(f"{path.read_text(encoding='utf-8')}<mask> 0\n[zh_Hans] 0\n", encoding="utf-8")
    assert dictionary_of(folders[:1]).symbols == [*pieces, "[zh_Hans]", "[en]"]


def test_madeupword_is_neither_drawn_nor_predicted(binarized):
    dictionary = XLDictionary.load(binarized / "en-de/dict.txt")
    padding = [dictionary.index(symbol) for symbol in dictionary.symbols if symbol.startswith("madeupword")]
    assert padding and not dictionary.is_piece[padding].any() and not dictionary.is_output[padding].any()
    assert not np.isin(dictionary.pieces, padding).any()


def test_names(tmp_path):
    names = "train.zh-Hans-zh.zh train.zh-Hans-zh.zh-Hans valid1.en-None.en train test.en-de.en train.align.en-de"
    for name in names.split():
        (tmp_path / f"{name}.idx").touch()
    for code in ("zh", "zh-Hans", "en", "de"):
        (tmp_path / f"dict.{code}.txt").touch()
    expected = "zh_Hans-zh/train.zh_Hans-zh.zh zh_Hans-zh/train.zh_Hans-zh.zh_Hans en/valid1 und/train"
    assert set(plain_files(tmp_path)) >= {f"{name}.idx" for name in [*expected.split(), "en-de/test.en-de.en"]}
    (tmp_path / "pt_BR").mkdir()
    (tmp_path / "pt_BR/train.bin").touch()
    assert plain_files(tmp_path / "pt_BR") == {"pt_BR/train.bin": tmp_path / "pt_BR/train.bin"}


def test_manifest(flat, tmp_path, monkeypatch, caplog):
    later = [path.rename(tmp_path / path.name) for path in flat.glob("valid.en-fr.*")]
    dictionary_of([flat])
    manifest = json.loads((flat / "manifest.json").read_text(encoding="utf-8"))
    for path in later:
        path.rename(flat / path.name)
    dictionary_of([flat])
    added = json.loads((flat / "manifest.json").read_text(encoding="utf-8"))["fingerprints"]
    assert added.items() > manifest["fingerprints"].items()
    assert verify(flat) == len(added)
    shutil.copyfile(flat / "train.en-fr.en.bin", flat / "train.de-en.en.bin")
    with pytest.raises(UserError, match=r"train\.de-en\.en\.\w+ is damaged|has changed since .*manifest\.json was wri"):
        run_train(pretraining(flat, tmp_path / "run", *SHORT))
    (flat / "manifest.json").unlink()

    def refuse(*_):
        raise UserError("read only")

    monkeypatch.setattr(identity, "locked", refuse)
    shutil.copyfile(flat / "train.de-en.en.idx", flat / "train.de-en.de.idx")
    with caplog.at_level(logging.INFO), pytest.raises(UserError, match=r"train\.de-en\.\w+\.bin is damaged or cut"):
        dictionary_of([flat])
    for path in flat.glob("train.de-en.*"):
        path.unlink()
    with caplog.at_level(logging.INFO):
        dictionary_of([flat])
    assert "is read without a manifest" in caplog.text and not (flat / "manifest.json").exists()


def test_refusals(binarized, flat, tmp_path):
    with pytest.raises(UserError, match="dict.de.txt and dict.en.txt differ, expected one dictionary for all lang"):
        run_train(translation(binarized / "apart", tmp_path / "run", "-s", "en", "-t", "de"))
    with pytest.raises(UserError, match="objective mlm reads: add it to the folder with fairseq-preprocess and --srcd"):
        run_train(pretraining(binarized / "en-de", tmp_path / "mlm", *SHORT, "--ignore-unused-valid-subsets"))
    with pytest.raises(UserError, match="differs from the dictionary of the first data folder"):
        dictionary_of([flat, binarized / "zh"])
    for end in ("idx", "bin"):
        shutil.copyfile(flat / f"valid.de-en.de.{end}", flat / f"train.de-en.de.{end}")
    (flat / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"train\.de-en: \d+ lines of 'de' but \d+ of 'en'"):
        run_train(pretraining(flat, tmp_path / "run", *SHORT))
    with open(flat / "train.en-None.en.idx", "r+b") as file:
        file.truncate(100)
    with pytest.raises(UserError, match=r"train\.en-None\.en\.idx is damaged or cut short"):
        run_train(pretraining(flat, tmp_path / "run", *SHORT))
