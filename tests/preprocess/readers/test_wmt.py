"""Downloads that are resumed, and WMT14 and WMT16 from small archives in the official formats."""

import gzip
import hashlib
import http.client
import json
import sys
import tracemalloc
import urllib.error
from dataclasses import replace

import pytest
import sacrebleu
import yaml

from fairseq_xl.errors import UserError
from preprocess import files
from preprocess.commands.prepare import main as preprocess
from preprocess.readers import romanian
from preprocess.readers.download import download
from preprocess.readers.wmt import corpus
from preprocess.readers.wmt.pairs import PAIRS, WMT14, WMT14_FRENCH, WMT16, Pair
from preprocess.readers.wmt.read_wmt import main
from tests.preprocess.readers.small_wmt import CONTENT, TMX, URL, archive_of, memory_of, sentences, text_of
from tests.preprocess.readers.written_files import lines

pytest_plugins = "tests.preprocess.readers.small_wmt"
MEMORY = WMT16[1]


def get(path, content=CONTENT):
    download(URL, path, len(content), hashlib.sha256(content).hexdigest())


def test_a_download_is_made_once(server, tmp_path):
    path = tmp_path / "a/file.tgz"
    for _ in range(2):
        get(path)
        assert path.read_bytes() == CONTENT and server.asked == [(URL, 0)] and list(path.parent.iterdir()) == [path]
    path.rename(path.with_name("file.tgz.part"))  # a complete part is not asked for again
    get(path)
    assert path.read_bytes() == CONTENT and server.asked == [(URL, 0)]


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


def test_sacrebleu_has_the_test_sets():
    for name, pair in PAIRS.items():
        assert all(name in sacrebleu.DATASETS[test_set].langpairs for test_set in (*pair.validation, pair.test))


def collapsed(texts):
    return [" ".join(text.split()) for text in texts]


def test_archives_become_aligned_bitext(official, tmp_path):
    folder = tmp_path / "wmt"
    assert main([str(folder), "--pairs", "en-de,en-fr,en-ro"]) == 0
    for code, archives, left_out in (("de", WMT14, (3,)), ("fr", WMT14 + WMT14_FRENCH, (3, 7)), ("ro", WMT16, (3,))):
        english, other = (lines(folder / f"bitext/train.en-{code}.{side}") for side in ("en", code))
        expected = [
            collapsed(
                line
                for archive in archives
                for number, line in enumerate(text_of(archive.name, language))
                if number not in left_out
            )
            for language in ("en", code)
        ]
        if code == "ro":
            expected[1] = [line.replace("Ţară, ţară, Şi şi", "Țară, țară, Și și") for line in expected[1]]
            assert sum("Țară, țară, Și și ȘȚșț ĂăÂâÎî" in line for line in other) == 2
        assert [english, other] == expected
        assert "5 goes on here" in english[4]
    assert lines(folder / "bitext/valid.en-de.de") == sentences("wmt13", "de", 4)
    assert lines(folder / "bitext/valid.en-fr.fr") == sentences("wmt12", "fr", 4) + sentences("wmt13", "fr", 4)  # V13
    assert lines(folder / "bitext/test.en-de.en") == sentences("wmt14/full", "en", 4)
    assert lines(folder / "bitext/valid.en-ro.en") == sentences("wmt16/dev", "en", 4)
    assert lines(folder / "bitext/test.en-ro.ro") == [f"{line} țară" for line in sentences("wmt16", "ro", 4)]
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert counts["bitext/train.en-fr"]["training-parallel-nc-v9.tgz"] == {
        "read": 12,
        "pairs": 10,
        "empty": 1,
        "invalid": 1,
    }
    assert counts["bitext/train.en-ro"]["setimes-v2.en-ro.tmx.gz"] == {
        "read": 12,
        "pairs": 11,
        "empty": 1,
        "invalid": 0,
    }
    totals = [counts[f"bitext/train.{name}"]["total"] for name in ("en-de", "en-fr", "en-ro")]
    assert [[total["read"], total["pairs"]] for total in totals] == [[36, 33], [60, 50], [24, 22]]
    assert preprocess([str(folder / "corpus.yaml"), "--check-only"]) == 0
    assert yaml.safe_load((folder / "corpus.yaml").read_text())["monolingual"]["en"] == {
        "train": ["bitext/train.en-de.en", "bitext/train.en-fr.en", "bitext/train.en-ro.en"],
        "valid": ["bitext/valid.en-de.en"],
    }


# Romanian


def test_romanian_letters():
    cedilla, comma = "\u015f\u0163\u015e\u0162", "\u0219\u021b\u0218\u021a"
    assert romanian.normalize(cedilla) == comma and romanian.normalize(f"{comma} ăâîĂÂÎ ç") == f"{comma} ăâîĂÂÎ ç"
    assert romanian.normalize(f"{cedilla}{comma}ăâîĂÂÎ ç", remove_diacritics=True) == "stSTstSTaaiAAI ç"


@pytest.mark.parametrize(
    "options, text, written, error",
    [
        ([], "Acţiune\n\nşi așa\n".encode(), "Acțiune\n\nși așa\n", ""),
        (["--remove-diacritics"], "Acţiune\n\nşi așa\n".encode(), "Actiune\n\nsi asa\n", ""),
        ([], b"one\n\xff\n", "one\n", "romanian: line 2 is not UTF-8\n"),
    ],
)
def test_romanian_from_stdin_to_stdout(options, text, written, error, monkeypatch, capfdbinary, tmp_path):
    (tmp_path / "text").write_bytes(text)
    with open(tmp_path / "text") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert romanian.main(options) == bool(error)
    monkeypatch.undo()
    sys.stdout.flush()
    shown = capfdbinary.readouterr()
    assert (shown.out.decode(), shown.err.decode()) == (written, error)


@pytest.mark.parametrize("compressed", [False, True])
def test_text_with_diacritics_is_found(tmp_path, capsys, monkeypatch, compressed):
    monkeypatch.setattr(files, "BLOCK", 8)
    path, text = tmp_path / "train.ro", "una\ndoua si trei\n\npatru ș\n".encode()
    path.with_name("train.ro.gz" if compressed else path.name).write_bytes(gzip.compress(text) if compressed else text)
    assert romanian.main(["--check", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"romanian: {path} has 'ș' in line 4: remove its diacritics with `python")
    (tmp_path / "clean.ro").write_text("una, noël, ñ\n", encoding="utf-8")
    assert romanian.main(["--check", str(tmp_path / "clean.ro")]) == 0 and not capsys.readouterr().out
    assert romanian.main(["--check", str(tmp_path / "missing.ro")]) == 1
    assert capsys.readouterr().err == f"romanian: {tmp_path / 'missing.ro'}: No such file or directory\n"


def test_removed_diacritics_rerun_romanian_alone(official, tmp_path):
    folder = tmp_path / "wmt"
    command = [str(folder), "--pairs", "en-de,en-ro"]
    assert main(command) == 0
    german, reference = folder / "bitext/train.en-de.de", lines(folder / "bitext/test.en-ro.ro")
    before, asked = german.stat().st_mtime_ns, len(official.asked)
    assert main([*command, "--remove-diacritics"]) == 0
    assert (german.stat().st_mtime_ns, len(official.asked)) == (before, asked)
    assert "Tara, tara, Si si STst AaAaIi" in (folder / "bitext/train.en-ro.ro").read_text()
    for name, test_set in (("valid", "wmt16/dev"), ("test", "wmt16")):
        plain = [f"{line} tara" for line in sentences(test_set, "ro", 4)]
        assert lines(folder / f"bitext/{name}.en-ro.ro") == plain
    assert (
        lines(folder / "bitext/test-diacritics.en-ro.ro")
        == reference
        == [f"{line} țară" for line in sentences("wmt16", "ro", 4)]
    )
    assert json.loads((folder / "manifest.json").read_text())["remove diacritics"] is True
    assert main(command) == 0 and lines(folder / "bitext/test.en-ro.ro") == reference


# Translation memories


def written(content, tmp_path):
    """The lines of both languages of a compressed translation memory."""
    path, outputs = tmp_path / MEMORY.name, {f"x.{language}": tmp_path / language for language in ("en", "ro")}
    path.write_bytes(content)
    MEMORY.extract(path, outputs)
    return [lines(output) for output in outputs.values()]


def test_units_become_lines(tmp_path):
    units = [{"en": "a <b> & c", "ro": "ă\nâ"}, {"en": "alone"}, {"fr": "autre", "ro": "singur"}, {}]
    assert written(memory_of(units), tmp_path) == [["a <b> & c", "alone", "", ""], ["ă â", "", "singur", ""]]
    marked = '<tu><prop>x</prop><tuv xml:lang="ro"><prop>y</prop><seg>unu <hi>doi</hi> trei</seg></tuv></tu>'
    assert written(gzip.compress(TMX.format(marked).encode()), tmp_path) == [[""], ["unu doi trei"]]


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(units):
        content = memory_of({"en": f"sentence {number}", "ro": "x"} for number in range(units))
        tracemalloc.start()
        path = tmp_path / MEMORY.name
        path.write_bytes(content)
        tracemalloc.reset_peak()
        MEMORY.extract(path, {"x.en": tmp_path / "en", "x.ro": tmp_path / "ro"})
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(6000) < peak(600) + 100_000


WHOLE = memory_of({"en": f"sentence {number}", "ro": "propoziție"} for number in range(200))
ENTITY = '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{}">]><tmx><tu><tuv xml:lang="en"><seg>&x;</seg></tuv></tu></tmx>'


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[:-300],
        WHOLE[:200] + b"\xff" * 20 + WHOLE[220:],
        b"no gzip",
        gzip.compress(b"<tmx><body><tu></body></tmx>"),
        gzip.compress(b"<tu/><tu/>"),
        gzip.compress(b'<tmx><tu><tuv xml:lang="en"><seg>\xff</seg></tuv></tu></tmx>'),
        gzip.compress(ENTITY.format(__file__).encode()),
        gzip.compress(b""),
    ],
    ids=["short", "changed", "no gzip", "no XML", "two roots", "no UTF-8", "external entity", "empty"],
)
def test_a_damaged_translation_memory_is_one_sentence(content, tmp_path):
    with pytest.raises(UserError, match=r"setimes-v2.en-ro.tmx.gz is damaged \(.*\): remove it and run"):
        written(content, tmp_path)
    assert not (tmp_path / "en").exists()


def test_a_stop_loses_no_archive(official, tmp_path, capsys):
    folder = tmp_path / "wmt"
    official.stop_after = 200
    assert main([str(folder)]) == 1
    assert "wmt: https://www.statmt.org/wmt13/training-parallel-europarl" in capsys.readouterr().err
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
        texts = corpus._texts(tmp_path / "wmt", "train", "en-de", remove=False)
        corpus._train(tmp_path / "wmt", corpus.PAIRS["en-de"], "train", "en-de", texts)


@pytest.mark.parametrize("error", [SystemExit(1), urllib.error.URLError("no route"), Exception("No such test set")])
def test_a_test_set_that_cannot_be_had_is_one_sentence(official, tmp_path, monkeypatch, capsys, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(sacrebleu, "get_source_file", fail)
    assert main([str(tmp_path / "wmt")]) == 1
    assert "wmt: sacrebleu cannot provide wmt13 en-de (" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "wmt/manifest.json").exists()


def test_an_archive_without_the_member_is_refused(official, tmp_path, monkeypatch, capsys):
    content = archive_of({"README": b"x"})
    first = WMT14[0]
    official.files[first.url] = content
    small = replace(first, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(corpus, "PAIRS", {"en-de": Pair((small,), ("wmt13",), "wmt14/full")})
    assert main([str(tmp_path / "wmt")]) == 1
    assert "lacks training/europarl-v7.de-en.en" in capsys.readouterr().err.splitlines()[-1]


def test_archives_are_left_out(official, tmp_path, capsys):
    folder, names = tmp_path / "wmt", [archive.name for archive in WMT14_FRENCH]
    assert main([str(folder), "--pairs", "en-de,en-fr", "--without", ",".join(names)]) == 0
    assert len(official.asked) == 3 and len(lines(folder / "bitext/train.en-fr.fr")) == 30
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest["archives"]) == [archive.url for archive in WMT14]
    german = (folder / "bitext/train.en-de.de").stat().st_mtime_ns
    assert main([str(folder), "--pairs", "en-de,en-fr"]) == 0
    assert (folder / "bitext/train.en-de.de").stat().st_mtime_ns == german
    assert len(official.asked) == 5 and len(lines(folder / "bitext/train.en-fr.fr")) == 50


def test_options_that_do_not_fit(tmp_path, capsys):
    every = ",".join(archive.name for archive in WMT16)
    valid = "training-parallel-ep-v8.tgz, setimes-v2.en-ro.tmx.gz"
    for words, message in (
        ("en-de,en-fr --remove-diacritics", "--remove-diacritics: no pair of --pairs en-de,en-fr has Romanian text"),
        ("en-ro --without setimes", f"--without: unknown 'setimes'; valid: {valid}"),
        (f"en-ro --without {every}", "--without: no archive of en-ro is left"),
    ):
        assert main([str(tmp_path / "wmt"), "--pairs", *words.split()]) == 1
        assert capsys.readouterr().err == f"wmt: {message}\n"
        assert not (tmp_path / "wmt").exists()


@pytest.mark.parametrize("damage", ["short archive", "short member", "changed member"])
def test_a_damaged_archive_of_compressed_members_is_one_sentence(tmp_path, damage):
    archive, text = WMT14_FRENCH[1], gzip.compress(bytes(range(256)) * 40)
    text = {"short member": text[:-20], "changed member": b"no gzip"}.get(damage, text)
    content = archive_of({"giga-fren.release2.fixed.en.gz": text}, mode="w")
    path = tmp_path / archive.name
    path.write_bytes(content[:600] if damage == "short archive" else content)
    with pytest.raises(UserError, match=r"giga-fren.tar is damaged \(.*\): remove it and run the same command"):
        archive.extract(path, {"giga-fren.release2.fixed.en": tmp_path / "en"})
    assert not (tmp_path / "en").exists()
