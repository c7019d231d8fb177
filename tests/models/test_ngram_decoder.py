"""The decoder that predicts several tokens a position: against transformers' ProphetNet, caches, visible tokens."""

import pytest
import torch
from torch import nn

from fairseq_xl.errors import UserError
from fairseq_xl.models.model_options import NgramDecoderConfig
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel

PAD, EOS = 1, 2
SIZES = dict(embed_dim=16, ffn_dim=32, heads=2, encoder_layers=2, decoder_layers=2, max_positions=24)
FORM = dict(language_embeddings="none", layer_norm_eps=1e-5, relative_buckets=8, relative_distance=12)
WITHOUT_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)


def make(dictionary, **options):
    torch.manual_seed(0)
    model = XLNgramDecoderModel(NgramDecoderConfig(**SIZES | FORM | WITHOUT_DROPOUT | options), dictionary)
    for name, parameter in model.named_parameters():  # nothing neutral, and outputs that are far from uniform
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    return model.double().eval()


@pytest.fixture
def batch(dictionary):
    """Three sentences, the first with 20 target tokens: distances reach the last bucket."""
    draw = torch.Generator().manual_seed(0)
    de, en = dictionary.language_symbol("de"), dictionary.language_symbol("en")
    target = torch.randint(4, 18, (3, 20), generator=draw)
    for row, length in enumerate((20, 9, 1)):
        target[row, length - 1], target[row, length:] = EOS, PAD
    previous = torch.cat((torch.tensor([[en], [de], [en]]), target[:, :-1]), dim=1)
    tokens = torch.tensor([[0, 5, 6, 7, 8, EOS], [0, 9, 10, EOS, PAD, PAD], [0, 11, 4, 6, EOS, PAD]])
    return {
        "tokens": tokens,
        "padding_mask": tokens.eq(PAD),
        "languages": torch.tensor([[1], [0], [1]]),
        "prev_output_tokens": previous,
        "target": target,
    }


def encode(model, batch):
    return model.encoder(batch["tokens"], None, batch["languages"][:, 0])


# Against transformers


def prophetnet(dictionary, streams):
    """transformers' decoder and encoder with random weights, and our model with the same."""
    from transformers import ProphetNetConfig, ProphetNetModel

    torch.manual_seed(1)
    config = ProphetNetConfig(
        vocab_size=len(dictionary),
        hidden_size=16,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attention_heads=2,
        num_decoder_attention_heads=2,
        ngram=streams,
        num_buckets=8,
        relative_max_distance=12,
        max_position_embeddings=1 + 24 + streams,
        pad_token_id=0,
    )
    theirs = ProphetNetModel(config).double().eval()
    for name, parameter in theirs.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.3)
    ours = make(dictionary, predicting_streams=streams, position_offset=1)
    given, state = theirs.state_dict(), ours.state_dict()
    for key in state:
        stack, _, name = key.partition(".")
        state[key] = taken(given, stack, name) if name.partition(".")[0] != "token_embeddings" else state[key]
    # it numbers the first stream's row -1 and the second one's 0; positions of the encoder stop earlier in ours
    state["decoder.stream_embeddings.weight"] = state["decoder.stream_embeddings.weight"].roll(1, dims=0)
    state["encoder.embeddings.positions.weight"] = state["encoder.embeddings.positions.weight"][: 1 + 24]
    state["encoder.token_embeddings.table.weight"] = given["word_embeddings.weight"]
    ours.load_state_dict(state)
    return theirs, ours


NAMES = {
    "embeddings.positions": ["position_embeddings"],
    "embeddings.norm": ["embeddings_layer_norm"],
    "stream_embeddings": ["ngram_embeddings"],
    "self_attention.qkv": ["self_attn.query_proj", "self_attn.key_proj", "self_attn.value_proj"],
    "self_attention.out": ["self_attn.out_proj"],
    "self_attention.relative": ["self_attn.relative_pos_embeddings"],
    "self_attention_norm": ["self_attn_layer_norm"],
    "cross_attention.query": ["cross_attn.query_proj"],
    "cross_attention.key_value": ["cross_attn.key_proj", "cross_attn.value_proj"],
    "cross_attention.out": ["cross_attn.out_proj"],
    "cross_attention_norm": ["cross_attn_layer_norm"],
    "ffn.up": ["feed_forward.intermediate"],
    "ffn.down": ["feed_forward.output"],
    "ffn_norm": ["feed_forward_layer_norm"],
}


def taken(given, stack, name):
    """The parameter of ours, made of ProphetNet's."""
    owner, _, kind = name.rpartition(".")
    layer, owner = (owner[: len("layers.0.")], owner[len("layers.0.") :]) if owner[:7] == "layers." else ("", owner)
    return torch.cat([given[f"{stack}.{layer}{part}.{kind}"] for part in NAMES[owner]])


def compare(theirs, ours, batch, streams):
    """Encoder, main stream and all predicting streams, teacher-forced."""
    mask = batch["tokens"].ne(PAD)
    memory = theirs.encoder(batch["tokens"], attention_mask=mask.double()).last_hidden_state
    encoder_out = encode(ours, batch)
    torch.testing.assert_close(encoder_out["encoder_out"][0][mask], memory[mask], atol=1e-5, rtol=0)
    expected = theirs.decoder(
        batch["prev_output_tokens"], encoder_hidden_states=memory, encoder_attention_mask=mask.double()
    )
    found = ours.decoder.streams(batch["prev_output_tokens"], encoder_out)
    assert found.shape == (len(mask), 1 + streams, 20, 16)
    torch.testing.assert_close(found[:, 0], expected.last_hidden_state, atol=1e-5, rtol=0)
    predicting = expected.last_hidden_state_ngram.unflatten(1, (streams, 20))
    for ahead in range(streams):  # its rows are where the predicted token is, ours where the last known one is
        torch.testing.assert_close(found[:, 1 + ahead, : 20 - ahead], predicting[:, ahead, ahead:], atol=1e-5, rtol=0)


@pytest.fixture
def biases_of_the_own_query(monkeypatch):
    """Gives every query its own biases. Since transformers 4.28 predicting streams take those of other positions, heads
    and streams where more than one position is computed: axes are in another order than those of the buckets. In
    microsoft/ProphetNet and in a step of generation they are in one order; so positions are given one by one here.
    """
    from transformers.models.prophetnet.modeling_prophetnet import ProphetNetNgramSelfAttention

    name = "get_predict_relative_pos_embeddings"
    their_biases = getattr(ProphetNetNgramSelfAttention, name)

    def one_by_one(self, hidden, weights, positions, buckets):
        parts = zip(hidden.split(1, dim=1), weights.split(1, dim=3), buckets.split(1, dim=1))
        return torch.cat([their_biases(self, one, row, positions, bucket) for one, row, bucket in parts], dim=3)

    monkeypatch.setattr(ProphetNetNgramSelfAttention, name, one_by_one)


@pytest.mark.parametrize("streams", [1, 2, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_all_streams_are_prophetnets(dictionary, batch, streams, padded, biases_of_the_own_query):
    batch = batch if padded else {name: tensor[:1] for name, tensor in batch.items()}
    assert bool(batch["tokens"].eq(PAD).any()) == padded
    compare(*prophetnet(dictionary, streams), batch, streams)


def test_all_streams_are_those_of_transformers_as_it_is(dictionary, batch):
    """With the same biases for all queries and heads, so that transformers' order does not matter."""
    theirs, ours = prophetnet(dictionary, 2)
    for their_layer, layer in zip(theirs.decoder.layers, ours.decoder.layers):
        for linear in (their_layer.self_attn.relative_pos_embeddings, layer.self_attention.relative):
            linear.weight.data.zero_()
            linear.bias.data = torch.linspace(-1, 1, 8).double().repeat_interleave(2)
    compare(theirs, ours, batch, 2)


def test_steps_are_prophetnets(dictionary, batch):
    """Compares the main and the first predicting stream; transformers' second one also reads the newest token."""
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    theirs, ours = prophetnet(dictionary, 2)
    mask = batch["tokens"].ne(PAD)
    memory = theirs.encoder(batch["tokens"], attention_mask=mask.double()).last_hidden_state
    encoder_out, state = encode(ours, batch), {}
    cache = EncoderDecoderCache(DynamicCache(config=theirs.config), DynamicCache(config=theirs.config))
    for step in range(20):
        expected = theirs.decoder(
            batch["prev_output_tokens"][:, step : step + 1],
            encoder_hidden_states=memory,
            encoder_attention_mask=mask.double(),
            past_key_values=cache,
            use_cache=True,
        )
        found = ours.decoder.streams(batch["prev_output_tokens"][:, : step + 1], encoder_out, state, predicting=1)
        torch.testing.assert_close(found[:, 0], expected.last_hidden_state, atol=1e-5, rtol=0)
        torch.testing.assert_close(found[:, 1], expected.last_hidden_state_ngram[:, :1], atol=1e-5, rtol=0)


# What streams read


@pytest.mark.parametrize("languages", ["none", "added"])
def test_a_stream_reacts_to_every_known_token_and_to_no_later_one(dictionary, batch, languages):
    """By gradients: the main and the predicting streams at t read tokens 0 ... t, whichever token they predict."""
    model = make(dictionary, predicting_streams=3, language_embeddings=languages)
    previous, length = batch["prev_output_tokens"][:1, :7], 7
    rows = model.decoder.embeddings.token_embeddings(previous).detach().requires_grad_()
    embed = model.decoder.embeddings.token_embeddings.forward
    model.decoder.embeddings.token_embeddings.forward = lambda tokens: (
        rows if tokens.shape == previous.shape else embed(tokens)
    )
    hidden = model.decoder.streams(previous, encode(model, {name: batch[name][:1] for name in batch}))
    for stream in range(4):
        for position in range(length):
            (gradient,) = torch.autograd.grad(hidden[0, stream, position].sum(), rows, retain_graph=True)
            reads = gradient[0].abs().amax(dim=1) > 1e-9
            assert reads.tolist() == [known <= position for known in range(length)], (stream, position)


def test_the_main_stream_never_reads_predicting_streams(dictionary, batch):
    model = make(dictionary, predicting_streams=2)
    encoder_out = encode(model, batch)
    before = model.decoder.streams(batch["prev_output_tokens"], encoder_out)
    model.decoder.stream_embeddings.weight.data[1] *= -1
    after = model.decoder.streams(batch["prev_output_tokens"], encoder_out)
    assert torch.equal(before[:, :2], after[:, :2])  # nor does the first predicting stream read the second
    assert (before[:, 2] - after[:, 2]).abs().amax(dim=2).min() > 1e-3
    model.decoder.stream_embeddings.weight.data[0] *= -1
    assert torch.equal(before[:, 0], model.decoder.streams(batch["prev_output_tokens"], encoder_out)[:, 0])


def test_streams_know_which_position_they_predict(dictionary, batch):
    """With equal `stream_embeddings` the second stream differs from the first of the next position by context only."""
    model = make(dictionary, predicting_streams=2)
    model.decoder.stream_embeddings.weight.data[1] = model.decoder.stream_embeddings.weight.data[0]
    first, second = model.teacher_forced(batch)
    assert (first[:, 1:] - second[:, :-1]).abs().amax(dim=2).min() > 1e-4
    # where the first one reads the last token as the second one can't: nothing is different without any token's weight
    for layer in model.decoder.layers:
        layer.self_attention.qkv.weight.data[32:] = 0
        layer.self_attention.qkv.bias.data[32:] = 0
    first, second = model.teacher_forced(batch)
    torch.testing.assert_close(first[:, 1:], second[:, :-1])


def test_padding_and_batch_mates_change_nothing(dictionary, batch):
    model = make(dictionary)
    together = model.teacher_forced(batch)
    for row, length in enumerate((20, 9, 1)):
        one = {name: batch[name][row : row + 1] for name in batch}
        one["tokens"], one["padding_mask"] = one["tokens"][:, : int(one["tokens"].ne(PAD).sum())], None
        one["prev_output_tokens"] = one["prev_output_tokens"][:, :length]
        for alone, whole in zip(model.teacher_forced(one), together):
            torch.testing.assert_close(alone[0], whole[row, :length])


def test_every_parameter_learns(dictionary, batch):
    model = make(dictionary).train()
    sum((hidden**3).sum() for hidden in model.teacher_forced(batch)).backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {"encoder.token_embeddings.output_bias"}  # of the output layer


# Generation


@pytest.mark.parametrize("languages", ["none", "added"])
def test_steps_with_caches_equal_teacher_forcing(dictionary, batch, languages):
    model = make(dictionary, language_embeddings=languages)
    expected = model.decoder.output(model.teacher_forced(batch)[0])
    encoder_out, state = encode(model, batch), {}
    for step in range(20):
        found, extra = model.decoder(batch["prev_output_tokens"][:, : step + 1], encoder_out, state)
        assert found.shape == (3, 1, len(dictionary)) and extra is None
        torch.testing.assert_close(found[:, 0], expected[:, step])
    assert len(state["caches"]) == len(model.decoder.layers)
    for cache in state["caches"]:
        assert cache.self_attention.key.size(2) == 20  # of the main stream only
        assert cache.cross_attention.key.size(2) == 6


def test_caches_and_memory_are_reordered_together(dictionary, batch):
    model, previous = make(dictionary), batch["prev_output_tokens"]
    encoder_out, state = encode(model, batch), {}
    for step in range(4):
        model.decoder(previous[:, : step + 1], encoder_out, state)
    order = torch.tensor([2, 0, 0, 1])
    model.decoder.reorder_incremental_state_scripting(state, order)
    found, _ = model.decoder(previous[order, :5], model.encoder.reorder_encoder_out(encoder_out, order), state)
    expected, _ = model.decoder(previous[order, :5], model.encoder.reorder_encoder_out(encoder_out, order))
    torch.testing.assert_close(found[:, 0], expected[:, 4])


def test_outputs_are_as_long_as_the_model_says(dictionary, batch):
    """The streams at the last position predict later positions, which have an embedding too."""
    model = make(dictionary, predicting_streams=3, max_positions=20)
    assert model.max_decoder_positions() == 20
    assert model.decoder.embeddings.positions.weight.shape == (20 + 3, 16)
    assert len(model.teacher_forced(batch)) == 3
    longer = torch.cat((batch["prev_output_tokens"], batch["target"][:, -1:]), dim=1)
    with pytest.raises(UserError, match="21 tokens is longer than --max-positions 20"):
        model.decoder.streams(longer)


# Users' mistakes


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(predicting_streams=0), "--predicting-streams 0: 1 or more is needed"),
        (dict(relative_buckets=1), "--relative-buckets 1 should be from 2 to less than twice"),
        (
            dict(relative_buckets=24),
            "--relative-buckets 24 should be from 2 to less than twice the --relative-distance 12",
        ),
    ],
)
def test_sizes_that_cannot_be(dictionary, options, message):
    with pytest.raises(UserError, match=message):
        make(dictionary, **options)
