"""`fairseq-xl model convert` and `model show` of damaged and foreign files: one sentence that names the file."""

import json
import re
import shutil
from argparse import Namespace

import pytest
import torch

from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.commands import model_convert, model_show
from fairseq_xl.errors import UserError

PIECES = [f"p{number}" for number in range(12)]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10)), "th", "the</w>", "e</w>"]
SPELLED = dict(enumerate([*WORDS[:14], "th@@", "the", "e"]))


@pytest.fixture(scope="module")
def xlm_r(tmp_path_factory):
    """A folder of transformers: config.json, model.safetensors and dict.txt."""
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

    folder = tmp_path_factory.mktemp("published") / "xlm-r"
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5}
    config = XLMRobertaConfig(vocab_size=17, max_position_embeddings=42, type_vocab_size=1, **SIZES, **special)
    XLMRobertaForMaskedLM(config).save_pretrained(folder)
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in PIECES))
    return folder


@pytest.fixture(scope="module")
def xlm(tmp_path_factory):
    """A folder of transformers with config.json, model.safetensors and vocab.json, and XLM's own file, xlm.pth."""
    from transformers import XLMConfig, XLMWithLMHeadModel

    folder = tmp_path_factory.mktemp("published") / "xlm"
    languages = {"n_langs": 2, "id2lang": {0: "de", 1: "en"}, "lang2id": {"de": 0, "en": 1}}
    sizes = {"vocab_size": len(WORDS), "emb_dim": 16, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 40}
    model = XLMWithLMHeadModel(XLMConfig(**sizes, **languages, pad_index=2))
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({word: row for row, word in enumerate(WORDS)}))
    params = {"n_heads": 2, "gelu_activation": True, **languages}
    state = {name.removeprefix("transformer."): value for name, value in model.state_dict().items()}
    torch.save({"model": state, "params": params, "dico_id2word": SPELLED}, folder / "xlm.pth")
    return folder


@pytest.fixture(scope="module")
def fairseq(xlm_r, tmp_path_factory):
    """A folder of fairseq: model.pt with XLM-R's weights, and dict.txt."""
    from safetensors.torch import load_file

    folder = tmp_path_factory.mktemp("published") / "fairseq"
    folder.mkdir()
    shutil.copy(xlm_r / "dict.txt", folder)
    state = LAYOUTS["xlm-roberta"].to_ours(load_file(xlm_r / "model.safetensors"), {})
    state = LAYOUTS["fairseq_roberta"].to_theirs(state)
    args = Namespace(encoder_attention_heads=2, activation_fn="gelu")
    torch.save({"args": args, "model": state, "extra_state": {}, "optimizer_history": []}, folder / "model.pt")
    return folder


@pytest.fixture(scope="module")
def ours(xlm_r, tmp_path_factory):
    """The folder that xlm_r becomes."""
    folder = tmp_path_factory.mktemp("converted") / "ours"
    model_convert.main([str(xlm_r), str(folder), "--langs", "en"])
    return folder


def with_json(name, **changes):
    """A change of some entries of a JSON file."""

    def spoil(folder):
        path = folder / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | changes))

    return spoil


def with_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def with_content(name, change):
    """A change of the content of a file of torch.save."""

    def spoil(folder):
        content = torch.load(folder / name, weights_only=False)
        change(content)
        torch.save(content, folder / name)

    return spoil


def with_weights(change):
    """A change of a safetensors file."""

    def spoil(folder):
        from safetensors.torch import load_file, save_file

        state = load_file(folder / "model.safetensors")
        change(state)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

    return spoil


def with_tokenizer(folder):
    """A damaged tokenizer.json in place of dict.txt."""
    (folder / "dict.txt").unlink()
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": 5}))


def of_model(**changes):
    return with_content("model.pt", lambda content: content["model"].update(changes))


def of_index(**content):
    def spoil(folder):
        (folder / "model.safetensors").unlink()
        (folder / INDEX).write_text(json.dumps(content))

    return spoil


def without_index(folder):
    of_index(weight_map={"a": INDEX})(folder)


INDEX = "model.safetensors.index.json"
TABLE, PREFIX = "roberta.embeddings.word_embeddings.weight", "encoder.sentence_encoder."
NUMBERS = {str(number): [number] for number in range(len(WORDS))}

#: the file that is read of a folder, if it is not model.safetensors
READ = {"fairseq": "model.pt", "ours": "checkpoint.pt"}
#: case -> folder or its file, what is spoiled in it, the sentence
BAD = {
    "id2lang is a list": ("xlm", with_json("config.json", id2lang=["de"]), r"its 'id2lang' is \['de'\], expected"),
    "id2lang has no numbers": ("xlm", with_json("config.json", id2lang={"a": "de"}), "its 'id2lang' is "),
    "lang2id is text": ("xlm", with_json("config.json", lang2id="de"), "its 'lang2id' is 'de', expected language"),
    "model_type is a list": ("xlm_r", with_json("config.json", model_type=["a"]), r"its 'model_type' is \['a'\], "),
    "classes are a number": ("xlm_r", with_json("config.json", architectures=5), "its 'architectures' is 5, exp"),
    "labels are a list": ("xlm_r", with_json("config.json", id2label=["a"]), r"its 'id2label' is \['a'\], "),
    "dropout is text": ("xlm_r", with_json("config.json", classifier_dropout="a"), "dropout' is 'a', expected"),
    "heads are text": ("xlm_r", with_json("config.json", num_attention_heads="2"), "'num_attention_heads' is '2', "),
    "deep config": ("xlm_r", with_text("config.json", '{"a":' * 100_000), "config.json: not JSON that can be read"),
    "an index is its own shard": (f"xlm_r/{INDEX}", without_index, f"the shard '{INDEX}': expected a file of weig"),
    "an empty index": (f"xlm_r/{INDEX}", of_index(), "is not an index of shards: it holds no 'weight_map'"),
    "added tokens are a number": ("xlm_r", with_tokenizer, "its added tokens are not texts with"),
    "rows are lists": ("xlm", with_text("vocab.json", json.dumps(NUMBERS)), "vocab.json: expected words that are "),
    "names are numbers": (
        *("fairseq", with_content("model.pt", lambda content: content["model"].update({3: torch.zeros(2)}))),
        "model.pt: a parameter has the name 3, expected text",
    ),
    "a parameter is text": ("fairseq", of_model(a="b"), "model.pt: 'b' stands in place of the parameter a"),
    "a parameter of XLM is a list": (
        *("xlm/xlm.pth", with_content("xlm.pth", lambda content: content["model"].update(a=[1]))),
        r"xlm.pth: \[1\] stands in place of the parameter a, expected a tensor",
    ),
    "a sparse table": (
        *("fairseq", of_model(**{f"{PREFIX}embed_tokens.weight": torch.zeros(17, 16).to_sparse()})),
        "embed_tokens.weight' is a sparse or quantized tensor",
    ),
    "a table is a number": (
        *("fairseq", of_model(**{f"{PREFIX}embed_tokens.weight": torch.tensor(1.0)})),
        "embed_tokens.weight is a single number, expected a tensor with dimensions",
    ),
    "a table is a row": (
        *("fairseq", of_model(**{f"{PREFIX}embed_positions.weight": torch.zeros(42)})),
        "its embeddings encoder.embeddings.positions.weight have 1 dimensions, expected 2",
    ),
    "tables of different widths": (
        *("fairseq", of_model(**{f"{PREFIX}embed_positions.weight": torch.zeros(42, 8)})),
        "its embeddings have different numbers of channels: .*table.weight 16, .*positions.weight 8",
    ),
    "a short bias": (
        *("fairseq", of_model(**{"encoder.lm_head.bias": torch.zeros(9)})),
        "its encoder has different numbers of symbols: .*table.weight 17, .*output_bias 9",
    ),
    "projections that do not fit": (
        *("fairseq", of_model(**{f"{PREFIX}layers.0.self_attn.k_proj.weight": torch.zeros(16, 3)})),
        r"the shapes of these weights do not fit each other: .*q_proj.weight \(16, 16\), .*k_proj.weight \(16, 3\)",
    ),
    "8-bit weights": (
        *("xlm_r", with_weights(lambda state: state.update({name: w.to(torch.int8) for name, w in state.items()}))),
        "has values of type int8, expected floating-point numbers",
    ),
    "the words of XLM are numbers": (
        *("xlm/xlm.pth", with_content("xlm.pth", lambda content: content["dico_id2word"].update({15: 15}))),
        "the words of .*xlm.pth are not all text: 15 is one",
    ),
    "no parameters of a decoder": (
        *("xlm/xlm.pth", with_content("xlm.pth", lambda content: content.update(encoder=content["model"], decoder=5))),
        "its decoder: 5 stands where parameters are expected",
    ),
    "train_iterator": (
        *("ours", with_content("checkpoint.pt", lambda c: c.update(extra_state={"train_iterator": 5}))),
        "its 'extra_state.train_iterator' is 5, expected a dict",
    ),
    "optimizer_history": (
        *("ours", with_content("checkpoint.pt", lambda content: content.update(optimizer_history=[5]))),
        r"its 'optimizer_history' is \[5\], expected dicts",
    ),
}


def copied(request, tmp_path, name):
    """A copy of the folder of a fixture."""
    return shutil.copytree(request.getfixturevalue(name), tmp_path / "published")


def refused(action, *arguments):
    """The sentence with which a command refuses its arguments."""
    with pytest.raises(UserError) as error:
        action([str(argument) for argument in arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("case", BAD)
def test_what_is_damaged_or_foreign(request, tmp_path, case):
    where, spoil, sentence = BAD[case]
    name, _, read = where.partition("/")
    folder = copied(request, tmp_path, name)
    spoil(folder)
    file = folder / (read or READ.get(name, "model.safetensors"))
    langs = [] if name == "ours" else ["--langs", "en"]
    for found in (refused(model_convert.main, file, tmp_path / "new", *langs), refused(model_show.main, file)):
        assert str(folder) in found and re.search(sentence, found)
    assert not (tmp_path / "new").exists()


def test_numbers_that_are_not_finite(request, tmp_path):
    """convert reads them; describe does not, and says what the model is."""
    folder = copied(request, tmp_path, "xlm_r")
    with_weights(lambda state: state[TABLE].select(0, 5).fill_(float("nan")))(folder)
    sentence = refused(model_convert.main, folder, tmp_path / "new", "--langs", "en")
    assert f"{folder}: {TABLE} has NaN or infinite values" in sentence
    model_show.main([str(folder)])


def test_a_table_of_ours_that_is_a_number(request, tmp_path):
    folder = copied(request, tmp_path, "ours")
    table = {"encoder.token_embeddings.table.weight": torch.tensor(1.0)}
    with_content("checkpoint.pt", lambda content: content["model"].update(table))(folder)
    found = refused(model_show.main, folder)
    assert (
        f"{folder / 'checkpoint.pt'}: its embeddings encoder.token_embeddings.table.weight have 0 dimensions" in found
    )
