"""Corpora that experiments share: corpora/lohelp grows, and is made by one process at a time."""

import shutil
import threading

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.folders import locked
from preprocess.readers.libreoffice_help import packages
from recipes import corpus
from tests.preprocess.help_pages import pages, write_package

needs_packages = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="the packages are read with dpkg-deb")


@pytest.fixture
def lohelp(tmp_path, monkeypatch):
    """The folder corpora/lohelp, which does not exist yet."""
    made = (tmp_path / "corpora/lohelp", tmp_path / "corpora/sample")
    monkeypatch.setattr(corpus, "MADE", made)
    return made[0]


@pytest.fixture
def read_languages(tmp_path, monkeypatch):
    """The languages whose packages are fetched, in order; the packages are made here."""
    (tmp_path / "debs").mkdir()
    for code in ("en", "de", "ru"):
        write_package(tmp_path / "debs", code, pages(code, 20))
    fetched = []

    def fetch(language, folder):
        fetched.append(language.code)
        return packages.find(language, tmp_path / "debs")

    monkeypatch.setattr(packages, "fetch", fetch)
    return fetched


def test_an_empty_folder_is_refused(tmp_path):
    for more in ([], [str(tmp_path / "out.yaml")]):
        with pytest.raises(UserError, match=f"{tmp_path} is empty: expected a corpus of en,de"):
            corpus.main([str(tmp_path), *more, "--langs", "en,de"])
    (tmp_path / "mono").mkdir()
    with pytest.raises(UserError, match=f"{tmp_path} is not a corpus of en: it has no mono/train.en"):
        corpus.main([str(tmp_path), str(tmp_path / "out.yaml")])


def files(folder):
    """{path: when it was written} of the corpus."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".stages" not in path.parts]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in paths}


@needs_packages
def test_languages_and_pairs_that_a_corpus_has_stay(lohelp, read_languages):
    corpus.make(lohelp, ["en", "de"])
    assert {"mono/train.de", "bitext/test.en-de.de"} <= files(lohelp).keys()
    assert not (lohelp / "mono/train.ru").exists()
    corpus.make(lohelp, ["en", "ru"], "de-ru")
    both = files(lohelp)
    assert {"mono/train.de", "mono/train.ru", "bitext/test.en-ru.ru", "bitext/test.de-ru.ru"} <= both.keys()
    for languages, pairs in ((["en", "de"], ""), (["ru", "en"], "ru-de")):  # there is nothing to do for them
        corpus.make(lohelp, languages, pairs)
        assert files(lohelp) == both
    assert set(read_languages) == {"en", "de", "ru"}
    assert corpus.zero_shot_test(lohelp, "en", "de-ru") == corpus.zero_shot_test(lohelp, "en", "ru-de")


@needs_packages
def test_a_corpus_that_another_program_made_stays(lohelp, read_languages):
    lohelp.mkdir(parents=True)
    (lohelp / "manifest.json").write_text("{}")
    corpus.make(lohelp, ["en", "de"])
    assert files(lohelp).keys() == {"manifest.json"} and not read_languages


def test_a_second_process_waits(lohelp, monkeypatch):
    """`_make` begins when the other one has released the lock."""
    order = []
    monkeypatch.setattr(corpus, "_make", lambda *arguments: order.append("made"))
    lohelp.parent.mkdir()
    with locked(lohelp.parent / ".lohelp.lock", None):
        second = threading.Thread(target=corpus.make, args=(lohelp, ["en", "de"]))
        second.start()
        second.join(0.2)
        assert second.is_alive()
        order.append("released")
    second.join(60)
    assert order == ["released", "made"]


def test_other_folders_are_left_alone(lohelp, tmp_path):
    corpus.make(tmp_path / "mine", ["en", "de"])
    assert not list(tmp_path.iterdir())  # not even a lock


def test_only_a_line_feed_ends_a_line_of_test_sets(tmp_path):
    """Lines of two languages stay aligned."""
    (tmp_path / "bitext").mkdir()
    for code in ("de", "fr"):
        text = f"{code} 1\r2\u2028\x85\x0b\r\n{code} 3\n"
        (tmp_path / f"bitext/test.en-{code}.{code}").write_bytes(b"\xef\xbb\xbf" + text.encode())
        (tmp_path / f"bitext/test.en-{code}.ids").write_bytes(b"a\r\nb\n")
    assert corpus.zero_shot_test(tmp_path, "en", "de-fr")["fr"] == ["fr 1\r2\u2028\x85\x0b", "fr 3"]


def test_files_of_other_content_stay(tmp_path):
    """A repeated command passes; one refused file leaves all as they were."""
    (tmp_path / "text/mono").mkdir(parents=True)
    for code in ("en", "de"):
        (tmp_path / f"text/mono/train.{code}").write_text("one\n\ntwo\n\nthree\n")
    command = [str(tmp_path / "text"), str(tmp_path / "h.yaml"), "--langs", "en,de", "--monolingual", "--sentences"]
    for edited in ("h.train.de", "h.yaml"):
        corpus.main([*command, "1"])
        corpus.main([*command, "1"])
        (tmp_path / "h.train.en").unlink()
        (tmp_path / edited).write_text("mine")
        before = files(tmp_path)
        with pytest.raises(UserError, match=f"{tmp_path / edited} exists with other content: remove it"):
            corpus.main([*command, "1"])
        assert files(tmp_path) == before
        (tmp_path / edited).unlink()
    corpus.main([*command, "1"])
    with pytest.raises(UserError, match="h.train.en exists with other content"):
        corpus.main([*command, "2"])
    with pytest.raises(UserError, match="h.yaml would be written twice"):
        corpus.main([*command[:2], command[1], *command[2:4], "--monolingual"])
