"""Scores from files: nothing here imports a model."""
