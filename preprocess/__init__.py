"""From raw text to a data-bin: ``python -m preprocess CONFIG.yaml DATA_BIN``."""
