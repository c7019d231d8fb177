"""Embeddings learned apart from any model, and mapped into one space (MonoTrans, M8: CLWE)."""
