"""The identity of a checkpoint, stored under ``task_state.fairseq_xl``.

It has the format, the task, a hash of the dictionary, the languages, the framing, the number of attention heads (key
``heads``), the sub-words and tokenizers (``encoding``), and keys that some tasks add.
"""

import contextlib
import enum
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_xl import register
from fairseq_xl.data.framing import FRAMINGS
from fairseq_xl.data.store.manifest import check_fingerprint, data_folders, manifest_tokenizers, read_manifest
from fairseq_xl.data.store.plain_folder import dictionary_file, plain_files, plain_languages
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import PUBLISHED_LANGUAGE
from fairseq_xl.data.vocabulary.subwords import FILES, stored_hashes, stored_options, vocabulary_kind
from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io import checkpoints
from fairseq_xl.io.configuration import check_configuration, check_values
from fairseq_xl.io.files import FORMATS, check_format, write_json
from fairseq_xl.io.fingerprints import sampled, sha256_of
from fairseq_xl.io.folders import locked
from fairseq_xl.io.indexed_text import check_sizes
from fairseq_xl.io.options import INITIAL, run_option

logger = logging.getLogger(__name__)

TOKENIZER = "tokenizer of "  # prefix of a language
#: keys of every identity beside "format", with their types
REQUIRED = {
    "task": str,
    "dictionary": str,
    "languages": list[str],
    "framing": enum.Enum("Framing", [(name, name) for name in FRAMINGS]),
    "heads": int | None,
    "encoding": dict,
}
#: keys that some tasks add
OPTIONAL = {
    **dict.fromkeys(("head", "objectives", "objective_options", "body"), str),
    **dict.fromkeys(("lang_pairs", "writes"), list[str]),
    "length": int | None,
    "type_state": dict,
}


class Checkpoint(NamedTuple):
    """A checkpoint of this package."""

    path: Any
    content: dict[str, Any]  # of its file
    cfg: dict[str, Any]  # checked by `check_configuration`, {} if it has none
    identity: dict[str, Any]

    @property
    def state(self) -> dict[str, Tensor]:
        """Its parameters."""
        return self.content["model"]

    @property
    def options(self) -> dict[str, Any]:
        """Options of its model; {} if it has none."""
        return self.cfg.get("model") or {}

    @property
    def task(self) -> dict[str, Any]:
        """Options of its task; {} if it has none."""
        return self.cfg.get("task") or {}


def open_checkpoint(
    path: Any,
    dictionary: XLDictionary | None = None,
    dictionary_file: Any = None,
    content: Any = None,
    finite: bool = True,
) -> Checkpoint:
    """Reads a checkpoint of this package, or its `content`, as plain data, and checks all of it: nothing is run.

    Raises `UserError` for other content, weights that are not `finite`, a wrong configuration, a damaged identity, and
    another `dictionary`.
    """
    register()  # the configuration names models and tasks
    content = checkpoints.check_checkpoint(checkpoints.load_plain(path) if content is None else content, path)
    cfg = check_configuration(content, path).get("cfg") or {}
    if finite:
        _check_finite(content["model"], path)
    identity: Any = (content.get("task_state") or {}).get("fairseq_xl")
    if not isinstance(identity, dict) or "format" not in identity:
        raise UserError(f"{path} was not written by fairseq_xl")
    check_format("checkpoint", identity, path)
    check_values(identity, REQUIRED | OPTIONAL, "task_state.fairseq_xl", path, REQUIRED)
    if identity["languages"]:
        check_languages(identity["languages"], path)
    if dictionary is not None:
        check_vocabulary(identity, path, dictionary, dictionary_file)
    return Checkpoint(path, content, cfg, identity)


def _check_finite(state: dict[str, Any], path: object) -> None:
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise UserError(f"{path} has {quoted(value)} in {name}, expected a tensor")
        if value.numel() > 1 and not value.is_floating_point():  # a single integer may be a counter
            raise UserError(f"{path} has values of {value.dtype} in {name}, expected floating-point numbers")
        if value.is_floating_point() and not checkpoints.is_finite(value):
            raise UserError(f"{path} {checkpoints.NOT_FINITE} in {name}: the training that wrote it had diverged")


def check_languages(languages: Any, path: object) -> None:
    """Raises `UserError` unless `languages`, read from the file `path`, is a list of one or more language codes."""
    if not isinstance(languages, (list, tuple)) or not languages:
        raise UserError(f"{path} is damaged: it names no languages")
    for language in languages:
        if not isinstance(language, str) or not PUBLISHED_LANGUAGE.fullmatch(language):
            raise UserError(f"{path} is damaged: {quoted(language)} is not a language code, such as de or pt-BR")


def check_vocabulary(
    identity: dict[str, Any], origin: object, dictionary: XLDictionary, dictionary_file: Any, trained: str | None = None
) -> None:
    """Raises `UserError` for the identity of a checkpoint of another dictionary, or other sub-words or tokenizers.

    `origin` is the checkpoint's file and `trained` DATA of its training, if it is known, for messages; `dictionary` is
    the run's, and `dictionary_file` its file, in the data folder whose sub-words are compared.
    """
    if identity["dictionary"] != dictionary.digest():
        folder = f"data folder {trained}, " if trained else ""
        raise UserError(
            f"{origin} was trained with another dictionary ({folder}languages {', '.join(identity['languages'])}) than "
            f"{dictionary_file} ({len(dictionary)} symbols, languages {', '.join(dictionary.languages)}); "
            "`fairseq-xl data prepare … --vocabulary-from FOLDER`, its own data folder, encodes text for it, and "
            "`fairseq-xl model extend-vocabulary` makes a checkpoint for another dictionary"
        )
    check_encoding(identity["encoding"], origin, Path(dictionary_file).parent)


def encoding_of(folder: Path) -> dict[str, Any]:
    """{name: value} of a data folder: SHA-256 of its sub-word files, options of its sub-words, tokenizers of languages.

    A hash is the manifest's. If the manifest has none, the file is hashed; a missing file is left out.
    """
    manifest = read_manifest(folder)
    if languages := manifest.get("disjoint"):
        parts = {language: encoding_of(folder / language) for language in languages}
        return {f"{language}/{name}": value for language, part in parts.items() for name, value in part.items()}
    encoding, hashes = stored_options(folder), stored_hashes(folder)
    for name in FILES[vocabulary_kind(folder)]:
        if name in hashes or (folder / name).is_file():
            encoding[name] = hashes.get(name) or sha256_of(folder / name)
    tokenizers = manifest_tokenizers(manifest)
    return encoding | {f"{TOKENIZER}{language}": name for language, name in dict(tokenizers).items()}


def check_encoding(stored: dict[str, Any], origin: object, folder: Path) -> None:
    """Raises `UserError` unless a data folder has a checkpoint's sub-words and tokenizers, as far as both are known.

    `stored` is `encoding_of` the data folder that the checkpoint, the file `origin`, was trained with.
    """
    current = encoding_of(folder) if stored else {}
    for name, value in stored.items():
        if name not in current and TOKENIZER in str(name) and not (folder / "manifest.json").is_file():
            raise UserError(f"{folder}: manifest.json is missing; {origin} needs the {name}, {quoted(value)}")
        if current.get(name, value) != value:
            if name.rpartition("/")[2] in sum(FILES.values(), ()):
                raise UserError(f"{folder / name} has other sub-words than {origin} was trained with")
            raise UserError(
                f"{folder / 'manifest.json'}: {name}: found {quoted(current[name])}, {origin} was trained with "
                f"{quoted(value)}"
            )


def check_framing(framing: str, origin: object, before: str | None, framing_option: str | None) -> None:
    """Raises `UserError` unless a checkpoint's framing is that of the checkpoint `before` it and of --framing."""
    if before not in (None, framing):
        raise UserError(f"{origin} was trained with --framing {framing}, the checkpoint before it with {before}")
    if framing_option not in (None, framing):
        raise UserError(f"--framing {framing_option}: {origin} was trained with --framing {framing}")


def check_data_folder(options: Any, trained: str | None, identity: dict[str, Any], path: object) -> None:
    """Raises `UserError` unless DATA of an evaluation is there and has the dictionary of its checkpoint."""
    if not options.data:
        return  # `setup_task` says that it is missing
    folder = data_folders(options.data)[0]
    if options.data == trained and not folder.is_dir():
        raise UserError(
            f"{folder}: no such data folder: {path} names it, a relative one from the folder in which it was "
            "trained; give another one, as in `fairseq-xl predict CHECKPOINT DATA`"
        )
    file = folder / "dict.txt"
    if dictionary_file(file).is_file() and not options.get("language_module"):
        dictionary = dictionary_of([folder], identity["languages"])  # first: a damaged folder may be the right one
        check_vocabulary(identity, path, dictionary, file, trained)


def dictionary_of(folders: Sequence[Path], languages: Sequence[str] | None = None, options: Any = None) -> XLDictionary:
    """The dictionary of data folders; `UserError` for a missing folder, or one whose text has another dictionary.

    Folders of plain fairseq-preprocess get a manifest, and their dictionary the symbols of `languages`, which are a
    checkpoint's, then those of the other languages of all folders in alphabetical order.

    Args:
        languages: None: those of the checkpoint that a run with these `options` of its task reads, if any.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such data folder")
    text = sorted({code for folder in folders for code in plain_languages(folder)})
    if text and languages is None:
        languages = _checkpoint_languages(options)
    dictionary = XLDictionary.load(folders[0] / "dict.txt", [*(languages or ()), *text] if text else ())
    for folder in folders:
        write_plain_manifest(folder)
        check_dictionary(folder, dictionary)
    return dictionary


def write_plain_manifest(folder: Path) -> None:
    """Writes the manifest of a folder of plain fairseq-preprocess, or adds further text to it; logs if it cannot.

    Raises `UserError` for a text that is damaged.
    """
    manifest, files = read_manifest(folder), plain_files(folder)
    fingerprints = manifest.get("fingerprints", {})
    if not files.keys() - fingerprints.keys():
        return
    dictionary = dictionary_file(folder / "dict.txt")
    for name, path in {dictionary.name: dictionary, **files}.items():
        counts = {}
        if path.suffix == ".idx" and (text := path.with_suffix(".bin")).is_file():
            counts = check_sizes(path, text)
        fingerprints = {name: {"bytes": path.stat().st_size, **counts, "sampled": sampled(path)}} | fingerprints
    try:
        with locked(folder / ".manifest.lock", None):
            entries = {"format": FORMATS["data folder"], **manifest, "fingerprints": fingerprints}
            write_json(folder / "manifest.json", entries)
    except (OSError, UserError) as error:
        logger.info("%s is read without a manifest, changes of its files are not noticed: %s", folder, error)


def _checkpoint_languages(options: Any) -> list[str]:
    """The languages of the checkpoint that a run evaluates, continues or begins from; [] without one."""
    evaluated, training = (run_option(options, name, None) for name in ("common_eval.path", "checkpoint"))
    paths = [getattr(options, name, None) for name in INITIAL]
    if evaluated or training:
        names = ("restore_file", "finetune_from_model", "continue_once")
        last = evaluated.split(os.pathsep) if evaluated else [os.path.join(training.save_dir, "checkpoint_last.pt")]
        paths = [*last, *(training.get(name) for name in names if not evaluated), *paths]
    for path in filter(None, paths):
        with contextlib.suppress(UserError, LookupError, TypeError):  # not ours, or damaged: loading it says so
            content = checkpoints.load_plain(found_in(path)[0], mapped=True)
            return list(content["task_state"]["fairseq_xl"]["languages"])
    return []


def check_dictionary(folder: Path, dictionary: XLDictionary) -> None:
    """Raises `UserError` if the text of a folder was binarized with another dictionary."""
    file = folder / "dict.txt"
    if XLDictionary.load(file, dictionary.languages if plain_languages(folder) else ()).digest() != dictionary.digest():
        raise UserError(f"{file} differs from the dictionary of the first data folder")
    written = read_manifest(folder).get("dictionary", {}).get("sha256")
    if written not in (None, dictionary.digest()):
        manifest = folder / "manifest.json"
        raise UserError(f"{file} is not the dictionary that the text was binarized with: {manifest}")
    file = dictionary_file(file)
    check_fingerprint(folder, file.name)
    joint = file.read_bytes()
    for beside in sorted(folder.glob("*/dict*.txt")):
        if set(beside.parent.name.split("-")) <= set(dictionary.languages) and beside.read_bytes() != joint:
            symbols = XLDictionary.load(beside, ()).symbols
            if symbols != dictionary.symbols[: len(symbols)]:
                text = beside.parent.name
                raise UserError(f"{file} is not the dictionary that the text of {text} was binarized with: {beside}")


def found_in(path: str | os.PathLike) -> tuple[Path, Path | None]:
    """The checkpoint at a path or in its folder, and this folder if it has dict.txt; `UserError` if there is none."""
    checkpoint = Path(path)
    if not checkpoint.exists():
        checkpoints.refuse_hub_name(path)
    if checkpoint.is_dir():
        names = checkpoints.CHECKPOINTS
        checkpoint = next(filter(Path.is_file, map(checkpoint.joinpath, names)), checkpoint)
        if checkpoint.is_dir():
            raise UserError(
                f"{checkpoint}: expected a folder with {' or '.join(names)}, found none of them (`fairseq-xl model "
                "convert` makes one of a published model)"
            )
    return checkpoint, checkpoint.parent if (checkpoint.parent / checkpoints.DICTIONARY).is_file() else None
