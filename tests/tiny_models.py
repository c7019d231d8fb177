"""Sizes and weights of the small models that tests build."""

import torch

SIZES = dict(embed_dim=16, ffn_dim=32, heads=2, dropout=0.0, attention_dropout=0.0, max_positions=40)
#: without language embeddings, output as XLM-R's
DENSE = dict(language_embeddings="none", output_form="dense")


def randomized(model):
    """The model in float64 with random weights, biases and layer norms included."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double()
