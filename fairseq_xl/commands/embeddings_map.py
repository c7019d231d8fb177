"""Maps embeddings of one language into those of another.

    fairseq-xl embeddings map de.npz en.npz mapped.npz --ignore-case --min-length 4

The mapping is learned by VecMap's self-learning (Artetxe et al. 2018).
"""

from typing import Any

import numpy as np

from fairseq_xl.checkpoints.embedding_files import Vectors, read, space_of, write
from fairseq_xl.commands import Options, argument, command, flag
from fairseq_xl.embeddings.mapping import STARTS, SelfLearning, first_pairs, learn
from fairseq_xl.errors import UserError, natural_number, positive_integer


@command(
    argument("source", "embeddings to map, a file of `fairseq-xl embeddings skipgram`"),
    argument("target", "embeddings to map into; they are not changed"),
    argument("output", "file to write: the mapped source"),
    argument("--start", "how to make the first dictionary", default="identical", choices=STARTS),
    flag("--ignore-case", "`identical` ignores case: pairs hotel with Hotel"),
    argument("--min-length", "minimum characters of a piece in `identical`", positive_integer, 1),
    argument("--seed", "seed of the random dropping of similarities", natural_number, 1),
)
def main(options: Options) -> dict[str, Any]:
    source, target = read(options.source), read(options.target)
    if source.rows.shape[1] != target.rows.shape[1]:
        raise UserError(
            f"{options.source} has {source.rows.shape[1]} channels, {options.target} {target.rows.shape[1]}"
        )
    if options.start == "unsupervised" and (options.ignore_case or options.min_length != 1):
        raise UserError("--ignore-case and --min-length are for --start identical")
    settings = SelfLearning(seed=options.seed)
    pairs = first_pairs(options.start, source, target, settings, options.ignore_case, options.min_length)
    mapping, report = learn(source.rows, target.rows, pairs, settings)
    mapped = (source.rows @ mapping).astype(np.float32)
    write(Vectors(source.symbols, mapped, target.space or space_of(target.rows)), options.output)
    return {"start": options.start, "pairs": len(pairs[0])} | report
