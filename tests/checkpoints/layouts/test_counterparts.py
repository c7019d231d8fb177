"""Our models with random weights as folders of transformers: the same hidden states and logits there."""

import dataclasses
import subprocess
from dataclasses import fields

import pytest
import torch
from torch import nn

from fairseq_xl.checkpoints.conversion import counterpart, sentence_encoder
from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.checkpoints.layouts.exported_folders import write_fairseq, write_transformers
from fairseq_xl.checkpoints.layouts.plugin_checkpoint import Own, for_languages
from fairseq_xl.errors import UserError
from fairseq_xl.inference.task_types import transformers_heads
from fairseq_xl.io.folders import new_folder
from fairseq_xl.models.denoising import XLDenoisingModel
from fairseq_xl.models.encoder import XLEncoderModel, XLVecoModel
from fairseq_xl.models.encoder_decoder import XLEncoderDecoderModel
from fairseq_xl.models.model_options import DenoisingConfig, EncoderConfig, EncoderDecoderConfig, NgramDecoderConfig
from fairseq_xl.models.monotrans import MonoTransConfig, XLMonoTransModel
from fairseq_xl.models.ngram_decoder import XLNgramDecoderModel
from tests.warm_python import python

PAD = 1
TOKENS = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 2, PAD, PAD], [0, 2, PAD, PAD, PAD, PAD]])
REAL = TOKENS.ne(PAD)
TARGET = torch.tensor([[21, 6, 8, 7], [22, 9, 2, 6], [23, 11, 12, 4]])
SIZES = dict(embed_dim=16, ffn_dim=64, heads=2, max_positions=10, layer_norm_eps=1e-6)
XLM_R = SIZES | dict(layers=3, language_embeddings="none", output_form="dense")
XLM = SIZES | dict(layers=3, activation="relu")
SEQ2SEQ = SIZES | dict(encoder_layers=3, decoder_layers=2, language_embeddings="none")
PLAIN_HEAD = nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 3))


def pooled():
    head = nn.Sequential()
    for name, module in (("pooler", nn.Linear(16, 16)), ("tanh", nn.Tanh()), ("output", nn.Linear(16, 3))):
        head.add_module(name, module)
    return head


@pytest.fixture
def make(dictionary):
    """Makes a model of a class with random weights, and the `Own` of its checkpoint."""

    def made(model_class, config, heads=None, **identity):
        torch.manual_seed(0)
        if issubclass(model_class, XLEncoderModel):
            more = [dictionary.shared] if model_class is XLMonoTransModel else []
            model = model_class(config, len(dictionary), dictionary.pad(), dictionary.num_languages, *more)
        else:
            model = model_class(config, dictionary)
        if heads:
            model.add_heads(heads)
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            nn.init.normal_(parameter, mean=mean, std=0.3)
        from fairseq_xl.checkpoints.language_modules import without_special

        state = without_special(model.state_dict(), 3)
        languages = list(dictionary.languages) if "encoder.embeddings.languages.weight" in state else []
        options = dataclasses.asdict(config) | {"framing": "xl"}
        own = Own("model.pt", options, state, dictionary, languages, [], False, 0.1, 10, None, {})
        absent = {each.name: each.metadata["absent"] for each in fields(config) if "absent" in each.metadata}
        own = dataclasses.replace(own, absent=absent, head_class=transformers_heads().get(identity.get("head")))
        return model.eval(), dataclasses.replace(own, **identity)

    return made


def loaded(own, folder, kind, head=True, dtype="float32"):
    """The model that transformers reads from the folder, which has all of its parameters."""
    import transformers

    with new_folder(folder) as path:
        write_transformers(path, counterpart(own, head), dtype, None, None, None)
    model, report = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"], report
    return model.eval()


def states_of(model, **inputs):
    padding = TOKENS.eq(PAD)
    return model.encoder(TOKENS, padding_mask=padding, all_layers=True, **inputs)


@torch.no_grad()
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("model_class", [XLEncoderModel, XLVecoModel])
def test_xlm_roberta(make, tmp_path, model_class, offset):
    model, own = make(model_class, EncoderConfig(**XLM_R, position_offset=offset))
    theirs = loaded(own, tmp_path / "out", "AutoModelForMaskedLM")
    assert type(theirs).__name__ == "XLMRobertaForMaskedLM"
    result = theirs(TOKENS, attention_mask=REAL.long(), output_hidden_states=True)
    states = states_of(model)
    for found, expected in zip(result.hidden_states, states):
        torch.testing.assert_close(found[REAL], expected[REAL], atol=1e-5, rtol=0)
    torch.testing.assert_close(result.logits[REAL], model.output(states[-1])[REAL], atol=1e-5, rtol=0)
    assert counterpart(own).left_out == (["cross_attention"] if model_class is XLVecoModel else [])


@torch.no_grad()
def test_xlm_with_and_without_language_embeddings(make, tmp_path):
    model, own = make(XLEncoderModel, EncoderConfig(**XLM))
    languages = torch.tensor([[0], [1], [2]])
    theirs = loaded(own, tmp_path / "all", "AutoModelForMaskedLM")
    result = theirs(TOKENS, attention_mask=REAL.long(), langs=languages.expand_as(TOKENS), output_hidden_states=True)
    states = states_of(model, languages=languages)
    torch.testing.assert_close(result.logits[REAL], model.output(states[-1])[REAL], atol=1e-5, rtol=0)
    assert theirs.config.lang2id == {"de": 0, "en": 1, "fr": 2} and theirs.config.id2lang == {
        "0": "de",
        "1": "en",
        "2": "fr",
    }

    french = loaded(for_languages(own, "fr"), tmp_path / "fr", "AutoModelForMaskedLM")
    result = french(TOKENS, attention_mask=REAL.long())
    states = states_of(model, languages=torch.full((3, 1), 2))
    torch.testing.assert_close(result.logits[REAL], model.output(states[-1])[REAL], atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("positions", [False, True])
def test_a_body_with_one_language_module_is_bert(make, tmp_path, positions):
    form = XLM_R
    model, own = make(XLMonoTransModel, MonoTransConfig(**form, language_positions=positions))
    theirs = loaded(own, tmp_path / "out", "AutoModelForMaskedLM")
    segments = (torch.arange(6) > 2).long().expand_as(TOKENS)
    result = theirs(TOKENS, attention_mask=REAL.long(), token_type_ids=segments, output_hidden_states=True)
    states = states_of(model, segments=segments)
    assert type(theirs).__name__ == "BertForMaskedLM"
    torch.testing.assert_close(result.logits[REAL], model.output(states[-1])[REAL], atol=1e-5, rtol=0)


CLASSIFIERS = {
    "xlm-roberta": (XLM_R, pooled, "XLMRobertaForSequenceClassification"),
    "xlm-roberta without pooler": (XLM_R, lambda: PLAIN_HEAD, "XLMForSequenceClassification"),
    "xlm": (XLM, lambda: PLAIN_HEAD, "XLMForSequenceClassification"),
    "bert": (XLM_R | dict(segment_embeddings="added"), pooled, "BertForSequenceClassification"),
}


@torch.no_grad()
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers(make, tmp_path, kind):
    form, head, expected = CLASSIFIERS[kind]
    identity = dict(type_state={"labels": ["no", "perhaps", "yes"], "num_texts": 1}, head_dropout=0.3)
    heads = {"classification": head()}
    model, own = make(XLEncoderModel, EncoderConfig(**form), heads, head="classification", **identity)
    assert kind != "xlm-roberta" or counterpart(own).config["classifier_dropout"] == 0.3
    theirs = loaded(own, tmp_path / "out", "AutoModelForSequenceClassification")
    assert type(theirs).__name__ == expected and theirs.config.id2label == {0: "no", 1: "perhaps", 2: "yes"}
    languages = torch.tensor([[0], [1], [2]])
    inputs = {"langs": languages.expand_as(TOKENS)} if own.languages else {}
    logits = theirs(TOKENS, attention_mask=REAL.long(), **inputs).logits
    hidden = states_of(model, languages=languages)[-1]
    torch.testing.assert_close(logits, model.heads["classification"](hidden[:, 0]), atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("form, kind", [(XLM_R, "XLMRoberta"), (XLM, "XLM")])
@pytest.mark.parametrize("head", ["tagging", "question_answering"])
def test_heads_of_every_token(make, tmp_path, form, kind, head):
    outputs = 2 if head == "question_answering" else 3
    heads = {head: nn.Sequential(nn.Dropout(0.1), nn.Linear(16, outputs))}
    state = {"labels": ["A", "B", "C"]} if head == "tagging" else {}
    model, own = make(XLEncoderModel, EncoderConfig(**form), heads, head=head, type_state=state)
    auto = "AutoModelForTokenClassification" if head == "tagging" else "AutoModelForQuestionAnswering"
    if kind == "XLM" and head == "question_answering":
        auto = "XLMForQuestionAnsweringSimple"
    theirs = loaded(own, tmp_path / "out", auto)
    languages = torch.tensor([[0], [1], [2]])
    inputs = {"langs": languages.expand_as(TOKENS)} if own.languages else {}
    result = theirs(TOKENS, attention_mask=REAL.long(), **inputs)
    expected = model.heads[head](states_of(model, languages=languages)[-1])
    found = result.logits if head == "tagging" else torch.stack((result.start_logits, result.end_logits), -1)
    torch.testing.assert_close(found[REAL], expected[REAL], atol=1e-5, rtol=0)


SEQ2SEQS = {
    "mbart": (dict(layer_norm="pre", embedding_scale="sqrt", share_embeddings=True, layer_norm_eps=1e-5), "MBart"),
    "bart": (dict(share_embeddings=True, layer_norm_eps=1e-5), "Bart"),
    "bart, two tables": (dict(layer_norm_eps=1e-5), "Bart"),
    "XLM's form": (dict(share_embeddings=True, layer_norm_eps=1e-12), "Bart"),
    "XLM's form, two tables": (dict(layer_norm_eps=1e-12), "Bart"),
    "pre-LN, two tables": (dict(layer_norm="pre", layer_norm_eps=1e-12), "MBart"),
    "XLM-R's form": (dict(output_form="dense", position_offset=2, share_embeddings=True), "EncoderDecoderModel"),
    "language embeddings": (dict(language_embeddings="added"), "Bart"),
    "xDAE": (dict(output_form="dense"), "EncoderDecoderModel"),
}


@torch.no_grad()
@pytest.mark.parametrize("kind", SEQ2SEQS)
def test_encoder_decoders(make, tmp_path, dictionary, kind):
    form, name = SEQ2SEQS[kind]
    model_class, config = XLEncoderDecoderModel, EncoderDecoderConfig
    if kind == "xDAE":
        model_class, config = XLDenoisingModel, DenoisingConfig
    model, own = make(model_class, config(**SEQ2SEQ | form))
    target, languages = TARGET, None
    if kind == "language embeddings":
        own, languages = for_languages(own, "de", "fr"), torch.tensor([0, 0, 0])
        target = torch.cat((torch.full((3, 1), 23), TARGET[:, 1:]), dim=1)
    theirs = loaded(own, tmp_path / "out", "AutoModelForSeq2SeqLM")
    assert type(theirs).__name__.startswith(name)
    found = theirs(input_ids=TOKENS, attention_mask=REAL.long(), decoder_input_ids=target).logits
    out = model.encoder(TOKENS, src_languages=languages)
    expected, _ = model.decoder(target, out)
    other_eps = own.options["layer_norm_eps"] == 1e-12  # BART's is 1e-5; logits are up to 8
    torch.testing.assert_close(found, expected, atol=3e-5 if other_eps else 1e-5, rtol=0)


@torch.no_grad()
def test_a_causal_language_model_stays_causal(make, tmp_path):
    model, own = make(XLEncoderModel, EncoderConfig(**XLM | dict(language_embeddings="none")), is_causal=True)
    theirs = loaded(own, tmp_path / "out", "AutoModelForMaskedLM")
    found = theirs(TOKENS, attention_mask=REAL.long()).logits
    hidden = model.encoder(TOKENS, causal=True)
    torch.testing.assert_close(found[REAL], model.output(hidden)[REAL], atol=1e-5, rtol=0)
    _, own = make(XLEncoderModel, EncoderConfig(**XLM_R), is_causal=True)
    with pytest.raises(UserError, match="causal attention in an encoder of XLM-R's form"):
        counterpart(own)


@pytest.mark.parametrize("framing", ["xl", "xlm"])
def test_the_framing_comes_back(make, framing):
    forms = [EncoderDecoderConfig(**SEQ2SEQ | SEQ2SEQS[kind][0]) for kind in ("mbart", "bart")]
    for config in (EncoderConfig(**XLM), *forms):
        _, own = make(XLEncoderDecoderModel if config in forms else XLEncoderModel, config)
        own = dataclasses.replace(own, options=own.options | {"framing": framing})
        found = counterpart(own)
        assert found.layout.options(found.config, own.state)["framing"] == framing


def test_16_bits_are_those_of_the_checkpoint(make, tmp_path):
    _, own = make(XLEncoderModel, EncoderConfig(**XLM_R))
    theirs = loaded(own, tmp_path / "out", "AutoModelForMaskedLM", dtype="float16")
    value = theirs.state_dict()["roberta.encoder.layer.1.intermediate.dense.weight"]
    assert value.dtype == torch.float16 and torch.equal(value, own.state["encoder.layers.1.ffn.up.weight"].half())
    own.state["encoder.layers.0.ffn.up.weight"][0, 0] = 1e5
    with pytest.raises(UserError, match="--dtype float16: .*intermediate.dense.weight has values that are too large"):
        write_transformers(tmp_path, counterpart(own), "float16", None, None, None)
    write_transformers(tmp_path, counterpart(own), "bfloat16", None, None, None)


REFUSED = {
    "language embeddings, dense": (XLEncoderModel, EncoderConfig(**SIZES, output_form="dense"), "for one language"),
    "ffn": (XLEncoderModel, EncoderConfig(**XLM | dict(ffn_dim=32)), "--ffn-dim 32 in XLM's form, where it is 4 times"),
    "relu in BERT's form": (
        XLEncoderModel,
        EncoderConfig(**XLM_R | dict(segment_embeddings="added", activation="relu")),
        "relu in the layers and gelu in the output layer",
    ),
    "pre-LN": (XLEncoderModel, EncoderConfig(**XLM_R, layer_norm="pre"), "--layer-norm pre"),
    "scaled": (XLEncoderModel, EncoderConfig(**XLM_R, embedding_scale="sqrt"), "--embedding-scale sqrt"),
    "adapters": (XLMonoTransModel, MonoTransConfig(**XLM_R, adapters=4), "--adapters 4"),
    "segments, plain": (
        XLEncoderModel,
        EncoderConfig(**SIZES, language_embeddings="none", segment_embeddings="added"),
        "segment embeddings together with a plain output layer",
    ),
    "streams": (XLNgramDecoderModel, NgramDecoderConfig(**SEQ2SEQ), "predicting streams \\(xFNP\\)"),
    "both languages": (XLEncoderDecoderModel, EncoderDecoderConfig(**SIZES), "--lang XX-YY exports it for one"),
    "pre-LN, dense": (
        XLEncoderDecoderModel,
        EncoderDecoderConfig(**SEQ2SEQ, layer_norm="pre", output_form="dense"),
        "pre-LN layers with a dense output layer",
    ),
    "epsilon": (
        XLEncoderDecoderModel,
        EncoderDecoderConfig(**SEQ2SEQ | dict(layer_norm_eps=1e-3)),
        "--layer-norm-eps 0.001, above 1e-05",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_counterpart_is_refused_with_the_reason(make, kind):
    model_class, config, reason = REFUSED[kind]
    _, own = make(model_class, config)
    with pytest.raises(
        UserError, match=f"model.pt has no counterpart in transformers, which has no model with .*{reason}"
    ):
        counterpart(own)


def test_a_pre_ln_encoder_is_not_cut(make):
    _, own = make(XLEncoderModel, EncoderConfig(**XLM_R, layer_norm="pre", embedding_norm="none"))
    assert sentence_encoder(own, 3).config["architectures"] == ["XLMRobertaXLModel"]
    with pytest.raises(
        UserError, match="--layer 2: model.pt has pre-LN layers, so only the last one, 3, has a LayerNo"
    ):
        sentence_encoder(own, 2)


def test_a_head_without_counterpart_is_refused_and_its_encoder_is_not(make, tmp_path):
    _, own = make(XLEncoderModel, EncoderConfig(**XLM_R), {"relevance": PLAIN_HEAD}, head="relevance")
    with pytest.raises(UserError, match="fine-tuned for relevance, which has no head in transformers: --no-head"):
        counterpart(own)
    assert counterpart(own, head=False).left_out == ["heads.relevance"]
    _, own = make(XLEncoderModel, EncoderConfig(**XLM), {"classification": PLAIN_HEAD}, head="classification")
    own.options["pooling"] = "max"
    with pytest.raises(UserError, match="no model with a classifier that reads pooled hidden states .--pooling max"):
        counterpart(own)
    _, own = make(XLEncoderModel, EncoderConfig(**XLM_R), {"classification": pooled()}, head="classification")
    own.options["pooler_activation"] = "relu"
    with pytest.raises(UserError, match="no model with --pooler-activation relu in the form of xlm-roberta"):
        counterpart(own)


PLAIN_FAIRSEQ = """
import sys, torch
from fairseq import checkpoint_utils
folder, tokens, output = sys.argv[1:]
(model,), _, task = checkpoint_utils.load_model_ensemble_and_task([f"{folder}/model.pt"], {"data": folder})
assert not any(name.startswith("fairseq_xl") for name in sys.modules)
with torch.no_grad():
    torch.save((task.source_dictionary.symbols, model.eval()(torch.load(tokens))[0]), output)
"""


@torch.no_grad()
@pytest.mark.parametrize("kind", ["XLM-R", "MonoTrans"])
def test_fairseq_without_this_package_reads_our_roberta(make, tmp_path, kind):
    form = XLM_R | dict(layer_norm_eps=1e-5)
    if kind == "XLM-R":
        model, own = make(XLEncoderModel, EncoderConfig(**form))
    else:  # the first token has no position
        cfg = MonoTransConfig(**form, segment_embeddings="none", language_positions=True)
        model, own = make(XLMonoTransModel, cfg)
    with new_folder(tmp_path / "out") as folder:
        write_fairseq(folder, own, "float32", None)
    torch.save(TOKENS, tmp_path / "tokens")
    arguments = [str(tmp_path / name) for name in ("out", "tokens", "logits")]
    subprocess.run([python(), "-c", PLAIN_FAIRSEQ, *arguments], check=True, capture_output=True, cwd=tmp_path)
    symbols, logits = torch.load(tmp_path / "logits")
    assert symbols == own.dictionary.symbols
    torch.testing.assert_close(logits[REAL], model.output(states_of(model)[-1])[REAL], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "form, reason",
    [
        (XLM, "it is not of XLM-R's form"),
        (XLM_R, "--layer-norm-eps is 1e-06, not 1e-05"),
        (SEQ2SEQ, "it has a decoder"),
    ],
)
def test_export_to_fairseq_refuses_other_forms(make, tmp_path, form, reason):
    kinds = (XLEncoderDecoderModel, EncoderDecoderConfig) if form is SEQ2SEQ else (XLEncoderModel, EncoderConfig)
    _, own = make(kinds[0], kinds[1](**form))
    with pytest.raises(UserError, match=f"model.pt cannot be exported as fairseq's RobertaModel: {reason}"):
        write_fairseq(tmp_path, own, "float32", None)


@pytest.mark.parametrize("kind", ["bart", "bart, two tables", "mbart", "XLM-R's form"])
def test_encoder_decoders_come_back_bit_equal(make, kind):
    form, _ = SEQ2SEQS[kind]
    _, own = make(XLEncoderDecoderModel, EncoderDecoderConfig(**SEQ2SEQ | form))
    found = counterpart(own)
    state = found.layout.to_ours(found.weights, found.config)
    options = found.layout.options(found.config, state)
    assert state.keys() == own.state.keys()
    rows = {"encoder.embeddings.positions.weight", "decoder.embeddings.positions.weight"}
    for name, value in own.state.items():
        first = [each["position_offset"] if name in rows else 0 for each in (options, own.options)]
        assert torch.equal(state[name][first[0] :], value[first[1] :]), name
    for name in ("heads", "embed_dim", "ffn_dim", "activation", "layer_norm_eps", "output_form", "share_embeddings"):
        assert options[name] == own.options[name], name


def test_settings_that_our_layers_do_not_compute_are_refused(make):
    for layout, settings, message in (
        ("xlm-roberta", {"is_decoder": True}, "its is_decoder is True; only False can be converted"),
        ("xlm", {"causal": True}, "its causal is True"),
        ("bert", {"position_embedding_type": "relative_key"}, "only absolute can be converted"),
    ):
        with pytest.raises(UserError, match=message):
            LAYOUTS[layout].options(settings, {})
    _, own = make(XLEncoderDecoderModel, EncoderDecoderConfig(**SEQ2SEQ, output_form="dense"))
    pair = counterpart(own)
    for change, message in (
        ({"model_type": "gpt2"}, "its encoder and decoder are xlm-roberta and gpt2"),
        ({"hidden_act": "relu"}, "its encoder and decoder differ in hidden_act: gelu and relu"),
    ):
        with pytest.raises(UserError, match=message):
            pair.layout.to_ours(pair.weights, pair.config | {"decoder": pair.config["decoder"] | change})
