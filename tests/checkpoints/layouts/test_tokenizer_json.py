"""SentencePiece models from tokenizer.json: the ids of the model that the file was made from."""

import json
import shutil

import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from transformers import AutoTokenizer, MBart50Tokenizer, MBartTokenizer, XLMRobertaTokenizer

from fairseq_xl.checkpoints.layouts.tokenizer_json import sentencepiece_from_tokenizer
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.checkpoints.layouts.many_languages import LINES, ODD


def saved(data, folder, tokenizer_class):
    """Saves the tokenizer that transformers makes of a data folder's model; returns its folder."""
    source = folder / "source"
    source.mkdir(parents=True)
    shutil.copy(data / "sentencepiece.model", source / "sentencepiece.bpe.model")
    tokenizer_class.from_pretrained(source).save_pretrained(folder / "saved")
    return folder / "saved"


def models(data, path):
    """The model of a data folder, and the one that is made from tokenizer.json."""
    made = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_from_tokenizer(path))
    return sentencepiece.SentencePieceProcessor(model_file=str(data / "sentencepiece.model")), made


def described(processor):
    """What the encoding of a model depends on: its pieces, rules of normalization and settings."""
    found = ModelProto.FromString(processor.serialized_model_proto())
    pieces, rules, settings = found.pieces, found.normalizer_spec, found.trainer_spec
    return (
        [(piece.piece, piece.score, piece.type) for piece in pieces],
        (rules.precompiled_charsmap, rules.add_dummy_prefix, rules.remove_extra_whitespaces, rules.escape_whitespaces),
        (settings.model_type, settings.treat_whitespace_as_suffix, settings.byte_fallback),
    )


@pytest.mark.parametrize("tokenizer_class", [XLMRobertaTokenizer, MBart50Tokenizer])
def test_the_model_is_the_one_that_transformers_read(data_folder, tmp_path, tokenizer_class):
    data = data_folder(exact=False)
    folder = saved(data, tmp_path, tokenizer_class)
    assert not list(folder.glob("*.model"))
    original, made = models(data, folder / "tokenizer.json")
    assert described(made) == described(original)
    assert made.encode([*LINES, *ODD]) == original.encode([*LINES, *ODD])
    ids = AutoTokenizer.from_pretrained(folder)(LINES, add_special_tokens=False)["input_ids"]
    known = [line for line in range(len(LINES)) if 0 not in made.encode(LINES[line])]
    assert len(known) > 20
    assert [[number - 1 for number in ids[line]] for line in known] == [made.encode(LINES[line]) for line in known]


def test_mbart_loses_its_rules(data_folder, tmp_path):
    """transformers 5 saves mBART's tokenizer without rules of normalization; ids of plain text stay."""
    data = data_folder(exact=False)
    original, made = models(data, saved(data, tmp_path, MBartTokenizer) / "tokenizer.json")
    (pieces, rules, _), (expected, _, _) = described(made), described(original)
    assert pieces == expected and not rules[0]
    assert made.encode("Die Häuser sind grün.") == original.encode("Die Häuser sind grün.")


@pytest.mark.parametrize("kind, rule", [("unigram", "nmt_nfkc"), ("unigram", "identity"), ("bpe", "nmt_nfkc_cf")])
def test_our_own_folders_are_read(data_folder, tmp_path, kind, rule):
    data = data_folder(kind, rule)
    write_tokenizer(tmp_path, data, XLDictionary.load(data / "dict.txt"), "xl", 512)
    original, made = models(data, tmp_path / "tokenizer.json")
    assert [made.id_to_piece(number) for number in range(len(made))] == [
        original.id_to_piece(number) for number in range(len(original))
    ]
    assert made.encode([*LINES, *ODD]) == original.encode([*LINES, *ODD])


def test_an_older_file(data_folder, tmp_path):
    """Written by tokenizers 0.13: no type of the model, add_prefix_space, merges as text."""
    data = data_folder("bpe", "identity")
    write_tokenizer(tmp_path, data, XLDictionary.load(data / "dict.txt"), "xl", 512)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["model"]["type"]
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    content["normalizer"] = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    path.write_text(json.dumps(content), encoding="utf-8")
    original, made = models(data, path)
    assert made.encode(LINES) == original.encode(LINES)


VALID = {
    "normalizer": None,
    "pre_tokenizer": None,
    "added_tokens": [],
    "model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.0]]},
}
BAD = {
    "no model": ({"model": None}, "is no tokenizer: it has no model with a vocabulary"),
    "rows": ({"model": {"type": "Unigram", "vocab": [["a"]]}}, "is no tokenizer: it has no model with a vocabulary"),
    "word pieces": (
        {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}}},
        "has a WordPiece model; Unigram and BPE can be made a SentencePiece model",
    ),
    "merges": ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [[1, 2]]}}, "is no tokenizer: it has no model"),
    "bytes": (
        {"pre_tokenizer": {"type": "ByteLevel"}},
        "is no tokenizer of a SentencePiece model: it has a step ByteLevel, byte-level BPE as of roberta-base",
    ),
    "replacement": (
        {"normalizer": {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}},
        "is no tokenizer of a SentencePiece model: it has a step Replace",
    ),
    "rules": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%%"}},
        "is damaged: its rules of normalization are not base64",
    ),
    "step": ({"normalizer": ["NFC"]}, "is damaged: its normalizer is not a step with a type"),
    "steps": ({"normalizer": {"type": "Sequence", "normalizers": 5}}, "is damaged: its normalizer is not a step with"),
    "added": ({"added_tokens": [7]}, "is damaged: its added tokens are not texts with numbers"),
    "repeated": (
        {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["▁a", -1.0]]}},
        "makes no SentencePiece model: .*▁a",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_no_such_tokenizer(tmp_path, case):
    change, message = BAD[case]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(VALID), encoding="utf-8")
    assert len(sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_from_tokenizer(path))) == 4
    path.write_text(json.dumps(VALID | change), encoding="utf-8")
    with pytest.raises(UserError, match=f"^{path} {message}"):
        sentencepiece_from_tokenizer(path)
