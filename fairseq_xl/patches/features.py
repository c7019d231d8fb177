"""What the installed torch can do."""

import torch

#: whether torch has a loss that never holds all logits; new in torch 2.13
HAS_LINEAR_CROSS_ENTROPY = hasattr(torch.nn.functional, "linear_cross_entropy")
