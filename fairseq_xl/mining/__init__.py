"""Bitext and hard negatives, found by sentence embeddings, exactly or on disk."""
