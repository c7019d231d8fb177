"""The task wpr from LibreOffice help pages: right and wrong pages of an entry, lines to rank."""

from fairseq_xl.evaluation.task_files import read_queries
from preprocess.readers.libreoffice_help import questions, ranking

FIRST = "one two three four"


def pages(**texts):
    """(texts, kinds, splits) of test pages of one application; each has a title, a paragraph and an entry."""
    names = {f"swriter/{name}.html": (title, first, entries) for name, (title, first, entries) in texts.items()}
    plain = {page: {"h": title, "p": first} for page, (title, first, _) in names.items()}
    indexed = questions.with_entries(plain, {page: {"p": entries} for page, (_, _, entries) in names.items()})
    kinds = {page: {"h": "h1", "p": "text"} for page in names}
    return indexed, kinds, dict.fromkeys(names, "test")


def test_wrong_pages_are_those_with_most_words_in_common():
    """The page `a` shares 6 of 6 words with b, 5 of 7 with c, 4 of 8 with d and none with e."""
    texts, kinds, splits = pages(
        a=("red", f"{FIRST} five", ["colors"]),
        b=("five", f"{FIRST} red", []),
        c=("five", f"{FIRST} blue", []),
        d=("six", f"{FIRST} blue", []),
        e=("other", "words that nobody else has", []),
    )
    (item,) = ranking.plan(texts, kinds, splits)
    entry, *shown = (place for places in item.texts for place in places)
    assert entry == ("swriter/a.html", "p@0") and item.split == "test"
    assert shown == [(f"swriter/{page}.html", name) for page in "abcd" for name in "hp"]


def test_an_entry_has_one_right_page_and_three_wrong_ones():
    """No items: an entry of two pages, a page without a long paragraph, fewer than four pages in a split."""
    some = {name: (f"title {name}", f"{FIRST} {name}", ["Same!" if name in "ab" else name]) for name in "abcd"}
    some["e"] = ("short", "four words are few", ["short"])
    texts, kinds, splits = pages(**some)
    found = {item.texts[0][0][0] for item in ranking.plan(texts, kinds, splits)}
    assert found == {"swriter/c.html", "swriter/d.html"}
    assert ranking.plan(texts, kinds, splits | {"swriter/a.html": "train"}) == []


def test_lines_have_every_text_and_the_right_one_anywhere(tmp_path):
    """Queries without a translation, or with the same one, are left out."""
    some = {f"n{place}": (f"title {place}", f"{FIRST} {place}", [f"entry {place}"]) for place in range(40)}
    texts, kinds, splits = pages(**some)
    items = ranking.plan(texts, kinds, splits)
    assert len(items) == 40
    german = {page: {name: f"de {text}" for name, text in own.items()} for page, own in texts.items()}
    for place in (1, 2):
        german[f"swriter/n{place}.html"]["p@0"] = "the same"
    del german["swriter/n3.html"]["p@0"]
    counts = ranking.write(tmp_path, "de", items, german)
    assert counts["tasks/wpr/test.de.tsv"] == {"lines": 148, "queries": 37} and set(counts) == set(
        ranking.outputs("de")
    )
    right = []
    for query in read_queries(tmp_path / "tasks/wpr/test.de.tsv", "de"):
        number = query.query.removeprefix("de entry ")
        right.append(query.relevance.index(1))
        assert sorted(query.relevance) == [0, 0, 0, 1] and len(set(query.texts)) == 4
        assert query.texts[right[-1]] == (f"de title {number}", f"de {FIRST} {number}")
    assert set(right) == {0, 1, 2, 3}
