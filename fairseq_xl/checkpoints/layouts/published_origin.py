"""Files and rows of a published folder, kept beside its checkpoint, so that the model goes out as it came in.

`published/` in the folder of the checkpoint has copies of config.json and the tokenizer's files, the parameters that
our model lacks, such as a pooler, and `origin.json`: the names of the parameters and our symbol of each row.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts.base import LAYOUTS, PIECES, TOKENIZER, WORDPIECES, WORDS, Counterpart, Layout
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import CONFIG, TOKENIZER_CONFIG, load_weights, weights_file
from fairseq_xl.checkpoints.parameter_names import OF_SYMBOLS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import json_object, write_json, write_lines

FOLDER, _DESCRIPTION, _PARAMETERS = "published", "origin.json", "parameters.safetensors"
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "sentencepiece.bpe.model", "sentencepiece.model", "spiece.model"),
)
#: entries of config.json that say how the rows are ordered; an exported folder has the original ones
_OF_ROWS = (
    *("vocab_size", "bos_token_id", "pad_token_id", "eos_token_id", "mask_token_id"),
    *("bos_index", "pad_index", "eos_index", "unk_index", "mask_index"),
)


def keep(source: Path, folder: Path, layout: Layout, state: Mapping[str, Tensor], symbols: list[str]) -> None:
    """Writes `published/` into the folder of a checkpoint, for a published folder with a tokenizer whose rows it has.

    Args:
        source: the published folder, or its file of weights.
        state: the parameters that came in, by our names, without those that the checkpoint lacks.
        symbols: our symbol of each row; none if rows have no symbol, which the checkpoint then lacks.
    """
    file = weights_file(source)
    named = (TOKENIZER, TOKENIZER_CONFIG, *((WORDPIECES,) if layout.subwords == "wordpiece" else (PIECES, WORDS)))
    has_tokenizer = any(file.with_name(name).is_file() for name in named)  # that transformers reads
    if not symbols or not has_tokenizer or not file.with_name(CONFIG).is_file():
        return
    target = folder / FOLDER
    target.mkdir()
    for name in (CONFIG, *TOKENIZER_FILES):
        if file.with_name(name).is_file():
            shutil.copyfile(file.with_name(name), target / name)
    weights = load_weights(file)
    names = {layout.canonical(name): name for name in weights}
    present = layout.to_theirs(dict(state))
    lacking = [key for key in names if key not in present and not re.match(layout.ignored_heads, key)]
    safetensors.torch.save_file({names[key]: weights[names[key]].clone() for key in lacking}, target / _PARAMETERS)
    dictionary = XLDictionary.load(folder / "dict.txt")
    rows = [dictionary.index(symbol) for symbol in symbols]
    write_json(
        target / _DESCRIPTION,
        {"layout": layout.name, "dictionary": dictionary.digest(), "rows": rows, "parameters": names},
    )


@dataclass(frozen=True)
class Origin:
    """What `keep` wrote."""

    folder: Path
    layout: str
    rows: list[int]  # our id of each row
    names: dict[str, str]  # the layout's names of the parameters -> those in the file

    def in_order(self, model: Own) -> Own:
        """The model with the rows of the published folder."""
        state = {k: v[self.rows] if OF_SYMBOLS.fullmatch(k) else v for k, v in model.state.items()}
        return replace(model, state=state)

    def restored(self, exported: Counterpart, is_unchanged: bool) -> Counterpart:
        """A model with the settings of the folder, and if it is unchanged with its parameters, no more and no less."""
        config, weights = json_object(self.folder / CONFIG), exported.weights
        config.pop("torch_dtype", None)  # another name of dtype
        extra = safetensors.torch.load_file(self.folder / _PARAMETERS)
        names = {name: original for name, original in self.names.items() if original not in extra}
        if is_unchanged and names.keys() <= weights.keys():
            weights = {original: weights[name] for name, original in names.items()} | extra
            if problem_type := config.get("problem_type") or exported.config.get("problem_type"):
                config["problem_type"] = problem_type
        else:
            config |= {name: value for name, value in exported.config.items() if name not in _OF_ROWS}
        return replace(exported, config=config, weights=weights)

    def write_tokenizer(self, folder: Path) -> None:
        """Copies the files of the tokenizer into an exported folder."""
        for name in TOKENIZER_FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)


def read(data: Path, model: Own, head: str | None, layout: str | None) -> Origin | None:
    """The origin in the data folder of a model; None without, for another dictionary, and for another layout."""
    path = data / FOLDER / _DESCRIPTION
    if not path.is_file():
        return None
    content: dict[str, Any] = json_object(path)
    try:
        origin = Origin(path.parent, content["layout"], content["rows"], content["parameters"])
        is_same = content["dictionary"] == model.dictionary.digest()
        fits = layout in (None, origin.layout) and LAYOUTS[origin.layout].has_form(model, head)
        assert max(origin.rows) < len(model.dictionary) or not is_same
    except (KeyError, TypeError, ValueError, AssertionError):
        raise UserError(f"{path} is damaged: expected what `fairseq-xl model convert` wrote") from None
    return origin if is_same and fits else None


def extend(source: Path, target: Path, old: XLDictionary, new: XLDictionary, scores: Mapping[str, float]) -> None:
    """Writes `published/` of a model with new pieces in its folder `target`: they follow the old rows, which stay.

    Without effect if the folder `source` has none, and if the rows of the tokenizer cannot have this order: without
    tokenizer.json SentencePiece's `<mask>` is the last one, and pieces of BPE depend on merges.

    Args:
        old, new: the dictionaries of `source` and `target`, which have the same languages.
        scores: the scores of new unigram pieces.
    """
    folder, ids = source / FOLDER, {symbol: row for row, symbol in enumerate(new.symbols)}
    content = json_object(folder / _DESCRIPTION) if (folder / _DESCRIPTION).is_file() else {}
    if content.get("dictionary") != old.digest():
        return
    symbols = [old.symbols[row] for row in content["rows"]]
    while symbols[-1] not in ids:  # rows of padding
        symbols.pop()
    old_symbols = set(old.symbols)
    added = [symbol for symbol in new.symbols if symbol not in old_symbols]
    tokenizer = json_object(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else {}
    words = (folder / WORDPIECES).read_text(encoding="utf-8").splitlines() if (folder / WORDPIECES).is_file() else []
    kind = tokenizer.get("model", {}).get("type", "WordPiece" if words else None)
    if kind not in ("Unigram", "WordPiece") or not ids.keys() >= {*symbols} or len(words) not in (0, len(symbols)):
        return
    if tokenizer:
        vocabulary = tokenizer["model"]["vocab"]
        tokens = {token["id"]: token["content"] for token in tokenizer.get("added_tokens") or ()}
        if kind == "Unigram":
            vocabulary += [[tokens.get(row), 0.0] for row in range(len(vocabulary), len(symbols))]
            vocabulary += [[piece, scores[piece]] for piece in added]
        else:
            vocabulary |= {piece: row for row, piece in enumerate(added, start=len(symbols))}
        has_gap = len(vocabulary) != len(symbols) + len(added) or (kind == "Unigram" and [None, 0.0] in vocabulary)
        if has_gap or max(tokens, default=0) >= len(symbols):
            return
    numbered_by_itself = (PIECES, "sentencepiece.model", "spiece.model")
    shutil.copytree(folder, target / FOLDER, ignore=shutil.ignore_patterns(*numbered_by_itself))
    if tokenizer:
        write_json(target / FOLDER / TOKENIZER, tokenizer)
    if words:
        write_lines(target / FOLDER / WORDPIECES, [*words, *added])
    rows = [ids[symbol] for symbol in [*symbols, *added]]
    write_json(target / FOLDER / _DESCRIPTION, content | {"dictionary": new.digest(), "rows": rows})
    write_json(target / FOLDER / CONFIG, json_object(folder / CONFIG) | {"vocab_size": len(rows)})
