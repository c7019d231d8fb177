"""XLM's published translation models, with random weights: translating with them and starting from them."""

import math

import pytest
import torch
from torch import nn

from fairseq_xl.commands.model_dictionary import main
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import EncoderDecoderConfig
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, evaluated, load, run_generate, run_train, translation
from tests.tasks.tiny_text import EMPTY, LONG, TEST_LINES
from tests.tasks.xlm_reference import Transformer, translate

SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]
EOS = SPECIAL.index("</s>")
LANGUAGES = ["de", "xx", "en"]  # of the file; ours are en, de, fr
EN, DE = LANGUAGES.index("en"), LANGUAGES.index("de")
LAYERS, HEADS, LONGEST = 2, 2, 12
FORM = ["--framing", "xlm", "--ffn-dim", 64, "--encoder-layers", LAYERS, "--decoder-layers", LAYERS]


class Model:
    """The file of a translation model, and its two stacks."""

    def __init__(self, data_bin, path, gelu=True):
        self.dictionary, self.path = XLDictionary.load(data_bin / "dict.txt"), path
        symbols = self.dictionary.symbols[: self.dictionary.first_language]
        self.words = [*SPECIAL, *symbols[4:-1]]
        numbers = {language: number for number, language in enumerate(LANGUAGES)}
        self.params = dict(emb_dim=16, n_layers=LAYERS, n_heads=HEADS, n_langs=len(LANGUAGES), gelu_activation=gelu)
        self.params |= dict(positions=MAX_POSITIONS, share_inout_emb=True, mt_steps=[("en", "de")])
        self.params |= dict(id2lang=dict(enumerate(LANGUAGES)), lang2id=numbers)
        place = {word: row for row, word in enumerate(self.words)} | {"<mask>": SPECIAL.index("<special1>")}
        self.rows = [place[symbol] for symbol in symbols]  # theirs of each of our ids
        self.encoder, self.decoder = (Transformer(self.params, len(self.words), first) for first in (True, False))
        torch.manual_seed(4)
        for name, parameter in (*self.encoder.named_parameters(), *self.decoder.named_parameters()):
            nn.init.normal_(parameter, float("norm" in name and name.endswith("weight")), 0.3)
        with torch.no_grad():  # as after training: of the symbols, </s> alone is predicted
            self.decoder.pred_layer.proj.bias[: len(SPECIAL)] = -100.0
            self.decoder.pred_layer.proj.bias[EOS] = 3.0
        self.write()

    def write(self, **changes):
        """Writes the file; None leaves a key out."""
        words = dict(enumerate(self.words))
        content = {
            "epoch": 7,
            "best_metrics": {"valid_en-de_mt_bleu": 26.4},
            "params": self.params,
            "encoder": self.encoder.state_dict(),
            "decoder": self.decoder.state_dict(),
            "dico_id2word": words,
            "dico_word2id": {word: row for row, word in words.items()},
            "dico_counts": {word: 3 * row for row, word in words.items()},
        }
        torch.save({key: value for key, value in (content | changes).items() if value is not None}, self.path)

    @torch.no_grad()
    def translation(self, source, longest=LONGEST):
        """Our ids of a sentence without </s> -> their greedy translation: symbols and log-probabilities."""
        source = [self.rows[token] for token in source]
        found, scores = translate(self.encoder, self.decoder, source, (EN, DE), EOS, longest)
        return [self.words[row] for row in found], scores


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
    model.write()
    return model


@pytest.fixture
def own(data_bin, tmp_path):
    """A model whose file a test may damage."""
    return Model(data_bin, tmp_path / "mt.pth")


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
    """After two updates with learning rate 0 the checkpoint's logits are the file's."""
    model = Model(data_bin, tmp_path / "mt.pth", gelu)
    line = translation(
        data_bin,
        tmp_path,
        *FORM,
        *cli(s="en", t="de", init_encoder_from=model.path, init_decoder_from=model.path),
        *cli(activation="gelu" if gelu else "relu", max_update=2, lr=0, disable_validation=True),
    )
    output = run_train(line)
    assert f"{model.path}: published weights, new rows: [en], [de], [fr], embedding of fr" in output.log
    assert output.log.count("published weights") == 1 and "decoder from " in output.log
    assert f"decoder from {model.path}: " in output.log and "new: none" in output.log
    assert f"{model.path}: not used: encoder.token_embeddings.output_bias" in output.log
    sizes = dict(embed_dim=16, ffn_dim=64, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS)
    cfg = EncoderDecoderConfig(**sizes, max_positions=MAX_POSITIONS, activation="gelu" if gelu else "relu")
    ours = XLEncoderDecoderModel(cfg, model.dictionary).eval()
    ours.load_state_dict(load(tmp_path / "checkpoint_last.pt"))
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


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


def spoiled(model, mistake):
    """Writes the file with an error."""
    encoder, decoder = model.encoder.state_dict(), model.decoder.state_dict()
    if mistake == "encoder alone":
        model.write(model=encoder, encoder=None, decoder=None)
    elif mistake == "other words":
        model.words[20] = "other"
        model.write()
    elif mistake == "missing":
        model.write(decoder=without(decoder, "encoder_attn.1.k_lin.weight"))
    elif mistake == "missing in the encoder":
        model.write(encoder=without(encoder, "layer_norm1.0.bias"))
    elif mistake == "no output":
        model.write(decoder={name: value for name, value in decoder.items() if "pred_layer" not in name})
    elif mistake == "no decoder's parameters":
        model.write(decoder=[1])
    elif mistake == "untied":
        model.write(decoder=decoder | {"pred_layer.proj.weight": decoder["embeddings.weight"] + 1})
    elif mistake == "n_langs":
        model.write(decoder=decoder | {"lang_embeddings.weight": decoder["lang_embeddings.weight"][:2]})
    elif mistake == "n_langs of both":
        languages = encoder["lang_embeddings.weight"][:2]
        both = {"lang_embeddings.weight": languages}
        model.write(encoder=encoder | both, decoder=decoder | both)
    elif mistake == "order":
        model.params["lang2id"] = {"en": 0, "xx": 1, "de": 2}
        model.write()
    elif mistake == "languages":
        model.params["id2lang"] = {0: "ro", 1: "xx", 2: "en"}
        model.params.pop("lang2id")
        model.write()
    elif mistake == "code":
        model.write(params=Anything())


class Anything:
    """An object that is no plain data."""


MISTAKES = {
    "encoder alone": "mt.pth holds no decoder; use --init-from to start a translation model from it",
    "other words": "the rows of .*mt.pth are not those of .*dict.txt: symbol 10 is 'other' there and '.*' here",
    "missing": "mt.pth: its decoder: the weights are not of this kind of model: encoder_attn.1.k_lin.weight missing, "
    "nothing unexpected",
    "missing in the encoder": "layer_norm1.0.bias missing",
    "no output": "mt.pth: its decoder: the weights have no output layer",
    "no decoder's parameters": r"mt.pth: its decoder: \[1\] stands where parameters are expected",
    "untied": "mt.pth: its decoder: pred_layer.proj.weight differs from embeddings.weight",
    "n_langs": "mt.pth: its encoder has 3 language embeddings, its decoder 2",
    "n_langs of both": "mt.pth: it has 2 language embeddings, and its 'id2lang' doesn't name them all",
    "order": "mt.pth: its 'id2lang' .* and its 'lang2id' .* number the languages differently",
    "languages": "mt.pth was trained for ro-xx, ro-en, xx-ro, xx-en, en-ro, en-xx, not for en-de",
    "code": "mt.pth was refused: it holds .*Anything, and a checkpoint may hold only tensors and plain data",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_files_that_cannot_be_used_to_generate(data_bin, own, mistake):
    spoiled(own, mistake)
    with pytest.raises(UserError, match=MISTAKES[mistake]) as error:
        generate(data_bin, own.path)
    assert "\n" not in str(error.value)
