"""A corrupted test set: lines of text with the noise of an objective."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.text_pairs import TextPairs
from fairseq_xl.data.plan.epoch_plan import VALIDATION_SEED, BatchSpec
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import SENTENCEPIECE
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import read_texts
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.text import is_blank
from fairseq_xl.objectives.base import Objective
from fairseq_xl.objectives.data_folder import DataFolder

logger = logging.getLogger(__name__)

LINES_PER_BATCH = 64  # lines that are corrupted at a time


class Lines(Texts):
    """Encoded lines of one language as the `Texts` of an objective; the index of an example is that of its line.

    Args:
        rows: token arrays that end in ``</s>``.
        language: code of their language.
    """

    def __init__(self, rows: Sequence[Numbers], language: str):
        self.rows, self.language, self.codes = rows, language, (language,)

    def texts(self, lines: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The lines, of any length: a list of 1-tuples of arrays."""
        return [(self.rows[line],) for line in lines]


def corrupt_lines(objective: Objective, lines: Lines, indices: ArrayLike) -> tuple[list[Numbers], list[Numbers | None]]:
    """Corrupts lines; the noise depends only on the index of the line, the language and the objective.

    Args:
        objective: an `Objective` whose `collate` returns the encoder input ``tokens`` (B, S).
        lines: a `Lines`.
        indices: (n,) of the lines to corrupt.

    Returns: two lists of n: the corrupted tokens of each line without the first symbol, and the positions (k,) of the
    predicted tokens among them, or None where the decoder predicts the whole line.
    """
    seed = (VALIDATION_SEED, *f"{objective.name} {lines.language}".encode())
    keys = np.random.default_rng(seed).integers(2**64, size=len(lines.rows), dtype=np.uint64)
    indices, sources, positions = np.asarray(indices), [], []
    for first in range(0, len(indices), LINES_PER_BATCH):
        examples = indices[first : first + LINES_PER_BATCH]
        batch_spec = BatchSpec(objective.name, lines.language, examples, keys[examples])
        tokens = objective.collate(batch_spec, lines)["tokens"].numpy()
        masked = objective.masked_positions(batch_spec, lines)
        sources += [row[row != objective.dictionary.pad()][1:] for row in tokens]
        positions += [None] * len(tokens) if masked is None else [np.flatnonzero(row[1:]) for row in masked]
    return sources, positions


def read_corrupted(
    objective: Objective, folder: DataFolder, path: str | Path, language: str
) -> tuple[TextPairs, list[str]]:
    """Reads and corrupts the lines of a file, without empty ones and those that are too long for the objective.

    Args:
        objective: as in `corrupt_lines`.
        folder: the `DataFolder`.
        path: the file, in one language.

    Returns: corrupted and clean lines as `TextPairs`, and the text of the clean ones.
    """
    texts = [text for text in read_texts(path) if not is_blank(text)]
    lines, longest = Lines([folder.encode(text, language) for text in texts], language), objective.input_length.text
    fitting = [index for index, row in enumerate(lines.rows) if len(row) <= longest]
    if len(fitting) < len(texts):
        logger.warning(
            "%s: %d of %d lines have more than %d tokens (%s.length) and are left out",
            *(path, len(texts) - len(fitting), len(texts), longest, objective.name),
        )
    if not fitting:
        raise UserError(f"{path}: no line of at most {longest} tokens ({objective.name}.length)")
    objective.check(lines)
    sources, positions = corrupt_lines(objective, lines, fitting)
    texts, rows = [texts[index] for index in fitting], [lines.rows[index] for index in fitting]
    sizes = np.array([[len(source), len(row)] for source, row in zip(sources, rows)])
    return TextPairs(sources, rows, sizes, (language, language), positions=positions), texts


def write_corrupted(prefix: Path, folder: DataFolder, corpus: TextPairs, texts: Sequence[str]) -> None:
    """Writes PREFIX.tgt, the clean lines, and PREFIX.src, the corrupted ones without <mask>.

    Args:
        prefix: a path.
        folder, corpus, texts: as in `read_corrupted`.

    Raises `UserError` if the files cannot be written.
    """
    dictionary, language = folder.dictionary, corpus.codes[0]
    special, tokenizer = {dictionary.mask_index}, tokenizers.named_in(folder.folder).get(language)
    copies = [
        dictionary.string(torch.from_numpy(source), SENTENCEPIECE, extra_symbols_to_ignore=special)
        for source in corpus.sources
    ]
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        write_lines(f"{prefix}.src", [tokenizers.detokenize(text, tokenizer, language) for text in copies])
        write_lines(f"{prefix}.tgt", texts)
    except OSError as error:
        raise UserError(f"--corrupted-to {prefix.parent}: {error.strerror}") from error


def fill_masks(source: ArrayLike, positions: Numbers, predicted: Numbers) -> Numbers:
    """Puts predicted tokens (n,) in the masked positions (k,) of a corrupted line (S,), in order.

    Surplus tokens and surplus positions are removed.
    """
    line, count = np.array(source), min(len(positions), len(predicted))
    line[positions[:count]] = predicted[:count]
    return np.delete(line, positions[count:])


def fill_hypothesis(hypothesis: dict[str, Any], source: ArrayLike, positions: Numbers) -> dict[str, Any]:
    """Turns a hypothesis of the masked spans into one of the whole line, with the scores of the spans."""
    predicted = hypothesis["tokens"][:-1].cpu().numpy()  # without </s>
    return hypothesis | {"tokens": torch.from_numpy(fill_masks(source, positions, predicted))}
