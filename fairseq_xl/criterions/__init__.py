"""fairseq criterions: they combine and log what the objectives computed inside the model."""
