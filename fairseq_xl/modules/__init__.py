"""Building blocks of models: they depend on tensors only, not on tasks or files."""
