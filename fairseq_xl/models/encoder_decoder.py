"""Encoder-decoder models for translation and generation.

Shapes: B batch, S source time, T target time, C channels, V vocabulary.
"""

import contextlib
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from fairseq.models import BaseFairseqModel, FairseqIncrementalDecoder
from torch import Tensor

from fairseq_xl.errors import UserError
from fairseq_xl.models.beams import BACK_TRANSLATION, BeamCaches, masked_attention, output_limits
from fairseq_xl.models.encoder import Encoder, stack_packings
from fairseq_xl.models.model_options import EncoderDecoderConfig
from fairseq_xl.modules.attention import Cache, LayerCache, SelfAttention, attend
from fairseq_xl.modules.embeddings import Embeddings, TokenEmbeddings, init_weights
from fairseq_xl.modules.layer import Layer, final_norm
from fairseq_xl.modules.output import OutputLayer
from fairseq_xl.modules.stack import Stack

EncoderOut = Dict[str, List[Tensor]]
#: result of `fairseq_xl.modules.packing.find_packing`
PackingTensors = Optional[Dict[str, Tensor]]
#: fairseq's dict of a decoder's state between steps; here the caches of its layers, in order
IncrementalState = Dict[str, List[LayerCache]]


class SourceEncoder(Encoder):
    """`Encoder` with the interface of fairseq's generator."""

    def forward(  # type: ignore[override]  # the inputs of fairseq's generator
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        src_languages: Optional[Tensor] = None,
        src_packing: PackingTensors = None,
    ) -> EncoderOut:
        """(B, S) -> encoder_out (B, S, C) and encoder_padding_mask (B, S), lists of one as fairseq has them.

        Args:
            src_tokens: (B, S) ids, padded on either side
            src_lengths: (B,), ignored: padding is found by its symbol
            src_languages: (B,) language ids; a model with language embeddings needs them
            src_packing: `fairseq_xl.modules.packing.find_packing` of the tokens, or None

        The list of padding masks is empty when nothing is padded, except in training on a GPU, where finding out would
        wait for the GPU.
        """
        pad: Any = self.token_embeddings.table.padding_idx
        is_padding = src_tokens.eq(pad)
        reads = src_packing is None and (not self.training or is_padding.device.type == "cpu")
        padding_mask = None if reads and not is_padding.any() else is_padding
        languages = None if src_languages is None else src_languages[:, None]
        return self.encode(src_tokens, languages, padding_mask, src_packing)

    def encode(
        self,
        tokens: Tensor,
        languages: Optional[Tensor],
        padding_mask: Optional[Tensor],
        packing: PackingTensors = None,
    ) -> EncoderOut:
        """Tokens (B, S), languages (B, S) or (B, 1), padding mask (B, S) or None, packing -> as `forward`."""
        hidden: Any = super().forward(tokens, languages=languages, padding_mask=padding_mask, packing=packing)
        return {"encoder_out": [hidden], "encoder_padding_mask": [] if padding_mask is None else [padding_mask]}

    def forward_torchscript(self, net_input: Dict[str, Any]) -> EncoderOut:
        """fairseq's entry for generation: `forward` without the decoder's input."""
        decoder_inputs = ("prev_output_tokens", "target_packing")
        return self.forward(**{name: value for name, value in net_input.items() if name not in decoder_inputs})

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """The rows `new_order` (B',) of `forward`'s result."""
        return {name: [tensor.index_select(0, new_order) for tensor in values] for name, values in encoder_out.items()}

    def max_positions(self) -> int:
        return self.embeddings.max_positions


class Decoder(FairseqIncrementalDecoder):
    """Layers with cross-attention and a causal mask, and the output layer.

    The first token of its input, the symbol `[xx]`, is the language of the output.

    The token embeddings, with output bias, are parameters of the decoder unless they are `shared`. `self_attention` and
    `extra_positions` are as in `Layer` and `Embeddings`.
    """

    def __init__(
        self,
        cfg: EncoderDecoderConfig,
        dictionary: Any,
        token_embeddings: TokenEmbeddings,
        shared: bool,
        self_attention: Callable[..., SelfAttention] = SelfAttention,
        extra_positions: int = 0,
    ):
        super().__init__(dictionary)
        if not shared:
            self.token_embeddings = token_embeddings
        self.embeddings = Embeddings(cfg, token_embeddings, dictionary.num_languages, extra_positions)
        self.layers = Stack(Layer(cfg, True, self_attention) for _ in range(cfg.decoder_layers))
        self.final_norm = final_norm(cfg)
        self.output = OutputLayer(cfg, token_embeddings)
        # symbols </s> in front of `[xx]`
        self.num_starts = int(str(getattr(cfg, "decoder_start", "language")) == "eos")

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[IncrementalState] = None,
        packing: PackingTensors = None,
        memory_packing: PackingTensors = None,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """(B, T) -> logits (B, T, V), or (B, 1, V) with an incremental state; see `extract_features`.

        After `keep_attention` also the weights of the last layer's cross-attention, (B, T, S) or (B, 1, S).
        """
        hidden, _ = self.extract_features(prev_output_tokens, encoder_out, incremental_state, packing, memory_packing)
        return self.output(hidden), self.attention

    @property
    def attention(self) -> Optional[Tensor]:
        """The latest weights of the last layer's cross-attention, (B, T, S), after `keep_attention`."""
        layer: Any = self.layers[-1]
        return layer.cross_attention.weights

    def keep_attention(self) -> None:
        """Makes `forward` return attention weights, for --print-alignment."""
        layer: Any = self.layers[-1]
        layer.cross_attention.keeps_weights = True

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[IncrementalState] = None,
        packing: PackingTensors = None,
        memory_packing: PackingTensors = None,
    ) -> Tuple[Tensor, None]:
        """(B, T) -> hidden states (B, T, C)

        Args:
            prev_output_tokens: (B, T) ids `[xx] y`, the whole prefix also with an incremental state. Padding is on the
                right, where the causal mask hides it, and needs no padding mask
            encoder_out: result of `SourceEncoder.forward`; None skips cross-attention
            incremental_state: caches of earlier steps, {} at the first step: only the last position is computed
            packing: packing of the targets (same padding as the decoder input); pass it with `memory_packing`
            memory_packing: packing of the source

        Raises:
            UserError: the first token is not a language symbol, where the model has language embeddings
        """
        languages = self._languages(prev_output_tokens, incremental_state)
        # the packing of the targets has no place for </s>, and a stack packs the memory only together with the targets
        first_position, packings = 0, (packing, memory_packing) if not self.num_starts else (None, None)
        inputs = dict(encoder_out=encoder_out, incremental_state=incremental_state, packings=packings)
        starts = torch.full_like(prev_output_tokens[:, : self.num_starts], self.dictionary.eos())
        if incremental_state is None:
            prev_output_tokens = torch.cat((starts, prev_output_tokens), dim=1)
        else:
            first_position = self.num_starts + prev_output_tokens.size(1) - 1
            if first_position == self.num_starts == 1:
                self.new_features(starts, languages, 0, **inputs)
            prev_output_tokens = prev_output_tokens[:, -1:]
        hidden = self.new_features(prev_output_tokens, languages, first_position, **inputs)
        return hidden if incremental_state is not None else hidden[:, self.num_starts :], None

    def new_features(self, tokens: Tensor, languages: Optional[Tensor], first_position: int, **inputs: Any) -> Tensor:
        """(B, T) -> hidden states (B, T, C)

        Args:
            tokens: (B, T) ids, without those whose keys and values are in the caches
            languages: (B, 1) language ids of the output; None for a model without language embeddings
            first_position: number of tokens before `tokens`
            inputs: `encoder_out`, `incremental_state` and `packings` of `through_layers`
        """
        hidden = self.embeddings(tokens, languages=languages, first_position=first_position)
        return self.through_layers(hidden, **inputs)

    def through_layers(
        self,
        hidden: Tensor,
        encoder_out: Optional[EncoderOut],
        incremental_state: Optional[IncrementalState],
        attend: Callable[..., Tensor] = attend,
        attend_memory: Callable[..., Tensor] = attend,
        packings: Tuple[PackingTensors, PackingTensors] = (None, None),
    ) -> Tensor:
        """(B, T, C) -> (B, T, C), with the packings of tokens and memory; the rest as in `extract_features`.

        The attention functions of self-attention and cross-attention are for sequences that are not packed, that of
        cross-attention for an incremental state only.
        """
        memory, memory_padding_mask = None, None
        if encoder_out is not None:
            memory = encoder_out["encoder_out"][0]
            memory_padding_mask = next(iter(encoder_out["encoder_padding_mask"]), None)
        inputs = dict(causal=True, memory=memory, memory_padding_mask=memory_padding_mask, attend=attend)
        if incremental_state is None:
            return self.final_norm(self.layers(hidden, **inputs, **stack_packings(*packings)))
        for layer, cache in zip(self.layers, self.caches(incremental_state)):
            hidden = layer(hidden, cache=cache, attend_memory=attend_memory, **inputs)
        return self.final_norm(hidden)

    def begin(self, encoder_out: EncoderOut, starts: Tensor, beam: int, longest: int) -> BeamCaches:
        """Begins a search with `beam` hypotheses of at most `longest` tokens; returns the caches for `next_features`.

        `encoder_out` is that of `SourceEncoder.forward`, one row per sentence; `starts` (B, 1) are the symbols `[xx]`
        that begin the decoder's input. Raises `UserError` as `extract_features` does.
        """
        caches = BeamCaches(self.layers, encoder_out, self._languages(starts, {}), beam, longest + self.num_starts)
        for _ in range(self.num_starts):
            self.next_features(torch.full_like(starts, self.dictionary.eos()).repeat(1, beam), caches)
        return caches

    def next_features(self, tokens: Tensor, caches: BeamCaches) -> Tensor:
        """The last tokens of K hypotheses of each sentence, (B, K) -> hidden states that predict the next, (B, K, C).

        Equal to the last position of `extract_features` for each hypothesis. The caches get one more position.
        """
        hidden = self.embeddings(tokens, self._next_position(caches), caches.languages)
        return self._through_caches(hidden, caches, masked_attention(caches.history_mask()))

    def _next_position(self, caches: BeamCaches) -> int:
        """Advances the caches; returns their position."""
        if caches.length >= self.embeddings.max_positions:
            longest = self.embeddings.max_positions
            raise UserError(f"A sequence of {longest + 1} tokens is longer than --max-positions {longest}")
        caches.advance()
        return caches.length - 1

    def _through_caches(self, hidden: Tensor, caches: BeamCaches, attend: Callable[..., Tensor]) -> Tensor:
        """As `through_layers`; for inputs (B, K, C) of K hypotheses at the current position."""
        masks = [] if caches.padding_mask is None else [caches.padding_mask]
        memory = {"encoder_out": [caches.memory], "encoder_padding_mask": masks}
        return self.through_layers(hidden, memory, {"caches": caches.layer_caches()}, attend, caches.attend_memory)

    def caches(self, incremental_state: IncrementalState) -> List[LayerCache]:
        """The cache of each layer, which {} gets at the first step."""
        return incremental_state.setdefault("caches", [LayerCache(Cache(), Cache()) for _ in self.layers])

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Selects the rows `new_order` (B',) of the caches; fairseq's beam search calls it before each step."""
        for layer_cache in incremental_state.get("caches", ()):
            for cache in layer_cache:
                cache.reorder(new_order)

    def _languages(self, prev_output_tokens: Tensor, incremental_state: Optional[IncrementalState]) -> Optional[Tensor]:
        """(B, 1) language ids of the first tokens, None for a model without language embeddings."""
        if self.embeddings.languages is None:
            return None
        languages = prev_output_tokens[:, :1] - self.dictionary.first_language
        # Reading values stalls a GPU, where it is done in generation only. Later steps have the same first tokens.
        first_step = incremental_state is not None and prev_output_tokens.size(1) == 1
        if first_step or (incremental_state is None and languages.device.type == "cpu"):
            wrong = (languages < 0) | (languages >= self.dictionary.num_languages)
            if wrong.any():
                symbol = self.dictionary[int(prev_output_tokens[:, :1][wrong][0])]
                raise UserError(f"The decoder's input must begin with a language symbol like [en], not with {symbol}")
        return languages

    def max_positions(self) -> int:
        return self.embeddings.max_positions - self.num_starts


class XLEncoderDecoderModel(BaseFairseqModel):
    """Encoder and decoder for fairseq's criterions and generator (Lample & Conneau 2019, sections 4.2 and 4.3).

    Names in the state dict: `encoder.*` as in `XLEncoderModel`; `decoder.*` likewise, with
    `decoder.layers.N.cross_attention.{query,key_value,out}.*`, `decoder.layers.N.cross_attention_norm.*`,
    `decoder.output.*`, with pre-LN `decoder.final_norm.*`. The output bias is in the decoder's token embeddings, and
    with --share-embeddings in the encoder's, which are the only ones.
    """

    backbone = "a Transformer"  # as in `XLEncoderModel`
    decoder_class: type[Decoder] = Decoder

    def __init__(self, cfg: EncoderDecoderConfig, dictionary: Any):
        super().__init__()
        self.cfg = cfg
        size, pad = len(dictionary), dictionary.pad()
        share = getattr(cfg, "share_embeddings", None) is not False  # without the option, as in xDAE, always
        source = TokenEmbeddings(size, cfg.embed_dim, pad, output_bias=share)
        target = source if share else TokenEmbeddings(size, cfg.embed_dim, pad, output_bias=True)
        self.encoder = SourceEncoder(cfg, source, cfg.encoder_layers, dictionary.num_languages)
        self.decoder = self.decoder_class(cfg, dictionary, target, share)
        self.apply(partial(init_weights, std=cfg.init_std))

    @classmethod
    def build_model(cls, cfg: EncoderDecoderConfig, task: Any) -> "XLEncoderDecoderModel":
        return cls(cfg, task.dictionary)

    def forward(
        self,
        src_tokens: Optional[Tensor] = None,
        src_lengths: Optional[Tensor] = None,
        prev_output_tokens: Optional[Tensor] = None,
        src_languages: Optional[Tensor] = None,
        src_packing: PackingTensors = None,
        target_packing: PackingTensors = None,
        *,
        compute: Optional[Callable] = None,
        batch: Any = None,
    ) -> Any:
        """Source (B, S), its languages (B,), decoder input (B, T) -> logits (B, T, V); see `Decoder.forward`.

        The packings are those of source and target, `find_packings` of `modules/packing.py`. With `compute`, a function
        such as a loss, returns `compute(self, batch)` instead, as `XLEncoderModel` does.
        """
        if compute is not None:
            return self.run_compute(compute, batch)
        encoder_out = self.encoder(src_tokens, src_lengths, src_languages, src_packing)
        return self.decoder(prev_output_tokens, encoder_out, packing=target_packing, memory_packing=src_packing)

    def run_compute(self, compute: Callable, batch: Any) -> Any:
        """Returns `compute(self, batch)`, with one gradient for each embedding matrix."""
        embeddings = {
            module.token_embeddings for module in (self.encoder, self.decoder) if hasattr(module, "token_embeddings")
        }
        with contextlib.ExitStack() as stack:
            for token_embeddings in embeddings:
                stack.enter_context(token_embeddings.one_gradient())
            return compute(self, batch)

    def teacher_forced(self, batch: Any) -> List[Tensor]:
        """Hidden states (B, T, C) of each stream for ``prev_output_tokens``; stream i predicts ``target[:, t + i]``."""
        encoder_out = self.encoder.encode(
            batch["tokens"], batch["languages"], batch["padding_mask"], batch.get("packing")
        )
        packings = {"packing": batch.get("target_packing"), "memory_packing": batch.get("packing")}
        hidden, _ = self.decoder.extract_features(batch["prev_output_tokens"], encoder_out, **packings)
        return [hidden]

    @torch.no_grad()
    def translate(self, batch: Dict[str, Any], starts: Tensor, allowed: Tensor) -> Tensor:
        """Translates ``tokens`` greedily, in evaluation mode: (B, T), rows ``y </s>`` padded on the right.

        The most probable of the `allowed` symbols is chosen at each step. A translation has the limit of length
        `BACK_TRANSLATION`, and fits into --max-positions as a source, with ``<s>`` and ``</s>``.

        The batch has ``tokens`` (B, S), ``padding_mask`` (B, S) or None and ``languages`` (B, 1). Language symbols
        `starts` (B, 1) begin the decoder's input; `allowed` is (V,) bool.
        """
        pad, eos = self.decoder.dictionary.pad(), self.decoder.dictionary.eos()
        banned, was_training = ~allowed, self.training
        self.eval()
        try:
            encoder_out = self.encoder.encode(batch["tokens"], batch["languages"], batch["padding_mask"])
            source_lengths = batch["tokens"].ne(pad).sum(1).tolist()
            limits = output_limits(source_lengths, *BACK_TRANSLATION, self.decoder.max_positions() - 2)
            longest = starts.new_tensor(limits)
            caches = self.decoder.begin(encoder_out, starts, 1, max(limits) + 1)
            symbols, rows = starts, torch.arange(len(starts), device=starts.device)
            finished = torch.full((len(starts), max(limits) + 1), pad, device=starts.device)
            for step in range(finished.size(1)):
                hidden = self.decoder.next_features(symbols, caches)
                logits = self.decoder.output(hidden[:, 0]).masked_fill_(banned, float("-inf"))
                if step == 0:  # no empty translations
                    logits[:, eos] = float("-inf")
                symbols = torch.where(longest[rows] == step, eos, logits.argmax(dim=1))[:, None]
                finished[rows, step] = symbols[:, 0]
                open_rows = symbols[:, 0].ne(eos).nonzero()[:, 0]
                if len(open_rows) == 0:
                    return finished[:, : step + 1]
                if len(open_rows) < len(rows):  # finished rows cost nothing
                    rows, symbols = rows[open_rows], symbols[open_rows]
                    caches.select(open_rows, open_rows)
            return finished
        finally:
            self.train(was_training)

    def max_positions(self) -> Tuple[int, int]:
        return self.encoder.max_positions(), self.decoder.max_positions()

    def max_decoder_positions(self) -> int:
        """Longest target, in tokens; the generator stops there."""
        return self.decoder.max_positions()
