"""What a pre-training objective is, and how the ones that a user names are built.

An objective says which text it reads, turns draws into a batch with noise and target side by side, and computes
its loss as named terms. Adding one is one file in this package and its test.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.errors import LARGEST, UserError, quoted
from fairseq_xl.models.encoder import XLEncoderModel

#: name -> class of every registered objective
OBJECTIVES = {}


class Term(NamedTuple):
    """One part of a loss, in nats: the sum over `count` predictions (tokens or pairs)."""

    sum: torch.Tensor
    count: int
    weight: float = 1.0


@dataclass
class ObjectiveConfig:
    """Options that every objective has; `--objective-options 'mlm.length=256 tlm.weight=0.5'` sets them."""

    weight: float = 1.0  # factor of the objective's loss
    length: int = 256  # most tokens of a stream, or of each side of a pair (X5)
    alpha: float = 0.7  # exponent of the sampling shares of languages and pairs (X6); 0: all alike (U2)
    mixed: bool = False  # in training each example of a batch has its own language or pair (G1, U2), not all one (X6)
    # most tokens of a batch: of the texts drawn, both of a pair, filled up to the longest pair of the batch
    batch_tokens: Optional[int] = None
    batch_sentences: Optional[int] = None  # most examples; if neither is set, --max-tokens and --batch-size hold
    leave_out: Optional[str] = None  # languages or pairs that this objective does not read, joined by commas (U6)

    def __post_init__(self):
        for field in fields(self):
            number = getattr(self, field.name)
            if isinstance(number, (int, float)):
                self.require(field.name, math.isfinite(number) and abs(number) < LARGEST, f"a number below {LARGEST}")
        self.require("weight", self.weight >= 0, "0 or more")
        self.require("length", self.length > 1, "more than 1 token")
        self.require_exponent("alpha")
        for name in ("batch_tokens", "batch_sentences"):
            self.require(name, getattr(self, name) is None or getattr(self, name) > 0, "more than 0")

    def require(self, key, fulfilled, expected):
        """Raises `UserError` unless the value of `key` is as `expected`."""
        if not fulfilled:
            raise UserError(f"{key}={getattr(self, key)} should be {expected}")

    def require_exponent(self, key):
        """Raises `UserError` for an exponent of frequencies outside 0 to 10, whose powers might be 0 or infinite."""
        self.require(key, 0 <= getattr(self, key) <= 10, "from 0 to 10")


class Objective:
    """Base of all objectives.

    Args:
        cfg: the merged `Config` of the objective.
        dictionary: the joint `XLDictionary`.
        framing: the `Framing` of the inputs.
    """

    Config = ObjectiveConfig
    name: str
    #: `monolingual` (token streams), `documents` (adjacent segments of one), `parallel` (sentence pairs) or
    #: `parallel_documents` (documents whose sentences are of two languages in turn)
    reads: str
    #: class of the models that the loss runs on
    model_class: type = XLEncoderModel
    #: tokens that framing adds to an example
    framed_tokens = 1

    def __init__(self, cfg, dictionary, framing):
        self.cfg, self.dictionary, self.framing = cfg, dictionary, framing

    @classmethod
    def register(cls, objective):
        """Class decorator: makes the objective known under its `name`."""
        if objective.name in OBJECTIVES:
            raise ValueError(f"objective {objective.name!r} is registered twice")
        OBJECTIVES[objective.name] = objective
        return objective

    @property
    def example_length(self):
        """Tokens of one example before framing: of a block for streams, of each side for pairs."""
        return self.cfg.length - self.framed_tokens if self.reads == "monolingual" else self.cfg.length

    @property
    def positions(self):
        """Positions that the longest example takes: a pair counts anew from its second half on (X7)."""
        return self.cfg.length if self.reads == "monolingual" else self.cfg.length + 1

    def heads(self, model_cfg):
        """Extra modules that the loss needs, by name; the task puts them under `model.heads`."""
        return {}

    def check(self, source):
        """Reads, once and before training, what else the objective needs of a source; `UserError` if it isn't there."""

    def takes(self, examples, sizes, source):
        """Tokens that each of the examples (n,) of these sizes (n,) may come to in a batch, before framing: (n,)."""
        return sizes

    def collate(self, draws, source):
        """`Draws` of B examples and their source -> a dict of tensors, noise and target side by side."""
        raise NotImplementedError(f"{type(self).__name__}.collate")

    def gaps(self, draws, source):
        """Where in the encoder's input the decoder's tokens belong, (B, S) bool; None if they are the whole text."""

    def languages(self, draws, source):
        """Language ids of B draws of k texts each, (k·B, 1): those of all first texts, then of all second ones."""
        sides = zip(*source.languages(draws.examples, self.example_length))
        return torch.tensor([[self.dictionary.language_id(code)] for side in sides for code in side])

    def joined(self, pairs, codes, orders):
        """B pairs of ended sentences as one sequence each; positions and languages begin anew in the second half (X7).

        Args:
            pairs, codes: (first, second) of each pair: the sentences, (n,) and (m,), and their languages.
            orders: 1 for a pair whose second sentence comes first, else 0.

        Returns: the B sequences (n+m+2,), positions (B, T), language ids (B, T).
        """
        rows, positions, languages = [], [], []
        for pair, sides, order in zip(pairs, codes, orders):
            tokens, half = self.framing.pair(pair[order], pair[1 - order])
            ids = [self.dictionary.language_id(sides[side]) for side in (order, 1 - order)]
            rows.append(tokens)
            positions.append(np.concatenate((np.arange(half), np.arange(len(tokens) - half))))
            languages.append(np.repeat(ids, (half, len(tokens) - half)))
        return rows, torch.from_numpy(pad_rows(positions, 0)), torch.from_numpy(pad_rows(languages, 0))

    def loss(self, model, batch):
        """Model and batch -> {name of the term: `Term`}."""
        raise NotImplementedError(f"{type(self).__name__}.loss")

    def encode(self, model, batch, **more):
        """Hidden states (B, T, C) of a batch's tokens, with its positions, languages and padding."""
        return model.encode(
            batch["tokens"],
            positions=batch.get("positions"),
            languages=batch["languages"],
            padding_mask=batch["padding_mask"],
            **more,
        )

    def predict(self, model, hidden, batch):
        """Cross-entropy of the batch's `target` (N,) at its `predicted` flat positions of hidden (B, T, C)."""
        predicted = hidden.flatten(0, 1).index_select(0, batch["predicted"])  # (N, C)
        return Term(model.output.cross_entropy(predicted, batch["target"]), len(batch["target"]))

    @property
    def terms(self):
        """Names of the terms of the loss; all of them are logged in every step."""
        return (self.name,)

    @property
    def language_modeling(self):
        """The terms of language modeling, which `ppl`, the metric of model selection, is the mean over (X8)."""
        return self.terms


def build_objectives(names, options, dictionary, framing):
    """Builds the objectives of ``--objectives`` with the settings of ``--objective-options``.

    Args:
        names: comma-separated names, ``mlm,tlm``.
        options: settings separated by blanks, ``mlm.mask_prob=0.2 tlm.weight=0.5``; those of objectives that are
            not named are checked too, and not used, so that one file of settings serves any set of objectives.

    Returns: {name: Objective}. Raises `UserError` for an unknown objective, an unknown key or an ill-typed value.
    """
    names = [name.strip() for name in names.split(",") if name.strip()]
    unknown = sorted(set(names) - set(OBJECTIVES))
    if unknown or not names or len(set(names)) < len(names):
        wrong = f"unknown {', '.join(unknown)}; " if unknown else ""
        known = ", ".join(sorted(OBJECTIVES))
        raise UserError(f"--objectives {','.join(names)!r}: {wrong}name each of {known} at most once")
    settings = {name: [] for name in OBJECTIVES}
    for option in (options or "").split():
        owner, dot, setting = option.partition(".")
        if owner not in settings or not dot or "=" not in setting:
            raise UserError(
                f"--objective-options {option!r}: expected OBJECTIVE.KEY=VALUE for one of "
                f"{', '.join(sorted(OBJECTIVES))}"
            )
        settings[owner].append(setting)
    configs = {name: _configure(OBJECTIVES[name], settings[name]) for name in OBJECTIVES}
    return {name: OBJECTIVES[name](configs[name], dictionary, framing) for name in names}


def settings_as_text(options):
    """``{"mlm": {"mask_prob": 0.2}}``, as YAML has it, -> ``mlm.mask_prob=0.2``; text and None stay as they are."""
    if options is None or isinstance(options, str):
        return options
    if not isinstance(options, Mapping) or not all(isinstance(settings, Mapping) for settings in options.values()):
        raise UserError(f"objective_options: expected {{OBJECTIVE: {{KEY: VALUE}}}} and found {quoted(options)}")
    return " ".join(
        f"{owner}.{key}={'null' if value is None else value}"
        for owner, settings in options.items()
        for key, value in settings.items()
    )


def _configure(objective, settings) -> Any:
    valid = ", ".join(field.name for field in fields(objective.Config))
    try:
        merged = OmegaConf.merge(OmegaConf.structured(objective.Config), OmegaConf.from_dotlist(settings))
        return OmegaConf.to_object(merged)
    except UserError as error:  # of `ObjectiveConfig.require`
        raise UserError(f"--objective-options: {objective.name}.{error}") from None
    except (OmegaConfBaseException, YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--objective-options {' '.join(settings)!r} for {objective.name}: {reason} (keys: {valid})"
        ) from error
