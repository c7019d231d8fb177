"""Dry run of a training: counts its memory and updates."""
