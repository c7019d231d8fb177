"""Makes the joint vocabulary: sentences sampled with p^alpha, SentencePiece, and the dictionary in XLM-R's order."""

import io
import logging
import math
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentencepiece

from fairseq_xl.checkpoints.sentencepiece_surgery import with_rounded_scores
from fairseq_xl.data.corpora.sampling import smoothed_shares
from fairseq_xl.data.store.manifest import data_folders, manifest_tokenizers, read_manifest
from fairseq_xl.data.store.plain_folder import dictionary_file
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.special_symbols import LANGUAGE_SYMBOL, MASK, PADDING, SPECIAL, language_symbols
from fairseq_xl.data.vocabulary.subwords import (
    ADDED,
    OTHER_SYMBOLS,
    Source,
    Subwords,
    in_folder,
    open_subwords,
    other_symbols,
    stored_options,
    vocabulary_kind,
)
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import read_whole, replacing
from fairseq_xl.io.fingerprints import symbols_digest
from fairseq_xl.io.versions import version
from preprocess import fastbpe
from preprocess.config import XLM, Config, Vocabulary, WordPiece
from preprocess.files import texts_in

SEED = 1  # of the sample of sentences
ALL, MOST = 1.0, 0.9995  # default coverage: of a small corpus, of any other
FEW = 4  # coverage of a small corpus is ALL if it has at most 1/FEW as many distinct characters as pieces
LONGEST_SENTENCE = 1 << 16  # bytes of the longest sentence; SentencePiece leaves out longer ones (its default is 4192)
# fixed, so that the model does not depend on the machine: sums of floats depend on the number of threads
TRAINING_THREADS = 16
UNFINISHED = "0.2.2"  # version of SentencePiece that never ends when it learns unigram pieces

logger = logging.getLogger("preprocess")


def shares(counts: dict[str, int], alpha: float) -> dict[str, float]:
    """Returns `smoothed_shares` by language; a language without sentences gets 0."""
    return dict(zip(counts, smoothed_shares(list(counts.values()), alpha).tolist()))


def quotas(counts: dict[str, int], alpha: float, sentences: int) -> dict[str, int]:
    """Returns the number of sentences to sample of each language, without replacement.

    `sentences`, or all of them if there are fewer, are divided by `shares` and rounded to the largest remainders. A
    language with fewer sentences than its part gives all of them. The parts of other languages do not grow, so that
    the ratios of their shares stay the same.
    """
    total = min(sentences, sum(counts.values()))
    parts = {name: total * share for name, share in shares(counts, alpha).items()}
    whole = {name: math.floor(part) for name, part in parts.items()}
    by_remainder = sorted(parts, key=lambda name: whole[name] - parts[name])
    for name in by_remainder[: total - sum(whole.values())]:
        whole[name] += 1
    return {name: min(whole[name], counts[name]) for name in counts}


def training_files(config: Config) -> dict[str, list[str]]:
    """Lists the files of the training text of each language: monolingual text, and its sides of bitext."""
    files = {language: [] for language in config.languages}
    for _, split, side in config.sides():
        if split.name == "train":
            files[side.language] += side.files
    return files


def sampled_files(config: Config) -> dict[str, list[str]]:
    """Lists the files that the vocabulary of each language is learned from.

    They are its monolingual text (Lample & Conneau 2019, section 3.1).
    A language without monolingual training text has its sides of the bitext.
    """
    files = training_files(config)
    for folder, split, side in config.sides():
        if split.name == "train" and folder.name == side.language:
            files[side.language] = list(side.files)
    return files


def sentences_of(paths: Iterable[Path]) -> Iterator[str]:
    """Yields the lines that are not blank, stripped."""
    for path in paths:
        yield from filter(None, texts_in(path))


def draw(sentences: Iterable[str], count: int, sample_size: int, rng: random.Random) -> Iterator[str]:
    """Samples `sample_size` of `count` sentences uniformly and in order, with one sentence in memory at a time."""
    for position, sentence in enumerate(sentences):
        if sample_size and rng.random() * (count - position) < sample_size:
            sample_size -= 1
            yield sentence


def write_sample(config: Config, counts: dict[str, int], path: Path, small: bool) -> dict:
    """Samples the sentences of the vocabulary, and writes one per line; returns their counts for the manifest.

    For a `small` corpus, sentences are added until every character of the training text occurs.
    """
    options = config.vocabulary
    sample_sizes, seen = quotas(counts, options.alpha, options.sentences), set()
    training = training_files(config) if small else {}
    with replacing(path, make_folder=True) as file:

        def write(sentences: Iterable[str], language: str) -> int:
            name, count = config.tokenizers.get(language), 0
            for count, sentence in enumerate(sentences, start=1):  # noqa: B007
                file.write(tokenizers.tokenize(sentence, name, language).encode("utf-8") + b"\n")
                seen.update(sentence)
            return count

        for language, names in sampled_files(config).items():
            rng = random.Random(f"{SEED} {language}")  # the sample of a language does not depend on the others
            text = sentences_of(config.root / name for name in names)
            write(draw(text, counts[language], sample_sizes[language], rng), language)
        for language, names in training.items():
            text = sentences_of(config.root / name for name in names)
            sample_sizes[language] += write((sentence for sentence in text if not seen.issuperset(sentence)), language)
    total = sum(sample_sizes.values())
    return {
        language: {
            "sentences": counts[language],
            "share": round(share, 6),
            "drawn": sample_sizes[language],
            "drawn_share": round(sample_sizes[language] / total, 6),
        }
        for language, share in shares(counts, options.alpha).items()
    }


def coverage_of(options: Vocabulary, sample: Path, small: bool) -> float:
    """Returns the share of characters that get a piece: `coverage` of the description, if it is there.

    The default is ALL for a `small` corpus of few distinct characters (FEW), otherwise MOST, SentencePiece's default.
    """
    if options.coverage is not None:
        return options.coverage
    characters = set()
    with open(sample, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            characters.update(line)
    few = small and FEW * len(characters) <= options.size
    logger.info("vocabulary: %d different characters, coverage %s", len(characters), ALL if few else MOST)
    return ALL if few else MOST


def version_problems(options: Vocabulary) -> list[str]:
    """Describes each reason why the installed packages cannot learn the vocabulary."""
    if options.model == "fastbpe":
        missing = version(fastbpe.PACKAGE) is None
        sentence = f"vocabulary: model fastbpe needs a package that is not installed: pip install {fastbpe.PACKAGE}"
        return [sentence] if missing else []
    if sentencepiece.__version__ != UNFINISHED or options.model != "unigram":
        return []
    return [
        f"vocabulary: sentencepiece {UNFINISHED} does not finish learning unigram pieces: "
        f"pip install 'sentencepiece!={UNFINISHED}'"
    ]


def train_model(sample: Path, options: Vocabulary, path: Path) -> dict:
    """Trains SentencePiece on `sample`, whose sentences, at most `options.sentences`, are held in memory.

    The scores of a unigram model are rounded, so that transformers segments text like SentencePiece.

    Raises UserError with SentencePiece's reason if it fails, as for a size below the number of characters.
    """
    model = io.BytesIO()
    try:
        with open(sample, encoding="utf-8", newline="\n") as lines:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.rstrip("\n") for line in lines),
                model_writer=model,
                model_type=options.model,
                vocab_size=options.size,
                character_coverage=options.coverage,
                normalization_rule_name=options.normalization,
                max_sentence_length=LONGEST_SENTENCE,
                hard_vocab_limit=False,
                unk_id=0,
                bos_id=1,
                eos_id=2,
                pad_id=-1,
                num_threads=TRAINING_THREADS,
                minloglevel=2,
            )
    except (RuntimeError, OSError) as error:
        # its messages are "Internal: file(line) [condition] sentence"
        reason = str(error).splitlines()[-1].rsplit("]", 1)[-1].strip() or str(error)
        raise UserError(
            f"vocabulary: SentencePiece can't learn {options.size} {options.model} pieces from this corpus: {reason}"
        ) from error
    content = with_rounded_scores(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=content).get_piece_size()
    if pieces < options.size:
        logger.warning("vocabulary: size %d is too large for this corpus, which gave %d pieces", options.size, pieces)
    with replacing(path, make_folder=True) as file:
        file.write(content)
    return {"pieces": pieces}


def load_model(path: Path) -> Subwords:
    """Loads a SentencePiece model; raises UserError for a file that is missing or not a model."""
    try:
        open(path, "rb").close()
    except OSError as error:
        raise UserError(f"{path} is not a SentencePiece model: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{str(path)!r} is not a file name: {error}") from error
    return Source("sentencepiece", (Path(path),)).open()


def new_symbols(subwords: Subwords, languages: Iterable[str]) -> list[str]:
    """Returns the symbols of dict.txt for sub-words: their pieces in order, <mask>, [xx]."""
    last = [MASK, *language_symbols(languages)]
    reserved = {*SPECIAL, *last}
    return [symbol for symbol in subwords.symbols if symbol not in reserved] + last


def reused_symbols(path: Path, languages: Iterable[str]) -> list[str]:
    """Returns the symbols of an existing dict.txt, followed by <mask> and the [xx] that it lacks.
    Raises UserError for a file that is not a dictionary, and for one with [xx] but without <mask>.
    """
    symbols = []
    try:
        for line_number, line in enumerate(io.StringIO(read_whole(path, vocabulary=True).decode("utf-8-sig")), start=1):
            symbol, _, count = line.rstrip().rpartition(" ")
            if not symbol or not count.isdigit():
                raise UserError(f"{path}: line {line_number} is not 'symbol count': {quoted(line.rstrip())}")
            symbols.append(symbol)
    except OSError as error:
        raise UserError(f"{path} is not a dictionary: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a dictionary: it is not UTF-8") from error
    missing = [symbol for symbol in (MASK, *language_symbols(languages)) if symbol not in symbols]
    if MASK in missing and len(missing) <= len(list(languages)):
        raise UserError(f"{path} has language symbols but no {MASK}, which must stand before them")
    return symbols + missing


def reused(config: Config, problems: list[str], folder: Path) -> tuple[Config, Path | None]:
    """The description with the sub-words and tokenizers of a data folder, or of a model's, and its dict.txt.

    A language that the folder's manifest does not name keeps its tokenizer. Adds to `problems` what contradicts the
    folder. Raises UserError for a folder without sub-words, or whose dict.txt is not theirs.
    """
    if config.vocabulary.existing:
        problems.append(
            f"vocabulary: the description names one, {config.vocabulary.existing}: leave out --vocabulary-from"
        )
        return config, None
    folder = data_folders(folder)[0]
    if config.vocabulary != Vocabulary():
        logger.warning("--vocabulary-from %s: the key vocabulary of the description has no effect", folder)
    logger.info("dict.txt: the symbols of %s in their order, with the counts of this text", folder)
    manifest = read_manifest(folder)
    if languages := manifest.get("disjoint"):
        raise UserError(
            f"--vocabulary-from {folder}: each language has its own: name {folder / languages[0]} or another"
        )
    symbols, kind = set(open_subwords(folder).symbols), vocabulary_kind(folder)
    options = stored_options(folder)
    source = in_folder(folder, kind, options)
    dictionary = dictionary_file(folder / "dict.txt")
    _check_dictionary(dictionary, symbols, source.files[-1], config.languages)
    names = [os.path.relpath(path, config.root) for path in source.files]
    classes: dict[str, Any] = {"sentencepiece": str, "xlm": XLM, "wordpiece": WordPiece}
    named_languages, before = manifest.get("config", {}).get("languages", []), manifest_tokenizers(manifest)
    default = tokenizers.XLM if kind == "xlm" else None
    by_language = {}
    for language in config.languages:
        named, expected = config.tokenizers.get(language), before.get(language, default)
        if language not in named_languages and named is not None:
            expected = named
        if named not in (None, expected):
            problems.append(f"tokenizer {language}: {named}, but the text of {folder} has {expected or 'none'}")
        if expected:
            by_language[language] = expected
    added = options.pop(ADDED, [])
    settings = Vocabulary(**{kind: classes[kind](*names, *options.values())})
    return replace(config, vocabulary=settings, tokenizers=by_language, added_tokens=added), dictionary


def _check_dictionary(path: Path, pieces: set[str], listed: Path, languages: Iterable[str]) -> None:
    """Raises UserError unless a dictionary can be read and is that of the pieces, which the file `listed` has."""
    symbols = {symbol for symbol in reused_symbols(path, languages) if not symbol.startswith(PADDING)}
    symbols = {symbol for symbol in symbols if symbol != MASK and not LANGUAGE_SYMBOL.fullmatch(symbol)}
    if 2 * len(pieces & symbols) < len(pieces) or len(other_symbols(symbols, pieces)) > OTHER_SYMBOLS * len(symbols):
        raise UserError(
            f"{path} is not the dictionary of {listed}: it has {len(pieces & symbols)} of its {len(pieces)} pieces, "
            f"and {len(symbols - pieces)} others"
        )


def write_dictionary(symbols: list[str], counts: dict[str, int], path: Path) -> dict:
    """Writes dict.txt with the frequencies of pieces in the encoded training text; returns entries for the manifest."""
    with replacing(path, make_folder=True) as file:
        for symbol in symbols:
            file.write(f"{symbol} {counts.get(symbol, 0)}\n".encode())
    names = [*SPECIAL, *symbols]
    return {"symbols": len(names), "sha256": symbols_digest(names)}
