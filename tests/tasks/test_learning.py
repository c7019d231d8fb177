"""Tiny models learn tiny tasks."""

import math

import numpy as np

from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.evaluation.bleu import bleu
from tests.builders import validation_losses
from tests.command_line import cli
from tests.commands import evaluated, pretraining, run_generate, run_train, translation
from tests.tasks.conftest import write_encoded

LEARNING = ["--embed-dim", 32, "--ffn-dim", 64, "--dropout", 0, "--attention-dropout", 0]


def test_translation_learns_20_pairs_by_heart(data_bin, corpus, tmp_path):
    more = cli(s="en", t="fr", updates_per_epoch=300, max_epoch=1, lr=0.01, max_tokens=100, disable_validation=True)
    run_train(translation(data_bin, tmp_path, *more, *LEARNING))
    search = cli(s="en", t="fr", post_process="sentencepiece")
    output = run_generate(evaluated(data_bin, "translation", tmp_path / "checkpoint_last.pt", *search))
    hypotheses = [lines[0].partition("\t")[2] for _, lines in sorted(output.lines("D").items())]
    references = (corpus / "few.en-fr.fr").read_text(encoding="utf-8").splitlines()
    assert bleu(hypotheses, references)["score"] > 90, hypotheses[:3]


def test_mlm_learns_more_than_frequencies(tmp_path):
    """The loss falls below the entropy of single tokens, in bits: the context shows the spelling of words."""
    data_bin = write_encoded(tmp_path, size=40)
    text = TokenStream(data_bin / "en" / "train", "en").tokens
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    counts = np.bincount(text[dictionary.is_piece[text]]).astype(float)
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log2(shares)).sum()
    assert 3 < entropy < math.log2(len(dictionary))
    line = pretraining(
        data_bin, tmp_path / "run", "--langs", "en", "--updates-per-epoch", 250, "--max-epoch", 1, objectives="mlm"
    )
    options = ["--objective-options", "mlm.length=32 mlm.frequency_exponent=0", "--max-tokens", 512, "--lr", 0.01]
    output = run_train([*line, *options, "--no-save", *LEARNING])
    assert float(validation_losses(output)[-1]["mlm_loss"]) < entropy - 0.1
