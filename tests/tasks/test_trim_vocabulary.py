"""Vocabularies cut to the text of a data folder: what stays equal, training that goes on, refused inputs."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import sentencepiece
import torch

import fairseq_xl
from fairseq_xl.checkpoints import language_modules, sentencepiece_surgery
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.commands.model_trim_vocabulary import main
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import Embedder
from preprocess.verification import verify
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import classification, load, pretraining, run_train, trained, translation
from tests.tasks.conftest import prepare_here
from tests.tasks.published_data import data as published  # noqa: F401
from tests.tasks.tiny_text import WORDS, sentences

TOKENS, BIAS = "encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"
SHORT = ["--max-update", 3, "--disable-validation"]


def part_of(data, folder, *names):
    """A copy of a data folder with the text of some languages and pairs only."""
    folder.mkdir()
    for name in names:
        shutil.copytree(data / name, folder / name)
    for path in data.glob("*.*"):
        if path.is_file():
            shutil.copy(path, folder)
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    known = {key: value for key, value in manifest["fingerprints"].items() if key.split("/")[0] in (*names, key)}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"fingerprints": known}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def english(data_bin, tmp_path_factory):
    """The data folder with English text only; its vocabulary has the words of three languages."""
    return part_of(data_bin, tmp_path_factory.mktemp("english") / "data", "en")


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    """A checkpoint of MLM in three languages."""
    return trained(pretraining(data_bin, tmp_path_factory.mktemp("three languages"), *SHORT, objectives="mlm"))


@pytest.fixture(scope="module")
def trimmed(english, checkpoint, tmp_path_factory):
    """What the command writes for English text."""
    output, folder = tmp_path_factory.mktemp("trimmed") / "out", tmp_path_factory.mktemp("model")
    shutil.copyfile(checkpoint, folder / "checkpoint.pt")
    main([str(folder), "--data", str(english), "--output", str(output)])
    return output


def kept_rows(old, new):
    """The old id of each symbol of a cut dictionary."""
    before, after = (XLDictionary.load(folder / "dict.txt") for folder in (old, new))
    return [before.index(symbol) for symbol in after.symbols]


def test_symbols_are_those_of_the_text(data_bin, trimmed):
    """The 16 English words, each a piece of the model, and the piece with the lowest score."""
    before, after = (XLDictionary.load(folder / "dict.txt") for folder in (data_bin, trimmed))
    words = {f"▁{word}" for word in WORDS["en"]}
    assert words < set(after.symbols) and len(after) < len(before) / 2
    assert after.languages == before.languages and kept_rows(data_bin, trimmed) == sorted(kept_rows(data_bin, trimmed))
    counts = dict(zip(before.symbols, before.count))
    assert all(counts[symbol] == count for symbol, count in zip(after.symbols, after.count))
    assert "▁Haus" in before.symbols and "▁Haus" not in after.symbols


def test_the_text_has_the_same_pieces_under_new_ids(english, trimmed):
    before, after = (XLDictionary.load(folder / "dict.txt") for folder in (english, trimmed))
    for split in ("train", "valid"):
        one, other = (open_text(folder / "en" / split, "en", len(before)) for folder in (english, trimmed))
        assert len(one) == len(other) > 0
        for old, new in zip(one, other):
            assert [before[number] for number in old] == [after[number] for number in new]


def test_the_folder_is_one_of_preprocess(trimmed):
    manifest = json.loads((trimmed / "manifest.json").read_text(encoding="utf-8"))
    assert verify(trimmed) == len(manifest["fingerprints"]) == 7
    assert manifest["config"]["vocabulary"] == {"sentencepiece": "sentencepiece.model"}
    assert manifest["dictionary"]["symbols"] == len(XLDictionary.load(trimmed / "dict.txt"))


def test_preprocess_makes_more_text_for_it(trimmed, corpus, tmp_path):
    """With its vocabulary; the same as the command makes of the binarized text."""
    mono = {split: str(corpus / f"{split}.en") for split in ("train", "valid")}
    described = {"languages": ["en"], "monolingual": {"en": mono}}
    prepare_here(described, tmp_path, "data", vocabulary_from=trimmed)
    for split in ("train", "valid"):
        for end in ("bin", "idx"):
            name = f"en/{split}.{end}"
            assert (tmp_path / "data" / name).read_bytes() == (trimmed / name).read_bytes()
    one, other = (XLDictionary.load(folder / "dict.txt") for folder in (trimmed, tmp_path / "data"))
    assert one.symbols == other.symbols


def test_the_cut_model_segments_the_text_as_before(english, trimmed):
    models = [
        sentencepiece.SentencePieceProcessor(model_file=str(f / "sentencepiece.model")) for f in (english, trimmed)
    ]
    lines = sentences(["en"], 200, "others")["en"]
    one, other = (model.encode(lines, out_type=str) for model in models)
    assert one == other and len(models[1]) < len(models[0])
    assert models[0].encode("das Haus", out_type=str) != models[1].encode("das Haus", out_type=str)


def test_hidden_states_are_equal_and_so_are_logits(english, checkpoint, trimmed):
    (old, task), (new, _) = fairseq_xl.load(checkpoint, english), fairseq_xl.load(trimmed / "checkpoint.pt")
    rows, languages = kept_rows(english, trimmed), torch.tensor([[task.dictionary.language_id("en")]])
    texts = [open_text(folder / "en" / "valid", "en") for folder in (english, trimmed)]
    for one, other in zip(*texts):
        hidden = [
            model.encode(torch.from_numpy(tokens)[None], languages=languages)
            for model, tokens in ((old, one), (new, other))
        ]
        assert torch.equal(*hidden)
        torch.testing.assert_close(old.output(hidden[0])[..., rows], new.output(hidden[1]), rtol=0, atol=1e-6)


def test_pretraining_goes_on(trimmed, tmp_path, data_bin):
    more = ["--restore-file", trimmed / "checkpoint.pt", "--max-update", 5, "--disable-validation"]
    assert list(run_train(pretraining(trimmed, tmp_path / "on", *more, objectives="mlm")).updates) == [4, 5]
    with pytest.raises(UserError, match="was trained with another dictionary"):
        run_train(pretraining(data_bin, tmp_path / "other", *more, objectives="mlm"))


@pytest.fixture(scope="module")
def tagged(data_bin, tmp_path_factory):
    """Task files, the plain text of those in English and German, and the data folder of these languages."""
    root = tmp_path_factory.mktemp("classes")
    files = write_task(root / "files", 1)
    kept = []
    for code in ("en", "de"):
        for path in sorted(files.glob(f"*.{code}.tsv")):
            lines = path.read_text(encoding="utf-8").splitlines()
            kept.append(root / f"{path.stem}.txt")
            kept[-1].write_text("".join(line.partition("\t")[2] + "\n" for line in lines), encoding="utf-8")
    return files, kept, part_of(data_bin, root / "data", "en-de")


RUNS = {"32 bits": [], "fp16": ["--fp16"], "frozen": ["--bf16", "--freeze", "encoder.embeddings.*,*norm*"]}


@pytest.mark.parametrize("run", RUNS)
def test_finetuning_goes_on_bit_for_bit(tagged, tmp_path, run):
    """No loss depends on symbols that the text lacks, so the updates after the cut are those without it."""
    files, kept, data = tagged
    more = ["--weight-decay", 0.1, "--disable-validation", *RUNS[run]]

    def line(folder, updates, *restored, data=data):
        return classification(data, files, tmp_path / folder, "--max-update", updates, *more, *restored)

    run_train(line("run", 3))
    last, output = tmp_path / "run" / "checkpoint_last.pt", tmp_path / "out"
    main([str(last), "--data", str(data), "--output", str(output), "--keep", *map(str, kept[1:]), f"en={kept[0]}"])
    cut = ["--restore-file", output / "checkpoint.pt"]
    expected, found = run_train(line("run", 6)), run_train(line("cut", 6, *cut, data=output))
    assert list(found.updates) == [4, 5, 6] and found.losses == expected.losses
    rows = kept_rows(data, output)
    assert len(rows) < len(XLDictionary.load(data / "dict.txt"))
    after = load(tmp_path / "cut" / "checkpoint_last.pt")
    for name, value in load(last).items():
        assert torch.equal(after[name], value[rows] if name in (TOKENS, BIAS) else value), name
    if run == "32 bits":  # the optimizer's state matters
        assert run_train(line("reset", 6, *cut, "--reset-optimizer", data=output)).losses != expected.losses


def cut(data, folder, line):
    """Trains a line of fairseq-train in `folder` and cuts its vocabulary to `data`: the checkpoint and the output."""
    last = trained(line(data, folder / "run", *SHORT))
    main([str(last), "--data", str(data), "--output", str(folder / "out")])
    return last, folder / "out"


def check_embeddings(last, data, output):
    """Sentences have the same embeddings with the checkpoint `last` of `data` and with what was cut from it."""
    text = sentences(["en"], 20, "retrieved")["en"]
    embedders = [Embedder(last, data), Embedder(output / "checkpoint.pt", output)]
    one, other = (embed(text, "en", embed.choices) for embed in embedders)
    assert all(np.array_equal(one[choice], other[choice]) for choice in one)


def test_both_stacks_of_a_translation_model(data_bin, tmp_path):
    def line(data, folder, *more):
        return translation(data, folder, "-s", "en", "-t", "de", *more)

    data = part_of(data_bin, tmp_path / "data", "en-de")
    last, output = cut(data, tmp_path, line)
    rows, before, after = kept_rows(data, output), load(last), load(output / "checkpoint.pt")
    tables = {name for name in before if name.endswith(("table.weight", "output_bias"))}
    assert len(tables) == 3
    for name, value in before.items():
        assert torch.equal(after[name], value[rows] if name in tables else value), name
    more = cli(restore_file=output / "checkpoint.pt", max_update=4, disable_validation=True)
    assert list(run_train(line(output, tmp_path / "on", *more)).updates) == [4]


def test_a_language_module_stays_with_its_body(english, tmp_path):
    line = partial(pretraining, objectives="mlm")
    last, output = cut(english, tmp_path, lambda *words: line(*words, "--arch", "xl_monotrans_tiny"))
    modules = [language_modules.extract(open_checkpoint(path)) for path in (last, output / "checkpoint.pt")]
    assert modules[0].body == modules[1].body and modules[0].dictionary != modules[1].dictionary
    check_embeddings(last, english, output)


def test_published_vocabularies(published, tmp_path):
    """XLM's codes and WordPiece, with the tokenizers that the manifest names."""
    data = part_of(published, tmp_path / "data", "en")
    last, output = cut(data, tmp_path, partial(pretraining, objectives="mlm"))
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    assert verify(output) == len(manifest["fingerprints"]) and len(kept_rows(data, output)) < len(kept_rows(data, data))
    check_embeddings(last, data, output)


# Wrong input: one sentence, and nothing is written


def other_pieces(data):
    model = sentencepiece_surgery.read_model(data / "sentencepiece.model")
    cut = sentencepiece_surgery.remove_pieces(model, set(), set(sentencepiece_surgery.ordinary_pieces(model)))
    (data / "sentencepiece.model").write_bytes(cut.SerializeToString())
    (data / "manifest.json").unlink()


def other_symbol(data):
    text = (data / "dict.txt").read_text(encoding="utf-8")
    (data / "dict.txt").write_text(text.replace("▁Haus ", "▁Huis "), encoding="utf-8")
    (data / "manifest.json").unlink()


def joined(data):
    manifest = json.loads((data / "manifest.json").read_text())
    (data / "manifest.json").write_text(json.dumps(manifest | {"disjoint": {"en": ""}}))


@pytest.mark.parametrize(
    "change, message",
    [
        (other_symbol, "was trained with another dictionary"),
        (
            lambda data: (data / "en/train.idx").unlink(),
            "no binarized text of language 'en' there: train.idx is missing, but train.bin exists",
        ),
        (lambda data: shutil.rmtree(data / "en"), "has no binarized text, which `fairseq-xl data prepare` writes"),
        (other_pieces, "sentencepiece.model has other sub-words than"),
        (joined, "has sub-words for each language"),
    ],
)
def test_a_data_folder_that_does_not_fit(english, checkpoint, tmp_path, change, message):
    change(shutil.copytree(english, tmp_path / "data"))
    with pytest.raises(UserError, match=message) as error:
        main([str(checkpoint), "--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")])
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_files_that_do_not_fit(english, checkpoint, tmp_path):
    out = tmp_path / "out"

    def error(path, *more, output=out):
        with pytest.raises(UserError) as error:
            main([str(path), "--data", str(english), "--output", str(output), *more])
        assert "\n" not in str(error.value)
        return str(error.value)

    (tmp_path / "file").touch()
    state = torch.load(checkpoint, weights_only=True)
    state["model"][TOKENS] = state["model"][TOKENS][:-1]
    torch.save(state, tmp_path / "short.pt")
    assert "short.pt is damaged: encoder.token_embeddings.table.weight has 85 rows" in error(tmp_path / "short.pt")
    assert f"{english} exists: name a new folder" in error(checkpoint, output=english)
    below = tmp_path / "file" / "no" / "out"
    assert f"{below} was not written: {tmp_path / 'file'} is a file" in error(checkpoint, output=below)
    assert not out.exists() and not list(tmp_path.glob("*.tmp"))
