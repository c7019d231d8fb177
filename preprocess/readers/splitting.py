"""Splits documents into training, validation and test text without common text; near-duplicates share a split.

Documents are `dict[name, dict[id, text]]`; a text is a paragraph or a sentence. Splits depend on hashes of names only,
so that a document stays in its split if languages or documents are added.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations

from preprocess.readers.text import letters_and_digits

Documents = dict[str, dict[str, str]]

SHARES = {"test": 0.08, "valid": 0.04}  # of the groups of documents
LONG = 40  # letters and digits: shorter text occurs in unrelated documents
NEAR = 0.2  # near-duplicates share at least this part of the long text of the shorter document
COMMON = 20  # documents: long text in more documents is boilerplate
LARGEST = 20  # documents: larger groups are training text
SHORT = 6  # words: shorter repeated text is removed from validation and test, longer text from training


def split(documents: Documents) -> dict[str, str]:
    """Assigns every document to train, valid or test; near-duplicates have the same split."""
    groups = defaultdict(list)
    for name, head in _groups(documents).items():
        groups[head].append(name)
    return {
        name: _split_of(head) if len(names) <= LARGEST else "train" for head, names in groups.items() for name in names
    }


def _split_of(name: str) -> str:
    position = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    if position < SHARES["test"]:
        return "test"
    return "valid" if position < SHARES["test"] + SHARES["valid"] else "train"


def _groups(documents: Documents) -> dict[str, str]:
    """Maps each document to the first document, by name, of its group of near-duplicates."""
    long_texts = {}
    for name, texts in documents.items():
        keys = {letters_and_digits(text) for text in texts.values()}
        long_texts[name] = {key for key in keys if len(key) >= LONG}
    holders = defaultdict(list)
    for name in sorted(long_texts):
        for key in long_texts[name]:
            holders[key].append(name)
    shared = Counter()
    for key, names in holders.items():
        if len(names) <= COMMON:
            shared.update(dict.fromkeys(combinations(names, 2), len(key)))
    size = {name: sum(map(len, keys)) for name, keys in long_texts.items()}
    near = (pair for pair, characters in shared.items() if characters >= NEAR * min(size[name] for name in pair))
    return _components(sorted(documents), near)


def _components(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Maps each name to the smallest name of its connected component."""
    head = {name: name for name in names}

    def top(name: str) -> str:
        while head[name] != name:
            head[name] = head[head[name]]  # path halving
            name = head[name]
        return name

    for pair in pairs:
        first, second = sorted(map(top, pair))
        head[second] = first
    return {name: top(name) for name in head}


def without_leaks(documents: Documents, splits: dict[str, str], short: int) -> Documents:
    """Removes text that two splits share, compared by letters and digits; returns the documents.

    Text of fewer than `short` words ("Example") is removed from valid and test, so that training keeps common words.
    Longer text is removed from train, and from valid if test has it.
    """
    removed = set()
    for lower, upper in (("train", "test"), ("train", "valid"), ("valid", "test")):
        occurrences = {name: defaultdict(list) for name in (lower, upper)}
        for name, texts in documents.items():
            for identity, text in texts.items():
                if splits[name] in occurrences and (name, identity) not in removed:
                    occurrences[splits[name]][letters_and_digits(text)].append((name, identity, len(text.split())))
        for key in occurrences[lower].keys() & occurrences[upper].keys():
            brief = min(words for _, _, words in occurrences[upper][key]) < short
            removed.update((name, identity) for name, identity, _ in occurrences[upper if brief else lower][key])
    return {
        name: {identity: text for identity, text in texts.items() if (name, identity) not in removed}
        for name, texts in documents.items()
    }
