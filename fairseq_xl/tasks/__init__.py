"""fairseq tasks: pre-training, translation and classification."""
