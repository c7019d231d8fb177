"""Files of other programs: layouts of weights, vocabularies, tokenizers."""
