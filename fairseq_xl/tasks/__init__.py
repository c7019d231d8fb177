"""fairseq tasks: pre-training and translation."""
