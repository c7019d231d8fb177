"""Published encoders with random weights, and ours with the same weights: the same hidden states and logits."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_xl.checkpoints.keys import (
    from_fairseq_roberta,
    from_transformers_xlm,
    from_transformers_xlm_roberta,
    upgrade_keys,
)
from fairseq_xl.errors import UserError
from fairseq_xl.models.config import EncoderConfig
from fairseq_xl.models.encoder import XLEncoderModel

PAD = 1
VOCABULARY, LANGUAGES, HEADS = 20, 3, 2
PADDED = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 2, PAD, PAD], [0, 2, PAD, PAD, PAD, PAD]])
UNPADDED = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 11, 12, 2]])
SIZES = dict(embed_dim=16, ffn_dim=64, heads=HEADS, layers=3, max_positions=12)
XLM = SIZES | dict(layer_norm_eps=1e-12)
XLM_R = SIZES | dict(layer_norm_eps=1e-5, output_form="dense", language_embeddings="none", position_offset=2)

either = pytest.mark.parametrize("tokens", [PADDED, UNPADDED], ids=["padded", "unpadded"])


def randomize(model):
    """Random values for all parameters, biases, norms and the rows of padding included."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        mean = 1.0 if parameter.dim() == 1 and "norm" in name.lower() and name.endswith("weight") else 0.0
        nn.init.normal_(parameter, mean=mean, std=0.3)
    return model.eval()


def ours(sizes, state):
    model = XLEncoderModel(EncoderConfig(**sizes), VOCABULARY, PAD, LANGUAGES).eval()
    model.load_state_dict(state)
    return model


def compare(model, tokens, expected_states, expected_logits=None, languages=None):
    padding = tokens.eq(PAD)
    real = ~padding
    states = model.encoder(
        tokens, languages=languages, padding_mask=padding if padding.any() else None, all_layers=True
    )
    assert len(states) == len(expected_states) == 4
    for found, expected in zip(states, expected_states):
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)
    if expected_logits is not None:
        torch.testing.assert_close(model.output(states[-1])[real], expected_logits[real], atol=1e-5, rtol=0)


def fairseq_roberta():
    from fairseq.data import Dictionary
    from fairseq.models.roberta import RobertaModel

    dictionary = Dictionary()
    for index in range(VOCABULARY - 4):
        dictionary.add_symbol(f"p{index}")
    args = Namespace(
        arch="roberta_base",
        encoder_layers=3,
        encoder_embed_dim=16,
        encoder_ffn_embed_dim=64,
        encoder_attention_heads=HEADS,
        max_positions=12,
        tokens_per_sample=12,
    )
    return randomize(RobertaModel.build_model(args, SimpleNamespace(source_dictionary=dictionary)))


def transformers_xlm_roberta(with_head, token_types=1):
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaModel

    config = XLMRobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=64,
        max_position_embeddings=14,
        type_vocab_size=token_types,
        layer_norm_eps=1e-5,
        pad_token_id=PAD,
    )
    return randomize(XLMRobertaForMaskedLM(config) if with_head else XLMRobertaModel(config))


def transformers_xlm(with_head, languages=LANGUAGES):
    from transformers import XLMConfig, XLMModel, XLMWithLMHeadModel

    config = XLMConfig(
        vocab_size=VOCABULARY,
        emb_dim=16,
        n_layers=3,
        n_heads=HEADS,
        max_position_embeddings=12,
        n_langs=languages,
        pad_index=PAD,
    )
    return randomize(XLMWithLMHeadModel(config) if with_head else XLMModel(config))


@either
def test_fairseq_roberta(tokens):
    theirs = fairseq_roberta()
    logits, extra = theirs(tokens, features_only=False, return_all_hiddens=True)
    model = ours(XLM_R, from_fairseq_roberta(theirs.state_dict()))
    compare(model, tokens, [state.transpose(0, 1) for state in extra["inner_states"]], logits)


def test_fairseq_roberta_under_its_older_names():
    state = fairseq_roberta().state_dict()
    older = {
        name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm"): value
        for name, value in state.items()
    }
    present, past = (from_fairseq_roberta(names) for names in (state, older))
    assert present.keys() == past.keys() and older.keys() != state.keys()
    assert all(torch.equal(present[name], past[name]) for name in present)


@either
def test_transformers_xlm_roberta_with_head(tokens):
    theirs = transformers_xlm_roberta(with_head=True)
    result = theirs(tokens, attention_mask=tokens.ne(PAD).long(), output_hidden_states=True)
    model = ours(XLM_R, from_transformers_xlm_roberta(theirs.state_dict()))
    compare(model, tokens, result.hidden_states, result.logits)


@either
def test_transformers_xlm_roberta_without_head(tokens):
    theirs = transformers_xlm_roberta(with_head=False)
    result = theirs(tokens, attention_mask=tokens.ne(PAD).long(), output_hidden_states=True)
    state = from_transformers_xlm_roberta(theirs.state_dict())
    model = XLEncoderModel(EncoderConfig(**XLM_R), VOCABULARY, PAD, LANGUAGES).eval()
    missing, unexpected = nn.Module.load_state_dict(model, state, strict=False)
    assert not unexpected
    assert {name.rpartition(".")[0] for name in missing} == {"encoder.token_embeddings", "output.dense", "output.norm"}
    compare(model, tokens, result.hidden_states)


@either
def test_transformers_xlm_with_head(tokens):
    theirs = transformers_xlm(with_head=True)
    languages = torch.arange(len(tokens))[:, None]
    result = theirs(tokens, attention_mask=tokens.ne(PAD), langs=languages.expand_as(tokens), output_hidden_states=True)
    model = ours(XLM, from_transformers_xlm(theirs.state_dict()))
    compare(model, tokens, result.hidden_states, result.logits, languages)


@either
def test_transformers_xlm_without_head_or_languages(tokens):
    theirs = transformers_xlm(with_head=False, languages=1)
    result = theirs(tokens, attention_mask=tokens.ne(PAD), output_hidden_states=True)
    state = from_transformers_xlm(theirs.state_dict())
    model = XLEncoderModel(EncoderConfig(**XLM, language_embeddings="none"), VOCABULARY, PAD, LANGUAGES).eval()
    assert nn.Module.load_state_dict(model, state, strict=False) == (["encoder.token_embeddings.output_bias"], [])
    compare(model, tokens, result.hidden_states)


SOURCES = {
    from_fairseq_roberta: fairseq_roberta,
    from_transformers_xlm_roberta: lambda: transformers_xlm_roberta(with_head=True),
    from_transformers_xlm: lambda: transformers_xlm(with_head=True),
}


@pytest.mark.parametrize("convert", SOURCES)
def test_missing_and_unexpected_names_are_reported(convert):
    state = SOURCES[convert]().state_dict()
    ends = ("fc1.bias", "intermediate.dense.bias", "lin1.bias")
    (gone,) = [name for name in state if ".1." in name and name.endswith(ends)]
    state.pop(gone)
    state["something.else"] = torch.zeros(1)
    with pytest.raises(UserError) as error:
        convert(state)
    missing, unexpected = str(error.value).split(" missing, ")
    assert missing.split()[-1] and gone.endswith(missing.split()[-1])
    assert unexpected == "something.else unexpected"


@pytest.mark.parametrize("convert", SOURCES)
def test_weights_of_another_kind_of_model_are_refused(convert):
    for other in SOURCES:
        if other is not convert:
            with pytest.raises(UserError, match="not of this kind of model: .* and [0-9]+ more missing"):
                convert(SOURCES[other]().state_dict())


@pytest.mark.parametrize("convert", SOURCES)
def test_untied_output_is_refused(convert):
    state = {name: value.clone() for name, value in SOURCES[convert]().state_dict().items()}
    copies = ("lm_head.weight", "lm_head.decoder.weight", "pred_layer.proj.weight")
    (copy,) = [name for name in state if name.endswith(copies)]
    state[copy] += 1
    with pytest.raises(UserError, match="differs from"):
        convert(state)


def test_several_token_types_are_refused():
    state = transformers_xlm_roberta(with_head=True, token_types=2).state_dict()
    with pytest.raises(UserError, match="2 token types"):
        from_transformers_xlm_roberta(state)


def test_the_file_is_left_as_it_was():
    theirs = transformers_xlm_roberta(with_head=True)
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    state = theirs.state_dict()
    from_transformers_xlm_roberta(state)
    assert state.keys() == before.keys() and all(torch.equal(state[name], before[name]) for name in before)


def test_names_of_earlier_versions():
    old = {
        "encoder.bank.tokens.weight": "encoder.token_embeddings.table.weight",
        "decoder.bank.bias": "decoder.token_embeddings.output_bias",
        "encoder.bank.special.weight": "encoder.token_embeddings.special.weight",
        "decoder.futures.weight": "decoder.stream_embeddings.weight",
        "encoder.layers.0.ffn.up.bias": "encoder.layers.0.ffn.up.bias",
        "heads.bank.bias": "heads.bank.bias",
    }
    upgraded = upgrade_keys({name: torch.tensor(number) for number, name in enumerate(old)})
    assert list(upgraded) == list(old.values()) and list(upgraded.values()) == [0, 1, 2, 3, 4, 5]
    assert list(upgrade_keys(upgraded)) == list(upgraded)
