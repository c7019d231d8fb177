"""OPUS corpora in Moses format, from zip files made here."""

import itertools
import json
import zipfile

import pytest

from preprocess.commands.prepare import main as preprocess
from preprocess.readers.opus import main
from preprocess.readers.text import letters_and_digits
from tests.preprocess.readers.written_files import lines


def write_zip(path, english, german, pair="de-en"):
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README", "Corpus Name: Books\n")
        for language, lines in (("de", german), ("en", english)):
            archive.writestr(f"Books.{pair}.{language}", "".join(f"{line}\n" for line in lines).encode())
        archive.writestr(f"Books.{pair}.xml", "<cesAlign/>")
    return path


ENGLISH = [f"The book number {number} is blue." for number in range(300)] + ["The BOOK number 7 is blue!", "", "Odd"]
GERMAN = [f"Das Buch Nummer {number} ist blau." for number in range(300)] + ["Das Buch mit der 7 ist blau.", "Leer", ""]


@pytest.fixture
def archive(tmp_path):
    return write_zip(tmp_path / "books.zip", ENGLISH, GERMAN)


def read(folder, pair="en-de"):
    return {
        split: list(zip(*(lines(folder / f"bitext/{split}.{pair}.{side}") for side in pair.split("-"))))
        for split in ("train", "valid", "test")
    }


def test_sentences_are_divided_and_stay_aligned(archive, tmp_path):
    folder = tmp_path / "out"
    assert main([str(folder), str(archive), "--pair", "en-de"]) == 0
    splits = read(folder)
    assert (len(splits["valid"]), len(splits["test"])) == (30, 30)  # a tenth of a small corpus
    assert main([str(folder), str(archive), "--pair", "en-de", "--held-out", "20"]) == 0
    splits = read(folder)
    assert (len(splits["valid"]), len(splits["test"])) == (20, 20)
    written = [pair for pairs in splits.values() for pair in pairs]
    assert set(written) <= set(zip(ENGLISH, GERMAN)) and len(written) == len(set(written)) >= 300
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert counts["train"] == len(splits["train"]) and counts["books.zip"] == {"pairs": 301, "empty": 2, "invalid": 0}
    assert preprocess([str(folder / "corpus.yaml"), "--check-only"]) == 0


def test_either_order_of_the_pair_reads_the_same(archive, tmp_path):
    assert main([str(tmp_path / "a"), str(archive), "--pair", "de-en"]) == 0
    other = write_zip(tmp_path / "other.zip", ENGLISH, GERMAN, "en-de")
    assert main([str(tmp_path / "b"), str(other), "--pair", "de-en"]) == 0
    assert read(tmp_path / "a", "de-en") == read(tmp_path / "b", "de-en")
    assert set(read(tmp_path / "a", "de-en")["train"]) <= set(zip(GERMAN, ENGLISH))


def test_no_held_out_sentence_is_in_training(tmp_path):
    """Each English sentence has two translations, and each German one belongs to two English sentences."""
    english = [f"Book {number} is {word}" for number in range(200) for word in ("blue", "azure")] * 2
    german = [f"Buch {number} ist blau" for number in range(200) for _ in range(2)] + [
        f"Buch {number} ist {word}" for number in range(200) for word in ("bläulich", "himmelblau")
    ]
    folder = tmp_path / "out"
    archives = [str(write_zip(tmp_path / name, english, german)) for name in ("one/de-en.zip", "two/de-en.zip")]
    assert main([str(folder), *archives, "--pair", "en-de", "--held-out", "15"]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [*manifest["archives"]] == ["one/de-en.zip", "two/de-en.zip"] == [*manifest["counts"]][-2:]
    splits = read(folder)
    assert len(splits["test"]) == len(splits["valid"]) == 15 and len(splits["train"]) > 1000
    for side in (0, 1):
        keys = {split: {letters_and_digits(pair[side]) for pair in pairs} for split, pairs in splits.items()}
        assert not keys["train"] & (keys["valid"] | keys["test"])
    assert not {pair[1] for pair in splits["valid"]} & {pair[1] for pair in splits["test"]}


def ids(documents):
    """NAME.ids: documents of both sides and sentences, for each line."""
    return "".join(f"de/{name}.xml.gz\ten/{name}.xml.gz\t{line}\t{line}\n" for line, name in enumerate(documents))


def xces(documents):
    """NAME.xml: a group of links for each document, and one link in each without a side, which has no line."""
    groups = []
    for name, rows in itertools.groupby(documents):
        links = "".join(f'<link xtargets="{row};{row}" id="SL{row}"/>\n' for row, _ in enumerate(rows))
        head = f'<linkGrp targType="s" fromDoc="de/{name}.xml.gz" toDoc="en/{name}.xml.gz">'
        groups.append(f'{head}\n<link xtargets="7;" id="SL"/>\n{links}</linkGrp>\n')
    return f'<cesAlign version="1.0">\n{"".join(groups)}</cesAlign>\n'


@pytest.mark.parametrize("suffix, write", [("ids", ids), ("xml", xces), ("none", ids)])
def test_documents(suffix, write, tmp_path, caplog):
    """Each is whole in one split, but for what training shares with the others; without a list, runs of five pairs."""
    documents = [number // 7 for number in range(len(ENGLISH))]
    path = write_zip(tmp_path / "books.zip", ENGLISH, GERMAN)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive, zipfile.ZipFile(path) as source:
        for name in source.namelist()[:3]:
            archive.writestr(name, source.read(name))
        archive.writestr(f"Books.de-en.{suffix}", write(documents))
    if suffix == "none":
        documents = [number // 5 for number in range(len(ENGLISH))]
    command = [str(tmp_path / "out"), str(tmp_path / "all.zip"), "--pair", "en-de", "--documents", "5"]
    assert main([*command, "--held-out", "20"]) == 0
    assert ("no list of the documents of its 303 lines: 5 successive ones are one" in caplog.text) == (suffix == "none")
    expected, splits = {}, read(tmp_path / "out")
    for name, pair in zip(documents, zip(ENGLISH, GERMAN)):
        if all(pair):
            expected.setdefault(name, []).append(pair)
    parts = {split: [] for split in splits}
    for split, pairs in splits.items():
        for is_text, rows in itertools.groupby(pairs, key=all):
            parts[split] += [list(rows)] if is_text else []
    held_out = parts["valid"] + parts["test"]
    assert all(0 < sum(map(len, parts[split])) <= 20 for split in ("valid", "test"))
    assert all(part in expected.values() for part in held_out)
    sides = [{letters_and_digits(pair[side]) for part in held_out for pair in part} for side in (0, 1)]
    rest = [
        [pair for pair in part if not any(letters_and_digits(pair[side]) in sides[side] for side in (0, 1))]
        for part in expected.values()
    ]
    assert parts["train"] == [part for part in rest if part]
    counts = json.loads((tmp_path / "out/manifest.json").read_text())["counts"]
    assert {split: counts[f"documents in {split}"] for split in parts} == {s: len(part) for s, part in parts.items()}
    assert preprocess([str(tmp_path / "out/corpus.yaml"), "--check-only"]) == 0


def test_problems_are_one_sentence(archive, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.zip").write_text("no zip\n")
    content = archive.read_bytes()
    (tmp_path / "cut.zip").write_bytes(content[:200] + bytes(200) + content[400:])
    write_zip(tmp_path / "uneven.zip", ENGLISH, [*GERMAN, "Mehr"])
    for words, message in (
        ("absent.zip --pair en-de", "absent.zip: there is no such file"),
        ("books.zip --pair en-fr", "expected one file *.en-fr.en and one *.en-fr.fr, found README, Books"),
        ("books.zip --pair english", "--pair: 'english' is not a pair of two different languages"),
        ("books.zip --pair en-de --held-out 0", "--held-out 0: 1 or more is needed"),
        ("books.zip --pair en-de --documents 200", "too few documents for validation and test"),
        ("text.zip --pair en-de", "text.zip is damaged or no zip file"),
        ("cut.zip --pair en-de", "cut.zip is damaged or no zip file"),
        ("uneven.zip --pair en-de", "uneven.zip en-de: one side ends at line 303"),
    ):
        assert main([str(tmp_path / "out"), *words.split()]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("opus: ") and message in error
        assert not (tmp_path / "out/corpus.yaml").exists()
