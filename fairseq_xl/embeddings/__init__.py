"""Embeddings learned without a model and mapped into one space, a baseline (CLWE, Artetxe et al. 2020, section 3.1)."""
