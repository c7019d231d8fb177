"""Back-translated pairs of a data folder: their files, and the note of complete pairs and their dictionary.

Imports neither torch nor fairseq.
"""

from pathlib import Path
from typing import Any

from fairseq_xl.data.store import manifest


def back_translated_prefix(folder: Path, source: str, target: str) -> Path:
    """Prefix of the back-translated pairs of a data folder: sources generated for text of the language `target`."""
    pair = f"{source}-{target}"
    return folder / pair / f"back-{target}.{pair}"


def note_path(prefix: Path) -> Path:
    """``PREFIX.json``, the note of complete pairs: it is removed before they are written, and written after them."""
    return Path(f"{prefix}.json")


def parts_path(prefix: Path) -> Path:
    """``PREFIX.part``, the folder of an unfinished run."""
    return Path(f"{prefix}.part")


def read_note(prefix: Path) -> dict[str, Any] | None:
    """The note of the pairs, or None if they are not complete."""
    note = manifest.read_note(note_path(prefix))
    return note if note and isinstance(note.get("made_with"), dict) else None
