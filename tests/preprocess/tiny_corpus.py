"""A tiny corpus of English and German, with documents."""

import random

import yaml

WORDS = {
    "en": "the house garden river stone walks reads writes a book small green under over water light".split(),
    "de": "das Haus Garten Fluß Stein geht liest schreibt ein Buch klein grün unter über Wasser Licht".split(),
}


def documents(language, count, rng):
    """`count` documents of sentences, with an empty line between them; aligned between languages for equal seeds."""
    lines = []
    for _ in range(count):
        for _ in range(rng.randint(2, 5)):
            places = [rng.randrange(len(WORDS["en"])) for _ in range(rng.randint(2, 9))]
            lines.append(" ".join(WORDS[language][place] for place in places) + " .")
        lines.append("")
    return lines[:-1]


def write_corpus(root):
    root.mkdir(parents=True)
    for split, count in (("train", 30), ("valid", 3)):
        write(root / f"{split}.en", documents("en", count, random.Random(split)))
    for split, count in (("train", 20), ("valid", 2), ("test", 2), ("more", 2)):
        for language in ("en", "de"):
            write(root / f"{split}.en-de.{language}", documents(language, count, random.Random(f"{split} pair")))
    return describe(
        root,
        {
            "languages": ["en", "de"],
            "vocabulary": {"model": "unigram", "size": 60},
            "monolingual": {"en": {"train": "train.en", "valid": "valid.en"}},
            "bitext": {"en-de": {"train": "train.en-de", "valid": "valid.en-de", "test": ["test.en-de", "more.en-de"]}},
        },
    )


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def describe(root, description):
    path = root / "corpus.yaml"
    path.write_text(yaml.safe_dump(description, sort_keys=False), encoding="utf-8")
    return path


def change(path, **changes):
    """Change keys of a description."""
    return describe(path.parent, yaml.safe_load(path.read_text(encoding="utf-8")) | changes)


def content(data_bin):
    """Bytes of every file of a data-bin but the stages' records."""
    return {
        str(path.relative_to(data_bin)): path.read_bytes()
        for path in sorted(data_bin.rglob("*"))
        if path.is_file() and ".stages" not in path.parts
    }
