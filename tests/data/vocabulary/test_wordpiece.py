"""WordPiece: pieces by hand and as BERT's own tokenizer makes them, places in the text, wrong files."""

import pytest
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from fairseq_xl.data.vocabulary.wordpiece import WordPieces, read_vocabulary
from fairseq_xl.errors import UserError
from tests.published_text import BERT, write, write_wordpiece

LINES = [
    "the house in the garden , the house of the garden , the house , the garden",
    "das Haus im Garten , das Haus der Gärten , das Haus , das Haus",
    "我 来 到 北 京 大 学",
    "Дом в саду , дома в садах",
]
TEXTS = [
    "The houses, (the garden's) — das Hausé!",
    "我来到北京大学 hello",
    "в Саду: ДОМ\u200b",
    "[MASK] the [CLS] x\u00a0y",
    "the" * 40,
]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    write_wordpiece(path, LINES)
    return path


def test_by_hand(tmp_path):
    write(tmp_path / "vocab.txt", [*BERT, "un", "##able", "##a", "un", "able"][:-2])
    pieces = WordPieces(tmp_path / "vocab.txt", False)
    names = [pieces.pieces[number] for number in pieces.encode(["unable una able"])[0]]
    assert names == ["un", "##able", "un", "##a", "[UNK]"]
    assert pieces.symbols == ["<unk>", "[unused1]", "[unused2]", *["<unk>"] * 4, "un", "##able", "##a"]
    assert pieces.lost("unable able axb") == list("blexb")  # there is ##a


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_those_of_bert(vocab, lower, text):
    """Their Python implementation takes [MASK] in a text for the mask, ours does not."""
    reference = BertTokenizerLegacy(str(vocab), do_lower_case=lower)
    plain = text.replace("[", "( ").replace("]", " )")
    ours = WordPieces(vocab, lower)
    assert ours.encode([plain]) == [reference.convert_tokens_to_ids(reference.tokenize(plain))]
    special = {ours.pieces.index(name) for name in BERT if name != "[UNK]"}
    assert not special & set(ours.encode([text])[0])


@pytest.mark.parametrize("lower", [False, True])
def test_pieces_at_their_places(vocab, lower):
    text = "Die Häuser, das  Haus"
    ids, places = WordPieces(vocab, lower).spans(text)
    assert len(ids) == len(places)
    assert "".join(text[begin:end] for begin, end in places) == "".join(text.split())


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", r"vocab.txt is not a WordPiece vocabulary: it has no line \[CLS\]"),
        (b"\xff\n", "vocab.txt, line 1: not UTF-8"),
        ("\n".join([*BERT, "a", "a"]).encode(), "vocab.txt, line 9: expected a new piece, found the piece 'a' again"),
        ("\n".join([*BERT, "", "a"]).encode(), "vocab.txt, line 8: expected a new piece, found an empty line"),
    ],
)
def test_wrong_files(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vocabulary(tmp_path / "vocab.txt")
    with pytest.raises(UserError, match="nowhere: no such file"):
        read_vocabulary(tmp_path / "nowhere")
