"""Writes the table at the end of recipes/plans.md from the results of a command on standard input:

fairseq-xl plan --list recipes/papers.yaml --json | python -m recipes.plans
"""

import json
import sys
from pathlib import Path

from fairseq_xl.io.files import replacing
from recipes.tables import table

PAGE = Path(__file__).with_suffix(".md")


def row(result: dict) -> dict[str, str]:
    """The row of a result of `fairseq-xl plan`: {column: cell}."""

    def number(name: str) -> str:
        return f"{result[name]:,}" if name in result else ""

    def column(part: str) -> str:
        return part.replace("_", " ").replace("fp32", "FP32").replace("ddp", "DDP")

    period = "" if "updates" in result else " per 100,000 updates"
    times = [f"{time['hours']:,g} ({time['count']} {time['gpus']} of the paper{period})" for time in result["hours"]]
    return {
        "training": result["training"],
        "parameters": number("parameters"),
        "published": result.get("published_parameters", ""),
        "precision": result["precision"],
        **{f"{column(part)}, GiB": f"{size:.2f}" for part, size in result["memory_GiB"].items()},
        "tokens of a batch": ", ".join(f"{batch['tokens']:,} {name}" for name, batch in result["batches"].items()),
        "batches of an update": number("batches_per_update"),
        "updates": number("updates"),
        "tokens": number("tokens"),
        "FLOPs": f"{result['flops']:.2e}" if "flops" in result else "",
        "hours": ", ".join(times),
    }


def main() -> None:
    """Replaces the table of the page."""
    rows = [row(json.loads(line)) for line in sys.stdin]
    lines = table([*rows[0]], [[*cells.values()] for cells in rows])
    text = PAGE.read_text(encoding="utf-8").partition("\n| ")[0].rstrip("\n")
    with replacing(PAGE) as file:
        file.write("\n".join([text, "", *lines, ""]).encode())


if __name__ == "__main__":
    main()
