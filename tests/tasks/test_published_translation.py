"""XLM's published translation models, with random weights: translating with them and starting from them."""

import math

import pytest
import torch

from fairseq_xl.commands.model_dictionary import main
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderDecoderConfig
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, evaluated, run_generate, translation
from tests.tasks.initial_weights import initial
from tests.tasks.published_translation import DE, EN, EOS, HEADS, LAYERS, LONGEST, Model
from tests.tasks.tiny_text import EMPTY, LONG, TEST_LINES

FORM = ["--framing", "xlm", "--ffn-dim", 64, "--encoder-layers", LAYERS, "--decoder-layers", LAYERS]


@pytest.fixture(scope="module")
def model(data_bin, tmp_path_factory):
    """A model whose translations of the test set differ in length: the bias of </s> is set for that."""
    model = Model(data_bin, tmp_path_factory.mktemp("xlm") / "mt.pth")
    text = open_text(data_bin / "en-de/test.en-de.en", "en")
    for bias in range(0, 24):
        with torch.no_grad():
            model.decoder.pred_layer.proj.bias[EOS] = bias / 4
        if len({len(model.translation(text[line][:-1].tolist())[0]) for line in range(EMPTY)}) > 1:
            break
    model.write(model.path)
    return model


def generate(data_bin, path, *more):
    search = cli(s="en", t="de", beam=1, min_len=0, max_len_a=0, max_len_b=LONGEST, max_tokens=400)
    return run_generate(evaluated(data_bin, "translation", path, *search, *more))


def test_generate_writes_what_xlm_writes(data_bin, corpus, model):
    output = generate(data_bin, model.path)
    found, scores, sources = (output.lines(kind) for kind in "HPS")
    lengths = set()
    for line in sorted(set(range(TEST_LINES)) - {EMPTY, LONG}):
        source = [model.dictionary.index(symbol) for symbol in sources[line][0].split()]
        expected, expected_scores = model.translation(source)
        lengths.add(len(expected))
        assert found[line][0].split("\t")[1].split() == expected[:-1]
        theirs = [score / math.log(2) for score in expected_scores]
        assert [float(score) for score in scores[line][0].split()] == pytest.approx(theirs, abs=1e-4)
    assert len(lengths) > 1  # some end by themselves


@pytest.mark.parametrize("gelu", [True, False])
def test_training_starts_as_the_published_model(data_bin, tmp_path, gelu):
    """Logits before the first update are the file's."""
    model = Model(data_bin, tmp_path / "mt.pth", gelu)
    activation, stacks = "gelu" if gelu else "relu", cli(init_encoder_from=model.path, init_decoder_from=model.path)
    line = translation(data_bin, tmp_path, *FORM, *cli(s="en", t="de", activation=activation), *stacks)
    state, log = initial(line)
    assert f"{model.path}: published weights, new rows: [en], [de], [fr], embedding of fr" in log
    assert log.count("published weights") == 1
    assert f"decoder from {model.path}: " in log and "new: none" in log
    assert f"{model.path}: not used: encoder.token_embeddings.output_bias" in log
    sizes = dict(embed_dim=16, ffn_dim=64, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS)
    cfg = EncoderDecoderConfig(**sizes, max_positions=MAX_POSITIONS, activation=activation)
    ours = XLEncoderDecoderModel(cfg, model.dictionary).eval()
    ours.load_state_dict(state)
    source, target = [10, 7, 12, 8, 5], [9, 6, 11]
    start = model.dictionary.language_symbol("de")
    with torch.no_grad():
        states = ours.encoder(torch.tensor([[2, *source, 2, 1]]), src_languages=torch.tensor([0]))  # one of padding
        hidden, _ = ours.decoder.extract_features(torch.tensor([[start, *target]]), states)
        logits = ours.decoder.output(hidden)
        given = model.encoder(torch.tensor([EOS, *(model.rows[token] for token in source), EOS]), EN)
        expected = model.decoder(torch.tensor([EOS, *(model.rows[token] for token in target)]), DE, given)
        expected_logits = model.decoder.pred_layer.proj(expected)[:, model.rows]
    torch.testing.assert_close(states["encoder_out"][0][0, :-1], given, atol=1e-5, rtol=0)
    torch.testing.assert_close(hidden[0], expected, atol=1e-5, rtol=0)
    shared = logits[0, :, : model.dictionary.first_language]
    torch.testing.assert_close(shared, expected_logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits.logsumexp(-1), shared.logsumexp(-1)[None], atol=1e-6, rtol=0)  # no share of [xx]


def test_the_dictionary_of_a_file(tmp_path, model):
    """The dictionary for fairseq-preprocess, in our order: pieces, <mask>, the file's languages."""
    main([str(model.path), str(tmp_path / "dict.txt")])
    written, symbols = XLDictionary.load(tmp_path / "dict.txt"), model.dictionary.symbols
    assert written.symbols == [*symbols[: model.dictionary.first_language], "[de]", "[xx]", "[en]"]
    assert written.count[written.index(symbols[5])] == 3 * model.words.index(symbols[5]) and written.count[-1] == 0
    main([str(model.path), str(tmp_path / "dict.txt"), "--langs", "en,fr"])
    assert XLDictionary.load(tmp_path / "dict.txt").languages == ["en", "fr"]
    torch.save([1], tmp_path / "list.pth")
    with pytest.raises(UserError, match="list.pth is not a published model"):
        main([str(tmp_path / "list.pth"), str(tmp_path / "dict.txt")])


def changed(stack, name, to=None):
    """A parameter of a stack becomes `to(its value)`; without `to`, those with a name like this are left out."""

    def change(model):
        state = getattr(model, stack).state_dict()
        if to is None:
            return {stack: {key: value for key, value in state.items() if name not in key}}
        return {stack: state | {name: to(state[name])}}

    return change


def with_params(change):
    return lambda model: {"params": {key: value for key, value in (model.params | change).items() if value is not None}}


class Anything:
    """An object that is no plain data."""


FEWER = [changed(stack, "lang_embeddings.weight", to=lambda rows: rows[:2]) for stack in ("encoder", "decoder")]
#: what changes (a model -> keys of its file), message
MISTAKES = {
    "encoder alone": (
        lambda model: {"model": model.encoder.state_dict(), "encoder": None, "decoder": None},
        "mt.pth holds no decoder; use --init-from to start a translation model from it",
    ),
    "other words": (
        lambda model: {"dico_id2word": dict(enumerate(model.words)) | {20: "other"}},
        "the rows of .*mt.pth are not those of .*dict.txt: symbol 10 is 'other' there and '.*' here",
    ),
    "missing": (
        changed("decoder", "encoder_attn.1.k_lin.weight"),
        "mt.pth: its decoder: the weights are not of this kind of model: encoder_attn.1.k_lin.weight missing, "
        "nothing unexpected",
    ),
    "missing in the encoder": (changed("encoder", "layer_norm1.0.bias"), "layer_norm1.0.bias missing"),
    "no output": (changed("decoder", "pred_layer"), "mt.pth: its decoder: the weights have no output layer"),
    "no decoder's parameters": (
        lambda model: {"decoder": [1]},
        r"mt.pth: its decoder: \[1\] stands where parameters are expected",
    ),
    "untied": (
        changed("decoder", "pred_layer.proj.weight", to=lambda rows: rows + 1),
        "mt.pth: its decoder: pred_layer.proj.weight differs from embeddings.weight",
    ),
    "n_langs": (FEWER[1], "mt.pth: its encoder has 3 language embeddings, its decoder 2"),
    "n_langs of both": (
        lambda model: FEWER[0](model) | FEWER[1](model),
        "mt.pth: it has 2 language embeddings, and its 'id2lang' doesn't name them all",
    ),
    "order": (
        with_params({"lang2id": {"en": 0, "xx": 1, "de": 2}}),
        "mt.pth: its 'id2lang' .* and its 'lang2id' .* number the languages differently",
    ),
    "languages": (
        with_params({"id2lang": {0: "ro", 1: "xx", 2: "en"}, "lang2id": None}),
        "mt.pth was trained for ro-xx, ro-en, xx-ro, xx-en, en-ro, en-xx, not for en-de",
    ),
    "code": (
        lambda model: {"params": Anything()},
        "mt.pth was refused: it holds .*Anything, and a checkpoint may hold only tensors and plain data",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_files_that_cannot_be_used_to_generate(data_bin, model, tmp_path, mistake):
    change, message = MISTAKES[mistake]
    model.write(tmp_path / "mt.pth", **change(model))
    with pytest.raises(UserError, match=message) as error:
        generate(data_bin, tmp_path / "mt.pth")
    assert "\n" not in str(error.value)
