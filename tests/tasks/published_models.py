"""Published models with random weights."""

import json
import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn

from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from tests.commands import MAX_POSITIONS

LAYERS, HEADS = 2, 2
XLM_SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]
XLM_LANGUAGES = ["fr", "xx", "en"]  # of the file; ours are en, de, fr
XLM_SIZES = dict(emb_dim=16, n_layers=LAYERS, n_heads=HEADS, max_position_embeddings=MAX_POSITIONS)
XLM_R_OPTIONS = ["--arch", "xl_xlmr_tiny", "--layers", LAYERS]
XLM_OPTIONS = ["--arch", "xl_xlm_tiny", "--layers", LAYERS, "--framing", "xlm", "--ffn-dim", 64]


@pytest.fixture(scope="module")
def dictionary(data_bin):
    return XLDictionary.load(data_bin / "dict.txt")


@pytest.fixture(scope="module")
def symbols(dictionary):
    """Our symbols without those of languages: <s> <pad> </s> <unk>, pieces, <mask>."""
    return dictionary.symbols[: dictionary.first_language]


#: transformers' options of an XLM-R
XLM_R = dict(hidden_size=16, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=32)
XLM_R |= dict(max_position_embeddings=MAX_POSITIONS + 2, type_vocab_size=1, layer_norm_eps=1e-5)
XLM_R |= dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)


def randomize(model, without_types=True):
    """The model with random weights; `without_types`: its only token type adds nothing, as in XLM-R's files."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        mean = 1.0 if parameter.dim() == 1 and "norm" in name.lower() and name.endswith("weight") else 0.0
        nn.init.normal_(parameter, mean=mean, std=0.3)
    for name, parameter in model.named_parameters() if without_types else ():
        if "token_type" in name and len(parameter) == 1:
            nn.init.zeros_(parameter)
    return model.eval()


def change_config(path, **changes):
    content = json.loads((path / "config.json").read_text(encoding="utf-8")) | changes
    content = {key: value for key, value in content.items() if value is not None}
    (path / "config.json").write_text(json.dumps(content), encoding="utf-8")


def write_symbols(data_bin, symbols, folder, name):
    if name == "dict.txt":  # of the pieces only: fairseq's tasks add <mask>
        (folder / name).write_text("".join(f"{symbol} 7\n" for symbol in symbols[4:-1]), encoding="utf-8")
    else:
        shutil.copy(data_bin / "sentencepiece.model", folder / name)


def fairseq_xlm_r(data_bin, symbols, folder, published_names=True, whole_folder=False, beside="dict.txt"):
    from fairseq.models.roberta import RobertaModel

    dictionary = Dictionary()
    for symbol in symbols[4:]:
        dictionary.add_symbol(symbol)
    sizes = dict(layers=LAYERS, embed_dim=16, ffn_embed_dim=32, attention_heads=HEADS)
    args = Namespace(arch="roberta_base", max_positions=MAX_POSITIONS, tokens_per_sample=MAX_POSITIONS)
    vars(args).update({f"encoder_{name}": size for name, size in sizes.items()})
    theirs = randomize(RobertaModel.build_model(args, SimpleNamespace(source_dictionary=dictionary)))
    state = theirs.state_dict()
    if published_names:
        state = {
            name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm"): value
            for name, value in state.items()
        }
    settings = {"args": args, "cfg": None} if published_names else {"args": None, "cfg": {"model": vars(args)}}
    content = settings | {"model": state, "optimizer_history": [], "extra_state": {}, "last_optimizer_state": None}
    torch.save(content, folder / "model.pt")
    write_symbols(data_bin, symbols, folder, beside)

    def run(tokens, languages):
        logits, extra = theirs(tokens, features_only=False, return_all_hiddens=True)
        return extra["inner_states"][-1].transpose(0, 1), logits

    return folder if whole_folder else folder / "model.pt", run


def xlm_words(symbols):
    return [*XLM_SPECIAL, *symbols[4:-1]]


def xlm_model(symbols):
    from transformers import XLMConfig, XLMWithLMHeadModel

    words = xlm_words(symbols)
    more = dict(n_langs=len(XLM_LANGUAGES), id2lang=dict(enumerate(XLM_LANGUAGES)), pad_token_id=2, eos_token_id=1)
    theirs = randomize(XLMWithLMHeadModel(XLMConfig(vocab_size=len(words), **XLM_SIZES, **more)))
    place = {word: row for row, word in enumerate(words)}
    rows = torch.tensor([place.get(symbol, place["<special1>"]) for symbol in symbols])

    def run(tokens, languages):
        """Maps our ids to theirs, runs the model, and returns logits of our symbols."""
        names = ["en", "de", "fr"]
        ids = torch.tensor([XLM_LANGUAGES.index(names[language]) for language in languages.flatten()])
        result = theirs(
            rows[tokens], attention_mask=tokens.ne(1), langs=ids[:, None].expand_as(tokens), output_hidden_states=True
        )
        return result.hidden_states[-1], result.logits[..., rows]

    return theirs, run


def xlm_pth(data_bin, symbols, folder, prefix=""):
    """XLM's own file: transformers' names without "transformer."; params holds all options."""
    theirs, run = xlm_model(symbols)
    state = {
        prefix + name.removeprefix("transformer."): value
        for name, value in theirs.state_dict().items()
        if not name.endswith("position_ids")
    }
    words = dict(enumerate(xlm_words(symbols)))
    params = dict(n_heads=HEADS, n_langs=len(XLM_LANGUAGES), id2lang=dict(enumerate(XLM_LANGUAGES)), emb_dim=16)
    params |= dict(gelu_activation=True, asm=False, sinusoidal_embeddings=False, pad_index=2, lgs="fr-xx-en")
    content = {
        "model": state,
        "params": params,
        "dico_id2word": words,
        "dico_word2id": {w: n for n, w in words.items()},
        "dico_counts": dict.fromkeys(words.values(), 1),
        "epoch": 3,
    }
    torch.save(content, folder / "mlm_tlm.pth")
    return folder / "mlm_tlm.pth", run
