"""The YAML description of a corpus: languages, vocabulary, monolingual files, bitext pairs and test sets."""

import importlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args

from fairseq_xl.data.vocabulary import tokenizers, xlm_text
from fairseq_xl.data.vocabulary.subwords import FILES, Kind, Source
from fairseq_xl.errors import UserError, check_language, language_pair, quoted
from fairseq_xl.io import bounds
from fairseq_xl.io.compressed import added_suffix
from fairseq_xl.io.yaml_files import load

NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")  # _cf: lower case too
SPLITS = ("train", "valid", "test")
#: kind of vocabulary that is learned -> settings of the other kind
WITHOUT_EFFECT = {"xlm": ("coverage", "normalization"), "sentencepiece": ("codes", "lowercase_and_remove_accent")}


@dataclass(frozen=True)
class XLM:
    """A published vocabulary of XLM; file names are relative to the YAML file."""

    codes: str = ""  # codes of fastBPE, or merges.txt of transformers
    vocab: str = ""  # 'word count' on every line, or vocab.json of transformers
    lowercase_and_remove_accent: bool = True  # true for XLM-15; XLM-17 and XLM-100 keep case and accents
    size: int | None = None  # number of first words of `vocab` that are kept, as XLM's --max_vocab; None: all


@dataclass(frozen=True)
class WordPiece:
    """A published WordPiece vocabulary, such as multilingual BERT's; the file name is relative to the YAML file."""

    vocab: str = ""  # vocab.txt, one piece on every line
    lowercase: bool = False  # true for an uncased vocabulary, whose text also loses accents


@dataclass(frozen=True)
class Vocabulary:
    """Settings for learning sub-words (Lample & Conneau 2019, section 3.1), or an existing model."""

    model: str = "unigram"  # "unigram" or "bpe" of SentencePiece, or "fastbpe", XLM's kind
    size: int = 8000  # pieces; of a SentencePiece model with <s>, </s> and <unk>
    alpha: float = 0.5  # exponent of the languages' shares in the sample, q_i ~ p_i^alpha
    sentences: int = 1000000  # maximum number of sentences sampled, from all languages together
    coverage: float | None = None  # share of characters with a piece of their own; None: `vocabulary.coverage_of`
    normalization: str = "nmt_nfkc"  # SentencePiece's rule: one of NORMALIZATIONS; "identity" for none
    codes: int = 80000  # merges that fastbpe learns
    lowercase_and_remove_accent: bool = True  # of fastbpe
    sentencepiece: str = ""  # an existing SentencePiece model instead of all the above, relative to the YAML file
    xlm: XLM | None = None  # XLM's codes and vocabulary instead
    wordpiece: WordPiece | None = None  # a WordPiece vocabulary instead; the name of its file alone will do

    @property
    def existing(self) -> Kind | None:
        """The kind of the existing vocabulary; None for one that is to be learned."""
        return next((name for name in FILES if getattr(self, name)), None)

    @property
    def kind(self) -> Kind:
        """The kind of the existing vocabulary, or of the one that is to be learned."""
        return self.existing or ("xlm" if self.model == "fastbpe" else "sentencepiece")

    def source(self, root: Path) -> Source:
        """The existing vocabulary, whose files are relative to `root`."""
        kind = cast(Kind, self.existing)
        settings = getattr(self, kind)
        values = {"model": settings} if kind == "sentencepiece" else asdict(settings)
        files = tuple(root / value for value in values.values() if isinstance(value, str))
        return Source(kind, files, {key: value for key, value in values.items() if isinstance(value, bool)})

    def problems(self) -> list[str]:
        """Describes each value out of range."""
        most = bounds.LARGEST_VOCABULARY
        checks = (
            ("model", self.model in ("unigram", "bpe", "fastbpe"), "unigram, bpe or fastbpe"),
            ("codes", self.codes > 0, "more than 0"),
            ("size", 0 < self.size < most, f"more than 0 and below {most}"),
            ("alpha", 0 <= self.alpha <= 1, "from 0 to 1"),
            ("sentences", self.sentences > 0, "more than 0"),
            ("coverage", self.coverage is None or 0 < self.coverage <= 1, "more than 0 and at most 1"),
            ("normalization", self.normalization in NORMALIZATIONS, " or ".join(NORMALIZATIONS)),
        )
        return [
            f"vocabulary: {name} must be {expected}, found {quoted(getattr(self, name))}"
            for name, good, expected in checks
            if not good
        ]


@dataclass(frozen=True)
class Clean:
    """Rules that leave out lines of training text (`preprocess.clean`)."""

    longest: int = 250  # maximum number of words, separated by white space; 0: no limit
    length_ratio: float = 2.0  # maximum ratio of the sides' lengths, relative to the typical one; 0: no limit
    token_ratio: float = 0.0  # maximum ratio of the sides' numbers of words; 0: no limit
    copies: bool = True  # leave out pairs with equal sides
    duplicates: bool = True  # leave out pairs, or lines of one language, that occurred before
    language: bool = True  # leave out lines in another one of the languages

    def problems(self, where: str) -> list[str]:
        """Describes each value out of range; `where` is the key of the rules in the description."""
        checks = (
            ("longest", self.longest >= 0, "0 or more"),
            ("length_ratio", self.length_ratio == 0 or 1 < self.length_ratio < float("inf"), "0 or more than 1"),
            ("token_ratio", self.token_ratio == 0 or 1 <= self.token_ratio < float("inf"), "0, or 1 or more"),
        )
        return [
            f"{where}: {name} must be {expected}, found {getattr(self, name)}"
            for name, good, expected in checks
            if not good
        ]


@dataclass(frozen=True)
class Side:
    """The text of one language in a split: one file, or several that are concatenated."""

    language: str
    files: tuple[str, ...]  # names as in the YAML file, with the language's suffix and with .gz or the like


@dataclass(frozen=True)
class Split:
    """One dataset of a subfolder of the data folder; two sides for bitext, one for monolingual text."""

    name: str  # train, valid, valid1, ..., test, test1, ...
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Folder:
    """One subfolder of the data folder: a language ("en") or a pair ("en-de")."""

    name: str
    splits: tuple[Split, ...]
    clean: Clean | None = None  # a pair's own rules, in place of those of the description


@dataclass(frozen=True)
class Config:
    """A checked description; paths are relative to `root`, the YAML file's folder."""

    root: Path
    languages: tuple[str, ...]
    vocabulary: Vocabulary
    folders: tuple[Folder, ...]
    tokenizers: dict[str, str] = field(default_factory=dict)  # by language; raw text for a language without one
    clean: Clean | None = None  # None: nothing is left out
    shards: int | None = None  # data folders that divide the training text; None: one data folder
    added_tokens: list[dict[str, Any]] = field(default_factory=list)  # of the data folder of --vocabulary-from

    def sides(self) -> list[tuple[Folder, Split, Side]]:
        """All sides with their folder and split, in the order of the description."""
        return [(folder, split, side) for folder in self.folders for split in folder.splits for side in split.sides]

    def files(self) -> list[str]:
        """Every input file once, in the order of the description."""
        return list(dict.fromkeys(name for _, _, side in self.sides() for name in side.files))

    def as_dict(self) -> dict:
        """Returns the description for the manifest, without absolute paths other than the user's."""
        existing = self.vocabulary.existing  # without the settings of learning
        vocabulary = {
            key: value
            for key, value in asdict(self.vocabulary).items()
            if (key == existing if existing else key not in (*FILES, *WITHOUT_EFFECT.get(self.vocabulary.kind, ())))
        }
        if self.vocabulary.xlm and self.vocabulary.xlm.size is None:
            del vocabulary["xlm"]["size"]
        description: dict[str, Any] = {"languages": list(self.languages), "vocabulary": vocabulary}
        description |= {"tokenizer": self.tokenizers} if self.tokenizers else {}
        description |= {"clean": asdict(self.clean)} if self.clean else {}
        description |= {"shards": self.shards} if self.shards else {}
        pair_rules = {folder.name: {"clean": asdict(folder.clean)} for folder in self.folders if folder.clean}
        return description | ({"bitext": pair_rules} if pair_rules else {})

    def rules_of(self, folder: Folder) -> Clean | None:
        """The rules that leave out training text of a folder; None: nothing is left out."""
        return folder.clean or self.clean


def read_config(path: str | Path) -> tuple[Config, list[str]]:
    """Reads a description; returns it and its problems. Raises UserError if the file is missing or is not YAML."""
    path = Path(path)
    content = load(path, only_text=True)
    problems: list[str] = []
    keys = ("languages", "vocabulary", "tokenizer", "clean", "monolingual", "bitext", "shards")
    content = _mapping(content, str(path), keys, problems)
    languages = _languages(content.get("languages", []), problems)
    vocabulary = _vocabulary(content.get("vocabulary", {}), problems)
    tokenizer_names = _tokenizers(content.get("tokenizer", {}), languages, vocabulary, problems)
    rules = _rules(content["clean"], "clean", problems) if "clean" in content else None
    shards = _shards(content["shards"], problems) if "shards" in content else None
    folders = _folders(content, languages, path.resolve().parent, problems)
    with_text = {side.language for folder in folders for split in folder.splits for side in split.sides}
    problems += [f"languages: there is no text for {name!r}" for name in languages if name not in with_text]
    problems += _files_of_two_languages(folders, path.resolve().parent)
    return Config(path.resolve().parent, languages, vocabulary, folders, tokenizer_names, rules, shards), problems


def _mapping(value: Any, where: str, valid: tuple[str, ...] | None, problems: list[str]) -> dict:
    """Returns `value` if it is a mapping; reports and removes keys that are not in `valid`."""
    if value == "":  # "key:" without a value
        return {}
    if not isinstance(value, dict):
        problems.append(f"{where}: expected a mapping (key: value), found {quoted(value)}")
        return {}
    unknown = [key for key in value if valid is not None and key not in valid]
    problems += [f"{where}: unknown key {quoted(key)}; valid keys: {', '.join(valid or ())}" for key in unknown]
    return {key: inner for key, inner in value.items() if key not in unknown}


def _languages(value: Any, problems: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        problems.append(f"languages: expected a list such as [en, de], found {quoted(value)}")
        return ()
    for name in dict.fromkeys(value):
        if value.count(name) > 1:
            problems.append(f"languages: {quoted(name)} is named twice")
        try:
            check_language("languages", name)
        except UserError as error:
            problems.append(str(error))
    return tuple(dict.fromkeys(value))


def _shards(value: Any, problems: list[str]) -> int | None:
    """Returns the number of shards; reports anything else."""
    if isinstance(value, str) and re.fullmatch("[0-9]+", value) and 1 <= int(value[:10]) <= bounds.MOST_SHARDS:
        return int(value)
    problems.append(f"shards: expected a number from 1 to {bounds.MOST_SHARDS}, found {quoted(value)}")
    return None


def _rules(value: Any, where: str, problems: list[str]) -> Clean:
    """Reads rules of cleaning from a mapping of strings; reports unknown keys and wrong values."""
    rules = Clean(**_parse_fields(Clean, value, where, problems))
    problems += rules.problems(where)
    return rules


def _parse_fields(kind: type, value: Any, where: str, problems: list[str]) -> dict:
    """Converts a mapping of strings to the types of a dataclass's fields; reports the others."""
    types = {field.name: (*get_args(field.type), field.type)[0] for field in fields(kind)}  # X of X | None
    kinds: dict[str, Any] = {name: _boolean if type_ is bool else type_ for name, type_ in types.items()}
    parsed = {}
    for key, text in _mapping(value, where, tuple(kinds), problems).items():
        if is_dataclass(kinds[key]):
            parsed[key] = kinds[key](**_parse_fields(kinds[key], text, f"{where}: {key}", problems))
            continue
        try:
            if not isinstance(text, str):
                raise TypeError("a value is expected, and no list or mapping of them")
            parsed[key] = kinds[key](text)
        except (TypeError, ValueError):
            name = "bool" if kinds[key] is _boolean else kinds[key].__name__
            problems.append(f"{where}: {key} must be of type {name}, found {quoted(text)}")
    return parsed


def _boolean(text: str) -> bool:
    return ("false", "true").index(text.lower()) == 1  # or a `ValueError`


def _vocabulary(value: Any, problems: list[str]) -> Vocabulary:
    if isinstance(value, dict) and isinstance(value.get("wordpiece"), str):
        value = value | {"wordpiece": {"vocab": value["wordpiece"]}}
    settings = _parse_fields(Vocabulary, value, "vocabulary", problems)
    existing = next((name for name in FILES if name in settings), None)
    unused = [key for key in settings if key != existing]
    if existing and unused:
        kind = "model" if existing == "sentencepiece" else "vocabulary"
        problems.append(f"vocabulary: {existing} names an existing {kind}; leave out {', '.join(unused)}")
    if existing == "sentencepiece" and not settings["sentencepiece"]:
        problems.append("vocabulary: sentencepiece must name the file of a model")
    elif existing in ("xlm", "wordpiece"):
        missing = [name for name, value in asdict(settings[existing]).items() if value == ""]
        problems += [f"vocabulary: {existing}: {name} must name a file" for name in missing]
        if existing == "xlm" and settings["xlm"].size is not None and settings["xlm"].size < 1:
            problems.append(f"vocabulary: xlm: size must be 1 or more, found {settings['xlm'].size}")
    vocabulary = Vocabulary(**settings)
    without_effect = () if existing else [key for key in WITHOUT_EFFECT[vocabulary.kind] if key in settings]
    problems += [f"vocabulary: {key} has no effect with model {vocabulary.model}" for key in without_effect]
    problems += vocabulary.problems()
    return vocabulary


def _tokenizers(value: Any, languages: tuple[str, ...], vocabulary: Vocabulary, problems: list[str]) -> dict[str, str]:
    """Returns the tokenizers by language; with XLM's kind of vocabulary, XLM's is the default."""
    is_xlm = vocabulary.kind == "xlm"
    valid = (tokenizers.SEGMENTED,) if is_xlm else tuple(tokenizers.PACKAGES)
    names = dict.fromkeys(languages, tokenizers.XLM) if is_xlm else {}
    for language, name in _mapping(value, "tokenizer", languages, problems).items():
        if isinstance(name, str) and name in valid:
            names[language] = name
        else:
            problems.append(f"tokenizer {language}: unknown {quoted(name)}; valid: {', '.join(valid)}")
    problems += _missing_packages(names)
    if names.get("ja") == tokenizers.XLM and not problems:
        try:
            xlm_text.segmenter(xlm_text.SEGMENTERS["ja"])
        except UserError as error:
            problems.append(str(error))
    return names


def _missing_packages(names: dict[str, str]) -> list[str]:
    """The packages that tokenizers {language: name} need and that are not installed, a sentence each."""
    missing: dict[tuple[str, str], list[str]] = {}
    for language, name in names.items():
        for package in tokenizers.packages_of(name, language):
            try:
                importlib.import_module({"kytea": "Mykytea"}.get(package, package))
            except ImportError:
                missing.setdefault((name, package), []).append(language)
    return [
        f"tokenizer {', '.join(languages)}: {name} needs a package that is not installed: pip install {package}"
        for (name, package), languages in missing.items()
    ]


def _folders(content: dict, languages: tuple[str, ...], root: Path, problems: list[str]) -> tuple[Folder, ...]:
    folders = []
    valid = ", ".join(languages)
    for language, splits in _mapping(content.get("monolingual", {}), "monolingual", None, problems).items():
        where = f"monolingual {language}"
        if language not in languages:
            problems.append(f"{where}: not one of the languages; valid: {valid}")
        folders.append(Folder(language, _splits(splits, where, (language,), root, problems)))
    pairs = set()
    for pair, splits in _mapping(content.get("bitext", {}), "bitext", None, problems).items():
        where = f"bitext {pair}"
        try:
            sides = language_pair("bitext", pair)
        except UserError as error:
            problems.append(str(error))
            continue
        problems += [
            f"{where}: {quoted(side)} is not one of the languages; valid: {valid}"
            for side in sides
            if side not in languages
        ]
        if frozenset(sides) in pairs:
            problems.append(f"{where}: the pair is named twice, in both directions; one serves for both")
        pairs.add(frozenset(sides))
        rules = None
        if isinstance(splits, dict) and "clean" in splits:
            rules = _rules(splits["clean"], f"{where}: clean", problems)
            splits = {key: value for key, value in splits.items() if key != "clean"}
        folders.append(Folder(pair, _splits(splits, where, sides, root, problems), rules))
    return tuple(folders)


def _splits(value: Any, where: str, languages: tuple[str, ...], root: Path, problems: list[str]) -> tuple[Split, ...]:
    """Returns splits with fairseq's names: train, of all its files; valid, valid1, ..., test, ..., of one file each."""
    value = _mapping(value, where, SPLITS, problems)
    if not value:
        problems.append(f"{where}: expected one or more of {', '.join(SPLITS)}")
    splits = []
    for name in (name for name in SPLITS if name in value):
        files = value[name] if isinstance(value[name], list) else [value[name]]
        if not files or not all(isinstance(file, str) and file for file in files):
            problems.append(f"{where}: {name} must be a file or a list of files, found {quoted(value[name])}")
            continue
        groups = [files] if name == "train" else [[file] for file in files]
        for i, group in enumerate(groups):
            sides = []
            for language in languages:
                names = [f"{file}.{language}" if len(languages) == 2 else file for file in group]
                sides.append(Side(language, tuple(name + added_suffix(root / name) for name in names)))
            splits.append(Split(f"{name}{i or ''}", tuple(sides)))
    return tuple(splits)


def _files_of_two_languages(folders: Iterable[Folder], root: Path) -> list[str]:
    """Describes each file that is the text of two languages or more."""
    languages, names = {}, {}  # by the resolved path, since a file can have several names
    for side in (side for folder in folders for split in folder.splits for side in split.sides):
        for name in side.files:
            file = (root / name).resolve()
            languages.setdefault(file, {})[side.language] = names.setdefault(file, name)
    return [
        f"{names[file]} is named as text of {' and of '.join(codes)}: each language needs a file of its own"
        for file, codes in languages.items()
        if len(codes) > 1
    ]
