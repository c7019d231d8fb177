"""What `python -m preprocess` says of the text that it wrote."""

import json
from pathlib import Path

from fairseq_xl.errors import UserError


def read_manifest(folder):
    """``manifest.json`` of a data folder, {} where there is none; `UserError` for a damaged one."""
    path = Path(folder) / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}; `python -m preprocess` writes it again") from error
    if not isinstance(manifest, dict) or not all(
        isinstance(manifest.get(part, {}), dict) for part in ("dictionary", "config")
    ):
        raise UserError(f"{path} is no manifest of `python -m preprocess`, which writes it again")
    return manifest
