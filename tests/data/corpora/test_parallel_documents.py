"""Documents that alternate between two languages (U6): windows, languages, truncation, text that is left out."""

import pytest
from tiny_data import write_items

from fairseq_xl.data.corpora.parallel_documents import ParallelDocuments
from fairseq_xl.errors import UserError

#: a document of three sentences, of which a line is English only; one of a single sentence; one of two
ENGLISH = [[5, 2], [6, 6, 2], [7, 2], [4, 2], [2], [8, 2], [2], [9, 2], [10, 2]]
GERMAN = [[15, 15, 2], [16, 2], [2], [14, 2], [2], [18, 2], [2], [19, 2], [20, 20, 20, 2]]


def documents(folder, english=ENGLISH, german=GERMAN):
    write_items(folder / "train.en-de.en", english)
    write_items(folder / "train.en-de.de", german)
    return ParallelDocuments(folder / "train.en-de", "en", "de")


def read(corpus, longest):
    """{(languages, sentences)} of all examples."""
    examples, _ = corpus.all_examples(longest)
    texts = [tuple(tuple(sentence.tolist()) for sentence in text) for text in corpus.texts(examples, longest)]
    return list(zip(corpus.languages(examples, longest), texts))


def test_every_other_sentence_is_the_translation(tmp_path):
    """German at even and English at odd places, and the reverse, in documents of three and two pairs."""
    found = read(documents(tmp_path), 100)
    assert found == [
        (("de", "en", "de"), ((15, 15, 2), (6, 6, 2), (14, 2))),
        (("en", "de", "en"), ((5, 2), (16, 2), (4, 2))),
        (("de", "en"), ((19, 2), (10, 2))),
        (("en", "de"), ((9, 2), (20, 20, 20, 2))),
    ]
    assert documents(tmp_path).all_examples(100)[1].tolist() == [8, 6, 4, 6]


def test_the_last_sentence_is_truncated_and_the_next_window_begins_behind_it(tmp_path):
    """At most 4 tokens: 15 15 2 | 6, truncated; the single sentence that is left is no window."""
    found = read(documents(tmp_path), 4)
    assert found[0] == (("de", "en"), ((15, 15, 2), (6,)))
    assert (("en", "de"), ((5, 2), (16, 2))) in found and (("en", "de"), ((9, 2), (20, 20))) in found
    assert documents(tmp_path).all_examples(4)[1].tolist() == [4] * len(found)


def test_languages_are_known_without_reading_a_sentence(tmp_path, monkeypatch):
    corpus = documents(tmp_path)
    examples, _ = corpus.all_examples(100)
    expected = [codes for codes, _ in read(corpus, 100)]
    monkeypatch.setattr(corpus.pairs, "sides", None)
    assert corpus.languages(examples, 100) == expected


def test_text_without_documents_of_two_sentences_is_refused(tmp_path):
    with pytest.raises(UserError, match="train.en-de: no document has two sentences in both languages; documents are"):
        documents(tmp_path, [[5, 2], [2], [6, 2]], [[15, 2], [2], [16, 2]]).all_examples(9)
