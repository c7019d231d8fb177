"""Runs the stages: packages, pages, splits, the corpus folder."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, replacing, write_json
from fairseq_xl.io.fingerprints import sha256_of
from preprocess.config import SPLITS
from preprocess.readers.folder import bitext_path, describe, mono_path, write_aligned
from preprocess.readers.libreoffice_help import packages, questions, ranking, tagging, tasks
from preprocess.readers.libreoffice_help.languages import Language
from preprocess.readers.libreoffice_help.page import INTERFACE, Mark, Paragraph, read_page
from preprocess.readers.libreoffice_help.translation import has_other_numbers, is_translated
from preprocess.readers.splitting import SHORT, Documents, split, without_leaks
from preprocess.stages import Stages, locked

logger = logging.getLogger("preprocess")


def build(folder: Path, languages: list[Language], package_folder: Path | None, pairs: tuple[str, ...] = ()) -> None:
    """Writes the corpus folder.

    Args:
        folder: folder to write; an interrupted run is resumed, and stages that are up to date are skipped.
        languages: languages, English first.
        package_folder: folder with the packages; None fetches them with apt-get.
        pairs: pairs without English, such as "de-fr".

    Raises UserError for errors that the user can correct.
    """
    stages = Stages(folder, "corpus")
    with locked(stages):
        package_paths = _packages(languages, package_folder, folder / ".stages" / "packages")
        hashes = {language.code: sha256_of(path) for language, path in package_paths.items()}
        pages = {}
        for language, path in package_paths.items():
            target = folder / ".stages" / f"pages.{language.code}.json"
            stages.run(
                f"pages {language.code}",
                {"package": hashes[language.code]},
                [target, folder / "COPYRIGHT"],
                lambda: _read_package(path, language, target, folder / "COPYRIGHT"),
            )
            pages[language] = target
        codes = [language.code for language in languages]
        all_pairs = [*(f"en-{code}" for code in codes[1:]), *pairs]
        counts = stages.run(
            "corpus",
            {"packages": hashes, "languages": codes, "pairs": pairs},
            _outputs(folder, codes, all_pairs),
            lambda: _write(folder, pages, pairs),
        )
        if not (folder / "corpus.yaml").exists():
            describe(folder, codes, all_pairs)
        package_hashes = {path.name: hashes[language.code] for language, path in package_paths.items()}
        stages.finish({"counts": counts, "packages": package_hashes})


def _packages(languages: list[Language], package_folder: Path | None, fetched: Path) -> dict[Language, Path]:
    """Returns the package of each language."""
    if package_folder is None:
        fetched.mkdir(parents=True, exist_ok=True)
        with tqdm(languages, desc="packages", unit=" packages", disable=None) as bar:
            return {language: packages.fetch(language, fetched) for language in bar}
    paths = {language: path for language in languages if (path := packages.find(language, package_folder))}
    missing = [f"libreoffice-help-{language.package}_*.deb" for language in languages if language not in paths]
    if missing:
        raise UserError(f"{package_folder} lacks {', '.join(missing)}")
    return paths


def _read_package(package: Path, language: Language, target: Path, copyright_file: Path) -> dict:
    """Reads every page of a package, and writes them to a JSON file: page -> id -> [kind, text, marks, entries]."""
    pages = {}
    with tqdm(packages.members(package, language), desc=f"pages {language.code}", unit=" pages", disable=None) as bar:
        for name, content in bar:
            if name == packages.COPYRIGHT:
                with replacing(copyright_file, make_folder=True) as file:
                    file.write(content)
            elif name not in INTERFACE and (paragraphs := read_page(content, name)):
                pages[name] = paragraphs
    if not pages:
        raise UserError(f"{package} has no help pages in {language.folder}")
    write_json(target, dict(sorted(pages.items())))
    return {"pages": len(pages), "paragraphs": sum(map(len, pages.values()))}


def _write(folder: Path, pages: dict[Language, Path], pairs: tuple[str, ...]) -> dict:
    """Writes all files but the description; returns the documents, lines and words of each file.

    Splits and items of tasks depend on English text only, so that all languages share them.
    """
    (folder / "corpus.yaml").unlink(missing_ok=True)
    (english_name, english_path), *translations = pages.items()
    whole, kinds = _read(english_path, "text"), _read(english_path, "kind")
    splits = split(whole)
    english = without_leaks(whole, splits, SHORT)
    marks, entries = _marks(english_path), _read(english_path, "entries")
    indexed = questions.with_entries(english, entries)
    items = tasks.plan(english, kinds, splits)
    marked, asked = tagging.plan(english, kinds, marks, splits), questions.plan(indexed, kinds, splits)
    ranked = ranking.plan(indexed, kinds, splits)
    counts = _write_monolingual(folder, english_name.code, english, splits)
    counts |= tasks.write(folder, english_name.code, items, english, english)
    counts |= tagging.write(folder, english_name.code, marked, english, marks)
    counts |= questions.write(folder, english_name.code, asked, indexed)
    counts |= ranking.write(folder, english_name.code, ranked, indexed)
    paired = {code: {} for pair in pairs for code in pair.split("-")}
    with tqdm(translations, desc="corpus", unit=" languages", disable=None) as bar:
        for language, path in bar:
            text = without_leaks(dict(_translated(_read(path, "text"), english, language)), splits, 0)
            counts |= _write_monolingual(folder, language.code, text, splits)
            aligned = _aligned(text, english)
            counts |= _write_bitext(folder, f"en-{language.code}", english, aligned, splits)
            counts |= tasks.write(folder, language.code, items, aligned, english)
            counts |= tagging.write(folder, language.code, marked, aligned, _marks(path))
            language_entries = _translated_entries(_read(path, "entries"), entries, language)
            translated_index = questions.with_entries(aligned, language_entries)
            counts |= questions.write(folder, language.code, asked, translated_index)
            counts |= ranking.write(folder, language.code, ranked, translated_index)
            if language.code in paired:
                paired[language.code] = aligned
    for pair in pairs:
        first, second = (paired[code] for code in pair.split("-"))
        counts |= _write_bitext(folder, pair, first, second, splits)
    return counts


def _read(path: Path, field: str) -> dict[str, dict[str, Any]]:
    """Reads a field of `Paragraph` of all paragraphs: page -> id -> field."""
    i = Paragraph._fields.index(field)
    return {name: {identity: row[i] for identity, row in page.items()} for name, page in read_json(path).items()}


def _marks(path: Path) -> tagging.Marks:
    return {
        page: {identity: [Mark(*mark) for mark in marks] for identity, marks in paragraphs.items()}
        for page, paragraphs in _read(path, "marks").items()
    }


def _translated(pages: Documents, english: Documents, language: Language) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the paragraphs of each page that translate an English paragraph, in the English order."""
    for name, originals in english.items():
        paragraphs = pages.get(name, {})
        yield (
            name,
            {
                identity: paragraphs[identity]
                for identity, original in originals.items()
                if identity in paragraphs and is_translated(paragraphs[identity], original, language)
            },
        )


def _translated_entries(
    entries: questions.Entries, english: questions.Entries, language: Language
) -> questions.Entries:
    """Returns index entries of paragraphs with as many as in English; entries without a translation are ""."""
    return {
        page: {
            identity: [
                text if is_translated(text, original, language) else ""
                for text, original in zip(translations, originals)
            ]
            for identity, translations in paragraphs.items()
            if len(translations) == len(originals := english.get(page, {}).get(identity, []))
        }
        for page, paragraphs in entries.items()
    }


def _aligned(translated: Documents, english: Documents) -> Documents:
    """Returns the paragraphs whose numbers agree with those of the English paragraph."""
    return {
        page: {name: text for name, text in texts.items() if not has_other_numbers(text, english[page][name])}
        for page, texts in translated.items()
    }


def _write_monolingual(folder: Path, code: str, pages: Documents, splits: dict[str, str]) -> dict:
    counts = {}
    for name in SPLITS:
        path = mono_path(name, code)
        rows = ([(text,) for text in texts.values()] for page, texts in pages.items() if splits[page] == name)
        counts[path] = write_aligned([folder / path], rows)
    return counts


def _write_bitext(folder: Path, pair: str, first: Documents, second: Documents, splits: dict[str, str]) -> dict:
    """Writes the paragraphs of both languages, in the order of the second one, which is the English order."""
    counts = {}
    for name in SPLITS:
        path = bitext_path(name, pair)
        rows = (
            [(first[page][identity], translation) for identity, translation in texts.items() if identity in first[page]]
            for page, texts in second.items()
            if splits[page] == name
        )
        counts[path] = write_aligned([folder / f"{path}.{side}" for side in pair.split("-")], rows)
    return counts


def _outputs(folder: Path, codes: list[str], pairs: list[str]) -> list[Path]:
    names = [mono_path(name, code) for name in SPLITS for code in codes]
    names += [f"{bitext_path(name, pair)}.{side}" for name in SPLITS for pair in pairs for side in pair.split("-")]
    names += [name for code in codes for part in (tasks, tagging, questions, ranking) for name in part.outputs(code)]
    return [folder / name for name in names]
