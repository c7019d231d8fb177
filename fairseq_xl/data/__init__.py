"""Corpora, framing, masking, text noise and the plan of an epoch; imports no other part of the plugin."""
