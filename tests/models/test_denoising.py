"""The pre-trained encoder-decoder: teacher forcing, incremental generation, shared token embeddings."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.models.encoder_decoder import SourceEncoder
from fairseq_xl.models.model_options import DenoisingConfig
from fairseq_xl.objectives.sequence import decoder_target, sequence_terms

PAD, EOS = 1, 2
SIZES = dict(embed_dim=16, ffn_dim=32, heads=2, encoder_layers=2, decoder_layers=1, max_positions=12)
WITHOUT_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)


def make(dictionary, **options):
    torch.manual_seed(0)
    model = XLDenoisingModel(DenoisingConfig(**SIZES | WITHOUT_DROPOUT | options), dictionary).double()
    for name, parameter in model.named_parameters():  # nothing neutral, and outputs that are far from uniform
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    return model


@pytest.fixture
def batch(dictionary):
    de, en = dictionary.language_symbol("de"), dictionary.language_symbol("en")
    tokens = torch.tensor([[0, 5, 6, 7, EOS], [0, 9, EOS, PAD, PAD]])
    return {
        "tokens": tokens,
        "padding_mask": tokens.eq(PAD),
        "languages": torch.tensor([[1], [0]]),
        "prev_output_tokens": torch.tensor([[en, 5, 9, 4], [de, 8, EOS, PAD]]),
        **decoder_target(torch.tensor([[5, 9, 4, EOS], [8, EOS, PAD, PAD]]), PAD),
    }


def test_steps_with_caches_equal_teacher_forcing(dictionary, batch):
    model = make(dictionary).eval()
    (hidden,) = model.teacher_forced(batch)
    expected = model.decoder.output(hidden)
    encoder_out, state = model.encoder(batch["tokens"], None, batch["languages"][:, 0]), {}
    for step in range(4):
        found, _ = model.decoder(batch["prev_output_tokens"][:, : step + 1], encoder_out, state)
        torch.testing.assert_close(found[:, 0], expected[:, step])


def test_fairseqs_generator_scores_as_teacher_forcing(dictionary, batch):
    model, start = make(dictionary).eval(), dictionary.language_symbol("de")
    generator = SequenceGenerator([model], dictionary, beam_size=2, eos=EOS, max_len_b=5, normalize_scores=False)
    given = {"src_tokens": batch["tokens"], "src_lengths": None, "src_languages": batch["languages"][:, 0]}
    given["src_lengths"] = batch["tokens"].ne(PAD).sum(1)
    found = generator.generate([model], {"net_input": given}, bos_token=start)
    for row, (hypothesis, *_) in enumerate(found):
        target = hypothesis["tokens"][None]
        shifted = torch.cat((torch.tensor([[start]]), target[:, :-1]), dim=1)
        one = {name: None if value is None else value[row : row + 1] for name, value in batch.items()}
        one["tokens"] = one["tokens"][:, : given["src_lengths"][row]]
        one |= {"padding_mask": None, "prev_output_tokens": shifted, **decoder_target(target, PAD)}
        (term,) = model(sequence_terms, one)
        assert len(target[0]) > 1 and term.count == len(target[0])
        torch.testing.assert_close(-hypothesis["score"].float(), term.sum.float(), atol=1e-4, rtol=0)


def test_one_token_embeddings_with_one_gradient(dictionary, batch):
    """Both sides and the output share the table; its gradient is the same outside forward's context."""
    model = make(dictionary)
    assert (
        model.decoder.embeddings.token_embeddings
        is model.decoder.output.token_embeddings
        is model.encoder.token_embeddings
    )
    assert not [name for name, _ in model.named_parameters() if name.startswith("decoder.token_embeddings")]

    def gradients(terms):
        model.zero_grad()
        sum(term.sum for term in terms).backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    inside, outside = gradients(model(sequence_terms, batch)), gradients(sequence_terms(model, batch))
    assert all(gradient.abs().sum() > 0 for name, gradient in inside.items() if "key.bias" not in name)
    for name, gradient in outside.items():
        torch.testing.assert_close(inside[name], gradient, msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_gradient_in_16_bits(dictionary, batch, dtype):
    """Encoder, decoder and output share one table: its gradient is the sum of all three."""
    tables = []
    for precision in (torch.float32, dtype):
        model = make(dictionary).to(dtype).to(precision)
        (term,) = model(sequence_terms, batch)
        term.sum.backward()
        tables.append(model.encoder.token_embeddings.table.weight.grad)
    expected, found = tables
    assert found.dtype == dtype
    error = (found.float() - expected).abs().max() / expected.abs().max()
    assert error < 8 * torch.finfo(dtype).eps


def test_the_batchs_languages_and_padding_are_read(dictionary, batch):
    model = make(dictionary).eval()
    (expected,) = model.teacher_forced(batch)
    for other in (batch | {"languages": 1 - batch["languages"]}, batch | {"padding_mask": None}):
        (found,) = model.teacher_forced(other)
        assert (found[1] - expected[1]).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_greedy_translation_is_fairseqs_with_beam_1(dictionary, batch, dtype):
    """Sources of many lengths; fairseq's generator may choose from the same symbols and stop at the same length."""
    model = make(dictionary, max_positions=40).to(dtype).eval()
    model.encoder.token_embeddings.output_bias.data[EOS] += 2.0  # some translations end early
    generator_of_inputs = torch.Generator().manual_seed(3)
    rows = [torch.randint(4, 20, (n,), generator=generator_of_inputs) for n in (1, 3, 3, 6, 9, 12, 2, 7)]
    tokens = torch.full((len(rows), 14), PAD)
    for row, words in zip(tokens, rows):
        row[: len(words) + 2] = torch.cat((torch.tensor([0]), words, torch.tensor([EOS])))
    languages = torch.tensor([[number % 2] for number in range(len(rows))])
    starts = dictionary.first_language + 1 - languages
    allowed = torch.from_numpy(dictionary.is_piece) | (torch.arange(len(dictionary)) == EOS)
    given = {"tokens": tokens, "padding_mask": tokens.eq(PAD), "languages": languages}
    found = model.translate(given, starts, allowed)
    lengths = []
    for row in range(len(rows)):
        one = tokens[row : row + 1, : len(rows[row]) + 2]
        expected, steps = greedy(model, one, languages[row], starts[row], allowed)
        assert found[row][found[row] != PAD].tolist() == expected
        lengths.append((len(expected), steps))
    assert len({length for length, _ in lengths}) > 2
    assert any(length == limit for length, limit in lengths) and any(length < limit for length, limit in lengths)


def greedy(model, source, language, start, allowed):
    """fairseq's generator with a beam of 1 on a single source: the translation, and its maximum length."""
    dictionary, limit = model.decoder.dictionary, int(1.3 * source.size(1)) + 5
    banned = torch.nonzero(~allowed)[:, 0].tolist()
    generator = SequenceGenerator(
        [model], dictionary, beam_size=1, eos=EOS, max_len_a=0, max_len_b=limit - 1, symbols_to_strip_from_output=set()
    )
    step = generator.model.forward_decoder

    def without_banned(*arguments, **more):
        log_probabilities, *rest = step(*arguments, **more)
        log_probabilities[:, banned] = float("-inf")
        return (log_probabilities, *rest)

    generator.model.forward_decoder = without_banned
    given = {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)]), "src_languages": language}
    ((best, *_),) = generator.generate([model], {"net_input": given}, bos_token=int(start))
    return best["tokens"].tolist(), limit


def test_a_translation_does_not_depend_on_the_batch(dictionary, batch, monkeypatch):
    model, encode, gradients = make(dictionary).train(), SourceEncoder.encode, []

    def recorded(*arguments, **more):
        gradients.append(torch.is_grad_enabled())
        return encode(*arguments, **more)

    monkeypatch.setattr(SourceEncoder, "encode", recorded)
    allowed = torch.from_numpy(dictionary.is_piece) | (torch.arange(len(dictionary)) == EOS)
    starts = torch.full((2, 1), dictionary.language_symbol("de"))
    together = model.translate(batch, starts, allowed)
    assert gradients == [False] and model.training
    for row, length in enumerate((5, 3)):
        one = {name: value[row : row + 1] for name, value in batch.items()} | {"padding_mask": None}
        one["tokens"] = one["tokens"][:, :length]
        alone = model.translate(one, starts[:1], allowed)[0].tolist()
        assert together[row].tolist()[: len(alone)] == alone and (together[row, len(alone) :] == PAD).all()


def test_a_translation_ends_at_the_models_positions(dictionary, batch):
    model = make(dictionary, max_positions=6).eval()
    only = torch.arange(len(dictionary)) == 7  # never </s>
    starts = torch.full((2, 1), dictionary.language_symbol("de"))
    assert model.translate(batch, starts, only).tolist() == [[7, 7, 7, 7, EOS]] * 2
