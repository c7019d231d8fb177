"""Exported folders in programs that serve models: what they compute is ours. Slow, and skipped without the programs."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, XLMRobertaTokenizer

import fairseq_xl
from tests.commands import MAX_POSITIONS, pretraining, trained, translation
from tests.tasks.conversion_builders import original, run, xlm_roberta  # noqa: F401
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


NODE = """
const {AutoTokenizer, AutoModel, env} = require("@huggingface/transformers");
env.allowRemoteModels = false; env.localModelPath = "";
(async () => {
  const [folder, dtype, first, second] = process.argv.slice(1);
  const tokenizer = await AutoTokenizer.from_pretrained(folder);
  const model = await AutoModel.from_pretrained(folder, {dtype});
  const inputs = tokenizer(JSON.parse(first), {text_pair: JSON.parse(second), padding: true});
  const {last_hidden_state} = await model(inputs), rows = (tensor) => tensor?.tolist().map((row) => row.map(Number));
  console.log(JSON.stringify([rows(inputs.input_ids), rows(inputs.token_type_ids), last_hidden_state.tolist()]));
})();
"""


@pytest.mark.parametrize("arch", ["xl_xlmr_tiny", "xl_bert_tiny"])
def test_hidden_states_of_pairs_in_transformers_js_are_ours(data_bin, tmp_path, lines, arch):
    """With Node and @huggingface/transformers in NODE_PATH."""
    if not shutil.which("node") or subprocess.run(["node", "-e", NODE.splitlines()[1]], capture_output=True).returncode:
        pytest.skip("Node has no @huggingface/transformers")
    checkpoint = trained(pretraining(data_bin, tmp_path, "--arch", arch, "--max-update", 1, objectives="mlm"))
    run(checkpoint, tmp_path / "out", "--data", data_bin, "--to", "transformers.js")
    model = fairseq_xl.load(checkpoint, data=data_bin)
    run(checkpoint, tmp_path / "plain", "--data", data_bin)
    inputs = AutoTokenizer.from_pretrained(tmp_path / "plain")(lines[:4], lines[4:8], return_tensors="pt", padding=True)
    real = inputs["attention_mask"].bool()
    segments = inputs.get("token_type_ids")
    with torch.no_grad():
        expected = model.model.encode(inputs["input_ids"], padding_mask=~real, segments=segments)
    for dtype, bound in (("fp32", 1e-5), ("q8", 0.3)):
        texts = [json.dumps(part) for part in (lines[:4], lines[4:8])]
        command = ["node", "-e", NODE, str(tmp_path / "out"), dtype, *texts]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        ids, types, hidden = json.loads(output.splitlines()[-1])
        assert ids == inputs["input_ids"].tolist() and types == (None if segments is None else segments.tolist())
        assert (torch.tensor(hidden)[real] - expected[real]).abs().max() < bound


def test_a_folder_without_class_comes_out_as_an_encoder(original, data_bin, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    xlm_roberta(original, data_bin)
    XLMRobertaTokenizer.from_pretrained(original).save_pretrained(original)
    theirs, path = AutoModel.from_pretrained(original), original / "config.json"
    content = json.loads(path.read_text())
    del content["architectures"]
    path.write_text(json.dumps(content))
    run(original, tmp_path / "ours")
    run(tmp_path / "ours", tmp_path / "out", "--to", "transformers.js")
    session = onnxruntime.InferenceSession(str(tmp_path / "out/onnx/model.onnx"))
    ids = torch.arange(5, 15)[None]
    hidden = session.run(["last_hidden_state"], {"input_ids": ids.numpy(), "attention_mask": np.ones_like(ids)})[0]
    expected = theirs(ids).last_hidden_state.detach().numpy()
    np.testing.assert_allclose(hidden, expected, atol=1e-5)
