"""xDAE (G4): literal batches, which noise is applied to what, and the loss step by step."""

import numpy as np
import pytest
import torch
from tiny_data import write_dictionary, write_items
from tiny_models import SIZES, randomized

from fairseq_xl.data.corpora.mixed_corpus import MixedCorpus
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import Framing, pad_rows
from fairseq_xl.data.noise.text_noise import dropped, infilled, masked, shuffled, split_into_words
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.models.model_options import DenoisingConfig
from fairseq_xl.objectives import build_objectives
from fairseq_xl.objectives.xdae import NOISES

BOS, PAD, EOS, MASK, DE, EN = 0, 1, 2, 20, 21, 22
CLEAN = "xdae.infill_prob=0"


@pytest.fixture
def model(dictionary):
    torch.manual_seed(1)
    return randomized(XLDenoisingModel(DenoisingConfig(encoder_layers=2, decoder_layers=1, **SIZES), dictionary))


@pytest.fixture
def words(tmp_path):
    """A dictionary of words that begin with 4 … 9 and continue with 10 … 15, <mask> 16, [en] 17, [th] 18, [zh] 19."""
    pieces = {f"{'▁' if number < 6 else ''}p{number}": 1 for number in range(12)}
    return XLDictionary.load(write_dictionary(tmp_path / "words.txt", pieces, ["en", "th", "zh"]))


def of_words(words, options):
    return build_objectives("xdae", options, words, Framing.of("xl", words))["xdae"]


def test_batch(build, stream, spec):
    """Blocks 5 6 7 2, 8 9 2 10 and 12 2; every target ends with </s>, which is added to the second."""
    batch = build("xdae", f"xdae.length=6 {CLEAN}").collate(spec([1, 5, 10]), stream)
    assert batch["target"].tolist() == [[5, 6, 7, EOS, PAD], [8, 9, EOS, 10, EOS], [12, EOS, PAD, PAD, PAD]]
    assert batch["prev_output_tokens"].tolist() == [[EN, 5, 6, 7, EOS], [EN, 8, 9, EOS, 10], [EN, 12, EOS, PAD, PAD]]
    assert batch["tokens"].tolist() == [
        [BOS, 5, 6, 7, EOS, PAD],
        [BOS, 8, 9, EOS, 10, EOS],
        [BOS, 12, EOS, PAD, PAD, PAD],
    ]
    assert torch.equal(batch["padding_mask"], batch["tokens"].eq(PAD))
    assert batch["languages"].tolist() == [[1], [1], [1]]


def test_no_padding_mask_without_padding(build, stream, spec):
    assert build("xdae", f"xdae.length=6 {CLEAN}").collate(spec([1]), stream)["padding_mask"] is None


def test_nothing_is_longer_than_it_may_be(build, tmp_path, spec):
    stream = TokenStream(write_items(tmp_path / "long", [[4 + n % 16 for n in range(3000)] + [EOS]]), "en")
    objective = build("xdae", "xdae.length=12 xdae.infill_prob=0.9 xdae.span_length=0.1")
    assert objective.input_length == (10, 2, 12)
    batch = objective.collate(spec(range(0, 3000, 10)), stream)
    assert batch["tokens"].shape[1] <= 12 and batch["target"].shape[1] == 11
    assert batch["tokens"].eq(MASK).any()


def test_the_default_is_infilling_of_three_tenths(build, stream, spec):
    """The block 4 5 6 7 2 8 9 2 10 11 12 2 has 9 pieces: 2.7 of them are masked on average."""
    batch = build("xdae").collate(spec([0] * 2000, np.random.default_rng(1).integers(2**63, size=2000)), stream)
    pieces = ((batch["tokens"] > 3) & (batch["tokens"] != MASK)).sum(1)
    assert set(pieces.tolist()) == {6, 7} and pieces.double().mean().item() == pytest.approx(6.3, abs=0.05)
    assert batch["tokens"].eq(EOS).sum(1).tolist() == [3] * 2000
    clean = [4, 5, 6, 7, EOS, 8, 9, EOS, 10, 11, 12, EOS]
    assert batch["target"].tolist() == [clean] * 2000


APPLIED = {
    "shuffle": lambda text, keys: shuffled(text, keys, 5.0),
    "drop": lambda text, keys: dropped(text, keys, 0.2, PAD),
    "mask": lambda text, keys: masked(text, keys, 0.4, 16, PAD),
}
SETTINGS = "xdae.shuffle_distance=5 xdae.drop_prob=0.2 xdae.word_mask_prob=0.4 xdae.infill_prob=0.5 xdae.span_length=2 "


@pytest.mark.parametrize("noise", ["shuffle", "drop", "mask", "infill", "mask+drop+shuffle", "+".join(NOISES)])
def test_any_combination_of_noise(words, noise):
    """Kinds are applied in the order of G4, whatever their order in the option, each with its own settings."""
    rng = np.random.default_rng(3)
    rows = [[BOS, *rng.choice([4, 5, 6, 10, 11, 12], size=size), EOS] for size in (40, 25, 3)]
    tokens, keys = pad_rows(rows, PAD), rng.integers(2**64, size=3, dtype=np.uint64)
    begins = np.isin(np.arange(20), np.arange(4, 10))
    text = split_into_words(tokens, words.is_piece, begins, np.zeros(20, dtype=bool), np.zeros(3, dtype=bool))
    for kind, apply in APPLIED.items():
        if kind in noise.split("+"):
            text = apply(text, keys)
    expected = text.tokens
    if "infill" in noise:
        expected = infilled(expected, words.is_piece[expected] | (expected == 16), keys, 0.5, 2.0, 16, PAD)
    found = of_words(words, f"{SETTINGS} xdae.noise={noise}").corrupted(tokens, keys, ["en"] * 3)
    assert found.tolist() == expected.tolist() != tokens.tolist()


def test_in_chinese_and_thai_a_piece_is_a_word(words):
    objective = of_words(words, "xdae.noise=mask xdae.word_mask_prob=1")
    codes, rows = ["en", "zh", "th", "zh_CN"], np.array([[BOS, 4, 10, 11, EOS]] * 4)
    found = objective.corrupted(rows, np.arange(4, dtype=np.uint64), codes)
    assert found.tolist() == [[BOS, 16, EOS, PAD, PAD], *[[BOS, 16, 16, 16, EOS]] * 3]


@pytest.mark.parametrize(
    "code, pieces, last",
    [
        ("en", ["th@@", "ho@@", "e", "use", "a", "▁"], (5, 4, 7)),  # the last piece is a rare character
        ("zh", ["th@@", "ho@@", "e", "use", "a", "▁"], (5, 4, 7)),
        ("en", ["th", "ho", "##e", "##use", "a", "▁"], (5, 6, 7)),
    ],
)
def test_words_of_bpe_are_moved_dropped_and_masked_whole(tmp_path, code, pieces, last):
    """Pieces 4@@ 5@@ continue, 6 … 9 end a word; in Chinese too, whose words BPE's text separates by blanks.

    Of WordPiece ##6 and ##7 continue a word.
    """
    bpe = XLDictionary.load(write_dictionary(tmp_path / "bpe.txt", dict.fromkeys(pieces, 1), ["en", "zh"]))
    rows = np.array([[BOS, 4, 6, 8, *last, EOS]] * 200)
    keys = np.random.default_rng(1).integers(2**64, size=200, dtype=np.uint64)
    words, mask = [(4, 6), (8,), last], (bpe.mask_index,)

    def found(options):
        """The rows as sorted words."""
        build_noise = build_objectives("xdae", options, bpe, Framing.of("xl", bpe))["xdae"]
        for row in build_noise.corrupted(rows, keys, [code] * 200).tolist():
            left, rest = [], row[1 : row.index(EOS)]
            while rest:
                left.append(next(word for word in [*words, mask] if tuple(rest[: len(word)]) == word))
                rest = rest[len(left[-1]) :]
            yield left

    shuffled_rows = list(found("xdae.noise=shuffle"))
    assert all(sorted(row) == sorted(words) for row in shuffled_rows) and len(set(map(tuple, shuffled_rows))) == 6
    assert {len(row) for row in found("xdae.noise=drop xdae.drop_prob=0.5")} == {1, 2, 3}
    assert {row.count(mask) for row in found("xdae.noise=mask xdae.word_mask_prob=0.5")} == {1, 2}


def test_a_batch_may_mix_languages(words, tmp_path, spec):
    sources = {code: TokenStream(write_items(tmp_path / code, [[4, 10, 11, EOS]]), code) for code in ("en", "zh")}
    mixed = MixedCorpus(sources, 0.3)
    examples = mixed.sample(np.random.default_rng(1), 6, 4)[0]
    batch = of_words(words, "xdae.mixed=true xdae.noise=mask xdae.word_mask_prob=1").collate(spec(examples), mixed)
    chinese = batch["languages"][:, 0] == 2
    assert set(batch["languages"].flatten().tolist()) == {0, 2}
    assert batch["prev_output_tokens"][:, 0].tolist() == [19 if zh else 17 for zh in chinese]
    assert batch["tokens"].eq(16).sum(1).tolist() == [3 if zh else 1 for zh in chinese]


def test_loss_step_by_step(build, stream, spec, model):
    """- sum over t of log p(x_t | x_<t, c(X)), each step on its own, without padding."""
    objective = build("xdae", "xdae.length=8")
    batch = objective.collate(spec([0, 10]), stream)
    expected, count = 0.0, 0
    for row in range(2):
        source = batch["tokens"][row][batch["tokens"][row].ne(PAD)][None]
        target = batch["target"][row][batch["target"][row].ne(PAD)]
        encoder_out = model.encoder(source, None, torch.tensor([1]))
        known = [EN]
        for token in target.tolist():
            logits, _ = model.decoder(torch.tensor([known]), encoder_out)
            expected -= logits[0, -1].log_softmax(-1)[token].item()
            known.append(token)
            count += 1
    terms = model(objective.loss, batch)
    assert list(terms) == ["xdae"] == list(objective.terms)
    assert terms["xdae"].count == count == 9 and terms["xdae"].weight == 1.0
    assert terms["xdae"].sum.item() == pytest.approx(expected, rel=1e-6)


def test_a_batch_is_the_sum_of_its_examples(build, stream, spec, check_sums):
    keys = [3, 4, 5]
    one_by_one = [spec([start], [key]) for start, key in zip((0, 4, 10), keys)]
    check_sums(build("xdae", "xdae.length=7"), stream, spec([0, 4, 10], keys), one_by_one)


@pytest.mark.parametrize(
    "setting",
    (
        "noise=infilling noise=shuffle+shuffle noise=drop+ drop_prob=1.5 word_mask_prob=-1 infill_prob=2 "
        "shuffle_distance=-1 span_length=0 length=2 span_length=1000000000.0 span_length=nan "
        "span_length=inf shuffle_distance=513.0"
    ).split(),
)
def test_settings_out_of_range(build, setting):
    with pytest.raises(UserError, match=f"--objective-options: xdae.{setting}".replace("+", r"\+")):
        build("xdae", f"xdae.{setting}")


def test_papers_values(build):
    cfg = build("xdae").cfg
    assert (cfg.noise, cfg.length, cfg.alpha, cfg.shuffle_distance) == ("infill", 512, 0.3, 3.0)
    assert (cfg.drop_prob, cfg.word_mask_prob, cfg.infill_prob, cfg.span_length) == (0.1, 0.1, 0.3, 3.0)


def test_words_need_a_dictionary_that_says_where_they_begin(build, stream, words):
    build("xdae").check(stream)
    with pytest.raises(UserError, match=r"xdae.noise=drop\+infill needs words, and no piece of the dictionary begins"):
        build("xdae", "xdae.noise=drop+infill").check(stream)
    of_words(words, "xdae.noise=drop+infill").check(stream)
