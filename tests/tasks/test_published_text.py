"""Text with published vocabularies, from the description to predictions and generated text."""

import json
import shutil
from functools import partial

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertTokenizer, XLMConfig, XLMWithLMHeadModel
from transformers.models.xlm.tokenization_xlm import XLMTokenizer

import fairseq_xl
from fairseq_xl.commands import model_convert
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import Embedder
from tests.command_line import cli
from tests.commands import (
    MAX_POSITIONS,
    classification,
    denoising,
    generation,
    pretraining,
    run_generate,
    run_interactive,
    run_train,
    run_validate,
    trained,
    translation,
)
from tests.published_text import SPECIAL
from tests.tasks.initial_weights import initial
from tests.tasks.published_data import (
    RAW,
    WORDS_OF_RAW,
    data,  # noqa: F401
)
from tests.tasks.published_models import XLM_SIZES
from tests.tasks.tiny_text import sentences


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Labeled sentences and titles in raw text with capitals and quotation marks."""
    root = tmp_path_factory.mktemp("files")
    for split in ("train", "valid", "test"):
        for code, lines in sentences(("en", "de"), 12, split).items():
            texts = [f"“{line.title()}”" for line in lines]
            labeled = [f"{'ab'[number % 2]}\t{text}" for number, text in enumerate(texts)]
            for name, content in ((f"{code}.tsv", labeled), (f"{code}.src", texts), (f"{code}.tgt", texts)):
                (root / f"{split}.{name}").write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    return root


def is_xlm(data):
    return (data / "xlm.codes").is_file()


def rows(output):
    """The training rows of a run, without padding."""
    return {
        tuple(token for token in row if token != 1)
        for samples in output.samples.values()
        for sample in samples
        for row in sample["batch"]["tokens"].tolist()
    }


def test_from_the_description_to_predictions(data, files, tmp_path):
    """Two updates of pre-training, one of fine-tuning on raw text, predictions for every line."""
    run_train(pretraining(data, tmp_path / "pre", *cli(max_update=2, updates_per_epoch=2)))
    line = classification(data, files, tmp_path / "run", *cli(init_from=tmp_path / "pre/checkpoint_last.pt"))
    output = run_train([*line, "--max-update", 1])
    dictionary = XLDictionary.load(data / "dict.txt")
    encode = TextEncoder(data, dictionary)
    texts = {
        line.partition("\t")[2]: code
        for code in ("en", "de")
        for line in (files / f"train.{code}.tsv").read_text(encoding="utf-8").splitlines()
    }
    assert len(rows(output)) > 1 and rows(output) <= {(0, *encode(text, code).tolist()) for text, code in texts.items()}
    for text, code in texts.items():
        if is_xlm(data):
            assert dictionary.string(encode(text, code), "@@ ") == f'" {text[1:-1].lower()} "'
    to = tmp_path / "predictions"
    task = cli(task="xl_classification", path=tmp_path / "run/checkpoint_last.pt", user_dir="fairseq_xl", batch_size=8)
    run_validate([data, *task, *cli(eval_langs="de", predictions_to=to, valid_subset="test")])
    assert len((to / "test.de.tsv").read_text(encoding="utf-8").splitlines()) == 12
    embedder = Embedder(tmp_path / "pre/checkpoint_last.pt", data)
    assert embedder.rows([RAW], "en")[0].tolist() == [0, *encode(RAW, "en").tolist()]


@pytest.fixture(scope="module")
def titles(data, files, tmp_path_factory):
    """A model after one update on the titles."""
    folder = tmp_path_factory.mktemp("titles")
    return trained(generation(data, files, folder, *cli(max_update=1, disable_validation=True)))


def test_an_exported_classifier_of_pairs_names_the_other_framing(data, tmp_path, caplog):
    """XLMTokenizer puts one </s> between two texts, our framing two."""
    for split in ("train", "valid"):
        for code in ("en", "de"):
            lines = sentences(("en", "de"), 8, split)[code]
            content = (f"{'ab'[number % 2]}\t{line}\t{line}\n" for number, line in enumerate(lines))
            (tmp_path / f"{split}.{code}.tsv").write_text("".join(content), encoding="utf-8")
    more = cli(ffn_dim=64, max_update=1, disable_validation=True)
    run_train([*classification(data, tmp_path, tmp_path / "run"), *more])
    checkpoint = tmp_path / "run/checkpoint_last.pt"
    model_convert.main([*map(str, (checkpoint, tmp_path / "out", "--data", data)), "--lang", "en"])
    warning = "was fine-tuned on pairs: XLMTokenizer puts one </s> between two texts, and this package two"
    assert (warning in caplog.text) == is_xlm(data)


def test_an_exported_translation_model_is_read_back_with_its_sub_words(data, tmp_path):
    run_train(translation(data, tmp_path, "-s", "en", "-t", "de", "--max-update", 1, "--disable-validation"))
    checkpoint = str(tmp_path / "checkpoint_last.pt")
    model_convert.main([checkpoint, str(tmp_path / "theirs"), "--data", str(data), "--lang", "en-de"])
    model_convert.main([str(tmp_path / "theirs"), str(tmp_path / "again")])
    one, other = fairseq_xl.load(checkpoint, data=data), fairseq_xl.load(tmp_path / "again")
    assert other.task.dictionary.symbols == one.task.dictionary.symbols
    encode = [TextEncoder(loaded.task.folder(), loaded.task.dictionary) for loaded in (one, other)]
    assert torch.equal(*(torch.from_numpy(each(RAW, "en")) for each in encode))
    assert other.translate([RAW], "en", "de", beam=2) == one.translate([RAW], "en", "de", beam=2)


def published_encoder(data):
    """A random model of transformers with the words of a data folder, its vocabulary, and its ids of RAW."""
    torch.manual_seed(0)
    if is_xlm(data):
        files = [data.parent / name for name in ("vocab.json", "merges.txt")]
        more = dict(n_layers=1, n_langs=2, id2lang={0: "en", 1: "de"}, pad_token_id=2, eos_token_id=1)
        count = len(json.loads(files[0].read_text(encoding="utf-8")))
        model = XLMWithLMHeadModel(XLMConfig(vocab_size=count, **XLM_SIZES | more))
        tokenizer = XLMTokenizer(*map(str, files))
        ids = [1, *tokenizer.convert_tokens_to_ids(tokenizer._tokenize(RAW, lang="en")), 1]
    else:
        files = [data.parent / "vocab.txt"]
        count = len(files[0].read_text(encoding="utf-8").splitlines())
        sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
        model = BertForPreTraining(BertConfig(vocab_size=count, max_position_embeddings=MAX_POSITIONS, **sizes))
        ids = BertTokenizer(str(files[0]), do_lower_case=False)(RAW)["input_ids"]
    return model.eval(), files[0], torch.tensor([ids])


def test_published_encoders_initialize_both_stacks_of_generation(data, files, tmp_path):
    """XGLUE's baselines, by the recipe's files: the encoder computes what theirs does, the decoder has its weights."""
    name = "xlm" if is_xlm(data) else "mbert"
    theirs, vocabulary, ids = published_encoder(data)
    theirs.save_pretrained(tmp_path / "published")
    shutil.copy(vocabulary, tmp_path / "published")
    small = cli(ffn_dim=64, heads=2, lr=0, max_update=1, disable_validation=True, init_from=tmp_path / "published")
    line = generation(data, files, tmp_path / "run", "--config", f"recipes/xglue/config/generation-{name}.yaml", *small)
    line = [word for word in line if word not in ("--arch", "xl_xdae_tiny")]
    loaded = fairseq_xl.load(trained(line), data=data)
    encode = partial(theirs.transformer, langs=torch.zeros_like(ids)) if is_xlm(data) else theirs.bert
    first = encode(ids).last_hidden_state[0, 0].detach().numpy()
    assert loaded.encode([RAW], "en", pooling="first")[0] == pytest.approx(first, abs=1e-5)
    state = loaded.model.state_dict()
    for part in ("qkv.weight", "out.bias"):
        assert torch.equal(*(state[f"{stack}.layers.0.self_attention.{part}"] for stack in ("encoder", "decoder")))


def test_word_noise_needs_no_more_than_the_marks(data, tmp_path):
    noise = " ".join(("xdae.length=32", "xdae.noise=shuffle+drop+mask"))
    line = denoising(data, tmp_path, *cli(max_update=1, updates_per_epoch=1, objective_options=noise))
    assert list(run_train([*line, "--disable-validation"]).updates) == [1]


COMMON = dict(task="xl_generation", user_dir="fairseq_xl", eval_langs="en", beam=1, max_len_b=4)


def test_generated_text_has_words(data, files, titles, monkeypatch):
    """Whatever --remove-bpe says; --bpe and the tokenizer undo what is left."""
    line = [data, *cli(**COMMON, path=titles, task_files=files)]
    pieces = [texts[0].partition("\t")[2] for texts in run_generate(line).lines("H").values()]
    dictionary = XLDictionary.load(data / "dict.txt")
    joined = [dictionary.string(torch.tensor([dictionary.index(p) for p in row.split()]), "@@ ") for row in pieces]
    for name in ("sentencepiece", "@@ "):
        output = run_generate([*line, "--remove-bpe", name])
        assert [texts[0].partition("\t")[2] for texts in output.lines("H").values()] == joined
    monkeypatch.setattr(XLDictionary, "string", lambda *given, **more: WORDS_OF_RAW)
    texts = {lines[0].partition("\t")[2] for lines in run_generate([*line, "--remove-bpe"]).lines("D").values()}
    assert texts == ({'the house (garden), "river" reads.'} if is_xlm(data) else {WORDS_OF_RAW})


def test_raw_lines_on_standard_input(data, titles):
    dictionary = XLDictionary.load(data / "dict.txt")
    line = [data, *cli(**COMMON, path=titles)]
    found = run_interactive([*line, "--bpe", "xl_subwords"], [RAW, ""]).lines("S")
    assert run_interactive(line, [RAW, ""]).lines("S") == found  # the default
    expected = dictionary.string(TextEncoder(data, dictionary)(RAW, "en"))
    assert found[0][0].removeprefix("<s> ") == expected
    assert is_xlm(data) == (expected.replace("@@ ", "") == WORDS_OF_RAW)
    assert "of the input are <unk>" in run_interactive(line, ["ΩΩΩ ΩΩ"]).log


def test_other_sub_words_are_refused(data, titles):
    line = [data, *cli(**COMMON, path=titles, bpe="sentencepiece", sentencepiece_model=data / "x")]
    with pytest.raises(UserError, match="--bpe sentencepiece: .* has a vocabulary of kind .*: give --bpe xl_subwords"):
        run_interactive(line, [RAW])


@pytest.mark.parametrize("data", ["xlm"], indirect=True)
def test_xlms_own_file_fits_the_text(data, tmp_path):
    """Its rows are the same symbols of our dictionary, and the ids those of XLM."""
    theirs, _, ids = published_encoder(data)
    state = {name.removeprefix("transformer."): value for name, value in theirs.state_dict().items()}
    params = {"n_heads": 2, "n_langs": 2, "id2lang": {0: "en", 1: "de"}, "emb_dim": 16, "gelu_activation": True}
    lines = (data.parent / "vocab").read_text(encoding="utf-8").splitlines()
    named = dict(enumerate([*SPECIAL, *(line.rpartition(" ")[0] for line in lines)]))
    torch.save({"model": state, "params": params, "dico_id2word": named, "dico_counts": {}}, tmp_path / "mlm.pth")
    options = cli(framing="xlm", ffn_dim=64, init_from=tmp_path / "mlm.pth")
    table = initial(pretraining(data, tmp_path, *options, objectives="mlm"))[0]["encoder.token_embeddings.table.weight"]
    rows, expected = TextEncoder(data, XLDictionary.load(data / "dict.txt"))(RAW, "en")[:-1], ids[0, 1:-1]
    assert len(rows) == len(expected) > 10 and torch.equal(table[rows], state["embeddings.weight"][expected])
    assert json.loads((data / "manifest.json").read_text())["vocabulary"]["kind"] == "xlm"
