"""Beam search with shared keys against fairseq's generator over decoders without caches."""

import copy
import math

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models.beams import BeamCaches
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.generator import XLSequenceGenerator
from fairseq_xl.models.model_options import EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from fairseq_xl.modules.attention import CrossAttention
from tests.devices import DEVICES, moved
from tests.waits import Waits

PAD, EOS, PIECES = 1, 2, 60
SIZES = dict(embed_dim=16, ffn_dim=32, heads=2, encoder_layers=2, decoder_layers=2, max_positions=50)
STREAMS = dict(relative_buckets=8, relative_distance=12)
SENTENCES = 6


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory):
    path = tmp_path_factory.mktemp("generator") / "dict.txt"
    path.write_text("\n".join([*(f"p{i} 1" for i in range(PIECES)), "<mask> 0", "[de] 0", "[en] 0"]) + "\n")
    return XLDictionary.load(path)


def make(dictionary, seed=0, streams=False, ends=0, **options):
    """A model with outputs far from uniform; the more `ends`, the shorter they are."""
    torch.manual_seed(seed)
    cfg = NgramDecoderConfig(**SIZES | STREAMS | options) if streams else EncoderDecoderConfig(**SIZES | options)
    model = (XLNgramDecoderModel if streams else XLEncoderDecoderModel)(cfg, dictionary).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    for module in (model.encoder, model.decoder):
        if getattr(module, "token_embeddings", None) is not None and module.token_embeddings.output_bias is not None:
            module.token_embeddings.output_bias.data[EOS] += ends
    return model


def sample(seed=0, padded=True):
    """Sources of 3 to 9 tokens."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 4 + PIECES, (SENTENCES, 9), generator=draw)
    lengths = torch.randint(3, 10, (SENTENCES,), generator=draw) if padded else torch.full((SENTENCES,), 9)
    tokens[torch.arange(9) >= lengths[:, None]] = PAD
    languages = torch.arange(SENTENCES) % 2
    return {"net_input": {"src_tokens": tokens, "src_lengths": lengths, "src_languages": languages}}


def uncached(model):
    """Makes the decoder compute the whole prefix at each step."""
    forward = model.decoder.forward

    def whole(tokens, encoder_out=None, incremental_state=None):
        logits, attention = forward(tokens, encoder_out)
        return logits[:, -1:], attention

    model.decoder.forward = whole


class NoRepetition(nn.Module):
    """Forbids n-grams to repeat; fairseq's compares its padded buffer, in which it finds no repetition."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, tokens, lprobs, bsz, beam_size, step):
        for row, scores in zip(tokens[:, 1 : step + 1].tolist(), lprobs, strict=True):
            ngrams = [row[first : first + self.size] for first in range(len(row) - self.size + 1)]
            last = row[len(row) - self.size + 1 :]
            scores[[ngram[-1] for ngram in ngrams if ngram[:-1] == last]] = -math.inf
        return lprobs


def both(models, dictionary, batch, strategy=None, prefix=None, **options):
    """Hypotheses of our generator, and of fairseq's without caches; with the same random numbers."""
    start, found = dictionary.language_symbol("en"), []
    for generator in (XLSequenceGenerator, SequenceGenerator):
        if generator is SequenceGenerator:
            for model in models:
                uncached(model)
        torch.manual_seed(1)
        given = {"search_strategy": strategy(dictionary)} if strategy else {}
        made = generator(models, dictionary, **given, **options)
        if generator is SequenceGenerator and made.repeat_ngram_blocker is not None:
            made.repeat_ngram_blocker = NoRepetition(options["no_repeat_ngram_size"])
        found.append(made.generate(models, batch, prefix_tokens=prefix, bos_token=start))
    return found


def assert_same(ours, theirs, error=1e-5):
    """Equal tokens, scores to `error`; returns the lengths."""
    assert len(ours) == len(theirs) == SENTENCES
    for one, other in zip(ours, theirs):
        assert [each["tokens"].tolist() for each in one] == [each["tokens"].tolist() for each in other]
        for left, right in zip(one, other):
            assert left.keys() == right.keys() and not left["tokens"].is_inference()
            for name in ("score", "positional_scores", "attention"):
                torch.testing.assert_close(left[name], right[name], atol=error, rtol=error)
    return {len(each["tokens"]) for beam in ours for each in beam}


@pytest.mark.parametrize(  # either decoder with each beam, each length with either decoder
    "streams, beam, ends, longest, padded",
    [
        (False, 1, 4, 20, False),
        (False, 2, 6, 45, True),
        (False, 5, 2, 12, True),
        (True, 1, 6, 12, True),
        (True, 2, 6, 20, False),
        (True, 5, 2, 45, True),
    ],
)
def test_it_finds_what_fairseq_does_without_caches(dictionary, streams, beam, ends, longest, padded):
    """Sentences end one after the other, some of them late, when the room for keys has grown."""
    languages = "added" if beam == 2 else "none"
    model = make(dictionary, beam, streams, ends, language_embeddings=languages)
    lengths = assert_same(*both([model], dictionary, sample(beam, padded), beam_size=beam, max_len_b=longest))
    assert len(lengths) > 1 and (longest == 12 or max(lengths) == longest + 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("streams", [False, True])
def test_in_32_bits_it_finds_the_same_on_every_device(dictionary, streams, device):
    """fairseq's generator without caches on the same device."""
    model = make(dictionary, 5, streams, 2).to(device)
    assert len(assert_same(*both([model], dictionary, moved(sample(5), device), beam_size=5, max_len_b=20), 1e-4)) > 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, padded", [(torch.bfloat16, True), (torch.float16, False)])
def test_scores_in_16_bits_are_those_in_32(dictionary, padded, dtype, device):
    """Masks and caches in 16 bits, against fairseq's generator with the same weights in 32 bits on CPU.

    Smaller weights than elsewhere make smaller logits, which bfloat16 rounds to 0.4 %.
    """
    model, batch = make(dictionary, 5, ends=2), sample(5, padded)
    for parameter in model.parameters():
        parameter.data = (parameter / 2).to(dtype).float()
    start, options = dictionary.language_symbol("en"), dict(beam_size=5, max_len_b=20)
    exact = copy.deepcopy(model)
    uncached(exact)
    expected = SequenceGenerator([exact], dictionary, **options).generate([exact], batch, bos_token=start)
    made = XLSequenceGenerator([model.to(device, dtype)], dictionary, **options)
    found = made.generate([model], moved(batch, device), bos_token=start)

    def scores(beams):
        return [{tuple(each["tokens"].tolist()): each["score"].item() for each in beam} for beam in beams]

    for ours, theirs in zip(scores(found), scores(expected), strict=True):
        shared = ours.keys() & theirs.keys()
        assert len(ours) == 5 and len(shared) >= 2  # rounding changes the choice between equally good ones
        assert max(ours.values()) == pytest.approx(max(theirs.values()), rel=1e-2)
        assert [ours[each] for each in shared] == pytest.approx([theirs[each] for each in shared], rel=1e-2)


@pytest.mark.parametrize(
    "options",
    [
        dict(normalize_scores=False),
        dict(len_penalty=0.3, min_len=3),
        dict(unk_penalty=2.0, temperature=0.7),
        dict(no_repeat_ngram_size=1),
        dict(no_repeat_ngram_size=2),
        dict(tokens_to_suppress=("p3", "p7")),
    ],
)
def test_every_option_counts(dictionary, options):
    model = make(dictionary, 4, ends=2)
    assert_same(*both([model], dictionary, sample(2), **dict(beam_size=4, max_len_b=14) | options))


@pytest.mark.parametrize(
    "options, prefix",
    [
        (dict(max_len_a=1, max_len_b=1), False),
        (dict(max_len_a=0.5, max_len_b=1, min_len=2), True),
        (dict(match_source_len=True), False),
    ],
)
def test_the_limit_is_that_of_the_sentence_alone(dictionary, options, prefix):
    """fairseq, one sentence at a time; in a batch it takes the longest source."""
    model, batch = make(dictionary, 4), sample(2)["net_input"]
    prefix = torch.tensor([[5, 9, 7], [7, PAD, PAD], [8, 8, 8]] * (SENTENCES // 3)) if prefix else None
    start, options = dictionary.language_symbol("en"), dict(beam_size=4) | options
    made = XLSequenceGenerator([model], dictionary, **options)
    ours = made.generate([model], {"net_input": batch}, prefix_tokens=prefix, bos_token=start)
    uncached(model)
    made, lengths = SequenceGenerator([model], dictionary, **options), batch["src_lengths"].tolist()
    for row, (beam, length) in enumerate(zip(ours, lengths, strict=True)):
        alone = {name: rows[row : row + 1] for name, rows in batch.items()}
        alone["src_tokens"] = alone["src_tokens"][:, :length]
        chosen = None if prefix is None else prefix[row : row + 1]
        (expected,) = made.generate([model], {"net_input": alone}, prefix_tokens=chosen, bos_token=start)
        assert [each["tokens"].tolist() for each in beam] == [each["tokens"].tolist() for each in expected]
        scores = [each["score"].item() for each in expected]
        assert [each["score"].item() for each in beam] == pytest.approx(scores, rel=1e-5)
    assert len({len(beam[0]["tokens"]) for beam in ours}) > 2  # the limits differ, and are reached


@pytest.mark.parametrize(
    "strategy, options",
    [
        (search.Sampling, {}),
        (lambda dictionary: search.Sampling(dictionary, sampling_topk=5), {}),
        (lambda dictionary: search.Sampling(dictionary, sampling_topp=0.9), {}),
        (lambda dictionary: search.DiverseSiblingsSearch(dictionary, 0.3), {}),
        (lambda dictionary: search.DiverseBeamSearch(dictionary, 3, 0.5), {}),
        (lambda dictionary: search.LengthConstrainedBeamSearch(dictionary, 1, 0, 1, 0), {"match_source_len": True}),
        (
            lambda dictionary: search.PrefixConstrainedBeamSearch(
                dictionary, lambda row, tokens: [EOS, 5 + row, 20 + len(tokens)]
            ),
            {},
        ),
    ],
)
def test_every_search_strategy(dictionary, strategy, options):
    """Sampling draws the same numbers, since finished sentences leave the batch at the same step."""
    model = make(dictionary, 5, ends=2)
    assert_same(*both([model], dictionary, sample(3), strategy, beam_size=3, max_len_b=12, **options))


def test_an_ensemble_and_prefixes(dictionary):
    models = [make(dictionary, 6, ends=2), make(dictionary, 7, streams=True, ends=2)]
    prefix = torch.tensor([[5, 9], [7, PAD], [8, 8], [6, 20], [PAD, PAD], [11, 30]])
    ours, theirs = both(models, dictionary, sample(4), prefix=prefix, beam_size=3, max_len_b=12)
    assert_same(ours, theirs)
    assert [beam[0]["tokens"][:2].tolist() for beam in ours][::2][:2] == [[5, 9], [8, 8]]


def test_a_prefix_may_repeat_itself(dictionary):
    model, start = make(dictionary, 6, ends=2), dictionary.language_symbol("en")
    made = XLSequenceGenerator([model], dictionary, beam_size=3, max_len_b=12, no_repeat_ngram_size=1)
    prefix = torch.tensor([[8, 8, 9], [PAD, PAD, PAD]] * (SENTENCES // 2))
    for row, beam in enumerate(made.generate([model], sample(4), prefix_tokens=prefix, bos_token=start)):
        for tokens in (each["tokens"].tolist() for each in beam):
            assert row % 2 or tokens[:3] == [8, 8, 9]
            assert len(set(tokens)) == len(tokens) - (row % 2 == 0)


def test_attention_of_the_last_layer(dictionary):
    model = make(dictionary, 8, ends=2)
    model.decoder.keep_attention()
    batch = sample(5)
    ours, theirs = both([model], dictionary, batch, beam_size=3, max_len_b=12)
    assert_same(ours, theirs)
    for beam, padding in zip(ours, batch["net_input"]["src_tokens"].eq(PAD)):
        assert beam[0]["attention"].shape == (9, len(beam[0]["tokens"]))
        assert not beam[0]["attention"][padding].any()


def test_constraints_are_fulfilled(dictionary):
    constraints = torch.zeros(SENTENCES, 3, dtype=torch.long)
    constraints[:, 0], constraints[:, 1] = 1, torch.arange(10, 10 + SENTENCES)
    model, options = make(dictionary, 9, ends=2), dict(beam_size=4, max_len_b=10)
    made = XLSequenceGenerator(
        [model], dictionary, search_strategy=search.LexicallyConstrainedBeamSearch(dictionary, "ordered"), **options
    )
    start = dictionary.language_symbol("en")
    for row, beam in enumerate(made.generate([model], sample(), constraints=constraints, bos_token=start)):
        assert 10 + row in beam[0]["tokens"].tolist()
    with pytest.raises(NotImplementedError, match="does not support"):
        XLSequenceGenerator([model], dictionary, **options).generate([model], sample(), constraints=constraints)


def test_a_minimum_above_the_maximum(dictionary):
    made = XLSequenceGenerator([make(dictionary)], dictionary, min_len=9, max_len_b=5)
    with pytest.raises(UserError, match="--min-len 9 is larger than the maximum output length 5"):
        made.generate(made.model.models, sample(), bos_token=dictionary.language_symbol("en"))


@torch.no_grad()
def test_no_position_after_the_last(dictionary):
    model = make(dictionary, max_positions=10)
    encoder_out = model.encoder(sample()["net_input"]["src_tokens"], src_languages=torch.arange(SENTENCES) % 2)
    tokens = torch.full((SENTENCES, 1), dictionary.language_symbol("en"))
    caches = model.decoder.begin(encoder_out, tokens, 1, 12)
    for _ in range(10):
        model.decoder.next_features(tokens, caches)
    with pytest.raises(UserError, match="A sequence of 11 tokens is longer than --max-positions 10"):
        model.decoder.next_features(tokens, caches)


# What it costs


def test_keys_of_the_source_are_computed_once_per_sentence(dictionary, monkeypatch):
    calls, keys_and_values = [], CrossAttention.keys_and_values

    def counted(self, memory):
        calls.append(memory.shape)
        return keys_and_values(self, memory)

    monkeypatch.setattr(CrossAttention, "keys_and_values", counted)
    model = make(dictionary)
    made = XLSequenceGenerator([model], dictionary, beam_size=5, max_len_b=12)
    made.generate([model], sample(), bos_token=dictionary.language_symbol("en"))
    assert calls == [(SENTENCES, 9, 16)] * 2  # one for each layer, and none for each hypothesis


@torch.no_grad()
def test_layout_choosing_hypotheses_copies_no_keys(dictionary):
    """The layout of caches: a buffer that stays where it is, while room is left and no sentence is finished."""
    model = make(dictionary)
    encoder_out = model.encoder(sample()["net_input"]["src_tokens"], src_languages=torch.arange(SENTENCES) % 2)
    starts = torch.full((SENTENCES, 1), dictionary.language_symbol("en"))
    caches = model.decoder.begin(encoder_out, starts, 3, 40)
    places, rows = set(), []
    for step in range(40):
        model.decoder.next_features(torch.full((SENTENCES, 3), 5 + step), caches)
        places.add((caches.past.data_ptr(), tuple(caches.past.shape)))
        memory = caches.memory.data_ptr()
        rows.append(caches.past[..., 3 * step : 3 * step + 3, :].clone())
        caches.select(torch.randint(3, (SENTENCES, 3)).add(torch.arange(SENTENCES)[:, None] * 3).view(-1))
        assert caches.memory.data_ptr() == memory
    assert sorted(shape for _, shape in places) == [(2, 2, SENTENCES, 2, 3 * 32, 8), (2, 2, SENTENCES, 2, 3 * 40, 8)]
    assert torch.equal(caches.past, torch.cat(rows, dim=4))


@torch.no_grad()
def test_the_mask_follows_the_choices(dictionary):
    """By hand: hypotheses 0 1 2 -> 2 2 0 -> 0 1 1; the keys of a step belong to who wrote them, and its heirs."""
    model = make(dictionary)
    net_input = sample()["net_input"]
    encoder_out = model.encoder(net_input["src_tokens"][:1], src_languages=torch.tensor([0]))
    caches = BeamCaches(model.decoder.layers, encoder_out, None, 3, 9)
    for choice in ([2, 2, 0], [0, 1, 1]):
        caches.advance()
        caches.select(torch.tensor(choice))
    caches.advance()
    seen = caches.history_mask()[0, 0].eq(0).int().tolist()
    assert seen == [[0, 0, 1, 1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 1, 0, 0, 0, 1]]


@pytest.mark.parametrize("ends", [0, 4])
def test_sync_of_a_step_is_one_read(dictionary, monkeypatch, ends):
    """A step of the search reads which candidates have ended; the scores of all hypotheses are read at the end."""
    model, steps = make(dictionary, 5, ends=ends), []
    through_layers, start = model.decoder.through_layers, dictionary.language_symbol("en")
    made, batch = XLSequenceGenerator([model], dictionary, beam_size=3, max_len_b=12), sample(3)
    encoder_out = made.model.forward_encoder(batch["net_input"])  # the encoder reads whether there is padding
    caches = model.decoder.begin(encoder_out[0], torch.full((SENTENCES, 1), start), 3, 13)  # and begin the languages
    monkeypatch.setattr(made.model, "forward_encoder", lambda net_input: encoder_out)
    monkeypatch.setattr(model.decoder, "begin", lambda *arguments: caches)

    def stepping(*arguments, **named):
        steps.append(None)
        return through_layers(*arguments, **named)

    monkeypatch.setattr(model.decoder, "through_layers", stepping)
    with Waits() as waits:
        found = made.generate([model], batch, bos_token=start)
    monkeypatch.undo()
    assert len(found) == SENTENCES and len(steps) > 5
    reads = {where.split(" at ")[0]: times for where, times in waits.found.items()}
    assert len(reads) == len(waits.found) - 1  # each at one line, but tolist
    # tolist: all scores, and the order of those of each sentence, on the host
    assert reads == {"cpu": len(steps), "numpy": len(steps), "tolist": SENTENCES}
