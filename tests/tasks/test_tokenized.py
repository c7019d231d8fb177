"""Commands with raw text and a data folder of tokenized text: the same sub-words everywhere, output without tokens."""

import json
import shutil

import pytest
import sentencepiece

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import Embedder
from tests.commands import run_generate, run_interactive, run_train, translation

RAW, TOKENS = "the house,river (garden).", "the house , river ( garden ) ."


@pytest.fixture(scope="module")
def tokenized(data_bin, tmp_path_factory):
    """A copy of the data folder whose manifest says that English was tokenized."""
    folder = tmp_path_factory.mktemp("tokenized") / "data-bin"
    shutil.copytree(data_bin, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["config"]["tokenizer"] = {"en": "moses"}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(tokenized, tmp_path_factory):
    """A translation model after one update, en-de and de-en."""
    folder = tmp_path_factory.mktemp("translation")
    run_train(translation(tokenized, folder, "--lang-pairs", "en-de,de-en", "--max-update", 1, "--disable-validation"))
    return folder / "checkpoint_last.pt"


def ids(data, text):
    dictionary = XLDictionary.load(data / "dict.txt")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(data / "sentencepiece.model"))
    return [dictionary.index(piece) for piece in pieces.encode(text, out_type=str)]


def test_retrieval_tokenizes(tokenized, model):
    embedder = Embedder(model, tokenized)
    assert embedder.rows([RAW], "en")[0].tolist() == [0, *ids(tokenized, TOKENS), 2]
    assert embedder.rows([RAW], "de")[0].tolist() == [0, *ids(tokenized, RAW), 2]


COMMON = ["--task", "xl_translation", "--user-dir", "fairseq_xl", "--max-len-b", 12]


def options(model, source, target):
    return ["--path", model, *COMMON, "-s", source, "-t", target]


SUBWORDS = ["--bpe", "sentencepiece", "--sentencepiece-model"]


def test_interactive_tokenizes_the_source(tokenized, model):
    raw = [*SUBWORDS, tokenized / "sentencepiece.model"]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenized / "sentencepiece.model"))
    given = " ".join(pieces.encode(TOKENS, out_type=str))
    for source, text in (("en", TOKENS), ("de", RAW)):
        line = [tokenized, *options(model, source, "de" if source == "en" else "en")]
        expected = XLDictionary.load(tokenized / "dict.txt").string(ids(tokenized, text))
        assert run_interactive([*line, *raw], [RAW]).lines("S")[0][0].removeprefix("<s> ") == expected
    shown = run_interactive([tokenized, *options(model, "en", "de")], [given]).lines("S")[0][0]
    assert shown.removeprefix("<s> ") == XLDictionary.load(tokenized / "dict.txt").string(ids(tokenized, TOKENS))


def test_generate_undoes_the_targets_tokens(tokenized, model, monkeypatch):
    monkeypatch.setattr(XLDictionary, "string", lambda *arguments, **more: TOKENS)
    for pair, text in ((("de", "en"), "the house, river (garden)."), (("en", "de"), TOKENS)):
        found = run_generate([tokenized, *options(model, *pair), "--remove-bpe", "sentencepiece"]).lines("D")
        assert {lines[0].partition("\t")[2] for lines in found.values()} == {text}


def test_fairseqs_own_tokenizer_is_refused(tokenized, data_bin, model):
    line = [*options(model, "de", "en"), "--tokenizer", "moses"]
    with pytest.raises(UserError, match="--tokenizer: leave it out, those of .*manifest.json"):
        run_generate([tokenized, *line])
    assert run_generate([data_bin, *line]).lines("D")


@pytest.mark.parametrize(
    "named, sentence",
    [
        ({"../../x": "moses"}, "'../../x' is not a language code"),
        (["moses"], r"'tokenizer' must map languages to names, found \['moses'\]"),
        ({"en": [1]}, "'tokenizer' must map languages to names"),
    ],
)
def test_tokenizers_of_a_manifest_that_is_damaged(tmp_path, named, sentence):
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "config": {"tokenizer": named}}))
    with pytest.raises(UserError, match=f"manifest.json is damaged: {sentence}"):
        tokenizers.named_in(tmp_path)
