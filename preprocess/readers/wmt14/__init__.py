"""WMT14 English-German and English-French: the official archives and, from sacrebleu, the news test sets."""
