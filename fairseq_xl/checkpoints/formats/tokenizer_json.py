"""tokenizer.json of the package tokenizers, read as plain data."""

from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import parsed_json


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json, whose "model" and "added_tokens" have the expected form.

    Raises `UserError` for a missing or damaged file, and for one that is no tokenizer.
    """
    try:
        content = parsed_json(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise UserError(f"{path} cannot be read as a tokenizer: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not JSON: it is not UTF-8") from None
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not _is_vocabulary(model):
        raise UserError(f"{path} is no tokenizer: it has no model with a vocabulary")
    added = content.get("added_tokens") or []
    if not all(
        isinstance(token, dict) and [type(token.get(key)) for key in ("content", "id")] == [str, int] for token in added
    ):
        raise UserError(f"{path} is damaged: its added tokens are not texts with numbers")
    for part in ("normalizer", "pre_tokenizer"):
        if not _are_steps(content.get(part)):
            raise UserError(f"{path} is damaged: its {part} is not a step with a type")
    return content


def special_symbols(content: dict[str, Any]) -> list[str]:
    """The tokens of a tokenizer.json that are no text: added tokens marked as special."""
    return [token["content"] for token in content.get("added_tokens") or [] if token.get("special")]


def rows_of(path: Path) -> list[str]:
    """Symbols of a tokenizer.json by row, added tokens included; `UserError` as `read_tokenizer`, and for a gap."""
    content = read_tokenizer(path)
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {text: row for row, (text, _) in enumerate(vocabulary)}
    return in_order(vocabulary | {token["content"]: token["id"] for token in content.get("added_tokens") or []}, path)


def in_order(rows: dict[str, Any], path: Path) -> list[str]:
    """{symbol: row} -> symbols by row; raises `UserError` for a row without symbol or with two."""
    if sorted(row if isinstance(row, int) else -1 for row in rows.values()) != list(range(len(rows))):
        raise UserError(f"the symbols of {path} are not numbered from 0 without a gap")
    return sorted(rows, key=rows.__getitem__)


def _is_vocabulary(model: dict[str, Any]) -> bool:
    """Whether a model has {text: number}, and merges if it is BPE, or rows (text, score)."""
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        pairs = model.get("merges", [])
        merges = isinstance(pairs, list) and all(
            len(pair.split(" ") if isinstance(pair, str) else pair) == 2 for pair in pairs
        )
        model.setdefault("type", "BPE" if "merges" in model else "WordPiece")
        return merges and all(isinstance(number, int) for number in vocabulary.values())
    model.setdefault("type", "Unigram")
    return isinstance(vocabulary, list) and all(
        isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], (int, float))
        for row in vocabulary
    )


def _are_steps(step: Any) -> bool:
    if step is None:
        return True
    inner = [*step.get("normalizers", ()), *step.get("pretokenizers", ())] if isinstance(step, dict) else []
    return isinstance(step, dict) and isinstance(step.get("type"), str) and all(map(_are_steps, inner))
