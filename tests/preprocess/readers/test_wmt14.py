"""Downloads that are resumed, and WMT14 from small archives in the official format."""

import hashlib
import http.client
import json
import urllib.error

import pytest
import sacrebleu
import yaml

from fairseq_xl.errors import UserError
from preprocess.__main__ import main as preprocess
from preprocess.readers.download import download
from preprocess.readers.wmt14 import corpus
from preprocess.readers.wmt14.__main__ import main
from preprocess.readers.wmt14.archives import ARCHIVES, Archive
from tests.preprocess.readers.small_wmt14 import CONTENT, URL, archive_of, sentences

pytest_plugins = "tests.preprocess.readers.small_wmt14"


def get(path, content=CONTENT):
    download(URL, path, len(content), hashlib.sha256(content).hexdigest())


def test_a_download_is_made_once(server, tmp_path):
    path = tmp_path / "a/file.tgz"
    get(path)
    get(path)
    assert path.read_bytes() == CONTENT and server.asked == [(URL, 0)] and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_resumes_where_it_stopped(server, tmp_path, ranges):
    path = tmp_path / "file.tgz"
    server.stop_after = 3000
    with pytest.raises(UserError, match="connection ended after 3000 of 10240 bytes; run the same command"):
        get(path)
    assert not path.exists()
    server.stop_after, server.ranges = None, ranges
    get(path)
    assert path.read_bytes() == CONTENT and server.asked == [(URL, 0), (URL, 3000)]


def test_a_complete_part_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "file.tgz.part").write_bytes(CONTENT)
    get(tmp_path / "file.tgz")
    assert not server.asked and (tmp_path / "file.tgz").read_bytes() == CONTENT


def test_a_link_in_place_of_a_part_is_not_followed(server, tmp_path):
    (tmp_path / "victim").write_bytes(b"someone's")
    (tmp_path / "file.tgz.part").symlink_to(tmp_path / "victim")
    get(tmp_path / "file.tgz")
    assert (tmp_path / "victim").read_bytes() == b"someone's" and server.asked == [(URL, 0)]
    assert (tmp_path / "file.tgz").read_bytes() == CONTENT and not (tmp_path / "file.tgz").is_symlink()


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT + b"more"])
def test_another_file_is_refused_and_removed(server, tmp_path, content):
    server.files[URL] = content
    with pytest.raises(UserError, match="the downloaded file differs"):
        get(tmp_path / "file.tgz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [urllib.error.URLError("no route"), ConnectionResetError("no route"), http.client.IncompleteRead(b"")]
)
def test_a_server_that_cannot_be_reached_is_one_sentence(server, tmp_path, error):
    server.error = error
    with pytest.raises(UserError, match="file.tgz: .*; run the same command to continue"):
        get(tmp_path / "file.tgz")


# The corpus


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_the_official_archives_are_those_of_the_shared_task():
    assert [archive.name for archive in ARCHIVES] == [
        "training-parallel-europarl-v7.tgz",
        "training-parallel-commoncrawl.tgz",
        "training-parallel-nc-v9.tgz",
    ]
    assert all(len(archive.sha256) == 64 for archive in ARCHIVES)
    assert ARCHIVES[1].members("en-de") == {"en": "commoncrawl.de-en.en", "de": "commoncrawl.de-en.de"}


def test_archives_become_aligned_bitext(official, tmp_path):
    folder = tmp_path / "wmt"
    assert main([str(folder), "--pairs", "en-de,en-fr"]) == 0
    for code, left_out in (("de", (3,)), ("fr", (3, 7))):
        english, other = (lines(folder / f"bitext/train.en-{code}.{side}") for side in ("en", code))
        expected = [
            [
                line + (" goes on here" if number == 5 else "")
                for archive in ARCHIVES
                for number, line in enumerate(sentences(archive.name, language))
                if number not in left_out
            ]
            for language in ("en", code)
        ]
        assert [english, other] == expected
    assert lines(folder / "bitext/valid.en-de.de") == sentences("wmt13", "de", 4)
    assert lines(folder / "bitext/valid.en-fr.fr") == sentences("wmt12", "fr", 4) + sentences("wmt13", "fr", 4)  # V13
    assert lines(folder / "bitext/test.en-de.en") == sentences("wmt14/full", "en", 4)
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert counts["bitext/train.en-fr"]["training-parallel-nc-v9.tgz"] == {"pairs": 10, "empty": 1, "invalid": 1}
    assert preprocess([str(folder / "corpus.yaml"), "--check-only"]) == 0
    assert yaml.safe_load((folder / "corpus.yaml").read_text())["monolingual"]["en"] == {
        "train": ["bitext/train.en-de.en", "bitext/train.en-fr.en"],
        "valid": ["bitext/valid.en-de.en"],
    }


def test_a_stop_loses_no_archive(official, tmp_path, capsys):
    folder = tmp_path / "wmt"
    official.stop_after = 200
    assert main([str(folder)]) == 1
    assert "wmt14: https://www.statmt.org/wmt13/training-parallel-europarl" in capsys.readouterr().err
    official.stop_after = None
    assert main([str(folder)]) == 0
    assert [start for _, start in official.asked] == [0, 200, 0, 0]
    before = (folder / "bitext/train.en-de.de").stat().st_mtime_ns, len(official.sets)
    assert main([str(folder)]) == 0
    assert len(official.asked) == 4
    assert before == ((folder / "bitext/train.en-de.de").stat().st_mtime_ns, len(official.sets))


def test_unequal_sides_are_refused(official, tmp_path, capsys):
    assert main([str(tmp_path / "wmt")]) == 0
    member = tmp_path / "wmt/.stages/members/commoncrawl.de-en.de"
    member.write_bytes(member.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(UserError, match="commoncrawl.tgz en-de: one side ends at line 11"):
        corpus._train(tmp_path / "wmt", "train", "en-de")


@pytest.mark.parametrize("error", [SystemExit(1), urllib.error.URLError("no route"), Exception("No such test set")])
def test_a_test_set_that_cannot_be_had_is_one_sentence(official, tmp_path, monkeypatch, capsys, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(sacrebleu, "get_source_file", fail)
    assert main([str(tmp_path / "wmt")]) == 1
    assert "wmt14: sacrebleu can't give wmt13 en-de (" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "wmt/manifest.json").exists()


def test_an_archive_without_the_member_is_refused(official, tmp_path, monkeypatch, capsys):
    content = archive_of({"README": b"x"})
    first = ARCHIVES[0]
    official.files[first.url] = content
    digest = hashlib.sha256(content).hexdigest()
    small = Archive(first.url, len(content), digest, first.member)
    monkeypatch.setattr(corpus, "ARCHIVES", [small])
    assert main([str(tmp_path / "wmt")]) == 1
    assert "lacks training/europarl-v7.de-en.en" in capsys.readouterr().err.splitlines()[-1]


def test_unknown_pairs_are_refused(tmp_path, capsys):
    assert main([str(tmp_path / "wmt"), "--pairs", "en-de,de-fr"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("wmt14: ") and "--pairs" in error and "'de-fr'" in error and error.endswith(" en-de, en-fr")
