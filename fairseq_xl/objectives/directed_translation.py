"""Supervised translation in chosen directions (Lample & Conneau 2019, section 4.3), also on back-translated text."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, cast

import numpy as np

from fairseq_xl.data.corpora.mixed_corpus import MIXED, MixedCorpus
from fairseq_xl.data.corpora.sampling import smoothed_shares
from fairseq_xl.data.corpora.text_pairs import DirectedPairs, TextPairs
from fairseq_xl.data.store.back_translated import back_translated_prefix, note_path, parts_path, read_note
from fairseq_xl.data.store.binarized_text import files_of, is_begun
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.base import Batch, ObjectiveConfig, Term
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.sequence import NLL, SourceTargetObjective, sequence_losses

logger = logging.getLogger(__name__)

BACK = "back "  # prefix of the names of back-translated corpora


@dataclass
class DirectedTranslationConfig(ObjectiveConfig):
    """Options of `DirectedTranslation`."""

    mixed: bool = True
    directions: str = ""  # separated by commas: en-de,de-en
    test_direction: Optional[str] = None  # the only one of other splits than train and valid; None: all
    label_smoothing: float = 0.0  # total probability of all symbols but the target
    back_translated: bool = False  # whether to train on the pairs of `fairseq-xl back-translate` too
    tagged_back_translation: bool = False  # whether <mask> stands in front of generated sources
    upsample_primary: float = 1.0  # how often a pass reads the parallel text
    sampling_temperature: float = 1.0  # of the sampling shares of directions


class DirectedTranslation(SourceTargetObjective):
    """The encoder reads a source, the decoder predicts its translation.

    Not registered: `xl_translation` makes it. It has the name of `Translation`, under which `TranslationScorer` counts.
    """

    Config = DirectedTranslationConfig
    name = "translation"
    corpus_type = "parallel"

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"translation": `Term` over the tokens of the targets}, and "nll" without smoothing."""
        ((loss, nll, count),) = sequence_losses(model, batch, self.cfg.label_smoothing)
        return {self.name: Term(loss, count), NLL: Term(nll, count, 0.0)}

    # --- text --------------------------------------------------------------------------------------------------

    def corpora(self, folder: DataFolder, split: Optional[str] = None) -> list[str]:
        """The directions of a split; None: of any split."""
        directions = self.cfg.directions.split(",")
        if split is None:
            return list(dict.fromkeys([*directions, *filter(None, [self.cfg.test_direction])]))
        tested = self.cfg.test_direction and not split.startswith(("train", "valid"))
        return [self.cfg.test_direction] if tested else directions

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Any]:
        """Opens the pairs of each direction of a split, and the back-translated ones, named ``back en-de``.

        In training they are one mixed corpus. Validation and test pairs are read into memory. Pairs with an empty side
        are left out, except in tests.
        """
        corpora: dict[str, Any] = {}
        for name in self.corpora(folder, split):
            source, target = name.split("-")
            corpora[name] = self._bitext(folder, split, source, target)
            if self.cfg.back_translated and trains:
                corpora[BACK + name] = self._back_translated(folder, source, target)
        if not trains:
            return {name: _in_memory(pairs, split) for name, pairs in corpora.items()}
        return {MIXED: MixedCorpus(corpora, self.cfg.alpha)} if len(corpora) > 1 else corpora

    def _bitext(self, folder: DataFolder, split: str, source: str, target: str) -> DirectedPairs:
        for name in (f"{source}-{target}", f"{target}-{source}"):
            prefix = folder.folder / name / f"{split}.{name}"
            if any(is_begun(f"{prefix}.{language}") for language in (source, target)):
                return self._pairs(folder, split, prefix, source, target)
        raise UserError(
            f"{folder.folder}: no bitext {source}-{target} or {target}-{source} for the split {split!r}: add it to the "
            "corpus description and run `python -m preprocess`"
        )

    def _pairs(
        self, folder: DataFolder, split: str, prefix: Path, source: str, target: str, tagged: bool = False
    ) -> DirectedPairs:
        """The pairs of a prefix from source to target, whose files are added to the inputs of the split."""
        pairs = DirectedPairs(
            self.dictionary.mask_index if tagged else None, prefix, source, target, len(self.dictionary)
        )
        codes = prefix.parent.name.split("-")
        folder.add_inputs(split, *files_of(prefix.parent, [f"{prefix.name}.{code}" for code in codes]))
        return pairs

    def _back_translated(self, folder: DataFolder, source: str, target: str) -> DirectedPairs:
        """The back-translated pairs of a direction.

        Raises `UserError` if there are none, or if they are not complete or have the ids of another dictionary.
        """
        prefix = back_translated_prefix(folder.folder, source, target)
        command = f"`fairseq-xl back-translate CHECKPOINT {folder.folder} -s {source} -t {target}`"
        if not is_begun(f"{prefix}.{source}"):
            raise UserError(f"--back-translated: no {prefix}.{source}; {command} writes it")
        note = read_note(prefix)
        if note is None:
            why = "is damaged" if note_path(prefix).exists() else "is missing"
            raise UserError(
                f"--back-translated: {prefix} is not complete, {note_path(prefix).name} {why}; run {command} again"
            )
        if note["made_with"].get("dictionary") != self.dictionary.digest():
            raise UserError(
                f"--back-translated: {prefix} was written with another dictionary than {folder.folder / 'dict.txt'}; "
                f"run {command} again"
            )
        if parts_path(prefix).exists():
            logger.warning(
                "%s: training reads the pairs of an earlier back-translation, since a later one was interrupted; "
                "finish it with %s",
                *(prefix, command),
            )
        return self._pairs(folder, "train", prefix, source, target, self.cfg.tagged_back_translation)

    # --- a pass ------------------------------------------------------------------------------------------------

    def repeats(self, corpora: dict[str, Any]) -> dict[str, float]:
        """How often a pass reads the pairs of each corpus: `upsample_primary` and `sampling_temperature`."""
        parts = _unmixed(corpora)
        factor = self.cfg.upsample_primary
        repeats = {name: factor if BACK + name in parts else 1.0 for name in parts}
        sizes = {name: repeats[name] * corpus.sentences for name, corpus in parts.items()}
        if self.cfg.sampling_temperature != 1:
            names = [name for name in parts if not name.startswith(BACK)]
            counts = np.array([sizes[name] + sizes.get(BACK + name, 0) for name in names])
            shares = smoothed_shares(counts, 1 / self.cfg.sampling_temperature)
            for name, more in zip(names, (shares * counts.sum() / counts).tolist(), strict=True):
                for each in {name, BACK + name} & repeats.keys():
                    repeats[each] *= more
        return repeats

    def log_pairs(self, corpora: dict[str, Any]) -> None:
        """Logs how many parallel and back-translated pairs of a direction there are, and how many are read."""
        parts, repeats = _unmixed(corpora), self.repeats(corpora)
        for generated in [name for name in parts if name.startswith(BACK)]:
            names = generated.removeprefix(BACK), generated
            every = [parts[name].sentences for name in names]
            read = [max(1, round(repeats[name] * count)) for name, count in zip(names, every, strict=True)]
            logger.info(
                "%s: %d parallel and %d back-translated pairs; each epoch reads %d and %d of them, a ratio of %.3g",
                *(names[0], *every, *read, read[0] / read[1]),
            )

    @staticmethod
    def check_any_fits(corpora: dict[str, Any], longest: int, limits: str) -> None:
        """Raises `UserError` with the `limits` if a corpus has no pair of at most `longest` tokens on each side."""
        for corpus in _unmixed(corpora).values():
            try:
                corpus.mean_size(longest)
            except UserError as error:
                raise UserError(f"no training pair fits {limits}: raise the smaller one ({error})") from None


def _unmixed(corpora: dict[str, Any]) -> dict[str, Any]:
    """{name: corpus}, with the corpora of a mixed one in its place."""
    return {
        name: part
        for each, corpus in corpora.items()
        for name, part in getattr(corpus, "parts", {each: corpus}).items()
    }


def _in_memory(pairs: DirectedPairs, split: str) -> TextPairs:
    """The pairs of a split for validation, without those with an empty side, or for tests."""
    lines = pairs.filled if split.startswith(("train", "valid")) else None
    sources, targets = cast(Any, pairs.sides)
    return TextPairs(sources, targets, pairs.sizes, (pairs.codes[0], pairs.codes[1]), lines)
