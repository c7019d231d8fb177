"""Pieces and languages added to a checkpoint: from text, from another data folder; training goes on; refused inputs."""

import json
import shutil

import numpy as np
import pytest
import sentencepiece
import torch
import yaml

from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.commands.model_extend_vocabulary import main
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from preprocess import binarize
from preprocess.pipeline import prepare
from tests.commands import load, pretraining, run_train, trained
from tests.tasks.conftest import preprocess_here
from tests.tasks.tiny_text import WORDS, write

TOKENS, BIAS = "encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"
LANGUAGES = "encoder.embeddings.languages.weight"
SHORT = ["--max-update", 3, "--disable-validation"]
SPANISH = "la casa jardin rio piedra camina lee escribe un libro pequeno verde bajo sobre agua luz".split()


def prepare_here(description, folder, name):
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(description, sort_keys=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarize, "run_fairseq", preprocess_here)
        prepare(path, folder / name, 1)
    return folder / name


@pytest.fixture(scope="module")
def spanish(tmp_path_factory):
    """Training and validation text of a language that the data folder lacks."""
    root = tmp_path_factory.mktemp("spanish")
    rng = np.random.default_rng(1)
    for split, count in (("train", 120), ("valid", 20)):
        write(root / f"{split}.es", [" ".join(rng.choice(SPANISH, rng.integers(3, 9))) for _ in range(count)])
    return root


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    """A checkpoint of MLM in three languages."""
    folder = tmp_path_factory.mktemp("three languages")
    return trained(pretraining(data_bin, folder, *SHORT, "--lr", 0.05, objectives="mlm"))


@pytest.fixture(scope="module")
def extended(data_bin, spanish, checkpoint, tmp_path_factory):
    """What the command writes for a new language and 12 pieces of its text."""
    output = tmp_path_factory.mktemp("extended") / "out"
    more = ["--langs", "es", "--text", str(spanish / "train.es"), "--pieces", "12"]
    main([str(checkpoint), "--data", str(data_bin), "--output", str(output), *more])
    return output


@pytest.fixture(scope="module")
def new_data(extended, corpus, spanish, tmp_path_factory):
    """The data folder that preprocess makes with the extended model."""
    folder = tmp_path_factory.mktemp("new data")
    mono = {code: {"train": str(corpus / f"train.{code}")} for code in WORDS}
    mono["es"] = {split: str(spanish / f"{split}.es") for split in ("train", "valid")}
    vocabulary = {"sentencepiece": str(extended / "sentencepiece.model")}
    return prepare_here({"languages": list(mono), "vocabulary": vocabulary, "monolingual": mono}, folder, "data")


def dictionaries(*folders):
    return [XLDictionary.load(folder / "dict.txt") for folder in folders]


def test_preprocess_makes_the_same_dictionary(data_bin, extended, new_data):
    old, new, made = dictionaries(data_bin, extended, new_data)
    assert new.symbols == made.symbols and new.languages == ["en", "de", "fr", "es"]
    pieces = len(old.pieces)
    assert new.symbols[: 4 + pieces] == old.symbols[: 4 + pieces] and len(new) == len(old) + 13
    added = [new.count[number] for number in range(4 + pieces, 16 + pieces)]
    assert added == [made.count[number] for number in range(4 + pieces, 16 + pieces)] and sum(added) > 100


def test_rows(data_bin, checkpoint, extended):
    """Old symbols keep bit-identical rows; the others are means, worked out here with SentencePiece.

    The logit of a new piece is then the mean of those of its parts.
    """
    (old, new), before, after = dictionaries(data_bin, extended), load(checkpoint), load(extended / "checkpoint.pt")
    old_model = sentencepiece.SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    paths, place = (checkpoint, extended / "checkpoint.pt"), list(before).index(TOKENS)
    moments = [load_plain(path)["last_optimizer_state"]["state"][place] for path in paths]
    used = 0
    for number, symbol in enumerate(new.symbols):
        for key in ("exp_avg", "exp_avg_sq"):
            expected = moments[0][key][old.index(symbol)] if symbol in old.symbols else torch.zeros(16)
            assert torch.equal(moments[1][key][number], expected)
        if symbol in old.symbols:
            rows = [old.index(symbol)]
        elif symbol == "[es]":
            rows = list(range(old.first_language, len(old)))
        elif symbol.startswith("▁"):
            parts = old_model.encode(symbol[1:], out_type=str)
            rows = [old.index(part) for part in parts if part != "▁" and part in old.symbols]
            used += 1
        else:
            continue
        for name in (TOKENS, BIAS):
            error = 0 if symbol in old.symbols else 1e-6
            torch.testing.assert_close(after[name][number], before[name][rows].mean(0), atol=error, rtol=0)
    assert used > 7
    torch.testing.assert_close(after[LANGUAGES][3], before[LANGUAGES].mean(0))
    assert torch.equal(after[LANGUAGES][:3], before[LANGUAGES])
    for name, value in before.items():
        if name not in (TOKENS, BIAS, LANGUAGES):
            assert torch.equal(after[name], value), name


def test_training_goes_on(new_data, extended, tmp_path):
    more = ["--max-update", 5, "--disable-validation"]
    path = extended / "checkpoint.pt"
    resumed = run_train(pretraining(new_data, tmp_path / "on", "--restore-file", path, *more, objectives="mlm"))
    assert list(resumed.updates) == [4, 5]
    started = run_train(pretraining(new_data, tmp_path / "new", "--init-from", path, *more, objectives="mlm"))
    assert "new: none" in started.log
    of_folder = run_train(pretraining(new_data, tmp_path / "folder", "--init-from", extended, *more, objectives="mlm"))
    assert of_folder.updates == started.updates


def test_languages_alone(data_bin, checkpoint, tmp_path):
    (tmp_path / "model").mkdir()
    shutil.copyfile(checkpoint, tmp_path / "model" / "checkpoint.pt")
    line = [str(tmp_path / "model"), "--data", str(data_bin), "--langs", "it,es", "--like", "fr"]
    main([*line, "--output", str(tmp_path / "out")])
    (old, new), before = dictionaries(data_bin, tmp_path / "out"), load(checkpoint)
    after = load(tmp_path / "out/checkpoint.pt")
    assert new.symbols == [*old.symbols, "[it]", "[es]"] and new.count[: len(old)] == old.count
    for name, row in ((TOKENS, old.index("[fr]")), (BIAS, old.index("[fr]")), (LANGUAGES, 2)):
        assert torch.equal(after[name][:-2], before[name])
        assert torch.equal(after[name][-2:], before[name][[row, row]])
    assert (tmp_path / "out/sentencepiece.model").read_bytes() == (data_bin / "sentencepiece.model").read_bytes()


def test_tokenizers_and_kinds_of_sub_words_stay(checkpoint, data_bin, tmp_path):
    data = shutil.copytree(data_bin, tmp_path / "data")
    manifest = json.loads((data / "manifest.json").read_text())
    (data / "manifest.json").write_text(json.dumps(manifest | {"format": 1, "config": {"tokenizer": {"en": "moses"}}}))
    main([str(checkpoint), "--data", str(data), "--langs", "es", "--output", str(tmp_path / "out")])
    encoders = [TextEncoder(folder, XLDictionary.load(folder / "dict.txt")) for folder in (data, tmp_path / "out")]
    found = [encode("Don't stop.", "en").tolist() for encode in encoders]
    assert found[0] == found[1] != encoders[0]("Don't stop.", "de").tolist()
    written = json.loads((tmp_path / "out/manifest.json").read_text())
    assert written["config"]["languages"] == ["en", "de", "fr", "es"]
    (data / "manifest.json").write_text(json.dumps({"format": 1, "disjoint": ["en", "de"]}))
    with pytest.raises(UserError, match="its languages share no piece, so the vocabulary cannot be extended"):
        main([str(checkpoint), "--data", str(data), "--langs", "es", "--output", str(tmp_path / "other")])


def test_a_language_module_stays_with_its_body(data_bin, tmp_path):
    run_train(pretraining(data_bin, tmp_path / "run", "--arch", "xl_monotrans_tiny", *SHORT, objectives="mlm"))
    last, output = tmp_path / "run" / "checkpoint_last.pt", tmp_path / "out"
    main([str(last), "--data", str(data_bin), "--output", str(output), "--langs", "es"])
    one, other = (language_modules.extract(open_checkpoint(path)) for path in (last, output / "checkpoint.pt"))
    assert one.body == other.body and other.languages == ["en", "de", "fr", "es"]
    assert len(other.state[TOKENS]) == len(one.state[TOKENS]) + 1


@pytest.fixture(scope="module")
def other_data(corpus, spanish, tmp_path_factory):
    """A data folder of a vocabulary that was learned on two languages, one of them new."""
    mono = {"es": {"train": str(spanish / "train.es")}, "de": {"train": str(corpus / "train.de")}}
    described = {"languages": ["es", "de"], "vocabulary": {"size": 60}, "monolingual": mono}
    return prepare_here(described, tmp_path_factory.mktemp("other"), "data")


def test_the_dictionary_of_another_data_folder(data_bin, checkpoint, other_data, tmp_path, caplog):
    caplog.set_level("INFO")
    output = tmp_path / "out"
    main([str(checkpoint), "--data", str(data_bin), "--output", str(output), "--new-data", str(other_data)])
    for name in ("dict.txt", "sentencepiece.model"):
        assert (output / name).read_bytes() == (other_data / name).read_bytes()
    (old, new), before, after = dictionaries(data_bin, output), load(checkpoint), load(output / "checkpoint.pt")
    both = [symbol for symbol in new.symbols if symbol in old.symbols]
    assert "▁Haus" in both and "▁house" not in both and "[de]" in both
    for symbol in both:
        assert torch.equal(after[TOKENS][new.index(symbol)], before[TOKENS][old.index(symbol)])
    assert torch.equal(after[LANGUAGES][1], before[LANGUAGES][1])
    left_out = len(set(old.symbols) - set(new.symbols))
    assert f"new languages: es; removed symbols: {left_out}" in caplog.text
    more = ["--restore-file", output / "checkpoint.pt", "--max-update", 4, "--disable-validation"]
    assert list(run_train(pretraining(other_data, tmp_path / "on", *more, objectives="mlm")).updates) == [4]


# Wrong input


def test_options_that_do_not_go_together(data_bin, checkpoint, other_data, spanish, tmp_path):
    def error(*more, path=checkpoint, data=data_bin):
        with pytest.raises(UserError) as error:
            main([str(path), "--data", str(data), "--output", str(tmp_path / "out"), *map(str, more)])
        assert "\n" not in str(error.value)
        return str(error.value)

    text = spanish / "train.es"
    for options in ([], ["--new-data", other_data, "--langs", "es"]):
        assert error(*options).startswith("give --new-data alone, or --langs, or --text with --pieces")
    for options in (["--text", text], ["--pieces", 3], ["--new-data", other_data, "--pieces", 3]):
        assert error(*options).startswith("--text and --pieces belong together")
    assert "the dictionary has de already" in error("--langs", "es,de")
    assert "--langs: 'zh-CN' is not a language code" in error("--langs", "es,zh-CN")
    (tmp_path / "empty").write_text("\n \n")
    assert "there is no text in it" in error("--text", tmp_path / "empty", "--pieces", 3)
    assert "no such dictionary" in error("--new-data", tmp_path)
    assert "was trained with another dictionary" in error("--langs", "it", data=other_data)

    copy = tmp_path / "data"
    copy.mkdir()
    shutil.copy(data_bin / "dict.txt", copy)
    for options in (["--text", text, "--pieces", 3], ["--new-data", other_data]):
        assert "sentencepiece.model: no such SentencePiece model" in error(*options, data=copy)
    shutil.copy(other_data / "sentencepiece.model", copy)
    assert f"{copy}/sentencepiece.model is not " in error("--langs", "es", data=copy)
    vocabulary = {"kind": "sentencepiece", "sha256": {"sentencepiece.model": "0"}}
    (copy / "manifest.json").write_text(json.dumps({"format": 1, "vocabulary": vocabulary}))
    assert "is not the file that the text was encoded with" in error("--new-data", other_data, data=copy)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.tmp"))
