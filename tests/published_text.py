"""Published vocabularies in small: BPE codes that subword-nmt learns, in the files of XLM's release and transformers'.

FOLDER/codes, vocab             fastBPE's files: `left right count`, `word count`
FOLDER/merges.txt, vocab.json   the same as transformers has them
FOLDER/vocab.txt                a WordPiece vocabulary of the same text: whole words, characters, ##characters
"""

import io
import json
from collections import Counter

from subword_nmt import apply_bpe, learn_bpe

SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]
BERT = ["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_xlm(folder, lines, merges=60):
    """Writes the four files of XLM for tokenized lines; returns the words of the vocabulary in order."""
    learned = io.StringIO()
    learn_bpe.learn_bpe(io.StringIO("".join(f"{line}\n" for line in lines)), learned, merges)
    pairs = learned.getvalue().splitlines()[1:]  # the first line is the version
    counted = apply_bpe.BPE(io.StringIO(learned.getvalue()))
    counts = Counter(piece for line in lines for piece in counted.process_line(line).split())
    words = sorted(counts, key=lambda word: (-counts[word], word))
    write(folder / "codes", (f"{pair} {len(pairs) - place}" for place, pair in enumerate(pairs)))
    write(folder / "vocab", (f"{word} {counts[word]}" for word in words))
    write(folder / "merges.txt", pairs)
    (folder / "vocab.json").write_text(json.dumps(numbered(words)), encoding="utf-8")
    return words


def numbered(words):
    """transformers' {word: row} of words that are spelled th@@ and the."""
    spelled = [word.removesuffix("@@") if word.endswith("@@") else f"{word}</w>" for word in words]
    return {word: row for row, word in enumerate([*SPECIAL, *spelled])}


def write_wordpiece(path, lines, least=4):
    """Writes vocab.txt with the words that occur `least` times and all characters; returns its lines."""
    words = Counter(word for line in lines for word in line.split())
    characters = sorted({char for word in words for char in word})
    whole = [word for word, count in words.most_common() if count >= least and len(word) > 1]
    pieces = [*BERT, *characters, *(f"##{char}" for char in characters), *whole]
    write(path, pieces)
    return pieces


def write(path, lines):
    """Writes lines of text."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
