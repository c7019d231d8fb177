"""Word in Context (WiC): does a word have the same sense in two sentences? (Artetxe et al. 2020).

    fairseq-xl probe wic runs/my/en/checkpoint_best.pt data-bin/en WiC_dataset/train/train WiC_dataset/dev/dev

TRAIN and TEST are prefixes of WiC's files: PREFIX.data.txt and PREFIX.gold.txt; the paper has the scores of the
development set. A logistic regression is trained on frozen hidden states of the last layer. `pair`: the first hidden
state of both sentences as one input (the paper does not say which state represents a pair); `words`: the hidden states
of the two words, averaged over their pieces, with their absolute difference and their product. Features are
standardized. `majority` is the accuracy of the more frequent class of the training pairs.
"""

from typing import Any

import numpy as np

from fairseq_xl.commands import PROBED, Options, argument, command
from fairseq_xl.evaluation.probing_tasks import logistic_regression_accuracy, majority, read_wic
from fairseq_xl.io.versions import version


@command(
    *PROBED,
    argument("train", "prefix of the training files, such as WiC_dataset/train/train"),
    argument("test", "prefix of the test files"),
)
def main(options: Options) -> dict[str, Any]:
    train, test = read_wic(options.train), read_wic(options.test)
    from fairseq_xl.inference.embedder import embedder_of
    from fairseq_xl.inference.probing import both_words, pair_hidden_states

    embedder = embedder_of(options)
    labels, gold = ([bool(pair.label) for pair in pairs] for pairs in (train, test))
    result: dict[str, Any] = {"train": len(train), "n": len(test), "majority": majority(labels, gold)}
    features: dict[str, list[np.ndarray]] = {"pair": [], "words": []}
    for pairs in (train, test):
        features["pair"].append(pair_hidden_states(embedder, pairs, options.lang))
        first, second = both_words(embedder, pairs, options.lang)
        features["words"].append(np.concatenate((first, second, np.abs(first - second), first * second), axis=1))
    for name, (train_features, test_features) in features.items():
        result[name] = logistic_regression_accuracy(train_features, labels, test_features, gold)
    versions = {package: version(package) for package in ("fairseq_xl", "torch", "scikit-learn")}
    return {"probe": "wic", "versions": versions} | result
