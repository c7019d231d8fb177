"""Files of texts and titles."""

from tests.tasks.tiny_text import WORDS, sentences

SPLITS = {"train": 120, "valid": 13, "test": 11}  # odd: last batches are partial


def titled(words, line, topic):
    """A sentence with one of four topics, and its title: the topic's word and a word that goes with it."""
    plain = [word for word in line.split() if word not in words[:4]]
    return " ".join([*plain[:2], words[topic], *plain[2:]]), f"{words[topic]} {words[4 + topic]}"


def write_titles(root):
    """SPLIT.XX.src and SPLIT.XX.tgt in three languages."""
    root.mkdir()
    for split, count in SPLITS.items():
        for code, lines in sentences(WORDS, count, f"{split} titles").items():
            pairs = [titled(WORDS[code], line, number % 4) for number, line in enumerate(lines)]
            for side, texts in zip(("src", "tgt"), zip(*pairs)):
                (root / f"{split}.{code}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return root
