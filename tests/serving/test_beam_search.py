"""Beam search in onnxruntime against fairseq's generator; damaged folders."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from scipy.special import log_softmax as expected_log_softmax

from fairseq_xl.errors import UserError
from fairseq_xl.serving.beam_search import BeamSearch, log_softmax
from fairseq_xl.serving.runtime import Exported


def drawn_sentences():
    """Framed sentences of 1 to 12 pieces, and an empty one."""
    rng = random.Random(0)
    return [[0, *rng.choices(range(4, 20), k=rng.randint(1, 12)), 2] for _ in range(12)] + [[0, 2]]


def generated(model, dictionary, tokens, **options):
    """fairseq's hypotheses of a sentence, German into English: [(tokens, score)]."""
    generator = SequenceGenerator([model], dictionary, **options)
    net_input = {"src_tokens": torch.tensor([tokens]), "src_lengths": None, "src_languages": torch.tensor([0])}
    (beam,) = generator.generate([model], {"net_input": net_input}, bos_token=dictionary.language_symbol("en"))
    return [(each["tokens"].tolist(), float(each["score"])) for each in beam]


@pytest.mark.parametrize("beam, length_penalty, max_length", [(4, 1.0, 200), (1, 1.0, 8), (5, 0.3, 6), (3, 2.0, 12)])
def test_it_finds_what_fairseq_does(translator, task, beam, length_penalty, max_length):
    model, exported = translator
    search = BeamSearch(exported, beam, length_penalty, max_length)
    lengths = []
    for tokens in drawn_sentences():
        options = dict(beam_size=beam, len_penalty=length_penalty, max_len_b=max_length)
        expected = generated(model, task.dictionary, tokens, **options)
        found = search(tokens, "de", "en")
        assert [each.tokens for each in found] == [each for each, _ in expected]
        assert [each.score for each in found] == pytest.approx([score for _, score in expected], abs=1e-5)
        lengths.extend(len(each.tokens) for each in found)
    assert len(set(lengths)) > 1 and max(lengths) <= min(max_length + 1, 24)


def test_log_softmax():
    logits = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32) * 50
    np.testing.assert_allclose(log_softmax(logits), expected_log_softmax(logits.astype(np.float64), axis=1), atol=1e-12)


def test_mistakes(translator):
    search = BeamSearch(translator[1])
    with pytest.raises(UserError, match="language 'xx' is not one of the model's, de, en, fr"):
        search([0, 4, 2], "xx", "en")
    with pytest.raises(UserError, match="language 'yy'"):
        search([0, 4, 2], "de", "yy")
    with pytest.raises(UserError, match="model.json was trained for de-en, en-fr, not for fr-de"):
        search([0, 4, 2], "fr", "de")
    assert search([0, 4, 2], "de", "fr")  # zero-shot
    with pytest.raises(UserError, match="a sentence has 30 tokens, more than the model's 24"):
        search([0] * 30, "de", "en")


def test_folders_that_are_damaged_or_of_another_kind(translator, tmp_path):
    folder = tmp_path / "copy"
    with pytest.raises(UserError, match="model.json: no such file; expected a folder of `fairseq-xl model export`"):
        Exported(folder)
    shutil.copytree(translator[1].path.parent, folder)
    with pytest.raises(UserError, match="encoder.int8.onnx: no such file"):
        Exported(folder, int8=True)
    whole = (folder / "decoder.onnx").read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not a model"):
        (folder / "decoder.onnx").write_bytes(content)
        with pytest.raises(UserError, match="decoder.onnx is not an ONNX file that onnxruntime reads"):
            Exported(folder)
    (folder / "decoder.onnx").write_bytes(whole)
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | {"kind": "classification"}))
    with pytest.raises(UserError, match="beam search needs an encoder-decoder, found classification"):
        BeamSearch(Exported(folder))
    for content, message in (("{", ", line 1: not JSON"), ("[]", " holds no JSON object")):
        (folder / "model.json").write_text(content)
        with pytest.raises(UserError, match=f"model.json{message}"):
            Exported(folder)
