"""Batches of an epoch, of a pass over the data and of an evaluation, as pure functions."""
