"""Embeddings that are learned without a model and mapped into one space (CLWE, Artetxe et al. 2020, section 3.1)."""
