"""Initial weights. Shapes: C channels."""

import math

import torch
from torch import Tensor, nn

from fairseq_xl.modules.embeddings import PositionEmbeddings


def init_weights(module: nn.Module, std: float) -> None:
    """Initializes a module as BERT does, for `model.apply`: weights N(0, std^2), biases and the padding row zero.

    All models do so, which makes them comparable; XLM's code has N(0, 1/C) for embeddings and torch's defaults
    elsewhere. LayerNorms keep torch's ones and zeros. `PositionEmbeddings` may start from sinusoids.
    """
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        nn.init.zeros_(module.weight[module.padding_idx])
    if isinstance(module, PositionEmbeddings) and module.sinusoidal:
        table = module.weight.data[module.offset :]
        # a sinusoid's mean square is 1/2: the factor gives the table the size of the other embeddings
        table.copy_(sinusoids(len(table), table.size(1), module.max_positions) * math.sqrt(2) * std)


def sinusoids(positions: int, channels: int, max_wavelength: float) -> Tensor:
    """Sines, then cosines, of the positions (Vaswani et al. 2017, section 3.5): (positions, C).

    Args:
        max_wavelength: the longest wavelength, in positions. Wavelengths are a geometric series that begins at 2π.
            Vaswani et al. use up to 20000π, at which most channels are nearly constant over a short input.
    """
    half = (channels + 1) // 2
    wavelengths = torch.logspace(math.log2(2 * math.pi), math.log2(max_wavelength), half, base=2)
    angles = torch.arange(positions)[:, None] * 2 * math.pi / wavelengths  # (positions, half)
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :channels]
