"""A corrupted test set: lines of text with the noise of an objective, and generation that restores them."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from numpy.typing import ArrayLike

from fairseq_xl.data import Numbers
from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.text_pairs import TextPairs
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.plan.epoch_plan import VALIDATION_SEED, BatchSpec
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.joint_dictionary import SENTENCEPIECE, XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.task_files import read_texts
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.text import is_blank
from fairseq_xl.objectives.base import OBJECTIVES, Objective
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.generation import Generation
from fairseq_xl.objectives.objective_options import build_objectives, settings_as_text

logger = logging.getLogger(__name__)

LINES_PER_BATCH = 64  # lines that are corrupted at a time


class Lines(Texts):
    """Encoded lines of a language that end in ``</s>`` as the `Texts` of an objective, by their indices."""

    def __init__(self, rows: Sequence[Numbers], language: str):
        self.rows, self.language, self.codes = rows, language, (language,)

    def texts(self, lines: Numbers, length: int) -> list[tuple[Numbers, ...]]:
        """The lines, of any length: a list of 1-tuples of arrays."""
        return [(self.rows[line],) for line in lines]


def corrupt_lines(objective: Objective, lines: Lines, indices: ArrayLike) -> tuple[list[Numbers], list[Numbers | None]]:
    """Corrupts lines with `indices` (n,); the noise depends on the index, the language and the objective only.

    The `collate` of the objective returns the encoder input ``tokens`` (B, S). Returns: two lists of n: the corrupted
    tokens of each line without the first symbol, and the positions (k,) of the predicted tokens among them, or None
    where the decoder predicts the whole line.
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

    Returns: corrupted and clean lines as `TextPairs`, and the text of the clean ones.
    """
    all_texts = list(read_texts(path))
    texts = [text for text in all_texts if not is_blank(text)]
    if len(texts) < len(all_texts):
        logger.warning("%s: %d of %d lines are empty and left out", path, len(all_texts) - len(texts), len(all_texts))
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
    """Writes PREFIX.tgt, the clean lines, and PREFIX.src, the corrupted ones without <mask>, of `read_corrupted`.

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
    """Puts predicted tokens (n,) in order in the masked positions (k,) of a line (S,); surplus ones are removed."""
    line, count = np.array(source), min(len(positions), len(predicted))
    line[positions[:count]] = predicted[:count]
    return np.delete(line, positions[count:])


def fill_sources(
    hypotheses: list[list[dict[str, Any]]], sample: dict[str, Any], pad: int
) -> list[list[dict[str, Any]]]:
    """Turns hypotheses of masked spans, if a sample has any, into hypotheses of whole lines with the same scores."""
    positions = sample.get("positions")
    if positions is None or positions[0] is None:
        return hypotheses
    sources = [row[row != pad][1:] for row in sample["net_input"]["src_tokens"].cpu().numpy()]

    def filled(hypothesis: dict[str, Any], source: Numbers, masked: Numbers) -> dict[str, Any]:
        predicted = hypothesis["tokens"][:-1].cpu().numpy()  # without </s>
        return hypothesis | {"tokens": torch.from_numpy(fill_masks(source, masked, predicted))}

    return [
        [filled(hypothesis, source, masked) for hypothesis in beam]
        for beam, source, masked in zip(hypotheses, sources, positions, strict=True)
    ]


class DenoisedGeneration(Generation):
    """Generation from the lines of TASK_FILES/SPLIT.LANGUAGE, corrupted by the noise of a pre-training objective.

    The objective `noise` has the options of its pre-training, `trained`, which `settings` override. `corrupted_to` is
    a folder for the corrupted and the clean lines, or None.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: XLDictionary,
        framing: Framing,
        noise: str,
        settings: Any,
        trained: Optional[str],
        corrupted_to: Optional[str],
    ):
        super().__init__(cfg, dictionary, framing, named=False)
        names = [name for name, objective in OBJECTIVES.items() if objective.restores_text]
        if noise not in names:
            raise UserError(f"--denoise {noise}: choose one of {', '.join(sorted(names))}")
        options = " ".join(filter(None, (trained, settings_as_text(settings))))
        self.noise = build_objectives(noise, options, self.dictionary, self.framing)[noise]
        self.corrupted_to = corrupted_to

    def check_model(self, model_cfg: Any) -> None:
        """As `Generation`, and as the pre-training objective."""
        super().check_model(model_cfg)
        self.noise.check_model(model_cfg)

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Any]:
        """{language: the corrupted lines of a file, with the clean ones}; writes them to `corrupted_to`."""
        if split == "train":
            raise UserError("--denoise is for fairseq-generate; the task xl_pretraining trains the model")
        language = self.generated_language
        path = self.path(split, language, "", "SPLIT.LANGUAGE files")
        corpus, texts = read_corrupted(self.noise, folder, path, language)
        if self.corrupted_to:
            write_corrupted(Path(self.corrupted_to, f"{split}.{language}"), folder, corpus, texts)
        return {language: corpus}
