"""Warns of characters, or pieces of XLM, that a vocabulary lacks."""

import logging
from collections import Counter

from preprocess import vocabulary
from preprocess.binarize import encoded_name
from preprocess.run import Run

NAMED = 10  # lost characters of each text that a warning names

logger = logging.getLogger("preprocess")


def warn(run: Run, encodings: dict[str, dict], learned: bool) -> None:
    """Warns of characters, or pieces of XLM, that become <unk>, most frequent first.

    The warning for training text has a remedy; another one lists those of validation and test text only.

    Args:
        encodings: results of `encode` by encoded name.
        learned: whether the sub-words are those of this text.
    """
    subwords, size = run.subwords.open(), run.config.vocabulary.size
    lost, elsewhere = {}, {}  # {language: counts}, {"language split": counts}
    for folder, split, side in run.config.sides():
        for shard in run.shards_of(split):
            side_counts = encodings[encoded_name(folder, split.name, side.language, shard)]["lost"]
            if split.name == "train":
                lost.setdefault(side.language, Counter()).update(side_counts)
            else:
                elsewhere.setdefault((side.language, split.name), Counter()).update(side_counts)
    alone = {
        f"{language} {split}": Counter({char: counts[char] for char in counts.keys() - lost.get(language, {})})
        for (language, split), counts in elsewhere.items()
    }
    if any(alone.values()):
        logger.warning(
            "vocabulary: %s of validation and test text that become <unk> and are not in the training text of "
            "their language, with their counts: %s",
            subwords.units,
            _most_common(alone),
        )
    if not any(lost.values()):
        return
    if not learned:
        keep = "a vocabulary that is learned from this text keeps them"
    elif run.subwords.kind == "xlm" and len(subwords.symbols) > size:
        keep = "a larger `size` of the vocabulary keeps them"
    elif run.subwords.kind != "xlm" and (run.config.vocabulary.coverage or 0) < vocabulary.ALL:
        keep = f"`vocabulary: {{coverage: {vocabulary.ALL}}}` in the description keeps them"
    else:
        keep = "`vocabulary: {sentences: N, alpha: 1}` with a large N learns from all sentences"
    logger.warning(
        "vocabulary: %s of the training text that become <unk>, with their counts: %s; %s",
        subwords.units,
        _most_common(lost),
        keep,
    )


def _most_common(counts: dict[str, Counter]) -> str:
    """Formats the most frequent characters of each text, with their counts."""
    return "; ".join(
        f"{name}: "
        + ", ".join(f"{char!r} ({count})" for char, count in counter.most_common(NAMED))
        + (f" and {len(counter) - NAMED} more" if len(counter) > NAMED else "")
        for name, counter in counts.items()
        if counter
    )
