"""The sub-words of a published model as those of a data folder."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.formats.files import read_json
from fairseq_xl.checkpoints.formats.sentencepiece_model import sentencepiece_from_tokenizer
from fairseq_xl.data import tokenizers
from fairseq_xl.data.subwords import FILES, MANIFEST, Kind, in_folder
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json

logger = logging.getLogger(__name__)

#: layout -> kind of its sub-words; SentencePiece for others
KINDS: dict[str, Kind] = {"xlm": "xlm", "bert": "wordpiece"}
_TOKENIZER, _TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
#: kind -> its option here, the names of it in tokenizer_config.json, and its default
_OPTIONS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "xlm": ("lowercase_and_remove_accent", ("do_lowercase_and_remove_accent",), True),
    "wordpiece": ("lowercase", ("do_lower_case",), False),
}


def import_subwords(
    layout: str, source: Path, folder: Path, languages: Sequence[str], codes: Path | None = None
) -> None:
    """Copies the sub-words of a published model into a folder, under the names of a data folder, with a manifest.

    Without them the model has only a dictionary, and a warning says so.

    Args:
        layout: the model's layout.
        source: folder of the published model.
        folder: the folder to fill.
        languages: languages of the dictionary.
        codes: a folder with XLM's codes and vocab, which its .pth files lack.

    Raises `UserError` for files that cannot be used, and for `codes` of another model than XLM.
    """
    kind = KINDS.get(layout, "sentencepiece")
    if codes is not None and kind != "xlm":
        raise UserError(f"--codes {codes}: the model is not XLM")
    found = _find(kind, codes or source)
    if found is None:
        names = " and ".join(_NAMES[kind][0])
        logger.warning("%s has no %s: raw text cannot be prepared for the model", codes or source, names)
        return
    if kind == "sentencepiece":
        target = folder / FILES[kind][0]
        if found[0].name == _TOKENIZER:
            target.write_bytes(sentencepiece_from_tokenizer(found[0]))
        else:
            shutil.copyfile(found[0], target)
    else:
        for path, name in zip(found, FILES[kind]):
            shutil.copyfile(path, folder / name)
    options = {}
    if kind in _OPTIONS:
        option, names_there, default = _OPTIONS[kind]
        options[option] = _setting(source / _TOKENIZER_CONFIG, names_there, default)
    made = in_folder(folder, kind, options)
    made.open()  # files that do not fit each other are refused here
    config: dict[str, Any] = {"languages": list(languages)}
    if kind == "xlm":
        config["tokenizer"] = dict.fromkeys(languages, tokenizers.XLM)
    write_json(folder / MANIFEST, {"config": config, **made.described()})


#: kind -> names of its files, alternatives in order
_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "sentencepiece": (("sentencepiece.bpe.model",), ("sentencepiece.model",), ("spiece.model",), (_TOKENIZER,)),
    "xlm": (("codes", "vocab"), ("xlm.codes", "xlm.vocab"), ("merges.txt", "vocab.json")),
    "wordpiece": (("vocab.txt",),),
}


def _find(kind: str, folder: Path) -> tuple[Path, ...] | None:
    for names in _NAMES[kind]:
        paths = tuple(folder / name for name in names)
        if all(path.is_file() for path in paths):
            return paths
    return None


def _setting(file: Path, names: tuple[str, ...], default: bool) -> bool:
    content = read_json(file) if file.is_file() else {}
    found = next((content[name] for name in names if name in content), default)
    if not isinstance(found, bool):
        raise UserError(f"{file}: {names[0]} must be true or false, found {found!r}")
    return found
