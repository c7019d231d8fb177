"""A trained model in use: embeddings, predictions, masked words, scores, text."""
