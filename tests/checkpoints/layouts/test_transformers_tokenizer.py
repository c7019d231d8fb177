"""Tokenizers of transformers folders: ids against `TextEncoder`, framing, what cannot be expressed."""

import json
import shutil
import unicodedata

import numpy as np
import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec
from transformers import AutoTokenizer, BertConfig, MBartConfig, XLMConfig, XLMRobertaConfig

from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.checkpoints.sentencepiece_surgery import Piece
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.labelled.labelled_examples import segments
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from tests.checkpoints.layouts.many_languages import LINES, ODD, TEXTS, trained, write_data
from tests.hostile_text import LINES as HOSTILE

RULES = [("unigram", "nmt_nfkc"), ("unigram", "nfkc"), ("unigram", "identity"), ("bpe", "nmt_nfkc_cf")]


def written(data, folder, framing="xl", **options):
    """The tokenizer that transformers reads, and our dictionary, encoder and framing."""
    dictionary = XLDictionary.load(data / "dict.txt")
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, data, dictionary, framing, 512, **options)
    encode = TextEncoder(data, dictionary)
    return AutoTokenizer.from_pretrained(folder), dictionary, encode, Framing.of(framing, dictionary)


@pytest.mark.parametrize("kind, rule", RULES)
def test_ids_are_those_of_our_text(data_folder, tmp_path, kind, rule):
    tokenizer, dictionary, encode, framing = written(data_folder(kind, rule), tmp_path)
    lines = [*LINES, *ODD]
    ours = {line: framing.sentence(encode(line, "en")).tolist() for line in lines}
    assert 3 < sum(dictionary.unk() in ids for ids in ours.values()) < len(lines) / 2
    assert dict(zip(lines, tokenizer(lines)["input_ids"])) == ours


@pytest.mark.parametrize("kind, rule", [RULES[0], *RULES[2:]])
def test_ids_of_random_characters(data_folder, tmp_path, kind, rule):
    """Spaces of many kinds, control characters, all scripts; without combining marks, whose differences are known."""
    tokenizer, _, encode, framing = written(data_folder(kind, rule), tmp_path)
    every = [chr(number) for number in range(1, 0x3000) if not unicodedata.category(chr(number)).startswith("M")]
    spaces = list(" \u00a0\u3000\t\r\u2581\u200b\u200d\u00ad\x01\x7f\u2028\ufeff") * 60
    random = np.random.default_rng(1)
    lines = ["x" + "".join(random.choice([*every, *spaces], 12)) for _ in range(400)] + HOSTILE
    assert tokenizer(lines)["input_ids"] == [framing.sentence(encode(line, "en")).tolist() for line in lines]


def test_differences_that_are_known(data_folder, tmp_path):
    """Decomposed text of three characters, and text that spells a special symbol."""
    tokenizer, dictionary, encode, _ = written(data_folder(), tmp_path)
    assert tokenizer.backend_tokenizer.normalizer.normalize_str("e\u0302\u0301") == "▁ê"
    assert encode.subwords[None][0].model.normalize("e\u0302\u0301") == "▁ế"
    assert tokenizer("[en] <mask>")["input_ids"] == [0, dictionary.language_symbol("en"), dictionary.mask_index, 2]


def test_scores_that_are_equal_but_for_rounding(lines_to_learn, tmp_path):
    """With scores as they are learned, segmentations may differ in the order of their pieces, and in nothing else."""
    model = trained(lines_to_learn, exact=False)
    tokenizer, _, encode, framing = written(write_data(tmp_path / "data", model), tmp_path / "out")
    lines = lines_to_learn[:400]
    different = 0
    for line, theirs in zip(lines, tokenizer(lines)["input_ids"]):
        ours = framing.sentence(encode(line, "en")).tolist()
        assert sorted(ours) == sorted(theirs)
        different += ours != theirs
    assert different < 4


@pytest.mark.parametrize("framing, start", [("xl", 0), ("xlm", 2)])
def test_framing_of_texts_and_pairs(data_folder, tmp_path, framing, start):
    tokenizer, dictionary, encode, ours = written(data_folder(), tmp_path, framing)
    one, two = (encode(text, "de") for text in TEXTS["de"])
    assert tokenizer(*TEXTS["de"])["input_ids"] == ours.pair(one, two)[0].tolist()
    assert tokenizer(TEXTS["de"][0])["input_ids"] == [start, *one.tolist()]
    special = dict(bos=0, pad=1, eos=2, unk=3, sep=2, cls=start, mask=dictionary.mask_index)
    assert {name: getattr(tokenizer, f"{name}_token_id") for name in special} == special
    assert tokenizer.model_max_length == 512 and "token_type_ids" not in tokenizer("a", "b")
    assert tokenizer.get_vocab() == dictionary.indices


def test_token_types_are_our_segments(data_folder, tmp_path):
    tokenizer, dictionary, _, _ = written(data_folder(), tmp_path, segments=True)
    for texts in (TEXTS["de"], TEXTS["fr"][:1]):
        found = tokenizer(*texts)
        tokens = np.array([[*found["input_ids"], dictionary.pad()]])
        assert found["token_type_ids"] == segments(tokens, dictionary.eos(), dictionary.pad())[0, :-1].tolist()
        assert any(found["token_type_ids"]) == (len(texts) == 2)


def test_long_text_is_truncated_as_ours(data_folder, tmp_path):
    """A batch is padded behind, and </s> ends a text of more than the greatest length."""
    tokenizer, _, encode, framing = written(data_folder(), tmp_path)
    text = " ".join(TEXTS["en"] * 40)
    ours = framing.sentence(encode(text, "en"))
    found = tokenizer([text, "a"], truncation=True, padding=True, return_tensors="np")
    assert found["input_ids"].shape == (2, 512) and len(ours) > 512
    assert found["input_ids"][0].tolist() == [*ours[:511].tolist(), 2]
    assert found["input_ids"][1, -1] == 1 and found["attention_mask"].sum() == 512 + len(tokenizer("a")["input_ids"])


@pytest.mark.parametrize("kind, rule", [("unigram", "nmt_nfkc"), ("bpe", "identity")])
def test_text_is_decoded(data_folder, tmp_path, kind, rule):
    tokenizer, dictionary, _, _ = written(data_folder(kind, rule), tmp_path)
    text = "Open the menu “Edit”, then choose “Delete all”"
    ids = [dictionary.language_symbol("en"), *tokenizer(text)["input_ids"][1:]]
    assert tokenizer.decode(ids) == f"[en] {text}</s>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("config", [XLMRobertaConfig, XLMConfig, BertConfig, MBartConfig])
def test_any_type_of_model_has_this_tokenizer(data_folder, tmp_path, config):
    """transformers replaces the tokenizer by one of the model's own, if tokenizer_class allows it."""
    config().save_pretrained(tmp_path)
    tokenizer, _, encode, framing = written(data_folder(), tmp_path)
    for text in (*TEXTS["ja"], "  \u3000Ａ  b ½"):
        assert tokenizer(text)["input_ids"] == framing.sentence(encode(text, "ja")).tolist()


def test_bytes_of_unknown_characters(lines_to_learn, tmp_path):
    model = trained(lines_to_learn, size=1100, byte_fallback=True)
    tokenizer, dictionary, encode, framing = written(write_data(tmp_path / "data", model), tmp_path / "out")
    ours = framing.sentence(encode("aꙮ b", "en")).tolist()
    assert [dictionary.index(f"<0x{byte:02X}>") for byte in "ꙮ".encode()] == ours[2:5]
    assert tokenizer("aꙮ b")["input_ids"] == ours and tokenizer.decode(ours, skip_special_tokens=True) == "aꙮ b"


def test_languages_that_share_no_piece(lines_to_learn, tmp_path):
    """Each has its own model; its pieces are PIECE@LANGUAGE in the joint dictionary."""
    data, symbols = tmp_path / "data", []
    for language in ("en", "de"):
        model = trained(lines_to_learn, size=500 if language == "en" else 600)
        write_data(data / language, model)
        own = XLDictionary.load(data / language / "dict.txt")
        symbols += [f"{own.symbols[number]}@{language}" for number in own.pieces]
    lines = [*symbols, "<mask>", "[en]", "[de]"]
    (data / "dict.txt").write_text("".join(f"{line} 0\n" for line in lines), encoding="utf-8")
    (data / "manifest.json").write_text(json.dumps({"format": 1, "disjoint": ["en", "de"]}), encoding="utf-8")
    for language in ("en", "de"):
        tokenizer, _, encode, framing = written(data, tmp_path / language, language=language)
        for text in TEXTS[language]:
            assert tokenizer(text)["input_ids"] == framing.sentence(encode(text, language)).tolist()
    for wrong, found in ((None, "none is named"), ("fr", "found fr")):
        with pytest.raises(UserError, match=f"its languages share no piece; expected one of en, de, {found}"):
            written(data, tmp_path / "wrong", language=wrong)


@pytest.mark.parametrize("language, warned", [(None, True), ("zh", True), ("en", False)])
def test_a_tokenizer_in_front_is_named(data_folder, tmp_path, caplog, language, warned):
    data = shutil.copytree(data_folder(), tmp_path / "data")
    (data / "manifest.json").write_text(json.dumps({"format": 1, "config": {"tokenizer": {"zh": "jieba"}}}))
    written(data, tmp_path / "out", language=language)
    assert ("the text of zh was tokenized by jieba; transformers does not tokenize it" in caplog.text) == warned


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(pieces=[Piece(piece="@@", type=Piece.USER_DEFINED)]), "it has user-defined symbols"),
        (dict(trainer_spec=TrainerSpec(treat_whitespace_as_suffix=True)), "it marks the ends of words by ▁"),
        (dict(normalizer_spec=NormalizerSpec(escape_whitespaces=False)), "it does not mark words by ▁"),
        (dict(trainer_spec=TrainerSpec(model_type="CHAR")), "its type is char, unigram and bpe can be"),
    ],
)
def test_models_that_cannot_be_expressed(data_folder, tmp_path, change, message):
    model = ModelProto.FromString((data_folder() / "sentencepiece.model").read_bytes())
    model.MergeFrom(ModelProto(**change))
    with pytest.raises(UserError, match=f"piece.model cannot be expressed as a transformers tokenizer: {message}"):
        written(write_data(tmp_path / "data", model.SerializeToString()), tmp_path / "out")


def test_wrong_data_folders(data_folder, tmp_path):
    data = shutil.copytree(data_folder(), tmp_path / "data")
    lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "dict.txt").write_text("".join(lines[1:]), encoding="utf-8")
    piece = lines[0].split(" ")[0]
    with pytest.raises(UserError, match=f"has 1 pieces that the dictionary lacks, such as '{piece}'"):
        written(data, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    (data / "sentencepiece.model").write_bytes(b"half a model")
    with pytest.raises(UserError, match="sentencepiece.model is not a SentencePiece model, or it is damaged"):
        written(data, tmp_path / "out")
    (data / "sentencepiece.model").unlink()
    with pytest.raises(UserError, match="sentencepiece.model: no such SentencePiece model"):
        written(data, tmp_path / "out")
