"""Tables of generation: ``python -m recipes.xglue.table FOLDER LANGUAGES SCORE ROW ...``.

A row of the Markdown table is FOLDER/ROW/scores.json, as finetune-generation.sh writes it, the columns are LANGUAGES
and their average; SCORE is bleu, bleu_lower, rouge_l or wrong_language. In parentheses are the 95 % bootstrap intervals
over the test examples, of BLEU ± half of them; what was not written is an empty cell.
"""

import sys
from pathlib import Path

from recipes.lohelp.report import read, table
from recipes.xglue.report import SCORES, over_examples


def rows_of(folder, languages, score, names):
    """The table as lines of Markdown."""
    rows = []
    for name in names:
        found = read(folder / name / "scores.json")["languages"]
        entries = [found[code][score] if code in found else {"score": None} for code in languages]
        values = [entry["score"] for entry in entries]
        average = "" if None in values else f"{sum(values) / len(values):.1f}"
        rows.append([name, *map(over_examples, entries), average])
    return table([SCORES.get(score, score), *languages, "average"], rows)


def main():
    if len(sys.argv) < 5:
        sys.exit("usage: python -m recipes.xglue.table FOLDER LANGUAGES SCORE ROW ...")
    folder, languages, score, *names = sys.argv[1:]
    sys.stdout.write("\n".join(rows_of(Path(folder), languages.split(","), score, names)) + "\n")


if __name__ == "__main__":
    main()
