"""`model convert`: published models with random weights become checkpoints, and these become folders again."""

import json
import shutil
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, base_architecture
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertTokenizer,
    XLMRobertaTokenizer,
)

import fairseq_xl
from fairseq_xl.checkpoints import published_models
from fairseq_xl.errors import UserError
from tests.commands import trained, translation
from tests.tasks.conversion_builders import (  # noqa: F401
    SENTENCES,
    framed,
    like_xlm_roberta,
    mbart,
    mbert,
    original,
    run,
    xlm,
    xlm_roberta,
)
from tests.tasks.published_models import randomize


def veco(folder, data_bin):
    """VECO's released translation model: fairseq's Transformer with the pieces of XLM-R and [xx] in its dict.txt."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    listed = [pieces.id_to_piece(number) for number in range(3, len(pieces))] + ["[en]", "[de]"]
    dictionary = Dictionary()
    for symbol in [*listed, "<mask>"]:
        dictionary.add_symbol(symbol)
    (folder / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in listed), encoding="utf-8")
    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    sizes = dict(encoder_embed_dim=16, encoder_ffn_embed_dim=64, encoder_layers=2, decoder_layers=1)
    sizes |= dict(max_source_positions=40, max_target_positions=40)
    sides = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    sides |= {f"{side}_learned_pos": True for side in ("encoder", "decoder")}
    form = dict(share_all_embeddings=True, layernorm_embedding=True, activation_fn="gelu")
    args = Namespace(arch="veco_large", **sizes, **sides, **form)
    base_architecture(args)
    model = randomize(
        TransformerModel.build_model(args, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary))
    )
    content = {"args": args, "model": model.state_dict(), "optimizer_history": [], "extra_state": {}}
    torch.save(content, folder / "model.pt")
    return model


def rows_of(found, dictionary):
    """Rows of the original for our symbols without [xx]."""
    return torch.tensor([found[dictionary.symbols[number]] for number in range(dictionary.first_language)])


def our_logits(loaded, tokens, languages=None, segments=None):
    model = loaded.model
    padding = tokens.eq(loaded.task.dictionary.pad())
    hidden = model.encode(tokens, languages=languages, padding_mask=padding, segments=segments)
    return model.output(hidden)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["in shards", "XL"])
def test_xlm_roberta_there_and_back(original, data_bin, tmp_path, kind):
    if kind == "XL":
        theirs = like_xlm_roberta(original, data_bin, "XLMRobertaXL", 2)
        XLMRobertaTokenizer.from_pretrained(original).save_pretrained(original)
    else:
        theirs = xlm_roberta(original, data_bin, shards=True)
        assert (original / "model.safetensors.index.json").is_file()
    run(original, tmp_path / "ours", "--langs", "en,de")
    loaded = fairseq_xl.load(tmp_path / "ours")
    tokens = framed(loaded, "en")
    count = loaded.task.dictionary.first_language
    expected = theirs(tokens, attention_mask=tokens.ne(1).long()).logits
    found = our_logits(loaded, tokens)[..., :count]
    real = tokens.ne(1)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)

    run(tmp_path / "ours", tmp_path / "back")
    back = AutoModelForMaskedLM.from_pretrained(tmp_path / "back").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "back")
    made = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    assert torch.equal(made["input_ids"], tokens)
    torch.testing.assert_close(back(**made).logits[..., :count][real], expected[real], atol=1e-5, rtol=0)
    for name, value in theirs.state_dict().items():
        rows = slice(count) if len(value) == count and value.dim() < 3 else slice(None)
        assert torch.equal(back.state_dict()[name][rows], value), name


@torch.no_grad()
@pytest.mark.parametrize("builder", [xlm_roberta, mbert])
def test_rows_behind_the_symbols_are_padding(original, data_bin, tmp_path, caplog, builder):
    """As in Multilingual-MiniLM, whose table has 250,037 rows for 250,002 symbols."""
    theirs = builder(original, data_bin)
    symbols = theirs.config.vocab_size
    run(original, tmp_path / "exact")
    theirs.resize_token_embeddings(symbols + 35, mean_resizing=False)
    theirs.save_pretrained(original)
    run(original, tmp_path / "ours")
    assert f"lists {symbols} symbols: 35 rows of the token embeddings are padding" in caplog.text
    one, other = fairseq_xl.load(tmp_path / "exact"), fairseq_xl.load(tmp_path / "ours")
    pieces = one.task.dictionary.symbols[:-1]
    assert other.task.dictionary.symbols == [*pieces, *(f"madeupword{n:04d}" for n in range(35)), "<mask>"]
    assert np.array_equal(one.encode(SENTENCES, "en"), other.encode(SENTENCES, "en"))
    assert not other.task.dictionary.is_piece[len(pieces) :].any()  # they are never predicted or drawn at random
    run(tmp_path / "ours", tmp_path / "back")
    config = json.loads((tmp_path / "back/config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == symbols + 35
    run(tmp_path / "back", tmp_path / "again")
    state, again = other.model.state_dict(), fairseq_xl.load(tmp_path / "again").model.state_dict()
    table = theirs.get_input_embeddings().weight
    assert torch.equal(state["encoder.token_embeddings.table.weight"][len(pieces) : -1], table[symbols:])
    assert all(torch.equal(value, again[name]) for name, value in state.items() if not name.startswith("heads."))
    theirs.resize_token_embeddings(symbols + 64, mean_resizing=False)
    theirs.save_pretrained(original)
    with pytest.raises(UserError, match=f"its token embeddings have {symbols + 64} rows, but .* lists {symbols} symb"):
        run(original, tmp_path / "more")


@torch.no_grad()
def test_mbert(original, data_bin, tmp_path):
    theirs = mbert(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    loaded = fairseq_xl.load(tmp_path / "ours")
    dictionary = loaded.task.dictionary
    pieces = (original / "vocab.txt").read_text(encoding="utf-8").split("\n")
    place = {piece: row for row, piece in enumerate(pieces)}
    place |= {"<s>": place["[CLS]"], "<pad>": place["[PAD]"], "</s>": place["[SEP]"], "<unk>": place["[UNK]"]}
    rows = rows_of(place | {"<mask>": place["[MASK]"]}, dictionary)
    tokens = framed(loaded, "en")
    made = BertTokenizer(str(original / "vocab.txt"), do_lower_case=False)(SENTENCES, return_tensors="pt", padding=True)
    assert torch.equal(rows[tokens], made["input_ids"])  # sub-words, framing and rows are BERT's
    segments = (torch.arange(tokens.size(1)) > 3).long().expand_as(tokens)
    expected = theirs(made["input_ids"], attention_mask=tokens.ne(1).long(), token_type_ids=segments)
    found = our_logits(loaded, tokens, segments=segments)[..., : dictionary.first_language]
    real = tokens.ne(1)
    torch.testing.assert_close(found[real], expected.prediction_logits[..., rows][real], atol=1e-5, rtol=0)

    shutil.rmtree(tmp_path / "ours" / "published")
    run(tmp_path / "ours", tmp_path / "back")  # a folder with tokenizer.json only, in our order
    back, tokenizer = AutoModelForMaskedLM.from_pretrained(tmp_path / "back").eval(), tmp_path / "back"
    made = AutoTokenizer.from_pretrained(tokenizer)(SENTENCES, return_tensors="pt", padding=True)
    assert torch.equal(made["input_ids"], tokens)
    pair = AutoTokenizer.from_pretrained(tokenizer)(*SENTENCES)
    halves = [loaded.task.framing.sentence(row[1 : (row != 1).sum()].numpy())[1:] for row in tokens]
    assert pair["input_ids"] == loaded.task.framing.texts(halves).tolist()  # one </s> between the texts
    assert pair["token_type_ids"] == [0] * (len(halves[0]) + 1) + [1] * len(halves[1])
    logits = back(tokens, attention_mask=real.long(), token_type_ids=segments).logits
    torch.testing.assert_close(logits[..., : dictionary.first_language][real], found[real], atol=1e-5, rtol=0)
    run(tmp_path / "back", tmp_path / "again")
    assert torch.equal(framed(fairseq_xl.load(tmp_path / "again"), "en"), tokens)
    names = ("encoder.token_embeddings.table.weight", "encoder.embeddings.segments.weight", "output.dense.weight")
    states = [fairseq_xl.load(tmp_path / name).model.state_dict() for name in ("ours", "again")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in names)


@torch.no_grad()
def test_xlm_with_its_codes_there_and_back_and_in_again(original, data_bin, tmp_path):
    theirs = xlm(original, data_bin)
    run(original, tmp_path / "ours")
    loaded = fairseq_xl.load(tmp_path / "ours")
    dictionary = loaded.task.dictionary
    assert dictionary.languages == ["fr", "de", "en"]
    words = json.loads((original / "vocab.json").read_text(encoding="utf-8"))
    spelled = {word.removesuffix("</w>") if word.endswith("</w>") else f"{word}@@": row for word, row in words.items()}
    special = {name: words[name] for name in ("<s>", "<pad>", "</s>", "<unk>")} | {"<mask>": words["<special1>"]}
    rows = rows_of(spelled | special, dictionary)
    tokens = framed(loaded, "de")
    assert (tokens[:, 0] == dictionary.eos()).all()  # XLM's framing
    languages = torch.full((len(tokens), 1), 1)
    real = tokens.ne(1)
    expected = theirs(rows[tokens], attention_mask=real.long(), langs=languages.expand_as(tokens)).logits[..., rows]
    found = our_logits(loaded, tokens, languages)[..., : dictionary.first_language]
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)

    run(tmp_path / "ours", tmp_path / "german", "--lang", "de", "--no-tokenizer")
    german = AutoModelForMaskedLM.from_pretrained(tmp_path / "german").eval()
    logits = german(tokens, attention_mask=real.long()).logits[..., : dictionary.first_language]
    torch.testing.assert_close(logits[real], expected[real], atol=1e-5, rtol=0)

    # there and back and in again: <mask> and [xx] behind it are in place of <special1>
    with pytest.raises(UserError, match="has language embeddings, and .*--lang XX writes it for one, --keep-languages"):
        run(tmp_path / "ours", tmp_path / "back")
    with pytest.raises(UserError, match="--lang XX writes it for one$"):  # where --keep-languages is refused
        run(tmp_path / "ours", tmp_path / "back", "--to", "transformers.js")
    run(tmp_path / "ours", tmp_path / "back", "--keep-languages")
    words = json.loads((tmp_path / "back" / "vocab.json").read_text(encoding="utf-8"))
    assert words["<mask>"] == len(words) - 4 and "<special1>" not in words
    back = AutoModelForMaskedLM.from_pretrained(tmp_path / "back").eval()
    logits = back(tokens, attention_mask=real.long(), langs=languages.expand_as(tokens)).logits
    torch.testing.assert_close(logits[..., : dictionary.first_language][real], expected[real], atol=1e-5, rtol=0)
    run(tmp_path / "back", tmp_path / "again")
    again = fairseq_xl.load(tmp_path / "again")
    assert again.task.dictionary.symbols == dictionary.symbols
    states = [each.model.state_dict() for each in (loaded, again)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert torch.equal(framed(again, "de"), tokens) and not (tokens == dictionary.unk()).any()


def test_codes_that_are_not_there(original, data_bin, tmp_path, caplog):
    """A folder that is named must have them; without one, the manifest says which files raw text needs."""
    xlm(original, data_bin)
    codes = original / "merges.txt"
    with pytest.raises(UserError, match="--codes .*elsewhere: the folder has no codes and vocab"):
        run(original, tmp_path / "ours", "--codes", tmp_path / "elsewhere")
    assert not (tmp_path / "ours").exists()
    codes.rename(tmp_path / "merges.txt")
    for name in ("codes", "vocab"):
        (original / name).rename(tmp_path / name)
    run(original, tmp_path / "ours")
    assert "original has no codes and vocab: raw text cannot be prepared for the model" in caplog.text
    manifest = json.loads((tmp_path / "ours" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["vocabulary"]["kind"] == "xlm" and manifest["config"]["tokenizer"]["de"] == "xlm"
    with pytest.raises(UserError, match="xlm.codes: no such file, expected the codes"):
        framed(fairseq_xl.load(tmp_path / "ours"), "de")
    shutil.copy(tmp_path / "codes", tmp_path / "ours" / "xlm.codes")  # files that come later are taken
    shutil.copy(tmp_path / "vocab", tmp_path / "ours" / "xlm.vocab")
    assert not (framed(fairseq_xl.load(tmp_path / "ours"), "de") == 3).any()


@torch.no_grad()
def test_mbart(original, data_bin, tmp_path):
    theirs = mbart(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    loaded = fairseq_xl.load(tmp_path / "ours")
    dictionary, model = loaded.task.dictionary, loaded.model
    assert loaded.task.framing.name == "mbart" and not model.training
    found = published_models.read(original)
    place = {symbol: row for row, symbol in enumerate(found.symbols)}
    first = len(place) - 1
    place |= {f"[{code}]": first + row for row, code in enumerate(found.languages)}  # ar_AR, cs_CZ, de_DE, en_XX, ...
    place["<mask>"] = first + 25
    assert place["[en]"] == first + 3 and dictionary.languages[:2] == ["en", "de"]
    rows = torch.tensor([place[symbol] for symbol in dictionary.symbols])
    tokens = framed(loaded, "en")
    assert (tokens[0] == dictionary.language_symbol("en")).any()
    target = torch.tensor([[dictionary.language_symbol("de"), 9, 7, 5], [dictionary.language_symbol("de"), 6, 8, 4]])
    real = tokens.ne(1)
    expected = theirs(rows[tokens], attention_mask=real.long(), decoder_input_ids=rows[target]).logits[..., rows]
    logits, _ = model(src_tokens=tokens, src_lengths=None, prev_output_tokens=target)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    assert len(loaded.translate(SENTENCES, "en", "de", beam=2)) == 2

    shutil.rmtree(tmp_path / "ours" / "published")
    run(tmp_path / "ours", tmp_path / "back", "--lang", "en-de")
    back = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back").eval()
    assert type(back).__name__ == "MBartForConditionalGeneration"
    assert back.generation_config.decoder_start_token_id == dictionary.language_symbol("de")
    made = AutoTokenizer.from_pretrained(tmp_path / "back")(SENTENCES, return_tensors="pt", padding=True)
    assert torch.equal(made["input_ids"], tokens)  # x </s> [en]
    logits = back(**made, decoder_input_ids=target).logits
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    run(tmp_path / "back", tmp_path / "again")
    assert fairseq_xl.load(tmp_path / "again").task.framing.name == "mbart"


FORMS = {  # of those of layouts/test_counterparts.py
    "encoder-decoder": ("--output-form", "dense", "--language-embeddings", "none"),
    "mbart": ("--layer-norm", "pre", "--embedding-scale", "sqrt", "--layer-norm-eps", "1e-5"),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_exported_encoder_decoder_is_read_back(data_bin, tmp_path, form):
    """The logits of transformers, and of a checkpoint that is made of the folder, are those of the first checkpoint."""
    checkpoint = trained(translation(data_bin, tmp_path, "-s", "en", "-t", "de", "--max-update", 1, *FORMS[form]))
    run(checkpoint, tmp_path / "theirs", "--data", data_bin)  # its only direction
    config = json.loads((tmp_path / "theirs" / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == form
    with pytest.raises(UserError, match=f"--lang de-en: {checkpoint} was trained for en-de, not for de-en"):
        run(checkpoint, tmp_path / "reversed", "--data", data_bin, "--lang", "de-en")
    run(tmp_path / "theirs", tmp_path / "again")
    one, other = fairseq_xl.load(checkpoint, data=data_bin), fairseq_xl.load(tmp_path / "again")
    assert other.task.dictionary.symbols == one.task.dictionary.symbols
    assert other.task.framing.name == one.task.framing.name and other.model.cfg.language_embeddings == "none"
    tokens = framed(one, "en")
    assert torch.equal(framed(other, "en"), tokens)
    start = torch.full((len(tokens), 1), one.task.dictionary.language_symbol("de"))
    target = torch.cat((start, tokens[:, 1:4]), 1)
    languages = torch.full((len(tokens),), one.task.dictionary.language_id("en"))
    with torch.no_grad():
        expected, _ = one.model(tokens, None, target, languages)
        found, _ = other.model(src_tokens=tokens, prev_output_tokens=target)
        theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval()
        logits = theirs(tokens, attention_mask=tokens.ne(1).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    assert other.translate(SENTENCES, "en", "de", beam=2) == one.translate(SENTENCES, "en", "de", beam=2)


@torch.no_grad()
def test_veco_translation(original, data_bin, tmp_path):
    theirs = veco(original, data_bin)
    run(original, tmp_path / "ours")
    loaded = fairseq_xl.load(tmp_path / "ours")
    dictionary, model = loaded.task.dictionary, loaded.model
    assert dictionary.languages == ["en", "de"]
    symbols = theirs.encoder.dictionary.symbols
    rows = torch.tensor([symbols.index(symbol) for symbol in dictionary.symbols])
    tokens = framed(loaded, "en")
    target = torch.tensor([[dictionary.language_symbol("de"), 9, 7, 5], [dictionary.language_symbol("de"), 6, 8, 4]])
    expected, _ = theirs(rows[tokens], tokens.ne(1).sum(1), rows[target])
    logits, _ = model(src_tokens=tokens, src_lengths=None, prev_output_tokens=target)
    torch.testing.assert_close(logits, expected[..., rows], atol=1e-5, rtol=0)
