"""Finds parallel sentences in the text of two languages with the encoder of a checkpoint, without training.

Sentences are compared by the ratio margin of their embeddings (Artetxe & Schwenk 2019). A line of a file is a sentence,
or ``id TAB sentence`` as in BUCC. --gold prints the threshold with the highest F1 and keeps the pairs at or above it;
--threshold sets the threshold instead. Then each output line is ``id TAB id``. With neither option all pairs are
written, as ``margin TAB id TAB id``. A sentence that occurs several times in its file is in no pair. With --nearest the
output has for each source sentence the id of the target sentence with the highest cosine. Submissions of XTREME's
Tatoeba have it with English as the source. Prints one JSON line.
"""

import argparse
import json
import sys

from fairseq_xl.bitext_mining import (
    DIGITS,
    Sentences,
    best_threshold,
    mine_texts,
    nearest,
    read_gold,
    read_sentences,
    rounded,
)
from fairseq_xl.errors import UserError, check_number
from fairseq_xl.io.files import write_lines
from fairseq_xl.retrieval import Embedders, add_arguments, add_choice


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = _parser().parse_args(arguments)
    if options.nearest and (options.gold or options.threshold is not None):
        raise UserError("--nearest finds a sentence for each source sentence: leave out --gold and --threshold")
    check_number("--neighbors", options.neighbors, "1 or more")
    (source, source_texts), (target, target_texts) = _files(options.files)
    gold = read_gold(options.gold, (source_texts, target_texts)) if options.gold else None
    if options.nearest and source_texts.ids != [str(number) for number in range(len(source_texts.ids))]:
        raise UserError(f"{options.files[0]}: --nearest needs a sentence, without id, on each line")
    embed = Embedders(options.checkpoint, options.data, {source, target}, options.lang, options.fp16)
    (choice,) = embed.choices(options.layer, options.pooling)
    sides = ((source, source_texts), (target, target_texts))
    first, second = (embed(sentences.texts, language, [choice])[choice] for language, sentences in sides)
    result: dict = {"sentences": [len(source_texts.texts), len(target_texts.texts)]}
    if options.nearest:
        _, numbers = nearest(first, second, 1)
        lines = [target_texts.ids[number] for number in numbers[:, 0].tolist()]
    else:
        pairs = mine_texts((source_texts.texts, target_texts.texts), (first, second), options.neighbors)
        threshold = options.threshold
        if gold is not None:
            found = best_threshold(pairs, gold)
            result |= rounded(found)
            threshold = found["threshold"] if threshold is None else threshold
        kept = [pair for pair in pairs if threshold is None or pair.score >= threshold]
        names = [(source_texts.ids[pair.source], target_texts.ids[pair.target]) for pair in kept]
        shown = [(f"{pair.score:.{DIGITS}f}", *ids) if threshold is None else ids for pair, ids in zip(kept, names)]
        lines = ["\t".join(row) for row in shown]
        result["pairs"] = len(lines)
    if options.output:
        write_lines(options.output, lines)
    sys.stdout.write(json.dumps(result) + "\n")


def _files(named: list[str]) -> list[tuple[str, Sentences]]:
    """Languages and sentences of XX=FILE YY=FILE."""
    found = []
    for text in named:
        language, separator, path = text.partition("=")
        if not separator or not language or not path:
            raise UserError(f"{text}: expected LANGUAGE=FILE")
        found.append((language, read_sentences(path)))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fairseq-xl mine-bitext", description=__doc__)
    add_arguments(parser)
    parser.add_argument("files", nargs=2, metavar="LANGUAGE=FILE", help="source, then target sentences")
    add_choice(parser, "default: mean", required=True)
    parser.add_argument("--neighbors", type=int, default=4, help="neighbors of the margin (default: %(default)s)")
    parser.add_argument("--gold", help="file of the correct pairs, id TAB id, to find the threshold with")
    parser.add_argument("--threshold", type=float, help="minimum margin of a pair")
    parser.add_argument(
        "--nearest", action="store_true", help="the most similar target sentence of each source sentence"
    )
    parser.add_argument("--output", help="file to write")
    return parser
