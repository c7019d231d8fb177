"""Reader of WMT14 English-German and English-French: the official archives, and the news test sets of sacrebleu."""
