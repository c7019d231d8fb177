"""Input of a rehearsal: the flags of a training, the size of its text, and generated text that fits them.

An `Entry` of a list (`rehearsal/report.py`) has files and flags. It gives a `Setting`: flags and size of the text.
`prepare` makes a `Prepared` of a setting: fairseq's configuration and a folder of generated text.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import open_dict

from fairseq_xl.data.corpora.line_corpus import LineCorpus
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.store.binarized_text import write_items
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.engine.option_checks import split_update
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.options import INITIAL
from fairseq_xl.objectives import OBJECTIVES, build_objectives
from fairseq_xl.objectives.task_file_objectives import FilesObjective
from fairseq_xl.objectives.translation import DirectedTranslation

#: options of tasks that name files, which a rehearsal does without
FILES = (*INITIAL, "language_module")
#: options of tasks that name languages or pairs, separated by commas
LANGUAGES = ("langs", "train_langs", "eval_langs", "valid_langs", "lang", "source_lang", "target_lang")
PAIRS = ("pairs", "lang_pairs")
LINE = 32  # tokens of a generated line, unless an objective or --line-tokens asks for another length
PRETRAINING = ("xl_pretraining", "xl_unsupervised_translation")
WORDS = [f"w{number}" for number in range(200)]  # each is a piece
FIRST = 4  # the index of the first of them in the dictionary
SYMBOLS = FIRST + len(WORDS)  # maximum token id of the text, plus 1
SEED = 20190122


@dataclass(frozen=True)
class Size:
    """The languages and sizes of generated text. Lengths are in tokens and count ``</s>``."""

    languages: tuple[str, ...]
    pairs: tuple[str, ...]  # as in en-de
    line: int  # length of a line of monolingual text
    lines: int  # of each language
    sides: tuple[int, ...]  # lengths of both sides of bitext, in turn
    bitext: int  # lines of each pair and length


@dataclass(frozen=True)
class Setting:
    """A training and its text, as far as memory and updates depend on it."""

    arguments: tuple[str, ...]  # flags of fairseq-train
    vocabulary: int = 32000  # symbols of the dictionary, special ones included
    languages: int = 2  # language symbols among them
    examples: int | None = None  # training examples (pairs of sentences, labeled texts) of all languages; None: unknown
    line_tokens: int | None = None  # of a line of bitext; None: `LINE`, or what objectives read at most


@dataclass
class Prepared:
    """A configuration of fairseq-train whose text is generated."""

    cfg: Any
    folder: Path
    notes: list[str] = field(default_factory=list)  # how it differs from the flags


def parse_flags(arguments: list[str]) -> Any:
    """The configuration of flags of fairseq-train; a wrong one ends the program with a sentence, as fairseq-train does.

    A linear decay gets a --total-num-update if it has none.
    """
    decays = any(flag.rpartition("=")[2] == "polynomial_decay" for flag in arguments)
    if decays and not any(flag.startswith("--total-num-update") for flag in arguments):
        arguments = [*arguments, "--total-num-update", "1000"]
    namespace = options.parse_args_and_arch(options.get_training_parser(), ["data", *arguments])
    cfg = convert_namespace_to_omegaconf(namespace)
    if not str(cfg.task._name).startswith("xl_"):
        raise UserError(f"--task {cfg.task._name}: a rehearsal is of this package's tasks, xl_pretraining and the like")
    split_update(cfg)
    return cfg


def prepare(setting: Setting, folder: Path) -> Prepared:
    """Writes text for a setting to a new folder and points the configuration of its flags to it; raises `UserError`."""
    cfg = parse_flags(list(setting.arguments))
    if cfg.task._name in PRETRAINING:
        _check_objectives(str(cfg.task.objectives))
    training = Prepared(cfg, folder)
    with open_dict(cfg):
        task = cfg.task
        removed = [f"--{name.replace('_', '-')}" for name in FILES if task.get(name)]
        for name in FILES:
            if task.get(name):
                task[name] = None
        if task.get("new_language_module"):  # of an --init-from
            task.new_language_module = False
            removed.append("--new-language-module")
        if removed:
            training.notes.append(f"random weights: {', '.join(removed)} left out")
        if task._name == "xl_translation" and not task.lang_pairs and not task.source_lang:
            task.source_lang, task.target_lang = "en", "de"
        cfg.dataset.disable_validation = True
        task.data = str(folder)
    languages, pairs = _languages_and_pairs(cfg, setting.languages)
    write_vocabulary(folder, languages)
    dictionary = XLDictionary.load(folder / "dict.txt")
    with open_dict(cfg):
        if task._name in PRETRAINING and "paraphrase" in str(task.objectives).split(","):
            settings = [] if task.objective_options is None else [str(task.objective_options)]
            task.objective_options = " ".join([*settings, "paraphrase.negatives=random"])  # they need as much memory
            training.notes.append("random negatives in place of mined ones")
        if "task_files" in task:
            task.task_files = str(folder / "labeled")
    write_text(folder, _size(cfg, dictionary, languages, pairs, setting))
    if "task_files" in task:
        kind: Any = OBJECTIVES[str(task._name).removeprefix("xl_")]
        length = int(task.length or cfg.model.max_positions)
        batch, tokens = cfg.dataset.batch_size or 8, cfg.dataset.max_tokens
        most = (tokens or 16 * batch * length) // (batch * length)  # texts of a query: as many as fit
        write_labeled(folder / "labeled", kind, languages, length, 4 * batch, max(2, most))
    return training


def _check_objectives(names: str) -> None:
    """Raises `UserError` for an objective that reads files with labels or targets."""
    for part in names.split(","):
        kind = OBJECTIVES.get(part.partition("=")[2] or part)
        if kind is not None and issubclass(kind, FilesObjective):
            raise UserError(
                f"--objectives {names}: {part} reads files of its own: rehearse it as --task xl_{kind.name}"
            )


def _languages_and_pairs(cfg: Any, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The languages and pairs in the options, with English and German if there are fewer languages than `count`."""
    task = cfg.task
    languages = dict.fromkeys(code for name in LANGUAGES for code in (task.get(name) or "").split(",") if code)
    settings = [setting.partition("=") for setting in str(task.get("objective_options") or "").split()]
    left_out = [value for key, _, value in settings if key.endswith(".leave_out")]
    pairs = [name for key, _, value in settings if key.endswith(".directions") for name in value.split(",")]
    pairs += [name for option in PAIRS for name in (task.get(option) or "").split(",") if name]
    pairs += [name for names in left_out for name in names.split(",") if "-" in name]
    languages |= dict.fromkeys(name for names in left_out for name in names.split(",") if "-" not in name)
    languages |= dict.fromkeys(code for name in pairs for code in name.split("-"))
    for code in ("en", "de"):
        if len(languages) < min(count, 2):
            languages[code] = None
    codes = sorted(languages)
    if not task.get("pairs") and len(codes) > 1:
        pairs += [f"{first}-{second}" for first in codes for second in codes if first < second]
    return tuple(codes), tuple(dict.fromkeys("-".join(sorted(pair.split("-"))) for pair in pairs))


def pretraining_objectives(cfg: Any, dictionary: XLDictionary) -> dict[str, Any]:
    """{name: `Objective`} of a pre-training; {} for another task."""
    if cfg.task._name not in PRETRAINING:
        return {}
    framing = Framing.of(str(cfg.task.framing), dictionary)
    return build_objectives(cfg.task.objectives, cfg.task.objective_options, dictionary, framing)


def _size(cfg: Any, dictionary: XLDictionary, languages: Any, pairs: Any, setting: Setting) -> Size:
    """The size of text whose lines are as long as objectives read them, with more examples than a batch has."""
    objectives = pretraining_objectives(cfg, dictionary).values()
    line, sides, most = LINE, set(), 64
    for objective in objectives:
        length, limits = objective.input_length.text, objective.cfg
        tokens = limits.batch_tokens or (None if limits.batch_sentences else cfg.dataset.max_tokens)
        sentences = limits.batch_sentences or cfg.dataset.batch_size
        examples = min(filter(None, (sentences, tokens and -(-tokens // length))), default=64)
        kind = objective.corpus_class
        if issubclass(kind, LineCorpus) and kind.num_languages == 1:
            line = length if line == LINE else min(line, length)
        elif issubclass(kind, LineCorpus):
            framed = isinstance(objective, DirectedTranslation)  # `length` counts <s>
            sides.add(setting.line_tokens or length - framed)
        elif kind.num_texts == 2:  # so that windows of whole lines are full
            line = min(range(LINE // 2, 4 * LINE), key=lambda size: length % size)
        most = max(most, 2 * examples * (length if kind.num_languages == 1 else 1))
    if not objectives:
        tokens = cfg.dataset.max_tokens or 64 * LINE
        most = 2 * tokens // (setting.line_tokens or LINE)
    bitext = [objective for objective in objectives if objective.corpus_class.num_languages == 2]
    return Size(
        languages=languages,
        pairs=pairs if bitext or not objectives else (),
        line=line,
        lines=max(256, 2 * most // line) if objectives else 16,
        sides=tuple(sorted(sides)) or (setting.line_tokens or LINE,),
        bitext=min(max(most, 256), 4096) if cfg.task.get("task_files", "") == "" or bitext else 16,
    )


def write_vocabulary(folder: Path, languages: Sequence[str]) -> None:
    """Writes ``dict.txt`` with the symbols of `languages`, and its SentencePiece model, to a new folder."""
    folder.mkdir(parents=True)
    with open(folder / "sentencepiece.model", "wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(WORDS),
            model_writer=model,
            model_type="word",
            vocab_size=len(WORDS) + 3,
            minloglevel=2,
        )
    symbols = [f"▁{word}" for word in WORDS] + [MASK] + [f"[{code}]" for code in languages]
    write_dictionary(folder / "dict.txt", symbols, [10] * len(WORDS) + [0] * (1 + len(languages)))


def write_text(folder: Path, size: Size) -> None:
    """Writes binarized text of `train`, monolingual and bitext; an empty line ends a document of 64 lines."""
    rng, eos = np.random.default_rng(SEED), XLDictionary().eos()
    for code in size.languages:
        write_items(folder / code / "train", _lines(rng, eos, [size.line], size.lines), SYMBOLS)
    for pair in size.pairs:
        for code in pair.split("-"):
            lines = _lines(rng, eos, size.sides, size.bitext * len(size.sides))
            write_items(folder / pair / f"train.{pair}.{code}", lines, SYMBOLS)
    for folder_name in (*size.languages, *size.pairs):
        for code in folder_name.split("-"):
            name = "dict.txt" if code == folder_name else f"dict.{code}.txt"
            (folder / folder_name / name).write_bytes((folder / "dict.txt").read_bytes())


def write_labeled(
    folder: Path, kind: type[FilesObjective], languages: Sequence[str], length: int, count: int, candidates: int
) -> None:
    """Writes the training files of an objective; `length`, `count` and `candidates` as in `random_files`."""
    rng = random.Random(SEED)
    for code in languages:
        files = kind.random_files(lambda size: " ".join(rng.choices(WORDS, k=size)), count, length, candidates)
        for suffix, lines in files.items():
            write_lines(folder / f"train.{code}.{suffix}", lines)


def _lines(rng: np.random.Generator, eos: int, lengths: Sequence[int], count: int) -> Iterable[np.ndarray]:
    """`count` lines of these lengths in turn, with an empty line after every 64."""
    for index in range(count):
        if index and index % 64 == 0:
            yield np.array([eos])
        pieces = rng.integers(FIRST, FIRST + len(WORDS), lengths[index % len(lengths)] - 1)
        yield np.append(pieces, eos)
