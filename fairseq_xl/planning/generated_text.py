"""Generated text for a setting: a small data folder, whose lines are as long as objectives read them."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from omegaconf import open_dict

from fairseq_xl.data.corpora.line_corpus import LineCorpus
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary, write_dictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK, PADDING
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.indexed_text import write_items
from fairseq_xl.io.options import INITIAL, option_name
from fairseq_xl.objectives import OBJECTIVES, build_objectives
from fairseq_xl.objectives.task_file_objectives import FilesObjective
from fairseq_xl.objectives.translation import DirectedTranslation
from fairseq_xl.planning.setting import Setting, configuration

#: options of tasks that name languages or pairs, separated by commas
NAMES = "langs lang train_langs eval_langs valid_langs source_lang target_lang pairs lang_pairs".split()
PRETRAINING = ("xl_pretraining", "xl_unsupervised_translation")
LINE, LINES, DOCUMENT = 32, 512, 64  # tokens of a line by default; lines of a text, and of a document
WORDS = [f"w{number}" for number in range(200)]
FIRST = 4  # index of the first word in the dictionary
SEED = 20190122


def prepare(setting: Setting, folder: Path) -> tuple[Any, list[str]]:
    """Writes text for a setting to a new folder; raises `UserError`.

    Returns: the configuration of a training on it, and notes on how it differs from the flags.
    """
    cfg, notes = configuration(setting), []
    task = cfg.task
    with open_dict(cfg):
        files = (*INITIAL, "language_module", "new_language_module")
        if removed := [option_name(name) for name in files if task.get(name)]:
            notes.append(f"random weights: {', '.join(removed)} left out")
        for name in files:
            if task.get(name):
                task[name] = False if task[name] is True else None
        if task._name == "xl_translation" and not task.lang_pairs and not task.source_lang:
            task.source_lang, task.target_lang = "en", "de"
        if task._name in PRETRAINING and "paraphrase" in str(task.objectives).split(","):
            task.objective_options = f"{task.objective_options or ''} paraphrase.negatives=random"
            notes.append("random negatives in place of mined ones, which need as much memory")
        if "task_files" in task:
            task.task_files = str(folder / "labeled")
        cfg.dataset.disable_validation = True
        task.data = str(folder)
    languages, pairs = _languages_and_pairs(task, setting.languages)
    _write_vocabulary(folder, setting, languages)
    objectives = pretraining_objectives(cfg, folder)
    if setting.line_tokens and task._name != "xl_translation":
        if all(objective.corpus_class.num_languages == 1 for objective in objectives.values()):
            notes.append("--line-tokens: no effect, the training reads no sentence pairs")
    line, sides = _line_lengths(objectives, setting)
    for code in languages:
        _write_text(folder / code / "train", [line])
    for pair in pairs:
        for code in pair.split("-"):
            _write_text(folder / pair / f"train.{pair}.{code}", sides)
    if "task_files" in task:
        _write_labeled(folder / "labeled", languages, cfg)
    return cfg, notes


def pretraining_objectives(cfg: Any, folder: Path) -> dict[str, Any]:
    """{name: `Objective`} of a pre-training; {} for another task."""
    if cfg.task._name not in PRETRAINING:
        return {}
    dictionary = XLDictionary.load(folder / "dict.txt")
    framing = Framing.of(str(cfg.task.framing), dictionary)
    return build_objectives(cfg.task.objectives, cfg.task.objective_options, dictionary, framing)


def _languages_and_pairs(task: Any, count: int) -> tuple[list[str], list[str]]:
    """The languages and pairs in the options, with English and German if there are fewer languages than `count`."""
    settings = [setting.partition("=") for setting in str(task.get("objective_options") or "").split()]
    lists = [task.get(option) for option in NAMES]
    lists += [value for key, _, value in settings if key.endswith((".leave_out", ".directions"))]
    names = [name for listed in lists for name in (listed or "").split(",") if name]
    languages = {code for name in names for code in name.split("-")}
    for code in ("en", "de"):
        if len(languages) < min(count, 2):
            languages.add(code)
    pairs = [name for name in names if "-" in name]
    if not task.get("pairs"):
        pairs += [f"{first}-{second}" for first in languages for second in languages if first < second]
    return sorted(languages), sorted({"-".join(sorted(pair.split("-"))) for pair in pairs})


def _line_lengths(objectives: dict[str, Any], setting: Setting) -> tuple[int, list[int]]:
    """Tokens of the lines of monolingual text, and of those of bitext, in turn; both count ``</s>``."""
    lines, sides, windows = [], set(), []
    for objective in objectives.values():
        kind, length = objective.corpus_class, objective.input_length.text
        if kind.num_languages == 1 and kind is not TokenStream:
            lines.append(length)
        elif kind.num_languages == 2 and issubclass(kind, LineCorpus):
            framed = isinstance(objective, DirectedTranslation)  # `length` counts <s>
            sides.add(setting.line_tokens or length - framed)
        elif kind.num_languages == 2:  # a window has several lines
            windows.append(length)
    if not sides or any(window <= min(sides) for window in windows):
        sides.add(min([setting.line_tokens or LINE, *(window // 2 for window in windows)]))
    return min(lines, default=LINE), sorted(sides)


def _write_vocabulary(folder: Path, setting: Setting, languages: list[str]) -> None:
    """Writes ``dict.txt`` with the number of symbols of the setting, and a SentencePiece model of `WORDS`."""
    folder.mkdir(parents=True)
    with open(folder / "sentencepiece.model", "wb") as model:
        words: dict[str, Any] = {"sentence_iterator": iter(WORDS), "vocab_size": len(WORDS) + 3, "model_type": "word"}
        sentencepiece.SentencePieceTrainer.train(model_writer=model, minloglevel=2, **words)
    codes = [*languages, *(f"l{number}" for number in range(setting.languages - len(languages)))]
    special = [MASK, *(f"[{code}]" for code in codes)]
    unused = setting.vocabulary - FIRST - len(WORDS) - len(special)
    if unused < 0:
        raise UserError(f"--vocabulary {setting.vocabulary}: {setting.vocabulary - unused} or more is needed")
    symbols = [f"▁{word}" for word in WORDS] + [f"{PADDING}{number}" for number in range(unused)] + special
    write_dictionary(folder / "dict.txt", symbols, [10] * len(WORDS) + [0] * (unused + len(special)))


def _write_text(prefix: Path, lengths: list[int]) -> None:
    """Writes binarized text with lines of these lengths in turn; a document, which an empty line ends, has 64."""
    rng, eos = np.random.default_rng(SEED), [XLDictionary().eos()]
    sizes = [lengths[number % len(lengths)] - 1 for number in range(LINES)]
    lines = [np.append(rng.integers(FIRST, FIRST + len(WORDS), size), eos) for size in sizes]
    for number in range(LINES - DOCUMENT, 0, -DOCUMENT):
        lines.insert(number, np.array(eos))
    write_items(prefix, lines, FIRST + len(WORDS))


def _write_labeled(folder: Path, languages: list[str], cfg: Any) -> None:
    """Writes the training files of a task; a query has as many texts as --max-tokens allows, or 16."""
    rng, batch, kind = random.Random(SEED), cfg.dataset.batch_size or 8, OBJECTIVES[cfg.task._name.removeprefix("xl_")]
    assert issubclass(kind, FilesObjective), kind  # it has --task-files
    length = int(cfg.task.length or cfg.model.max_positions)
    candidates = max(2, (cfg.dataset.max_tokens or 16 * batch * length) // (batch * length))
    for code in languages:
        files = kind.random_files(lambda size: " ".join(rng.choices(WORDS, k=size)), 4 * batch, length, candidates)
        for suffix, lines in files.items():
            write_lines(folder / f"train.{code}.{suffix}", lines)
