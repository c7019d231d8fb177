"""Formats tables in Markdown."""

from collections.abc import Iterable


def table(header: list, rows: Iterable[list]) -> list[str]:
    """Cells -> lines of a Markdown table."""
    return ["| " + " | ".join(map(str, row)) + " |" for row in [header, ["---"] * len(header), *rows]]


def has_cells(rows: list[list]) -> bool:
    """Tells whether a cell beside the names is not empty."""
    return any(cell for _, *cells in rows for cell in cells)
