"""How parameters start."""

from torch import nn


def initialise(module: nn.Module, std: float) -> None:
    """BERT's initialisation, for `model.apply`: N(0, std^2) weights, zero biases, a zero row for padding.

    The same in every model, so that models compare; XLM's code has tables N(0, 1/C) and torch's default elsewhere.
    LayerNorms keep torch's ones and zeros.
    """
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        nn.init.zeros_(module.weight[module.padding_idx])
