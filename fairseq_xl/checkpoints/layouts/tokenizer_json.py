"""tokenizer.json of the package tokenizers, read as plain data, and the SentencePiece model in it.

transformers 5 saves only this file for XLM-R, mBART and mBART-50. Its pieces, scores and rules of normalization are
those of the model that the folder was made from, so that its text is encoded as before.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from fairseq_xl.checkpoints.layouts.published_files import TOKENIZER_CONFIG
from fairseq_xl.checkpoints.sentencepiece_surgery import BPE, UNIGRAM, Piece
from fairseq_xl.data.vocabulary.added_tokens import check_tokens
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL, WORD_START
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import json_object

#: steps that a SentencePiece model has too; `Replace` is one if it makes or removes spaces
_STEPS = {"Sequence", "Precompiled", "Prepend", "NFC", "Strip", "Replace", "Metaspace", "WhitespaceSplit"}
#: the first pieces of a model that `fairseq-xl data prepare` or fairseq's models have
FIRST = (("<unk>", Piece.UNKNOWN), ("<s>", Piece.CONTROL), ("</s>", Piece.CONTROL))
#: post_processor of a tokenizer.json -> what `pair_template` returns
PAIRS = {"BertProcessing": (1, 1), "RobertaProcessing": (2, 0)}
BYTE_LEVEL = "byte-level BPE as of roberta-base, which is not supported"
BYTE = re.compile("<0x..>", re.DOTALL)


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json; raises `UserError` for a missing or damaged file, and for other content."""
    content = json_object(path)
    model = content.get("model")
    if not isinstance(model, dict) or not _is_vocabulary(model):
        raise UserError(f"{path} is no tokenizer: it has no model with a vocabulary")
    added = content["added_tokens"] = content.get("added_tokens") or []
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
    rows = vocabulary | {token["content"]: token["id"] for token in content["added_tokens"]}
    if sorted(row if isinstance(row, int) else -1 for row in rows.values()) != list(range(len(rows))):
        raise UserError(f"the symbols of {path} are not numbered from 0 without a gap")
    return sorted(rows, key=rows.__getitem__)


def added_tokens(folder: Path) -> dict[int, dict[str, Any]]:
    """{row: token with flags} of tokens that were added to the tokenizer of a folder, special ones included.

    Without tokenizer.json they are those of added_tokens.json, with the flags that tokenizer_config.json has.
    Raises `UserError` as `read_tokenizer` and `check_tokens`.
    """
    if (path := folder / "tokenizer.json").is_file():
        tokens = {token["id"]: token for token in read_tokenizer(path)["added_tokens"]}
    else:
        path, config = folder / "added_tokens.json", folder / TOKENIZER_CONFIG
        rows = json_object(path) if path.is_file() else {}
        flags = (json_object(config) if config.is_file() else {}).get("added_tokens_decoder") or {}
        if not all(type(row) is int for row in rows.values()):
            raise UserError(f"{path} is damaged: its added tokens are not texts with numbers")
        if not isinstance(flags, dict) or not all(isinstance(token, dict) for token in flags.values()):
            raise UserError(f"{config} is damaged: its added_tokens_decoder is {quoted(flags)}, expected flags by row")
        tokens = {row: flags.get(str(row), {}) | {"content": content} for content, row in rows.items()}
    return dict(zip(tokens, check_tokens([*tokens.values()], path)))


def pair_template(path: Path) -> tuple[int, int] | None:
    """The number of special symbols between the texts of a pair, and the second one's token type.

    None for a tokenizer.json without a template of pairs. Raises `UserError` as `read_tokenizer`, and for a damaged
    template.
    """
    step = read_tokenizer(path).get("post_processor") or {}
    try:
        steps = step["processors"] if step.get("type") == "Sequence" else [step]
        for step in steps:
            if step.get("type") in PAIRS:
                return PAIRS[step["type"]]
            if step.get("type") == "TemplateProcessing":
                parts = [next(iter(part.items())) for part in step["pair"]]
                first, second = (row for row, (kind, _) in enumerate(parts) if kind == "Sequence")
                return second - first - 1, int(parts[second][1]["type_id"])
    except (AttributeError, KeyError, TypeError, ValueError, StopIteration):
        raise UserError(f"{path} is damaged: its post_processor is no template of pairs") from None
    return None


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


def sentencepiece_from_tokenizer(path: Path) -> bytes:
    """The SentencePiece model (content of its file) of a tokenizer.json with a Unigram or BPE model.

    Its pieces are ``<unk> <s> </s>`` and the pieces in the order of the rows, without special symbols. If the file has
    no rules of normalization, the model has none either: transformers 5.23 loses mBART's when it converts them.

    Raises `UserError` for a missing or damaged file, and for a tokenizer that is not one of SentencePiece.
    """
    content = read_tokenizer(path)
    model, steps = content["model"], list(_steps(content, path))
    special = {*(token["content"] for token in content["added_tokens"] if token.get("special")), *SPECIAL, MASK}
    if model["type"] == "Unigram":
        kind, scores = UNIGRAM, [(text, float(score)) for text, score in model["vocab"]]
    elif model["type"] == "BPE":
        kind, scores = BPE, _bpe_scores(model)
    else:
        raise UserError(f"{path} has a {model['type']} model; Unigram and BPE can be made a SentencePiece model")
    fallback = bool(model.get("byte_fallback"))
    pieces = [Piece(piece=text, type=kind) for text, kind in FIRST]
    for text, score in scores:
        if text not in special:
            is_byte = fallback and BYTE.fullmatch(text)
            pieces.append(Piece(piece=text, score=score, type=Piece.BYTE if is_byte else Piece.NORMAL))
    proto = ModelProto(pieces=pieces)
    settings, rules = proto.trainer_spec, proto.normalizer_spec
    settings.model_type, settings.vocab_size, settings.byte_fallback = kind, len(pieces), fallback
    settings.unk_id, settings.bos_id, settings.eos_id, settings.pad_id = 0, 1, 2, -1
    rules.add_dummy_prefix, rules.precompiled_charsmap = False, b""
    for step in steps:
        if step["type"] == "Precompiled":
            try:
                rules.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"], validate=True)
            except (binascii.Error, ValueError, TypeError, KeyError):
                raise UserError(f"{path} is damaged: its rules of normalization are not base64") from None
        elif step["type"] == "Metaspace":  # has a newer or an older key for the space in front of the text
            scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
            rules.add_dummy_prefix |= scheme != "never"
        elif step["type"] == "Prepend":
            rules.add_dummy_prefix = True
    rules.remove_extra_whitespaces = any(
        step["type"] == "WhitespaceSplit" or step.get("pattern") == {"Regex": " {2,}"} for step in steps
    )
    serialized = proto.SerializeToString()
    try:
        sentencepiece.SentencePieceProcessor(model_proto=serialized)
    except RuntimeError as error:
        raise UserError(f"{path} makes no SentencePiece model: {str(error).splitlines()[-1]}") from None
    return serialized


def _steps(content: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Normalizers and pre-tokenizers, also those in sequences; `UserError` for one that SentencePiece lacks."""
    queue = [step for step in (content.get("normalizer"), content.get("pre_tokenizer")) if step]
    while queue:
        step = queue.pop(0)
        is_other = step["type"] == "Replace" and step.get("content") not in ("", " ", WORD_START)
        if is_other or step["type"] not in _STEPS:
            remark = f", {BYTE_LEVEL}" if step["type"] == "ByteLevel" else ""
            raise UserError(f"{path} is no tokenizer of a SentencePiece model: it has a step {step['type']}{remark}")
        yield step
        queue += [*step.get("normalizers", ()), *step.get("pretokenizers", ())]


def _bpe_scores(model: dict[str, Any]) -> list[tuple[str, float]]:
    """Pieces by row with minus the number of their first merge; characters have the lowest scores."""
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    first: dict[str, float] = {}
    for left, right in merges:
        first.setdefault(left + right, -float(len(first)))
    rows = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return [(row, first.get(row, -float(len(first) + index))) for index, row in enumerate(rows)]
