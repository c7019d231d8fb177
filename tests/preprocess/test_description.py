"""The YAML description: what it means, and every mistake in it."""

from pathlib import Path

import pytest

from fairseq_xl.errors import UserError
from preprocess.check import check
from preprocess.config import Side, Split, read_config

ROOT = Path(__file__).parents[2]
GOOD = """
languages: [en, de, no]
monolingual:
  en: {train: [a.en, b.en], valid: v.en}
  no: {train: a.no}
bitext:
  en-de: {train: t.en-de, test: [x, y]}
"""


SOURCES = {  # X3b
    "opus": {"fr", "es", "ru", "ar", "zh", "de", "el", "bg", "tr", "vi", "th", "ur", "sw"},
    "iitb": {"hi"},
}


@pytest.mark.parametrize("system, bitext", [("xlm", "opus"), ("unicoder", "documents")])
def test_the_papers_text_is_described(system, bitext):
    """XLM's 15 languages, each with monolingual text and bitext with English; 80,000 merges, 95,000 symbols, 0.5."""
    config, messages = read_config(ROOT / f"recipes/{system}/corpus.yaml")
    foreign = set.union(*SOURCES.values())
    assert not messages and {*config.languages} == {"en", *foreign} and len(config.languages) == 15
    assert {folder.name for folder in config.folders} == {*config.languages, *(f"en-{code}" for code in foreign)}
    for folder, _, side in config.sides():
        language = folder.name.removeprefix("en-")
        source = next((name for name, codes in SOURCES.items() if language in codes), None)
        expected = {"opus": bitext}.get(source, source) if "-" in folder.name else "wikipedia"
        assert all(file.startswith(f"../../corpora/{expected}/") for file in side.files)
    vocabulary = config.vocabulary
    assert (vocabulary.model, vocabulary.codes, vocabulary.size, vocabulary.alpha) == ("fastbpe", 80000, 95000, 0.5)


def test_the_text_of_xlm_s_translation_models_is_described():
    """News Crawl with case and accents, 60,000 merges (X2, X3b); WMT's text validates and tests."""
    config, messages = read_config(ROOT / "recipes/xlm/news.yaml")
    assert not messages and [folder.name for folder in config.folders] == ["en", "de", "en-de"]
    assert all(file.startswith("../../corpora/news/") for file in config.files())
    vocabulary = config.vocabulary
    assert (vocabulary.model, vocabulary.codes, vocabulary.alpha) == ("fastbpe", 60000, 0.5)
    assert not vocabulary.lowercase_and_remove_accent and vocabulary.size > vocabulary.codes


def test_monotrans_text_is_described():
    """JointMulti's 15 languages in sentences of Wikipedia, 200,000 pieces of text that is not normalized (M2, M8)."""
    config, problems = read_config(ROOT / "recipes/monotrans/corpus.yaml")
    xlm = read_config(ROOT / "recipes/xlm/corpus.yaml")[0]
    assert not problems and config.languages == xlm.languages == tuple(folder.name for folder in config.folders)
    assert all(name.startswith("../../corpora/wikipedia/mono/") for name in config.files())
    vocabulary = config.vocabulary
    assert (vocabulary.model, vocabulary.size, vocabulary.normalization) == ("unigram", 200000, "identity")


def _written(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(tmp_path, text):
    return read_config(_written(tmp_path, text))[1]


def test_meaning(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(GOOD, encoding="utf-8")
    config, messages = read_config(path)
    assert messages == []
    # "no" is Norwegian, not false
    assert config.languages == ("en", "de", "no")
    assert [folder.name for folder in config.folders] == ["en", "no", "en-de"]
    # a list of training files is one dataset, a list of test sets is several, named as fairseq names them
    assert config.folders[0].splits == (
        Split("train", (Side("en", ("a.en", "b.en")),)),
        Split("valid", (Side("en", ("v.en",)),)),
    )
    assert config.folders[2].splits == (
        Split("train", (Side("en", ("t.en-de.en",)), Side("de", ("t.en-de.de",)))),
        Split("test", (Side("en", ("x.en",)), Side("de", ("x.de",)))),
        Split("test1", (Side("en", ("y.en",)), Side("de", ("y.de",)))),
    )
    vocabulary = config.vocabulary
    assert (vocabulary.model, vocabulary.size, vocabulary.alpha) == ("unigram", 8000, 0.5)
    assert (vocabulary.sentences, vocabulary.coverage, vocabulary.normalization) == (1000000, None, "nmt_nfkc")


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("[en, de, no]", "[en, de, no, en]", "languages: 'en' is named twice"),
        (
            "bitext:",
            "bitexts: {}\nbitext:",
            "unknown key 'bitexts'; valid keys: languages, vocabulary, tokenizer, clean, monolingual, bitext",
        ),
        ("valid: v.en", "dev: v.en", "monolingual en: unknown key 'dev'; valid keys: train, valid, test"),
        ("en-de:", "en-fr:", "bitext en-fr: 'fr' is not one of the languages; valid: en, de, no"),
        ("en-de:", "en:", "bitext: 'en' is not a pair of two different languages"),
        ("  no:", "  fr:", "monolingual fr: not one of the languages; valid: en, de, no"),
        ("[en, de, no]", "[en, de, no, fr]", "languages: there is no text for 'fr'"),
        ("[en, de, no]", "[en, de, no, pt-br]", "'pt-br' is not a language code of letters, digits and _"),
        ("[en, de, no]", "en", "languages: expected a list such as [en, de], found 'en'"),
        ("train: a.no", "", "monolingual no: expected one or more of train, valid, test"),
        ("train: a.no", "train: {a: b}", "train must be a file or a list of files"),
        ("{train: a.no}", "a.no", "monolingual no: expected a mapping (key: value), found 'a.no'"),
        ("bitext:", "bitext:\n  de-en: {train: u}", "the pair is named twice"),
    ],
)
def test_problems(tmp_path, old, new, expected):
    assert old in GOOD
    messages = problems(tmp_path, GOOD.replace(old, new, 1))
    assert any(expected in problem for problem in messages), messages


@pytest.mark.parametrize(
    "options, expected",
    [
        (
            "sise: 3",
            "valid keys: model, size, alpha, sentences, coverage, normalization, codes, lowercase_and_remove_accent, "
            "sentencepiece, xlm, wordpiece",
        ),
        ("size: big", "vocabulary: size must be of type int, found 'big'"),
        ("model: wordpiece", "model must be unigram, bpe or fastbpe, found 'wordpiece'"),
        ("alpha: -1", "alpha must be from 0 to 1, found -1.0"),
        ("alpha: nan", "alpha must be from 0 to 1, found nan"),
        ("size: 99999999", "size must be more than 0 and below 2000000, found 99999999"),
        ("coverage: 0", "coverage must be more than 0 and at most 1, found 0.0"),
        ("normalization: none", "normalization must be nmt_nfkc or nfkc or nmt_nfkc_cf or nfkc_cf or identity, found"),
        ("sentencepiece: m, model: bpe, size: 9", "sentencepiece names an existing model; leave out model, size"),
        ("sentencepiece: ", "vocabulary: sentencepiece must name the file of a model"),
    ],
)
def test_problems_of_a_vocabulary(tmp_path, options, expected):
    messages = problems(tmp_path, f"{GOOD}vocabulary: {{{options}}}\n")
    assert any(expected in problem for problem in messages), messages


def test_one_file_for_two_languages(tmp_path):
    for name in ("a.no", "t.en-de.de"):
        assert problems(tmp_path, GOOD.replace("v.en", name)) == [
            f"{name} is named as text of en and of {name[-2:]}: each language needs a file of its own"
        ]
    (tmp_path / "link").symlink_to("a.en")
    assert problems(tmp_path, GOOD.replace("a.no", "link")) == [
        "a.en is named as text of en and of no: each language needs a file of its own"
    ]
    assert problems(tmp_path, GOOD.replace("v.en", "[a.en, x.en]")) == []  # twice for one language


def test_what_is_no_description(tmp_path):
    with pytest.raises(UserError, match="missing.yaml: no such file"):
        read_config(tmp_path / "missing.yaml")
    with pytest.raises(UserError, match="c.yaml is not YAML in line 6: 'en' is named twice in one mapping$"):
        problems(tmp_path, GOOD.replace("  no: {train: a.no}", "  no: {train: a.no}\n  en: {train: c.en}"))
    assert any("expected a mapping" in problem for problem in problems(tmp_path, "- en"))


LAUGHS = "".join(f"  - &a{level} [{', '.join([f'*a{level - 1}' if level else 'ha'] * 9)}]\n" for level in range(9))


def test_aliases_of_aliases_are_no_sentence_of_megabytes(tmp_path):
    few = "".join(LAUGHS.splitlines(keepends=True)[:4])  # 8,303 values
    for key in ("languages", "vocabulary", "tokenizer", "monolingual", "bitext"):
        messages = problems(tmp_path, f"{key}:\n{few}")
        assert any("expected" in problem for problem in messages) and max(map(len, messages)) < 300
    (problem,) = problems(tmp_path, GOOD.replace("valid: v.en", f"v{'x' * 900}: v.en"))
    assert "unknown key 'vxxx" in problem and len(problem) < 300


def test_aliases_stand_for_what_they_name(tmp_path):
    assert problems(tmp_path, GOOD.replace("[a.en, b.en]", "&files [a, b]").replace("[x, y]", "*files")) == []


def test_of_many_problems_the_first_are_listed(tmp_path):
    config, messages = read_config(_written(tmp_path, f"languages: [{', '.join(f'x-{n}' for n in range(300))}]\n"))
    with pytest.raises(UserError, match=r"^600 problem\(s\)") as refused:
        check(config, messages, 1, None)
    assert str(refused.value).count("\n  - ") == 100 and str(refused.value).endswith("\n  and 500 more")
