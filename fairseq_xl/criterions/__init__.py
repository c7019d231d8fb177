"""Criterions: combine and log the losses of objectives and task types."""
