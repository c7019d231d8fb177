"""Masking and text noise, from one random key for each example."""
