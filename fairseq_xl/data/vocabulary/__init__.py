"""From a line of text to ids: tokenizers, sub-words, the dictionary."""
