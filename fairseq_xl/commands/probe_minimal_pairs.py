"""Minimal pairs of grammatical and ungrammatical sentences (Marvin & Linzen 2018; Artetxe et al. 2020).

    fairseq-xl probe minimal-pairs runs/my/en/checkpoint_best.pt data-bin/en marvin_linzen_dataset.tsv

A line of a FILE is ``[category TAB … TAB] grammatical sentence TAB ungrammatical sentence``, or of CLAMS's files
``True TAB sentence`` and ``False TAB sentence`` in turn, as in en_evalset/prep_anim.txt. Sentences get a full stop;
the piece in which they differ is masked; the pair is right if the masked language model gives the piece of the
grammatical sentence the higher probability. Prints the accuracy over all pairs and by category; chance is 50. Pairs
that differ in more than one piece are left out (`left_out`). Their number depends on the vocabulary: compare only
models with the same `left_out`. Of Marvin & Linzen's data also the paper's scores, `agreement` and `reflexives`: the
mean accuracy of 10 and of 3 constructions, which are tables 4, 10 and 11.
"""

from typing import Any

from fairseq_xl.commands import PROBED, Options, argument, command
from fairseq_xl.evaluation.probing_tasks import minimal_pair_scores, read_minimal_pairs
from fairseq_xl.io.versions import version


@command(*PROBED, argument("files", "marvin_linzen_dataset.tsv, CLAMS's files, or others", nargs="+", metavar="FILE"))
def main(options: Options) -> dict[str, Any]:
    pairs = read_minimal_pairs(options.files)
    from fairseq_xl.inference.embedder import embedder_of
    from fairseq_xl.inference.probing import masked_log_probabilities

    scored = masked_log_probabilities(embedder_of(options), pairs, options.lang)
    versions = {package: version(package) for package in ("fairseq_xl", "torch")}
    return {"probe": "minimal-pairs", "versions": versions} | minimal_pair_scores(pairs, scored)
