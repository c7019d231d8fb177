"""From raw text to a data folder: ``fairseq-xl data``."""
