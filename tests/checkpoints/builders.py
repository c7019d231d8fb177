"""Small SentencePiece models."""

import io
import random

import pytest
import sentencepiece

from fairseq_xl.checkpoints.sentencepiece_surgery import read_model

SYLLABLES = "ba da ga ka la ma na pa ra sa ta wa".split()
BYTES = {"byte_fallback": True}
KINDS = {"unigram": {}, "bpe": {}, "unigram with bytes": BYTES, "bpe with bytes": BYTES}


def words(syllables, count, seed):
    rng = random.Random(seed)
    return ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(count)]


def lines(syllables, seed, count=300):
    """Lines of few words, some more frequent than others."""
    rng, known = random.Random(seed), words(syllables, 60, "known")
    return [" ".join(rng.choices(known, range(60, 0, -1), k=rng.randint(1, 6))) for _ in range(count)]


def train(path, text, **options):
    model = io.BytesIO()
    defaults = dict(vocab_size=150, hard_vocab_limit=False, minloglevel=2, num_threads=1, character_coverage=1.0)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **(defaults | options))
    path.write_bytes(model.getvalue())
    return path


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    """A model of text in two made-up languages; the first has half of the syllables."""
    size = 150 + 256 * bool(KINDS[request.param])
    options = KINDS[request.param] | {"model_type": request.param.split()[0], "vocab_size": size}
    text = lines(SYLLABLES[:6], "one") + lines(SYLLABLES, "two")
    return read_model(train(tmp_path_factory.mktemp("models") / "m", text, user_defined_symbols=["<u>"], **options))
