"""Prints source language, target language, source file and reference of the first test set in a corpus description."""

import sys

from preprocess.config import PreprocessError, read_config

try:
    config, _ = read_config(sys.argv[1])  # `python -m preprocess` tells what is wrong in it
except PreprocessError as error:
    sys.exit(str(error))
for folder, split, target in config.sides():
    source = split.sides[0]
    if split.name == "test" and target is not source:
        files = (config.root / side.files[0] for side in (source, target))
        print(source.language, target.language, *files, sep="\t")
        sys.exit()
sys.exit(f"{sys.argv[1]}: no bitext pair has a test set, which the quickstart translates")
