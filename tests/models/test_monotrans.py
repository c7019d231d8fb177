"""MonoTrans' model (M1-M5): the special symbols' own table, positions and segments, noise, adapters."""

import pytest
import torch
from tiny_models import DENSE, SIZES, randomized

from fairseq_xl.checkpoints.language_modules import in_module, with_language_positions
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.monotrans import MonoTransConfig, MonoTransEmbeddings, XLMonoTransModel
from fairseq_xl.modules.embeddings import TokenEmbeddings

PAD, MASK = 1, 20  # pieces are 4 to 19
SMALL = dict(layers=2, **SIZES, **DENSE)
TOKENS = torch.tensor([[0, 4, 5, 2, 2, 6, MASK, 2], [0, 7, 3, 2, 2, 8, 2, PAD]])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 0]])


@pytest.fixture
def build(dictionary):
    def build(**more):
        torch.manual_seed(1)
        model = XLMonoTransModel(
            MonoTransConfig(**SMALL | more), len(dictionary), PAD, dictionary.num_languages, dictionary.shared
        )
        return model.double()

    return build


def randomize(model):
    torch.manual_seed(2)
    return randomized(model)


@pytest.mark.parametrize("channels", [0, 6])
def test_it_computes_what_an_encoder_with_these_rows_does(build, dictionary, channels):
    """Hidden states, logits, and the gradients of both uses of the table, which may be projected."""
    model = randomize(build(segment_embeddings="none", token_embed_dim=channels))
    plain = XLEncoderModel(model.cfg, len(dictionary), PAD, dictionary.num_languages).double()
    state = model.state_dict()
    special = state.pop("encoder.token_embeddings.special.weight")
    table = state["encoder.token_embeddings.table.weight"].clone()
    projection = state.pop("encoder.token_embeddings.projection.weight", torch.eye(table.size(1), dtype=table.dtype))
    state["encoder.token_embeddings.table.weight"] = table @ projection.T
    state["encoder.token_embeddings.table.weight"][dictionary.shared] = special
    plain.load_state_dict(state)

    def loss_of_all(model, batch):
        hidden = model.encode(TOKENS, padding_mask=TOKENS.eq(PAD))
        return model.output.cross_entropy(hidden.flatten(0, 1), TOKENS.flatten())

    losses = [each(loss_of_all, None) for each in (model, plain)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    for loss in losses:
        loss.backward()
    gradient = plain.encoder.token_embeddings.table.weight.grad
    torch.testing.assert_close(model.encoder.token_embeddings.special.weight.grad, gradient[dictionary.shared])
    expected = gradient.clone()
    expected[dictionary.shared] = 0
    torch.testing.assert_close(model.encoder.token_embeddings.table.weight.grad, expected @ projection)
    if channels:
        torch.testing.assert_close(model.encoder.token_embeddings.projection.weight.grad, expected.T @ table)
    torch.testing.assert_close(model.output.dense.weight.grad, plain.output.dense.weight.grad)


def embedded(model, segments=SEGMENTS):
    """The embeddings before the LayerNorm without those of tokens, (B, T, C)."""
    embeddings = model.encoder.embeddings
    embeddings.norm, embeddings.dropout = torch.nn.Identity(), torch.nn.Identity()
    return embeddings(TOKENS, segments=segments) - model.encoder.token_embeddings(TOKENS)


def test_positions_and_segments_are_added(build):
    model = randomize(build())
    positions, segments = model.encoder.embeddings.positions.weight, model.encoder.embeddings.segments.weight
    found = embedded(model)
    for row in range(2):
        for place in range(8):
            torch.testing.assert_close(found[row, place], positions[place] + segments[SEGMENTS[row, place]])
    torch.testing.assert_close(embedded(model, None), embedded(model, torch.zeros_like(SEGMENTS)))


def test_the_first_symbol_has_neither_where_positions_are_a_languages(build):
    model = randomize(build(language_positions=True))
    positions, segments = model.encoder.embeddings.positions.weight, model.encoder.embeddings.segments.weight
    found = embedded(model)
    assert found[:, 0].abs().max() < 1e-12
    for place in range(1, 8):
        torch.testing.assert_close(found[0, place], positions[place] + segments[SEGMENTS[0, place]])


@pytest.mark.parametrize("more", [{}, dict(segment_embeddings="none", position_offset=2, embedding_scale="sqrt")])
def test_positions_become_a_languages_without_changing_hidden_states(build, more):
    common, owned = randomize(build(**more)), build(language_positions=True, **more)
    embeddings = common.encoder.embeddings
    state = with_language_positions(common.state_dict(), embeddings.position_offset, embeddings.scale or 1)
    owned.load_state_dict(state)
    inputs = {"padding_mask": TOKENS.eq(PAD)} | ({} if more else {"segments": SEGMENTS})
    torch.testing.assert_close(owned.encode(TOKENS, **inputs), common.encode(TOKENS, **inputs))


@pytest.mark.parametrize(
    "more, first, others",
    [(dict(), 3, 3), (dict(segment_embeddings="none"), 2, 2), (dict(language_positions=True), 1, 3)],
)
def test_noise_has_its_deviation_for_each_embedding(dictionary, more, first, others):
    """Deviation 0.075 for each of word, position and segment: the variance of k of them is k times as large (M4)."""
    cfg = MonoTransConfig(**SMALL | more | dict(embedding_noise=0.075, embed_dim=256))
    token_embeddings = TokenEmbeddings(len(dictionary), 256, PAD, output_bias=True)
    embeddings = MonoTransEmbeddings(cfg, token_embeddings, 0)
    embeddings.norm = torch.nn.Identity()
    tokens = torch.full((200, 5), 7)
    quiet = embeddings.eval()(tokens)
    assert torch.equal(quiet, embeddings(tokens))
    torch.manual_seed(1)
    noise = embeddings.train()(tokens) - quiet
    for place, count in enumerate([first, others, others, others, others]):
        assert noise[:, place].std().item() == pytest.approx(0.075 * count**0.5, rel=0.02)
        assert abs(noise[:, place].mean()) < 0.003
    assert abs((noise[0] * noise[1]).mean()) < 0.003  # of its own for each sequence
    torch.manual_seed(1)
    assert torch.equal(embeddings(tokens) - quiet, noise)


def test_without_noise_nothing_is_drawn(build):
    embeddings = build().encoder.embeddings.train()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    embeddings(TOKENS)
    assert torch.equal(before, torch.get_rng_state())


def test_adapters_begin_near_the_identity(build):
    """Weights are small and biases 0, so that hidden states change little."""
    plain, adapted = build(), build(adapters=4)
    missing = adapted.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert len(missing) == 2 * 2 * 4 and all("_adapter." in name for name in missing)
    hidden = adapted.encode(TOKENS)
    assert 0 < (hidden - plain.encode(TOKENS)).abs().max() < 0.01
    adapters = {name: value for name, value in adapted.named_parameters() if "_adapter." in name}
    assert all(not value.any() for name, value in adapters.items() if name.endswith("bias"))
    weights = torch.cat([value.flatten() for name, value in adapters.items() if name.endswith("weight")])
    assert weights.std().item() == pytest.approx(0.01, rel=0.1) and abs(weights.mean()) < 0.002
    (hidden * torch.arange(hidden.size(-1))).sum().backward()
    assert all(value.grad.abs().sum() > 0 for value in adapters.values())


def test_an_adapter_is_behind_each_part_and_before_its_residual(build):
    """As Houlsby et al.: LayerNorm(x + adapter(part(x))), adapter(z) = z + up(GELU(down(z)))."""
    model = randomize(build(adapters=4, layers=1))
    (layer,) = model.encoder.layers
    hidden = torch.randn(2, 8, 16, dtype=torch.double)

    def adapted(adapter, z):
        return z + adapter.up(torch.nn.functional.gelu(adapter.down(z)))

    middle = layer.self_attention_norm(hidden + adapted(layer.attention_adapter, layer.self_attention(hidden)))
    expected = layer.ffn_norm(middle + adapted(layer.ffn_adapter, layer.ffn(middle)))
    torch.testing.assert_close(layer(hidden), expected)


def test_what_belongs_to_a_language_module(build):
    names = dict(build(adapters=4, language_embeddings="added").named_parameters())
    module = {name for name in names if in_module(name, False)}
    adapters = {name for name in names if "adapter" in name}
    tables = {
        "encoder.token_embeddings.table.weight",
        "encoder.token_embeddings.output_bias",
        "encoder.embeddings.languages.weight",
    }
    assert len(adapters) == 16 and module == adapters | tables
    assert {name for name in names if in_module(name, True)} == module | {"encoder.embeddings.positions.weight"}


@pytest.mark.parametrize("option", [dict(adapters=-1), dict(embedding_noise=-0.1)])
def test_less_than_nothing(build, option):
    with pytest.raises(UserError, match="0 or more is needed"):
        build(**option)
