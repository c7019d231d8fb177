"""`model add-language`: a folder of transformers or sentence-transformers gets a language; refused input."""

import json
import random
import shutil

import numpy as np
import pytest
import sentencepiece
import torch
import transformers

import fairseq_xl
from fairseq_xl.checkpoints.parameter_names import TOKENS
from fairseq_xl.commands.model_add_language import main
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from preprocess import binarize
from tests.commands import load
from tests.tasks.conftest import preprocess_here
from tests.tasks.conversion_builders import SENTENCES, mbert, run, xlm, xlm_roberta
from tests.tasks.published_models import randomize
from tests.tasks.tiny_text import WORDS, write

SPANISH = "el hogar jardin rio piedra camina lee escribe un libro pequeno verde bajo sobre agua luz".split()
FLAGS = '{"cpu": true, "num-workers": 0, "lr": 0.003, "log-interval": 1, "max-tokens": 400, "save-interval-updates": 5}'


@pytest.fixture(autouse=True, scope="module")
def in_this_process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarize, "run_fairseq", preprocess_here)
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Aligned English, German and Spanish, and German alone."""
    root, rng = tmp_path_factory.mktemp("text"), random.Random(1)
    words = {"en": WORDS["en"], "de": WORDS["de"], "es": SPANISH}
    for name, count in (("train", 150), ("test", 20)):
        places = [[rng.randrange(16) for _ in range(rng.randint(3, 8))] for _ in range(count)]
        for code in words:
            write(root / f"{name}.{code}", [" ".join(words[code][place] for place in line) for line in places])
    (root / "flags.yaml").write_text(FLAGS)
    return root


def sentence_transformer(folder, data_bin):
    """A folder of sentence-transformers with normalized embeddings, and the tokenizer as tokenizer.json."""
    from sentence_transformers import SentenceTransformer, models

    model = xlm_roberta(folder, data_bin)
    encoder = transformers.XLMRobertaModel(model.config, add_pooling_layer=False)
    encoder.load_state_dict(model.roberta.state_dict())
    encoder.save_pretrained(folder)
    transformers.XLMRobertaTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    modules = [models.Transformer(str(folder), max_seq_length=30), models.Pooling(16, "mean"), models.Normalize()]
    prompts = {"query": "the ", "document": ""}
    SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save(str(folder), create_model_card=False)


FOLDERS = {"transformers": xlm_roberta, "sentence-transformers": sentence_transformer}


def arguments(folder, text, output, *more):
    defaults = ("--lang", "es", "--to", output, "--updates", 1)
    return [str(word) for word in (folder, *defaults, *more, "--config", text / "flags.yaml")]


@pytest.fixture(scope="module", params=FOLDERS)
def added(request, data_bin, text, tmp_path_factory):
    """The kind of folder, the original, and the result with a Spanish vocabulary."""
    root = tmp_path_factory.mktemp("added")
    (root / "original").mkdir()
    FOLDERS[request.param](root / "original", data_bin)
    more = ["--pairs", f"en-es={text}/train", "--test", f"en-de={text}/test", "--text", f"de={text}/train.de"]
    more += ["--pieces", 12, "--updates", 40, "--share", 0.4]
    more += ["--prompt", "query"] if request.param == "sentence-transformers" else []
    main(arguments(root / "original", text, root / "out", *more))
    return request.param, root / "original", root / "out"


def test_old_pieces_and_ids_stay(added):
    kind, original, output = added
    old, new = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (original, output))
    before, after = (tokenizer.get_vocab() for tokenizer in (old, new))
    moved = {"<mask>"} if kind == "transformers" else set()  # SentencePiece's file alone numbers it
    assert {piece for piece, row in before.items() if after[piece] != row} == moved
    assert len(new) == len(old) + 12 and sorted(after.values()) == list(range(len(new)))
    assert new(SENTENCES)["input_ids"] == old(SENTENCES)["input_ids"]
    line = "el hogar verde lee un libro"
    assert len(new(line)["input_ids"]) < len(old(line)["input_ids"]) / 1.5


def sentence_model(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def embeddings(kind, folder, lines, prompt=None):
    """By the libraries: means over the tokens, (n, C) of length 1."""
    if kind == "sentence-transformers":
        return sentence_model(folder).encode(lines, prompt_name=prompt)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(lines, return_tensors="pt", padding=True)
    with torch.no_grad():
        hidden = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval().roberta(**inputs).last_hidden_state
    real = inputs["attention_mask"][..., None]
    return normalized(((hidden * real).sum(1) / real.sum(1)).numpy())


def normalized(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_output_computes_what_we_do(added):
    kind, original, output = added
    hub = fairseq_xl.load(output.with_name("out.work") / "trained")
    lines = [*SENTENCES, "el hogar verde lee un libro"]
    expected = normalized(hub.encode(lines, lang="es"))
    np.testing.assert_allclose(embeddings(kind, output, lines), expected, atol=1e-5)
    if kind == "sentence-transformers":
        models = [sentence_model(folder) for folder in (original, output)]
        assert models[1].prompts == models[0].prompts and models[1].max_seq_length == 30
        assert [type(module) for module in models[1]] == [type(module) for module in models[0]]


def test_the_loss_decreases_and_the_table_has_all_scores(added, text):
    kind, original, output = added
    log = (output.with_name("out.work") / "run/train.log").read_text(encoding="utf-8").splitlines()
    losses = [float(json.loads(line[line.index("{") :])["loss"]) for line in log if '"loss"' in line]
    assert len(losses) == 40 and np.mean(losses[-8:]) < 0.9 * np.mean(losses[:8])
    scores = json.loads((output / "scores.json").read_text(encoding="utf-8"))
    assert list(scores["retrieval"]) == ["en-de", "de-en", "en-es", "es-en"]
    rows = [*scores["retrieval"].values(), *scores.get("bits_per_character", {}).values()]
    assert all(list(row) == ["before", "extended", "trained"] for row in rows)
    sides = [(text / f"test.{code}").read_text().splitlines() for code in ("en", "de")]
    english, german = (embeddings(kind, original, lines, "query") for lines in sides)
    right = [int(np.argmax(german @ row)) == index for index, row in enumerate(english)]
    assert scores["retrieval"]["en-de"]["before"]["accuracy"] == pytest.approx(100 * np.mean(right))
    if kind == "transformers":
        lines = (text / "train.de").read_text().splitlines()[-15:]
        nats = -fairseq_xl.load(output.with_name("out.work") / "trained").score(lines, lang="de").sum()
        bits = nats / np.log(2) / len("".join(lines))
        assert scores["bits_per_character"]["de"]["trained"] == pytest.approx(bits, abs=1e-4)


def test_the_teacher_is_the_original_model(added, text):
    """The rows of a Spanish sentence are the original's embedding of its English translation."""
    kind, original, output = added
    work = output.with_name("out.work")
    if kind == "transformers":
        assert not list(work.glob("data/*/*.teacher.npy"))
        return
    lines = {code: (text / f"train.{code}").read_text().splitlines() for code in ("en", "es", "de")}
    english = dict(zip(lines["es"], lines["en"]))
    for code in ("es", "en", "de"):
        written = (work / f"train.{code}").read_text().splitlines()
        rows = np.load(work / f"data/{code}/train.teacher.npy")
        assert all(line.startswith("the ") for line in written)
        plain = [line.removeprefix("the ") for line in written]
        taught = embeddings(kind, original, [english.get(line, line) for line in plain], "query")
        np.testing.assert_allclose(normalized(rows), taught, atol=1e-5)
    counts = {code: len((work / f"train.{code}").read_text().splitlines()) for code in lines}
    assert counts == {"es": 135, "en": 45, "de": 45}  # 15 of 150 pairs are held out; 0.4 / 0.6 * 135 old lines


def test_a_head_stays_and_an_interrupted_training_goes_on(data_bin, text, tmp_path, monkeypatch):
    (tmp_path / "original").mkdir()
    model = xlm_roberta(tmp_path / "original", data_bin)
    kind = transformers.XLMRobertaForSequenceClassification
    model = randomize(kind.from_pretrained(tmp_path / "original", num_labels=3, id2label={0: "a", 1: "b", 2: "c"}))
    model.half().save_pretrained(tmp_path / "original")
    more = ["--pairs", f"es-en={text}/train", "--pieces", 5, "--updates", 6]
    words = arguments(tmp_path / "original", text, tmp_path / "out", *more)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fairseq_xl.inference.language_addition.copy_trained", interrupted)
        main(words)
    with pytest.raises(UserError, match=r"out.work was begun with other arguments or files: repeat them, or remove it"):
        main([*words, "--share", "0.2"])
    config = tmp_path / "original" / "config.json"
    content = config.read_text()
    config.write_text(f"{content} ")
    with pytest.raises(UserError, match="other arguments or files"):
        main(words)
    config.write_text(content)
    with monkeypatch.context() as patch:
        patch.setattr("fairseq_xl.inference.language_addition.write_corpus", interrupted)  # not prepared again
        main(words)
    back = kind.from_pretrained(tmp_path / "out")
    assert back.config.id2label == {0: "a", 1: "b", 2: "c"} and back.dtype == torch.float16
    for name, value in model.classifier.state_dict().items():
        assert torch.equal(back.classifier.state_dict()[name], value)
    assert not torch.equal(
        back.roberta.encoder.layer[0].output.dense.weight, model.roberta.encoder.layer[0].output.dense.weight
    )


def test_wordpiece(data_bin, text, tmp_path):
    """New rows are means of the rows of the pieces into which BERT's own tokenizer divides them."""
    (tmp_path / "original").mkdir()
    theirs = mbert(tmp_path / "original", data_bin)
    more = ["--text", f"es={text}/train.es", f"en={text}/train.en", "--pieces", 40, "--updates", 4]
    main(arguments(tmp_path / "original", text, tmp_path / "out", *more))
    work = tmp_path / "out.work"
    dictionaries = [XLDictionary.load(work / name / "dict.txt") for name in ("imported", "extended")]
    old_rows, new_rows = (load(work / name / "checkpoint.pt")[TOKENS] for name in ("imported", "extended"))
    pieces = [[dictionary.symbols[row] for row in dictionary.pieces] for dictionary in dictionaries]
    assert pieces[1][: len(pieces[0])] == pieces[0] and len(pieces[1]) == len(pieces[0]) + 40
    tokenizer = transformers.BertTokenizer(str(tmp_path / "original/vocab.txt"), do_lower_case=False)
    compared = 0
    for piece in pieces[1][len(pieces[0]) :]:
        parts = [] if piece.startswith("##") else tokenizer.convert_tokens_to_ids(tokenizer.tokenize(piece))
        if parts and tokenizer.unk_token_id not in parts:
            expected = theirs.bert.embeddings.word_embeddings.weight[parts].mean(0)
            torch.testing.assert_close(new_rows[dictionaries[1].index(piece)], expected)
            compared += 1
    assert compared > 3 and torch.equal(new_rows[: 4 + len(pieces[0])], old_rows[:-1])
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(["el hogar lee"], return_tensors="pt")
    words = [(tmp_path / name / "vocab.txt").read_text().splitlines() for name in ("original", "out")]
    assert words[1] == [*words[0], *pieces[1][len(pieces[0]) :]]
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").eval()
    assert torch.equal(model.cls.seq_relationship.weight, theirs.cls.seq_relationship.weight)
    expected = fairseq_xl.load(work / "trained").encode(["el hogar lee"], lang="es")
    found = model.bert(**inputs).last_hidden_state.mean(1).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


# Wrong input


@pytest.fixture(scope="module")
def originals(data_bin, tmp_path_factory):
    """A folder of folders."""
    root = tmp_path_factory.mktemp("originals")
    for kind, write_folder in (FOLDERS | {"language embeddings": xlm}).items():
        (root / kind).mkdir()
        write_folder(root / kind, data_bin)
    shutil.copytree(root / "transformers", root / "no tokenizer")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(root / "no tokenizer/sentencepiece.bpe.model"))
    (root / "no tokenizer/sentencepiece.bpe.model").unlink()
    write(root / "no tokenizer/dict.txt", [f"{pieces.id_to_piece(row)} 1" for row in range(3, len(pieces))])
    shutil.copytree(root / "sentence-transformers", root / "weighted")
    path = root / "weighted/1_Pooling/config.json"
    path.write_text(json.dumps({"word_embedding_dimension": 16, "pooling_mode_weightedmean_tokens": True}))
    run(root / "transformers", root / "checkpoint", "--langs", "en,es")
    shutil.copytree(root / "checkpoint", root / "new", ignore=shutil.ignore_patterns("published"))
    run(root / "new", root / "Spanish")  # without the rows and names of the folder that came in
    return root


@pytest.mark.parametrize(
    "kind, words, sentence",
    [
        ("transformers", "--text de=DE", "--text: expected es=FILE, text of the new language"),
        ("transformers", "--text e-s=ES es=ES", "--text: 'e-s' is not a language code"),
        ("transformers", "--lang e-s --text es=ES", "--lang: 'e-s' is not a language code"),
        ("transformers", "--text es=ES --pieces 5000", "--pieces 5000: the text of es gives .* new pieces"),
        ("no tokenizer", "--text es=ES", "has no tokenizer: expected"),
        ("nowhere", "--text es=ES", "nowhere: expected a folder of transformers or sentence-transformers"),
        ("sentence-transformers", "--text es=ES", "predicts no masked tokens, so that training needs --pairs XX-es="),
        ("sentence-transformers", "--pairs en-de=T", "expected pairs of es and an old language"),
        ("sentence-transformers", "--pairs en-es=T --prompt none", "--prompt none: expected one of .*query"),
        ("weighted", "--pairs en-es=T", "has pooling weightedmean_tokens, .*; expected mean or cls"),
        ("Spanish", "--text es=ES", "--lang es: .*Spanish has this language already"),
        ("checkpoint", "--text es=ES", "checkpoint is not an encoder of transformers or sentence-transformers"),
        ("language embeddings", "--text es=ES", "add-language is for models that name no language"),
    ],
)
def test_refused(originals, text, tmp_path, kind, words, sentence):
    for name, path in {"=ES": "train.es", "=DE": "train.de", "=T": "train"}.items():
        words = words.replace(name, f"={text}/{path}")
    with pytest.raises(UserError, match=sentence) as error:
        main(arguments(originals / kind, text, tmp_path / "out", "--pieces", 3, *words.split()))
    assert "\n" not in str(error.value) and not list(tmp_path.glob("out*"))
