"""Random initial weights."""

from torch import nn


def init_weights(module: nn.Module, std: float) -> None:
    """Initializes a module as BERT does, for `model.apply`: weights N(0, std^2), biases and the padding row zero.

    All models do so, which makes them comparable; XLM's code has N(0, 1/C) for embeddings and torch's defaults
    elsewhere. LayerNorms keep torch's ones and zeros.
    """
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        nn.init.zeros_(module.weight[module.padding_idx])
