"""XLM's codes: merged by hand, as subword-nmt and as transformers apply them, and files that are wrong."""

import io
import random

import pytest
from subword_nmt import apply_bpe
from transformers.models.xlm.tokenization_xlm import XLMTokenizer, lowercase_and_remove_accent

from fairseq_xl.data.vocabulary.xlm_bpe import WordSplitter, XLMPieces, read_codes, read_vocabulary, spelled_words
from fairseq_xl.errors import UserError
from tests.published_text import write_xlm

LINES = [
    "the house in the garden , the houses of the gardens .",
    "das Haus im Garten , die Häuser der Gärten .",
    "la maison du jardin , l' été des maisons .",
    "Дом в саду , дома в садах .",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder of codes, vocab, merges.txt and vocab.json."""
    folder = tmp_path_factory.mktemp("xlm")
    write_xlm(folder, LINES, merges=40)
    return folder


@pytest.mark.parametrize(
    "word, expected",
    [
        ("lower", ["low@@", "er"]),
        ("low", ["low"]),  # l ow</w> before lo w, which only a word that goes on has
        ("lolo", ["lo@@", "l@@", "o"]),  # the last o is o</w>
        ("lololow", ["lo@@", "lo@@", "low"]),
        ("o", ["o"]),
        ("@@", ["@@@", "@"]),
    ],
)
def test_merges_by_hand(word, expected):
    pairs = [("o", "w</w>"), ("l", "ow</w>"), ("l", "o"), ("lo", "w"), ("e", "r</w>")]
    assert WordSplitter({pair: place for place, pair in enumerate(pairs)})(word) == expected


def test_a_pair_that_overlaps_itself_is_merged_from_the_left():
    split = WordSplitter({("a", "a"): 0})
    assert split("aaaab") == ["aa@@", "aa@@", "b"] and split("aaab") == ["aa@@", "a@@", "b"]


def random_words(seed, count):
    rng = random.Random(seed)
    letters = sorted({char for line in LINES for char in line if char != " "})
    return ["".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(count)] + " ".join(LINES).split()


def test_pieces_are_those_of_subword_nmt(files):
    reference = apply_bpe.BPE(io.StringIO("#version: 0.2\n" + (files / "merges.txt").read_text(encoding="utf-8")))
    split = WordSplitter(read_codes(files / "codes"))
    for word in random_words(1, 500):
        assert split(word) == reference.process_line(word).split(), word


@pytest.mark.parametrize("lower", [True, False])
def test_ids_are_those_of_transformers(files, lower):
    """Theirs count 14 special words first, of which the fourth is <unk>; ours only <unk>."""
    reference = XLMTokenizer(str(files / "vocab.json"), str(files / "merges.txt"), do_lowercase_and_remove_accent=lower)
    ours = XLMPieces(files / "codes", files / "vocab", lower)
    text = [*LINES, " ".join(random_words(2, 300))]
    words = [" ".join(lowercase_and_remove_accent(line.split())) if lower else line for line in text]
    pieces = [reference._tokenize(line, bypass_tokenizer=True) for line in words]
    expected = [reference.convert_tokens_to_ids(row) for row in pieces]
    found = [[number + 13 if number else 3 for number in row] for row in ours.encode(text)]
    assert found == expected
    assert any(3 in row for row in found) and any(3 not in row for row in found)


def test_both_forms_of_the_files_are_equal(files):
    codes, merges = read_codes(files / "codes"), read_codes(files / "merges.txt")
    assert list(codes) == list(merges)
    words = read_vocabulary(files / "vocab")
    assert words == read_vocabulary(files / "vocab.json")
    assert "the" in words and any(word.endswith("@@") for word in words)
    with_version = files.parent / "with-version"
    with_version.write_bytes(b"#version: 0.2\n" + (files / "merges.txt").read_bytes())
    assert list(read_codes(with_version)) == list(codes)


def test_words_of_transformers_are_spelled_as_in_text():
    assert spelled_words(["<s>", "<special3>", "th", "the</w>", "@", "</w>"]) == [
        *("<s>", "<special3>", "th@@", "the", "@@@", "")
    ]


def test_words_that_xlm_leaves_out(tmp_path):
    (tmp_path / "vocab").write_text("a 9\n\u00a0 8\nx\u2028y 7\na 6\n<unk> 5\n<special1> 4\nb@@ 3\n", encoding="utf-8")
    assert read_vocabulary(tmp_path / "vocab") == ["a", "b@@"]


def test_pieces_at_their_places(files):
    for lower in (True, False):
        ours = XLMPieces(files / "codes", files / "vocab", lower)
        text = " Die Häuser  der\tGärten , ok"
        ids, places = ours.spans(text)
        assert [ids] == ours.encode([text])
        assert "".join(text[begin:end] for begin, end in places) == "".join(text.split())
        assert places == sorted(places)


def test_unknown_pieces_are_named(files):
    ours = XLMPieces(files / "codes", files / "vocab", False)
    assert ours.lost("the Q dQ") == ["Q", "Q"] and ours.lost("the garden") == []


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("codes", b"", "codes has no codes: expected 'left right count'"),
        ("codes", b"t h 3\nth e</w", "codes is cut short: its last line has no end"),
        ("codes", b"t h 3\nth e</w> x\n", "codes, line 2: expected 'left right count' or 'left right', found 'th e"),
        ("codes", b"t h i s 3\n", "codes, line 1: expected 'left right count'"),
        ("codes", b"\xff\xfe\n", "codes, line 1: not UTF-8"),
        ("vocab", b"", "vocab has no words"),
        ("vocab", b"the 3\nho", "vocab is cut short"),
        ("vocab", b"the 3\nhouse\n", "vocab, line 2: expected 'word count', found 'house'"),
        ("vocab", b'{"<s>": 0, "the</w>": 1', "vocab, line 1: not JSON"),
        ("vocab", b'{"<s>": 0, "the</w>": 2}', "vocab: expected words that are numbered from 0 without a gap"),
        ("vocab", "dom 3\ndům 2\nles 1\n".encode(), "vocab is not the vocabulary of .*codes, which make 0 of its 3"),
    ],
)
def test_wrong_files(files, tmp_path, name, content, message):
    for each in ("codes", "vocab"):
        (tmp_path / each).write_bytes(content if each == name else (files / each).read_bytes())
    with pytest.raises(UserError, match=message):
        XLMPieces(tmp_path / "codes", tmp_path / "vocab", True)


def test_a_missing_file(files, tmp_path):
    with pytest.raises(UserError, match="nowhere: no such file, expected the codes"):
        XLMPieces(tmp_path / "nowhere", files / "vocab", True)
