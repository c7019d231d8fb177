"""Corpora that objectives sample from: token streams, documents, sentence pairs, and mixtures of languages."""
