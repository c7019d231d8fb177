"""Prints source language, target language, source file and reference of the first test set in a corpus description."""

import sys
from pathlib import Path

from omegaconf import OmegaConf

path = Path(sys.argv[1])
for pair, splits in OmegaConf.load(path).get("bitext", {}).items():
    tests = splits.get("test", [])
    if tests:
        source, target = pair.split("-")
        prefix = path.parent / (tests if isinstance(tests, str) else tests[0])
        print(source, target, f"{prefix}.{source}", f"{prefix}.{target}", sep="\t")
        sys.exit()
sys.exit(f"{path}: no bitext pair has a test set, which the quickstart translates")
