"""Describes a file or folder: kind, architecture, sizes, vocabulary, languages, objectives, updates, origin.

    fairseq-xl model show models/xlmr runs/my/pretrain/checkpoint_best.pt

It knows checkpoints of this package, language modules, published models (XLM-R, XLM, mBERT, mBART, VECO's translation
model), folders of transformers and sentence-transformers, ONNX files, data folders and dictionaries. Of models it reads
shapes, not weights. Nothing in a file is run.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fairseq_xl.commands import Options, argument, command, flag

#: directions in the text
SHOWN = 30


@command(
    argument("files", "file or folder", nargs="+", metavar="FILE"),
    flag("--json", "one JSON object per file, a line each"),
)
def main(options: Options) -> None:
    from fairseq_xl.checkpoints.description import describe

    for file in options.files:
        content = {"path": file} | describe(Path(file))
        sys.stdout.write(json.dumps(content, ensure_ascii=False) + "\n" if options.json else _shown(content))


def _shown(content: dict[str, Any]) -> str:
    lines = []
    for name, value in content.items():
        if name == "directions" and value and len(value) > SHOWN:
            value = [*value[:SHOWN], f"... ({len(value)})"]
        if name == "options":  # as on a command line
            flags = [key if entry is True else f"{key} {entry}" for key, entry in value.items() if entry is not False]
            lines.append(f"options: {' '.join(flags)}")
        elif isinstance(value, dict):
            lines += [f"{name}:", *(f"  {inner}: {_text(entry)}" for inner, entry in value.items())]
        else:
            lines.append(f"{name}: {_text(value)}")
    return "\n".join(lines) + "\n\n"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
