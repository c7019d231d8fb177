"""The languages of the reader, with their names in the packages, and scripts."""

from dataclasses import dataclass
from itertools import combinations

from fairseq_xl.errors import UserError, names_of


@dataclass(frozen=True)
class Language:
    """A language; its package is libreoffice-help-`package`, its pages are in a folder `folder`."""

    code: str
    package: str
    folder: str
    scripts: tuple[str, ...] = ()  # first words of the Unicode names of its letters; () for Latin script


LANGUAGES = {
    language.code: language
    for language in (
        Language("en", "en-us", "en-US"),
        Language("de", "de", "de"),
        Language("fr", "fr", "fr"),
        Language("es", "es", "es"),
        Language("ru", "ru", "ru", ("CYRILLIC",)),
        Language("zh", "zh-cn", "zh-CN", ("CJK",)),
        Language("hi", "hi", "hi", ("DEVANAGARI",)),
        Language("vi", "vi", "vi"),
        Language("tr", "tr", "tr"),
        Language("el", "el", "el", ("GREEK",)),
        Language("ja", "ja", "ja", ("CJK", "HIRAGANA", "KATAKANA")),
        Language("ko", "ko", "ko", ("HANGUL",)),
        Language("it", "it", "it"),
        Language("nl", "nl", "nl"),
        Language("pt", "pt-br", "pt-BR"),
        Language("pl", "pl", "pl"),
    )
}


def parse_languages(names: str) -> list[Language]:
    """Parses --langs, languages separated by commas; English always comes first.

    Raises UserError for an unknown language, and if there is no language but English.
    """
    codes = names_of("--langs", names)
    unknown = [code for code in codes if code not in LANGUAGES]
    if unknown:
        raise UserError(f"--langs: unknown {', '.join(unknown)}; valid: {', '.join(LANGUAGES)}")
    foreign = [code for code in codes if code != "en"]
    if not foreign:
        raise UserError("--langs: name one language besides en, or more")
    return [LANGUAGES[code] for code in ["en", *foreign]]


def parse_pairs(names: str, languages: list[Language]) -> tuple[str, ...]:
    """Parses --pairs, "de-fr,ru-zh" or "all", pairs without English.

    Raises UserError for anything but a pair of two of the languages, and for a repeated pair.
    """
    codes = [language.code for language in languages[1:]]
    if names == "all":
        return tuple("-".join(pair) for pair in combinations(codes, 2))
    pairs = names_of("--pairs", names) if names else []
    for pair in pairs:
        if len(set(pair.split("-"))) != 2 or pair.count("-") != 1 or not set(pair.split("-")) <= set(codes):
            raise UserError(f"--pairs {pair}: name two of {', '.join(codes)}, de-fr, or all")
    if len({frozenset(pair.split("-")) for pair in pairs}) < len(pairs):
        raise UserError(f"--pairs {names}: name each pair once")
    return tuple(pairs)
