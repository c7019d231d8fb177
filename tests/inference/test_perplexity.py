"""Perplexity per prediction and by word: computed by hand from log-probabilities, and that of the validation log."""

import json
import math
import subprocess

import numpy as np
import pytest
import torch

from fairseq_xl import load
from fairseq_xl.commands import main
from fairseq_xl.commands.score_perplexity import scores
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.inference.perplexity import word_markers
from tests.commands import pretraining, run_train, run_validate, trained, validation
from tests.warm_python import python


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clm")
    return trained([*pretraining(data_bin, folder, objectives="clm"), "--max-update", 4, "--disable-validation"])


def score(capsys, *arguments):
    capsys.readouterr()
    main(["score", "perplexity", *map(str, arguments)])
    return json.loads(capsys.readouterr().out)


def test_perplexity_by_hand(data_bin, corpus, checkpoint, capsys):
    """Blocks of 31 tokens after <s>, one at a time; words are counted in the raw text."""
    result = score(capsys, checkpoint, data_bin, "--langs", "de,en")
    assert result["settings"] == {"length": 32, "sample_break_mode": "none"} and None not in result["versions"].values()
    model, task = load(checkpoint, data_bin)
    task.load_dataset("valid")
    for code in ("de", "en"):
        stream = torch.from_numpy(task.datasets["valid"].corpora["clm"][code].tokens.astype("int64"))
        language, nats = torch.tensor([[task.dictionary.language_id(code)]]), 0.0
        for block in stream.split(31):
            tokens = torch.cat((torch.tensor([0]), block))
            with torch.no_grad():
                hidden = model.encode(tokens[None, :-1], languages=language, causal=True)[0]
                logits = model.output(hidden).double()
            nats -= float(logits.log_softmax(-1)[torch.arange(len(block)), block].sum())
        raw = (corpus / f"valid.{code}").read_text(encoding="utf-8")
        found = result["languages"][code]
        assert (found["tokens"], found["words"], found["sentences"]) == (len(stream), len(raw.split()), 20)
        assert found["nats"] == pytest.approx(nats, rel=1e-5)
        assert found["perplexity"] == pytest.approx(math.exp(nats / len(stream)), abs=1e-3)
        assert found["word_perplexity"] == pytest.approx(math.exp(nats / len(raw.split())), rel=1e-4)
        bigram = found["bigram"]
        assert {bigram[name] == found[name] for name in ("tokens", "words", "sentences")} == {True}
        assert 1 < bigram["perplexity"] < len(task.dictionary) and bigram["word_perplexity"] > bigram["perplexity"]


def test_a_process_that_has_registered_nothing_opens_a_checkpoint(checkpoint):
    """As the command is run; in the process of the tests all models are registered."""
    code = f"from fairseq_xl.checkpoints.identity import open_checkpoint\nopen_checkpoint({str(checkpoint)!r})"
    subprocess.run([python(), "-c", code], check=True)


def test_it_is_that_of_the_log(data_bin, checkpoint, capsys):
    found = score(capsys, checkpoint, data_bin, "--langs", "en")["languages"]
    logged = run_validate(validation(data_bin, checkpoint)).statistics("clm_en_loss")[-1]
    assert list(found) == ["en"] and math.log2(found["en"]["perplexity"]) == pytest.approx(float(logged), abs=2e-3)


def test_perplexity_by_word_without_words():
    """Chinese text has few spaces: 720 nats for each of its "words" are too many for exp."""
    found = scores(nats=72000, tokens=9000, words=100, sentences=100)
    assert (found["perplexity"], found["word_perplexity"]) == (round(math.exp(8), 3), None)


def test_mistakes(data_bin, checkpoint, tmp_path):
    run_train([*pretraining(data_bin, tmp_path, objectives="mlm"), "--max-update", 1, "--disable-validation"])
    for arguments, message in (
        (
            [tmp_path / "checkpoint_last.pt", data_bin, "--langs", "en"],
            "--objectives clm is needed; it was trained with mlm",
        ),
        ([checkpoint, data_bin, "--langs", "en", "--split", "train"], "--split train: only held-out text"),
        ([checkpoint, data_bin, "--langs", "en", "--split", "test"], "no monolingual text for the split 'test'"),
        ([checkpoint, data_bin, "--langs", "xx"], "--langs: .* has no text of xx; expected one of en, de, fr"),
        ([checkpoint, data_bin, "--langs", "en,en"], "--langs en,en: en is named twice"),
    ):
        with pytest.raises(UserError, match=message):
            main(["score", "perplexity", *map(str, arguments)])


def test_words_of_bpe_are_counted_by_their_last_piece(tmp_path):
    (tmp_path / "dict.txt").write_text(
        "".join(f"{piece} 1\n" for piece in ("th@@", "e", "cat", "s@@", "<mask>", "[en]"))
    )
    dictionary = XLDictionary.load(tmp_path / "dict.txt")
    assert np.array(dictionary.symbols)[word_markers(dictionary)].tolist() == ["e", "cat"]
