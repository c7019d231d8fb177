"""Tokenizers before the sub-words in the preparation of a corpus."""

import json
import sys

import pytest
import sentencepiece
from fairseq.data import Dictionary, data_utils
from tiny_corpus import change

from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.errors import UserError
from preprocess.commands.prepare import main
from preprocess.pipeline import prepare


def text_of(data_bin, folder, name):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    data = data_utils.load_indexed_dataset(str(data_bin / folder / name), dictionary)
    model = sentencepiece.SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    return [model.decode(dictionary.string(item).split()) for item in data]


def test_a_language_with_a_tokenizer_is_tokenized_everywhere(corpus, whole, tmp_path, fairseq_in_process):
    for path in corpus.parent.glob("*.*"):
        if path.suffix in (".en", ".de"):
            path.write_text(path.read_text().replace(" .", ", x."))
    tokenized = tmp_path / "tokenized"
    change(corpus, tokenizer={"en": "moses"})
    prepare(corpus, tokenized, 2)
    english, german = ((corpus.parent / f"train.en-de.{code}").read_text().split("\n")[:-1] for code in ("en", "de"))
    assert text_of(tokenized, "en-de", "train.en-de.en") == [line.replace(", x.", " , x .") for line in english]
    assert text_of(tokenized, "en-de", "train.en-de.de") == german
    sample = (tokenized / ".stages/sample.txt").read_text().split("\n")[:-1]
    assert any(line.endswith(" , x .") for line in sample) and any(line.endswith(", x.") for line in sample)
    manifest = json.loads((tokenized / "manifest.json").read_text())
    assert manifest["config"]["tokenizer"] == {"en": "moses"} and manifest["versions"]["sacremoses"]
    assert "tokenizer" not in json.loads((whole / "manifest.json").read_text())["config"]


def test_another_tokenizer_makes_the_stages_run_again(corpus, tmp_path, fairseq_in_process):
    path = corpus.parent / "train.en-de.de"
    path.write_text(path.read_text().replace(" .", "."))
    prepare(corpus, tmp_path / "data-bin")
    change(corpus, tokenizer={"de": "moses"})
    prepare(corpus, tmp_path / "data-bin")
    source = path.read_text().split("\n")[:-1]
    assert text_of(tmp_path / "data-bin", "en-de", "train.en-de.de") == [line.replace(".", " .") for line in source]


def test_wrong_choices_are_reported(corpus, capsys):
    for choice, message in (
        ({"en": "mosess"}, "tokenizer en: unknown 'mosess'; valid: moses, jieba, pythainlp"),
        ({"fr": "moses"}, "tokenizer: unknown key 'fr'; valid keys: en, de"),
    ):
        assert main([str(change(corpus, tokenizer=choice)), "--check-only"]) == 1
        assert message in capsys.readouterr().err


def test_a_missing_package_is_one_sentence(corpus, tmp_path, monkeypatch):
    for name, package in tokenizers.PACKAGES.items():
        monkeypatch.setitem(sys.modules, package, None)
        change(corpus, tokenizer={"en": name, "de": name})
        with pytest.raises(UserError) as refused:
            prepare(corpus, tmp_path / "data-bin")
        sentence = f"{name} needs a package that is not installed: pip install {package}"
        assert str(refused.value).splitlines()[1:] == [f"  - tokenizer en, de: {sentence}"]
