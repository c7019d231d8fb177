"""Small dumps in MediaWiki's export format, and wikiextractor's output of them."""

import bz2
import gzip
import hashlib
import importlib
import json
import subprocess
import sys
import tracemalloc
from html import escape

import pytest

from preprocess.commands.prepare import main as preprocess
from preprocess.readers.wikipedia import corpus, dump, extracted
from preprocess.readers.wikipedia.files import files_of
from preprocess.readers.wikipedia.read_wikipedia import main
from tests.preprocess.readers.written_files import contents, times

KETTLE = """{{Infobox vessel
| name = Kettle
| image = {{image|kettle.jpg}}
}}
A '''kettle''' is a [[pot|vessel]] for {{lang|fr|eau}} water,<ref name="a">A book.</ref> and 5 < 6 &amp; ''more''.

[[File:Kettle.jpg|thumb|A kettle]]
== Use ==
It holds [[water]]. See [http://example.org a site].

{| class="wikitable"
! Head !! Other
|-
| Cell || {{yes}}
|}

=== Nothing beneath ===

== History ==
It is old.<!-- how old? -->

[[Category:Vessels]]"""
TEXT = ['A kettle is a vessel for water, and 5 < 6 & "more".', "It holds water. See a site.", "It is old."]

HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.mediawiki.org/xml/export-0.11/ \
http://www.mediawiki.org/xml/export-0.11.xsd" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.43.0</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="-1" case="first-letter">Special</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""


def page(title, identity, text, namespace=0, extra="", model="wikitext"):
    return f"""  <page>
    <title>{title}</title>
    <ns>{namespace}</ns>
    <id>{identity}</id>
{extra}    <revision>
      <id>{identity}000</id>
      <timestamp>2024-01-01T00:00:00Z</timestamp>
      <contributor><username>Nobody</username><id>1</id></contributor>
      <model>{model}</model>
      <format>text/x-wiki</format>
      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>
      <sha1>abc</sha1>
    </revision>
  </page>
"""


DUMP = (
    HEADER
    + page("Kettle", 12, KETTLE)
    + page("Pot", 13, "#REDIRECT [[Kettle]]", extra='    <redirect title="Kettle" />\n')
    + page("Template:Lang", 14, "A template.", namespace=10)
    + page("Talk:Kettle", 15, "I disagree.", namespace=1)
    + page("Lamp", 16, "A '''lamp''' gives light; &lt;b&gt; is bold.\n\n* One\n\n12 + 3")
    + page("Data", 17, '{"a": "b"}', model="json")
    + page("Empty", 18, "")
    + page("Tea", 19, "'''Tea''' is a drink.\n\n== See also ==\n* [[Kettle]]")
    + "</mediawiki>\n"
)
DOCUMENTS = [TEXT, ["A lamp gives light; <b> is bold."], ["Tea is a drink."]]
TAGGED = """<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Kettle &quot;K&quot;">
Kettle &quot;K&quot;

A kettle is 5 &lt; 6.
Use.
It holds water.

</doc>
<doc id="13" url="https://en.wikipedia.org/wiki?curid=13" title="Pot">
Pot


</doc>
<doc id="14" revid="3" url="https://en.wikipedia.org/wiki?curid=14" title="Tea">
Tea

Tea is a drink.

</doc>
"""
LINES = [
    {"id": "12", "url": "u", "title": 'Kettle "K"', "text": "A kettle is 5 &lt; 6.\nUse.\nIt holds water."},
    {"id": "13", "revid": "1", "url": "u", "title": "Pot", "text": ""},
    {"id": "14", "revid": "3", "url": "u", "title": "Tea", "text": "Tea is a drink."},
]
JSON = "".join(f"{json.dumps(line)}\n" for line in LINES)
EXTRACTED = [["A kettle is 5 < 6.", "Use.", "It holds water."], ["Tea is a drink."]]


@pytest.fixture
def wikiextractor():
    importlib.import_module("wikiextractor.clean")


def documents(folder, split="train", language="en"):
    text = (folder / f"mono/{split}.{language}").read_text(encoding="utf-8")
    assert not text or (text.endswith("\n") and "\n\n\n" not in text)
    return [document.split("\n") for document in text.strip("\n").split("\n\n")] if text else []


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    compress = {".bz2": bz2.compress, ".gz": gzip.compress}.get(path.suffix, bytes)
    path.write_bytes(compress(content.encode()))
    return path


def many(count):
    return HEADER + "".join(page(f"P{n}", n, f"Article number {n}.\n\nIts end.") for n in range(count)) + "</mediawiki>"


# What is read


@pytest.mark.parametrize("name", ["enwiki.xml", "enwiki.xml.bz2", "enwiki.xml.gz", "dump"])
def test_articles_of_a_dump_become_documents(name, tmp_path, wikiextractor, capsys):
    """Without redirects, templates, talk pages and tables; links, quotes and entities become plain text."""
    assert main([str(tmp_path / "out"), f"en={write(tmp_path / name, DUMP)}"]) == 0
    assert sorted(documents(tmp_path / "out")) == sorted(DOCUMENTS) and documents(tmp_path / "out", "valid") == []
    assert "en: no validation text, which is at most a tenth of 3 documents" in capsys.readouterr().err
    assert "valid" not in (tmp_path / "out/corpus.yaml").read_text(encoding="utf-8")


def test_a_dump_of_several_bzip2_streams_is_read_whole(tmp_path):
    source = tmp_path / "enwiki-multistream.xml.bz2"
    source.write_bytes(b"".join(bz2.compress(part.encode()) for part in (HEADER, DUMP.removeprefix(HEADER))))
    assert [identity for identity, _ in dump.articles(source)] == ["12", "16", "19"]


def test_of_several_revisions_the_last_is_read(tmp_path):
    one, two = (page("Lamp", 16, text) for text in ("Old.", "New."))
    revision = two[two.index("    <revision>") : two.index("  </page>")]
    source = write(tmp_path / "history.xml", HEADER + one.replace("  </page>", revision + "  </page>") + "</mediawiki>")
    assert list(dump.articles(source)) == [("16", "New.")]


def test_what_wikiextractor_wrote_is_read(tmp_path, monkeypatch):
    """Without wikiextractor: files of both formats, compressed or not, in folders or by themselves."""
    monkeypatch.setitem(sys.modules, "wikiextractor.clean", None)
    sources = [write(tmp_path / "tagged/AA/wiki_00", TAGGED), write(tmp_path / "json/AA/wiki_00.bz2", JSON)]
    for number, source in enumerate([*sources, tmp_path / "tagged", tmp_path / "json"]):
        assert main([str(tmp_path / f"out{number}"), f"en={source}"]) == 0
        assert sorted(documents(tmp_path / f"out{number}")) == sorted(EXTRACTED)


def test_files_of_a_folder_and_several_sources_are_joined(tmp_path):
    for number in range(3):
        write(tmp_path / f"text/A{number % 2}/wiki_{number:02}", TAGGED.replace('id="1', f'id="{number}1'))
    write(tmp_path / "text/.hidden", "nothing")
    more = write(tmp_path / "more", JSON)
    assert main([str(tmp_path / "out"), f"en={tmp_path / 'text'}", f"en={more}", f"de={more}"]) == 0
    assert sorted(documents(tmp_path / "out")) == sorted(EXTRACTED * 4)
    assert sorted(documents(tmp_path / "out", language="de")) == sorted(EXTRACTED)


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    written = [write(tmp_path / f"A{number % 3}/wiki_{number:02}", JSON) for number in range(20, 0, -1)]
    assert files_of(tmp_path) == sorted(written)


@pytest.mark.parametrize("options, read", [([], extracted.tagged), (["--json"], extracted.json_lines)])
def test_wikiextractor_itself_gives_the_same_paragraphs_and_headings(options, read, tmp_path, wikiextractor):
    source = write(tmp_path / "enwiki.xml.bz2", DUMP)
    command = [sys.executable, "-m", "wikiextractor.WikiExtractor", str(source), "-o", "-", "--no-templates", "-q"]
    done = subprocess.run([*command, "--processes", "1", *options], check=True, capture_output=True, timeout=120)
    found = dict(read(write(tmp_path / "out", done.stdout.decode())))
    own = dict(dump.paragraphs(source, 1))
    assert list(own) == ["12", "16", "19"] and not set(own) - set(found)
    for identity, paragraphs in own.items():
        assert [line for line in found[identity] if line not in ("Use.", "History.")] == paragraphs


# Splits


def test_documents_with_the_smallest_hashes_are_held_out(tmp_path, wikiextractor):
    source = write(tmp_path / "enwiki.xml", many(300))
    assert main([str(tmp_path / "out"), f"en={source}", "--held-out", "20"]) == 0
    by_hash = sorted(range(300), key=lambda number: hashlib.sha256(str(number).encode()).digest())
    text = [[f"Article number {number}.", "Its end."] for number in by_hash]
    assert documents(tmp_path / "out", "valid") == text[:20]
    assert sorted(documents(tmp_path / "out")) == sorted(text[20:])
    counts = json.loads((tmp_path / "out/manifest.json").read_text())["counts"]["en"]
    assert counts == {
        "train": {"documents": 280, "lines": 560, "words": 1400},
        "valid": {"documents": 20, "lines": 40, "words": 100},
        "failed": 0,
    }


@pytest.mark.parametrize("count, held_out, valid", [(9, 5, 0), (10, 5, 1), (45, 5, 4), (60, 5, 5), (60, 1, 1)])
def test_at_most_a_tenth_is_held_out(count, held_out, valid):
    found = [split for split, _ in corpus.divided(((str(n), ["x"]) for n in range(count)), held_out)]
    assert (len(found), found.count("valid")) == (count, valid)


def test_validation_hardly_changes_with_more_articles():
    few, more = (
        {
            lines[0]
            for split, lines in corpus.divided(((str(n), [str(n)]) for n in range(count)), 50)
            if split == "valid"
        }
        for count in (1000, 1100)
    )
    assert len(few & more) > 35


# Large dumps, stops, failures


def test_processes_change_nothing(tmp_path, monkeypatch, wikiextractor):
    """The description is one that preparation reads."""
    source = write(tmp_path / "enwiki.xml", many(80))
    monkeypatch.setattr(dump, "BATCH", 100)
    for workers in ("1", "2"):
        assert main([str(tmp_path / workers), f"en={source}", f"simple={source}", "--workers", workers]) == 0
    for split in ("train", "valid"):
        assert documents(tmp_path / "1", split) == documents(tmp_path / "2", split) != []
    assert preprocess([str(tmp_path / "2/corpus.yaml"), "--check-only"]) == 0


def test_memory_does_not_grow_with_the_dump(tmp_path):
    def peak(count):
        text = "Some words of an article. " * 400
        source = write(
            tmp_path / f"{count}.xml", HEADER + "".join(page("P", n, text) for n in range(count)) + "</mediawiki>"
        )
        tracemalloc.start()
        total = sum(split == "train" for split, _ in corpus.divided(dump.articles(source), 10))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert total == count - 10
        return found

    assert peak(1000) < 1.2 * peak(200)


def test_an_article_that_wikiextractor_fails_at_is_left_out(tmp_path, monkeypatch, wikiextractor, capsys):
    import wikiextractor.clean

    clean = wikiextractor.clean.clean_markup

    def failing(text):
        if "lamp" in text:
            raise IndexError("string index out of range")
        return clean(text)

    monkeypatch.setattr(wikiextractor.clean, "clean_markup", failing)
    assert main([str(tmp_path / "out"), f"en={write(tmp_path / 'enwiki.xml', DUMP)}"]) == 0
    assert sorted(documents(tmp_path / "out")) == sorted([DOCUMENTS[0], DOCUMENTS[2]])
    assert json.loads((tmp_path / "out/manifest.json").read_text())["counts"]["en"]["failed"] == 1


def test_a_stop_loses_no_finished_language_and_leaves_no_half_file(tmp_path, monkeypatch):
    folder, more = tmp_path / "out", extracted.json_lines
    command = [str(folder), f"en={write(tmp_path / 'a', JSON)}", f"de={write(tmp_path / 'b', JSON * 2)}"]

    def stopping(path):
        yield next(more(path))
        if path.name == "b":
            raise KeyboardInterrupt
        yield from list(more(path))[1:]

    monkeypatch.setattr(extracted, "json_lines", stopping)
    assert main(command) == 130
    assert sorted(path.name for path in folder.glob("mono/*")) == ["train.en", "valid.en"]
    assert not (folder / "manifest.json").exists() and not (folder / "corpus.yaml").exists()
    before = times(folder / "mono")
    monkeypatch.setattr(extracted, "json_lines", more)
    assert main(command) == 0 and len(documents(folder, language="de")) == 4
    assert before.items() <= times(folder / "mono").items()
    before = contents(folder), times(folder)
    assert main(command) == 0 and (contents(folder), times(folder)) == before


def test_problems_are_one_sentence(tmp_path, capsys, monkeypatch, wikiextractor):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    contents = {
        "dump.xml": DUMP,
        "text": "Some text.\n",
        "cut.xml": DUMP[:-200],
        "cut.tagged": TAGGED[:-20],
        "outside.tagged": f"{TAGGED}Stray words\n",
        "cut.json": JSON[:-9],
        "other.json": '{"name": "value"}\n',
    }
    for name, content in contents.items():
        write(tmp_path / name, content)
    (tmp_path / "latin.json").write_bytes(b'{"id": "1", "text": "caf\xe9"}\n')
    long = "".join(hashlib.sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(20000))
    whole = bz2.compress((DUMP.removesuffix("</mediawiki>\n") + page("Long", 20, long) + "</mediawiki>\n").encode())
    (tmp_path / "cut.xml.bz2").write_bytes(whole[:-100])
    for words, message in (
        ("en=absent.xml.bz2", "absent.xml.bz2: there is no such file"),
        ("en=folder", "folder has no files"),
        ("dump.xml", "expected XX=SOURCE such as en=enwiki.xml.bz2, found 'dump.xml'"),
        ("en=dump.xml --held-out 0", "--held-out 0: 1 or more is needed"),
        ("en=text", "text is no Wikipedia dump (XML that begins with <mediawiki) and no output of wikiextractor"),
        ("en=cut.xml.bz2", "cut.xml.bz2 is truncated: its bzip2 data has no end"),
        ("en=cut.xml", "cut.xml is damaged (unclosed token: line"),
        ("en=cut.tagged", "cut.tagged is damaged (it ends in a document)"),
        ("en=outside.tagged", "outside.tagged, line 20: expected <doc id=... title=...>, found Stray"),
        ("en=cut.json", "cut.json, line 3: expected JSON with id and text"),
        ("en=other.json", "other.json, line 1: expected JSON with id and text"),
        ("en=latin.json", "latin.json is damaged ('utf-8' codec can't decode"),
    ):
        assert main([str(tmp_path / "out"), *words.split()]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("wikipedia: ") and message in error
        assert not (tmp_path / "out/corpus.yaml").exists() and not list(tmp_path.glob("out/mono/*"))


def test_without_wikiextractor_dumps_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wikiextractor.clean", None)
    assert main([str(tmp_path / "out"), f"en={write(tmp_path / 'enwiki.xml', DUMP)}"]) == 1
    assert "pip install 'wikiextractor>=3.1', or give its output instead" in capsys.readouterr().err
