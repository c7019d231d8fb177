"""XLM's vocabulary as files of transformers' XLMTokenizer, which prepares text as XLM does.

XLMTokenizer applies Moses' rules for English to text of every language: transformers 5 does not pass `lang` on to
`XLMTokenizer._tokenize`, which has it. Ids differ where the language's rules do, as for the apostrophes of French. With
`lang` they are equal but in Chinese and Japanese, which XLMTokenizer segments by other packages, and in Romanian, whose
diacritics it removes. A pair has one ``</s>`` between the texts, where our framing has two.
"""

from pathlib import Path
from typing import Any

from fairseq_xl.checkpoints.layouts.fast_tokenizer import names_of_rows
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK
from fairseq_xl.data.vocabulary.subwords import open_subwords
from fairseq_xl.data.vocabulary.xlm_bpe import CONTINUES, END, XLMPieces
from fairseq_xl.io.files import write_json, write_lines


def write_xlm_vocabulary(folder: Path, data: Path, dictionary: XLDictionary, suffix: str) -> dict[str, Any]:
    """Writes vocab.json and merges.txt into a transformers folder.

    Args:
        folder: the transformers folder.
        data: data folder with XLM's codes and vocabulary.
        dictionary: the joint `XLDictionary`.
        suffix: end of the dictionary's pieces of the vocabulary.

    Returns: the entries of tokenizer_config.json that XLMTokenizer needs.
    """
    opened = open_subwords(data)
    assert isinstance(opened, XLMPieces)
    names = names_of_rows(dictionary, opened.ids, suffix)
    words = {MASK: dictionary.mask_index}
    for row, name in enumerate(names):
        is_piece = name in opened.ids and dictionary.is_piece[row]
        if is_piece:  # text spells pieces th@@ and the, transformers th and the</w>
            name = name.removesuffix(CONTINUES) if name.endswith(CONTINUES) else name + END
        words[name] = row
    write_json(folder / "vocab.json", words)
    write_lines(folder / "merges.txt", (f"{left} {right}" for left, right in opened.ranks))
    return {"tokenizer_class": "XLMTokenizer", "do_lowercase_and_remove_accent": opened.lower}
