"""Training, validation and test text that have nothing in common: whole documents, near-duplicates together.

Documents are `dict[name, dict[id, text]]`, a text a paragraph or sentence. Everything is decided by hashes of names,
so that a document stays in its split when languages or other documents are added.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations

from preprocess.readers.text import letters_and_digits

Documents = dict[str, dict[str, str]]

SHARES = {"test": 0.08, "valid": 0.04}  # of the groups of documents
LONG = 40  # letters and digits: shorter text is found in documents that have nothing to do with each other
NEAR = 0.2  # documents that share so much of the shorter one's long text are near-duplicates
COMMON = 20  # documents: long text that more of them have is boilerplate
LARGEST = 20  # documents: larger groups are training text
SHORT = 6  # words: shorter text that is repeated leaves what is evaluated, longer text leaves training


def split(documents: Documents) -> dict[str, str]:
    """The split of every document: train, valid or test, the same one for near-duplicates."""
    groups = defaultdict(list)
    for name, head in _groups(documents).items():
        groups[head].append(name)
    return {
        name: _drawn(head) if len(names) <= LARGEST else "train" for head, names in groups.items() for name in names
    }


def _drawn(name: str) -> str:
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    if place < SHARES["test"]:
        return "test"
    return "valid" if place < SHARES["test"] + SHARES["valid"] else "train"


def _groups(documents: Documents) -> dict[str, str]:
    """The first document, by name, of each document's group of near-duplicates."""
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
    return _joined(sorted(documents), near)


def _joined(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Connected components: the smallest name of each name's component."""
    head = {name: name for name in names}

    def top(name: str) -> str:
        while head[name] != name:
            head[name] = head[head[name]]  # halves the way for the next one
            name = head[name]
        return name

    for pair in pairs:
        first, second = sorted(map(top, pair))
        head[second] = first
    return {name: top(name) for name in head}


def without_leaks(documents: Documents, splits: dict[str, str], short: int) -> Documents:
    """Documents without text that two splits have, compared by letters and digits.

    Text of fewer than `short` words ("Example") leaves valid and test: left out of training, it would be unknown
    where it stands. Longer text leaves train, and valid where test has it.
    """
    removed = set()
    for lower, upper in (("train", "test"), ("train", "valid"), ("valid", "test")):
        places = {name: defaultdict(list) for name in (lower, upper)}
        for name, texts in documents.items():
            for identity, text in texts.items():
                if splits[name] in places and (name, identity) not in removed:
                    places[splits[name]][letters_and_digits(text)].append((name, identity, len(text.split())))
        for key in places[lower].keys() & places[upper].keys():
            brief = min(words for _, _, words in places[upper][key]) < short
            removed.update((name, identity) for name, identity, _ in places[upper if brief else lower][key])
    return {
        name: {identity: text for identity, text in texts.items() if (name, identity) not in removed}
        for name, texts in documents.items()
    }
