"""Finds translations of sentences with the encoder of a checkpoint, without training (Luo et al. 2020).

    fairseq-xl search pairs runs/my/mlm/checkpoint_best.pt data-bin/my --layer 2 --pooling mean --test en-de=test.en-de

The files PREFIX.en and PREFIX.de of a pair en-de hold aligned sentences. A sentence embedding is the mean of one
layer's hidden states over the tokens, or the hidden state of the first token. For each sentence the most similar one of
the other file is retrieved, once by cosine and once by ratio margin. With --dev, layer and pooling are those with the
best average accuracy by margin on held-out pairs. A sentence encoder that was a folder of sentence-transformers embeds
as `fairseq-xl embed` does. Prints the accuracies.
"""

from typing import Any

from fairseq_xl.commands import CHECKPOINT, DATA, Options, argument, command, embedding_options, several
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval_scores import averages, read_named_pairs


@command(
    CHECKPOINT,
    DATA,
    several("--test", "test pairs of files", "XX-YY=PREFIX", required=True),
    several("--dev", "held-out pairs of files", "XX-YY=PREFIX"),
    argument(
        "--found-to",
        "write the sentences found by margin to FOLDER/XX-YY.tsv, a line for each test pair: its number TAB the number "
        "of the target found TAB that of the source found. Empty and repeated pairs are not counted",
        metavar="FOLDER",
    ),
    *embedding_options("default: select on --dev, or as in sentence-transformers"),
)
def main(options: Options) -> dict[str, Any]:
    from fairseq_xl.inference.embedder import Embedders, has_settings, retrieve

    if not options.dev and None in (options.layer, options.pooling) and not has_settings(options.checkpoint):
        raise UserError("give --layer and --pooling, or --dev pairs to select them on")
    test, dev = read_named_pairs(options.test), read_named_pairs(options.dev)
    languages = {language for pair in (*test, *dev) for language in pair.split("-")}
    embed = Embedders(options, languages)
    choices = embed.choices(options.layer, options.pooling, bool(dev))
    result = {}
    if dev:
        dev_scores: Any = retrieve(embed, dev, choices).items()
        table = [{"layer": layer, "pooling": pooling, **averages(scores)} for (layer, pooling), scores in dev_scores]
        best = max(range(len(choices)), key=lambda index: table[index]["margin"])  # the first of equals
        choices, result["dev"] = [choices[best]], table
    (scores,) = retrieve(embed, test, choices, options.found_to).values()
    return result | {"layer": choices[0][0], "pooling": choices[0][1], "average": averages(scores), "test": scores}
