"""The tokenizer of a transformers folder, with the ids and the framing of our models.

`AutoTokenizer.from_pretrained(FOLDER)` reads it without code of ours. `fairseq_xl.checkpoints.formats.subwords` lists
the texts whose ids differ from `TextEncoder`'s.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_xl.checkpoints.formats.subwords import KINDS
from fairseq_xl.data import tokenizers as of_languages
from fairseq_xl.data.dictionary import XLDictionary
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.manifest import read_manifest
from fairseq_xl.data.symbols import MASK, SPECIAL
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

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
    """Writes tokenizer.json and tokenizer_config.json into a transformers folder.

    A text becomes ``<s> x </s>``, a pair ``<s> x </s> </s> y </s>``; the framing `xlm` has ``</s>`` in place of
    ``<s>``. The decoder input of an encoder and decoder begins with the id of ``[xx]``, which the folder's
    generation_config.json names.

    Args:
        folder: the transformers folder, which exists.
        data: data folder with the text's sub-words, one of the files of `KINDS`.
        dictionary: the joint `XLDictionary` of the model.
        framing: one of `FRAMINGS`.
        max_length: number of tokens that the model reads at most, with those of the framing.
        language: the language of the text; needed if languages share no piece.
        segments: whether the model has segment embeddings: the second text of a pair then has token type 1.

    Raises `UserError` for a data folder without sub-words, for sub-words that a transformers tokenizer cannot express,
    and if a file cannot be written. A warning names the tokenizers in front of the sub-words (Moses and the like),
    which transformers does not apply.
    """
    tokenizer = make_tokenizer(data, dictionary, language)
    names = [*SPECIAL, MASK, *dictionary.symbols[dictionary.first_language :]]
    tokenizer.add_special_tokens(names)
    assert [tokenizer.token_to_id(name) for name in names] == [dictionary.index(name) for name in names]
    tokenizer.post_processor = _template(framing, dictionary, segments)
    bos, pad, eos, unk = SPECIAL
    config = {
        "tokenizer_class": TOKENIZER_CLASS,
        "model_max_length": max_length,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        **{"bos_token": bos, "pad_token": pad, "eos_token": eos, "unk_token": unk, "mask_token": MASK},
        **{"cls_token": dictionary[Framing.of(framing, dictionary).start], "sep_token": eos},
        "additional_special_tokens": dictionary.symbols[dictionary.first_language :],
    }
    with replacing(Path(folder) / "tokenizer.json") as file:
        file.write(tokenizer.to_str(pretty=True).encode("utf-8"))
    write_json(Path(folder) / "tokenizer_config.json", config)


def make_tokenizer(data: Path, dictionary: XLDictionary, language: str | None = None) -> Tokenizer:
    """The tokenizer of a data folder without special symbols and framing; arguments and errors of `write_tokenizer`."""
    data, suffix = Path(data), ""
    for xx, name in of_languages.named_in(data).items():
        if language in (None, xx):
            logger.warning(
                "%s: the text of %s was tokenized by %s; transformers does not do this, so its tokenizer needs the "
                "tokenized text",
                *(data, xx, name),
            )
    apart = read_manifest(data).get("disjoint")
    if apart:
        if language is None or language not in apart:
            found = "none is named" if language is None else f"found {language}"
            raise UserError(f"{data}: its languages share no piece; expected one of {', '.join(apart)}, {found}")
        data, suffix = data / language, f"@{language}"
    for name, make in KINDS.items():
        if (data / name).is_file():
            return make(data / name, dictionary, suffix)
    raise UserError(f"{data} is a data folder without sub-words: none of {', '.join(KINDS)} is there")


def _template(framing: str, dictionary: XLDictionary, segments: bool) -> TemplateProcessing:
    """The framing of a text and of a pair; with `segments`, the second text of a pair has token type 1."""
    from tokenizers.processors import TemplateProcessing

    start, eos = dictionary[Framing.of(framing, dictionary).start], dictionary[dictionary.eos()]
    second = int(segments)
    return TemplateProcessing(
        single=[start, "$A", eos],
        pair=[start, "$A", eos, f"{eos}:{second}", f"$B:{second}", f"{eos}:{second}"],
        special_tokens=[(name, dictionary.index(name)) for name in {start, eos}],
    )
