"""Finds files in another language than the declared one: py3langid identifies a sample of their lines."""

import functools
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_xl.errors import UserError

SAMPLE = 600  # maximum number of lines of a file that are identified
SHORT, LONG = 20, 256  # bytes: a shorter line is not identified; of a longer one, its first bytes are
FEWEST, SHARE = 10, 0.4  # lines of a language, and their share of the sample, that make a file one of this language
CODE = re.compile("([a-z]{2,3})(?:[_-][A-Z][A-Za-z]+)?")  # de, zh_CN, sr_Latn; not hi_rom, Hindi in another script
#: languages that are not distinguished; `zxx` is text in no language, such as code
ALIKE = ({"ar", "ary", "arz"}, {"bs", "hr", "sr"}, {"nn", "no"}, {"wuu", "yue", "zh"})
NO_LANGUAGE = "zxx"

Languages = dict[str, list[int]]  # language -> number of lines, number of the first one

logger = logging.getLogger(__name__)


@functools.cache
def language_model() -> Any:
    """py3langid's model of all languages; raises `UserError` without the package. Copy it before `set_languages`."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        load = LanguageIdentifier.from_model_file
    except (ImportError, AttributeError):
        raise UserError("identifying languages needs the package py3langid, 0.4: pip install py3langid") from None
    logging.getLogger("py3langid").setLevel(logging.INFO)  # at DEBUG it logs its languages
    return load(MODEL_FILE)


@functools.cache
def _model() -> Any:
    try:
        return language_model()
    except UserError as error:
        logger.info("whether text is in the declared language is not checked: %s", error)
        return None


class LineSample:
    """A sample of the lines of a text that is read once, evenly spread; at most `SAMPLE` of them."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []  # number from 1 on, beginning of the line
        self.read, self.stride = 0, 1  # lines read; one of `stride` lines is sampled

    def add(self, lines: Sequence[bytes]) -> None:
        """Adds the next lines of the text."""
        for index in range(-self.read % self.stride, len(lines), self.stride):
            if len(lines[index]) >= SHORT:
                self.lines.append((self.read + index + 1, lines[index][:LONG]))
        self.read += len(lines)
        while len(self.lines) > SAMPLE:
            self.stride *= 3
            self.lines = [row for row in self.lines if (row[0] - 1) % self.stride == 0]

    def languages(self) -> Languages:
        """The languages of the lines; none without py3langid."""
        languages: Languages = {}
        if not self.lines or (model := _model()) is None:
            return languages
        for line_number, line in self.lines:
            text = line.decode("utf-8", "ignore")
            if any(map(str.isalpha, text)):
                languages.setdefault(model.classify(text)[0], [0, line_number])[0] += 1
        return languages


def other_languages(files: Mapping[str, tuple[str, Languages]]) -> dict[str, tuple[str, str]]:
    """{file in another language: (its language, the declared one)}, from {file: (declared code, languages of lines)}.

    The language of a code that py3langid does not know is that of most lines of its files.
    """
    model = _model()
    if model is None:
        return {}
    totals: dict[str, Counter[str]] = {}
    for code, languages in files.values():
        totals.setdefault(code, Counter()).update({language: count for language, (count, _) in languages.items()})
    code_languages = {code: match[1] for code in totals if (match := CODE.fullmatch(code)) and match[1] in model.labels}
    mismatches = {}
    for file, (code, languages) in files.items():
        language, (count, _) = max(languages.items(), key=lambda item: item[1][0], default=("", (0, 0)))
        expected = code_languages.get(code) or totals[code].most_common(1)[0][0] if languages else ""
        alike = language == expected or any({language, expected} <= group for group in ALIKE)
        enough = count >= FEWEST and count >= SHARE * sum(lines for lines, _ in languages.values())
        if enough and not alike and language != NO_LANGUAGE:
            mismatches[file] = language, expected
    return mismatches


def describe_sample(languages: Languages, language: str) -> str:
    """The share of a sample that looks like a language, for messages."""
    total = sum(lines for lines, _ in languages.values())
    return f"looks like {language} ({languages[language][0]} of {total} sampled texts)"
