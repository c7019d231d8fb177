"""The reader of LibreOffice help as a command, on packages made here."""

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from help_pages import html, pages, paragraph, write_package

from preprocess.commands.prepare import main as preprocess
from preprocess.readers.libreoffice_help import corpus, packages
from preprocess.readers.libreoffice_help.read_libreoffice_help import main
from preprocess.readers.text import letters_and_digits
from tests.preprocess.readers.written_files import contents, documents, lines, times

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="the packages are read with dpkg-deb")


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    """Packages in three languages; Russian lacks some pages, and one page isn't translated."""
    folder = tmp_path_factory.mktemp("debs")
    english, german, russian = pages("en"), pages("de"), pages("ru", 40)
    russian["swriter/guide/page001.html"] = english["swriter/guide/page001.html"]
    german["swriter/guide/extra.html"] = html(paragraph("par_id1", "Diese Seite gibt es nur auf Deutsch."))
    for written in (english, german, russian):
        written["shared/05/err_html.html"] = html(paragraph("par_id1", "Die Seite / the page / страница"))
    for language, written in (("en", english), ("de", german), ("ru", russian)):
        write_package(folder, language, written)
    return folder


@pytest.fixture(scope="module")
def built(debs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "help"
    assert main([str(folder), "--langs", "de,ru", "--packages", str(debs)]) == 0
    return folder


def test_bitext_is_aligned_by_page_and_paragraph(built):
    for code, other in (("de", "Kapitel"), ("ru", "главы")):
        for split in ("train", "valid", "test"):
            english, own = (documents(built / f"bitext/{split}.en-{code}.{side}") for side in ("en", code))
            assert [len(document) for document in english] == [len(document) for document in own]
            for left, right in zip(sum(english, []), sum(own, [])):
                numbers = [
                    [word.strip(".") for word in line.split() if word.strip(".").isdigit()] for line in (left, right)
                ]
                assert numbers[0] == numbers[1] and ("chapter" in left) == (other in right)


def test_pairs_without_english_are_joined_on_its_paragraphs(built, debs, tmp_path):
    """German and Russian paragraphs of the same English one are joined, page by page; nothing else changes."""
    folder = tmp_path / "help"
    assert main([str(folder), "--langs", "de,ru", "--pairs", "ru-de", "--packages", str(debs)]) == 0
    for split in ("train", "valid", "test"):
        german, russian = (bilingual(folder, split, code) for code in ("de", "ru"))
        expected = [
            [(text, own[english]) for english, text in page.items() if english in own]
            for page, own in matched(russian, german)
        ]
        found = (documents(folder / f"bitext/{split}.ru-de.{code}") for code in ("ru", "de"))
        assert [list(zip(*pages)) for pages in zip(*found)] == [page for page in expected if page] != []
    for kind in ("mono", "bitext", "tasks"):
        for path in (path for path in (built / kind).rglob("*") if path.is_file()):
            assert (folder / path.relative_to(built)).read_bytes() == path.read_bytes()
    assert "ru-de:\n    train: bitext/train.ru-de\n" in (folder / "corpus.yaml").read_text()
    counts = json.loads((folder / "manifest.json").read_text())["counts"]["bitext/train.ru-de"]
    assert counts["documents"] == len(documents(folder / "bitext/train.ru-de.de"))
    assert main([str(folder), "--langs", "de,ru", "--pairs", "all", "--packages", str(debs)]) == 0
    assert (folder / "bitext/train.de-ru.ru").read_bytes() == (folder / "bitext/train.ru-de.ru").read_bytes()


def bilingual(folder, split, code):
    """[{English paragraph: its translation} of each page]."""
    sides = (documents(folder / f"bitext/{split}.en-{code}.{side}") for side in ("en", code))
    return [dict(zip(*pages)) for pages in zip(*sides)]


def matched(first, second):
    """Pages that share English paragraphs, in the order of the second; "Example" is on all of them."""
    for own in second:
        for page in first:
            if any(map(str.isdigit, "".join(page.keys() & own.keys()))):
                yield page, own


def test_every_page_is_in_one_split_the_same_in_all_languages(built):
    numbers = {}
    for path in [*built.glob("mono/*.*"), *built.glob("bitext/*.*")]:
        for word in path.read_text(encoding="utf-8").split():
            if word.strip(".").isdigit():
                numbers.setdefault(word.strip("."), set()).add(path.name.split(".")[0])
    assert len(numbers) == 180 and all(len(splits) == 1 for splits in numbers.values())
    assert {"train", "valid", "test"} == set.union(*numbers.values())


def test_no_evaluated_text_is_in_training(built):
    def keys(*names):
        return {
            letters_and_digits(line)
            for name in names
            for path in built.glob(f"*/{name}")
            for line in lines(path)
            if line
        }

    for code in ("en", "de", "ru"):
        train, valid, test = (keys(f"{split}.{code}", f"{split}.*.{code}") for split in ("train", "valid", "test"))
        assert len(test) > 5 and not (train & test or train & valid or valid & test)
    assert "example" in keys("train.en") and "beispiel" in keys("train.de")


def test_untranslated_pages_and_pages_without_english_are_left_out(built):
    russian = "\n".join(lines(built / "mono/train.ru"))
    assert "dialog" not in russian and "nur auf Deutsch" not in "\n".join(lines(built / "mono/train.de"))
    assert sum(len(documents(built / f"mono/{split}.ru")) for split in ("train", "valid", "test")) == 39
    assert sum(len(documents(built / f"mono/{split}.de")) for split in ("train", "valid", "test")) == 60
    assert not any("страница" in path.read_text(encoding="utf-8") for path in built.glob("mono/*"))


def test_counts_are_those_of_the_files(built):
    written = json.loads((built / "manifest.json").read_text())["counts"]
    assert {name.split("/")[0] for name in written} == {"mono", "bitext", "tasks"}
    for name, counts in written.items():
        if name.startswith("tasks"):
            continue
        sides = [built / name] if name.startswith("mono") else [built / f"{name}.en", built / f"{name}.{name[-2:]}"]
        for path in sides:
            assert counts["lines"] == sum(map(bool, lines(path)))
            assert counts["documents"] == len(documents(path))
            assert counts[f"words {path.name[-2:]}"] == len(path.read_text(encoding="utf-8").split())


def test_a_second_run_changes_nothing(built, debs):
    before = contents(built), times(built)
    assert main([str(built), "--langs", "de,ru", "--packages", str(debs)]) == 0
    assert (contents(built), times(built)) == before
    assert preprocess([str(built / "corpus.yaml"), "--check-only"]) == 0
    assert (built / "COPYRIGHT").read_text() == "Licence: as you like\n"


@pytest.mark.parametrize("moment", [0, 2, 3, 6])
def test_a_stop_loses_nothing(moment, debs, built, tmp_path, monkeypatch):
    """After a stop at any page or file, the same command writes the same files and reads no package twice."""
    folder, calls, read = tmp_path / "help", [], []
    write, members = corpus.write_aligned, packages.members

    def stop(*arguments):
        calls.append(arguments)
        if len(calls) == moment + 1:
            raise KeyboardInterrupt
        return write(*arguments)

    def watched(package, language):
        for number, member in enumerate(members(package, language)):
            if moment < 3 and number == 7 and len(read) == moment:
                raise KeyboardInterrupt
            yield member
        read.append(language.code)

    monkeypatch.setattr(corpus, "write_aligned", stop if moment >= 3 else write)
    monkeypatch.setattr(packages, "members", watched)
    command = [str(folder), "--langs", "de,ru", "--packages", str(debs)]
    assert main(command) == 130 and not (folder / "manifest.json").exists()
    done = list(read)
    monkeypatch.setattr(corpus, "write_aligned", write)
    opened = []
    monkeypatch.setattr(
        packages, "members", lambda package, language: opened.append(language.code) or members(package, language)
    )
    assert main(command) == 0
    assert sorted(done + opened) == ["de", "en", "ru"]
    assert contents(folder) == contents(built)


def test_another_language_leaves_the_splits_alone(debs, built, tmp_path):
    folder = tmp_path / "help"
    assert main([str(folder), "--langs", "de", "--packages", str(debs)]) == 0
    for name in ("mono/train.en", "mono/test.de", "bitext/test.en-de.de", "bitext/train.en-de.en"):
        assert (folder / name).read_bytes() == (built / name).read_bytes()
    assert main([str(folder), "--langs", "de,ru", "--packages", str(debs)]) == 0
    assert (folder / "corpus.yaml").read_bytes() == (built / "corpus.yaml").read_bytes()


def test_problems_are_one_sentence(debs, tmp_path, capsys):
    english, german = (debs / f"libreoffice-help-{name}_1_all.deb" for name in ("en-us", "de"))
    packages = {"damaged": b"no package\n", "cut": english.read_bytes()[:40000], "other": german.read_bytes()}
    for kind, content in packages.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / german.name).symlink_to(german)
        (tmp_path / kind / english.name).write_bytes(content)
    for langs, folder, message, *options in (
        ("de,ru", debs, "--pairs de-fr: name two of de, ru", "--pairs", "de-fr"),
        ("de,ru", debs, "--pairs en-de: name two of de, ru", "--pairs", "en-de"),
        ("de,ru", debs, "--pairs de-de: name two", "--pairs", "de-de"),
        ("de,ru", debs, "--pairs de: name two", "--pairs", "de"),
        ("de,ru", debs, "--pairs de-ru,ru-de: name each pair once", "--pairs", "de-ru,ru-de"),
        ("de,xx", debs, "--langs: unknown xx; valid: en, de, fr"),
        ("en", debs, "besides en"),
        ("", debs, "--langs ''"),
        ("de,fr", debs, "lacks libreoffice-help-fr_*.deb"),
        ("de", tmp_path / "absent", "--packages: there is no folder"),
        ("de", tmp_path / "damaged", "is damaged or no Debian package"),
        ("de", tmp_path / "cut", "is damaged or no Debian package"),
        ("de", tmp_path / "other", "has no help pages in en-US"),
    ):
        assert main([str(tmp_path / "out"), "--langs", langs, "--packages", str(folder), *options]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("libreoffice_help: ") and message in error
        assert not (tmp_path / ("out" if options else "out/corpus.yaml")).exists()


# Fetching


@pytest.fixture
def apt(debs, monkeypatch):
    """A stand-in for apt-get that copies from a folder, records requests and fails if asked to."""
    state = SimpleNamespace(asked=[], fails=None)

    def run(command, cwd, **_):
        assert command[:2] == ["apt-get", "download"]
        state.asked.append(command[-1])
        if command[-1] == state.fails:
            (cwd / f"{command[-1]}_1_all.deb").write_bytes(b"half")
            return subprocess.CompletedProcess(command, 100, "", "W: x\nE: Unable to locate package\n")
        shutil.copy(debs / f"{command[-1]}_1_all.deb", cwd)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(packages.subprocess, "run", run)
    return state


def test_packages_are_fetched_once(apt, built, tmp_path, capsys):
    folder = tmp_path / "help"
    apt.fails = "libreoffice-help-de"
    assert main([str(folder), "--langs", "de,ru"]) == 1
    assert "could not download libreoffice-help-de (Unable to locate package)" in capsys.readouterr().err
    apt.fails = None
    assert main([str(folder), "--langs", "de,ru"]) == 0
    assert apt.asked == [f"libreoffice-help-{name}" for name in ("en-us", "de", "de", "ru")]
    assert (folder / "mono/train.ru").read_bytes() == (built / "mono/train.ru").read_bytes()


def test_where_there_is_no_apt_the_packages_are_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    assert main([str(tmp_path / "help"), "--langs", "de"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("libreoffice_help: apt-get is not installed")
