"""LoRA adapters are merged with their base model: the sums of matrix products are computed here by hand."""

import json

import pytest
import safetensors.torch
import torch
import transformers

import fairseq_xl
from fairseq_xl.errors import UserError
from tests.tasks.conversion_builders import SENTENCES, original, run, xlm_roberta  # noqa: F401
from tests.tasks.published_models import randomize

CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "task_type": "SEQ_CLS", "base_model_name_or_path": "original"}


@pytest.fixture
def adapter(original, data_bin, tmp_path):
    """The folder of an adapter of queries and values, and embeddings, with a classifier; and the base model."""
    xlm_roberta(original, data_bin)
    model = transformers.XLMRobertaForSequenceClassification.from_pretrained(original, num_labels=3)
    randomize(model)
    weights = {f"base_model.model.{name}": value for name, value in model.state_dict().items() if "classifier" in name}
    base = "base_model.model.roberta."
    for layer in range(2):
        for name in ("query", "value"):
            module = f"{base}encoder.layer.{layer}.attention.self.{name}"
            for side, shape in (("A", (4, 16)), ("B", (16, 4))):
                weights[f"{module}.lora_{side}.weight"] = torch.randn(shape)
    words = f"{base}embeddings.word_embeddings"
    weights[f"{words}.lora_embedding_A"] = torch.randn(4, model.config.vocab_size)
    weights[f"{words}.lora_embedding_B"] = torch.randn(16, 4)
    folder = tmp_path / "adapter"
    folder.mkdir()
    safetensors.torch.save_file(
        {name: value.contiguous() for name, value in weights.items()}, folder / "adapter_model.safetensors"
    )
    model.roberta.load_state_dict(transformers.XLMRobertaModel.from_pretrained(original).state_dict(), strict=False)
    return folder, model, weights


@torch.no_grad()
@pytest.mark.parametrize("scale, more", [(1.5, {}), (3.0, {"use_rslora": True})])
def test_an_adapter_is_merged(adapter, tmp_path, scale, more):
    """alpha / r = 6 / 4, or alpha / sqrt(r) = 6 / 2."""
    folder, model, weights = adapter
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | more))
    run(folder, tmp_path / "ours")
    for layer in range(2):
        for name in ("query", "value"):
            linear = getattr(model.roberta.encoder.layer[layer].attention.self, name)
            module = f"base_model.model.roberta.encoder.layer.{layer}.attention.self.{name}"
            linear.weight += scale * weights[f"{module}.lora_B.weight"] @ weights[f"{module}.lora_A.weight"]
    words = "base_model.model.roberta.embeddings.word_embeddings.lora_embedding"
    model.roberta.embeddings.word_embeddings.weight += scale * (weights[f"{words}_B"] @ weights[f"{words}_A"]).T
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(tmp_path / "original")
    expected = model.eval()(**tokenizer(SENTENCES, return_tensors="pt", padding=True)).logits.softmax(-1)
    records = fairseq_xl.load(tmp_path / "ours").predict(SENTENCES, "en")
    found = torch.tensor([[record["probabilities"][f"LABEL_{row}"] for row in range(3)] for record in records])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_other_adapters_are_refused(adapter, tmp_path):
    for change, sentence in (
        ({"peft_type": "IA3"}, "is no LoRA adapter: it has 'IA3'"),
        ({"use_dora": True}, "use_dora is True; only False can be merged"),
        ({"lora_bias": True}, "lora_bias is True; only False can be merged"),
        ({"init_lora_weights": "pissa_niter_4"}, "'pissa_niter_4'; only True, False, gaussian, eva, orthogonal can be"),
        ({"alora_invocation_tokens": [5]}, r"alora_invocation_tokens is \[5\]; only None can be merged"),
        ({"base_model_name_or_path": "org/elsewhere"}, "names the base model 'org/elsewhere': put its folder beside"),
    ):
        (adapter[0] / "adapter_config.json").write_text(json.dumps(CONFIG | change))
        with pytest.raises(UserError, match=sentence):
            run(adapter[0], tmp_path / "ours")


def test_an_adapter_of_another_model_is_refused(adapter, tmp_path):
    folder, _, weights = adapter
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG))
    name = "base_model.model.roberta.encoder.layer.0.attention.self.query.lora_A.weight"
    for wrong, sentence in (
        ({name: torch.zeros(4, 8)}, r"query.weight of shape \(16, 8\), .*original has another one"),
        (
            {name.replace("layer.0", "layer.9"): torch.zeros(4, 16)},
            "layer.9.attention.self.query.weight, which .* lacks",
        ),
        ({name.replace("A.weight", "B.bias"): torch.zeros(16)}, "lora_B.bias, which cannot be merged"),
        ({name.replace("lora_A", "lora_magnitude_vector"): torch.zeros(16)}, "vector.weight, which cannot be merged"),
        ({name.replace("layer.0", "layer.9").replace("_A", "_B"): torch.zeros(16, 4)}, "B.weight, which cannot be"),
    ):
        content = {key: value.contiguous() for key, value in (weights | wrong).items()}
        safetensors.torch.save_file(content, folder / "adapter_model.safetensors")
        with pytest.raises(UserError, match=sentence):
            run(folder, tmp_path / "ours")
