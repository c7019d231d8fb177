"""Banks: what a language owns of a MonoTrans model, apart from the body that languages share (M1-M5).

A bank has the tokens, the output bias, the embedding of the language where the model has one, and with M3 and M5
positions and adapters. Special symbols are the body's: step 4 uses the fine-tuned ones (M2). A family is a zip file of
files of banks, LANGUAGE.bank.pt, uncompressed: adding one copies the others byte by byte. The command is
`fairseq-xl language-module`.

A bank says which body it was learned over, so that it is put into no other: the SHA-256 of the body's parameters. A
fine-tuned checkpoint remembers that of the body it began with.
"""

import hashlib
import io
import logging
import os
import re
import zipfile
from pathlib import Path

import torch

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.checkpoints import load_plain, save_checkpoint
from fairseq_xl.io.configuration import check_configuration
from fairseq_xl.io.files import replacing

logger = logging.getLogger(__name__)

FORMAT = 1
KIND = "fairseq_xl bank"
SUFFIX = ".bank.pt"
TOKENS, BIAS = "encoder.bank.tokens.weight", "encoder.bank.bias"
SPECIAL = "encoder.bank.special.weight"
POSITIONS = "encoder.embeddings.positions.weight"
#: every parameter of any bank but positions and adapters
ALWAYS = (TOKENS, BIAS, "encoder.embeddings.languages.weight")
#: what a bank says of itself: the types
CONTENT = {"languages": list, "dictionary": str, "body": str, "language_positions": bool, "adapters": int,
           "state": dict}  # fmt: skip
LANGUAGE = re.compile(r"\w[\w-]*")  # a language code; it is also a file name
SHARED = 4  # special symbols at the beginning of a dictionary; the fifth, <mask>, is before the languages' symbols


# --- state dicts -----------------------------------------------------------------------------------------------


def owned(name, language_positions):
    """Whether a parameter of this name belongs to a bank."""
    return name in ALWAYS or "_adapter." in name or (language_positions and name == POSITIONS)


def split(state, language_positions):
    """A model's state dict -> the bank's part of it and the rest, special symbols and heads included."""
    bank = {name: value for name, value in state.items() if owned(name, language_positions)}
    return bank, {name: value for name, value in state.items() if name not in bank}


def put_in(state, bank):
    """The state dict of a model with the bank `bank`, a dict as `read` returns it, in place of its own."""
    return split(state, bank["language_positions"])[1] | bank["state"]


def body_digest(state, language_positions):
    """SHA-256 of the parameters of the body: embeddings and layers that belong to no bank, but the special symbols.

    Those are tuned in step 3, which begins with the digest of what it was given.
    """
    digest = hashlib.sha256()
    for name, value in sorted(split(state, language_positions)[1].items()):
        if name.startswith("encoder.") and name != SPECIAL:
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def shared_rows(state, languages):
    """Rows of the special symbols in a token table that ends in the symbols of so many `languages`."""
    return [*range(SHARED), len(state[TOKENS]) - languages - 1]


def with_special(state, languages):
    """A state dict whose special symbols are a table of their own: as it is, or made from rows of the token table."""
    if SPECIAL in state:
        return state
    return state | {SPECIAL: state[TOKENS][shared_rows(state, languages)]}


def without_special(state, languages):
    """The opposite: special symbols in their rows of the token table."""
    if SPECIAL not in state:
        return state
    tokens = state[TOKENS].clone()
    tokens[shared_rows(state, languages)] = state[SPECIAL]
    return {name: value for name, value in state.items() if name != SPECIAL} | {TOKENS: tokens}


# --- files -----------------------------------------------------------------------------------------------------


def extract(checkpoint, path):
    """The content of a checkpoint, the file `path` -> its bank.

    Raises `UserError` for a checkpoint of another model.
    """
    checkpoint = check_configuration(checkpoint, path)
    state, identity = checkpoint["model"], (checkpoint.get("task_state") or {}).get("fairseq_xl") or {}
    model = (checkpoint.get("cfg") or {}).get("model")
    of_banks = isinstance(model, dict) and {"language_positions", "adapters"} <= model.keys()
    if SPECIAL not in state or not of_banks or not {"dictionary", "languages"} <= identity.keys():
        raise UserError(f"{path} has no bank: it is no checkpoint of an xl_monotrans_* model")
    check_languages(identity["languages"], path)
    positions = bool(model["language_positions"])
    return {
        "kind": KIND,
        "format": FORMAT,
        "languages": list(identity["languages"]),
        "dictionary": identity["dictionary"],
        "body": identity.get("body") or body_digest(state, positions),
        "language_positions": positions,
        "adapters": int(model["adapters"]),
        "state": split(state, positions)[0],
    }


def read(path, language=None):
    """Reads a bank: a file of one, a family, or a checkpoint that has one.

    Args:
        path: the file.
        language: of a family, the language whose bank is wanted; of another file, one that it must have.

    Returns: a dict, as `extract` makes it.
    Raises `UserError` for a missing or damaged file, one of another kind, or one without the language's bank.
    """
    members = _members(path)
    if members is not None:
        if language is None and len(members) > 1:
            raise UserError(f"{path} has banks of {', '.join(members)}: name one as --lang")
        return _packed(path, members[_named(path, members, language) if language else next(iter(members))])
    content = load_plain(path)
    is_checkpoint = isinstance(content, dict) and isinstance(content.get("model"), dict)
    bank = extract(content, path) if is_checkpoint else _check(content, path)
    if language is not None and language not in bank["languages"]:
        raise UserError(f"--lang {language}: {path} is the bank of {', '.join(bank['languages'])}")
    return bank


def pack(family, paths):
    """Adds files of banks to the file `family`, which is made or grows; what it has stays, byte by byte.

    Raises `UserError` for a language that it has already, unless with the same bytes, and for a bank of another body.
    """
    members = _members(family) if os.path.lexists(family) else {}
    if members is None:
        raise UserError(f"{family} is no family of banks")
    contents = {language: _bytes(family, name) for language, name in members.items()}
    bodies = {_packed(family, name)["body"]: f"those of {family}" for name in members.values()}
    for path in paths:
        bank = _check(load_plain(path), path)
        language, content = "+".join(bank["languages"]), Path(path).read_bytes()
        for other in contents:
            both = sorted(set(bank["languages"]) & set(other.split("+")))
            if both and (other, contents[other]) != (language, content):
                raise UserError(f"{path}: {family} has another bank of {both[0]} already")
        bodies.setdefault(bank["body"], path)
        if len(bodies) > 1:
            raise UserError(f"{path} was learned over another body than {next(iter(bodies.values()))}")
        contents[language] = content
    with replacing(family) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for language, content in contents.items():
            archive.writestr(zipfile.ZipInfo(f"{language}{SUFFIX}"), content)
    logger.info("%s has banks of %s", family, ", ".join(contents))


def copy(family, language, path):
    """Writes the bank of a language to a file of its own, as it was packed; `UserError` if the family has none."""
    members = _members(family)
    if members is None:
        raise UserError(f"{family} is no family of banks")
    name = _named(family, members, language)
    content = _bytes(family, members[name])
    check_replaceable(path, _packed(family, members[name]))
    with replacing(path) as stream:
        stream.write(content)
    logger.info("%s is the bank of %s", path, name)


def write(bank, path):
    """Writes a bank, as `extract` makes it, to a file of its own."""
    check_replaceable(path, bank)
    save_checkpoint(bank, path)
    logger.info("%s is the bank of %s", path, "+".join(bank["languages"]))


def check_replaceable(path, bank):
    """Raises `UserError` if a bank that is written to `path` would destroy anything but its like.

    That is one of the same languages, dictionary and body, with positions and adapters or without, as it is.
    """
    if not os.path.lexists(path):
        return
    try:
        found = _check(load_plain(path), path)
    except UserError as error:
        raise UserError(f"{error}; nothing is written over it: remove it or name another file") from None
    others = [name for name in CONTENT if name != "state" and found[name] != bank[name]]
    if others:
        raise UserError(
            f"{path} is a bank of {', '.join(found['languages'])} with other {', '.join(others)}: remove it or name "
            "another file"
        )


def describe(path):
    """{language: what its bank says of itself} of every bank of a file."""
    members, found = _members(path), {}
    for bank in [read(path)] if members is None else [_packed(path, name) for name in members.values()]:
        symbols, channels = bank["state"][TOKENS].shape
        found["+".join(bank["languages"])] = {
            "symbols": symbols,
            "channels": channels,
            "positions": bank["language_positions"],
            "adapters": bank["adapters"],
            "dictionary": bank["dictionary"],
            "body": bank["body"],
        }
    return found


def check_languages(languages, path):
    """Raises `UserError` unless `languages`, read from the file `path`, is a list of one or more language codes."""
    if not isinstance(languages, (list, tuple)) or not languages:
        raise UserError(f"{path} is damaged: it names no languages")
    for language in languages:
        if not isinstance(language, str) or not LANGUAGE.fullmatch(language):
            raise UserError(f"{path} is damaged: {quoted(language)} is not a language code, such as de or pt-BR")


def _members(path):
    """{language: name of its file in the family}, or None where the file is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return None  # what reads it next says what is wrong with it
    if not names or not all(name.endswith(SUFFIX) for name in names):
        return None
    members = {name.removesuffix(SUFFIX): name for name in names}
    check_languages([language for name in members for language in name.split("+")], path)
    return members


def _named(path, members, language):
    """The name among `members` of a family by which a language's bank goes, "de" or "de+fr" for "de"."""
    for name in members:
        if language in (name, *name.split("+")):
            return name
    raise UserError(f"{path} has banks of {', '.join(members)}, not of {language}")


def _bytes(path, name):
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged: {name} cannot be read ({error})") from error


def _packed(path, name):
    """One of a family: its file's name there -> the bank."""
    stream = io.BytesIO(_bytes(path, name))
    stream.name = f"{path}, {name}"
    return _check(load_plain(stream), stream.name)


def _check(content, path):
    """A file's content, if it is a bank."""
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UserError(f"{path} is no bank; `fairseq-xl language-module extract` takes one out of a model")
    if content.get("format") != FORMAT:
        raise UserError(f"{path} has format {content.get('format')} of banks, this version reads {FORMAT}")
    wrong = [name for name, kind in CONTENT.items() if not isinstance(content.get(name), kind)]
    if wrong or TOKENS not in content["state"]:
        raise UserError(f"{path} is damaged: it lacks {', '.join(wrong) or TOKENS}")
    check_languages(content["languages"], path)
    strange = [name for name, value in content["state"].items() if not torch.is_tensor(value)]
    if strange:
        raise UserError(f"{path} is damaged: {strange[0]} is no tensor")
    return content
