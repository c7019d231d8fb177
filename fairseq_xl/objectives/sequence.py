"""The loss of encoder-decoders, in pre-training and in fine-tuning: cross-entropy with teacher forcing.

Legend: B batch, S and T tokens of source and target, C channels, N predicted tokens.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from fairseq.utils import get_perplexity

from fairseq_xl.data.corpora.base import Texts
from fairseq_xl.data.framing import find_padding, pad_rows
from fairseq_xl.data.plan.epoch_plan import BatchSpec, Lengths
from fairseq_xl.errors import UserError
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.modules.packing import find_packings
from fairseq_xl.objectives.base import STATISTICS, Batch, Objective, Sums, Term, bits

NLL = "nll"  # name of the term of the negative log-likelihood, which is not smoothed


class SequenceObjective(Objective):
    """Base of objectives whose decoder predicts one token at a step."""

    model_class: type = XLDenoisingModel

    def heads(self, model_cfg: Any) -> Dict[str, Any]:
        """No modules; raises `UserError` for a model that predicts several tokens at a step."""
        if hasattr(model_cfg, "predicting_streams"):
            families = "--arch xl_xdae_tiny, xl_unmt_tiny and the like, not xl_xfnp_*"
            raise UserError(f"{self.name} predicts one token at a step: {families}")
        return {}

    def translations(self, model: Any, batch: Batch) -> torch.Tensor:
        """Greedy translations ``y </s>`` of a batch into its ``other_languages``: (B, T), padded on the right."""
        target_languages = batch["other_languages"]
        allowed = torch.from_numpy(self.dictionary.is_output).to(target_languages.device)
        translated: torch.Tensor = model.translate(batch, self.dictionary.first_language + target_languages, allowed)
        return translated


class SourceTargetObjective(SequenceObjective):
    """Base of objectives that predict the target of a source, with label smoothing.

    Perplexities are those of the negative log-likelihood. Validation may score greedy translations.
    """

    #: maximum numbers of tokens of source and target, to which text is truncated; None: those of the model
    longest: Optional[tuple[int, int]] = None

    def batch(self, sources: Any, targets: Any, languages: torch.Tensor, target_languages: torch.Tensor) -> Batch:
        """The batch of B sources and targets that end in ``</s>``, of the languages (B, 1); all targets may be None."""
        pad, ids = self.dictionary.pad(), languages[:, 0].tolist()
        tokens = pad_rows([self.framing.sentence(source, id_) for source, id_ in zip(sources, ids)], pad)
        batch: Batch = {
            "tokens": torch.from_numpy(tokens),
            "padding_mask": find_padding(tokens, pad),
            "languages": languages,
        }
        if targets[0] is None:
            return batch
        target = torch.from_numpy(pad_rows(targets, pad))
        return batch | {
            **find_packings(pad, packing=tokens, target_packing=target.numpy()),
            "other_languages": target_languages,
            "prev_output_tokens": decoder_input(target, self.dictionary.first_language + target_languages),
            **decoder_target(target, pad),
        }

    def net_input(self, batch: Batch) -> Dict[str, Any]:
        """Divides a batch for fairseq's criterions and generator: {"net_input", "target"}, and "batch" with the rest.

        No tensor is in two of them, since fairseq copies all three to the GPU; `with_whole_batch` joins them again.
        """
        rest, padding = dict(batch), batch["padding_mask"]
        tokens, target = rest.pop("tokens"), rest.pop("target", None)
        lengths = torch.full((len(tokens),), tokens.size(1)) if padding is None else (~padding).sum(1)
        inputs = {"src_tokens": tokens, "src_lengths": lengths, "src_languages": batch["languages"][:, 0]}
        if target is not None:
            inputs["prev_output_tokens"] = rest.pop("prev_output_tokens")
        return {"net_input": inputs, "target": target, "batch": rest}

    def scored(self, model: Any, batch: Batch) -> Dict[str, Term]:
        """{"statistics": the counts of greedy translations}; {} without `scorer`."""
        if self.scorer is None:
            return {}
        translations = model(compute=self.translations, batch=batch)
        return {STATISTICS: self.scorer.counted(batch, translations, translations)}

    @property
    def terms(self) -> tuple[str, ...]:
        return self.name, NLL

    @property
    def language_modeling(self) -> tuple[str, ...]:
        return (NLL,)

    @property
    def logged_terms(self) -> tuple[str, ...]:
        return (NLL,)

    def metric_names(self, corpora: Iterable[str]) -> List[str]:
        if self.named:
            return self._renamed(super().metric_names(corpora))
        return ["nll_loss", *(f"ppl_{corpus}" for corpus in corpora)]

    def values(self, sums: Sums) -> Dict[str, Any]:
        """`nll_loss`, in bits, and `ppl_XX` of each language or direction; with a name, `NAME_XX_ppl` and the like."""
        if self.named:
            values = super().values(sums)
            return dict(zip(self._renamed(values), values.values(), strict=True))
        means = {corpus: bits(corpus_sums) for corpus, corpus_sums in sums.get(NLL, {}).items()}
        logged = {f"ppl_{corpus}": get_perplexity(mean, round=3) for corpus, mean in means.items() if mean is not None}
        mean = bits(tuple(map(sum, zip(*sums.get(NLL, {}).values(), strict=True))))
        return logged if mean is None else logged | {"nll_loss": round(mean, 3)}

    def _renamed(self, names: Iterable[str]) -> List[str]:
        return [f"{self.name}{name.removeprefix(NLL)}" for name in names if name.startswith(NLL)]

    def num_tokens(self, batch: Batch) -> int:
        """The number of tokens of the targets or, without targets, of the sources."""
        return len(batch["predicted_positions"]) if "target" in batch else super().num_tokens(batch)

    def lengths(self, examples: np.ndarray, sizes: np.ndarray, corpus: Any) -> Lengths:
        """The `Lengths` of framed sources and of targets, which are padded separately."""
        return Lengths(corpus.sides_of(examples))

    def collate(self, batch_spec: BatchSpec, corpus: Texts) -> Batch:
        """Tokens (B, S), languages (B, 1) and, with targets, decoder input and target (B, T)."""
        sources, targets = zip(*self.texts(batch_spec, corpus))
        codes = self.language_codes(batch_spec, corpus)
        ids = torch.tensor([[self.dictionary.language_id(code) for code in pair] for pair in codes])
        return self.batch(sources, targets, ids[:, :1], ids[:, 1:])


def with_whole_batch(sample: Dict[str, Any]) -> Dict[str, Any]:
    """A sample of `PlannedBatches` with its whole batch, also if `Objective.net_input` divided it."""
    if "net_input" not in sample:
        return sample
    inputs = sample["net_input"]
    if "prev_output_tokens" not in inputs:
        raise UserError("text without targets has no loss: fairseq-generate writes outputs of it")
    texts = {"tokens": inputs["src_tokens"], "prev_output_tokens": inputs["prev_output_tokens"]}
    return sample | {"batch": sample["batch"] | texts | {"target": sample["target"]}}


def sequence_losses(model: Any, batch: Dict[str, Any], label_smoothing: float = 0.0) -> Iterator[tuple[Any, Any, int]]:
    """Yields the summed loss, the negative log-likelihood and the number of predictions of each stream of the decoder.

    Stream i, counted from 0, predicts ``target[:, t + i]`` at position t. Padding is not predicted.

    Called inside `forward` of an `XLEncoderDecoderModel`, with inputs and targets as in `XLDenoisingModel`, and label
    smoothing as in `OutputLayer.losses`.
    """
    for ahead, hidden in enumerate(model.teacher_forced(batch)):
        earlier = int(np.minimum(batch["target_lengths"], ahead).sum())  # tokens that this stream does not predict
        positions = batch["predicted_positions"][earlier:]
        selected = hidden.flatten(0, 1).index_select(0, positions - ahead)  # (N, C)
        target = batch["target"].flatten().index_select(0, positions)
        yield *model.decoder.output.losses(selected, target, label_smoothing), len(positions)


def sequence_terms(model: Any, batch: Dict[str, Any]) -> List[Term]:
    """A `Term` for each predicting stream of the decoder; arguments as in `sequence_losses`."""
    return [Term(loss, count) for loss, _, count in sequence_losses(model, batch)]


def decoder_target(target: torch.Tensor, pad: int) -> Batch:
    """Entries of a batch whose decoder predicts `target` (B, T), padded on the right.

    Returns: ``target``; ``predicted_positions`` (N,) of its tokens in the flattened target, in time-major order;
    ``target_lengths`` (B,), an array on the host, so that no loss waits for a GPU to know N.
    """
    is_token = target.numpy() != pad
    steps, rows = np.nonzero(is_token.T)
    positions = torch.from_numpy(rows * is_token.shape[1] + steps)
    return {"target": target, "predicted_positions": positions, "target_lengths": is_token.sum(axis=1)}


def decoder_input(target: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Decoder input ``[xx] y`` (B, T) for the target ``y </s>`` (B, T), with the language symbols `starts` (B, 1).

    Padded rows keep ``</s>`` before their padding, which changes no loss: the target there is padding.
    """
    return torch.cat((starts, target[:, :-1]), dim=1)
