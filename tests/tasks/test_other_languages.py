"""Initialization from a checkpoint whose dictionary has the pieces of the run's and other languages."""

import shutil

import pytest
import torch

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.commands import denoising, load, pretraining, run_train, trained, translation
from tests.tasks.initial_weights import initial
from tests.tiny_data import write_dictionary

TOKENS, BIAS = "token_embeddings.table.weight", "token_embeddings.output_bias"
LANGUAGES = "embeddings.languages.weight"
ONCE = ["--max-update", 1, "--disable-validation"]
SAME = {"encoder": "encoder", "decoder": "decoder"}


@pytest.fixture(scope="module")
def reordered(data_bin, tmp_path_factory):
    """The text of English and French, and English text under the name of Spanish; languages fr, es, en."""
    return with_dictionary(data_bin, tmp_path_factory.mktemp("reordered"), lambda pieces: pieces)


def with_dictionary(data, folder, change):
    old = XLDictionary.load(data / "dict.txt")
    for name, source in (("en", "en"), ("fr", "fr"), ("es", "en"), ("en-fr", "en-fr")):
        shutil.copytree(data / source, folder / name, ignore=shutil.ignore_patterns("dict*"))
    shutil.copy(data / "sentencepiece.model", folder)
    pieces = {old.symbols[number]: old.count[number] for number in old.pieces.tolist()}
    write_dictionary(folder / "dict.txt", change(pieces), ["fr", "es", "en"])
    return folder


@pytest.fixture(scope="module")
def mlm(data_bin, tmp_path_factory):
    """A checkpoint of MLM in en, de and fr, whose weights left their initial values."""
    folder = tmp_path_factory.mktemp("mlm")
    run_train(pretraining(data_bin, folder, *ONCE[2:], "--max-update", 3, "--lr", 0.05, "--seed", 7, objectives="mlm"))
    return folder / "checkpoint_last.pt"


def check(data, pretrained, found, fresh, stacks, new=("es",)):
    """Compares tables of a run (`found`) with pretrained ones, and new rows with those of a run of random weights.

    Args:
        stacks: {stack of the run: stack of the pretrained model}
    """
    old, now = ["en", "de", "fr"], XLDictionary.load(data / "dict.txt")
    first, compared = now.first_language, 0
    for stack, source in stacks.items():
        for name in (TOKENS, BIAS, LANGUAGES):
            key, given = f"{stack}.{name}", pretrained.get(f"{source}.{name}")
            if key not in found or given is None:
                continue
            start = 0 if name == LANGUAGES else first
            assert torch.equal(found[key][:start], given[:start])
            for row, code in enumerate(now.languages, start=start):
                if code not in old:
                    expected = torch.zeros(()) if name == BIAS else fresh[f"{stack}.{name}"][row]
                else:
                    expected = given[start + old.index(code)]
                assert torch.equal(found[key][row], expected), (key, code)
            compared += 1
    return compared


def starts_of(line, *more):
    """Initial weights with options of initialization, the log, and the random weights without them."""
    weights, log = initial([*line, *more])
    return weights, log, initial(line)[0]


def test_pretraining(reordered, mlm, tmp_path):
    line = pretraining(reordered, tmp_path, objectives="mlm")
    found, log, fresh = starts_of(line, "--init-from", mlm)
    assert check(reordered, load(mlm), found, fresh, {"encoder": "encoder"}) == 3
    assert f"{mlm}: languages are matched by name; random rows: [es], embedding of es; dropped: de" in log


@pytest.mark.parametrize("shared", [[], ["--share-embeddings"]])
def test_translation_from_an_encoder_and_from_a_translation_model(reordered, data_bin, mlm, tmp_path, shared):
    """Both stacks start from the encoder; their new rows are random, for each table once."""
    line = translation(reordered, tmp_path / "run", "-s", "en", "-t", "fr", *shared)
    found, _, fresh = starts_of(line, "--init-from", mlm)
    both = {key.replace("encoder", "decoder"): value for key, value in fresh.items() if key.startswith("encoder.")}
    stacks = {"encoder": "encoder", "decoder": "encoder"}
    assert check(reordered, load(mlm), found, fresh | both, stacks) == (4 if shared else 5)
    path = trained([*translation(data_bin, tmp_path / "old", "-s", "en", "-t", "de", *shared), *ONCE])
    found, _, fresh = starts_of(line, "--init-from", path)
    assert check(reordered, load(path), found, fresh, SAME) == (4 if shared else 5)


def test_denoising(reordered, data_bin, tmp_path):
    """An encoder-decoder for pre-training, from another one."""
    path = trained([*denoising(data_bin, tmp_path / "old"), *ONCE])
    found, _, fresh = starts_of(denoising(reordered, tmp_path / "run"), "--init-from", path)
    assert check(reordered, load(path), found, fresh, SAME) == 4


def test_other_pieces_are_refused(data_bin, mlm, tmp_path):
    """The sentence names the command that makes a checkpoint for them."""
    other = with_dictionary(data_bin, tmp_path / "other", lambda pieces: {**pieces, "new": 1})
    with pytest.raises(UserError, match="`fairseq-xl model extend-vocabulary` makes a checkpoint for another") as error:
        run_train([*pretraining(other, tmp_path / "run", "--init-from", mlm, objectives="mlm"), *ONCE])
    assert str(error.value).startswith(f"{mlm} was trained with another dictionary") and "\n" not in str(error.value)


def test_a_run_is_not_resumed_with_other_languages(reordered, mlm, tmp_path):
    with pytest.raises(UserError, match="was trained with another dictionary"):
        run_train([*pretraining(reordered, tmp_path / "run", "--restore-file", mlm, objectives="mlm"), *ONCE])
