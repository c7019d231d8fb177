"""Stanford's Contextual Word Similarities (SCWS), with frozen hidden states (Artetxe et al. 2020).

    fairseq-xl probe scws runs/my/en/checkpoint_best.pt data-bin/en ratings.txt

The similarity of two words in their contexts is the cosine of the last layer's hidden states, averaged over the pieces
of each word. Prints Spearman's correlation, times 100, of the mean ratings with this cosine (`context`) and with the
cosine of the token embeddings, which have no context (`embeddings`). Chance is 0.
"""

from typing import Any

from fairseq_xl.commands import PROBED, Options, argument, command
from fairseq_xl.evaluation.bootstrap import correlation, spearman
from fairseq_xl.evaluation.probing_tasks import read_scws
from fairseq_xl.evaluation.word_embeddings import cosines
from fairseq_xl.io.versions import version


@command(*PROBED, argument("ratings", "SCWS's ratings.txt"))
def main(options: Options) -> dict[str, Any]:
    pairs = read_scws(options.ratings)
    from fairseq_xl.inference.embedder import embedder_of
    from fairseq_xl.inference.probing import both_words, word_embeddings

    embedder = embedder_of(options)
    gold = [pair.label for pair in pairs]
    result = {"probe": "scws", "versions": {name: version(name) for name in ("fairseq_xl", "torch")}, "n": len(pairs)}
    for name, vectors in (("context", both_words), ("embeddings", word_embeddings)):
        first, second = vectors(embedder, pairs, options.lang)
        result[name] = correlation(spearman, cosines(first, second), gold)
    return result | {"chance": 0.0}
