"""fairseq_xl.load and the methods of what it returns: values of direct passes through the model."""

import math
import re
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.inference.decoding_options import OPTIONS
from fairseq_xl.inference.hub import HubInterface
from fairseq_xl.modules.output import OutputLayer
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import classification, dan, denoising, generation, pretraining, run_generate, run_train, translation
from tests.tasks.tiny_text import EMPTY, LONG
from tests.tasks.titles import write_titles

ONCE = ["--max-update", 1, "--disable-validation"]
TEXT = ["das Haus geht unter Wasser", "ein Buch", "klein gruen hinter Licht das Stein liest"]


@pytest.fixture(scope="module")
def checkpoints(data_bin, tmp_path_factory):
    """{kind of model: its checkpoint}."""
    root = tmp_path_factory.mktemp("loaded")
    files, titles = write_task(root / "files", 1), write_titles(root / "titles")
    lines = {
        "mlm": pretraining(data_bin, root / "mlm", *cli(langs="de,en", pairs="en-de", lr=0.05)),
        "clm": pretraining(data_bin, root / "clm", "--lr", 0.05, objectives="clm"),
        "xdae": denoising(data_bin, root / "xdae"),
        "dan": dan(data_bin, root / "dan"),
        "translation": translation(data_bin, root / "translation", *cli(lang_pairs="en-de,de-en", lr=0.05)),
        "classification": classification(data_bin, files, root / "classification"),
        "generation": generation(data_bin, titles, root / "generation", "--lr", 0.05),
    }
    for line in lines.values():
        run_train([*line, *ONCE])
    return {kind: root / kind / "checkpoint_last.pt" for kind in lines}


@pytest.fixture(scope="module")
def loaded(checkpoints):
    """{kind of model: what `load` returns}, with the data folder of the training."""
    return {kind: fairseq_xl.load(path) for kind, path in checkpoints.items()}


def framed(hub, text):
    """Tokens (1, T) of a sentence."""
    return torch.from_numpy(hub.task.framing.sentence(hub.embedder.encode(text, "de")))[None]


def hidden_states(hub, tokens, **more):
    """Last hidden states (1, T, C) of German tokens, in a direct pass."""
    with torch.no_grad():
        return hub.model.encode(tokens, languages=torch.tensor([[hub.task.dictionary.language_id("de")]]), **more)


# Loading


def test_model_and_task(data_bin, checkpoints):
    hub = fairseq_xl.load(checkpoints["mlm"], data_bin, langs="de")
    model, task = hub
    assert isinstance(hub, HubInterface) and model is hub.model and task is hub.task
    assert not model.training and task.cfg.langs == "de" and hub.to("cpu") is hub
    with pytest.raises(UserError, match="to\\('cuda:99'\\): "):
        hub.to("cuda:99")


@pytest.mark.parametrize("kind", ["mlm", "translation", "classification"])
def test_a_folder_with_model_and_dictionary(data_bin, checkpoints, loaded, tmp_path, kind):
    """It has no text of --langs and --pairs of the training; checkpoint.pt comes before checkpoint_best.pt."""
    for name in ("dict.txt", "sentencepiece.model"):
        shutil.copy(data_bin / name, tmp_path)
    shutil.copy(checkpoints[kind], tmp_path / "checkpoint.pt")
    (tmp_path / "checkpoint_best.pt").write_bytes(b"")
    hub = fairseq_xl.load(str(tmp_path))
    assert hub.task.folder() == tmp_path
    assert np.array_equal(hub.encode(TEXT, "de"), loaded[kind].encode(TEXT, "de"))
    (tmp_path / "checkpoint.pt").rename(tmp_path / "checkpoint_best.pt")
    assert np.array_equal(fairseq_xl.load(tmp_path).encode(TEXT, "de"), hub.encode(TEXT, "de"))
    assert fairseq_xl.load(tmp_path, data_bin).task.folder() == data_bin


def test_the_folder_of_a_training(data_bin, checkpoints, tmp_path):
    """It has no dictionary: the data folder is that of the training."""
    shutil.copy(checkpoints["mlm"], tmp_path / "checkpoint_best.pt")
    assert fairseq_xl.load(tmp_path).task.folder() == data_bin


def test_what_cannot_be_loaded(data_bin, checkpoints, tmp_path):
    with pytest.raises(UserError, match="expected a folder with checkpoint.pt or .*, found none of them"):
        fairseq_xl.load(tmp_path)
    with pytest.raises(UserError, match="no.pt"):
        fairseq_xl.load(tmp_path / "no.pt")
    (tmp_path / "checkpoint.pt").write_bytes(checkpoints["mlm"].read_bytes()[:3000])
    with pytest.raises(UserError, match="checkpoint.pt is not a checkpoint, or it is damaged or cut short"):
        fairseq_xl.load(tmp_path)
    shutil.copy(checkpoints["mlm"], tmp_path / "checkpoint.pt")
    (tmp_path / "dict.txt").write_text((data_bin / "dict.txt").read_text(encoding="utf-8").replace("[de]", "[xx]"))
    for checkpoint in (tmp_path, checkpoints["classification"]):  # the second one names the language de
        with pytest.raises(UserError, match=f"trained with another dictionary .data folder {data_bin}, .* {tmp_path}"):
            fairseq_xl.load(checkpoint, tmp_path)
    state = torch.load(checkpoints["mlm"], weights_only=True)
    state["cfg"]["task"]["data"] = "data-bin/x"
    (tmp_path / "other").mkdir()
    torch.save(state, tmp_path / "other/x.pt")
    with pytest.raises(UserError, match="^data-bin/x: no such data folder: .*x.pt names it, .*CHECKPOINT DATA"):
        fairseq_xl.load(tmp_path / "other/x.pt")
    sentence = "pt: neither its task xl_pretraining nor its model xl_xlm_tiny has the option foo"
    with pytest.raises(UserError, match=sentence):
        fairseq_xl.load(checkpoints["mlm"], data_bin, foo=1, langs="de")


# Embeddings


def test_encode(loaded):
    hub = loaded["mlm"]
    found = hub.encode([*TEXT, ""], lang="de")
    assert found.shape == (4, 16) and found.dtype == np.float32 and not found[3].any()
    first, embeddings = hub.encode(TEXT, "de", layer=1, pooling="first"), hub.encode(TEXT, "de", layer=0)
    for number, text in enumerate(TEXT):
        hidden = hidden_states(hub, framed(hub, text))[0]
        np.testing.assert_allclose(found[number], hidden.mean(0), atol=2e-6)
        np.testing.assert_allclose(first[number], hidden[0], atol=2e-6)
    assert np.abs(embeddings - found[:3]).max() > 0.1


def test_batches_device_and_length_of_embeddings(loaded, capsys):
    hub, texts = loaded["mlm"], [*TEXT, ""]
    rows = hub.encode(texts, "de")
    assert not capsys.readouterr().err
    np.testing.assert_allclose(hub.encode(texts, "de", batch_size=1, device="cpu", progress=True), rows, atol=1e-6)
    assert "3/3" in capsys.readouterr().err
    normalized = hub.encode(texts, "de", normalize=True)
    np.testing.assert_allclose(np.linalg.norm(normalized, axis=1), [1, 1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(normalized * np.linalg.norm(rows, axis=1, keepdims=True), rows, atol=1e-6)
    for wrong, message in (
        ({"batch_size": 0}, "batch_size 0: 1 or more"),
        ({"device": "cuda:99"}, "to\\('cuda:99'\\)"),
    ):
        with pytest.raises(UserError, match=message):
            hub.encode(texts, "de", **wrong)


def test_a_model_says_what_it_is(checkpoints, loaded):
    parameters = f"{sum(parameter.numel() for parameter in loaded['mlm'].model.parameters()):,}"
    assert repr(loaded["mlm"]).splitlines() == [
        f"xl_xlm_tiny (XLEncoderModel): {parameters} parameters, layers 1, embed_dim 16, ffn_dim 32, heads 2",
        "task: xl_pretraining (mlm, tlm)",
        "languages: en, de, fr",
        f"checkpoint: {checkpoints['mlm']}",
    ]
    assert ", encoder_layers 1, decoder_layers 1, embed_dim 16" in repr(loaded["translation"])
    assert "\ntask: xl_translation (en-de, de-en)\n" in repr(loaded["translation"])
    assert all(len(repr(hub).splitlines()) == 4 for hub in loaded.values())


def test_the_python_of_the_first_page(checkpoints, tmp_path, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^    import fairseq_xl\n(?:(?:    .*)?\n)+", page, re.MULTILINE)[0]
    for name, kind in (("pretrain", "mlm"), ("pretrained", "translation")):
        (tmp_path / "runs/quickstart" / name).mkdir(parents=True)
        shutil.copy(checkpoints[kind], tmp_path / "runs/quickstart" / name / "checkpoint_best.pt")
    monkeypatch.chdir(tmp_path)
    values = {}
    exec(textwrap.dedent(block), values)
    assert values["embeddings"].shape == (2, 16) and len(values["words"]) == 5 and len(values["translations"]) == 1


def test_what_is_no_list_of_texts(loaded):
    for sentences, message in (
        ([None], r"sentences\[0\]: expected text, found None"),
        (["das", 3], r"sentences\[1\]: expected text, found 3"),
        (None, "sentences: expected a list of sentences, found None"),
        (b"das", r"sentences\[0\]: expected text, found 100"),
    ):
        with pytest.raises(UserError, match=message):
            loaded["mlm"].encode(sentences, "de")
        with pytest.raises(UserError, match=message):
            loaded["mlm"].score(sentences, lang="de")
        with pytest.raises(UserError, match=message):
            loaded["translation"].translate(sentences, "en", "de")
    with pytest.raises(UserError, match=r"targets\[0\]: expected text, found None"):
        loaded["translation"].score(["das"], [None], source_lang="de", target_lang="en")
    with pytest.raises(UserError, match=r"lines\[0\]: expected text, found None"):
        loaded["classification"].predict([None], "de")
    with pytest.raises(UserError, match="sentence: expected text, found None"):
        loaded["mlm"].fill_mask(None, "de")


def test_what_cannot_be_encoded(loaded):
    with pytest.raises(UserError, match="layer 2, pooling 'mean': expected a layer from 0 to 1 and mean or first"):
        loaded["mlm"].encode(TEXT, "de", layer=2)
    with pytest.raises(UserError, match="layer None, pooling 'max'"):
        loaded["mlm"].encode(TEXT, "de", pooling="max")
    with pytest.raises(UserError, match="language 'xx' has no symbol"):
        loaded["mlm"].encode(TEXT, "xx")
    with pytest.raises(UserError, match="expected a list of sentences, found the text 'das Haus'"):
        loaded["mlm"].encode("das Haus", "de")
    with pytest.raises(UserError, match="expected a model with an encoder, found xl_dan"):
        loaded["dan"].encode(TEXT, "de")


# Language models


def test_fill_mask(loaded):
    """The probabilities are those of the whole vocabulary; special symbols are no answers."""
    hub = loaded["mlm"]
    dictionary, tokens = hub.task.dictionary, framed(hub, "das Haus geht")
    assert tokens.size(1) == 5  # a piece for each word
    tokens[0, 2] = dictionary.mask_index
    expected = hub.model.output(hidden_states(hub, tokens)[0, 2]).softmax(-1)
    found = hub.fill_mask("das <mask> geht", lang="de", top=len(dictionary))
    assert {each.token for each in found} == {dictionary[number] for number in dictionary.pieces}
    for each in found:
        assert each.probability == pytest.approx(float(expected[dictionary.index(each.token)]), abs=1e-6)
    assert [each.probability for each in found] == sorted((each.probability for each in found), reverse=True)
    assert hub.fill_mask("das <mask> geht", "de", 3) == found[:3]
    (haus,) = (each for each in found if each.token == "▁Haus")
    assert haus.text == "das Haus geht"
    assert hub.fill_mask("<mask>", "de", 1)[0].text == hub.fill_mask("<mask>", "de", 1)[0].token.replace("▁", "")


def test_text_behind_a_mask_continues_its_word(loaded):
    """The full stop has no ▁ in front of it; the probabilities are those of the sentence with <mask> for a word."""
    hub = loaded["mlm"]
    dictionary, tokens = hub.task.dictionary, framed(hub, "das Haus.")
    names = [dictionary[number] for number in tokens[0].tolist()]
    assert names[:3] == ["<s>", "▁das", "▁Haus"] and not names[3].startswith("▁")
    tokens[0, 2] = dictionary.mask_index
    expected = hub.model.output(hidden_states(hub, tokens)[0, 2]).softmax(-1)
    (best,) = hub.fill_mask("das <mask>.", "de", 1)
    assert best.probability == pytest.approx(float(expected[dictionary.pieces].max()), abs=1e-6)


def test_what_cannot_be_filled(loaded):
    for text, count in (("das Haus", 0), ("<mask> <mask>", 2)):
        with pytest.raises(UserError, match=f"'{text}': expected one <mask>, found {count}"):
            loaded["mlm"].fill_mask(text, "de")
    for top, message in (
        (0, "top 0: 1 or more is needed"),
        (-1, "top -1: 1 or more is needed"),
        (2.5, "top: expected a whole number, found 2.5"),
        (True, "top: expected a whole number, found True"),
        (None, "top: expected a whole number, found None"),
    ):
        with pytest.raises(UserError, match=message):
            loaded["mlm"].fill_mask("das <mask>", "de", top)
    with pytest.raises(UserError, match="expected at most 40 tokens, found 63"):
        loaded["mlm"].fill_mask("Haus " * 60 + "<mask>", "de")
    for kind, name in (("clm", "xl_pretraining with clm"), ("classification", "xl_classification"), ("xdae", "xdae")):
        with pytest.raises(UserError, match=f"expected a masked language model .* found a model trained by .*{name}"):
            loaded[kind].fill_mask("<mask>", "de")


def test_pseudo_log_likelihood(loaded, monkeypatch):
    hub = loaded["mlm"]
    expected = []
    for text in TEXT:
        tokens, total = framed(hub, text), 0.0
        for place in range(1, tokens.size(1) - 1):
            masked = tokens.clone()
            masked[0, place] = hub.task.dictionary.mask_index
            scores = hub.model.output(hidden_states(hub, masked)[0, place]).log_softmax(-1)
            total += float(scores[tokens[0, place]])
        expected.append(total)
    assert hub.score(TEXT, lang="de") == pytest.approx(expected, abs=1e-4) and len(set(expected)) == 3
    monkeypatch.setattr("fairseq_xl.inference.scoring.SENTENCES", 2)
    assert hub.score(TEXT, lang="de") == pytest.approx(expected, abs=1e-4)
    assert hub.score([], lang="de").shape == (0,)
    assert hub.score(["", TEXT[0], " "], lang="de") == pytest.approx([0, expected[0], 0], abs=1e-4)


def test_log_likelihood_of_a_causal_model(loaded):
    hub, expected = loaded["clm"], []
    for text in TEXT:
        tokens = framed(hub, text)
        logits = hub.model.output(hidden_states(hub, tokens[:, :-1], causal=True)[0])
        expected.append(-float(torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="sum")))
    assert hub.score(TEXT, lang="de") == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("rows", [1, 3])
def test_logits_are_computed_in_chunks(loaded, monkeypatch, rows):
    """The scores do not depend on how many rows of logits are in memory, and at most `LOGITS` are."""
    pair = dict(source_lang="de", target_lang="en")
    calls = [("mlm", (TEXT,), {"lang": "de"}), ("clm", (TEXT,), {"lang": "de"}), ("translation", (TEXT, TEXT), pair)]
    expected = [loaded[kind].score(*texts, **languages) for kind, texts, languages in calls]
    sizes, forward = [], OutputLayer.forward

    def counted(self, hidden):
        sizes.append(hidden.numel() // hidden.size(-1))
        return forward(self, hidden)

    vocabulary = len(loaded["mlm"].task.dictionary)
    monkeypatch.setattr("fairseq_xl.inference.scoring.LOGITS", rows * vocabulary + rows - 1)
    monkeypatch.setattr(OutputLayer, "forward", counted)
    for (kind, texts, languages), values in zip(calls, expected):
        assert loaded[kind].score(*texts, **languages) == pytest.approx(values, abs=1e-5)
    assert max(sizes) == rows and len(sizes) > 20 // rows


# Text


def test_log_likelihood_of_translations(data_bin, corpus, checkpoints, loaded):
    """That of fairseq-generate --score-reference, which prints the logarithms to base 2 of all tokens."""
    sides = [(corpus / f"test.en-de.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    options = cli(task="xl_translation", user_dir="fairseq_xl", path=checkpoints["translation"], s="en", t="de")
    printed = run_generate([data_bin, *options, "--score-reference"]).lines("P")
    kept = [number for number in range(len(sides[0])) if number not in (EMPTY, LONG)]
    expected = [sum(map(float, printed[number][0].split())) * math.log(2) for number in kept]
    chosen = [[side[number] for number in kept] for side in sides]
    found = loaded["translation"].score(*chosen, source_lang="en", target_lang="de")
    assert found == pytest.approx(expected, abs=2e-3) and len(set(expected)) == len(kept)
    assert np.abs(loaded["translation"].score(*chosen[::-1], source_lang="de", target_lang="en") - found).min() > 0.01


def test_translate_and_generate(data_bin, corpus, checkpoints, loaded):
    lines = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()
    options = cli(task="xl_translation", user_dir="fairseq_xl", path=checkpoints["translation"], s="en", t="de")
    more = cli(beam=2, max_len_b=6, remove_bpe="sentencepiece")
    printed = run_generate([data_bin, *options, *more]).lines("D")
    found = loaded["translation"].translate(lines, "en", "de", beam=2, max_len_b=6)
    assert found == [printed[number][0].partition("\t")[2] for number in range(len(lines))] and found[EMPTY] == ""
    titles = loaded["generation"].generate(["das Haus", " "], "fr", max_len_b=5)
    assert (
        len(titles) == 2
        and titles[1] == ""
        and titles == loaded["generation"].translate(["das Haus", ""], "fr", "fr", max_len_b=5)
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam": 0}, "beam 0: 1 or more is needed"),
        ({"beam": [5]}, r"beam: expected a whole number, found \[5\]"),
        ({"beam": 2.0}, "beam: expected a whole number, found 2.0"),
        ({"foo": 3}, "there is no option foo: expected one of beam, max_len_a, max_len_b"),
        ({"score_reference": True}, "there is no option score_reference"),
        ({"lenpen": [1]}, r"lenpen: expected a number, found \[1\]"),
        ({"max_len_b": -1}, "max_len_b -1: 0 or more is needed"),
        ({"max_len_b": 0}, "max_len_a 0, max_len_b 0: the text for a source of 3 tokens would have no token"),
        ({"max_len_a": float("nan")}, "max_len_a nan: 0 or more is needed"),
        ({"sampling": 1}, "sampling: expected True or False, found 1"),
        ({"sampling_topk": 4}, "sampling_topk 4: sampling is needed too"),
        ({"temperature": 0}, "temperature 0: more than 0 is needed"),
    ],
)
def test_options_of_generation(loaded, options, message):
    for kind, method, languages in (("translation", "translate", ("en", "de")), ("generation", "generate", ("de",))):
        with pytest.raises(UserError, match=message):
            getattr(loaded[kind], method)(TEXT, *languages, **options)


def test_every_option_of_generation_is_one_of_fairseq(loaded):
    values = {"max_len_a": np.float64(0.5), "max_len_b": np.int64(4), "sampling": True, "sampling_topk": 4}
    values |= dict(lenpen=0.5, unkpen=1, unnormalized=True, no_repeat_ngram_size=1, temperature=0.5, beam=2)
    assert OPTIONS.keys() <= GenerationConfig.__dataclass_fields__.keys() and values.keys() <= OPTIONS.keys()
    assert len(loaded["translation"].translate(TEXT, "en", "de", **values)) == len(TEXT)
    assert len(loaded["translation"].translate(TEXT, "en", "de", sampling=True, sampling_topp=0.5)) == len(TEXT)


def test_what_cannot_be_translated_or_scored(loaded):
    for kind, method, arguments, message in (
        ("mlm", "translate", (TEXT, "en", "de"), "a model of xl_pretraining generates no text"),
        ("translation", "translate", (TEXT, "en", "fr"), "was trained for en-de, de-en, not for en-fr"),
        ("generation", "translate", (TEXT, "en", "de"), "en-de: xl_generation writes the language of the source"),
        ("mlm", "score", (TEXT,), "score: name the sentences' language with lang"),
        ("translation", "score", (TEXT, TEXT), "score: name the languages of sources and targets"),
        ("classification", "score", (TEXT, None), "score: name the sentences' language"),
        ("mlm", "predict", (TEXT, "de"), "expected a fine-tuned encoder, found a model trained by xl_pretraining"),
    ):
        with pytest.raises(UserError, match=message):
            getattr(loaded[kind], method)(*arguments)
    with pytest.raises(UserError, match="found 1 targets of 3 sources"):
        loaded["translation"].score(TEXT, TEXT[:1], source_lang="de", target_lang="en")
    with pytest.raises(UserError, match="expected a masked language model .*, found a model trained by xl_translation"):
        loaded["translation"].score(TEXT, lang="de")


def test_predict(loaded):
    found = loaded["classification"].predict([TEXT[0], ""], lang="de")
    assert found[1] is None and set(found[0]["probabilities"]) == {"river", "stone"}
    hub = loaded["classification"]
    logits = hub.model.heads["classification"](hidden_states(hub, framed(hub, TEXT[0]))[:, 0])[0]
    assert list(found[0]["probabilities"].values()) == pytest.approx(sorted(logits.softmax(0).tolist(), reverse=True))
