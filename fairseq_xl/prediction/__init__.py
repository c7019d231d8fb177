"""Predictions for unlabeled text, line by line. The command is `fairseq-xl predict`."""
