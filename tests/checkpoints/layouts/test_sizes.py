"""The published sizes on the meta device, where tensors have shapes only: every parameter has its place, both ways."""

import pytest
import torch

from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderConfig, EncoderDecoderConfig

BASE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
XLM_R = dict(vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
MBART = dict(
    d_model=1024,
    max_position_embeddings=1024,
    scale_embedding=True,
    **{
        f"{stack}_{name}": size
        for stack in ("encoder", "decoder")
        for name, size in dict(layers=12, ffn_dim=4096, attention_heads=16).items()
    },
)
#: name: layout, class of transformers, its settings, parameters with the output layer
MODELS = {
    "XLM-R base": ("xlm-roberta", "XLMRobertaForMaskedLM", BASE | XLM_R, 278_295_186),
    "XLM-R large": ("xlm-roberta", "XLMRobertaForMaskedLM", LARGE | XLM_R, 560_142_482),
    "XLM-15": (
        "xlm",
        "XLMWithLMHeadModel",
        dict(vocab_size=95000, emb_dim=1024, n_layers=12, n_heads=8, n_langs=15),
        249_071_384,
    ),
    "XLM-100": (
        "xlm",
        "XLMWithLMHeadModel",
        dict(vocab_size=200000, emb_dim=1280, n_layers=16, n_heads=16, n_langs=100, use_lang_emb=False),
        571_696_960,
    ),
    "mBERT": ("bert", "BertForPreTraining", BASE | dict(vocab_size=119547, max_position_embeddings=512), 178_566_653),
    "mBART-25": ("bart", "MBartForConditionalGeneration", MBART | dict(vocab_size=250027), 610_851_840),
    "mBART-50": (
        "bart",
        "MBartForConditionalGeneration",
        MBART | dict(vocab_size=250054, activation_function="relu"),
        610_879_488,
    ),
}


class Size:
    """What models ask of a dictionary of `count` symbols."""

    num_languages, first_language = 0, None

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def pad(self):
        return 1

    def eos(self):
        return 2


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_its_place(name):
    import transformers

    layout, kind, settings, count = MODELS[name]
    config = getattr(transformers, kind.partition("For")[0].partition("With")[0].removesuffix("Model") + "Config")
    config = config(**settings)
    with torch.device("meta"):
        theirs = getattr(transformers, kind)(config)
        given = theirs.state_dict()
    assert sum(parameter.numel() for parameter in theirs.parameters()) == count
    state = LAYOUTS[layout].to_ours(given, {})
    options = LAYOUTS[layout].options(config.to_dict(), state)
    heads = {each for each in state if each.startswith("heads.")}
    languages = settings["n_langs"] if options["language_embeddings"] == "added" else 0
    with torch.device("meta"):
        if layout == "bart":
            options |= dict(encoder_layers=12, decoder_layers=12)
            del options["framing"]
            model = XLEncoderDecoderModel(EncoderDecoderConfig(**options), Size(settings["vocab_size"]))
        else:
            del options["framing"]
            layers = settings.get("num_hidden_layers", settings.get("n_layers"))
            cfg = EncoderConfig(layers=layers, **options)
            model = XLEncoderModel(cfg, settings["vocab_size"], 1, languages)
    expected = {each: value.shape for each, value in model.state_dict().items()}
    assert expected == {each: value.shape for each, value in state.items() if each not in heads}
    back = LAYOUTS[layout].to_theirs(state)
    same = {each for each in given if not each.endswith("position_ids") and "seq_relationship" not in each}
    if layout == "xlm-roberta":
        same.add("roberta.embeddings.token_type_embeddings.weight")
    assert {each: value.shape for each, value in back.items()} == {each: given[each].shape for each in same}
