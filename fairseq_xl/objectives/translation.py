"""Translation of parallel text (Lample & Conneau 2019, sections 4.2 and 4.3), also of back-translated text."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.corpora.mixed_corpus import MIXED, MixedCorpus, unmixed
from fairseq_xl.data.corpora.sampling import smoothed_shares
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.text_pairs import DirectedPairs
from fairseq_xl.data.framing import InputLength
from fairseq_xl.data.plan.epoch_plan import BatchSpec, Lengths
from fairseq_xl.data.store.back_translated import back_translated_prefix, note_path, parts_path, read_note
from fairseq_xl.data.store.manifest import files_of, is_begun
from fairseq_xl.data.vocabulary.special_symbols import check_direction
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.options import option
from fairseq_xl.objectives.base import Batch, Objective, ObjectiveConfig, Term
from fairseq_xl.objectives.data_folder import PAIR, DataFolder
from fairseq_xl.objectives.sequence import NLL, SourceTargetObjective, sequence_losses

logger = logging.getLogger(__name__)

BACK = "back "  # prefix of the names of back-translated corpora


@dataclass
class DirectionOptions:
    """Options of translation by direction, of the objective and of `xl_translation`."""

    back_translated: bool = option(
        False, "train on the pairs of `fairseq-xl back-translate` too, for each direction (Sennrich et al. 2016)"
    )
    tagged_back_translation: bool = option(False, "put <mask> in front of generated sources (Caswell et al. 2019)")
    upsample_primary: float = option(
        1.0,
        "read the parallel text N times in an epoch, back-translated pairs once; below 1 a random part of "
        "it is read, another one in each epoch",
        range="more than 0",
    )
    sampling_temperature: float = option(
        1.0,
        "sample directions with probability proportional to (n/N)^(1/temperature), where n of all N "
        "sentence pairs belong to the direction; with 1 each epoch reads every pair once (Arivazhagan et al. 2019)",
        range="1 or more",
    )


@dataclass
class TranslationConfig(DirectionOptions, ObjectiveConfig):
    """Options of `translation`."""

    # maximum length of a sentence, in tokens, without <s> (of a source with it if there are `directions`); pairs with a
    # longer one are left out
    length: int = 99
    # directions, separated by commas, which batches mix: en-de,en-fr (default: each pair in both, in the same batch)
    directions: Optional[str] = None
    label_smoothing: float = 0.0  # total probability of all symbols but the target

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [] if self.directions is None else names_of("directions", self.directions)
        self.require("directions", all(map(PAIR.fullmatch, names)), "pairs such as en-de, separated by commas")
        self.require("label_smoothing", 0 <= self.label_smoothing < 1, "from 0 to below 1")
        self.require("upsample_primary", self.upsample_primary > 0, "more than 0")
        self.require("sampling_temperature", self.sampling_temperature >= 1, "1 or more")
        for name in ("back_translated", "sampling_temperature") if self.directions is None else ("leave_out",):
            if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                raise UserError(f"{name}={value} {'needs' if self.directions is None else 'excludes'} directions")
        if self.tagged_back_translation and not self.back_translated:
            raise UserError("tagged_back_translation needs back_translated")
        if self.upsample_primary != 1 and not self.back_translated:
            raise UserError(f"upsample_primary={self.upsample_primary:g} needs back_translated")


class TranslationObjective(SourceTargetObjective):
    """Base of the two forms of `translation`: it predicts the translation of a sentence."""

    Config = TranslationConfig
    name = "translation"
    corpus_class = SentencePairs

    def trained_directions(self, folder: DataFolder) -> list[str]:
        """The directions in which the model learns to translate."""
        raise NotImplementedError(f"{type(self).__name__}.trained_directions")

    def loss(self, model: Any, batch: Batch) -> dict[str, Term]:
        """{"translation": `Term` over the tokens of the targets}, and "nll" without smoothing."""
        ((loss, nll, count),) = sequence_losses(model, batch, self.cfg.label_smoothing)
        return {self.name: Term(loss, count), NLL: Term(nll, count, 0.0)}


@Objective.register
class Translation(TranslationObjective):
    """Predicts the translation of a sentence; models of --arch xl_unmt_* translate by `xl_translation`.

    A batch has each pair in both directions; with the option `directions` the class is `DirectedTranslation`.
    """

    @classmethod
    def class_for(cls, cfg: Any) -> type[Objective]:
        return DirectedTranslation if cfg.directions else cls

    def trained_directions(self, folder: DataFolder) -> list[str]:
        """Both of each pair."""
        return [name for pair in self.corpora(folder) for name in (pair, "-".join(reversed(pair.split("-"))))]

    def lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Any) -> Lengths:
        """The `Lengths` of both sentences together."""
        return Objective.lengths(self, examples, sizes, corpus)

    def num_tokens(self, batch: Batch) -> int:
        return Objective.num_tokens(self, batch)

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """The batch of the pairs, then of the pairs swapped: tokens (2B, S)."""
        first, second = zip(*self.texts(batch_spec, corpus))
        languages = self.languages(batch_spec, corpus)
        return self.batch(first + second, second + first, languages, languages.roll(len(first), 0))


class DirectedTranslation(TranslationObjective):
    """Translation in the option's `directions`, also of back-translated text; `length` counts a source's ``<s>``."""

    #: the only direction of splits other than train and valid; None: all
    test_direction: Optional[str] = None

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        self.directions = cfg.directions.split(",")
        for language in sorted({language for name in self.directions for language in name.split("-")}):
            self.dictionary.language_id(language)

    @property
    def input_length(self) -> InputLength:
        """`InputLength` of a source with its ``<s>``."""
        whole = super().input_length
        return whole._replace(positions=whole.text)

    @property
    def mixes(self) -> bool:
        return True

    def trained_directions(self, folder: DataFolder) -> list[str]:
        return self.directions

    def check_directions(self, trained: list[str], path: str) -> None:
        """Warns of `directions` among which the model `path` was not `trained`; `UserError` as `check_direction`."""
        for name in dict.fromkeys(filter(None, (self.test_direction, *self.directions))):
            source, target = name.split("-")
            if not check_direction(trained, source, target, path):
                logger.warning("%s was not trained for %s: zero-shot translation", path, name)

    # --- text --------------------------------------------------------------------------------------------------

    def corpora(self, folder: DataFolder, split: Optional[str] = None) -> list[str]:
        if self.named and (pairs := folder.options["--pairs"]):
            raise UserError(f"--pairs {pairs}: leave it out, {self.option('directions')} names the directions")
        if split is None:
            return list(dict.fromkeys([*self.directions, *filter(None, [self.test_direction])]))
        tested = self.test_direction and not split.startswith(("train", "valid"))
        return [str(self.test_direction)] if tested else self.directions

    def open(self, folder: DataFolder, split: str, trains: bool, mixes: bool = False) -> dict[str, Any]:
        """Opens the pairs of each direction of a split, and back-translated ones, named ``back en-de``.

        In training they are one mixed corpus. A direction whose loss is computed in validation only may have no text.
        """
        corpora: dict[str, Any] = {}
        for name in self.corpora(folder, split):
            source, target = name.split("-")
            prefix = self._bitext(folder, split, source, target)
            if prefix is None and not self.is_trained:
                continue
            if prefix is None:
                raise UserError(
                    f"{folder.folder}: no bitext {source}-{target} or {target}-{source} for the split {split!r} (the "
                    f"folder has {', '.join(folder.splits) or 'none'}): {folder.how_to_add}"
                )
            corpora[name] = self._pairs(folder, split, prefix, source, target)
            if self.cfg.back_translated and trains:
                corpora[BACK + name] = self._back_translated(folder, source, target)
        if not trains and not self.named:  # fairseq's generator truncates; a test has a translation of every line
            validates = split.startswith(("train", "valid"))
            return {name: pairs.in_memory(pairs.filled if validates else None) for name, pairs in corpora.items()}
        if split == "train" and not self.named:
            self._check_lengths(corpora.values())
        if not trains or len(corpora) == 1:
            return corpora
        mixed = MixedCorpus(corpora, self.cfg.alpha)
        if self.cfg.back_translated:  # a direction has one share, which its corpora divide by their sizes
            mixed.shares = np.array(
                list(_shares({name: corpus.sentences for name, corpus in corpora.items()}, self.cfg.alpha).values())
            )
        return {MIXED: mixed}

    def _check_lengths(self, corpora: Iterable[DirectedPairs]) -> None:
        """Raises `UserError` if no pair of a corpus has at most `length` tokens on each side."""
        for corpus in corpora:
            try:
                corpus.mean_size(self.input_length.text)
            except UserError as error:
                raise UserError(
                    f"no training pair fits {self.cfg.length} tokens, the smaller of --max-tokens and --max-positions: "
                    f"raise the smaller one ({error})"
                ) from None

    @staticmethod
    def _bitext(folder: DataFolder, split: str, source: str, target: str) -> Optional[Path]:
        """The prefix of the bitext of two languages; None if there is none."""
        for name in (f"{source}-{target}", f"{target}-{source}"):
            prefixes = [f"{split}.{name}.{language}" for language in (source, target)]
            path = folder.part(name, prefixes) / name
            if any(is_begun(path / prefix) for prefix in prefixes):
                return path / f"{split}.{name}"
        return None

    def _pairs(
        self, folder: DataFolder, split: str, prefix: Path, source: str, target: str, tagged: bool = False
    ) -> DirectedPairs:
        """The pairs of a prefix from source to target; adds their files to the inputs of the split."""
        mark = self.dictionary.mask_index if tagged else None
        pairs = DirectedPairs(mark, prefix, source, target, len(self.dictionary))
        codes = prefix.parent.name.split("-")
        folder.add_inputs(split, *files_of(prefix.parent, [f"{prefix.name}.{code}" for code in codes]))
        return pairs

    def _back_translated(self, folder: DataFolder, source: str, target: str) -> DirectedPairs:
        """The back-translated pairs of a direction; `UserError` for missing, incomplete or foreign ones."""
        option, prefix = self.option("back_translated"), back_translated_prefix(folder.folder, source, target)
        command = f"`fairseq-xl back-translate CHECKPOINT {folder.folder} -s {source} -t {target}`"
        if not is_begun(f"{prefix}.{source}"):
            raise UserError(f"{option}: no {prefix}.{source}; {command} writes it")
        note = read_note(prefix)
        if note is None:
            why = "is damaged" if note_path(prefix).exists() else "is missing"
            raise UserError(f"{option}: {prefix} is not complete, {note_path(prefix).name} {why}; run {command} again")
        if note["made_with"].get("dictionary") != self.dictionary.digest():
            raise UserError(
                f"{option}: {prefix} was written with another dictionary than {folder.folder / 'dict.txt'}; run "
                f"{command} again"
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
        """Repeats of each corpus in a pass by `upsample_primary` and `sampling_temperature`.

        Logs the numbers of parallel and back-translated pairs of a direction, and of those that a pass reads.
        """
        parts = unmixed(corpora)
        factor = self.cfg.upsample_primary
        repeats = {name: factor if BACK + name in parts else 1.0 for name in parts}
        sizes = {name: repeats[name] * corpus.sentences for name, corpus in parts.items()}
        if self.cfg.sampling_temperature != 1:
            shares = _shares(sizes, 1 / self.cfg.sampling_temperature)
            repeats = {name: repeats[name] * shares[name] * sum(sizes.values()) / sizes[name] for name in parts}
        for generated in [name for name in parts if name.startswith(BACK)]:
            pair = generated.removeprefix(BACK), generated
            totals = [parts[name].sentences for name in pair]
            read = [max(1, round(repeats[name] * count)) for name, count in zip(pair, totals, strict=True)]
            logger.info(
                "%s: %d parallel and %d back-translated pairs; each epoch reads %d and %d of them, a ratio of %.3g",
                *(pair[0], *totals, *read, read[0] / read[1]),
            )
        return repeats


def _shares(sizes: dict[str, float], alpha: float) -> dict[str, float]:
    """The sampling share of each corpus: a direction's smoothed share, times the corpus' part of its pairs."""
    pairs = {name: sizes[name] + sizes.get(BACK + name, 0) for name in sizes if not name.startswith(BACK)}
    shares = dict(zip(pairs, smoothed_shares(np.array(list(pairs.values())), alpha).tolist(), strict=True))
    directions = {name: name.removeprefix(BACK) for name in sizes}
    return {name: shares[pair] * sizes[name] / pairs[pair] for name, pair in directions.items()}
