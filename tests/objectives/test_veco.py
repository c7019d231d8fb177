"""VECO's objectives (V3-V6): literal batches, the tokens that each term reads, and the loss from the formulas."""

import copy

import numpy as np
import pytest
import torch
from tiny_data import write_items
from tiny_models import DENSE, SIZES, randomized
from torch.nn import functional as F

from fairseq_xl.data.corpora.documents import AdjacentSegments
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.models.model_options import EncoderConfig
from fairseq_xl.objectives.veco import VecoObjective

PAD, MASK = 1, 20
NOTHING = "{0}.mask_prob=0"
HALF = "{0}.mask_prob=0.5"
EVERYTHING = "{0}.mask_prob=1 {0}.mask_token_prob=1 {0}.random_token_prob=0"


@pytest.fixture
def documents(tmp_path):
    """Two documents in English: 4 5 6 | 7 8, and 9 | 10 11."""
    items = [[4, 5, 6, 2], [7, 8, 2], [2], [9, 2], [10, 11, 2]]
    return AdjacentSegments(write_items(tmp_path / "documents", items), "en")


@pytest.fixture
def model(dictionary):
    """A small VECO model with random weights, without dropout."""
    torch.manual_seed(1)
    cfg = EncoderConfig(layers=2, position_offset=2, **SIZES, **DENSE)
    return randomized(XLVecoModel(cfg, len(dictionary), dictionary.pad(), dictionary.num_languages))


@pytest.fixture(params=["veco_mono", "veco_bi"])
def case(request, build, spec, documents, pairs):
    """case(options, examples) -> objective and batch."""
    corpus = {"veco_mono": documents, "veco_bi": pairs}[request.param]

    def case(options=HALF, examples=(0, 1)):
        objective = build(request.param, options.format(request.param))
        return objective, objective.collate(spec(list(examples)), corpus)

    return case


def side_of(batch, side):
    """Tokens and padding (B, T) of x or y, and what is predicted there: (B, T) bool, targets (N,)."""
    part = slice(None, len(batch["tokens"]) // 2) if side == "x" else slice(len(batch["tokens"]) // 2, None)
    predicted = torch.zeros(batch["tokens"].numel(), dtype=torch.bool)
    predicted[batch[side]["predicted_positions"]] = True
    tokens = batch["tokens"]
    padding = torch.zeros_like(tokens, dtype=torch.bool) if batch["padding_mask"] is None else batch["padding_mask"]
    return tokens[part], padding[part], predicted.view_as(tokens)[part], batch[side]["target"]


def test_batch_of_segments(build, spec, documents):
    batch = build("veco_mono", EVERYTHING.format("veco_mono")).collate(spec([0, 1]), documents)
    assert batch["tokens"].tolist() == [
        [0, MASK, MASK, MASK, 2],
        [0, MASK, 2, PAD, PAD],
        [0, MASK, MASK, 2, PAD],
        [0, MASK, MASK, 2, PAD],
    ]
    assert batch["x"]["target"].tolist() == [4, 5, 6, 9] and batch["y"]["target"].tolist() == [7, 8, 10, 11]
    assert batch["x"]["predicted_positions"].tolist() == [1, 2, 3, 6]
    assert batch["y"]["predicted_positions"].tolist() == [11, 12, 16, 17]
    assert batch["padding_mask"].tolist() == batch["tokens"].eq(PAD).tolist()
    assert batch["languages"].tolist() == [[1], [1], [1], [1]]


def test_batch_of_translations(build, spec, pairs):
    batch = build("veco_bi", NOTHING.format("veco_bi")).collate(spec([0, 1], [6, 8]), pairs)
    assert batch["tokens"].tolist() == [[0, 4, 5, 6, 2], [0, 7, 2, PAD, PAD], [0, 14, 2, PAD, PAD], [0, 15, 16, 2, PAD]]
    assert batch["languages"].tolist() == [[1], [1], [0], [0]]
    assert batch["tlm"]["tokens"].tolist() == [[0, 4, 5, 6, 2, 2, 14, 2], [0, 7, 2, 2, 15, 16, 2, PAD]]


def test_text_without_pairs_is_reported_before_training(build, tmp_path):
    alone = AdjacentSegments(write_items(tmp_path / "alone", [[4, 2], [2], [5, 2]]), "en")
    with pytest.raises(UserError, match="no document of language 'en' has two sentences"):
        build("veco_mono").check(alone)


def test_the_papers_values_are_the_defaults(build):
    mono, bi = build("veco_mono").cfg, build("veco_bi").cfg
    assert (mono.mask_prob, bi.mask_prob, mono.length, bi.length) == (0.15, 0.25, 512, 128)  # V3, V8
    assert mono.alpha == bi.alpha == 0.5 and mono.frequency_exponent == 0


def test_the_two_sides_are_masked_independently(build, spec, tmp_path):
    """With two equal segments, masked positions of x and of y are independent."""
    corpus = AdjacentSegments(write_items(tmp_path / "twins", [[5, 6, 7, 8, 2]] * 2), "en")
    objective = build("veco_mono", "veco_mono.mask_prob=0.5 veco_mono.mask_token_prob=1 veco_mono.random_token_prob=0")
    masked = objective.collate(spec([0] * 4000), corpus)["tokens"].eq(MASK)[:, 1:5].double()
    x, y = masked[:4000], masked[4000:]
    assert x.mean().item() == pytest.approx(0.5, abs=0.02) and y.mean().item() == pytest.approx(0.5, abs=0.02)
    assert (x * y).mean().item() == pytest.approx(0.25, abs=0.02)


def test_loss_from_the_formulas(case, model):
    """IS: X = FFN(SelfAttn(X)). CS: S = SelfAttn(Y) under a triangular mask, Z = CrossAttn(S, X^(N)), Y = FFN(Z)."""
    objective, batch = case()
    terms = model(objective.loss, batch)
    layers = model.encoder.layers

    def attention(queries, keys, query, key_value, out, visible):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(0, 1) for part in (query(queries), *key_value(keys)))
        scores = q @ k.transpose(1, 2) / 8**0.5
        return out((scores.masked_fill(~visible, float("-inf")).softmax(-1) @ v).transpose(0, 1).flatten(1))

    def run(tokens, visible, memory=None):
        """One sequence (t,) without padding, its mask (t, t) -> states (t, C)."""
        embeddings = model.encoder.embeddings
        positions = embeddings.positions(torch.arange(len(tokens)) + 2)
        hidden = embeddings.norm(embeddings.token_embeddings.table(tokens) + positions)
        for layer in layers:
            own = layer.self_attention

            def parts(states, own=own):
                return own.qkv(states).chunk(3, dim=-1)

            update = attention(hidden, hidden, lambda h: parts(h)[0], lambda h: parts(h)[1:], own.out, visible)
            hidden = layer.self_attention_norm(hidden + update)
            if memory is not None:
                cross = layer.cross_attention
                everything = torch.ones(len(tokens), len(memory), dtype=torch.bool)
                update = attention(
                    hidden, memory, cross.query, lambda m: cross.key_value(m).chunk(2, dim=-1), cross.out, everything
                )
                hidden = layer.cross_attention_norm(hidden + update)
            hidden = layer.ffn_norm(hidden + layer.ffn.down(F.gelu(layer.ffn.up(hidden))))
        return hidden

    expected = dict.fromkeys(("is_x", "is_y", "cs_xy", "cs_yx"), 0.0)
    sides = {side: side_of(batch, side) for side in "xy"}
    rest = {side: sides[side][3].tolist() for side in "xy"}
    for row in range(len(batch["tokens"]) // 2):
        tokens = {side: sides[side][0][row][~sides[side][1][row]] for side in "xy"}
        chosen = {side: sides[side][2][row][~sides[side][1][row]] for side in "xy"}
        square = {side: torch.ones(len(tokens[side]), len(tokens[side]), dtype=torch.bool) for side in "xy"}
        states = {side: run(tokens[side], square[side]) for side in "xy"}
        targets = {side: [rest[side].pop(0) for _ in range(int(chosen[side].sum()))] for side in "xy"}
        crossed = {side: run(tokens[side], square[side].tril(), memory=states[other]) for side, other in ("xy", "yx")}
        for term, hidden, side in (
            ("is_x", states["x"], "x"),
            ("is_y", states["y"], "y"),
            ("cs_xy", crossed["y"], "y"),
            ("cs_yx", crossed["x"], "x"),
        ):
            logits = model.output(hidden[chosen[side]])
            for scores, target in zip(logits, targets[side]):
                expected[term] -= scores.log_softmax(-1)[target].item()
    for term, value in expected.items():
        assert terms[f"{objective.name}_{term}"].sum.item() == pytest.approx(value)
    assert [terms[f"{objective.name}_{term}"].count for term in ("is_x", "is_y")] == [
        len(batch["x"]["target"]),
        len(batch["y"]["target"]),
    ]


def test_no_gradient_reaches_the_encoder_through_the_memory(case, model):
    """V5: x is looked up in a table of its own; CS(x→y) doesn't reach it, IS(x) does."""
    objective, batch = case()
    token_embeddings = model.encoder.token_embeddings
    tables = {side: copy.deepcopy(token_embeddings.table.weight.detach()).requires_grad_() for side in "xy"}
    half = len(batch["tokens"]) // 2

    def by_side(tokens):
        assert len(tokens) == 2 * half
        return torch.cat([F.embedding(tokens[:half], tables["x"]), F.embedding(tokens[half:], tables["y"])])

    token_embeddings.forward = by_side

    def reaches(term, side):
        terms = super(type(objective), objective).loss(model, batch)  # without TLM, which mixes the sides
        (gradient,) = torch.autograd.grad(terms[f"{objective.name}_{term}"].sum, tables[side], allow_unused=True)
        return gradient is not None and bool(gradient.abs().max() > 0)

    assert not reaches("cs_xy", "x") and reaches("cs_xy", "y")
    assert not reaches("cs_yx", "y") and reaches("cs_yx", "x")
    assert reaches("is_x", "x") and not reaches("is_x", "y")
    assert reaches("is_y", "y") and not reaches("is_y", "x")


def test_a_position_reacts_to_earlier_ones_and_to_no_later_one(case, model):
    """The triangular mask of CS: y's position t, in the states from which the loss predicts y."""
    objective, batch = case(NOTHING)
    tokens, length = batch["tokens"], int((~batch["padding_mask"])[-1].sum())
    encode, passes = model.encode, []
    model.encode = lambda *args, **named: passes.append(encode(*args, **named)) or passes[-1]

    def states(tokens):
        passes.clear()
        super(type(objective), objective).loss(model, batch | {"tokens": tokens})  # without TLM
        assert len(passes) == 2
        return passes[1][-1]  # what reads x's states, which no y changes

    before = states(tokens)
    for changed in range(length):
        other = tokens.clone()
        other[-1, changed] = 13
        moved = (states(other) - before).abs().amax(-1)[:length] > 1e-9
        assert moved.tolist() == [t >= changed for t in range(length)]


def test_y_reacts_to_all_of_x_and_to_no_padding(case, model):
    objective, batch = case()
    terms = model(objective.loss, batch)
    name = f"{objective.name}_cs_xy"
    for row, column in batch["padding_mask"][: len(batch["tokens"]) // 2].nonzero().tolist():
        batch["tokens"][row, column] = 12
    assert model(objective.loss, batch)[name].sum.item() == pytest.approx(terms[name].sum.item())
    for column in range(3):
        tokens = batch["tokens"].clone()
        tokens[0, column] = 13
        assert model(objective.loss, batch | {"tokens": tokens})[name].sum.item() != pytest.approx(
            terms[name].sum.item()
        )


def test_swapping_the_sides_swaps_the_terms(case, model):
    objective, batch = case()
    half = batch["tokens"].numel() // 2
    swapped = dict(batch)
    for name in ("tokens", "padding_mask", "languages"):
        swapped[name] = batch[name].roll(len(batch["tokens"]) // 2, 0)
    swapped["packing"], swapped["memory_packing"] = batch["memory_packing"], batch["packing"]
    swapped["x"] = {"predicted_positions": batch["y"]["predicted_positions"] - half, "target": batch["y"]["target"]}
    swapped["y"] = {"predicted_positions": batch["x"]["predicted_positions"] + half, "target": batch["x"]["target"]}
    terms, others = model(objective.loss, batch), model(objective.loss, swapped)
    for term, other in (("is_x", "is_y"), ("is_y", "is_x"), ("cs_xy", "cs_yx"), ("cs_yx", "cs_xy")):
        one, two = terms[f"{objective.name}_{term}"], others[f"{objective.name}_{other}"]
        assert one.sum.item() == pytest.approx(two.sum.item()) and one.count == two.count > 0


def test_one_pass_feeds_both(case, model, monkeypatch):
    """Two runs of the layers in sum, and a third for TLM (V6)."""
    objective, batch = case()
    calls = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *args, **named: calls.append(named) or encode(*args, **named))
    model(objective.loss, batch)
    assert len(calls) == (3 if objective.name == "veco_bi" else 2)


def test_the_first_stage_computes_terms_with_a_gradient_only(case, model, monkeypatch):
    """While cross-attention alone is trained, validation still has all terms, and gradients are those of all terms."""
    objective, batch = case()
    cross = {name: parameter for name, parameter in model.named_parameters() if "cross_attention" in name}
    model.train()
    terms = model(objective.loss, batch)
    sum(term.sum for term in terms.values()).backward()
    expected = {name: parameter.grad.clone() for name, parameter in cross.items()}
    model.zero_grad()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in cross)
    calls, losses, encode, predict = [], [], model.encode, objective.predict
    monkeypatch.setattr(model, "encode", lambda *args, **named: calls.append(encode(*args, **named)) or calls[-1])
    monkeypatch.setattr(objective, "predict", lambda *args: losses.append(predict(*args)) or losses[-1])
    kept = model(objective.loss, batch)
    assert list(kept) == [f"{objective.name}_cs_xy", f"{objective.name}_cs_yx"]
    assert len(calls) == len(losses) == 2 and not calls[0].requires_grad and calls[1].requires_grad
    for name, term in kept.items():
        assert term.count == terms[name].count > 0
        torch.testing.assert_close(term.sum, terms[name].sum)
    sum(term.sum for term in kept.values()).backward()
    for name, parameter in cross.items():
        torch.testing.assert_close(parameter.grad, expected[name])
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if name not in cross)
    with torch.no_grad():
        assert tuple(model.eval()(objective.loss, batch)) == objective.terms
    model.train().output.dense.bias.requires_grad_(True)
    assert tuple(model(objective.loss, batch)) == objective.terms


def test_a_batch_is_the_sum_of_its_examples(build, model, spec, documents, pairs):
    for name, corpus in (("veco_mono", documents), ("veco_bi", pairs)):
        objective = build(name, HALF.format(name))
        terms = model(objective.loss, objective.collate(spec([0, 1], [6, 8]), corpus))
        alone = [model(objective.loss, objective.collate(spec([n], [key]), corpus)) for n, key in ((0, 6), (1, 8))]
        for term in objective.terms:
            assert terms[term].sum.item() == pytest.approx(sum(part[term].sum.item() for part in alone))
            assert terms[term].count == sum(part[term].count for part in alone)


def test_the_tlm_term_is_that_of_tlm(build, model, spec, pairs):
    objective = build("veco_bi")
    batch = objective.collate(spec([0, 1]), pairs)
    term = model(objective.loss, batch)["veco_bi_tlm"]
    (expected,) = build("tlm", "tlm.mask_prob=0.25 tlm.frequency_exponent=0").loss(model, batch["tlm"]).values()
    assert term.sum.item() == pytest.approx(expected.sum.item())
    assert term.weight == 1 and term.count == len(batch["tlm"]["target"]) > 0


def test_tlm_is_masked_independently_of_the_sides(build, spec, tmp_path):
    """Compares the masked positions of a sentence of 400 words in TLM, where it comes first, and in IS(x)."""
    for code, start in (("en", 4), ("de", 14)):
        write_items(tmp_path / f"train.en-de.{code}", [[*(start + n % 6 for n in range(400)), 2]])
    pairs = SentencePairs(tmp_path / "train.en-de", "en", "de")
    objective = build("veco_bi", "veco_bi.length=500")
    batch = objective.collate(spec(np.zeros(60, dtype=int)), pairs)
    width = batch["tokens"].shape[1]
    alone = torch.zeros(batch["tokens"].numel())
    alone[torch.cat([batch[side]["predicted_positions"] for side in "xy"])] = 1
    alone = alone.view(-1, width)[:60, 1:401]
    tlm = batch["tlm"]
    together = torch.zeros(tlm["tokens"].numel())
    together[tlm["predicted_positions"]] = 1
    english_first = tlm["languages"][:, 0] == batch["languages"][0, 0]
    assert 10 < english_first.sum() < 50
    together = together.view(60, -1)[english_first, 1:401]
    assert (alone[english_first] * together).mean().item() == pytest.approx(0.25**2, abs=0.015)


@pytest.mark.parametrize("name", ["veco_mono", "veco_bi"])
def test_the_longest_example_takes_all_positions(build, dictionary, spec, tmp_path, name):
    """Segments of longer sentences, and the longest sentences that a pair may have, fill --max-positions."""
    fits, longer = ([*(4 + n % 6 for n in range(size - 1)), 2] for size in (31, 32))
    model = XLVecoModel(
        EncoderConfig(embed_dim=16, ffn_dim=32, heads=2, layers=1, max_positions=32),
        len(dictionary),
        dictionary.pad(),
        dictionary.num_languages,
    )
    objective = build(name, f"{name}.length=32")
    assert objective.input_length.positions == 32
    if name == "veco_mono":
        corpus = AdjacentSegments(write_items(tmp_path / "train", [longer, longer]), "en")
    else:
        for code in ("en", "de"):
            write_items(tmp_path / f"train.en-de.{code}", [fits, longer])
        corpus = SentencePairs(tmp_path / "train.en-de", "en", "de")
    examples = corpus.all_examples(objective.input_length.text)[0]
    batch = objective.collate(spec(examples), corpus)
    assert len(examples) == 1 and batch["tokens"].shape[1] == 32
    VecoObjective.loss(objective, model, batch)
