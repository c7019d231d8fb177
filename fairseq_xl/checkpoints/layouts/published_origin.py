"""A model that came from a published folder goes out as it came in: class, parameters, rows and tokenizer.

Its checkpoint stores the folder's settings and the parameters that our model lacks (`stored_origin`). `published/` in
the folder of the converted checkpoint has the files of the tokenizer and `origin.json`: our id of each of its rows.
"""

import json
import logging
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts import base
from fairseq_xl.checkpoints.layouts.base import LAYOUTS, TOKENIZER, WORDPIECES, Counterpart, Layout, Settings
from fairseq_xl.checkpoints.layouts.name_mapping import State
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own
from fairseq_xl.checkpoints.layouts.published_files import CONFIG, GENERATION, TOKENIZER_CONFIG, weights_file
from fairseq_xl.checkpoints.layouts.sentence_transformers import read_settings
from fairseq_xl.checkpoints.layouts.stored_origin import DTYPES, Origin
from fairseq_xl.checkpoints.parameter_names import BIAS, DECODER_BIAS, OF_SYMBOLS
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object, read_whole, write_json, write_lines
from fairseq_xl.io.text import decoded

logger = logging.getLogger(__name__)

FOLDER, _DESCRIPTION = "published", "origin.json"
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "sentencepiece.bpe.model", "sentencepiece.model", "spiece.model"),
)
#: entries of config.json that say how the rows are ordered; a folder with the published tokenizer has the original ones
_OF_ROWS = (
    *("vocab_size", "bos_token_id", "pad_token_id", "eos_token_id", "mask_token_id"),
    *("bos_index", "pad_index", "eos_index", "unk_index", "mask_index"),
)


def origin_of(
    layout: Layout, weights: State, config: Settings, state: State, framing: str, folder: Path, reads_head: bool
) -> Origin:
    """What checkpoints store of a published `folder` with `weights`, of which `state` came in, by our names.

    A head is stored unless it is read; a warning says which settings of sentence-transformers are not read.
    """
    named = {name: value.to("meta") for name, value in state.items() if not name.startswith("heads.")}
    present = {layout.canonical(name) for name in layout.to_theirs(named)}
    names = {layout.canonical(name): name for name in weights}
    absent = (names.keys() - present) | {*layout.summed}
    lacking = [key for key in names if key in absent and not (reads_head and re.match(layout.ignored_heads, key))]
    dtypes = {str(value.dtype).removeprefix("torch.") for value in weights.values() if value.is_floating_point()}
    try:
        settings = read_settings(folder)
    except UserError as error:
        logger.warning("settings of sentence embeddings are left out: %s", error)
        settings = None
    text, file, searched = json.dumps(config), folder / CONFIG, folder / GENERATION
    if file.is_file() and json_object(file) == config:  # without the changes of an adapter
        text = decoded(read_whole(file), file)
    return Origin(
        layout=layout.name,
        framing=framing,
        has_output=BIAS in state or DECODER_BIAS in state,
        config=text,
        names=names,
        parameters={names[key]: weights[names[key]].clone() for key in lacking},
        sentences=dict(settings.files) if settings else {},
        dtype=min(dtypes) if len(dtypes) == 1 and dtypes <= DTYPES.keys() else "",
        generation=decoded(read_whole(searched), searched) if searched.is_file() else "",
    )


def without_new_output(model: Own) -> Own:
    """The model without an output layer that its published folder had not and that no training changed.

    Each training of an output layer moves its biases, which are 0 at first, unless --freeze keeps all of them: a
    warning says that the output layer is left out.
    """
    origin, output = model.origin, {k: v for k, v in model.state.items() if k == BIAS or k.startswith("output.")}
    is_trained = any(value.any() for name, value in output.items() if name.endswith("bias"))
    if origin is None or origin.has_output or model.has_decoder or is_trained or not output:
        return model
    if model.updates:
        logger.warning("%s: the output layer is left out: its biases are 0, as before training", model.path)
    return replace(model, state={name: value for name, value in model.state.items() if name not in output})


def restored(exported: Counterpart, model: Own, head: str | None, is_unchanged: bool, rows: int | None) -> Counterpart:
    """The model of transformers with the class, the settings and further parameters of its published folder.

    The class is the folder's if it has these parameters, otherwise one of its family. An unchanged model has the
    parameters of the folder, no more and no less; of another one, those that training did not read are the folder's.
    `rows`: number of rows of the folder's tokenizer, in whose order they are; None for our order.
    """
    origin, layout = model.origin, exported.layout
    if origin is None or origin.layout != layout.name:
        return exported
    stored = {layout.canonical(name): value for name, value in origin.parameters.items()}
    present = {layout.canonical(name): name for name in exported.weights}
    summed = [name for name in layout.summed if name in stored]
    if summed and not _is_sum(exported.weights[present[layout.summed[0]]], [stored[name] for name in summed]):
        stored = {name: value for name, value in stored.items() if name not in summed}  # they were trained
    is_unchanged &= origin.names.keys() <= present.keys() | stored.keys()
    if is_unchanged:
        read = {written: name for name, written in origin.names.items() if name not in stored}
        weights = {written: exported.weights[present[name]] for written, name in read.items()}
        weights |= {name: value for name, value in origin.parameters.items() if layout.canonical(name) in stored}
        classes = origin.entries.get("architectures")
    else:
        new = head or any(name.startswith("heads.nsp.") for name in model.state)
        weights, classes = _trained(exported, origin, {} if new else stored, present.keys())
    config = exported.config
    if rows is not None:
        changed = {} if is_unchanged else {name: value for name, value in config.items() if name not in _OF_ROWS}
        stale = ("problem_type",) if head and not is_unchanged else ()
        entries = {name: value for name, value in origin.entries.items() if name not in stale}
        config = entries | changed | {"vocab_size": rows}
    if head and not is_unchanged and len(config["id2label"]) == 1:  # a score, which has no label here
        config = config | _one_label(origin.entries.get("id2label"))
    config = {name: value for name, value in config.items() if name != "architectures"}
    config |= {"model_type": str(origin.entries.get("model_type"))} | ({"architectures": classes} if classes else {})
    return replace(exported, config=config, weights=weights)


def _one_label(labels: Any) -> Settings:
    """The entries of config.json for the only label of a folder; none for several."""
    names = [*labels.values()] if isinstance(labels, dict) else []
    return {"id2label": {"0": names[0]}, "label2id": {names[0]: 0}} if len(names) == 1 and type(names[0]) is str else {}


def _is_sum(total: Tensor, tables: list[Tensor]) -> bool:
    """Whether a table (N, C) is the sum of tables of N rows or one."""
    if not {tuple(table.shape) for table in tables} <= {(rows, total.size(1)) for rows in (1, len(total))}:
        return False
    return torch.equal(sum((table.float() for table in tables), torch.zeros_like(total)), total)


def _trained(exported: Counterpart, origin: Origin, stored: State, present: Collection[str]) -> tuple[State, list[str]]:
    """Parameters of a trained model with those `stored` ones that its class needs, and its class.

    A head that was not read does not fit the trained encoder. `present`: the parameters that were exported.
    """
    layout = exported.layout
    stored = {name: value for name, value in stored.items() if not re.match(layout.ignored_heads, name)}
    needed = {name for name in origin.names if not re.fullmatch("|".join(base.IGNORED), name)}
    weights = exported.weights | {name: stored[name] for name in stored.keys() & needed - {*present}}
    whole = {*present} | stored.keys()
    if needed <= whole <= origin.names.keys() | layout.names.ties.keys() and origin.entries.get("architectures"):
        return weights, origin.entries["architectures"]
    prefix = layout.class_prefixes.get(str(origin.entries.get("model_type")), layout.model_class)
    return weights, [name.replace(layout.model_class, prefix, 1) for name in exported.config["architectures"]]


def keep_tokenizer(source: Path, folder: Path, layout: Layout, symbols: list[str]) -> None:
    """Writes `published/` into the folder of a checkpoint, for a published folder with a tokenizer whose rows it has.

    `symbols` are ours, one for each row; none if rows have no symbol, which the checkpoint then lacks.
    """
    file = weights_file(source)
    named = (
        TOKENIZER,
        TOKENIZER_CONFIG,
        *((WORDPIECES,) if layout.subwords == "wordpiece" else (base.PIECES, base.WORDS)),
    )
    has_tokenizer = any(file.with_name(name).is_file() for name in named)  # that transformers reads
    if not symbols or not has_tokenizer or not file.with_name(CONFIG).is_file():
        return
    target = folder / FOLDER
    target.mkdir()
    for name in TOKENIZER_FILES:
        if file.with_name(name).is_file():
            shutil.copyfile(file.with_name(name), target / name)
    dictionary = XLDictionary.load(folder / "dict.txt")
    rows = [dictionary.index(symbol) for symbol in symbols]
    write_json(target / _DESCRIPTION, {"layout": layout.name, "dictionary": dictionary.digest(), "rows": rows})


@dataclass(frozen=True)
class PublishedTokenizer:
    """What `keep_tokenizer` wrote."""

    folder: Path
    rows: list[int]  # our id of each row

    def in_order(self, model: Own) -> Own:
        """The model with the rows of the published folder."""
        state = {k: v[self.rows] if OF_SYMBOLS.fullmatch(k) else v for k, v in model.state.items()}
        return replace(model, state=state)

    def write(self, folder: Path, model: Own) -> None:
        """Copies the files into an exported folder; those of a trained model get its length."""
        for name in TOKENIZER_FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)
        if not model.updates:
            return
        config = json_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
        longest = config.get("model_max_length")
        if model.head or not isinstance(longest, (int, float)) or longest > model.longest:
            write_json(folder / TOKENIZER_CONFIG, config | {"model_max_length": model.longest})
            tokenizer = json_object(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else {}
            if truncation := tokenizer.get("truncation"):
                if not isinstance(truncation, dict):
                    raise UserError(f"{self.folder / TOKENIZER} is damaged: its truncation is {quoted(truncation)}")
                truncation["max_length"] = model.longest
                write_json(folder / TOKENIZER, tokenizer)


def read_tokenizer(data: Path, model: Own, head: str | None, layout: str | None) -> PublishedTokenizer | None:
    """The published tokenizer in the data folder of a model that came from its folder.

    None without, for another dictionary or framing, and for another layout. Raises `UserError` for a damaged one.
    """
    path, origin = data / FOLDER / _DESCRIPTION, model.origin
    if not path.is_file() or origin is None:
        return None
    content: dict[str, Any] = json_object(path)
    rows, digest = content.get("rows") or [], content.get("dictionary")
    is_same = digest == model.dictionary.digest()
    has_rows = isinstance(rows, list) and rows != [] and all(type(row) is int and row >= 0 for row in rows)
    if not has_rows or not isinstance(digest, str) or (is_same and max(rows) >= len(model.dictionary)):
        raise UserError(f"{path} is damaged: expected what `fairseq-xl model convert` wrote")
    is_same &= content.get("layout") == origin.layout and model.options["framing"] == origin.framing
    is_same &= layout in (None, origin.layout) and origin.layout in LAYOUTS
    return PublishedTokenizer(path.parent, rows) if is_same and LAYOUTS[origin.layout].has_form(model, head) else None


def extend(source: Path, target: Path, old: XLDictionary, new: XLDictionary, scores: Mapping[str, float]) -> None:
    """Writes `published/` of a model with new pieces in its folder `target`: they follow the old rows, which stay.

    Without effect if the folder `source` has none, and if the rows of the tokenizer cannot have this order: without
    tokenizer.json SentencePiece's `<mask>` is the last one, and pieces of BPE depend on merges. Both dictionaries have
    the same languages; `scores` are those of unigram pieces.
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
    numbered_by_itself = (base.PIECES, "sentencepiece.model", "spiece.model")
    shutil.copytree(folder, target / FOLDER, ignore=shutil.ignore_patterns(*numbered_by_itself))
    if tokenizer:
        write_json(target / FOLDER / TOKENIZER, tokenizer)
    if words:
        write_lines(target / FOLDER / WORDPIECES, [*words, *added])
    rows = [ids[symbol] for symbol in [*symbols, *added]]
    write_json(target / FOLDER / _DESCRIPTION, content | {"dictionary": new.digest(), "rows": rows})
