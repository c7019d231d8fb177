"""Models of other programs with random weights, and ours with the same weights: equal hidden states and logits."""

import itertools
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.checkpoints.layouts.name_mapping import same
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderConfig, EncoderDecoderConfig

PAD = 1
VOCABULARY, LANGUAGES, HEADS = 20, 3, 2
TOKENS = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 2, PAD, PAD], [0, 2, PAD, PAD, PAD, PAD]])
SIZES = dict(embed_dim=16, ffn_dim=64, heads=HEADS, max_positions=12)
XLM = SIZES | dict(layers=3, layer_norm_eps=1e-12)
XLM_R = SIZES | dict(layers=3, layer_norm_eps=1e-5, output_form="dense", language_embeddings="none", position_offset=2)
BERT = SIZES | dict(
    layers=3, layer_norm_eps=1e-12, output_form="dense", language_embeddings="none", segment_embeddings="added"
)
SEQ2SEQ = SIZES | dict(
    encoder_layers=3,
    decoder_layers=2,
    language_embeddings="none",
    layer_norm_eps=1e-5,
    position_offset=2,
    share_embeddings=True,
)


def to_ours(layout, state):
    return LAYOUTS[layout].to_ours(state, {})


def to_theirs(layout, state):
    return LAYOUTS[layout].to_theirs(state)


def randomize(model):
    """Random values for all parameters, biases, norms and the rows of padding included."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        mean = 1.0 if parameter.dim() == 1 and "norm" in name.lower() and name.endswith("weight") else 0.0
        nn.init.normal_(parameter, mean=mean, std=0.3)
    return model.eval()


def encoder(sizes, state):
    model = XLEncoderModel(EncoderConfig(**sizes), VOCABULARY, PAD, LANGUAGES).eval()
    model.load_state_dict(state)
    return model


def compare(model, expected_states, expected_logits=None, **inputs):
    padding = TOKENS.eq(PAD)
    real = ~padding
    states = model.encoder(TOKENS, padding_mask=padding, all_layers=True, **inputs)
    assert len(states) == len(expected_states) == 4
    for found, expected in zip(states, expected_states):
        torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)
    if expected_logits is not None:
        torch.testing.assert_close(model.output(states[-1])[real], expected_logits[real], atol=1e-5, rtol=0)


class ToyDictionary:
    """What models ask of a dictionary: 20 symbols, the last three of which are languages."""

    first_language, num_languages = VOCABULARY - LANGUAGES, LANGUAGES

    def __len__(self):
        return VOCABULARY

    def pad(self):
        return PAD

    def eos(self):
        return 2


def seq2seq(state, **form):
    model = XLEncoderDecoderModel(EncoderDecoderConfig(**SEQ2SEQ | form), ToyDictionary()).eval()
    model.load_state_dict(state)
    return model


# --- models of other programs ----------------------------------------------------------------------------------


#: sizes under the names of fairseq's stacks and of transformers' encoders
STACK = dict(embed_dim=16, ffn_embed_dim=64, attention_heads=HEADS)
HIDDEN = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=HEADS, intermediate_size=64)
HIDDEN |= dict(vocab_size=VOCABULARY, pad_token_id=PAD)


def fairseq_dictionary():
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for index in range(VOCABULARY - 4):
        dictionary.add_symbol(f"p{index}")
    return dictionary


def fairseq_roberta():
    from fairseq.models.roberta import RobertaModel

    sizes = {f"encoder_{name}": size for name, size in STACK.items()}
    args = Namespace(arch="roberta_base", encoder_layers=3, max_positions=12, tokens_per_sample=12, **sizes)
    return randomize(RobertaModel.build_model(args, SimpleNamespace(source_dictionary=fairseq_dictionary())))


def fairseq_translation(pre, scaled):
    """fairseq's Transformer in the form of VECO's released model (post-LN) or of mBART (pre-LN)."""
    from fairseq.models.transformer import TransformerModel, base_architecture

    form = STACK | dict(normalize_before=pre, learned_pos=True)
    form = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in form.items()}
    args = Namespace(
        **form,
        encoder_layers=3,
        decoder_layers=2,
        share_all_embeddings=True,
        layernorm_embedding=True,
        no_scale_embedding=not scaled,
        activation_fn="gelu",
        max_source_positions=12,
        max_target_positions=12,
    )
    base_architecture(args)
    dictionary = fairseq_dictionary()
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return randomize(TransformerModel.build_model(args, task))


def xlm_roberta(with_head=True, token_types=1):
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaModel

    form = dict(max_position_embeddings=14, type_vocab_size=token_types, layer_norm_eps=1e-5)
    return randomize((XLMRobertaForMaskedLM if with_head else XLMRobertaModel)(XLMRobertaConfig(**HIDDEN, **form)))


def xlm(with_head=True, languages=LANGUAGES):
    from transformers import XLMConfig, XLMModel, XLMWithLMHeadModel

    sizes = dict(vocab_size=VOCABULARY, emb_dim=16, n_layers=3, n_heads=HEADS, max_position_embeddings=12)
    config = XLMConfig(**sizes, n_langs=languages, pad_index=PAD)
    return randomize((XLMWithLMHeadModel if with_head else XLMModel)(config))


def bert():
    from transformers import BertConfig, BertForPreTraining

    return randomize(BertForPreTraining(BertConfig(**HIDDEN, max_position_embeddings=12)))


def bart(kind="MBart", scaled=True):
    import transformers

    sizes = dict(layers=3, attention_heads=HEADS, ffn_dim=64)
    sizes = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in sizes.items()}
    sizes |= dict(vocab_size=VOCABULARY, d_model=16, decoder_layers=2, max_position_embeddings=12)
    config = getattr(transformers, f"{kind}Config")
    config = config(**sizes, scale_embedding=scaled, pad_token_id=PAD, bos_token_id=0, eos_token_id=2)
    model = randomize(getattr(transformers, f"{kind}ForConditionalGeneration")(config))
    model.final_logits_bias.normal_()
    return model


# --- the way in ------------------------------------------------------------------------------------------------


def test_fairseq_roberta():
    theirs = fairseq_roberta()
    logits, extra = theirs(TOKENS, features_only=False, return_all_hiddens=True)
    model = encoder(XLM_R, to_ours("fairseq_roberta", theirs.state_dict()))
    compare(model, [state.transpose(0, 1) for state in extra["inner_states"]], logits)


def test_fairseq_roberta_under_its_older_names():
    state = fairseq_roberta().state_dict()
    older = {
        name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm"): value
        for name, value in state.items()
    }
    present, past = (to_ours("fairseq_roberta", names) for names in (state, older))
    assert present.keys() == past.keys() and older.keys() != state.keys()
    assert all(torch.equal(present[name], past[name]) for name in present)


def test_xlm_roberta_with_head():
    theirs = xlm_roberta()
    result = theirs(TOKENS, attention_mask=TOKENS.ne(PAD).long(), output_hidden_states=True)
    model = encoder(XLM_R, to_ours("xlm-roberta", theirs.state_dict()))
    compare(model, result.hidden_states, result.logits)


def test_xlm_roberta_without_head():
    theirs = xlm_roberta(with_head=False)
    result = theirs(TOKENS, attention_mask=TOKENS.ne(PAD).long(), output_hidden_states=True)
    state = to_ours("xlm-roberta", theirs.state_dict())
    model = XLEncoderModel(EncoderConfig(**XLM_R), VOCABULARY, PAD, LANGUAGES).eval()
    missing, unexpected = nn.Module.load_state_dict(model, state, strict=False)
    assert not unexpected
    assert {name.rpartition(".")[0] for name in missing} == {"encoder.token_embeddings", "output.dense", "output.norm"}
    compare(model, result.hidden_states)


def test_xlm_with_head():
    theirs = xlm()
    languages = torch.arange(len(TOKENS))[:, None]
    result = theirs(TOKENS, attention_mask=TOKENS.ne(PAD), langs=languages.expand_as(TOKENS), output_hidden_states=True)
    model = encoder(XLM, to_ours("xlm", theirs.state_dict()))
    compare(model, result.hidden_states, result.logits, languages=languages)


def test_xlm_without_head_or_languages():
    theirs = xlm(with_head=False, languages=1)
    result = theirs(TOKENS, attention_mask=TOKENS.ne(PAD), output_hidden_states=True)
    state = to_ours("xlm", theirs.state_dict())
    model = XLEncoderModel(EncoderConfig(**XLM, language_embeddings="none"), VOCABULARY, PAD, LANGUAGES).eval()
    assert nn.Module.load_state_dict(model, state, strict=False) == (["encoder.token_embeddings.output_bias"], [])
    compare(model, result.hidden_states)


def test_bert():
    theirs = bert()
    segments = (torch.arange(TOKENS.size(1)) > 2).long().expand_as(TOKENS)
    result = theirs(TOKENS, attention_mask=TOKENS.ne(PAD).long(), token_type_ids=segments, output_hidden_states=True)
    state = to_ours("bert", theirs.state_dict())
    pooler = {name: state.pop(name) for name in list(state) if name.startswith("heads.")}
    assert torch.equal(pooler["heads.nsp.0.weight"], theirs.bert.pooler.dense.weight)
    compare(encoder(BERT, state), result.hidden_states, result.prediction_logits, segments=segments)


TARGET = torch.tensor([[17, 6, 8, 7], [18, 9, 2, PAD], [19, 11, 12, 4]])


def compare_translation(model, states, logits):
    """Last hidden states of the encoder (B, S, C), and logits (B, T, V), at positions without padding."""
    target = TARGET
    found = model.encoder(TOKENS)["encoder_out"][0]
    torch.testing.assert_close(found[TOKENS.ne(PAD)], states[TOKENS.ne(PAD)], atol=1e-5, rtol=0)
    torch.testing.assert_close(
        model(TOKENS, None, target)[0][target.ne(PAD)], logits[target.ne(PAD)], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("pre, scaled", [(False, True), (False, False), (True, True)])
def test_fairseq_translation(pre, scaled):
    theirs = fairseq_translation(pre, scaled)
    out = theirs.encoder(TOKENS, TOKENS.ne(PAD).sum(1))
    logits, _ = theirs.decoder(TARGET, out)
    state = to_ours("fairseq_transformer", theirs.state_dict())
    model = seq2seq(state, layer_norm="pre" if pre else "post", embedding_scale="sqrt" if scaled else "none")
    compare_translation(model, out["encoder_out"][0].transpose(0, 1), logits)


@pytest.mark.parametrize("kind, scaled", [("MBart", True), ("MBart", False), ("Bart", False)])
def test_bart_and_mbart(kind, scaled):
    theirs = bart(kind, scaled)
    result = theirs(input_ids=TOKENS, attention_mask=TOKENS.ne(PAD).long(), decoder_input_ids=TARGET)
    state = to_ours("bart", theirs.state_dict())
    model = seq2seq(
        state, layer_norm="pre" if kind == "MBart" else "post", embedding_scale="sqrt" if scaled else "none"
    )
    compare_translation(model, result.encoder_last_hidden_state, result.logits)


def test_generation_step_by_step_equals_the_whole_with_pre_ln():
    model = seq2seq(to_ours("bart", bart().state_dict()), layer_norm="pre", embedding_scale="sqrt")
    out, state = model.encoder(TOKENS), {}
    whole, _ = model.decoder(TARGET, out)
    for step in range(1, TARGET.size(1) + 1):
        one, _ = model.decoder(TARGET[:, :step], out, state)
        torch.testing.assert_close(one[:, -1], whole[:, step - 1], atol=1e-5, rtol=0)


# --- both ways -------------------------------------------------------------------------------------------------

SOURCES = {
    "fairseq_roberta": fairseq_roberta,
    "fairseq_transformer": lambda: fairseq_translation(pre=True, scaled=True),
    "xlm-roberta": xlm_roberta,
    "xlm": xlm,
    "bert": bert,
    "bart": bart,
}


def parameters_of(model):
    """The weights that change outputs: no buffers of numbers, no classifier of next sentences, zero token types."""
    ignored = ("position_ids", "version", "_float_tensor")
    state = {name: value for name, value in model.state_dict().items() if not name.endswith(ignored)}
    state = {name: value for name, value in state.items() if "seq_relationship" not in name}
    if "roberta.embeddings.token_type_embeddings.weight" in state:
        state["roberta.embeddings.token_type_embeddings.weight"].zero_()  # as in XLM-R's files
    return state


@pytest.mark.parametrize("layout", SOURCES)
def test_there_and_back_is_bit_equal(layout):
    given = {name: value.half() for name, value in parameters_of(SOURCES[layout]()).items()}
    ours = to_ours(layout, {name: value.float() for name, value in given.items()})
    theirs = to_theirs(layout, ours)
    assert theirs.keys() == given.keys() and all(torch.equal(theirs[name].half(), given[name]) for name in given)
    again = to_ours(layout, theirs)
    assert again.keys() == ours.keys() and all(torch.equal(again[name], ours[name]) for name in ours)


def test_a_token_type_that_is_not_zero_is_in_the_positions():
    theirs = xlm_roberta()
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    state = to_ours("xlm-roberta", theirs.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in theirs.state_dict().items())
    embeddings = theirs.roberta.embeddings
    summed = embeddings.position_embeddings.weight + embeddings.token_type_embeddings.weight
    assert torch.equal(state["encoder.embeddings.positions.weight"], summed)
    back = to_theirs("xlm-roberta", state)
    assert not back["roberta.embeddings.token_type_embeddings.weight"].any()
    assert torch.equal(back["roberta.embeddings.position_embeddings.weight"], summed)


def test_what_a_layout_lacks_is_refused():
    with pytest.raises(UserError, match="output_bias unexpected"):
        to_theirs("fairseq_transformer", to_ours("bart", bart().state_dict()))
    state = to_ours("xlm-roberta", xlm_roberta().state_dict())
    adapter = {"encoder.layers.0.ffn_adapter.up.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"encoder\.layers\.0\.ffn_adapter\.up\.weight unexpected"):
        to_theirs("xlm-roberta", state | adapter)
    with pytest.raises(UserError, match="2 token types"):
        to_ours("xlm-roberta", xlm_roberta(token_types=2).state_dict())


@pytest.mark.parametrize("layout", SOURCES)
def test_missing_and_unexpected_names_are_reported(layout):
    state = SOURCES[layout]().state_dict()
    ends = ("fc1.bias", "intermediate.dense.bias", "lin1.bias")
    gone = next(name for name in state if ".1." in name and name.endswith(ends))
    state.pop(gone)
    state["something.else"] = torch.zeros(1)
    with pytest.raises(UserError) as error:
        to_ours(layout, state)
    missing, unexpected = str(error.value).split(" missing, ")
    assert missing.split()[-1] and gone.endswith(missing.split()[-1])
    assert unexpected.endswith("something.else unexpected")


def test_weights_of_another_kind_of_model_are_refused():
    states = {layout: make().state_dict() for layout, make in SOURCES.items()}
    for layout, other in itertools.permutations(SOURCES, 2):
        with pytest.raises(UserError, match="not of this kind of model: .* missing, .* unexpected"):
            to_ours(layout, states[other])


@pytest.mark.parametrize("layout", SOURCES)
def test_untied_output_is_refused(layout):
    state = {name: value.clone() for name, value in SOURCES[layout]().state_dict().items()}
    copy = next(name for name in LAYOUTS[layout].names.ties if name in state)
    state[copy] += 1
    with pytest.raises(UserError, match="differs from"):
        to_ours(layout, state)


@pytest.mark.parametrize("layout", SOURCES)
def test_either_name_of_a_tied_parameter_is_enough(layout):
    state = parameters_of(SOURCES[layout]())
    expected = to_ours(layout, state)
    copy, original = next(pair for pair in LAYOUTS[layout].names.ties.items() if pair[0] in state)
    original = original if original in state else f"transformer.{original}"
    for left_out in (copy, original):
        found = to_ours(layout, {name: value for name, value in state.items() if name != left_out})
        assert found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in expected)


def test_single_tensors_are_not_copied():
    """But a part of a larger tensor, and a second use of one, are: safetensors refuses shared memory."""
    given = xlm_roberta().state_dict()
    ours = to_ours("xlm-roberta", given)
    words = "roberta.embeddings.word_embeddings.weight"
    assert ours["encoder.token_embeddings.table.weight"].data_ptr() == given[words].data_ptr()
    bias = "encoder.layers.0.ffn.up.bias"
    ours[bias], ours["output.dense.bias"] = torch.ones(2, *ours[bias].shape)[1], ours["output.norm.bias"]
    back = to_theirs("xlm-roberta", ours)
    assert back[words].data_ptr() == given[words].data_ptr()
    places = {value.untyped_storage().data_ptr() for name, value in back.items() if "lm_head.decoder" not in name}
    assert len(places) == len(back) - 2  # the ties, second names of a tensor
    assert all(value.untyped_storage().nbytes() == value.nbytes for value in back.values())
