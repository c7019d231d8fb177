"""Files of other programs: layouts of weights, vocabularies, tokenizers. Tables serve both directions."""
