"""Copies the sub-words of a published model into a data folder."""

import logging
import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts.published_files import TOKENIZER_CONFIG, has_xlm_tokenizer
from fairseq_xl.checkpoints.layouts.published_vocabularies import read_symbols
from fairseq_xl.checkpoints.layouts.tokenizer_json import added_tokens, read_tokenizer, sentencepiece_from_tokenizer
from fairseq_xl.data.vocabulary import tokenizers
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.data.vocabulary.subwords import ADDED, FILES, MANIFEST, Kind, in_folder
from fairseq_xl.data.vocabulary.wordpiece import SPECIAL as BERT_SPECIAL
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import FORMATS, json_object, write_json

logger = logging.getLogger(__name__)

_TOKENIZER = "tokenizer.json"
#: type of the model of a tokenizer.json -> kind
_TYPES: dict[str, Kind] = {"Unigram": "sentencepiece", "BPE": "sentencepiece", "WordPiece": "wordpiece"}
#: kind -> its option here, the name of it in tokenizer_config.json, and its default
_OPTIONS: dict[str, tuple[str, str, bool]] = {
    "xlm": ("lowercase_and_remove_accent", "do_lowercase_and_remove_accent", True),
    "wordpiece": ("lowercase", "do_lower_case", False),
}


def import_subwords(
    kind: Kind,
    source: Path,
    folder: Path,
    languages: Sequence[str],
    codes: Path | None = None,
    cased: bool | None = None,
    pieces: Collection[str] = (),
) -> None:
    """Copies the sub-words of a published model into a folder, under the names of a data folder, with a manifest.

    If the model has none, a warning is logged, and the manifest has only their kind. `codes` is a folder with XLM's
    codes and vocab, which its .pth files lack. XLM's text keeps case and accents if it is `cased`, or by default if its
    tokenizer_config.json says so. Those of the model's `pieces` that were added to its tokenizer are found in text.

    Raises `UserError` for files that cannot be used, and for `codes` of another model than XLM or without the files.
    """
    if kind != "xlm" and (codes is not None or cased is not None):
        raise UserError(f"{f'--codes {codes}' if codes else '--cased'}: the model is not XLM")
    kind, paths = _find(kind, codes or source)
    names = " and ".join(_FILES[kind][0])
    if paths is None and codes is not None:
        raise UserError(f"--codes {codes}: the folder has no {names}")
    options: dict[str, Any] = {}
    if kind in _OPTIONS:
        option, setting, default = _OPTIONS[kind]
        options[option] = _setting(source, setting, default) if cased is None else not cased
    if added := _added(kind, source, pieces):
        options[ADDED] = added
    config: dict[str, Any] = {"languages": list(languages)}
    if kind == "xlm":
        config["tokenizer"] = dict.fromkeys(languages, tokenizers.XLM)
    subwords = in_folder(folder, kind, options)
    if paths is None:
        logger.warning("%s has no %s: raw text cannot be prepared for the model", source, names)
    else:
        if paths[0].name == _TOKENIZER:
            _from_tokenizer(paths[0], kind, folder, [token["content"] for token in added])
        else:
            for path, name in zip(paths, FILES[kind]):
                shutil.copyfile(path, folder / name)
        subwords.open()  # files that do not fit each other are refused here
    write_json(folder / MANIFEST, {"format": FORMATS["data folder"], "config": config, **subwords.manifest_entry()})


#: kind -> names of its files, alternatives in order
_FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "sentencepiece": (("sentencepiece.bpe.model",), ("sentencepiece.model",), ("spiece.model",), (_TOKENIZER,)),
    "xlm": (("codes", "vocab"), ("xlm.codes", "xlm.vocab"), ("merges.txt", "vocab.json")),
    "wordpiece": (("vocab.txt",), (_TOKENIZER,)),
}


def _find(kind: Kind, folder: Path) -> tuple[Kind, tuple[Path, ...] | None]:
    """The kind of sub-words, that of the layout or of a tokenizer.json, and their files; None without files."""
    kind = "xlm" if has_xlm_tokenizer(folder) else kind
    if (folder / _TOKENIZER).is_file():
        kind = _TYPES.get(read_tokenizer(folder / _TOKENIZER)["model"]["type"], kind)
    elif kind == "wordpiece" and not (folder / _FILES[kind][0][0]).is_file():
        kind = "sentencepiece" if (folder / _FILES["sentencepiece"][0][0]).is_file() else kind  # XLM-R's, of a BERT
    for names in _FILES[kind]:
        paths = tuple(folder / name for name in names)
        if all(path.is_file() for path in paths):
            return kind, paths
    if kind == "xlm":  # codes_xnli_15 and vocab_xnli_15
        released = [sorted(folder.glob(f"{name}_*")) for name in ("codes", "vocab")]
        if all(len(matches) == 1 for matches in released):
            return kind, (released[0][0], released[1][0])
    return kind, None


def _added(kind: Kind, folder: Path, pieces: Collection[str]) -> list[dict[str, Any]]:
    """The added tokens of a folder's tokenizer among `pieces`; warns of those that text does not have here."""
    tokens = [token for token in added_tokens(folder).values() if token["content"] in pieces]
    words = [token for token in tokens if kind != "xlm" and not re.search(r"\s", token["content"])]
    if names := ", ".join(token["content"] for token in tokens if token not in words):
        remark = "rows are kept, and text that has them is split as if they were ordinary words"
        logger.warning("%s: tokens that were added to its tokenizer, %s: their %s", folder, names, remark)
    return words


def _from_tokenizer(tokenizer: Path, kind: Kind, folder: Path, added: Collection[str]) -> None:
    target = folder / FILES[kind][0]
    if kind == "sentencepiece":
        target.write_bytes(sentencepiece_from_tokenizer(tokenizer))
        return
    special_names = {symbol: name for name, symbol in BERT_SPECIAL.items()}
    vocabulary = read_tokenizer(tokenizer)["model"]["vocab"]
    symbols = [symbol for symbol in read_symbols(tokenizer) if symbol in vocabulary or symbol not in added]
    if MASK in symbols:  # an export of this package, with [xx] behind it
        symbols = symbols[: symbols.index(MASK) + 1]
    pieces = [special_names.get(symbol, symbol) for symbol in symbols]
    target.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")


def _setting(folder: Path, name: str, default: bool) -> bool:
    """An option of the tokenizer, from tokenizer_config.json or from the normalizer of tokenizer.json."""
    content = json_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    value = content.get(name)
    if value is None and name == "do_lower_case" and (folder / _TOKENIZER).is_file():
        value = (read_tokenizer(folder / _TOKENIZER).get("normalizer") or {}).get("lowercase")
    if value is None:
        logger.info("%s: no %s says %s: taken as %s", folder, TOKENIZER_CONFIG, name, str(default).lower())
        value = default
    if not isinstance(value, bool):
        raise UserError(f"{folder / TOKENIZER_CONFIG}: {name} must be true or false, found {value!r}")
    return value
