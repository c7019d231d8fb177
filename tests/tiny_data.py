"""A tiny data-bin in three languages, and the writers that it is made with.

    DATA/dict.txt                                     words as pieces ("▁house"), <mask>, [de] [en] [fr]
    DATA/{de,en,fr}/{train,valid}                     60 and 12 sentences, an empty line after every fifth
    DATA/{de-en,en-fr}/{train,valid,test}.PAIR.XX     60, 12 and 12 pairs, an empty line after every fifth

Bitext is word for word, so that a small model can learn to translate it.
"""

import random

import numpy as np

from fairseq_xl.data.corpora.negatives import negatives_file
from fairseq_xl.io.files import FORMATS, write_json
from fairseq_xl.io.fingerprints import fingerprint

LANGUAGES = ["de", "en", "fr"]
PAIRS = ["de-en", "en-fr"]
WORDS = {
    "de": "das Haus Garten Fluß Stein geht liest schreibt ein Buch klein grün unter über Wasser Licht".split(),
    "en": "the house garden river stone walks reads writes a book small green under over water light".split(),
    "fr": "le maison jardin fleuve pierre marche lit écrit un livre petit vert sous sur eau lumière".split(),
}
SENTENCES = {"train": 60, "valid": 12, "test": 12}


def places(seed, count):
    """`count` sentences, lists of 2 to 9 places in the word lists, and None for an empty line after every fifth."""
    rng = random.Random(seed)
    lines = []
    for number in range(count):
        if number and number % 5 == 0:
            lines.append(None)
        lines.append([rng.randrange(len(WORDS["en"])) for _ in range(rng.randint(2, 9))])
    return lines


def sentences(language, seed, count):
    """Sentences as lists of pieces; an empty list is an empty line. Aligned between languages for equal seeds."""
    return [[f"▁{WORDS[language][place]}" for place in line or []] for line in places(seed, count)]


def texts():
    """(folder, prefix of the file, language) -> lines, for every file of the data-bin."""
    found = {}
    for language in LANGUAGES:
        for split in ("train", "valid"):
            found[language, split, language] = sentences(language, f"{split} {language}", SENTENCES[split])
    for pair in PAIRS:
        for split, count in SENTENCES.items():
            for language in pair.split("-"):
                found[pair, f"{split}.{pair}.{language}", language] = sentences(language, f"{split} {pair}", count)
    return found


def write_dictionary(path, counts, languages):
    """dict.txt with pieces {piece: count}, <mask> and the symbols of `languages`; returns its path."""
    lines = [f"{piece} {count}" for piece, count in counts.items()]
    lines += ["<mask> 0", *(f"[{language}] 0" for language in languages)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_items(prefix, items, dtype=np.uint16):
    """Binarized text at PREFIX.bin and PREFIX.idx as fairseq writes it; items are lists of ids. Returns `prefix`."""
    import torch
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    prefix.parent.mkdir(parents=True, exist_ok=True)
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for item in items:
        builder.add_item(torch.tensor(item))
    builder.finalize(f"{prefix}.idx")
    return prefix


def write_data_bin(root):
    """Writes the data-bin at `root`; returns `root`."""
    root.mkdir(parents=True)
    found = texts()
    counts = {f"▁{word}": 0 for language in LANGUAGES for word in WORDS[language]}
    for (_, name, _), lines in found.items():
        for piece in (piece for line in lines for piece in line if name.startswith("train")):
            counts[piece] += 1
    write_dictionary(root / "dict.txt", counts, LANGUAGES)
    ids = {piece: number for number, piece in enumerate(counts, start=4)}
    for (folder, name, language), lines in found.items():
        write_items(root / folder / name, [[ids[piece] for piece in line] + [2] for line in lines])
        beside = "dict.txt" if folder == language else f"dict.{language}.txt"
        (root / folder / beside).write_bytes((root / "dict.txt").read_bytes())
    return root


def write_mined(pairs, lines):
    """Writes mined negatives of `SentencePairs`, a row of lines of the second side for each pair, and their note."""
    np.save(negatives_file(pairs.prefix), np.array(lines, dtype=np.int32))
    write_note_of_mined(pairs)


def write_note_of_mined(pairs):
    """Writes the note of the mined negatives that are there."""
    path = negatives_file(pairs.prefix)
    note = {"made_with": {"text": pairs.fingerprint}, "fingerprints": {path.name: fingerprint(path)}}
    write_json(path.with_suffix(".json"), {"format": FORMATS["note of added files"]} | note)
