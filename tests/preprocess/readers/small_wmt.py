"""Fixtures: WMT14 and WMT16 in small archives of the official formats, and a stand-in for their servers."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from xml.sax.saxutils import escape

import pytest
import sacrebleu

from preprocess.readers import download as downloads
from preprocess.readers.wmt import corpus
from preprocess.readers.wmt.archives import TranslationMemory
from preprocess.readers.wmt.pairs import PAIRS

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


def archive_of(members, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def sentences(name, language, count=12):
    return [f"{name} {language} sentence {number}" for number in range(count)]


TMX = """<?xml version="1.0" encoding="UTF-8" ?>
<tmx version="1.4">
<header srclang="en" adminlang="en" segtype="sentence" datatype="PlainText" o-tmf="unknown" />
  <body>
{}
  </body>
</tmx>
"""


def memory_of(units):
    """A translation memory of units, each the text of some languages."""
    lines = []
    for unit in units:
        texts = [f'<tuv xml:lang="{language}"><seg>{escape(text)}</seg></tuv>' for language, text in unit.items()]
        lines.append(f"    <tu>{''.join(texts)}</tu>")
    return gzip.compress(TMX.format("\n".join(lines)).encode())


def text_of(name, language):
    """The lines of one side of an archive, with their oddities."""
    lines = sentences(name, language)
    lines[3] = "" if language == "en" else "Only one side"
    lines[5] += "\u2028goes on\x85here \r"
    lines[8] += " Ţară, ţară, Şi şi ȘȚșț ĂăÂâÎî" if language == "ro" else " & <more>"
    return lines


def contents(archive, pairs):
    """An archive with a few lines of each pair, and in a tar file those of another pair too."""
    if isinstance(archive, TranslationMemory):
        units = zip(*(text_of(archive.name, language) for language in ("en", "ro")))
        return memory_of({name: text for name, text in zip(("en", "ro"), unit) if text} for unit in units)
    members = {"training/README": b"Read me\n", f"{archive.member.format('cs-en')}.cs": b"Ahoj\n"}
    for pair in pairs:
        for language, member in archive.members(pair).items():
            text = "".join(f"{line}\n" for line in text_of(archive.name, language)).encode()
            members[member] = text.replace(b"sentence 7", b"\xff\xfe" if language == "fr" else b"sentence 7")
    if archive.name.endswith(".tar"):  # 10^9: its members are compressed, not the archive
        return archive_of({f"{name}.gz": gzip.compress(text) for name, text in members.items()}, mode="w")
    return archive_of(members)


@pytest.fixture
def official(server, tmp_path, monkeypatch):
    """The server with small archives, and sacrebleu with small test sets."""
    small = {}
    for archive in dict.fromkeys(archive for pair in PAIRS.values() for archive in pair.archives):
        content = contents(archive, [name for name, pair in PAIRS.items() if archive in pair.archives])
        server.files[archive.url] = content
        small[archive] = replace(archive, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    pairs = {name: replace(pair, archives=tuple(map(small.get, pair.archives))) for name, pair in PAIRS.items()}
    monkeypatch.setattr(corpus, "PAIRS", pairs)
    server.sets = []

    def file_of(name, pair, language):
        server.sets.append((name, pair))
        path = tmp_path / f"{name.replace('/', '_')}.{pair}.{language}"
        path.write_text("".join(f"{line}{' țară' * (language == 'ro')}\n" for line in sentences(name, language, 4)))
        return str(path)

    monkeypatch.setattr(sacrebleu, "get_source_file", lambda name, pair: file_of(name, pair, pair[:2]))
    monkeypatch.setattr(sacrebleu, "get_reference_files", lambda name, pair: [file_of(name, pair, pair[3:])])
    return server
