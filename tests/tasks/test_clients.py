"""Exported folders in programs that serve models: what they compute is ours. Slow, and skipped without the programs."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import fairseq_xl
from tests.commands import MAX_POSITIONS, pretraining, trained, translation
from tests.tasks.conversion_builders import run
from tests.tasks.tiny_text import sentences

pytestmark = pytest.mark.slow


def ctranslate2_folder(folder, quantization=None):
    ctranslate2 = pytest.importorskip("ctranslate2")
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    return ctranslate2, converter.convert(f"{folder}-{quantization}", quantization=quantization)


@pytest.fixture(scope="module")
def lines():
    return sentences(("en", "de"), 100, "clients")["en"]


@pytest.mark.parametrize("form", [(), ("--share-embeddings",), ("--layer-norm", "pre")])
def test_translations_are_ours(data_bin, tmp_path, lines, form):
    more = ("-s", "en", "-t", "de", "--max-update", 300, "--lr", 0.01, "--embed-dim", 32, "--disable-validation", *form)
    checkpoint = trained(translation(data_bin, tmp_path, *more))
    run(checkpoint, tmp_path / "out", "--data", data_bin)
    expected = fairseq_xl.load(checkpoint, data=data_bin).translate(lines, "en", "de", beam=5)
    model, tokenizer = (each.from_pretrained(tmp_path / "out") for each in (AutoModelForSeq2SeqLM, AutoTokenizer))
    found = model.generate(**tokenizer(lines, return_tensors="pt", padding=True))
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == expected and len(set(expected)) > 5

    ctranslate2, folder = ctranslate2_folder(tmp_path / "out")
    texts = [tokenizer.convert_ids_to_tokens(tokenizer.encode(line)) for line in lines]
    prefix = {"target_prefix": [["[de]"]] * len(texts)} if "pre" in form else {}  # CTranslate2 asks for mBART's
    translator = ctranslate2.Translator(folder, intra_threads=1)
    results = translator.translate_batch(texts, beam_size=5, max_decoding_length=MAX_POSITIONS - 2, **prefix)
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == expected


@pytest.mark.parametrize("arch", ["xl_xlmr_tiny", "xl_bert_tiny"])
def test_hidden_states_of_encoders_are_ours(data_bin, tmp_path, lines, arch):
    checkpoint = trained(pretraining(data_bin, tmp_path, "--arch", arch, "--max-update", 1, objectives="mlm"))
    run(checkpoint, tmp_path / "out", "--data", data_bin)
    ctranslate2, folder = ctranslate2_folder(tmp_path / "out")
    tokenizer, encoder = AutoTokenizer.from_pretrained(tmp_path / "out"), ctranslate2.Encoder(folder, intra_threads=1)
    rows = [tokenizer.encode(line) for line in lines]
    inputs = {} if arch == "xl_xlmr_tiny" else {"token_type_ids": [[0] * len(row) for row in rows]}
    hidden = torch.from_numpy(np.array(encoder.forward_batch(rows, **inputs).last_hidden_state))
    means = torch.stack([row[: len(ids)].mean(0) for row, ids in zip(hidden, rows)])
    expected = torch.from_numpy(fairseq_xl.load(checkpoint, data=data_bin).encode(lines, lang="en", pooling="mean"))
    torch.testing.assert_close(means, expected, atol=1e-5, rtol=0)
