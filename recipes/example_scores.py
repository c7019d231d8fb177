"""Reads scores of test examples, 0 to 100, from files of predictions, and tests two systems over them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import paired, read_pair, tokenizer_name
from fairseq_xl.evaluation.classification_scores import read_predictions
from fairseq_xl.evaluation.generation_scores import rouge_l_by_example
from fairseq_xl.evaluation.ranking_scores import ndcg, read_scores
from fairseq_xl.io.lines import read_lines
from recipes.paired_tests import broadcast, permutation_test


def classification(path: Path) -> np.ndarray:
    """A prediction file of classification -> (n,) 100 for a right answer, else 0."""
    labels, predictions = read_predictions(path)
    return 100.0 * (np.array(labels) == np.array(predictions))


def ranking(path: Path) -> np.ndarray:
    """A prediction file of ranking -> (n,) nDCG of each query with two texts or more."""
    return np.array([100 * ndcg(*query) for query in read_scores(path).values() if len(query[1]) > 1])


def retrieval(path: Path) -> np.ndarray:
    """An output of `fairseq-xl search pairs --found-to` -> (n,) percent of right directions: 0, 50 or 100."""
    rows = [line.split("\t") for line in read_lines(path)]
    if not rows or any(len(row) != 3 for row in rows):
        raise UserError(f"{path}: expected line TAB number of the target found TAB number of the source found")
    line_numbers, forward, backward = np.array(rows, dtype=int).T
    if (line_numbers != np.arange(1, len(rows) + 1)).any():
        raise UserError(f"{path}: expected the lines 1 to {len(rows)} in order, each once")
    return 50.0 * ((forward == line_numbers).astype(int) + (backward == line_numbers))


def titles(path: Path, references: Path, language: str) -> np.ndarray:
    """An output of fairseq-generate -> (n,) ROUGE-L of each text."""
    hypotheses, expected = read_pair(path, references)
    return np.array(rouge_l_by_example(hypotheses, expected, language))


def bleu_test(first: list[Path], second: list[Path], language: str) -> tuple[float, float]:
    """Returns difference and p of sacreBLEU's paired bootstrap of two systems, each [hypotheses, references]."""
    first_hypotheses, second_hypotheses, references = (read_lines(path) for path in (first[0], second[0], first[1]))
    test = paired(first_hypotheses, second_hypotheses, references, tokenizer_name(language))
    return float(test["difference"]), float(test["p"])


#: kind of example -> reader of a prediction file
READERS: dict[str, Callable[[Path], np.ndarray]] = {
    "classification": classification,
    "ranking": ranking,
    "retrieval": retrieval,
}


def scores(kind: str, paths: list[Path], language: str) -> np.ndarray:
    """Returns the scores of the examples in a file of one language; `paths`: the file, and for titles the references.

    Raises `UserError` for an unknown kind.
    """
    if kind == "titles":
        return titles(paths[0], paths[1], language)
    if kind not in READERS:
        raise UserError(f"examples: {kind}: choose one of {', '.join([*READERS, 'titles', 'bleu'])}")
    return READERS[kind](paths[0])


@dataclass(frozen=True)
class ExampleFiles:
    """The files with the scores of a row's test examples.

    Attributes:
        kind: of `scores`, or `bleu`.
        columns: names of the columns: languages.
        seeds: names, or numbers of the pre-trainings; [""] for a row without seeds.
        files: [seed][column] -> [predictions], or [hypotheses, references] for some kinds.
    """

    kind: str
    columns: list[str]
    seeds: list[str]
    files: list[list[list[Path]]]

    def exist(self) -> bool:
        """Tells whether all files exist."""
        return all(path.is_file() for seed_files in self.files for paths in seed_files for path in paths)

    def scores(self) -> list[list[np.ndarray]]:
        """Returns the scores of the examples: [column][seed] -> (n,)."""
        return [
            [scores(self.kind, seed_files[i], column) for seed_files in self.files]
            for i, column in enumerate(self.columns)
        ]


def compare(first: ExampleFiles | None, second: ExampleFiles | None) -> dict[str, tuple[float, float]]:
    """Tests two rows over the test examples of each language: {language: (difference, p)}, {} without files of both.

    BLEU has a test for each seed, sacreBLEU's paired bootstrap; other scores of an example are averaged over the seeds
    (`paired_tests.permutation_test`).
    """
    if first is None or second is None or not (first.exist() and second.exist()):
        return {}
    if first.kind == "bleu":
        seeds = second.seeds if first.seeds == [""] else first.seeds
        return {
            f"{column} seed {seed}": bleu_test(*pair, column)
            for seed, files in zip(seeds, zip(*broadcast(first.files, second.files)))
            for column, pair in zip(first.columns, zip(*files))
        }
    scores_of = zip(first.columns, first.scores(), second.scores())
    return {column: permutation_test(*broadcast(*pair)) for column, *pair in scores_of}
