"""Splits of documents, and the text that is left out so that they share none."""

from collections import Counter

from preprocess.readers.splitting import SHARES, split, without_leaks


def text(*words):
    return " ".join(f"{word} of a sentence that is quite long enough to be told apart" for word in words)


def many(count, prefix=""):
    return {
        f"{prefix}{number:04d}": {"a": text(f"{prefix}{number}x"), "b": text(f"{number}{prefix}y")}
        for number in range(count)
    }


def test_splits_have_about_their_shares():
    counts = Counter(split(many(3000)).values())
    for name, share in SHARES.items():
        assert abs(counts[name] - 3000 * share) < 4 * (3000 * share * (1 - share)) ** 0.5  # four standard deviations


def test_a_document_stays_in_its_split_when_others_come():
    few, more = split(many(200)), split(many(200) | many(200, "new"))
    assert few == {name: more[name] for name in few} and len(set(few.values())) == 3


def test_near_duplicates_share_a_split_through_others():
    """a-b and b-c have much in common, a-c nothing."""
    for number in range(40):
        texts = {
            f"a{number}": {"1": text(f"p{number}"), "2": text(f"q{number}")},
            f"b{number}": {"1": text(f"q{number}").upper(), "2": text(f"r{number}")},
            f"c{number}": {"1": text(f"r{number}")},
        }
        assert len({split(many(5) | texts)[name] for name in texts}) == 1


def test_short_and_common_text_joins_no_documents():
    short = {name: texts | {"c": "Example"} for name, texts in many(300).items()}
    common = {name: texts | {"c": text("warranty")} for name, texts in many(300).items()}
    assert split(short) == split(common) == split(many(300))


def test_a_large_group_is_training_text():
    chain = {f"{number:03d}": {"1": text(f"w{number}"), "2": text(f"w{number + 1}")} for number in range(21)}
    found = [
        split({f"{key}{name}": {i: f"{key} {t}" for i, t in texts.items()} for name, texts in chain.items()})
        for key in "abcdefghijklmnopqrstuvwxyz"
    ]
    assert {name for splits in found for name in splits.values()} == {"train"}


def test_repeated_text_leaves_training_and_short_text_leaves_the_test_set():
    long, short = "This sentence, of seven words, is repeated.", "Example"
    documents = {
        "a": {"1": long, "2": short, "3": "Only in training"},
        "b": {"1": long.upper() + "!", "2": short, "3": "Only in validation"},
        "c": {"1": long, "2": "example:", "3": "Only in the test set"},
    }
    splits = {"a": "train", "b": "valid", "c": "test"}
    assert without_leaks(documents, splits, 6) == {
        "a": {"2": short, "3": "Only in training"},
        "b": {"3": "Only in validation"},
        "c": {"1": long, "3": "Only in the test set"},
    }
    assert without_leaks(documents, splits, 0) == {
        "a": {"3": "Only in training"},
        "b": {"3": "Only in validation"},
        "c": {"1": long, "2": "example:", "3": "Only in the test set"},
    }


def test_text_repeated_within_a_split_stays():
    documents = {"a": {"1": "Example", "2": "Example"}, "b": {"1": "Example"}}
    assert without_leaks(documents, {"a": "test", "b": "test"}, 6) == documents
