"""Parses and checks the arguments of wmt.sh, whose comment describes them."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import check_format, read_json

ROOT = Path(__file__).parent.parent  # not resolved: corpora/ is beside `recipes`, even if that is a link
SYSTEMS = ("xlm", "veco")
PAIRS = ("en-de", "en-fr", "en-ro")
#: default rules for en-fr, as in Moses's clean-corpus-n.perl -ratio 1.5, 1 to 250 words
CLEAN = "{longest: 250, length_ratio: 0, token_ratio: 1.5, copies: false, language: false, duplicates: false}"
#: options with a value -> description of the value
VALUES = {"--corpus": "a folder", "--back-translate": "a checkpoint", "--back-translate-flags": "flags"}
#: options without a value -> their pair, and the error for other pairs
SWITCHES = {
    "--keep-all-pairs": ("en-fr", "only en-fr is filtered"),
    "--keep-diacritics": ("en-ro", "only Romanian text has them"),
}


@dataclass
class Arguments:
    """Arguments of wmt.sh."""

    system: str
    directions: list[str]
    data: str
    checkpoint: str
    output: str
    flags: list[str] = field(default_factory=list)  # of fairseq-train
    corpus: str = ""  # --corpus
    back: tuple[str, ...] = ()  # --back-translate: the model and flags of fairseq-xl back-translate
    clean: str = ""  # rules that leave out pairs of en-fr; "" leaves out none
    diacritics: str = "without"  # Romanian text "with" or "without" diacritics

    @property
    def pairs(self) -> list[str]:
        return list(dict.fromkeys(map(pair_of, self.directions)))

    @property
    def languages(self) -> list[str]:
        return ["en", *(pair.removeprefix("en-") for pair in self.pairs)]

    @property
    def monolingual(self) -> dict[str, str]:
        """Target language -> monolingual text, in the folder of the first direction into the language."""
        texts: dict[str, str] = {}
        for direction in self.directions:
            target = direction.split("-")[1]
            texts.setdefault(target, f"{self.folder(pair_of(direction))}/mono/train.{target}")
        return texts

    def folder(self, pair: str) -> str:
        """Returns the corpus folder of a pair."""
        suffix = "-diacritics" if pair == "en-ro" and self.diacritics == "with" else ""
        return self.corpus or f"{ROOT}/corpora/wmt-{pair}{suffix}"


def pair_of(direction: str) -> str:
    """Returns the pair of a direction, with English first."""
    return f"en-{direction.removesuffix('-en')}" if direction.endswith("-en") else direction


def parse(words: list[str]) -> Arguments:
    """Parses the command line. Raises `UserError` for wrong arguments."""
    if len(words) < 5:
        raise UserError("expected SYSTEM DIRECTIONS DATA CHECKPOINT OUTPUT_DIR")
    system, directions, data, checkpoint, output, *flags = words
    arguments = Arguments(system, directions.split(","), data, checkpoint, output)
    if system not in SYSTEMS:
        raise UserError(f"{system} is neither xlm nor veco")
    for direction in arguments.directions:
        if pair_of(direction) not in PAIRS:
            raise UserError(f"DIRECTIONS {directions}: {direction} is not a direction of en-de, en-fr or en-ro")
    names_of("DIRECTIONS", directions)
    options = {}
    while flags and flags[0] in (*VALUES, *SWITCHES):  # after another argument all flags are of fairseq-train
        flag = flags.pop(0)
        if flag in SWITCHES:
            pair, reason = SWITCHES[flag]
            if pair not in arguments.pairs:
                raise UserError(f"{flag}: {reason}")
        elif not flags or (flags[0] == "" and flag != "--back-translate-flags"):
            raise UserError(f"{flag} needs {VALUES[flag]}")
        options[flag] = "" if flag in SWITCHES else flags.pop(0)
    arguments.flags = flags
    model, model_flags = options.get("--back-translate"), options.get("--back-translate-flags", "").split()
    if model_flags and not model:
        raise UserError("--back-translate-flags needs --back-translate MODEL")
    arguments.corpus = options.get("--corpus", "")
    arguments.back = (model, *model_flags) if model else ()
    arguments.clean = CLEAN if "en-fr" in arguments.pairs and "--keep-all-pairs" not in options else ""
    arguments.diacritics = "with" if "--keep-diacritics" in options else "without"
    return arguments


def check(arguments: Arguments) -> None:
    """Raises `UserError` for missing inputs. Sets `diacritics` to those of a complete --corpus."""
    data, checkpoint, corpus = arguments.data, arguments.checkpoint, arguments.corpus
    for name in vocabulary_files(data):
        if not Path(data, name).is_file():
            raise UserError(f"DATA {data}: it has no {name}")
    symbols = Path(data, "dict.txt").read_text(encoding="utf-8")
    for language in arguments.languages:
        if f"[{language}] " not in symbols:
            raise UserError(f"{data}/dict.txt has no symbol of language '{language}'")
    if checkpoint != "random" and not os.path.exists(checkpoint):
        raise UserError(f"CHECKPOINT {checkpoint}: no such file")
    if corpus and Path(corpus, "manifest.json").is_file():
        pairs, diacritics = corpus_content(corpus)
        for pair in arguments.pairs:
            if pair not in pairs:
                raise UserError(f"--corpus {corpus} has no text of {pair}: name another folder")
        if arguments.diacritics == "with" and diacritics == "without":
            raise UserError(f"--keep-diacritics: --corpus {corpus} has Romanian text without diacritics")
        arguments.diacritics = diacritics
    if arguments.back:
        if not Path(arguments.back[0]).is_file():
            raise UserError(f"--back-translate {arguments.back[0]}: no such file")
        for text in arguments.monolingual.values():
            if not stored(text).is_file():
                raise UserError(f"--back-translate needs monolingual text: there is no {text}")


def vocabulary_files(data: str) -> list[str]:
    """Names of the dictionary and the sub-words of a data folder."""
    return ["dict.txt", *FILES[vocabulary_kind(data)]]


def corpus_content(folder: str) -> tuple[list[str], str]:
    """Returns the pairs of a corpus folder, and whether its Romanian text is "with" or "without" diacritics.

    The reader writes the manifest last: a folder without a manifest, or with a damaged one, has no pairs.
    """
    path = Path(folder, "manifest.json")
    manifest = read_json(path) if path.is_file() else None
    if not isinstance(manifest, dict):
        return [], "with"
    check_format("corpus", manifest, path)
    return manifest["pairs"], "without" if manifest["remove diacritics"] else "with"
