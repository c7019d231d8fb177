"""Translation of raw text between languages that share no piece."""

import shutil

import pytest

import fairseq_xl
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from tests.command_line import cli
from tests.commands import run_interactive, run_train, unsupervised
from tests.preprocess.builders import joined, parts  # noqa: F401  fixtures


@pytest.fixture(scope="module")
def checkpoint(joined, tmp_path_factory):
    """A model of both directions after a few updates."""
    folder = tmp_path_factory.mktemp("translator")
    more = cli(langs="en,de", max_update=24, disable_validation=True, lr=0.02)
    run_train(unsupervised(joined, folder, *more))
    return folder / "checkpoint_last.pt"


def line(data, checkpoint, source, target, *more):
    """A command line of fairseq-interactive."""
    options = cli(task="xl_translation", path=checkpoint, user_dir="fairseq_xl", beam=2, max_len_b=9)
    return [data, *options, *cli(s=source, t=target), *more]


SUBWORDS = ["--bpe", "xl_subwords"]


@pytest.mark.parametrize("source, target", [("en", "de"), ("de", "en")])
def test_each_language_has_its_subwords(parts, joined, checkpoint, source, target):
    """fairseq-interactive reads raw text as `TextEncoder` does; no text has a suffix, and raw pieces keep theirs."""
    lines = (parts / f"valid.{source}").read_text(encoding="utf-8").splitlines()
    texts = [" ".join(text.split()[:4]) for text in lines if text]
    dictionary = XLDictionary.load(joined / "dict.txt")
    encode = TextEncoder(joined, dictionary)
    arguments = line(joined, checkpoint, source, target, *SUBWORDS)
    output = run_interactive(arguments, texts)
    sources, pieces, found = (output.lines(kind) for kind in "SHD")
    hub = fairseq_xl.load(checkpoint, joined)
    translations = hub.translate(texts, source, target, beam=2, max_len_b=9)
    for number, text in enumerate(texts):
        read = sources[number][0].removeprefix("<s> ").split(" ")
        assert [dictionary.index(piece) for piece in read] == encode(text, source).tolist()[:-1]
        assert any(piece.endswith(f"@{source}") for piece in read)
        assert "@" in pieces[number][0] and "@" not in found[number][0]
        assert found[number][0].partition("\t")[2] == translations[number]
    assert any(translations)
    assert run_interactive([*arguments, "--remove-bpe", "sentencepiece"], texts).lines("D") == found


def test_what_is_refused(joined, checkpoint, tmp_path):
    model = joined / "en" / "sentencepiece.model"
    with pytest.raises(UserError, match="--bpe sentencepiece: the languages of .* share no piece: give --bpe xl_subw"):
        run_interactive(
            line(joined, checkpoint, "en", "de", *cli(bpe="sentencepiece", sentencepiece_model=model)), ["Linux"]
        )
    outputs = [run_interactive(line(joined, checkpoint, "en", "de", *bpe), ["Linux linux"]) for bpe in ([], SUBWORDS)]
    assert outputs[0].lines("S") == outputs[1].lines("S")
    shutil.copytree(joined, tmp_path / "data")
    (tmp_path / "data" / "en" / "sentencepiece.model").unlink()
    with pytest.raises(UserError, match="en/sentencepiece.model: no such SentencePiece model"):
        run_interactive(line(tmp_path / "data", checkpoint, "en", "de", *SUBWORDS), ["Linux"])
