"""Cross-lingual word recovery (U4): literal batches, the attention matrix against a loop written from its formula."""

import math

import pytest
import torch
from tiny_data import write_items

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.objectives.word_recovery import AttentionMatrix

PAD = 1


@pytest.fixture
def recovering(build, model):
    """The objective, and a model with its head."""
    objective = build("word_recovery")
    model.add_heads(objective.heads(model.cfg))
    torch.nn.init.normal_(model.heads["word_recovery"].weight, std=0.5)
    return objective, model.double()


def test_batch(build, pairs, spec):
    """Even keys recover English from German, odd ones German from English; </s> of the other side is no word."""
    batch = build("word_recovery").collate(spec([0, 1], [6, 7]), pairs)
    assert batch["tokens"].tolist() == [[0, 4, 5, 6, 2], [0, 15, 16, 2, PAD]]
    assert batch["words"].tolist() == [[14], [7]]
    assert batch["languages"].tolist() == [[1], [0]]
    assert batch["predicted_positions"].tolist() == [1, 2, 3, 6, 7] and batch["target"].tolist() == [4, 5, 6, 15, 16]
    assert batch["padding_mask"].tolist() == [[False] * 5, [False] * 4 + [True]]


def test_attention_matrix_is_the_formulas_loop():
    torch.manual_seed(4)
    head = AttentionMatrix(6, std=0.02).double()
    torch.nn.init.normal_(head.weight)
    x, y = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    padding = torch.tensor([[False, False, False], [False, False, True]])
    mixed = head(x, y, padding)
    w = head.weight.flatten()
    for b in range(2):
        words = [j for j in range(3) if not padding[b, j]]
        for i in range(5):
            scores = [float(w @ torch.cat([x[b, i], y[b, j], x[b, i] * y[b, j]])) for j in words]
            powers = [math.exp(score) for score in scores]
            expected = sum(power / sum(powers) * y[b, j] for power, j in zip(powers, words))
            torch.testing.assert_close(mixed[b, i], expected, rtol=1e-5, atol=1e-6)


def test_padding_of_y_does_not_change_the_loss(recovering, pairs, spec):
    """Words of Y do change it."""
    objective, model = recovering
    batch = objective.collate(spec([0, 1], [7, 8]), pairs)
    assert batch["words_padding_mask"].tolist() == [[False, False, False], [False, False, True]]
    before = model(objective.loss, batch)["word_recovery"].sum.item()
    batch["words"][batch["words_padding_mask"]] = 9
    assert model(objective.loss, batch)["word_recovery"].sum.item() == pytest.approx(before)
    batch["words"][0, 0] = 9
    assert model(objective.loss, batch)["word_recovery"].sum.item() != pytest.approx(before, rel=1e-5)


def test_the_encoder_is_given_mixtures_for_words_and_the_embeddings_of_special_symbols(recovering, pairs, spec):
    """With a single word of Y every mixture is that word's embedding; <s> and </s> of X keep their own."""
    objective, model = recovering
    batch = objective.collate(spec([0], [6]), pairs)
    seen = {}
    encode = model.encode
    model.encode = lambda tokens, **named: seen.update(named) or encode(tokens, **named)
    model(objective.loss, batch)
    vectors, table = seen["inputs_embeds"], model.encoder.token_embeddings.table.weight
    for place, token in enumerate(batch["tokens"][0].tolist()):
        expected = table[14] if batch["is_word"][0, place] else table[token]
        torch.testing.assert_close(vectors[0, place], expected)


def test_the_parts_of_the_matrix_that_see_y_are_trained(recovering, pairs, spec):
    """Two of three parts: the one that depends on x only is constant over words of Y and cancels in the softmax."""
    objective, model = recovering
    batch = objective.collate(spec([0, 1], [7, 8]), pairs)
    model(objective.loss, batch)["word_recovery"].sum.backward()
    gradient = model.heads["word_recovery"].weight.grad
    assert gradient[1].abs().max() > 1e-6 and gradient[2].abs().max() > 1e-6
    assert gradient[0].abs().max() < 1e-6


def test_batches_are_the_sums_of_their_examples(recovering, check_sums, pairs, spec):
    """Three words and one of X, one and two of Y."""
    check_sums(recovering[0], pairs, spec([0, 1], [6, 8]), [spec([0], [6]), spec([1], [8])])


def test_an_unknown_word_is_not_predicted_and_keeps_its_embedding(recovering, spec, tmp_path):
    """<unk>, 3, among the words of X; among those of Y it is mixed in as any other."""
    objective, model = recovering
    write_items(tmp_path / "unknown.en-de.en", [[4, 3, 6, 2]])
    write_items(tmp_path / "unknown.en-de.de", [[3, 2]])
    batch = objective.collate(spec([0], [6]), SentencePairs(tmp_path / "unknown.en-de", "en", "de"))
    assert batch["tokens"].tolist() == [[0, 4, 3, 6, 2]] and batch["words"].tolist() == [[3]]
    assert batch["is_word"].tolist() == [[False, True, False, True, False]]
    assert batch["predicted_positions"].tolist() == [1, 3] and batch["target"].tolist() == [4, 6]
    seen, encode = {}, model.encode
    model.encode = lambda tokens, **named: seen.update(named) or encode(tokens, **named)
    model(objective.loss, batch)
    table = model.encoder.token_embeddings.table.weight
    torch.testing.assert_close(seen["inputs_embeds"][0], table[torch.tensor([0, 3, 3, 3, 2])])
