"""Models that start from published encoders: published layouts with random weights."""

import functools
import json
import re
import shutil
from argparse import Namespace

import pytest
import torch
from fairseq import options, tasks

from fairseq_xl.data.framing import Framing, pad_rows
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, configuration, denoising, load, one_run, pretraining, run_train, translation
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


def real_batch(data_bin, dictionary, framing):
    """The first validation sentences of en and fr: tokens (4, T) with padding, languages (4, 1)."""
    texts = {language: open_text(data_bin / language / "valid", language) for language in ("en", "fr")}
    rows = [Framing.of(framing, dictionary).sentence(text[n]) for text in texts.values() for n in range(2)]
    return torch.from_numpy(pad_rows(rows, dictionary.pad())), torch.tensor([[0], [0], [2], [2]])


def options_of(kind):
    return XLM_OPTIONS if "XLM" in kind else XLM_R_OPTIONS


@pytest.mark.parametrize("kind", KINDS)
def test_training_starts_as_the_published_model(data_bin, dictionary, make, tmp_path, kind):
    """After two updates with learning rate 0 the checkpoint computes what the published model computes."""
    path, theirs = make(kind)
    line = pretraining(
        data_bin,
        tmp_path,
        *options_of(kind),
        *cli(max_update=2, updates_per_epoch=2, lr=0, disable_validation=True, init_from=path),
    )
    output = run_train(line)
    assert list(output.updates) == [1, 2]
    rows = "[en], [de], [fr]" + (", embedding of de" if "XLM" in kind else "")
    assert f"{path}: published weights, new rows: {rows}" in output.log
    is_xlm = "XLM" in kind
    config = EncoderConfig(
        embed_dim=16,
        heads=HEADS,
        layers=LAYERS,
        max_positions=MAX_POSITIONS,
        **(dict(ffn_dim=64) if is_xlm else XLM_R_MODEL),
    )
    model = XLEncoderModel(config, len(dictionary), dictionary.pad(), dictionary.num_languages).eval()
    model.load_state_dict(load(tmp_path / "checkpoint_last.pt"))
    tokens, languages = real_batch(data_bin, dictionary, "xlm" if is_xlm else "xl")
    padding = tokens.eq(dictionary.pad())
    assert padding.any() and len(tokens.unique()) > 10
    with torch.no_grad():
        hidden = model.encode(tokens, languages=languages, padding_mask=padding)
        logits = model.output(hidden)
        expected_hidden, expected_logits = theirs(tokens, languages)
    torch.testing.assert_close(hidden[~padding], expected_hidden[~padding], atol=1e-5, rtol=0)
    if expected_logits is None:
        assert "new: encoder.token_embeddings.output_bias, output.dense.weight" in output.log
    else:
        shared = logits[..., : dictionary.first_language]
        torch.testing.assert_close(shared[~padding], expected_logits[~padding], atol=1e-5, rtol=0)


def start(data_bin, folder, *more, task=pretraining, objectives=None):
    """State dict of the model before any update, and the log."""
    arguments = task(data_bin, folder, *more, **({"objectives": objectives} if objectives else {}))
    with one_run() as output:
        cfg = configuration(options.get_training_parser(), [*arguments, "--cpu"])
        torch.manual_seed(5)
        built = tasks.setup_task(cfg.task).build_model(cfg.model)
    return built.state_dict(), output.log


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
    output = run_train(translation(data_bin, tmp_path, *line, "--max-update", 2, "--lr", 0, "--disable-validation"))
    assert len(output.updates) == 2 and output.log.count("published weights") == 1  # it is read once
    state = load(tmp_path / "checkpoint_last.pt")
    pretrained, _ = start(data_bin, tmp_path / "pretrained", *XLM_R_OPTIONS, "--init-from", path)
    last = "layers.1.ffn.up.weight"
    assert torch.equal(state[f"encoder.{last}"], pretrained[f"encoder.{last}"])
    assert torch.equal(state["decoder.layers.0.ffn.up.weight"], pretrained[f"encoder.{last}"])
    assert torch.equal(state["decoder.output.dense.weight"], pretrained["output.dense.weight"])
    assert torch.equal(
        state["encoder.token_embeddings.output_bias"], pretrained["encoder.token_embeddings.output_bias"]
    )
    report = [line for line in output.log.splitlines() if line.startswith("decoder from ")]
    assert "layers.0.cross_attention.query.weight" in report[0]


@pytest.mark.parametrize("kind", ["fairseq", "transformers", "XLM", "transformers XLM"])
def test_encoder_and_decoder_of_xdae_from_a_published_encoder(data_bin, symbols, make, tmp_path, kind):
    """G5: all layers fill the encoder, the first ones the decoder with the output layer; cross-attention is new."""
    path, _ = make(kind)
    is_xlm, depth = "XLM" in kind, ["--encoder-layers", LAYERS, "--decoder-layers", 1]
    form = ["--framing", "xlm", "--ffn-dim", 64] if is_xlm else ["--arch", "xl_xdae_xlmr_tiny"]
    state, log = start(data_bin, tmp_path, *form, *depth, "--init-from", path, task=denoising)
    pretrained, _ = start(data_bin, tmp_path, *options_of(kind), "--init-from", path)
    assert log.count("published weights") == 1  # it is read once
    there = {
        "token_embeddings.table.weight": slice(len(symbols)),
        "embeddings.languages.weight": [0, 2],
    }  # others: new rows
    for name, value in state.items():
        stack, _, rest = name.partition(".")
        if "cross_attention" not in name:
            expected = pretrained[rest if rest.startswith("output") else f"encoder.{rest}"]
            rows = there.get(rest, slice(None))
            assert torch.equal(value[rows], expected[rows]), name
    if is_xlm:
        assert torch.equal(state["decoder.embeddings.languages.weight"], state["encoder.embeddings.languages.weight"])
    (report,) = [line for line in log.splitlines() if line.startswith("decoder from ")]
    new = report.partition("new: ")[2].split(", ")
    assert len(new) == 8 and all(name.startswith("layers.0.cross_attention") for name in new)
    with pytest.raises(UserError, match=r"needs --heads 2 \(or --init-across-heads\), this run has 4"):
        start(data_bin, tmp_path, *form, *depth, "--init-from", path, "--heads", 4, task=denoising)


# What doesn't fit: one sentence, before training

#: number of heads, which each layout stores in its own way, and what the tables' shapes say
MISFITS = [
    *((kind, ["--heads", 4], "needs --heads 2 (or --init-across-heads), this run has 4") for kind in KINDS),
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


def test_a_model_without_an_output_layer_takes_any_output_form(data_bin, make, tmp_path):
    path, _ = make("transformers older file, no head")
    _, log = start(data_bin, tmp_path, *XLM_R_OPTIONS, "--output-form", "plain", "--init-from", path)
    assert "new: encoder.token_embeddings.output_bias" in log


def test_weights_in_16_bits(data_bin, make, tmp_path):
    path, _ = make("transformers older file, no head")
    halves = {name: value.half() for name, value in torch.load(path, weights_only=True).items()}
    torch.save(halves, path)
    state, _ = start(data_bin, tmp_path, *XLM_R_OPTIONS, "--init-from", path)
    table, types = (halves[f"embeddings.{name}_embeddings.weight"].float() for name in ("position", "token_type"))
    assert torch.equal(state["encoder.embeddings.positions.weight"], table + types)


def rewrite(path, **changes):
    """Replace keys of a file that torch.save wrote; None leaves one out."""
    content = load_plain(path) | changes
    torch.save({key: value for key, value in content.items() if value is not None}, path)


def change_line(path, number, line):
    """Replaces a line of a text, counted from 0."""
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[number] = line
    path.write_text("\n".join(lines), encoding="utf-8")


def change_args(path, **changes):
    args = load_plain(path)["args"]
    rewrite(path, args=Namespace(**(vars(args) | changes)))


def change_params(path, **changes):
    rewrite(path, params=torch.load(path, weights_only=True)["params"] | changes)


def change_word(path, row, word):
    words = torch.load(path, weights_only=True)["dico_id2word"]
    rewrite(path, dico_id2word=words | {row: word})


def as_in_vocab_json(path):
    """The last word ends in </w>; the others are then pieces within a word."""
    words = json.loads((path / "vocab.json").read_text(encoding="utf-8"))
    words = {f"{word}</w>" if row == len(words) - 1 else word: row for word, row in words.items()}
    (path / "vocab.json").write_text(json.dumps(words), encoding="utf-8")


def with_cross_attention(path):
    rewrite(path, model=torch.load(path, weights_only=True)["model"] | {"encoder_attn": torch.zeros(1)})


#: (kind, what changes its files, message)
FILES = {
    "another piece": (
        "fairseq",
        lambda path: change_line(path.with_name("dict.txt"), 3, "other 1"),
        r"the rows of .*/dict.txt are not those of .*/data-bin/dict.txt: symbol 7 is 'other' there and '.*' here",
    ),
    "order": ("XLM", lambda path: change_word(path, 14, "x"), "mlm_tlm.pth are not those of .*: symbol 4 is 'x' there"),
    "ends of words": ("transformers XLM", as_in_vocab_json, "vocab.json are not those of .*: symbol 4 is '.*@@' "),
    "no symbols": ("fairseq", lambda path: path.with_name("dict.txt").unlink(), "is needed beside model.pt"),
    "no words": ("transformers XLM", lambda path: (path / "vocab.json").unlink(), "vocab.json or tokenizer.json is"),
    "no config": ("transformers", lambda path: (path / "config.json").unlink(), "config.json is needed beside model.s"),
    "activation": ("transformers", lambda path: change_config(path, hidden_act="silu"), "its activation is silu; gelu"),
    "padding": ("transformers", lambda path: change_config(path, pad_token_id=0), "pad_token_id 0, where XLM-R has 1"),
    "no heads": (
        "transformers",
        lambda path: change_config(path, num_attention_heads=None),
        "it stores no num_attention_heads",
    ),
    "no heads in fairseq's": (
        "fairseq",
        lambda path: change_args(path, encoder_attention_heads=None),
        "model.pt: it stores no encoder_attention_heads",
    ),
    "activation of fairseq's": ("fairseq", lambda path: change_args(path, activation_fn="relu"), "activation is relu;"),
    "no settings": ("XLM", lambda path: rewrite(path, params=None), "it stores no gelu_activation"),
    "no dico": ("XLM", lambda path: rewrite(path, dico_id2word=None), "it holds no 'dico_id2word', which lists"),
    "gap": ("XLM", lambda path: change_word(path, 999, "x"), "are not numbered from 0 without a gap"),
    "no <special1>": ("XLM", lambda path: change_word(path, 5, "x"), "has no <special1> among its words"),
    "no languages": ("XLM", lambda path: change_params(path, id2lang=None), "its 'id2lang' doesn't name them all"),
    "names": ("XLM", with_cross_attention, "nothing missing, encoder_attn unexpected"),
    "empty folder": (
        "transformers",
        lambda path: (path / "model.safetensors").unlink(),
        "is a folder without published weights: none of model.safetensors, pytorch_model.bin, model.pt",
    ),
}


@pytest.mark.parametrize("mistake", FILES)
def test_files_that_cannot_be_taken_over(data_bin, make, tmp_path, mistake):
    kind, spoil, sentence = FILES[mistake]
    path, _ = make(kind)
    spoil(path)
    with pytest.raises(UserError, match=sentence) as error:
        start(data_bin, tmp_path, *options_of(kind), "--init-from", path)
    folder = path if path.is_dir() else path.parent
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
