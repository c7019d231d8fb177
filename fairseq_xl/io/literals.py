"""Values of options that fairseq evaluates as Python: literals, and sums and repetitions of lists. Nothing is run."""

import ast
from typing import Any

from fairseq_xl.errors import UserError, quoted

MAX_LENGTH = 1000  # characters of the text
MAX_VALUES = 10_000  # of a list that is repeated


def literal(text: str) -> Any:
    """``(0.9, 0.98)`` -> (0.9, 0.98), ``[(512, 3)] * 2`` -> two pairs. Raises `UserError` for other expressions."""
    try:
        if len(text) > MAX_LENGTH:
            raise ValueError
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UserError(f"{quoted(text)}: expected numbers, strings, lists or dicts") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (list, tuple)):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, (list, tuple)) and type(right) is int:
            if len(left) * right <= MAX_VALUES:
                return left * right
        raise ValueError
    return ast.literal_eval(node)
