"""NLLB of transformers, with random weights: logits, translations, training, and the folder that goes out."""

import math

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import fairseq_xl
from fairseq_xl.checkpoints.layouts.nllb import sinusoids
from fairseq_xl.commands.model_export import main as export
from fairseq_xl.data.framing import pad_rows
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.objectives.sequence import sequence_terms
from tests.command_line import cli
from tests.commands import CPU, run_train
from tests.tasks.conftest import prepare_here
from tests.tasks.conversion_builders import SENTENCES, TEXT, nllb, original, run  # noqa: F401
from tests.tasks.tiny_text import write

LANGUAGES = "eng_Latn,deu_Latn"
LINES = [*SENTENCES, "a bird", "the green house is in a tree . a bird is green .", "trees"]


@pytest.fixture
def folders(original, data_bin, tmp_path):
    """The published folder, its model, and the folder that it becomes."""
    theirs = nllb(original, data_bin)
    run(original, tmp_path / "ours", "--langs", LANGUAGES)
    return original, theirs.eval(), tmp_path / "ours"


@torch.no_grad()
def test_logits_are_those_of_transformers(folders):
    """Teacher-forced, and step by step as fairseq's generator computes them."""
    original, theirs, ours = folders
    loaded, tokenizer = fairseq_xl.load(ours), AutoTokenizer.from_pretrained(original, src_lang="eng_Latn")
    model, dictionary = loaded.model, loaded.task.dictionary
    inputs = tokenizer(LINES, return_tensors="pt", padding=True)
    text = TextEncoder(ours, dictionary)
    framed = [
        loaded.task.framing.sentence(text(line, "eng_Latn"), dictionary.language_id("eng_Latn")) for line in LINES
    ]
    tokens = torch.from_numpy(pad_rows(framed, dictionary.pad()))
    names = [name.strip("[]") if name.startswith("[") else name for name in dictionary.symbols]
    rows = torch.tensor([tokenizer.convert_tokens_to_ids(name) for name in names])
    real = torch.from_numpy(~dictionary.is_padding)
    assert torch.equal(rows[tokens], inputs["input_ids"])
    target = torch.tensor([[dictionary.language_symbol("deu_Latn"), 9, 5, 30, 2]]).expand(len(LINES), -1)
    starts = torch.full((len(LINES), 1), 2)
    expected = theirs(**inputs, decoder_input_ids=torch.cat((starts, rows[target]), dim=1)).logits[:, 1:, rows[real]]
    state, memory = {}, model.encoder(tokens)
    torch.testing.assert_close(model.decoder(target, memory)[0][..., real], expected, atol=1e-5, rtol=0)
    for length in range(1, target.size(1) + 1):
        step = model.decoder(target[:, :length], memory, state)[0]
        torch.testing.assert_close(step[:, 0, real], expected[:, length - 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("beam", [1, 5])
def test_translations_are_those_of_transformers(folders, tmp_path, beam):
    original, theirs, ours = folders
    run(ours, tmp_path / "back", "--lang", "eng_Latn-deu_Latn")
    model, tokenizer = (kind.from_pretrained(tmp_path / "back") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    settings = model.generation_config
    assert settings.decoder_start_token_id == 2 and settings.forced_bos_token_id == tokenizer.convert_tokens_to_ids(
        "deu_Latn"
    )
    expected = model.generate(**tokenizer(LINES, return_tensors="pt", padding=True), num_beams=beam)
    found = fairseq_xl.load(ours).translate(LINES, "eng_Latn", "deu_Latn", beam=beam)
    assert (beam == 1 or len({*found}) > 2) and tokenizer.batch_decode(expected, skip_special_tokens=True) == found


def test_the_loss_of_a_batch_is_the_sum_of_its_lines(folders):
    _, _, ours = folders
    loaded = fairseq_xl.load(ours)
    dictionary, objective = loaded.task.dictionary, loaded.task.objective
    encode = TextEncoder(ours, dictionary)
    texts = [encode(line, "eng_Latn") for line in LINES]

    def loss(sources, targets):
        ids = [torch.full((len(sources), 1), dictionary.language_id(code)) for code in LANGUAGES.split(",")]
        batch = objective.batch(sources, targets, *ids)
        (term,) = loaded.model(compute=sequence_terms, batch=batch)
        return float(term.sum.detach())

    alone = [loss([source], [target]) for source, target in zip(texts, texts[::-1])]
    assert loss(texts, texts[::-1]) == pytest.approx(sum(alone), abs=1e-3)
    with pytest.raises(
        UserError, match="--decoder-start eos: an exported step of a decoder begins with the target lan"
    ):
        export([str(ours / "checkpoint.pt"), str(ours / "onnx"), "--data", str(ours)])


def test_a_trained_model_goes_out(folders, tmp_path):
    """What M2M100 lacks, positions and an output bias, is frozen unless --freeze names other parameters."""
    original, theirs, ours = folders
    codes = LANGUAGES.split(",")
    for code in codes:
        write(tmp_path / f"train.{code}", TEXT)
    description = {"languages": codes, "bitext": {"-".join(codes): {"train": str(tmp_path / "train")}}}
    prepare_here(description, tmp_path, "data", vocabulary_from=ours)
    task = cli(task="xl_translation", criterion="xl_translation", optimizer="xl_adam", lr=0.01, batch_size=2)
    task += cli(max_update=1, disable_validation=True, source_lang=codes[0], target_lang=codes[1])

    def train(name, *more):
        run_train([tmp_path / "data", *task, "--save-dir", tmp_path / name, *more, *CPU])
        return tmp_path / name / "checkpoint_last.pt"

    again = train("again", "--init-from", train("first", "--init-from", original))
    run(again, tmp_path / "out", "--data", ours, "--lang", "-".join(codes))
    model, tokenizer = (kind.from_pretrained(tmp_path / "out") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    before = theirs.state_dict()
    assert all(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    expected = model.generate(**tokenizer(LINES, return_tensors="pt", padding=True), num_beams=5)
    found = fairseq_xl.load(again, ours).translate(LINES, *codes, beam=5)
    assert tokenizer.batch_decode(expected, skip_special_tokens=True) == found
    for patterns, part in (
        ("decoder.*", "positions in the form of nllb that are not sin"),
        ("*.pos*", "an output bias"),
    ):
        trained = train(part, "--init-from", ours, "--freeze", patterns)
        with pytest.raises(UserError, match=f"no model with {part}.*, as after training without --freeze"):
            run(trained, tmp_path / "none", "--data", ours)


def test_two_channels_have_one_frequency():
    assert sinusoids(4, 2)[3].tolist() == pytest.approx([math.sin(3), math.cos(3)])


def test_m2m100_is_refused(original, data_bin, tmp_path):
    nllb(original, data_bin)
    (original / "tokenizer.json").unlink()
    with pytest.raises(
        UserError, match="its tokenizer is M2M100's; NLLB's can be converted: tokenizer.json with codes"
    ):
        run(original, tmp_path / "ours", "--langs", LANGUAGES)
