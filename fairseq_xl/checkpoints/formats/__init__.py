"""Layouts of weights and vocabularies of other programs; one table of names serves both directions."""
