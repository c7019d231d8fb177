"""Same-language generation: titles, questions and summaries (Liang et al. 2020, sections 2.2 and 6)."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from fairseq_xl.data.corpora.mixed_corpus import MIXED, MixedCorpus
from fairseq_xl.data.corpora.text_pairs import LONGEST, TextPairs
from fairseq_xl.data.framing import InputLength
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.language_identification import LineSample, describe_sample, other_languages
from fairseq_xl.evaluation.task_files import read_pairs
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.fingerprints import text_fingerprint
from fairseq_xl.io.options import option
from fairseq_xl.objectives.base import Batch, Objective, Term
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.sequence import NLL, SourceTargetObjective, sequence_losses
from fairseq_xl.objectives.task_file_objectives import FilesConfig, FilesObjective

logger = logging.getLogger(__name__)

SHORTEST = 8  # minimum length of a source, in tokens
FILES = "SPLIT.LANGUAGE.src and SPLIT.LANGUAGE.tgt files"
REQUIRED = ("train", "valid")  # splits that need targets, and no empty lines


@dataclass
class GenerationConfig(FilesConfig):
    """Options of `generation`."""

    length: Optional[int] = option(  # type: ignore[assignment]
        None, "maximum length of a source, in tokens; the rest is truncated (default: the positions of the model)"
    )
    label_smoothing: float = 0.0  # in training: total probability of all symbols but the target

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("length", self.length is None or self.length >= SHORTEST, f"at least {SHORTEST} tokens")
        self.require("label_smoothing", 0 <= self.label_smoothing < 1, "from 0 to below 1")


@Objective.register
class Generation(FilesObjective, SourceTargetObjective):
    """Predicts a title, question or summary of a text in the language of the text.

    The loss of a model that predicts several tokens at a step is summed over its streams (section 4.2: weights of 1).
    The perplexity is that of the first stream, which predicts the next token.
    """

    Config = GenerationConfig
    name = "generation"
    corpus_class = TextPairs
    longest: tuple[int, int] = (LONGEST, LONGEST)

    @classmethod
    def random_files(cls, text: Any, count: int, length: int, candidates: int) -> dict[str, Iterable[str]]:
        """Texts, with targets of an eighth of their words."""
        sides = {"src": length, "tgt": length // 8}
        return {side: [text(max(size, 4)) for _ in range(count)] for side, size in sides.items()}

    @property
    def input_length(self) -> InputLength:
        return InputLength(text=self.longest[0], symbols=0, positions=self.longest[0])

    @property
    def generated_language(self) -> str:
        """The language of fairseq-generate; raises `UserError` if `eval_langs` names several."""
        languages = self.languages_of("test")
        if len(languages) > 1:
            raise UserError(f"--eval-langs {self.cfg.eval_langs}: fairseq-generate takes one language at a time")
        return languages[0]

    def check_model(self, model_cfg: Any) -> None:
        """Sets the lengths to which texts are truncated; raises `UserError` if the model has fewer positions."""
        length, positions = self.cfg.length or model_cfg.max_positions, model_cfg.max_positions
        if length > positions:
            raise UserError(f"{self.option('length')} {length} is more than the model's --max-positions {positions}")
        self.longest = length, positions

    def heads(self, model_cfg: Any) -> dict[str, Any]:
        return {}

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """The loss, and the negative log-likelihood of the first stream."""
        smoothing = self.cfg.label_smoothing if model.training else 0.0
        (first, nll, count), *rest = sequence_losses(model, batch, smoothing)
        return {self.name: Term(sum((loss for loss, *_ in rest), first), count), NLL: Term(nll, count, 0.0)}

    # --- files -------------------------------------------------------------------------------------------------

    def _prefix(self, split: str, language: str) -> str:
        """The path of sources and targets, without ``.src`` and ``.tgt``."""
        return str(self.path(split, language, ".src", FILES).parent / f"{split}.{language}")

    def files_of(self, split: str) -> list[Path]:
        """The sources and targets of a split; targets of test text may be missing."""
        prefixes = [self._prefix(split, language) for language in self.languages_of(split)]
        files = [stored(f"{prefix}.{side}") for prefix in prefixes for side in ("src", "tgt")]
        required = 2 if split.startswith(REQUIRED) else 1
        return [path for i, path in enumerate(files) if i % 2 < required or path.is_file()]

    def check_files(self, folder: DataFolder, splits: Iterable[str]) -> None:
        """Reads files of training and, if there, of other splits, and warns of text in another language."""
        languages_of_files = {}
        for split in dict.fromkeys((*["train"] * self.reads_training_files, *splits, "test")):
            for language in self.languages_of(split):
                prefix = self._prefix(split, language)
                if split != "test" or stored(f"{prefix}.src").is_file():
                    for end, lines in zip(("src", "tgt"), read_pairs(prefix, split != "test")):
                        sample = LineSample()
                        sample.add([line.encode() for line in lines])
                        languages_of_files[f"{prefix}.{end}"] = language, sample.languages()
        for path, (detected, _) in other_languages(languages_of_files).items():
            language, counts = languages_of_files[path]
            description = describe_sample(counts, detected)
            logger.warning("%s %s instead of %s, first line %d", path, description, language, counts[detected][1])

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Any]:
        """Reads, encodes and truncates the files of a split: {language, or "mixed" for several in training: corpus}."""
        corpora = {}
        for language in self.languages_of(split):
            prefix = self._prefix(split, language)
            sides = read_pairs(prefix, require_text=split.startswith(REQUIRED))
            for path in (Path(f"{prefix}.{side}") for side, _ in zip(("src", "tgt"), sides)):
                folder.inputs.add(split, self.input_name(path), path, text_fingerprint(path))
            # an empty line is </s> alone
            encoded = [[folder.encode(text, language).astype(np.int32) for text in side] for side in sides]
            sizes = np.ones((len(sides[0]), 2), dtype=np.int64)
            sizes[:, : len(sides)] = np.array([[len(row) for row in side] for side in encoded]).T
            targets = encoded[1] if len(encoded) > 1 else None
            corpora[language] = TextPairs(encoded[0], targets, sizes, (language, language))
        limits = self.longest[0] - 1, self.longest[1]  # the encoder reads <s> too
        longer = sum((corpus.sizes > limits).sum(axis=0) for corpus in corpora.values())
        if np.any(longer):
            logger.warning(
                "%s: of %d examples %d sources have more than %d tokens (%s) and %d targets more than %d "
                "(--max-positions), and are truncated",
                *(split, sum(corpus.sentences for corpus in corpora.values()), longer[0], self.longest[0]),
                *(self.option("length"), longer[1], self.longest[1]),
            )
        for corpus in corpora.values():
            corpus.truncate(self.longest)
        return {MIXED: MixedCorpus(corpora, alpha=1)} if trains and len(corpora) > 1 else corpora
