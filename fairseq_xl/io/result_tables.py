"""Results of commands as tables for people: nested dictionaries in aligned columns."""

from collections.abc import Iterable
from typing import Any

WIDEST = 12  # columns of a table


def table(result: dict[str, Any], title: str = "") -> str:
    """A result as lines: dictionaries of similar dictionaries, and lists of dictionaries, are tables.

    Languages are rows, metrics columns, and an interval stands beside its metric; metrics that have a score and more,
    such as BLEU with its signature, are rows. Other values have a line each.
    """
    heading = f"{title}\n" if title else ""
    if result and all(_is_of_dictionaries(value) for value in result.values()):
        return "\n".join(table(value, f"{title} {name}".strip()) for name, value in result.items())
    rows = [_flat(row) for row in result.values() if isinstance(row, dict)]
    similar = len(rows) == len(result) and all(row.keys() == rows[0].keys() for row in rows)
    if rows and similar and len(rows[0]) <= WIDEST:
        return heading + _aligned([("", *rows[0]), *((str(name), *row.values()) for name, row in zip(result, rows))])
    values, nested = {}, {}
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = dict(enumerate(value, start=1))
        is_nested = isinstance(value, dict) and any(isinstance(entry, dict) for entry in value.values())
        (nested if is_nested else values)[name] = value
    metrics = {name: value for name, value in values.items() if isinstance(value, dict) and "score" in value}
    columns = [*dict.fromkeys(column for row in metrics.values() for column in row)]
    lines = [("", *columns), *((name, *(_text(row.get(key, "")) for key in columns)) for name, row in metrics.items())]
    values = {name: value for name, value in values.items() if name not in metrics}
    blocks = [_aligned(lines)] if metrics else []
    blocks += [_aligned(_flat(values).items())] if values else []
    blocks[:1] = [heading + block for block in blocks[:1]]
    return "\n".join([*blocks, *(table(value, f"{title} {name}".strip()) for name, value in nested.items())])


def _is_of_dictionaries(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(entry, dict) for entry in value.values())


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """{"cosine": {"accuracy": 50.0, "interval": [40.0, 60.0]}} -> {"cosine accuracy": "50 (40–60)"}"""
    cells: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            cells |= _flat(value, f"{prefix}{name} ")
        elif str(name).endswith("interval") and cells and isinstance(value, list):
            cells[[*cells][-1]] += f" ({'–'.join(map(_text, value))})"
        else:
            cells[f"{prefix}{name}"] = _text(value)
    return cells


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _aligned(rows: Iterable[Iterable[str]]) -> str:
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in cells)
