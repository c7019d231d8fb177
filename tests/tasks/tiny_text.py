"""Text of three languages whose sentences are translated word by word."""

import random

import yaml

WORDS = {
    "en": "the house garden river stone walks reads writes a book small green under over water light".split(),
    "de": "das Haus Garten Fluss Stein geht liest schreibt ein Buch klein gruen unter hinter Wasser Licht".split(),
    "fr": "la maison jardin fleuve pierre marche lit ecrit un livre petit vert sous sur eau lumiere".split(),
}
EMPTY, LONG, TEST_LINES = 5, 9, 13  # places in the test set of the line without words and of the line with 60


def sentences(languages, count, seed):
    """{language: lines} of word-for-word translations, 3 to 8 words each."""
    rng = random.Random(seed)
    drawn = [[rng.randrange(16) for _ in range(rng.randint(3, 8))] for _ in range(count)]
    return {code: [" ".join(WORDS[code][place] for place in line) for line in drawn] for code in languages}


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_corpus(root, size=90):
    """Writes text of en, de, fr and en-de, and 20 pairs of en-fr, which serve for training, validation and test.

    Each word is a piece; with a smaller `size` of the vocabulary words are spelled.
    """
    for code in WORDS:
        for split, count in (("train", 120), ("valid", 20)):
            write(root / f"{split}.{code}", sentences(WORDS, count, f"mono {split} {code}")[code])
    for split, count in (("train", 90), ("valid", 13)):
        for code, lines in sentences(("en", "de"), count, split).items():
            write(root / f"{split}.en-de.{code}", lines)
    for code, lines in sentences(("en", "de"), TEST_LINES, "test").items():
        lines[EMPTY], lines[LONG] = "", " ".join([WORDS[code][1]] * 60)
        write(root / f"test.en-de.{code}", lines)
    for code, lines in sentences(("en", "fr"), 20, "few").items():
        write(root / f"few.en-fr.{code}", lines)
    mono = {code: {"train": f"train.{code}", "valid": f"valid.{code}"} for code in WORDS}
    bitext = {
        "en-de": {split: f"{split}.en-de" for split in ("train", "valid", "test")},
        "en-fr": dict.fromkeys(("train", "valid", "test"), "few.en-fr"),
    }
    description = {"languages": list(WORDS), "vocabulary": {"size": size}, "monolingual": mono, "bitext": bitext}
    path = root / "corpus.yaml"
    path.write_text(yaml.safe_dump(description, sort_keys=False), encoding="utf-8")
    return path
