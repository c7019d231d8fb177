"""The encoder-decoder under fairseq's criterion and beam search."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderDecoderConfig

PAD, EOS = 1, 2
SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD], [11, 4, 6, EOS, PAD]])
LANGUAGES = torch.tensor([0, 1, 0])


def make(dictionary, **options):
    torch.manual_seed(0)
    sizes = dict(embed_dim=16, ffn_dim=32, heads=2, encoder_layers=2, decoder_layers=2, max_positions=12)
    model = XLEncoderDecoderModel(EncoderDecoderConfig(**sizes | options), dictionary).eval()
    for name, parameter in model.named_parameters():  # nothing neutral, and outputs that are far from uniform
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    return model


@pytest.fixture
def target(dictionary):
    de, en = dictionary.language_symbol("de"), dictionary.language_symbol("en")
    return torch.tensor([[en, 5, 9, 4, 7], [de, 8, 6, PAD, PAD], [en, 12, 4, 4, PAD]])


@pytest.mark.parametrize("share", [False, True])
def test_steps_with_caches_equal_the_full_forward(dictionary, target, share):
    model = make(dictionary, share_embeddings=share)
    expected, _ = model(SOURCE, None, target, LANGUAGES)
    encoder_out, state = model.encoder(SOURCE, None, LANGUAGES), {}
    for step in range(target.size(1)):
        found, extra = model.decoder(target[:, : step + 1], encoder_out, state)
        assert found.shape == (3, 1, len(dictionary)) and extra is None
        torch.testing.assert_close(found[:, 0], expected[:, step], atol=1e-5, rtol=0)


def test_caches_and_memory_are_reordered_together(dictionary, target):
    model = make(dictionary)
    encoder_out, state = model.encoder(SOURCE, None, LANGUAGES), {}
    target[:, 0] = target[0, 0]
    for step in range(2):
        model.decoder(target[:, : step + 1], encoder_out, state)
    assert len(state["caches"]) == len(model.decoder.layers)
    order = torch.tensor([2, 0, 0, 1])
    model.decoder.reorder_incremental_state_scripting(state, order)
    found, _ = model.decoder(target[order, :3], model.encoder.reorder_encoder_out(encoder_out, order), state)
    expected, _ = model(SOURCE[order], None, target[order, :3], LANGUAGES[order])
    torch.testing.assert_close(found[:, 0], expected[:, 2], atol=1e-5, rtol=0)


def test_output_does_not_react_to_later_tokens(dictionary, target):
    model = make(dictionary)
    changed = target.clone()
    changed[:, 3:] = 13
    one, other = (model(SOURCE, None, tokens, LANGUAGES)[0] for tokens in (target, changed))
    torch.testing.assert_close(one[:, :3], other[:, :3], atol=1e-5, rtol=0)
    assert (one[:, 3:] - other[:, 3:]).abs().max() > 0.1


def test_padding_and_batch_mates_change_nothing(dictionary, target):
    model = make(dictionary)
    together, _ = model(SOURCE, None, target, LANGUAGES)
    for row, (source, tokens) in enumerate(zip(SOURCE, target)):
        source, tokens = source[source.ne(PAD)][None], tokens[tokens.ne(PAD)][None]
        alone, _ = model(source, None, tokens, LANGUAGES[row : row + 1])
        torch.testing.assert_close(together[row, : tokens.size(1)], alone[0], atol=1e-5, rtol=0)


def test_source_padded_on_the_left_is_the_same_source(dictionary, target):
    model = make(dictionary)
    left = torch.stack([torch.cat([row[row.eq(PAD)], row[row.ne(PAD)]]) for row in SOURCE])
    one, other = (model(source, None, target, LANGUAGES)[0] for source in (SOURCE, left))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_no_padding_mask_without_padding(dictionary):
    model = make(dictionary)
    assert model.encoder(SOURCE[:1], None, LANGUAGES[:1])["encoder_padding_mask"] == []
    assert torch.equal(model.encoder(SOURCE, None, LANGUAGES)["encoder_padding_mask"][0], SOURCE.eq(PAD))


def test_source_and_target_languages_matter(dictionary, target):
    model = make(dictionary)
    expected, _ = model(SOURCE, None, target, LANGUAGES)
    assert (model(SOURCE, None, target, 1 - LANGUAGES)[0] - expected).abs().max() > 0.1
    # the language is added at every position: also seen with the symbol's own embedding equal
    table = model.decoder.token_embeddings.table.weight.data
    table[dictionary.language_symbol("de")] = table[dictionary.language_symbol("en")]
    swapped = target.clone()
    swapped[:, 0] = dictionary.language_symbol("de")
    assert (model(SOURCE, None, swapped, LANGUAGES)[0][0] - expected[0]).abs().max() > 0.1


def test_input_without_a_language_symbol_is_refused(dictionary, target):
    model = make(dictionary)
    target[1, 0] = EOS
    with pytest.raises(UserError, match="language symbol like .en., not with </s>"):
        model(SOURCE, None, target, LANGUAGES)
    with pytest.raises(UserError, match="doesn't say its languages"):
        model.encoder(SOURCE)


def test_model_without_language_embeddings_reads_no_languages(dictionary, target):
    model = make(dictionary, language_embeddings="none")
    target[:, 0] = EOS
    assert model(SOURCE, None, target)[0].shape == (3, 5, len(dictionary))


def test_shared_token_embeddings_is_listed_and_trained_once(dictionary):
    separate, shared = make(dictionary), make(dictionary, share_embeddings=True)
    assert not [name for name in shared.state_dict() if name.startswith("decoder.token_embeddings")]
    assert (
        shared.decoder.embeddings.token_embeddings
        is shared.encoder.token_embeddings
        is shared.decoder.output.token_embeddings
    )
    assert separate.encoder.token_embeddings.output_bias is None
    size = len(dictionary) * 16
    assert sum(p.numel() for p in separate.parameters()) - sum(p.numel() for p in shared.parameters()) == size


def test_fairseqs_criterion_trains_it(dictionary, target):
    model = make(dictionary)
    criterion = LabelSmoothedCrossEntropyCriterion(SimpleNamespace(target_dictionary=dictionary), False, 0.1)
    sample = {
        "net_input": {
            "src_tokens": SOURCE,
            "src_lengths": SOURCE.ne(PAD).sum(1),
            "prev_output_tokens": target,
            "src_languages": LANGUAGES,
        },
        "target": torch.tensor([[5, 9, 4, 7, EOS], [8, 6, EOS, PAD, PAD], [12, 4, 4, EOS, PAD]]),
        "ntokens": 12,
    }
    loss, sample_size, logged = criterion(model, sample)
    loss.backward()
    assert sample_size == 12
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    picked = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True).gather(
        2, sample["target"][..., None]
    )
    expected = -picked[sample["target"].ne(PAD)].sum()
    torch.testing.assert_close(logged["nll_loss"], expected.detach())


def generate(model, dictionary, beam, start, **options):
    generator = SequenceGenerator([model], dictionary, beam_size=beam, eos=EOS, max_len_b=6, **options)
    sample = {"net_input": {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(PAD).sum(1), "src_languages": LANGUAGES}}
    return generator.generate([model], sample, bos_token=start)


def test_wide_beam_finds_the_best_of_all_outputs(dictionary):
    """Every output of one or two pieces, scored by the full forward."""
    model = make(dictionary)
    start = dictionary.language_symbol("en")
    forbidden = [0, PAD]
    symbols = [token for token in range(len(dictionary)) if token not in (*forbidden, EOS)]
    outputs = [list(pieces) for length in (1, 2) for pieces in itertools.product(symbols, repeat=length)]
    previous = torch.tensor([([start, *pieces] + [PAD] * 2)[:3] for pieces in outputs])
    following = torch.tensor([([*pieces, EOS] + [PAD] * 2)[:3] for pieces in outputs])
    for row in range(len(SOURCE)):
        count = len(outputs)
        logits, _ = model(SOURCE[row].expand(count, -1), None, previous, LANGUAGES[row].expand(count))
        # what the generator does: no <pad>, and an end at the latest after two pieces
        log_probs = logits.log_softmax(-1).gather(2, following[..., None])[..., 0] * following.ne(PAD)
        scores = log_probs.sum(1).detach()
        generator = SequenceGenerator(
            [model], dictionary, beam_size=len(dictionary) ** 2, eos=EOS, max_len=2, normalize_scores=False
        )
        sample = {
            "net_input": {
                "src_tokens": SOURCE[row : row + 1],
                "src_lengths": torch.tensor([5]),
                "src_languages": LANGUAGES[row : row + 1],
            }
        }
        hypotheses = generator.generate([model], sample, bos_token=start)[0]
        hypotheses = [h for h in hypotheses if not set(h["tokens"].tolist()) & set(forbidden)]
        best = int(scores.argmax())
        assert hypotheses[0]["tokens"].tolist() == outputs[best] + [EOS]
        torch.testing.assert_close(hypotheses[0]["score"], scores[best], atol=1e-5, rtol=0)


def test_positions(dictionary):
    model = make(dictionary)
    assert model.max_positions() == (12, 12) and model.max_decoder_positions() == 12
