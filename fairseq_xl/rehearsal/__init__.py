"""Rehearsals: what a training would need and do, counted on the meta device, and two updates of it on a tiny model."""
