"""tokenizer.json of the package tokenizers, read as plain data."""

from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import json_object


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json, whose "model" and "added_tokens" have the expected form.

    Raises `UserError` for a missing or damaged file, and for one that is no tokenizer.
    """
    content = json_object(path)
    model = content.get("model")
    if not isinstance(model, dict) or not _is_vocabulary(model):
        raise UserError(f"{path} is no tokenizer: it has no model with a vocabulary")
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(
        isinstance(token, dict) and [type(token.get(key)) for key in ("content", "id")] == [str, int] for token in added
    ):
        raise UserError(f"{path} is damaged: its added tokens are not texts with numbers")
    for part in ("normalizer", "pre_tokenizer"):
        if not _are_steps(content.get(part)):
            raise UserError(f"{path} is damaged: its {part} is not a step with a type")
    return content


def rows_of(path: Path) -> list[str]:
    """Symbols of a tokenizer.json by row, added tokens included; `UserError` as `read_tokenizer`, and for a gap."""
    content = read_tokenizer(path)
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {text: row for row, (text, _) in enumerate(vocabulary)}
    rows = vocabulary | {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    if sorted(row if isinstance(row, int) else -1 for row in rows.values()) != list(range(len(rows))):
        raise UserError(f"the symbols of {path} are not numbered from 0 without a gap")
    return sorted(rows, key=rows.__getitem__)


def _is_vocabulary(model: dict[str, Any]) -> bool:
    """Whether a model has {text: number}, and merges if it is BPE, or rows (text, score)."""
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        pairs = model.get("merges", [])
        merges = isinstance(pairs, list) and all(map(_is_merge, pairs))
        model.setdefault("type", "BPE" if "merges" in model else "WordPiece")
        return merges and all(isinstance(row, int) for row in vocabulary.values())
    model.setdefault("type", "Unigram")
    return isinstance(vocabulary, list) and all(
        isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], (int, float))
        for row in vocabulary
    )


def _is_merge(pair: Any) -> bool:
    """Whether a value is two texts, in a list or separated by a space."""
    parts = pair.split(" ") if isinstance(pair, str) else pair
    return isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, str) for part in parts)


def _are_steps(first: Any) -> bool:
    """Whether a step of a tokenizer, and those that a sequence has, are objects with a type; None is no step."""
    stack = [] if first is None else [first]
    while stack:
        step = stack.pop()
        if not isinstance(step, dict) or not isinstance(step.get("type"), str):
            return False
        for name in ("normalizers", "pretokenizers"):
            inner = step.get(name, [])
            if not isinstance(inner, list):
                return False
            stack += inner
    return True
