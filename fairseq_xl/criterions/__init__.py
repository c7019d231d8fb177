"""Criterions, which combine and log the losses that objectives compute inside the model."""
