"""Dry run of a training: counts its memory and updates, and trains a tiny model for two updates."""

DEADLINE = 300.0  # seconds that the two updates of a configuration may take
