"""Tokenizers of data folders with BERT's and XLM's vocabularies: ids against `TextEncoder`."""

import json
import shutil

import pytest
from transformers import AutoTokenizer

from fairseq_xl.checkpoints.layouts.exported_folders import write_sentence_transformers
from fairseq_xl.checkpoints.layouts.sentence_transformers import SentenceSettings
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import FILES, in_folder, open_subwords
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from preprocess.vocabulary import new_symbols, write_dictionary
from tests.published_text import write_wordpiece, write_xlm

LANGUAGES = ["de", "en", "fr"]
TEXTS = {
    "de": ["Die Häuser, „grün“ und größer: im Garten!", "Ein  Haus\u00a0steht dort…"],
    "en": ["The house's garden (3.5 km) isn't [MASK] <s> far.", "A\tHOUSE, unbelievable; ꙮ?"],
    "fr": ["L’été, où est-il « là » ?", "Ça va."],
}
LINES = ["the house in the garden , far", "das haus im garten , die hauser", "l ' ete , ou est il la ? ca va ."] * 3


def write_data(folder, kind, option, files):
    """A data folder with a vocabulary of a kind and its manifest; returns its path."""
    folder.mkdir()
    for source, name in zip(files, FILES[kind]):
        shutil.copy(source, folder / name)
    entry = in_folder(folder, kind, option).manifest_entry()
    config = {"tokenizer": dict.fromkeys(LANGUAGES, "xlm")} if kind == "xlm" else {}
    (folder / "manifest.json").write_text(json.dumps(entry | {"format": 1, "config": config}), encoding="utf-8")
    write_dictionary(new_symbols(open_subwords(folder), LANGUAGES), {}, folder / "dict.txt")
    return folder


def written(data, folder, framing="xl"):
    dictionary = XLDictionary.load(data / "dict.txt")
    folder.mkdir()
    write_tokenizer(folder, data, dictionary, framing, 512)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer, dictionary, TextEncoder(data, dictionary), Framing.of(framing, dictionary)


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces(tmp_path, lowercase):
    """Text that spells BERT's own special tokens is text, as in our data."""
    write_wordpiece(tmp_path / "vocab.txt", LINES)
    data = write_data(tmp_path / "data", "wordpiece", {"lowercase": lowercase}, [tmp_path / "vocab.txt"])
    tokenizer, dictionary, encode, framing = written(data, tmp_path / "out")
    texts = [text.replace("<s>", "") for lines in TEXTS.values() for text in lines]
    ours = [framing.sentence(encode(text, "en")).tolist() for text in texts]
    assert tokenizer(texts)["input_ids"] == ours and tokenizer.get_vocab() == dictionary.indices
    assert sum(dictionary.unk() in ids for ids in ours) > 2
    assert tokenizer(*texts[:2])["input_ids"] == framing.pair(*(encode(text, "en") for text in texts[:2]))[0].tolist()
    plain = tokenizer("the house in the garden")["input_ids"]
    assert tokenizer.decode(plain, skip_special_tokens=True) == "the house in the garden"


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("framing, start", [("xl", 0), ("xlm", 2)])
def test_words_of_xlm(tmp_path, caplog, lower, framing, start):
    """transformers' XLMTokenizer prepares text as we do; transformers 5 knows only its method for another language."""
    write_xlm(tmp_path, LINES, merges=30)
    files = [tmp_path / "codes", tmp_path / "vocab"]
    data = write_data(tmp_path / "data", "xlm", {"lowercase_and_remove_accent": lower}, files)
    tokenizer, dictionary, encode, _ = written(data, tmp_path / "out", framing)
    assert "the text of de, fr was tokenized by xlm; transformers tokenizes it as English" in caplog.text
    assert "text of en" not in caplog.text and type(tokenizer).__name__ == "XLMTokenizer"
    with pytest.raises(UserError, match="is no transformers folder with a tokenizer: it has no tokenizer.json"):
        write_sentence_transformers(tmp_path / "out", SentenceSettings(), "mean", 512, 16)
    for language, texts in TEXTS.items():
        for text in (text.replace("<s>", "").replace("\t", " ") for text in texts):  # transformers joins words at a TAB
            ours = encode(text, language).tolist()
            tokens = tokenizer._tokenize(text, lang=language)
            assert [*tokenizer.convert_tokens_to_ids(tokens), 2] == ours
            assert language != "en" or tokenizer(text)["input_ids"] == [start, *ours]
    assert len(tokenizer) == len(dictionary) and tokenizer.model_max_length == 512
    assert [tokenizer.mask_token_id, tokenizer.pad_token_id] == [dictionary.mask_index, dictionary.pad()]
    assert tokenizer.convert_tokens_to_ids("[fr]") == dictionary.language_symbol("fr")
    ids = tokenizer("the house in the garden")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the house in the garden"
    one, two = (text.replace("<s>", "").replace("\t", " ") for text in TEXTS["en"])
    pair = [*encode(one, "en").tolist(), *encode(two, "en").tolist()]  # one </s> between the texts
    assert tokenizer(one, two)["input_ids"] == [start, *pair]


def test_a_dictionary_without_some_pieces(tmp_path):
    write_wordpiece(tmp_path / "vocab.txt", LINES)
    data = write_data(tmp_path / "data", "wordpiece", {"lowercase": True}, [tmp_path / "vocab.txt"])
    lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "dict.txt").write_text("".join(line for line in lines if not line.startswith("the ")), encoding="utf-8")
    with pytest.raises(UserError, match="wordpiece.vocab has 1 pieces that the dictionary lacks, such as 'the'"):
        written(data, tmp_path / "out")
