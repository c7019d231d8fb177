"""The text, the training and the scores of a language that is added to a published encoder.

The command is `fairseq-xl model add-language`. `C` channels.
"""

import logging
import math
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fairseq_xl.checkpoints import published_models
from fairseq_xl.checkpoints.layouts.base import SEQUENCES
from fairseq_xl.checkpoints.layouts.sentence_transformers import SentenceSettings, read_settings
from fairseq_xl.checkpoints.parameter_names import BIAS
from fairseq_xl.errors import UserError, check_language, language_pair, named_values
from fairseq_xl.evaluation.retrieval_scores import read_named_pairs
from fairseq_xl.inference.embedder import Embedder, retrieve
from fairseq_xl.inference.scoring import pseudo_log_likelihoods
from fairseq_xl.io.arrays import growing_matrix
from fairseq_xl.io.checkpoints import load_plain, save_checkpoint
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import text_of_line
from fairseq_xl.objectives.distillation import teacher_file

logger = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.pt"
SEED = 1  # of the sample of old text
BUFFERED = 10000  # sentences that are embedded at a time
HELD_OUT_PAIRS, HELD_OUT_LINES, PART = 1000, 100, 10  # most lines for scores, of every PART lines one
#: a sentence with its language and, for its embedding by the teacher, the language and text of what it translates
Example = tuple[str, str, str]


@dataclass
class Addition:
    """What a language is added to, and the text."""

    published: published_models.Published
    settings: SentenceSettings
    pooling: str
    prompt: str  # text in front of each sentence that is embedded
    distills: bool  # whether sentence embeddings are trained; otherwise masked language modeling
    examples: dict[str, list[Example]] = field(default_factory=dict)  # by language, for training
    pairs: dict[str, list[list[str]]] = field(default_factory=dict)  # {"xx-yy": two lists} for scores of retrieval
    lines: dict[str, list[str]] = field(default_factory=dict)  # by language, for scores of masked language modeling
    new_text: list[str] = field(default_factory=list)  # of the new language, from which pieces are learned


def read_addition(folder: Path, options: Any) -> Addition:
    """Reads the folder and the text of `fairseq-xl model add-language`; raises `UserError` for what does not fit."""
    check_language("--lang", options.lang)
    text_files = named_values("--text", options.text, "XX=FILE")
    for code in text_files:
        check_language("--text", code)
    for argument in options.pairs:
        if options.lang not in language_pair(f"--pairs {argument}", argument.partition("=")[0]):
            raise UserError(f"--pairs {argument}: expected pairs of {options.lang} and an old language")
    if options.lang not in text_files and not options.pairs:
        raise UserError(f"--text: expected {options.lang}=FILE, text of the new language")
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder of transformers or sentence-transformers")
    published = published_models.read(folder, values=False)
    if not isinstance(published, published_models.Published) or "decoder" in published.depths:
        raise UserError(f"{folder} is not an encoder of transformers or sentence-transformers")
    if published.options.get("language_embeddings", "none") != "none":
        raise UserError(f"{folder} has language embeddings: add-language is for models that name no language")
    if options.lang in published.languages:
        raise UserError(f"--lang {options.lang}: {folder} has this language already")
    settings = read_settings(folder) or SentenceSettings()
    distills = bool(settings.files or published.head or BIAS not in published.state)
    if distills and not options.pairs:
        raise UserError(f"{folder} predicts no masked tokens, so that training needs --pairs XX-{options.lang}=PREFIX")
    pooling = "first" if published.head and published.head.kind == SEQUENCES else settings.pooling
    addition = Addition(published, settings, pooling, settings.prompt(options.prompt), distills)
    addition.pairs = read_named_pairs(options.test)
    _divide(addition, options, text_files)
    return addition


def _divide(addition: Addition, options: Any, text_files: dict[str, str]) -> None:
    """Divides the text into that for training and that for scores, and samples the old text by --share."""
    new, examples = options.lang, addition.examples
    for name, sides in read_named_pairs(options.pairs).items():
        codes, count = name.split("-"), len(sides[0])
        held_out = max(2, min(HELD_OUT_PAIRS, count // PART))
        if held_out >= count:
            raise UserError(f"--pairs {name}: expected more than {held_out} different pairs, found {count}")
        if not {name, "-".join(reversed(codes))} & addition.pairs.keys():  # --test has them
            addition.pairs[name] = [side[-held_out:] for side in sides]
        texts = dict(zip(codes, (side[:-held_out] for side in sides)))
        (old,) = {*codes} - {new}
        addition.new_text += [] if new in text_files else texts[new]
        texts = {code: [addition.prompt + line for line in side] for code, side in texts.items()}
        examples.setdefault(new, []).extend((line, old, source) for line, source in zip(texts[new], texts[old]))
        examples.setdefault(old, []).extend((line, old, line) for line in texts[old])
    for code, path in text_files.items():
        text = [*dict.fromkeys(filter(None, map(text_of_line, read_lines(path))))]
        if len(text) < 2:
            raise UserError(f"--text {code}={path}: expected two or more different lines of text, found {len(text)}")
        if not addition.distills:
            held_out = max(1, min(HELD_OUT_LINES, len(text) // PART))
            addition.lines[code] = text[-held_out:]
            text = text[:-held_out]
        if code == new:
            addition.new_text += text
        if not (addition.distills and code == new):  # without translations there is nothing to learn from
            text = [addition.prompt + line for line in text]
            examples.setdefault(code, []).extend((line, code, line) for line in text)
    if options.share and len(examples) == 1:
        logger.warning("there is no text of old languages (--text XX=FILE), which the model may forget")
    total = len(examples[new]) * options.share / (1 - options.share)
    old_languages = sorted((code for code in examples if code != new), key=lambda code: len(examples[code]))
    for index, code in enumerate(old_languages):  # those with little text give all of it
        count = min(len(examples[code]), round(total / (len(old_languages) - index)))
        examples[code] = random.Random(SEED).sample(examples[code], count)
        total -= count
        if not count:
            del examples[code]
    counts = ", ".join(f"{code} {len(lines)}" for code, lines in examples.items())
    logger.info("sentences for training: %s", counts)


def write_corpus(addition: Addition, folder: Path) -> Path:
    """Writes the text for training, a file train.xx for each language; returns their description for preprocessing."""
    for code, examples in addition.examples.items():
        write_lines(folder / f"train.{code}", (sentence for sentence, *_ in examples))
    mono = {code: {"train": f"train.{code}"} for code in addition.examples}
    path = folder / "text.yaml"
    path.write_text(yaml.safe_dump({"languages": [*mono], "monolingual": mono}, sort_keys=False), encoding="utf-8")
    return path


def write_teacher(addition: Addition, teacher: Path, data: Path) -> None:
    """Writes the embeddings by the model in the folder `teacher` beside the text of the data folder `data`."""
    embed = Embedder(str(teacher / CHECKPOINT), str(teacher))
    choice = embed.choice(None, addition.pooling)
    for code, examples in addition.examples.items():
        with growing_matrix(str(teacher_file(data / code / "train")), embed.channels) as append:
            for first in range(0, len(examples), BUFFERED):
                _, languages, texts = zip(*examples[first : first + BUFFERED])
                append(_embeddings(embed, languages, texts, choice))


def _embeddings(embed: Embedder, languages: Sequence[str], texts: Sequence[str], choice: Any) -> np.ndarray:
    """Embeddings (n, C) of texts, each in its language."""
    rows = np.empty((len(texts), embed.channels), np.float32)
    for code in set(languages):
        lines = [index for index, language in enumerate(languages) if language == code]
        rows[lines] = embed([texts[index] for index in lines], code, [choice])[choice]
    return rows


def training_flags(addition: Addition, updates: int) -> dict[str, Any]:
    """The flags of the training, which a file of the user overrides."""
    positions = addition.published.options["max_positions"]
    settings = {"mlm.length": min(256, positions), "mlm.alpha": 1, "distillation.length": min(128, positions)}
    settings |= {"distillation.alpha": 1, "distillation.pooling": addition.pooling}
    return {
        **{"task": "xl_pretraining", "criterion": "xl_pretraining", "optimizer": "xl_adam", "clip-norm": 1.0},
        "objectives": "distillation" if addition.distills else "mlm",
        "objective-options": " ".join(f"{name}={value}" for name, value in settings.items()),
        **{"lr": 2e-5 if addition.distills else 1e-4, "lr-scheduler": "polynomial_decay", "max-tokens": 4096},
        **{"warmup-updates": updates // 10, "total-num-update": updates, "max-update": updates},
        **{"disable-validation": True, "no-epoch-checkpoints": True, "no-progress-bar": True},
    }


def copy_trained(extended: Path, trained: Path, folder: Path) -> None:
    """Writes the model of the folder `extended` with the weights of the checkpoint `trained`, which has more languages.

    Parameters that were not trained, of a head, stay as they are.
    """
    content, weights = load_plain(extended / CHECKPOINT), load_plain(trained)["model"]
    model = {
        name: weights[name][: len(value)].clone() if name in weights else value
        for name, value in content["model"].items()
    }
    shutil.copytree(extended, folder, ignore=shutil.ignore_patterns(CHECKPOINT))
    save_checkpoint(content | {"model": model}, folder / CHECKPOINT)


def scores(addition: Addition, folders: dict[str, Path]) -> dict[str, Any]:
    """Scores of models, {name: folder}, a row for each language or direction with a value for each name.

    `retrieval` has the accuracy of finding the second language's sentence by cosine, in percent; `bits_per_character`
    the pseudo-log-likelihood (Salazar et al. 2020), which does not depend on the number of pieces of a text, although
    long pieces are harder to predict than several short ones that see each other.
    """
    retrieval: dict[str, dict[str, Any]] = {}
    bits: dict[str, dict[str, Any]] = {}
    pairs = {
        pair: [[addition.prompt + line for line in side] for side in sides] for pair, sides in addition.pairs.items()
    }
    for name, folder in folders.items():
        embed = Embedder(str(folder / CHECKPOINT), str(folder))
        choice = embed.choice(None, addition.pooling)
        for pair, result in retrieve(embed, pairs, [choice])[choice].items():
            source, target = pair.split("-")
            retrieval.setdefault(pair, {})[name] = result["cosine"]["forward"]
            retrieval.setdefault(f"{target}-{source}", {})[name] = result["cosine"]["backward"]
        for code, lines in addition.lines.items():
            nats = -pseudo_log_likelihoods(embed, lines, code).sum()
            bits.setdefault(code, {})[name] = round(float(nats) / sum(map(len, lines)) / math.log(2), 4)
    return {name: table for name, table in (("retrieval", retrieval), ("bits_per_character", bits)) if table}
