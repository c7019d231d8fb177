"""BERT's sub-words: the WordPiece vocabulary that multilingual BERT publishes, one piece a line.

``##`` in front of a piece says that it continues a word. [PAD], [UNK], [CLS], [SEP] and [MASK] have symbols of the
dictionary in their place; [unusedN] are pieces that no text has.
"""

from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from fairseq_xl.errors import UserError, quoted
from fairseq_xl.io.files import read_whole
from fairseq_xl.io.text import decoded

CONTINUATION = "##"
UNKNOWN = "[UNK]"
#: BERT's special symbols and ours
SPECIAL = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", UNKNOWN: "<unk>", "[MASK]": "<mask>"}
LONGEST = 100  # characters of a word; a longer one is unknown, as in BERT


class WordPieces:
    """The pieces of a WordPiece vocabulary (`fairseq_xl.data.vocabulary.subwords.Subwords`).

    Args:
        vocab: BERT's vocab.txt.
        lowercase: whether text gets lower case and loses accents: true for an uncased vocabulary.

    Raises `UserError` for a file that is missing or no such vocabulary.
    """

    title, units = "WordPiece vocabulary", "characters"

    def __init__(self, vocab: Path, lowercase: bool):
        self.pieces = read_vocabulary(vocab)
        self.unknown = self.pieces.index(UNKNOWN)
        self.texts = {piece.removeprefix(CONTINUATION) for piece in self.pieces}
        self.symbols = ["<unk>" if piece in SPECIAL else piece for piece in self.pieces]
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        # BERT's tokenizer without special tokens: [MASK] in text is ordinary text
        self.tokenizer = Tokenizer(models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST))
        self.tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        self.tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def normalizer(self) -> normalizers.Normalizer | None:
        """BERT's rules for characters."""
        return self.tokenizer.normalizer

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Lines -> the ids of their pieces."""
        return [self.tokenizer.encode(line).ids for line in lines]

    def lost(self, line: str) -> list[str]:
        """The characters of unknown words for which the vocabulary has no piece."""
        encoding = self.tokenizer.encode(line)
        words = [line[begin:end] for i, (begin, end) in zip(encoding.ids, encoding.offsets) if i == self.unknown]
        return [char for char in "".join(words) if char not in self.texts]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Text -> the ids of its pieces, and the characters [begin, end) of each."""
        encoding = self.tokenizer.encode(text)
        return encoding.ids, encoding.offsets


def read_vocabulary(path: Path) -> list[str]:
    """The pieces of vocab.txt in order, with special symbols."""
    if not path.is_file():
        raise UserError(f"{path}: no such file, expected a WordPiece vocabulary")
    pieces = [line.rstrip("\r") for line in decoded(read_whole(path, vocabulary=True), path).split("\n")]
    pieces = pieces[:-1] if pieces[-1] == "" else pieces
    missing = [piece for piece in SPECIAL if piece not in pieces]
    if missing:
        raise UserError(f"{path} is not a WordPiece vocabulary: it has no line {missing[0]}")
    seen: set[str] = set()
    for line_number, piece in enumerate(pieces, start=1):
        if not piece or piece in seen:
            content = f"the piece {quoted(piece)} again" if piece else "an empty line"
            raise UserError(f"{path}, line {line_number}: expected a new piece, found {content}")
        seen.add(piece)
    return pieces
