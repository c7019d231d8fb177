"""Models that start from published encoders: published layouts with random weights."""

import functools
import json
import re
import shutil
from argparse import Namespace

import pytest
import torch
from fairseq import options

from fairseq_xl.data.framing import Framing, pad_rows
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, configuration, pretraining, run_train, translation
from tests.tasks.initial_weights import initial
from tests.tasks.published_models import (  # noqa: F401
    HEADS,
    LAYERS,
    XLM_OPTIONS,
    XLM_R,
    XLM_R_OPTIONS,
    change_config,
    dictionary,
    fairseq_xlm_r,
    randomize,
    symbols,
    write_symbols,
    xlm_model,
    xlm_pth,
    xlm_words,
)

XLM_R_MODEL = dict(layer_norm_eps=1e-5, output_form="dense", language_embeddings="none", position_offset=2, ffn_dim=32)


# Files: each maker fills a folder and returns what to name and the model that is in it


def transformers_xlm_r(data_bin, symbols, folder, file=None, head=True):
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaModel

    config = XLMRobertaConfig(vocab_size=len(symbols), **XLM_R)
    theirs = randomize(XLMRobertaForMaskedLM(config) if head else XLMRobertaModel(config), without_types=False)
    save_transformers(theirs, folder, file)
    write_symbols(data_bin, symbols, folder, "sentencepiece.bpe.model")

    def run(tokens, languages):
        result = theirs(tokens, attention_mask=tokens.ne(1).long(), output_hidden_states=True)
        return result.hidden_states[-1], result.logits if head else None

    return folder / file if file else folder, run


def save_transformers(model, folder, file):
    model.save_pretrained(folder)
    if file == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / file)


def transformers_xlm(data_bin, symbols, folder, file=None):
    theirs, run = xlm_model(symbols)
    save_transformers(theirs, folder, file)
    words = {word: row for row, word in enumerate(xlm_words(symbols))}
    (folder / "vocab.json").write_text(json.dumps(words), encoding="utf-8")
    return folder / file if file else folder, run


KINDS = {
    "fairseq": (fairseq_xlm_r, {}),
    "fairseq today, folder, pieces": (
        fairseq_xlm_r,
        {"published_names": False, "whole_folder": True, "beside": "sentencepiece.bpe.model"},
    ),
    "transformers": (transformers_xlm_r, {}),
    "transformers file": (transformers_xlm_r, {"file": "model.safetensors"}),
    "transformers older file, no head": (transformers_xlm_r, {"file": "pytorch_model.bin", "head": False}),
    "XLM": (xlm_pth, {}),
    "XLM from several processes": (xlm_pth, {"prefix": "module."}),
    "transformers XLM": (transformers_xlm, {}),
}


@pytest.fixture(scope="module")
def make(data_bin, symbols, tmp_path_factory):
    """A published model of a kind: its path, and the model as a function (tokens, languages) -> (hidden, logits)."""

    @functools.cache
    def original(kind):
        maker, more = KINDS[kind]
        folder = tmp_path_factory.mktemp("original")
        path, run = maker(data_bin, symbols, folder, **more)
        return folder, path.relative_to(folder), run

    def made(kind):
        folder, path, run = original(kind)
        return shutil.copytree(folder, tmp_path_factory.mktemp("published") / "pretrained") / path, run

    return made


def options_of(kind):
    return XLM_OPTIONS if "XLM" in kind else XLM_R_OPTIONS


@pytest.mark.parametrize("kind", KINDS)
def test_training_starts_as_the_published_model(data_bin, dictionary, make, tmp_path, kind):
    """Before any update the model computes what the published model computes."""
    path, theirs = make(kind)
    state, log = start(data_bin, tmp_path, *options_of(kind), "--init-from", path)
    is_xlm = "XLM" in kind
    rows = "[en], [de], [fr]" + (", embedding of de" if is_xlm else "")
    assert f"{path}: published weights, new rows: {rows}" in log
    sizes = dict(embed_dim=16, heads=HEADS, layers=LAYERS, max_positions=MAX_POSITIONS)
    config = EncoderConfig(**sizes, **(dict(ffn_dim=64) if is_xlm else XLM_R_MODEL))
    model = XLEncoderModel(config, len(dictionary), dictionary.pad(), dictionary.num_languages).eval()
    model.load_state_dict(state)
    texts = {language: open_text(data_bin / language / "valid", language) for language in ("en", "fr")}
    framing = Framing.of("xlm" if is_xlm else "xl", dictionary)
    rows = [framing.sentence(text[n]) for text in texts.values() for n in range(2)]
    tokens, languages = torch.from_numpy(pad_rows(rows, dictionary.pad())), torch.tensor([[0], [0], [2], [2]])
    padding = tokens.eq(dictionary.pad())
    assert padding.any() and len(tokens.unique()) > 10
    with torch.no_grad():
        hidden = model.encode(tokens, languages=languages, padding_mask=padding)
        logits = model.output(hidden)
        expected_hidden, expected_logits = theirs(tokens, languages)
    torch.testing.assert_close(hidden[~padding], expected_hidden[~padding], atol=1e-5, rtol=0)
    if expected_logits is None:
        assert "new: encoder.token_embeddings.output_bias, output.dense.weight" in log
    else:
        shared = logits[..., : dictionary.first_language]
        torch.testing.assert_close(shared[~padding], expected_logits[~padding], atol=1e-5, rtol=0)


def start(data_bin, folder, *more, task=pretraining):
    """State dict of the model before any update, and the log."""
    return initial(task(data_bin, folder, *more))


def fine_tuning(data_bin, folder, *more):
    """A command line of fairseq-train that names neither an architecture nor a framing."""
    task = cli(task="xl_tagging", criterion="xl_tagging", task_files=folder, train_langs="en", eval_langs="en")
    return [data_bin, *task, *cli(optimizer="xl_adam", lr=0, batch_size=2, length=32), *more]


@pytest.mark.parametrize("kind", ["fairseq", "transformers", "XLM", "transformers XLM"])
def test_the_architecture_is_that_of_init_from(data_bin, make, tmp_path, kind):
    """The parameters are those of a command line that names it; flags of the command line are used."""
    path, _ = make(kind)
    (tmp_path / "train.en.tsv").write_text("a\tX\n\n", encoding="utf-8")
    expected, _ = start(data_bin, tmp_path, *options_of(kind), "--init-from", path)
    state, _ = start(data_bin, tmp_path, "--init-from", path, *(["--arch=auto"] * ("XLM" in kind)), task=fine_tuning)
    heads = {name for name in state if name.startswith("heads.")}
    assert heads and state.keys() == expected.keys() | heads
    layers = [name for name in expected if re.search("layers|positions|norm", name)]  # the rest has rows of languages
    assert len(layers) > 20 and all(torch.equal(state[name], expected[name]) for name in layers)
    (tmp_path / "more.yaml").write_text("dropout: 0.3\nmax-positions: 50\n", encoding="utf-8")
    line = fine_tuning(data_bin, tmp_path, "--config", tmp_path / "more.yaml", "--init-from", path)
    assert configuration(options.get_training_parser(), line).model.dropout == 0.3
    with pytest.raises(UserError, match="needs --max-positions 40, this run has 50"):
        start(data_bin, tmp_path, *line[1:], task=fine_tuning)


def test_a_run_resumes_without_the_file_it_started_from(data_bin, make, tmp_path):
    path, _ = make("transformers")
    (tmp_path / "train.en.tsv").write_text("a\tX\n\n", encoding="utf-8")
    line = [
        *fine_tuning(data_bin, tmp_path, "--init-from", path),
        *cli(save_dir=tmp_path / "run", disable_validation=True),
    ]
    run_train([*line, "--max-update", 1])
    shutil.rmtree(path)
    assert "\nepoch 2 until update 2 " in run_train([*line, "--max-update", 2]).log


def test_an_encoder_alone_does_not_start_translation(data_bin, make, tmp_path):
    path, _ = make("transformers")
    line = ["--task", "xl_translation", "--criterion", "xl_translation", "-s", "en", "-t", "de", "--lr", 0]
    with pytest.raises(UserError, match="holds an encoder alone: name the encoder-decoder that starts from it"):
        configuration(options.get_training_parser(), [data_bin, *line, f"--init-from={path}"])


def test_new_rows_are_those_of_a_new_model(data_bin, dictionary, make, tmp_path):
    path, _ = make("XLM")
    fresh, _ = start(data_bin, tmp_path, *XLM_OPTIONS)
    state, _ = start(data_bin, tmp_path, *XLM_OPTIONS, "--init-from", path)
    given = torch.load(path, weights_only=True)["model"]
    first = dictionary.first_language
    tokens, languages = "encoder.token_embeddings.table.weight", "encoder.embeddings.languages.weight"
    assert torch.equal(state[tokens][first:], fresh[tokens][first:])
    assert state[tokens][first:].std() > 0.01
    assert torch.equal(state["encoder.token_embeddings.output_bias"][first:], torch.zeros(3))
    assert torch.equal(state[languages][1], fresh[languages][1])  # de
    assert torch.equal(state[languages][0], given["lang_embeddings.weight"][2])  # en
    assert torch.equal(state[languages][2], given["lang_embeddings.weight"][0])  # fr
    for symbol, word in (("<s>", "<s>"), ("<pad>", "<pad>"), ("</s>", "</s>"), ("<mask>", "<special1>")):
        row = xlm_words(dictionary.symbols[:first]).index(word)
        assert torch.equal(state[tokens][dictionary.index(symbol)], given["embeddings.weight"][row])


def test_translation_from_a_published_encoder(data_bin, make, tmp_path):
    path, _ = make("transformers")
    line = [
        *cli(s="en", t="de", arch="xl_veco_mt_tiny", encoder_layers=LAYERS, decoder_layers=1),
        *cli(init_encoder_from=path, init_decoder_from=path, init_decoder_layers="last"),
    ]
    state, log = initial(translation(data_bin, tmp_path, *line))
    assert log.count("published weights") == 1  # it is read once
    pretrained, _ = start(data_bin, tmp_path / "pretrained", *XLM_R_OPTIONS, "--init-from", path)
    last = "layers.1.ffn.up.weight"
    assert torch.equal(state[f"encoder.{last}"], pretrained[f"encoder.{last}"])
    assert torch.equal(state["decoder.layers.0.ffn.up.weight"], pretrained[f"encoder.{last}"])
    assert torch.equal(state["decoder.output.dense.weight"], pretrained["output.dense.weight"])
    assert torch.equal(
        state["encoder.token_embeddings.output_bias"], pretrained["encoder.token_embeddings.output_bias"]
    )
    report = [line for line in log.splitlines() if line.startswith("decoder from ")]
    assert "layers.0.cross_attention.query.weight" in report[0]


# What doesn't fit: one sentence, before training

#: number of heads, which each layout stores in its own way, and what the tables' shapes say
MISFITS = [
    *(
        (kind, ["--heads", 4], "needs --heads 2 (or --init-across-heads), this run has 4")
        for kind in ("fairseq", "fairseq today, folder, pieces", "transformers", "XLM", "transformers XLM")
    ),
    ("fairseq", ["--ffn-dim", 16], "needs --ffn-dim 32, this run has 16"),
    ("fairseq", ["--max-positions", 50], "needs --max-positions 40, this run has 50"),
    ("XLM", ["--language-embeddings", "none"], "needs --language-embeddings added, this run has none"),
]


@pytest.mark.parametrize("kind, more, sentence", MISFITS)
def test_an_option_that_does_not_fit_is_named(data_bin, make, tmp_path, kind, more, sentence):
    path, _ = make(kind)
    with pytest.raises(UserError) as error:
        start(data_bin, tmp_path, *options_of(kind), *more, "--init-from", path)
    assert str(error.value) == f"{path} {sentence}"


def test_weights_in_16_bits(data_bin, make, tmp_path):
    """A model without an output layer takes any output form."""
    path, _ = make("transformers older file, no head")
    halves = {name: value.half() for name, value in torch.load(path, weights_only=True).items()}
    torch.save(halves, path)
    state, log = start(data_bin, tmp_path, *XLM_R_OPTIONS, "--output-form", "plain", "--init-from", path)
    assert "new: encoder.token_embeddings.output_bias" in log
    table, types = (halves[f"embeddings.{name}_embeddings.weight"].float() for name in ("position", "token_type"))
    assert torch.equal(state["encoder.embeddings.positions.weight"], table + types)


def stored(**changes):
    """A change of a file that torch.save wrote: None leaves a key out, a mapping replaces values of one."""

    def change(path):
        content = load_plain(path)
        for key, new in changes.items():
            old = content.pop(key)
            if isinstance(old, Namespace):
                content[key] = Namespace(**vars(old) | new)
            elif new is not None:
                content[key] = old | new
        torch.save(content, path)

    return change


def configured(**changes):
    return lambda path: change_config(path, **changes)


def without(name):
    return lambda path: ((path if path.is_dir() else path.parent) / name).unlink()


def with_another_piece(path):
    lines = path.with_name("dict.txt").read_text(encoding="utf-8").split("\n")
    path.with_name("dict.txt").write_text("\n".join([*lines[:3], "other 1", *lines[4:]]), encoding="utf-8")


def as_in_vocab_json(path):
    """The last word ends in </w>; the others are then pieces within a word."""
    words = json.loads((path / "vocab.json").read_text(encoding="utf-8"))
    words = {f"{word}</w>" if row == len(words) - 1 else word: row for word, row in words.items()}
    (path / "vocab.json").write_text(json.dumps(words), encoding="utf-8")


#: kind, what changes its files, message
FILES = [
    (
        "fairseq",
        with_another_piece,
        r"the rows of .*/dict.txt are not those of .*/data-bin/dict.txt: symbol 7 is 'other' there and '.*' here",
    ),
    ("XLM", stored(dico_id2word={14: "x"}), "mlm_tlm.pth are not those of .*: symbol 4 is 'x' there"),
    ("transformers XLM", as_in_vocab_json, "vocab.json are not those of .*: symbol 4 is '.*@@' "),
    ("fairseq", without("dict.txt"), "is needed beside model.pt"),
    ("transformers XLM", without("vocab.json"), "vocab.json or tokenizer.json is"),
    ("transformers", without("config.json"), "config.json is needed beside model.s"),
    ("transformers", configured(hidden_act="silu"), "its activation is silu; gelu"),
    ("transformers", configured(pad_token_id=0), "pad_token_id 0, where XLM-R has 1"),
    ("transformers", configured(num_attention_heads=None), "it stores no num_attention_heads"),
    ("fairseq", stored(args={"encoder_attention_heads": None}), "model.pt: it stores no encoder_attention_heads"),
    ("fairseq", stored(args={"activation_fn": "relu"}), "activation is relu;"),
    ("XLM", stored(params=None), "it stores no gelu_activation"),
    ("XLM", stored(dico_id2word=None), "it holds no 'dico_id2word', which lists"),
    ("XLM", stored(dico_id2word={999: "x"}), "are not numbered from 0 without a gap"),
    ("XLM", stored(dico_id2word={5: "x"}), "has no <special1> among its words"),
    ("XLM", stored(params={"id2lang": None}), "its 'id2lang' doesn't name them all"),
    ("XLM", stored(model={"encoder_attn": torch.zeros(1)}), "nothing missing, encoder_attn unexpected"),
    (
        "transformers",
        without("model.safetensors"),
        "is a folder without published weights: none of model.safetensors, pytorch_model.bin, model.pt",
    ),
]


@pytest.mark.parametrize("kind, change, sentence", FILES)
def test_files_that_cannot_be_taken_over(data_bin, make, tmp_path, kind, change, sentence):
    path, _ = make(kind)
    change(path)
    with pytest.raises(UserError, match=sentence) as error:
        start(data_bin, tmp_path, *options_of(kind), "--init-from", path)
    folder = path if path.is_dir() else path.parent
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
