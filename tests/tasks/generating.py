"""fairseq-generate with a checkpoint, and its hypotheses."""

from tests.commands import run_generate
from tests.tasks.tiny_text import TEST_LINES

COMMON = ["--task", "xl_translation", "--user-dir", "fairseq_xl", "--max-len-b", 12]


def generate(data, checkpoint, *more, pair=("en", "de")):
    direction = ["-s", pair[0], "-t", pair[1]] if pair else []
    return run_generate([data, "--path", checkpoint, *COMMON, *direction, *more])


def hypotheses(output):
    """[(score, positional scores, tokens as text)] of each line's hypotheses."""
    found = []
    for number in range(TEST_LINES):
        for text, positions in zip(output.lines("H")[number], output.lines("P")[number], strict=True):
            score, _, tokens = text.partition("\t")
            found.append((number, float(score), [float(value) for value in positions.split()], tokens))
    return found
