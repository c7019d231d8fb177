"""Cleaning of training text: each rule by hand, counts in the manifest, skipped stages, mistakes."""

import json
import math

import pytest
import yaml
from tiny_corpus import change, content, write

from fairseq_xl.errors import UserError
from preprocess import pipeline
from preprocess.clean import RULES, Cleaner, Trigrams, clean_files, trigrams, typical_ratio
from preprocess.config import Clean, read_config
from preprocess.pipeline import prepare

OFF = Clean(longest=0, length_ratio=0, token_ratio=0, copies=False, duplicates=False, language=False)
SENTENCES = {
    "en": ["the house stands beside the river", "a small green book under the water", "she reads what he writes"],
    "de": ["das Haus steht neben dem Fluss", "ein kleines grünes Buch unter Wasser", "sie liest, was er schreibt"],
}


def rules(**changes):
    return Clean(**{name: getattr(OFF, name) for name in Clean.__dataclass_fields__} | changes)


@pytest.mark.parametrize(
    "sides, changes, expected",
    [
        (("", ""), {}, None),
        (("a", ""), {}, "one_sided"),
        (("a b c", "x"), {"longest": 2}, "too_long"),
        (("a b", "x"), {"longest": 2}, None),
        (("x" * 16, "y" * 7), {"length_ratio": 2}, "length_ratio"),
        (("x" * 16, "y" * 8), {"length_ratio": 2}, None),
        (("x" * 8, "y" * 16), {"length_ratio": 2}, None),
        (("x" * 7, "y" * 16), {"length_ratio": 2}, "length_ratio"),
        (("x" * 15, "y"), {"length_ratio": 2}, None),  # too short to tell
        (("a", "x y"), {"token_ratio": 1.5}, "token_ratio"),
        (("Straße", "STRASSE"), {"copies": True}, "copy"),
        (("Straße", "Strasse 1"), {"copies": True}, None),
        (("a b c", "a b c"), {"longest": 2, "copies": True}, "too_long"),  # the first rule counts
    ],
)
def test_rules(sides, changes, expected):
    assert Cleaner(rules(**changes), ("en", "de")).reason(sides) == expected


def moses(first, second, ratio, shortest, longest):
    """Whether clean-corpus-n.perl keeps a pair of numbers of tokens, in its own words."""
    if first == 0 or second == 0:
        return False
    if first < shortest or second < shortest or first > longest or second > longest:
        return False
    return not (first / second > ratio or second / first > ratio)


def test_the_filter_of_wmt14(tmp_path):
    """clean-corpus-n.perl -ratio 1.5 CORPUS en fr OUTPUT 1 250, for all numbers of tokens."""
    cleaner = Cleaner(rules(longest=250, token_ratio=1.5), ("en", "fr"))
    for first in (*range(0, 12), 165, 166, 167, 249, 250, 251):
        for second in (*range(0, 12), 165, 166, 167, 249, 250, 251):
            if first or second:  # an empty pair ends a document
                kept = cleaner.reason((" ".join("a" * first), " ".join("b" * second))) is None
                assert kept == moses(first, second, 1.5, 1, 250), (first, second)


def test_ratios_are_relative_to_the_typical_one(tmp_path):
    """Chinese is a third as long as English here: the median over pairs with both sides, which are 3, 3 and 4."""
    write(tmp_path / "en", ["x" * 30, "", "x" * 30, "x", "x" * 40])
    write(tmp_path / "zh", ["y" * 10, "", "y" * 10, "", "y" * 10])
    typical = typical_ratio([tmp_path / "en", tmp_path / "zh"])
    assert typical == 3 and typical_ratio([tmp_path / "en"]) == 1
    cleaner = Cleaner(rules(length_ratio=2), ("en", "zh"), typical)
    lengths = {(30, 10): None, (59, 10): None, (61, 10): "length_ratio", (16, 10): None, (16, 11): "length_ratio"}
    assert {pair: cleaner.reason(("x" * pair[0], "y" * pair[1])) for pair in lengths} == lengths


def test_languages_are_guessed_by_trigrams():
    guess = Trigrams(SENTENCES)
    for code, other in (("en", "de"), ("de", "en")):
        for line in SENTENCES[code]:
            assert guess.is_wrong(line, other) and not guess.is_wrong(line, code)
    assert not guess.is_wrong("das Haus", "en")  # too short to tell
    assert not guess.is_wrong("das Haus steht neben dem Fluss", "fr")  # nothing is known of French
    assert Cleaner(rules(), ("en", "de"), guess=guess).reason((SENTENCES["de"][0], SENTENCES["de"][0])) == "language"


def test_probabilities_of_trigrams():
    """With one added: of "ab" (" ab", "ab ") and "abab" (" ab", "aba", "bab", "ab ") in en, "cd" in de; 6 trigrams."""
    assert trigrams("AB") == [" ab", "ab "]
    guess = Trigrams({"en": ["ab", "abab"], "de": ["cd"]})
    assert {each: round(math.exp(value) * 13) for each, value in guess.log_shares["en"].items()} == {
        " ab": 3,
        "ab ": 3,
        "aba": 2,
        "bab": 2,
    }
    assert math.exp(guess.unseen["de"]) == pytest.approx(1 / 9)


def read(path):
    return path.read_text(encoding="utf-8")


def test_kept_lines_counts_and_documents(tmp_path):
    """Runs of empty lines become one; a pair of which one side occurred before is no duplicate."""
    write(tmp_path / "a.en", ["", "one", "two", "", "", "one", "one", "", "", "same", "three", ""])
    write(tmp_path / "a.de", ["", "eins", "", "", "", "eins", "ein", "", "", "same", "drei", ""])
    chosen = rules(copies=True, duplicates=True)
    outputs = [tmp_path / "out.en", tmp_path / "out.de"]
    counts = clean_files([tmp_path / "a.en", tmp_path / "a.de"], outputs, Cleaner(chosen, ("en", "de")))
    assert [read(path) for path in outputs] == ["one\n\none\n\nthree\n\n", "eins\n\nein\n\ndrei\n\n"]
    assert counts == dict.fromkeys(RULES, 0) | {"all": 6, "kept": 3, "one_sided": 1, "copy": 1, "duplicate": 1}
    counts = clean_files([tmp_path / "a.en"], outputs[:1], Cleaner(chosen, ("en",)))
    assert read(outputs[0]) == "one\ntwo\n\nsame\nthree\n\n" and counts["duplicate"] == 2


def test_the_manifest_has_the_counts_and_stages_are_skipped(corpus, tmp_path, fairseq_in_process, caplog):
    root = corpus.parent
    for code in ("en", "de"):
        path = root / f"train.en-de.{code}"
        lines = read(path).splitlines()
        short = next(line for line in lines if 0 < len(line.split()) < 8)
        write(path, [*lines, "", short, "the same on both sides"])
    pairs = list(zip(*(read(root / f"train.en-de.{code}").splitlines() for code in ("en", "de"))))
    fitting = [pair for pair in pairs if all(0 < len(side.split()) <= 8 for side in pair)]
    repeated = len(fitting) - len(set(fitting))
    assert repeated > 0
    change(corpus, clean={"duplicates": "true", "language": "false", "longest": "8"})
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    prepare(corpus, tmp_path / "data-bin")
    manifest = json.loads(read(tmp_path / "data-bin/manifest.json"))
    assert manifest["config"]["clean"] == {
        **{"longest": 8, "length_ratio": 2.0, "token_ratio": 0.0},
        **{"copies": True, "duplicates": True, "language": False},
    }
    (pair, other) = [entry for entry in manifest["files"] if entry["path"].startswith("train.en-de.")]
    found = pair["cleaned"]
    assert found == other["cleaned"] and found["duplicate"] == repeated and found["copy"] == 1 and found["too_long"] > 0
    assert found["all"] == found["kept"] + sum(found[rule] for rule in RULES)
    assert pair["lines"] - pair["blank"] == found["kept"]
    assert all("cleaned" not in entry for entry in manifest["files"] if not entry["path"].startswith("train"))
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before
    written = content(tmp_path / "data-bin")
    with caplog.at_level("INFO"):
        prepare(corpus, tmp_path / "data-bin")
    assert "clean en-de.0: up to date" in caplog.text and content(tmp_path / "data-bin") == written
    change(corpus, clean={"language": "false"})
    prepare(corpus, tmp_path / "data-bin")
    assert json.loads(read(tmp_path / "data-bin/manifest.json"))["config"]["clean"]["longest"] == 250


@pytest.fixture
def clean_only(monkeypatch):
    """clean_only(description, data_bin) prepares data up to the cleaning."""
    monkeypatch.setattr(pipeline._Preparation, "begin", lambda *_: 1 / 0)

    def clean_only(description, data_bin):
        with pytest.raises(ZeroDivisionError):
            prepare(description, data_bin)

    return clean_only


def test_rules_that_remove_more_than_half_are_warned_of(corpus, tmp_path, clean_only, caplog):
    files = ["train.en", "train.en-de.en", "train.en-de.de"]
    for longest, warned in ((5, files), (9, [])):
        caplog.clear()
        clean_only(change(corpus, clean={"language": "false", "longest": str(longest)}), tmp_path / "data-bin")
        found = [one.message for one in caplog.records if one.levelname == "WARNING" and "'too_long': " in one.message]
        assert [one.split()[1].rstrip(":") for one in found] == warned


def test_lines_in_another_language_are_left_out(corpus, tmp_path, fairseq_in_process):
    """Three German lines in the English text, and a pair whose sides changed places."""
    german = [line for line in read(corpus.parent / "train.en-de.de").splitlines() if len(line) > 30]
    english = [line for line in read(corpus.parent / "train.en-de.en").splitlines() if len(line) > 30]
    path = corpus.parent / "train.en"
    write(path, [*read(path).splitlines(), "", *german[:3]])
    for code, line in (("en", german[3]), ("de", english[3])):
        pairs = corpus.parent / f"train.en-de.{code}"
        write(pairs, [*read(pairs).splitlines(), line])
    change(corpus, clean={"longest": "0", "length_ratio": "0", "copies": "false", "duplicates": "false"})
    prepare(corpus, tmp_path / "data-bin")
    files = json.loads(read(tmp_path / "data-bin/manifest.json"))["files"]
    left_out = {entry["path"]: entry["cleaned"] for entry in files if "cleaned" in entry}
    assert {name: counts["language"] for name, counts in left_out.items()} == {
        **{"train.en": 3, "train.en-de.en": 1, "train.en-de.de": 1}
    }
    assert all(counts["all"] == counts["kept"] + counts["language"] for counts in left_out.values())
    kept = read(tmp_path / "data-bin/.stages/clean/en.0.en").splitlines()
    assert not set(kept) & set(german) and kept[-1] == ""


def test_a_pair_has_its_own_rules(corpus, tmp_path, fairseq_in_process, monkeypatch):
    """They replace those of the description, which count for the other texts. Paths may be relative."""
    monkeypatch.chdir(tmp_path)
    bitext = yaml.safe_load(read(corpus))["bitext"]
    bitext["en-de"]["clean"] = {"longest": "4", "language": "false"}
    entries = []
    for more in ({}, {"clean": {"longest": "6", "language": "false", "duplicates": "false"}}):
        change(corpus, bitext=bitext, **more)
        prepare(corpus.relative_to(tmp_path), "data-bin/my")
        manifest = json.loads(read(tmp_path / "data-bin/my/manifest.json"))
        assert ("clean" in manifest["config"]) == bool(more)
        assert manifest["config"]["bitext"]["en-de"]["clean"]["longest"] == 4
        entries.append({entry["path"]: entry["cleaned"] for entry in manifest["files"] if "cleaned" in entry})
    cleaned, again = entries
    assert list(cleaned) == ["train.en-de.en", "train.en-de.de"] and cleaned["train.en-de.en"]["too_long"] > 0
    lengths = [len(line.split()) for line in read(corpus.parent / "train.en").splitlines()]
    assert again.pop("train.en")["too_long"] == sum(length > 6 for length in lengths) > 0 and again == cleaned


def test_the_rule_of_languages_needs_two(corpus, tmp_path, clean_only, caplog):
    message = "clean: the rule `language` compares training text of several languages"
    clean_only(change(corpus, clean={}), tmp_path / "two")
    alone = {"languages": ["en"], "monolingual": {"en": {"train": "train.en"}}, "bitext": {}}
    clean_only(change(corpus, **alone, clean={"language": "false"}), tmp_path / "off")
    assert message not in caplog.text
    clean_only(change(corpus, **alone, clean={}), tmp_path / "one")
    assert f"{message}, so it leaves out nothing; the description has training text of en" in caplog.text


def test_mistakes_in_the_description(corpus):
    bitext = yaml.safe_load(read(corpus))["bitext"]
    bitext["en-de"]["clean"] = {"longst": "3", "token_ratio": "0.5"}
    pair = [
        "bitext en-de: clean: unknown key 'longst'; valid keys: longest, length_ratio, token_ratio, copies, "
        "duplicates, language",
        "bitext en-de: clean: token_ratio must be 0, or 1 or more, found 0.5",
    ]
    for rules, messages in (
        ({"longest": "-1"}, ["clean: longest must be 0 or more, found -1"]),
        ({"length_ratio": "0.5"}, ["clean: length_ratio must be 0 or more than 1, found 0.5"]),
        ({"token_ratio": "nan"}, ["clean: token_ratio must be 0, or 1 or more, found nan"]),
    ):
        assert read_config(change(corpus, clean=rules, bitext=bitext))[1] == [*messages, *pair]


def test_rules_that_leave_nothing(corpus, tmp_path, fairseq_in_process):
    change(corpus, clean={"longest": "1", "language": "false"})
    with pytest.raises(UserError, match="clean leaves nothing of train.en"):
        prepare(corpus, tmp_path / "data-bin")
