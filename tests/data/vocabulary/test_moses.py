"""Words of tokenizer `moses` and of XLM's text are those of Moses' Perl scripts."""

import functools
import lzma
import os
from pathlib import Path

import pytest

from fairseq_xl.data.vocabulary import moses, tokenizers

REAL = os.environ.get("XL_REAL_DATA")

WORDS = [  # language, line, words of tokenizer.perl -no-escape
    ("hi", "वह क्या है।", "वह क ् या है ।"),  # a virama is not alphabetic, a vowel sign is
    ("ta", "அவன் வந்தான்.", "அவன ் வந ் தான ் ."),
    ("bn", "কৃষ্ণ ১,২০০ টাকা", "কৃষ ্ ণ ১,২০০ টাকা"),
    ("en", "The word 漢字, not kanji.", "The word 漢字 , not kanji ."),
    ("zh", "我在Kyoto。你呢?", "我在Kyoto 。 你呢 ?"),
    ("ka", "ეს ჩემი სახლია.", "ეს ჩემი სახლია ."),
    ("en", "We met at 5 p.m.", "We met at 5 p.m ."),  # the last full stop, even of an abbreviation
    ("en", "Mr. Ax paid No. 7, no. of Nos. unknown, i.e. all", "Mr. Ax paid No. 7 , no. of Nos. unknown , i.e. all"),
    ("en", "No. Yes. no, and 1,000,000, or 3,", "No . Yes. no , and 1,000,000 , or 3 ,"),
    ("en", "it's the 1990's dogs' 'so' O'Neil.'", "it 's the 1990 's dogs ' ' so ' O 'Neil . '"),
    ("fr", "l'eau d'ici, aujourd'hui 'x'", "l' eau d' ici , aujourd' hui ' x'"),
    ("ga", "b'fhéidir", "b' fhéidir"),
    ("de", "z.B. geht's 'so'", "z.B. geht ' s ' so '"),
    ("so", "go'an 'go'", "go'an ' go'"),
    ("tdt", "ne'e 'Ida", "ne'e ' Ida"),
    ("fi", "EU:n klo 5:30: tai", "EU:n klo 5 : 30 : tai"),
    ("en", "EU:n", "EU : n"),
    ("ca", "col·lecció d'art", "col·lecció d' art"),
    ("en", "wait.. what...? 'no...'", "wait .. what ... ? ' no ... '"),
    ("en", "a\tb\x1cc\x00\xa0d\u2028e \x01 f", "a bc d e f"),
    ("en", "etc. \x01 so", "etc. so"),
    ("en", "rate 5%—10% & <b> \u200d", "rate 5 % — 10 % & < b > \u200d"),
]


@pytest.mark.parametrize("language, line, words", WORDS)
def test_words(language, line, words):
    assert tokenizers.tokenize(line, "moses", language) == words


@pytest.mark.parametrize(
    "language, line, words",
    [
        ("de", "Sie sagte „ja.“", 'Sie sagte " ja " .'),  # the quotation mark before the full stop, also at the end
        ("it", "Disse “sì,” poi “no.” Fine", 'Disse " sì " , poi " no " . Fine'),
        ("en", "She said “yes”.", 'She said " yes . "'),
        ("cs", "Řekl „ano.“ a šel", 'Řekl " ano . " a šel'),
        ("fa", "می\u200cروم\tنه", "می روم نه"),  # a control or format character becomes a space
        ("fr", "dit\xa0«\xa0oui\xa0» et 10\xa0000", 'dit " oui " et 10,000'),
        ("it", "10\xa0000 (dieci) %", "10.000 ( dieci ) %"),
    ],
)
def test_text_of_xlm(language, line, words):
    assert tokenizers.tokenize(line, "xlm", language) == words


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="XL_REAL_DATA: folder with moses.tsv.xz")
@pytest.mark.parametrize("name, column", [("moses", 3), ("xlm", 4)])
def test_published_text(name, column):
    with lzma.open(Path(REAL, "moses.tsv.xz"), "rt", encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    wrong = [row for row in rows if tokenizers.tokenize(row[2], name, row[1]).split() != row[column].split()]
    assert len(rows) == 6210 and not wrong


def test_a_splitter_has_no_state():
    split = functools.partial(tokenizers.tokenize, name="moses", language="en")
    assert split("Mr. X") == split("Mr. X") != split("Mr.") and moses.splitter("en")("") == []
