"""VECO's corpus (V3b): the pairs of its languages, and the description of its text in a folder.

    python -m recipes.veco.corpus pairs [small]
    python -m recipes.veco.corpus describe FOLDER SENTENCEPIECE.model DESCRIPTION.yaml [small]

`pairs` prints the pairs of opus_pairs.yaml. `describe` writes a description for ``fairseq-xl data prepare`` of those
languages and pairs that have training text in FOLDER: mono/train.XX and XX-YY/bitext/train.XX-YY.{XX,YY}, with
valid.* beside them; the reader of OPUS writes a folder for each pair. `small` has the 33 languages of the small models,
and divides their text into four shards, of which one is the quarter that they were trained on.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl.errors import UserError
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing
from fairseq_xl.io.yaml_files import load
from recipes.entry_point import call

PATH = Path(__file__).with_name("opus_pairs.yaml")
SMALL_SHARDS = 4


def corpus_of(size: str = "") -> tuple[list[str], list[str]]:
    """Returns languages and pairs of the paper's corpus, or of its part `small`; raises `UserError` for another one."""
    if size not in ("", "small"):
        raise UserError(f"{size}: expected small, or nothing")
    content = load(PATH, only_text=True)
    languages = content[size or "languages"].split()
    pairs = [(first, second) for first, codes in content["pairs"].items() for second in codes.split()]
    return languages, ["-".join(pair) for pair in pairs if set(pair) <= set(languages)]


def print_pairs(size: str = "") -> None:
    """Prints the pairs, one a line."""
    sys.stdout.write("".join(f"{pair}\n" for pair in corpus_of(size)[1]))


def describe(folder: str, sentencepiece: str, description: str, size: str = "") -> None:
    """Writes the description, and prints how many of the languages and pairs the folder has."""
    root, (languages, pairs) = Path(folder).resolve(), corpus_of(size)
    codes = [code for code in languages if stored(root / f"mono/train.{code}").is_file()]
    bitext = [pair for pair in pairs if stored(root / f"{pair}/bitext/train.{pair}.{pair.split('-')[0]}").is_file()]
    if not codes:
        raise UserError(f"{folder} has no training text of these languages, such as mono/train.{languages[0]}")
    content: dict[str, Any] = {"languages": codes, "vocabulary": {"sentencepiece": str(Path(sentencepiece).resolve())}}
    splits = ("train", "valid")
    content["monolingual"] = {name: {split: f"{root}/mono/{split}.{name}" for split in splits} for name in codes}
    if bitext:
        files = {name: {split: f"{root}/{name}/bitext/{split}.{name}" for split in splits} for name in bitext}
        content["bitext"] = files
    content |= {"shards": SMALL_SHARDS} if size else {}
    with replacing(description) as file:
        file.write(yaml.safe_dump(content, sort_keys=False).encode())
    missing = ", ".join(code for code in languages if code not in codes) or "none"
    sys.stdout.write(f"languages: {len(codes)} of {len(languages)}, missing: {missing}\n")
    sys.stdout.write(f"pairs: {len(bitext)} of {len(pairs)}\n")


if __name__ == "__main__":
    call({"pairs": print_pairs, "describe": describe}, __doc__)
