"""Tokens that were added to the tokenizer of a published model: rows, ids in text, and other folders."""

import json
import shutil

import pytest
import torch
import yaml
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken
from transformers import AutoTokenizer, BertTokenizer, XLMRobertaTokenizer

import fairseq_xl
from fairseq_xl.checkpoints.layouts.fast_tokenizer import sentencepiece_tokenizer
from fairseq_xl.checkpoints.layouts.imported_subwords import import_subwords
from fairseq_xl.commands.model_extend_vocabulary import main as extend
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.subwords import stored_options
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from preprocess import binarize
from preprocess.pipeline import prepare
from tests.tasks.conftest import preprocess_here
from tests.tasks.conversion_builders import mbert, run, xlm_roberta
from tests.tasks.tiny_text import write

FLAGGED = {"sars": "single_word", "<l>": "lstrip", "<r>": "rstrip"}
ADDED = ["<url>", "covid19", "covid", *(AddedToken(name, **{flag: True}) for name, flag in FLAGGED.items())]
ADDED += [AddedToken("²x", normalized=False)]
LINES = """<url> This is a house.|This is <url> a house|a house <url>|<url><url> a <url>, (<url>).|<url>
covid19covid, covidcovid19 is a house|sarsa sars, sars. asars|a <l> house <r> a<l><r>house|²x a 2x ²xx
<URL> Covid ＜url＞ this|This is a house.|""".replace("\n", "|").split("|")
BUILDERS = {
    "tokenizer.json": (xlm_roberta, XLMRobertaTokenizer),
    "added_tokens.json": (xlm_roberta, XLMRobertaTokenizer),
    "cased": (mbert, BertTokenizer),
    "uncased": (mbert, BertTokenizer),
}


@pytest.fixture(scope="module", params=BUILDERS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folders(data_bin, tmp_path_factory, kind):
    """A published folder with added tokens, its model, and the folder that it becomes. Read only."""
    root = tmp_path_factory.mktemp("folders")
    original = root / "original"
    original.mkdir()
    builder, tokenizer_class = BUILDERS[kind]
    model = builder(original, data_bin)
    symbols = model.config.vocab_size
    model.resize_token_embeddings(symbols + 10, mean_resizing=False)
    model.save_pretrained(original)
    tokenizer = tokenizer_class.from_pretrained(original, do_lower_case=kind == "uncased")
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<text>"]})
    tokenizer.save_pretrained(original)
    if kind == "added_tokens.json":  # as transformers 4 writes it without tokenizer.json
        tokens = tokenizer.added_tokens_decoder.items()
        flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        decoder = {str(row): {flag: getattr(token, flag) for flag in flags} for row, token in tokens}
        config = {"tokenizer_class": "XLMRobertaTokenizer", "added_tokens_decoder": decoder}
        (original / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        rows = {str(token): row for row, token in tokens if row >= symbols}
        (original / kind).write_text(json.dumps(rows), encoding="utf-8")
        (original / "tokenizer.json").unlink()
    else:
        (original / ("vocab.txt" if kind == "cased" else "sentencepiece.bpe.model")).unlink(missing_ok=True)
    run(original, root / "ours")
    return original, model, root / "ours"


def encoded(folder):
    """The symbols of `LINES` in the data folder `folder`, without </s>."""
    dictionary = XLDictionary.load(folder / "dict.txt")
    encode = TextEncoder(folder, dictionary)
    for line in LINES:
        assert encode.spans(line, "en")[0].tolist() == encode(line, "en")[:-1].tolist()
    return [[dictionary.symbols[row] for row in encode(line, "en")[:-1]] for line in LINES]


def test_ids_are_those_of_transformers(folders):
    original, model, ours = folders
    loaded, tokenizer = fairseq_xl.load(ours), AutoTokenizer.from_pretrained(original)
    table = loaded.model.encoder.token_embeddings.table.weight
    row = tokenizer.convert_tokens_to_ids("covid")
    assert torch.equal(table[loaded.task.dictionary.index("covid")], model.get_input_embeddings().weight[row])
    rows = [
        [tokenizer.convert_tokens_to_ids(tokenizer.unk_token if name == "<unk>" else name) for name in names]
        for names in encoded(ours)
    ]
    assert rows == [tokenizer(line, add_special_tokens=False)["input_ids"] for line in LINES]
    encode = TextEncoder(ours, loaded.task.dictionary)
    for line in LINES:  # a piece has no space in front there; ▁ alone is the next character there, and the space here
        expected = tokenizer(line, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        spans = [(begin, end) for begin, end in encode.spans(line, "en")[1].tolist()]
        assert len(spans) == len(expected)
        for (begin, end), offsets in zip(spans, expected):
            word = line[begin:end].lstrip()
            assert not word or offsets in ((begin, end), (end - len(word), end)), line


def test_other_folders_have_them(folders, kind, tmp_path):
    """An export in our order of rows, text that is prepared for the model, and a vocabulary with another language."""
    ours = shutil.copytree(folders[-1], tmp_path / "ours")
    expected = encoded(ours)
    write(tmp_path / "train.en", LINES)
    description = {"languages": ["en"], "monolingual": {"en": {"train": str(tmp_path / "train.en")}}}
    (tmp_path / "en.yaml").write_text(yaml.safe_dump(description), encoding="utf-8")
    manifest, texts = json.loads((ours / "manifest.json").read_text(encoding="utf-8")), []
    vocabulary = manifest["vocabulary"]
    fewer = manifest | {"vocabulary": vocabulary | {"added_tokens": vocabulary["added_tokens"][1:]}}
    for content in (fewer, manifest):  # text that was encoded without a token is encoded again
        (ours / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(binarize, "run_fairseq", preprocess_here)
            prepare(tmp_path / "en.yaml", tmp_path / "data", vocabulary_from=ours)
        text, dictionary = open_text(tmp_path / "data/en/train", "en"), XLDictionary.load(tmp_path / "data/dict.txt")
        texts.append([[dictionary.symbols[row] for row in line[:-1]] for line in text])
    assert texts[0] != texts[1] == expected
    extend([str(ours), "--data", str(ours), "--output", str(tmp_path / "more"), "--langs", "en,de"])
    assert encoded(tmp_path / "more") == encoded(tmp_path / "data") == expected
    shutil.rmtree(ours / "published")
    run(ours, tmp_path / "back")
    tokenizer, differing = AutoTokenizer.from_pretrained(tmp_path / "back"), ["sarsa sars, sars. asars"]
    if kind in ("tokenizer.json", "added_tokens.json"):
        differing.append("<URL> Covid ＜url＞ this")
    for line, symbols in zip(LINES, expected):
        if line not in differing:
            assert tokenizer.convert_ids_to_tokens(tokenizer(line, add_special_tokens=False)["input_ids"]) == symbols
    vocabulary["added_tokens"][0]["lstrip"] = 7
    (ours / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(UserError, match="manifest.json is damaged: its added tokens are .*, expected texts with flags"):
        encoded(ours)


def test_a_token_of_two_words_is_no_token_of_text(data_bin, tmp_path, caplog):
    shutil.copy(data_bin / "sentencepiece.model", tmp_path / "sentencepiece.bpe.model")
    (tmp_path / "added_tokens.json").write_text('{"New York": 85, "<url>": 86}', encoding="utf-8")
    (tmp_path / "ours").mkdir()
    import_subwords("sentencepiece", tmp_path, tmp_path / "ours", ["en"], pieces=("New York", "<url>"))
    assert "tokens that were added to its tokenizer, New York: their rows are kept" in caplog.text
    assert [token["content"] for token in stored_options(tmp_path / "ours")["added_tokens"]] == ["<url>"]


def test_damaged_rules_of_normalization_are_refused(data_bin, tmp_path):
    proto = ModelProto.FromString((data_bin / "sentencepiece.model").read_bytes())
    rules = proto.normalizer_spec.precompiled_charsmap
    proto.normalizer_spec.precompiled_charsmap = rules[:200_000] + bytes(2000) + rules[202_000:]
    (tmp_path / "sentencepiece.model").write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="sentencepiece.model is damaged: its rules of normalization cannot be read"):
        sentencepiece_tokenizer(tmp_path, XLDictionary.load(data_bin / "dict.txt"))
