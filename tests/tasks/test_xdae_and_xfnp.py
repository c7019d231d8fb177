"""xDAE and xFNP through fairseq's commands: training, resuming, initial weights, generation, mistakes (G4, G5, G6)."""

from functools import partial

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator

from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.engine.initial_weights import transfer_weights
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.sequence import decoder_input, decoder_target, sequence_terms
from tests.command_line import cli
from tests.commands import (
    denoising,
    equal_parameters,
    load,
    pretraining,
    run_train,
    run_validate,
    trained,
    translation,
    validation,
)
from tests.tasks.initial_weights import check_all_trained, initial
from tests.tasks.resuming import check_stop

CROSS = "cross_attention"
SETTINGS = {
    "xdae": "xdae.length=32 xdae.mixed=true xdae.noise=shuffle+drop+mask+infill",
    "xfnp": "xfnp.length=32 xfnp.mixed=true xfnp.span_every=16 xfnp.span_pieces=4",
}
EVERY_UPDATE = cli(updates_per_epoch=4, no_epoch_checkpoints=True, save_interval_updates=1)


def model(name, data, folder, *more):
    return denoising(data, folder, *cli(arch=f"xl_{name}_tiny"), *more, objectives=name)


def line(name, data, folder, *more):
    return model(name, data, folder, *cli(objective_options=SETTINGS[name]), *EVERY_UPDATE, *more)


@pytest.fixture(scope="module", params=list(SETTINGS))
def whole(request, data_bin, tmp_path_factory):
    """Name of the objective, folder and output of a run of 7 updates; an epoch has 4."""
    folder = tmp_path_factory.mktemp("whole")
    return request.param, folder, run_train(line(request.param, data_bin, folder, "--max-update", 7))


def test_training_mixes_languages_and_validation_tells_them_apart(data_bin, whole):
    """Each stream of an xFNP has its perplexities; fairseq-validate scores every token once."""
    name, folder, output = whole
    (sample, *_) = output.samples[1]
    starts = sample["batch"]["prev_output_tokens"][:, 0]
    assert sample["corpus"] == "mixed" and len(starts.unique()) > 1
    assert (starts - starts.min() == sample["batch"]["languages"][:, 0] - sample["batch"]["languages"].min()).all()
    terms = ["xdae"] if name == "xdae" else ["xfnp_1", "xfnp_2"]
    for source in ("mixed", "de", "en", "fr"):
        assert all(f"{term}_{source}_ppl" in output.log for term in terms)
    assert float(output.statistics("ppl")[-1]) > 1
    validated = run_validate(validation(data_bin, folder / "checkpoint_last.pt"))
    assert f"{terms[-1]}_de_ppl" in validated.log and f"{terms[-1]}_mixed_ppl" not in validated.log


def test_every_parameter_is_trained(data_bin, tmp_path, whole):
    name, folder, _ = whole
    before, _ = initial(model(name, data_bin, tmp_path))
    check_all_trained(before, load(folder / "checkpoint_last.pt"))


def test_a_stopped_run_resumes_bit_by_bit(data_bin, tmp_path, whole):
    """In the middle of an epoch or at its end."""
    name, *whole = whole
    check_stop(partial(line, name, data_bin), tmp_path, whole, {"xdae": 2, "xfnp": 4}[name], 7)


def test_it_generates_what_its_decoder_predicts(data_bin, whole):
    """fairseq's beam search, which starts with the language's symbol and has caches, scores as teacher forcing does."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(whole[1] / "checkpoint_last.pt")])
    dictionary, pad = task.dictionary, task.dictionary.pad()
    texts, start = open_text(data_bin / "fr/valid", "fr"), dictionary.language_symbol("fr")
    tokens = torch.from_numpy(pad_rows([task.framing.sentence(texts[n]) for n in range(4)], pad))
    languages = torch.full((4,), dictionary.language_id("fr"))
    net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(pad).sum(1), "src_languages": languages}
    options = dict(beam_size=3, min_len=4, max_len_b=10, normalize_scores=False)
    generator = SequenceGenerator([model.eval()], dictionary, **options)
    beams = generator.generate([model], {"net_input": net_input}, bos_token=start)
    target = torch.from_numpy(pad_rows([beam[0]["tokens"].numpy() for beam in beams], pad))
    batch = {
        "tokens": tokens,
        "padding_mask": tokens.eq(pad),
        "languages": languages[:, None],
        "prev_output_tokens": decoder_input(target, torch.full((4, 1), start)),
        **decoder_target(target, pad),
    }
    with torch.no_grad():
        first, *_ = sequence_terms(model, batch)
    assert first.count == target.ne(pad).sum() >= 4 * 5
    assert -sum(beam[0]["score"].item() for beam in beams) == pytest.approx(first.sum.item(), abs=1e-3)


# Initial weights


@pytest.fixture(scope="module")
def encoders(data_bin, tmp_path_factory):
    """Checkpoints of encoders after an update: two layers in the forms of XLM and XLM-R, one in xFNP's form."""
    root = tmp_path_factory.mktemp("encoders")
    forms = {name: cli(arch=f"xl_{name}_tiny", layers=2) for name in ("xlm", "xlmr")}
    forms["xfnp"] = cli(language_embeddings="none", layer_norm_eps=1e-5)
    more = cli(max_update=1, updates_per_epoch=1, disable_validation=True)
    lines = {name: pretraining(data_bin, root / name, *form, *more, objectives="mlm") for name, form in forms.items()}
    return {name: trained(line) for name, line in lines.items()}


def copied_from(state, encoder_layers):
    """{parameter of an encoder-decoder: parameter of the encoder that it is copied from}, without new ones."""
    found = {}
    for name in state:
        stack, _, rest = name.partition(".")
        if CROSS in name:
            continue
        found[name] = rest if rest.startswith("output.") else f"encoder.{rest}"
        if stack == "decoder" and rest.startswith("layers."):
            number, rest = rest.split(".", 2)[1:]
            found[name] = f"encoder.layers.{encoder_layers[int(number)]}.{rest}"
    return found


@pytest.mark.parametrize(
    "form, which, layers", [("xlm", None, [0]), ("xlm", "last", [1]), ("xlm", "all", [0, 1]), ("xlmr", "first", [0])]
)
def test_an_encoder_fills_encoder_and_decoder(data_bin, tmp_path, encoders, form, which, layers):
    """All of its layers fill the encoder, by default the first ones the decoder; cross-attention is new (G5)."""
    arch = "xl_xdae_tiny" if form == "xlm" else "xl_xdae_xlmr_tiny"
    size = cli(arch=arch, encoder_layers=2, decoder_layers=len(layers), init_from=encoders[form])
    state, log = initial(denoising(data_bin, tmp_path, *size, *(cli(init_decoder_layers=which) if which else [])))
    pretrained, filled = load(encoders[form]), copied_from(state, layers)
    for name, source in filled.items():
        assert torch.equal(state[name], pretrained[source]), name
    assert set(filled.values()) == set(pretrained)
    (report,) = [line for line in log.splitlines() if line.startswith("decoder from ")]
    new = {name.removeprefix("decoder.") for name in state if name not in filled}
    assert set(report.partition("new: ")[2].split(", ")) == new
    assert f"encoder from {encoders[form]}: " in log and f"{encoders[form]}: not used: none" in log


def test_an_encoder_decoder_is_copied(data_bin, tmp_path, whole):
    """Also to a translation model."""
    name, path = whole[0], whole[1] / "checkpoint_last.pt"
    state, log = initial(model(name, data_bin, tmp_path, "--init-from", path))
    assert equal_parameters(state, load(path))
    assert log.count("new: none") == 2 and f"{path}: not used: none" in log
    if name == "xdae":
        both = ["--share-embeddings", "--init-from", path]
        state, _ = initial(translation(data_bin, tmp_path, "-s", "en", "-t", "de", *both))
        assert equal_parameters(state, load(path))


def test_cross_attention_alone_is_trained(data_bin, tmp_path, encoders):
    """As in VECO's first stage."""
    more = ["--encoder-layers", 2, "--init-from", encoders["xlm"], "--train-only", f"*.{CROSS}*"]
    run_train(denoising(data_bin, tmp_path, *more, "--max-update", 2, "--disable-validation"))
    state, pretrained = load(tmp_path / "checkpoint_last.pt"), load(encoders["xlm"])
    for name, source in copied_from(state, [0]).items():
        assert torch.equal(state[name], pretrained[source]), name


def test_an_encoder_fills_the_encoder_of_an_xfnp_alone(data_bin, tmp_path, encoders):
    path = encoders["xfnp"]
    state, log = initial(model("xfnp", data_bin, tmp_path, "--init-from", path))
    anew, _ = initial(model("xfnp", data_bin, tmp_path))
    pretrained = load(path)
    for name, value in state.items():
        assert torch.equal(value, (anew if name.startswith("decoder.") else pretrained)[name]), name
    message = "has no decoder with streams as that of --arch xl_xfnp_tiny has: only its encoder is taken"
    assert f"{path} {message}" in log


@pytest.mark.parametrize("whole", ["xfnp"], indirect=True)
def test_weights_of_another_form(data_bin, tmp_path, whole, encoders):
    path = whole[1] / "checkpoint_last.pt"
    for option, value in (("--relative-distance", 64), ("--relative-buckets", 16)):
        with pytest.raises(UserError, match=f"{path} needs {option} {2 * value}, this run has {value}"):
            initial(model("xfnp", data_bin, tmp_path, option, value, "--init-from", path))
    (xfnp,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    with pytest.raises(UserError, match=f"{encoders['xfnp']} has no decoder with streams: --init-encoder-from"):
        transfer_weights(task, xfnp, {"decoder": str(encoders["xfnp"])})
    pair = cli(s="en", t="de", max_update=1, disable_validation=True)
    separate = trained(translation(data_bin, tmp_path / "separate", *pair))
    message = "--arch xl_xdae_tiny: encoder and decoder of .* have token embeddings of their own"
    with pytest.raises(UserError, match=message):
        initial(denoising(data_bin, tmp_path, "--init-from", separate))


def test_models_and_objectives_that_do_not_go_together(data_bin, tmp_path):
    """One sentence, before training."""
    future = model("xfnp", data_bin, tmp_path)
    for command, sentence in (
        (pretraining(data_bin, tmp_path, objectives="xdae"), "xdae needs an encoder-decoder: --arch xl_xdae_tiny, xl_"),
        (
            denoising(data_bin, tmp_path, "--arch", "xl_xfnp_tiny"),
            "xdae predicts one token at a step: --arch xl_xdae_tiny",
        ),
        (denoising(data_bin, tmp_path, objectives="mlm"), "mlm needs an encoder: --arch xl_xlm_tiny and the like"),
        (
            translation(data_bin, tmp_path, "-s", "en", "-t", "de", "--arch", "xl_xdae_tiny"),
            "--arch xl_xdae_tiny: xl_translation runs encoder-decoders of xl_mt_",
        ),
        (
            [*future, "--predicting-streams", 3],
            "xfnp.stream_weights=1,1 are 2, and the model has --predicting-streams 3",
        ),
        ([*future, "--relative-buckets", 1], "--relative-buckets 1 should be from 2 to"),
        ([*future, "--objective-options", "xfnp.length=41"], "xfnp.length=41 needs 41 positions"),
        (
            [*future, "--arch", "xl_xdae_tiny"],
            "xfnp needs an encoder-decoder that predicts several tokens at each position",
        ),
    ):
        with pytest.raises(UserError, match=sentence):
            run_train(command)
    assert not list(tmp_path.glob("*.pt"))
