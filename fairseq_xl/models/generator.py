"""Beam search and sampling with the decoders of this package.

Shapes: B sentences that are not finished, K hypotheses of a sentence (--beam), N candidates of a sentence, T tokens so
far, S source time, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from numpy.typing import NDArray
from torch import Tensor

from fairseq_xl.errors import UserError
from fairseq_xl.models.beams import BeamCaches, output_limits

Hypotheses = list[list[dict[str, Tensor]]]


@dataclass
class _ActiveSentences:
    """The sentences that are not finished, with K hypotheses each."""

    caches: list[BeamCaches]  # of each model
    tokens: Tensor  # (B * K, 1 + T), the first token included
    scores: Tensor  # (B * K, 1 + T): 0, then sums of log-probabilities
    ignored: np.ndarray  # (B, K): hypotheses that are finished already; only where there are few candidates
    first_rows: Tensor  # (B and more, 1): 0, K, 2 * K, ...
    source_lengths: Tensor  # (B,)
    limits: list[int]  # (B,): the maximum length of the outputs, without </s>
    ids: Tensor  # (B,): ids of the sentences in the data set
    rows: list[int]  # (B,): rows of the sentences in the batch
    prefix: Tensor | None  # (B, prefix length)
    attention: Tensor | None = None  # (B * K, S, T)

    @property
    def offsets(self) -> Tensor:
        """(B, 1): the row of the first hypothesis of each sentence."""
        return self.first_rows[: len(self.rows)]

    def keep_sentences(self, sentences: Tensor, indices: list[int]) -> None:
        """Selects sentences (B',), passed as a tensor and as a list, in what `select` does not change."""
        self.ids, self.source_lengths = self.ids[sentences], self.source_lengths[sentences]
        self.prefix = None if self.prefix is None else self.prefix[sentences]
        self.rows = [self.rows[index] for index in indices]
        self.limits = [self.limits[index] for index in indices]

    def select(self, hypotheses: Tensor, symbols: Tensor, scores: Tensor, sentences: Tensor | None) -> None:
        """Continues hypotheses, rows (B' * K,) of the previous ones, by their next symbols and scores (B', K)."""
        self.tokens = _extended(self.tokens.index_select(0, hypotheses), symbols)
        self.scores = _extended(self.scores.index_select(0, hypotheses), scores)
        if self.attention is not None:
            self.attention = self.attention.index_select(0, hypotheses)
        for caches in self.caches:
            caches.select(hypotheses, sentences)


class XLSequenceGenerator(SequenceGenerator):
    """fairseq's `SequenceGenerator` for decoders of this package; a step reads from the GPU which hypotheses end."""

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> Hypotheses:
        """The hypotheses of each sentence, best first; `UserError` for --min-len or --constraints that don't fit."""
        if constraints is not None and not self.search.supports_constraints:
            raise NotImplementedError("this search strategy does not support constraints")
        if constraints is None and self.search.supports_constraints:
            raise UserError("--constraints: only fairseq-interactive reads constraints, after a TAB in its input lines")
        self.search.init_constraints(constraints, self.beam_size)
        source = sample["net_input"]["src_tokens"]
        lengths = sample["net_input"].get("src_lengths")
        if lengths is None:
            lengths = (source.ne(self.eos) & source.ne(self.pad)).sum(dim=1)
        limits = self.limits(source, lengths)
        if constraints is not None:
            # (B, N): the first column of the packed constraints of a line is their number, 0 separates them
            counts = constraints[:, 1:].ne(0).sum(1).tolist()
            for pieces, longest in zip(counts, limits, strict=True):
                if pieces > longest:
                    raise UserError(
                        f"--constraints: the constraints of a line have {pieces} pieces, and a hypothesis has at most "
                        f"{longest}: raise --max-len-b"
                    )
        start, hypotheses = self.eos if bos_token is None else bos_token, [[] for _ in source]
        with torch.inference_mode():  # spares a tenth of the time of small operators
            beams = self._begin(sample, lengths, limits, prefix_tokens, start)
            for step in range(max(limits) + 1):  # one step more, for </s>
                if not self._step(step, beams, hypotheses):
                    break
        return _sort_by_score(hypotheses)

    def limits(self, source: Tensor, lengths: Tensor) -> list[int]:
        """Maximum length of the output, without </s>, for each source (B, S), with lengths (B,) for --match-source-len.

        It depends on the sentence alone; fairseq's depends on the longest source of the batch. Raises `UserError` for a
        --min-len above the maximum of every sentence.
        """
        longest = self.max_len - 1
        maximum = longest if self.max_len_a or self.match_source_len else min(self.max_len_b, longest)
        if self.min_len > maximum:
            raise UserError(f"--min-len {self.min_len} is larger than the maximum output length {maximum}")
        if self.match_source_len:
            limits = output_limits(lengths.tolist(), 1, 0, longest)
        else:
            # without --max-len-a they are not read from the GPU
            source_lengths = source.ne(self.pad).sum(dim=1).tolist() if self.max_len_a else [0] * len(source)
            limits = output_limits(source_lengths, self.max_len_a, self.max_len_b, longest)
        return [max(limit, self.min_len) for limit in limits]

    def _begin(
        self, sample: Any, lengths: Tensor, limits: list[int], prefix: Tensor | None, start: int
    ) -> _ActiveSentences:
        """The sentences before the first step, each with the symbol `start`."""
        source, beam = sample["net_input"]["src_tokens"], self.beam_size
        sentences = len(source)
        ids = sample.get("id")
        encoder_outs = self.model.forward_encoder(sample["net_input"])
        starts = source.new_full((sentences, 1), start)
        return _ActiveSentences(
            caches=[
                model.decoder.begin(encoder_out, starts, beam, max(limits) + 1)
                for model, encoder_out in zip(self.model.models, encoder_outs)
            ],
            tokens=source.new_full((sentences * beam, 1), start),
            scores=torch.zeros(sentences * beam, 1, device=source.device),
            ignored=np.zeros((sentences, beam), dtype=bool),
            first_rows=torch.arange(0, sentences * beam, beam, device=source.device)[:, None],
            source_lengths=lengths,
            limits=limits,
            ids=ids.to(source.device) if isinstance(ids, Tensor) else torch.arange(sentences, device=source.device),
            rows=list(range(sentences)),
            prefix=prefix,
        )

    def _step(self, step: int, beams: _ActiveSentences, hypotheses: Hypotheses) -> bool:
        """Extends each hypothesis by a token, adds those that end to `hypotheses`; returns whether sentences remain."""
        beam, sentences = self.beam_size, len(beams.rows)
        log_probabilities = self._allowed(step, self._log_probabilities(beams), beams)
        if getattr(self.search, "needs_src_lengths", False):
            self.search.set_src_lengths(beams.source_lengths)
        scores, symbols, parents = self.search.step(
            step,
            log_probabilities.view(sentences, -1, self.vocab_size),
            beams.scores.view(sentences, beam, -1)[:, :, 1:],
            beams.tokens,
            beams.ids,
        )  # (B, N) each
        closed = (symbols.eq(self.eos) & scores.ne(-math.inf)).cpu().numpy()
        ended = closed[:, :beam] & ~beams.ignored  # the others have ended before
        full = self._finish(step, beams, ended, parents, scores, hypotheses)
        ending = self.search.stop_on_max_len or all(hypotheses[beams.rows[row]] for row in full)
        assert ending, "an output of maximum length did not end"
        if len(full) == sentences:
            return False
        self._choose(beams, closed, full, (parents, symbols, scores))
        return True

    def _choose(
        self, beams: _ActiveSentences, closed: np.ndarray, full: set[int], candidates: tuple[Tensor, ...]
    ) -> None:
        """Continues K candidates of each sentence: the first that do not end; if they are too few, also ended ones.

        Candidates are the hypothesis that each continues, its symbol and its score, (B, N) each; `closed` ones (B, N)
        bool end, and the sentences `full` are finished.
        """
        device, beam = beams.tokens.device, self.beam_size
        closed[:, :beam] |= beams.ignored
        offsets, remaining = beams.offsets, None
        if full:
            rows = [row for row in range(len(closed)) if row not in full]
            closed, remaining = closed[rows], torch.tensor(rows).to(device, non_blocking=True)
            candidates = tuple(tensor[remaining] for tensor in candidates)
            offsets = offsets[remaining]
            beams.keep_sentences(remaining, rows)
            self.search.prune_sentences(remaining)
        order = closed.argsort(axis=1, kind="stable")[:, :beam]
        beams.ignored = np.take_along_axis(closed, order, axis=1)
        self.search.update_constraints(torch.from_numpy(order))
        if closed[:, :beam].any():
            indices = torch.from_numpy(order).to(device, non_blocking=True)
            candidates = tuple(tensor.gather(1, indices) for tensor in candidates)
        parents, symbols, scores = (tensor[:, :beam] for tensor in candidates)
        beams.select((parents + offsets).view(-1), symbols, scores, remaining)

    def _log_probabilities(self, beams: _ActiveSentences) -> Tensor:
        """Log-probabilities (B * K, V) of the next token, averaged over the models; stores their attention."""
        tokens = beams.tokens[:, -1].view(-1, self.beam_size)
        log_probs, attentions = [], []
        for model, caches in zip(self.model.models, beams.caches):
            decoder = model.decoder
            logits = decoder.output(decoder.next_features(tokens, caches))
            if self.temperature != 1:
                logits = logits.div_(self.temperature)
            log_probs.append(model.get_normalized_probs((logits, None), log_probs=True).flatten(0, 1))
            attentions += [] if decoder.attention is None else [decoder.attention.flatten(0, 1)]
        if attentions:
            attention = torch.stack(attentions).mean(dim=0)[:, :, None]
            earlier = [] if beams.attention is None else [beams.attention]
            beams.attention = torch.cat((*earlier, attention), dim=2)
        if len(log_probs) > 1:
            log_probs = [torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))]
        if self.lm_model is not None:
            output = self.lm_model(beams.tokens)
            log_probs[0] += self.lm_weight * self.lm_model.get_normalized_probs(output, log_probs=True)[:, -1]
        return log_probs[0]

    def _allowed(self, step: int, log_probs: Tensor, beams: _ActiveSentences) -> Tensor:
        """Log-probabilities (B * K, V) with -inf for what must not follow; changes the hypotheses to fit a prefix."""
        log_probs = log_probs.nan_to_num_(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        log_probs[:, self.pad] = -math.inf
        if self.unk_penalty:
            log_probs[:, self.unk] -= self.unk_penalty
        prefix = None if beams.prefix is None or step >= beams.prefix.size(1) else beams.prefix
        full = [step >= limit for limit in beams.limits]
        if any(full):
            ending = torch.tensor(full).to(log_probs.device, non_blocking=True)[:, None]
            for columns in (log_probs[:, : self.eos], log_probs[:, self.eos + 1 :]):
                columns.unflatten(0, (len(full), -1)).masked_fill_(ending[:, :, None], -math.inf)
            prefix = None if prefix is None or all(full) else prefix.masked_fill(ending, self.pad)
        if prefix is not None:
            log_probs, beams.tokens, beams.scores = self._prefix_tokens(
                step, log_probs, beams.scores, beams.tokens, prefix, self.beam_size
            )
        else:
            if step < self.min_len:
                log_probs[:, self.eos] = -math.inf
            if self.token_indices_to_suppress is not None:
                log_probs[:, self.token_indices_to_suppress] = -math.inf
        if self.repeat_ngram_blocker is not None:
            token = None if prefix is None else prefix[:, step]
            prior = log_probs if token is None else log_probs.clone()
            if self.repeat_ngram_blocker.no_repeat_ngram_size == 1:  # of single tokens fairseq finds no repetition
                log_probs = log_probs.scatter(1, beams.tokens[:, 1:], -math.inf)
            else:
                log_probs = self.repeat_ngram_blocker(beams.tokens, log_probs, len(beams.rows), self.beam_size, step)
            if token is not None:  # a prefix may repeat itself
                log_probs = torch.where(token.eq(self.pad).repeat_interleave(self.beam_size)[:, None], log_probs, prior)
        return log_probs

    @torch.inference_mode(False)  # the results are ordinary tensors
    def _finish(
        self,
        step: int,
        beams: _ActiveSentences,
        ended: np.ndarray,
        parents: Tensor,
        scores: Tensor,
        hypotheses: Hypotheses,
    ) -> set[int]:
        """Adds the candidates that end, `ended` (B, K), to `hypotheses`; returns the sentences that this finishes.

        Candidates continue the hypotheses `parents` (B, N), and have `scores` (B, N).
        """
        ends, full = np.argwhere(ended), {row for row, limit in enumerate(beams.limits) if step >= limit}
        if not len(ends):
            return full
        rows, slots = torch.from_numpy(ends).to(scores.device, non_blocking=True).unbind(dim=1)
        parents, totals = parents[rows, slots] + rows * self.beam_size, scores[rows, slots]
        tokens = torch.cat((beams.tokens[parents, 1:], beams.tokens.new_full((len(ends), 1), self.eos)), dim=1)
        positional = torch.cat((beams.scores[parents], totals[:, None]), dim=1).diff(dim=1)
        if self.normalize_scores:
            starts = self.model.models[0].decoder.num_starts  # with </s> in front of it, `[xx]` is part of the output
            totals = totals / (step + 1 + starts) ** self.len_penalty
        nothing = torch.empty(0)
        attention = [nothing] * len(ends) if beams.attention is None else beams.attention[parents]
        for (row, _), *values in zip(ends, tokens, totals, attention, positional):
            if len(hypotheses[beams.rows[row]]) < self.beam_size:
                names = ("tokens", "score", "attention", "positional_scores")
                hypotheses[beams.rows[row]].append(dict(zip(names, values)) | {"alignment": nothing})
        return full | {row for row, _ in ends if len(hypotheses[beams.rows[row]]) == self.beam_size}


class AligningGenerator(SequenceGeneratorWithAlignment, XLSequenceGenerator):
    """The generator with alignments that count source tokens after ``<s>``."""

    def __init__(self, models: Any, dictionary: Any, **options: Any):
        super().__init__(models, dictionary, **options)
        extract = self.extract_alignment  # type: ignore[has-type]

        def without_start(attention: Tensor, source: Tensor, *args: Any) -> Any:
            return extract(attention[:, 1:], source[1:], *args)

        self.extract_alignment = without_start


def generator_class(args: Any, models: Any, dictionary: Any) -> tuple[type | None, dict[str, Any]]:
    """The class of the generator (None: fairseq's, for --score-reference) and its further arguments.

    Its output lacks language symbols and ``<mask>``. With --print-alignment the models store the attention of the
    decoder's last layer, averaged over heads. `args` is a `GenerationConfig`.
    """
    if args.score_reference:
        if args.print_alignment:
            raise UserError("--print-alignment does not work with --score-reference")
        return None, {}
    hidden = {*range(dictionary.first_language, len(dictionary)), dictionary.mask_index, dictionary.eos()}
    options = {"symbols_to_strip_from_output": hidden}
    if not args.print_alignment:
        return XLSequenceGenerator, options
    for model in models:
        model.decoder.keep_attention()
    return AligningGenerator, options | {"print_alignment": args.print_alignment}


def restrict(generator: Any, allowed: NDArray[np.bool_]) -> None:
    """Lets a generator choose only symbols that are `allowed`, (V,) bool, and ``</s>``."""
    banned = torch.from_numpy(~allowed).to(next(generator.model.parameters()).device)
    banned[generator.eos] = False
    step = generator.search.step

    def restricted(index: int, log_probabilities: Tensor, *args: Any, **kwargs: Any) -> Any:
        return step(index, log_probabilities.masked_fill(banned, -math.inf), *args, **kwargs)

    generator.search.step = restricted


def generate(
    generator: Any, models: Any, sample: Any, dictionary: Any, pair: tuple[str, str], **inputs: Any
) -> Hypotheses:
    """The hypotheses of a batch of `EvaluationDataset` in the target language; those of an empty line are empty.

    The generator is fairseq's or an `XLSequenceGenerator`, `inputs` are its ``prefix_tokens`` and ``constraints``. The
    ``net_input`` of the batch gets the source language.
    """
    source = sample["net_input"]["src_tokens"]  # (B, S)
    languages = torch.full_like(source[:, 0], dictionary.language_id(pair[0]))
    sample["net_input"] = {"src_languages": languages} | sample["net_input"]
    with torch.no_grad():
        hypotheses = generator.generate(models, sample, bos_token=dictionary.language_symbol(pair[1]), **inputs)
    empty = source.ne(dictionary.pad()).sum(1).le(2).tolist()  # <s> </s>
    for beam, is_empty in zip(hypotheses, empty):
        for hypothesis in beam if is_empty else ():
            tokens = hypothesis["tokens"].new_tensor([dictionary.eos()])
            scores = hypothesis["positional_scores"].new_zeros(1)
            hypothesis.update(tokens=tokens, positional_scores=scores, score=scores.sum())
    return hypotheses


def _extended(rows: Tensor, new: Tensor) -> Tensor:
    """(B * K, T), (B, K) -> (B * K, T + 1)"""
    return torch.cat((rows.unflatten(0, new.shape), new[:, :, None]), dim=2).flatten(0, 1)


def _sort_by_score(hypotheses: Hypotheses) -> Hypotheses:
    """Sorts the hypotheses of each sentence by their scores, the best one first; reads all scores at once."""
    scores = [hypothesis["score"] for beam in hypotheses for hypothesis in beam]
    values = iter(torch.stack(scores).tolist() if scores else [])
    result = []
    for beam in hypotheses:
        order = torch.tensor([next(values) for _ in beam]).sort(descending=True).indices.tolist()
        result.append([beam[index] for index in order])
    return result
