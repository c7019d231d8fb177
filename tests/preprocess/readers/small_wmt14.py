"""Fixtures: WMT14 in small archives of the official format, and a stand-in for its servers."""

import hashlib
import io
import tarfile

import pytest
import sacrebleu

from preprocess.readers import download as downloads
from preprocess.readers.wmt14 import corpus
from preprocess.readers.wmt14.archives import ARCHIVES, Archive

CONTENT = bytes(range(256)) * 40
URL = "https://data.invalid/corpora/file.tgz"


class Server:
    """A stand-in for a file server: it records requests and fails if asked to."""

    def __init__(self, files):
        self.files, self.asked, self.ranges, self.stop_after, self.error = files, [], True, None, None

    def open(self, url, start):
        self.asked.append((url, start))
        if self.error:
            raise self.error
        content = self.files[url]
        start = start if self.ranges else 0
        stop = len(content) if self.stop_after is None else start + self.stop_after
        response = io.BytesIO(content[start:stop])
        response.status = 206 if start else 200
        return response


@pytest.fixture
def server(monkeypatch):
    found = Server({URL: CONTENT})
    monkeypatch.setattr(downloads, "open_url", found.open)
    return found


def archive_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def sentences(name, language, count=12):
    return [f"{name} {language} sentence {number}" for number in range(count)]


def contents():
    """The members of the official archives, including other languages, with a few lines and their oddities each."""
    found = {}
    for archive in ARCHIVES:
        members = {"training/README": b"Read me\n", f"{archive.member.format('cs-en')}.cs": b"Ahoj\n"}
        for pair in ("de-en", "fr-en"):
            for language in pair.split("-"):
                lines = sentences(archive.name, language)
                lines[3] = "" if language == "en" else "Only one side"
                lines[5] += "\u2028goes on\x85here \r"
                text = "".join(f"{line}\n" for line in lines).encode()
                members[f"{archive.member.format(pair)}.{language}"] = text.replace(
                    b"sentence 7", b"\xff\xfe" if language == "fr" else b"sentence 7"
                )
        found[archive.url] = archive_of(members)
    return found


@pytest.fixture
def official(server, tmp_path, monkeypatch):
    """The server with small archives, and sacrebleu with small test sets."""
    server.files = contents()
    small = [
        Archive(
            archive.url,
            len(server.files[archive.url]),
            hashlib.sha256(server.files[archive.url]).hexdigest(),
            archive.member,
        )
        for archive in ARCHIVES
    ]
    monkeypatch.setattr(corpus, "ARCHIVES", small)
    server.sets = []

    def file_of(name, pair, language):
        server.sets.append((name, pair))
        path = tmp_path / f"{name.replace('/', '_')}.{pair}.{language}"
        path.write_text("".join(f"{line}\n" for line in sentences(name, language, 4)))
        return str(path)

    monkeypatch.setattr(sacrebleu, "get_source_file", lambda name, pair: file_of(name, pair, pair[:2]))
    monkeypatch.setattr(sacrebleu, "get_reference_files", lambda name, pair: [file_of(name, pair, pair[3:])])
    return server
