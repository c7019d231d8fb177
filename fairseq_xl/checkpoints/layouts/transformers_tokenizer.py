"""Writes the tokenizer of a transformers folder, with the ids and the framing of our models.

`AutoTokenizer.from_pretrained(FOLDER)` reads it without code of ours.
"""

import logging
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing

from fairseq_xl.checkpoints.layouts.fast_tokenizer import KINDS, names_of_rows
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.store.manifest import read_manifest
from fairseq_xl.data.vocabulary import tokenizers as of_languages
from fairseq_xl.data.vocabulary.added_tokens import added_tokens
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.special_symbols import MASK, SPECIAL
from fairseq_xl.data.vocabulary.subwords import ADDED, open_subwords, stored_options, vocabulary_kind
from fairseq_xl.data.vocabulary.xlm_bpe import CONTINUES, END, XLMPieces
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing, write_json, write_lines

#: transformers 4 and 5 read this class from tokenizer.json alone, for a model of any type
TOKENIZER_CLASS = "PreTrainedTokenizerFast"

logger = logging.getLogger(__name__)


def write_tokenizer(
    folder: Path,
    data: Path,
    dictionary: XLDictionary,
    framing: str,
    max_length: int,
    language: str | None = None,
    segments: bool = False,
) -> None:
    """Writes tokenizer.json and tokenizer_config.json into a transformers folder, or XLM's vocab.json and merges.txt.

    A text becomes ``<s> x </s>``, a pair ``<s> x </s> </s> y </s>``; the framing `xlm` has ``</s>`` in place of
    ``<s>``. The decoder input of an encoder and decoder begins with the id of ``[xx]``, which the folder's
    generation_config.json names. A warning names the tokenizers in front of the sub-words (Moses and the like), which
    transformers does not apply.

    Args:
        data: data folder with the text's sub-words.
        max_length: maximum number of tokens of an input, symbols of the framing included.
        language: that of the text; needed if languages share no piece.
        segments: whether the model has segment embeddings: the second text of a pair then has token type 1.

    Raises `UserError` for sub-words that are missing or that a transformers tokenizer cannot express.
    """
    vocabulary, suffix = data, ""
    if apart := read_manifest(data).get("disjoint"):  # each language has sub-words of its own
        if language is None or language not in apart:
            remark = "none is named" if language is None else f"found {language}"
            raise UserError(f"{data}: its languages share no piece; expected one of {', '.join(apart)}, {remark}")
        vocabulary, suffix = data / language, f"@{language}"
    kind = vocabulary_kind(vocabulary)
    _warn_of_tokenizers(data, language)
    if kind == "xlm":
        config = _write_xlm_vocabulary(folder, vocabulary, dictionary, suffix)
        first = "bos_token"  # of a text, in XLMTokenizer
    else:
        tokenizer = KINDS[kind](vocabulary, dictionary, suffix)
        added = stored_options(vocabulary).get(ADDED, [])
        if kind == "sentencepiece":  # whose rules put a mark in front of normalized tokens too
            added = [token | {"normalized": False} for token in added]
        tokenizer.add_tokens(added_tokens(added))
        tokenizer.add_special_tokens([*SPECIAL, MASK, *dictionary.symbols[dictionary.first_language :]])
        assert tokenizer.get_vocab_size() == len(dictionary)
        tokenizer.post_processor = _template(framing, dictionary, segments, language)
        with replacing(folder / "tokenizer.json") as file:
            file.write(tokenizer.to_str(pretty=True).encode("utf-8"))
        config, first = {"tokenizer_class": TOKENIZER_CLASS}, "cls_token"
    bos, pad, eos, unk = SPECIAL
    special = {"bos_token": bos, "cls_token": bos, "pad_token": pad, "eos_token": eos, "sep_token": eos}
    special |= {"unk_token": unk, "mask_token": MASK, first: dictionary[Framing.of(framing, dictionary).start]}
    config |= {
        "model_max_length": max_length,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        **special,
        "additional_special_tokens": dictionary.symbols[dictionary.first_language :],
    }
    write_json(folder / "tokenizer_config.json", config)


def _write_xlm_vocabulary(folder: Path, data: Path, dictionary: XLDictionary, suffix: str) -> dict[str, Any]:
    """Writes XLM's vocabulary as vocab.json and merges.txt of XLMTokenizer into a transformers folder.

    XLMTokenizer applies Moses' rules for English to text of every language: transformers 5 does not pass `lang` on to
    `XLMTokenizer._tokenize`, which has it. `suffix` is the end of the dictionary's pieces of the vocabulary.
    Returns the entries of tokenizer_config.json that XLMTokenizer needs.
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


def _warn_of_tokenizers(data: Path, language: str | None) -> None:
    languages_by_tokenizer: dict[str, list[str]] = {}
    for xx, name in of_languages.named_in(data).items():
        if language in (None, xx) and (xx, name) != ("en", of_languages.XLM):
            languages_by_tokenizer.setdefault(name, []).append(xx)
    for name, languages in languages_by_tokenizer.items():
        instead = "tokenizes it as English" if name == of_languages.XLM else "does not tokenize it"
        logger.warning(
            "%s: the text of %s was tokenized by %s; transformers %s", data, ", ".join(languages), name, instead
        )


def _template(framing: str, dictionary: XLDictionary, segments: bool, language: str | None) -> TemplateProcessing:
    """The framing of a text and of a pair; raises `UserError` if the framing `mbart` has no language."""
    start, eos = dictionary[Framing.of(framing, dictionary).start], dictionary[dictionary.eos()]
    second, names = int(segments), {start, eos}
    if framing in ("mbart", "nllb"):
        if language is None:
            where = "behind" if framing == "mbart" else "in front of"
            raise UserError(f"--framing {framing} puts the language {where} each text: name it, as in --lang en-de")
        last = dictionary[dictionary.language_symbol(language)]
        single, pair, names = ["$A", eos, last], ["$A", eos, "$B", eos, last], {eos, last}
        if framing == "nllb":
            single, pair = [last, "$A", eos], [last, "$A", "$B", eos]
    else:
        between = [] if framing == "bert" else [f"{eos}:{second}"]
        single, pair = [start, "$A", eos], [start, "$A", eos, *between, f"$B:{second}", f"{eos}:{second}"]
    special = [(name, dictionary.index(name)) for name in sorted(names)]
    return TemplateProcessing(single=single, pair=pair, special_tokens=special)
