"""XLM's translation model as its authors' program computes it, one sentence at a time, without dropout and caches.

Parameters and keys have the names of XLM's files; nothing of fairseq_xl is used. Shapes: T tokens, S of the source,
C channels.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Queries of a sequence to keys and values of another or the same one."""

    def __init__(self, heads, channels):
        super().__init__()
        self.heads = heads
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(channels, channels) for _ in range(4))

    def forward(self, hidden, source, visible):
        """(T, C), (S, C), visible (T, S) bool -> (T, C)"""
        width, found = hidden.size(1) // self.heads, []
        query, key, value = self.q_lin(hidden) / math.sqrt(width), self.k_lin(source), self.v_lin(source)
        for head in range(self.heads):
            part = slice(head * width, (head + 1) * width)
            scores = (query[:, part] @ key[:, part].t()).masked_fill(~visible, -math.inf)
            found.append(scores.softmax(-1) @ value[:, part])
        return self.out_lin(torch.cat(found, dim=1))


class FeedForward(nn.Module):
    """Two linear maps around GELU, as erf has it, or ReLU."""

    def __init__(self, channels, gelu):
        super().__init__()
        self.lin1, self.lin2, self.gelu = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels), gelu

    def forward(self, hidden):
        """(T, C) -> (T, C)"""
        inner = self.lin1(hidden)
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2))) if self.gelu else F.relu(inner)
        return self.lin2(inner)


class Prediction(nn.Module):
    """The output layer."""

    def __init__(self, channels, words):
        super().__init__()
        self.proj = nn.Linear(channels, words)


class Transformer(nn.Module):
    """Encoder or decoder, by `params` as the file has them."""

    def __init__(self, params, words, is_encoder):
        super().__init__()
        channels, layers, heads = params["emb_dim"], params["n_layers"], params["n_heads"]
        self.position_embeddings = nn.Embedding(params["positions"], channels)
        self.lang_embeddings = nn.Embedding(params["n_langs"], channels)
        self.embeddings = nn.Embedding(words, channels)
        self.layer_norm_emb = nn.LayerNorm(channels, eps=1e-12)
        self.attentions = nn.ModuleList(Attention(heads, channels) for _ in range(layers))
        self.layer_norm1 = nn.ModuleList(nn.LayerNorm(channels, eps=1e-12) for _ in range(layers))
        if not is_encoder:
            self.encoder_attn = nn.ModuleList(Attention(heads, channels) for _ in range(layers))
            self.layer_norm15 = nn.ModuleList(nn.LayerNorm(channels, eps=1e-12) for _ in range(layers))
        self.ffns = nn.ModuleList(FeedForward(channels, params["gelu_activation"]) for _ in range(layers))
        self.layer_norm2 = nn.ModuleList(nn.LayerNorm(channels, eps=1e-12) for _ in range(layers))
        self.pred_layer = Prediction(channels, words)
        self.pred_layer.proj.weight = self.embeddings.weight

    def forward(self, tokens, language, source=None):
        """Tokens (T,), the number of their language, an encoder's states (S, C) for a decoder -> (T, C)"""
        count = len(tokens)
        visible = torch.ones(count, count, dtype=torch.bool)
        visible = visible if source is None else visible.tril()
        hidden = self.embeddings(tokens) + self.position_embeddings.weight[:count]
        hidden = self.layer_norm_emb(hidden + self.lang_embeddings.weight[language])
        for layer, attention in enumerate(self.attentions):
            hidden = self.layer_norm1[layer](hidden + attention(hidden, hidden, visible))
            if source is not None:
                update = self.encoder_attn[layer](hidden, source, torch.ones(count, len(source), dtype=torch.bool))
                hidden = self.layer_norm15[layer](hidden + update)
            hidden = self.layer_norm2[layer](hidden + self.ffns[layer](hidden))
        return hidden


def translate(encoder, decoder, words, languages, eos, longest):
    """Greedy search: words (S,) without `eos` and (source, target) -> (words, log-probabilities), `eos` included.

    No more than `longest` words before `eos`, which is forced then.
    """
    states = encoder(torch.tensor([eos, *words, eos]), languages[0])
    written, scores = [eos], []
    while len(scores) <= longest:
        logits = decoder.pred_layer.proj(decoder(torch.tensor(written), languages[1], states)[-1])
        best = eos if len(scores) == longest else int(logits.argmax())
        scores.append(float(logits.log_softmax(-1)[best]))
        written.append(best)
        if best == eos:
            break
    return written[1:], scores
