"""MonoTrans through the public commands (M1-M5): four steps, what each trains, and refused inputs."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from fairseq_xl.checkpoints import language_modules, published_models
from fairseq_xl.commands import (
    embed,
    model_convert,
    model_language_module,
    predict,
    search_bitext,
    search_pairs,
    search_xtreme,
)
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import Embedder
from fairseq_xl.mining.bitext_mining import mine
from fairseq_xl.mining.nearest_neighbors import nearest
from tests import commands
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import OPTIMIZATION, SIZE, equal_parameters, evaluated, load, run_train, run_validate, trained
from tests.tasks.conftest import prepare_here
from tests.tasks.published_models import fairseq_xlm_r, xlm_pth
from tests.tasks.resuming import check_stop
from tests.tasks.tiny_text import WORDS, sentences, write

MODEL = ["--arch", "xl_monotrans_tiny", "--layers", 1, *SIZE]
SPECIAL = "encoder.token_embeddings.special.weight"
MODULE = {"encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"}
ONLY_WORDS = ["--objectives", "mlm", "--objective-options", "mlm.length=32"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """{language: its data-bin}: each has a SentencePiece model and a dictionary of its own."""
    root = tmp_path_factory.mktemp("monotrans")
    made = {}
    for code in ("en", "de", "fr"):
        for split, count in (("train", 120), ("valid", 20)):
            lines = sentences(WORDS, count, f"{split} {code}")[code]
            documents = [[*lines[start : start + 4], ""] for start in range(0, count, 4)]
            write(root / f"{split}.{code}", [line for document in documents for line in document])
        mono = {code: {"train": f"train.{code}", "valid": f"valid.{code}"}}
        described = {"languages": [code], "vocabulary": {"size": 40}, "monolingual": mono}
        made[code] = prepare_here(described, root, code)
    return made


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    return write_task(tmp_path_factory.mktemp("task") / "files", 2)


def pretraining(data, save_dir, *more):
    return [
        data,
        *cli(task="xl_pretraining", criterion="xl_pretraining", objectives="nsp", objective_options="nsp.length=36"),
        *MODEL,
        *cli(max_tokens=256, updates_per_epoch=3, save_dir=save_dir, weight_decay=0.1, disable_validation=True),
        *OPTIMIZATION,
        *more,
    ]


def learning(data, body, save_dir, *more):
    """Step 2."""
    options = cli(init_from=body, new_language_module=True, train_only="language-module", max_update=4)
    return pretraining(data, save_dir, *options, *more)


def finetuning(data, files, body, save_dir, *more):
    """Step 3."""
    return [
        data,
        *cli(task="xl_classification", criterion="xl_classification"),
        *MODEL,
        *cli(task_files=files, lang="en", length=40, batch_size=16, init_from=body, freeze="language-module"),
        *cli(max_epoch=1, save_dir=save_dir, weight_decay=0.1, disable_validation=True, no_epoch_checkpoints=True),
        *OPTIMIZATION,
        *more,
    ]


def zero_shot(data, checkpoint, to, *more, **options):
    """Step 4."""
    options = {"batch_size": 8, "predictions_to": to, **options}
    return run_validate(evaluated(data, "classification", checkpoint, *more, **options))


def with_module(checkpoint, data, module, code="de"):
    """A model with the language module of a language, and its task."""
    overrides = {"data": str(data), "language_module": str(module), "lang": code}
    (model,), _, task = load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    return model, task


@pytest.fixture(scope="module")
def steps(text, task_files, tmp_path_factory):
    """{step: its last checkpoint}: L1; de and fr, learned over it; tuned."""
    root = tmp_path_factory.mktemp("steps")
    body = trained(pretraining(text["en"], root / "L1", "--max-update", 4))
    modules = {code: trained(learning(text[code], body, root / code)) for code in ("de", "fr")}
    return {"L1": body, **modules, "tuned": trained(finetuning(text["en"], task_files, body, root / "tuned"))}


@pytest.fixture(scope="module")
def module_files(steps, tmp_path_factory):
    """{language: file of its module}"""
    root = tmp_path_factory.mktemp("modules")
    files = {code: root / f"{code}.module.pt" for code in ("en", "de", "fr")}
    for code, path in files.items():
        model_language_module.main(["extract", str(steps["L1" if code == "en" else code]), str(path)])
    return files


def changed(one, other):
    """Names of the parameters that differ in shape or in any bit."""
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def test_learning_a_language_module_leaves_the_body_bit_by_bit(steps):
    body = load(steps["L1"])
    for code in ("de", "fr"):
        assert changed(body, load(steps[code])) == MODULE


def test_the_optimizer_of_the_recipe_leaves_the_body_too(text, steps, tmp_path):
    """LAMB would decay and rescale every parameter that it is given (M6)."""
    line = learning(text["de"], steps["L1"], tmp_path, "--optimizer", "xl_lamb", "--lr", 0.1)
    assert changed(load(steps["L1"]), load(trained(line))) == MODULE


def test_finetuning_leaves_the_language_module_and_trains_special_symbols_and_body(steps):
    before, after = load(steps["L1"]), load(steps["tuned"])
    after = {name: value for name, value in after.items() if not name.startswith("heads.classification")}
    before = {name: value for name, value in before.items() if not name.startswith("heads.")}
    found = changed(before, after)
    assert not found & MODULE and SPECIAL in found
    layers = {name for name in before if name.startswith("encoder.layers.")}
    assert layers <= found | {name for name in layers if name.endswith("qkv.bias")}
    moved = (before[SPECIAL] - after[SPECIAL]).abs().amax(dim=1)  # <s> <pad> </s> <unk> <mask>
    assert min(moved[[0, 2]]) > 5 * max(moved[[1, 3, 4]])  # the text has two of them, the others only decay


def composed(steps, code):
    """The weights of step 4: the language module of `code`, all else from fine-tuning."""
    module = load(steps[code])
    return {name: module[name] if name in MODULE else value for name, value in load(steps["tuned"]).items()}


@pytest.mark.parametrize("kind", ["module", "checkpoint"])
def test_a_language_module_replaces_another_and_nothing_else_changes(text, steps, module_files, tmp_path, kind):
    path = {"module": module_files["de"], "checkpoint": steps["de"]}[kind]
    model, task = with_module(steps["tuned"], text["de"], path)
    assert equal_parameters(model.state_dict(), composed(steps, "de"))
    assert not torch.equal(model.encoder.token_embeddings.special.weight, load(steps["de"])[SPECIAL])
    tokens = torch.tensor([[0, 4, 2, 2, 5, 2]])
    vectors = model.encoder.token_embeddings.eval()(tokens)[0]
    assert torch.equal(vectors[[0, 2]], load(steps["tuned"])[SPECIAL][[0, 2]])
    assert torch.equal(vectors[[1, 4]], load(steps["de"])["encoder.token_embeddings.table.weight"][[4, 5]])
    assert task.dictionary.languages == ["de"]


def labels(path, column=0):
    return [line.split("\t")[column] for line in path.read_text(encoding="utf-8").splitlines()]


def test_predictions_without_training(text, task_files, steps, module_files, tmp_path):
    """With a module, and with the classifier's own."""
    for code, module in (("de", cli(lang="de", language_module=module_files["de"])), ("en", [])):
        zero_shot(text[code], steps["tuned"], tmp_path, *module, valid_subset="test")
        assert labels(tmp_path / f"test.{code}.tsv", 1) == labels(task_files / f"test.{code}.tsv")


def test_finetuning_with_a_language_module_from_a_file(text, task_files, steps, module_files, tmp_path):
    """The body is the checkpoint's, the language module the file's, which loading the result does not need."""
    copy = shutil.copy(module_files["de"], tmp_path / "copy.pt")
    more = cli(lang="de", language_module=copy, max_update=2)
    tuned = trained(finetuning(text["de"], task_files, steps["L1"], tmp_path / "save", *more))
    Path(copy).unlink()
    assert all(torch.equal(load(tuned)[name], load(steps["de"])[name]) for name in MODULE)
    zero_shot(text["de"], tuned, tmp_path)
    assert [path.name for path in tmp_path.glob("*.tsv")] == ["valid.de.tsv"]
    model, _ = with_module(tuned, text["fr"], module_files["fr"], "fr")
    assert all(torch.equal(model.state_dict()[name], load(steps["fr"])[name]) for name in MODULE)


@pytest.mark.parametrize("step", ["L1 in passes", "de", "tuned"])
def test_a_stopped_run_resumes_bit_by_bit(text, task_files, steps, tmp_path, step):
    def line(folder, *more):
        more = ["--save-interval-updates", 1, *more]
        if step == "tuned":
            return finetuning(text["en"], task_files, steps["L1"], folder, "--embedding-noise", 0.5, *more)
        if step == "de":
            return learning(text["de"], steps["L1"], folder, "--adapters", 4, *more)
        return pretraining(text["en"], folder, *cli(updates_per_epoch="auto", max_tokens=800), *more)  # windows drawn

    whole = run_train(line(tmp_path / "whole", "--max-update", 4))
    check_stop(line, tmp_path, (tmp_path / "whole", whole), 2, 4)
    paths = tmp_path / "checkpoint_last.pt", tmp_path / "whole/checkpoint_last.pt"
    bodies = [torch.load(path, weights_only=False)["task_state"]["fairseq_xl"].get("body") for path in paths]
    assert len(whole.losses) == 4 and bodies[0] == bodies[1] and bool(bodies[0]) == (step in ("de", "tuned"))


def test_searches_with_a_language_module_for_a_language(text, steps, module_files, tmp_path, capsys):
    """Each side's vectors are computed with the language module of its language."""
    lines = {code: texts[:9] for code, texts in sentences(("en", "de"), 12, "mining").items()}
    for name in ("tatoeba/de-en", "bucc2018/de-en.dev", "bucc2018/de-en.test"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        for code in lines:
            write(tmp_path / f"{name}.{code}", lines[code])
    (tmp_path / "bucc2018/de-en.dev.gold").write_text("0\t0\n1\t1\n", encoding="utf-8")
    model, german = [*map(str, (steps["tuned"], text["en"]))], f"de={text['de']}:{module_files['de']}"
    layer, module = ["--layer", "1"], ["--language-module", german]
    embedders = {
        "de": Embedder(steps["tuned"], text["de"], language_module=str(module_files["de"]), lang="de"),
        "en": Embedder(steps["tuned"], text["en"]),
    }
    weights = {f"encoder.{name}": value for name, value in embedders["de"].encoder.state_dict().items()}
    expected = {name: value for name, value in composed(steps, "de").items() if name.startswith("encoder.")}
    assert equal_parameters(weights, expected)
    vectors = {code: embedders[code](lines[code], code, [(1, "mean")])[1, "mean"] for code in embedders}

    sides = [f"{code}={tmp_path}/tatoeba/de-en.{code}" for code in ("de", "en")]
    search_bitext.main([*model, *sides, *layer, *module, "--output", str(tmp_path / "mined")])
    expected = [f"{pair.margin:.4f}\t{pair.source}\t{pair.target}" for pair in mine(vectors["de"], vectors["en"])]
    assert (tmp_path / "mined").read_text().splitlines() == expected
    released = [*model, str(tmp_path), str(tmp_path / "out"), "--langs", "de", *layer, "--pooling", "mean"]
    search_xtreme.main([*released, *module])
    numbers = nearest(vectors["en"], vectors["de"], 1)[1][:, 0].tolist()
    assert (tmp_path / "out/tatoeba/test-de.tsv").read_text().split() == [str(number) for number in numbers]
    command = ["--test", f"en-de={tmp_path / 'tatoeba/de-en'}", *layer, "--pooling", "mean"]
    added = [*map(str, (steps["de"], text["de"])), *command]  # a checkpoint of step 2, with another language's module
    english = ["--language-module", f"en={text['en']}:{module_files['en']}"]
    for searched in ([*model, *command, *module], [*added, *english]):
        capsys.readouterr()
        search_pairs.main(searched)
        assert json.loads(capsys.readouterr().out)["test"]["en-de"]["pairs"] == 9
    for wrong, message in (
        ([], "is of en: --language-module de=DATA:MODULE gives the model a language module of de"),
        (["de"], "--language-module de: expected XX=DATA:MODULE"),
        (["de=data"], "--language-module de=data: expected XX=DATA:MODULE"),
        (["fr" + german[2:]], "there are no sentences of fr"),
        ([german, german], "de is named twice"),
    ):
        with pytest.raises(UserError, match=message):
            search_pairs.main([*model, *command, *(word for lang in wrong for word in ("--language-module", lang))])


def test_unlabeled_text_with_a_language_module(text, task_files, steps, module_files, tmp_path, capsys):
    """Classes are those of validation with the module, embeddings those of its vectors."""
    module = ["--language-module", str(module_files["de"]), "--lang", "de"]
    zero_shot(text["de"], steps["tuned"], tmp_path, *module)
    labeled = (task_files / "valid.de.tsv").read_text(encoding="utf-8").splitlines()
    write(tmp_path / "text", [line.partition("\t")[2] for line in labeled])
    command = [*map(str, (steps["tuned"], text["de"])), *module, "--input", str(tmp_path / "text")]
    capsys.readouterr()
    predict.main(command)
    found = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [label for label, _ in found] == labels(tmp_path / "valid.de.tsv", -2) and len(found) == len(labeled)
    expected = [*map(float, labels(tmp_path / "valid.de.tsv", -1))]
    assert [float(value) for _, value in found] == pytest.approx(expected, abs=2e-6)
    embed.main([*command, "--output", str(tmp_path / "rows.npy")])
    embedder = Embedder(steps["tuned"], text["de"], language_module=str(module_files["de"]), lang="de")
    expected = embedder([line.partition("\t")[2] for line in labeled], "de", [(1, "mean")])[1, "mean"]
    assert np.array_equal(np.load(tmp_path / "rows.npy"), expected)
    with pytest.raises(UserError, match="dictionary"):
        predict.main(command[:2] + command[-2:])


def test_a_classifier_with_a_language_module_is_an_ordinary_model_elsewhere(
    text, task_files, steps, module_files, tmp_path
):
    """Probabilities of a BERT classifier of transformers, by its own tokenizer, are those of validation.

    The pooler is that of next-sentence prediction (M7).
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    out, module = tmp_path / "out", module_files["de"]
    more = ["--pooler", *cli(lr=0, max_update=1)]
    checkpoint = trained(finetuning(text["en"], task_files, steps["L1"], tmp_path / "save", *more))
    state, body = load(checkpoint), load(steps["L1"])
    for name in ("weight", "bias"):
        assert torch.equal(state[f"heads.classification.pooler.{name}"], body[f"heads.nsp.0.{name}"])
    zero_shot(text["de"], checkpoint, tmp_path, lang="de", language_module=module)
    expected = [row.split("\t") for row in (tmp_path / "valid.de.tsv").read_text(encoding="utf-8").splitlines()]
    line = [*map(str, (checkpoint, out, "--data", text["de"], "--language-module", module)), "--lang", "de"]
    model_convert.main(line)
    model = AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert type(model).__name__ == "BertForSequenceClassification"
    labeled = [row.split("\t") for row in (task_files / "valid.de.tsv").read_text(encoding="utf-8").splitlines()]
    with torch.no_grad():
        for (_, *texts), (*_, label, probability) in zip(labeled, expected, strict=True):
            found = model(**tokenizer(*texts, truncation=True, return_tensors="pt")).logits.softmax(-1)[0]
            assert model.config.id2label[int(found.argmax())] == label
            assert float(found.max()) == pytest.approx(float(probability), abs=2e-6)
    with pytest.raises(UserError, match="dictionary"):
        model_convert.main([*line[:1], str(tmp_path / "other"), *line[2:4], "--lang", "de"])


ALL = ["--language-positions", "--embedding-noise", 0.075]


@pytest.mark.parametrize("body_has_positions", [True, False])
def test_positions_adapters_and_noise(text, task_files, steps, tmp_path, body_has_positions):
    """Step 2 learns positions (M3) and adapters (M5), which step 3 keeps; step 3 adds noise (M4).

    One body serves all variants: positions per language are added to one without, too (M6).
    """
    path = steps["L1"]
    if body_has_positions:
        path = trained(pretraining(text["en"], tmp_path / "L1", "--max-update", 2, ALL[0]))
        message = refusal(run_train, learning(text["de"], path, tmp_path / "plain"))
        assert "needs --language-positions True, this run has False" in message
    german = trained(learning(text["de"], path, tmp_path / "de", ALL[0], "--adapters", 4))
    body, learned = load(path), load(german)
    adapters = {name for name in learned if "_adapter." in name}
    common = {name: value for name, value in learned.items() if name not in adapters}
    assert len(adapters) == 8 and all(learned[name].abs().sum() > 0 for name in adapters)
    owned = MODULE | {"encoder.embeddings.positions.weight"}
    assert changed(body, common) == owned | (set() if body_has_positions else {SPECIAL})
    if not body_has_positions:
        first = body["encoder.embeddings.positions.weight"][0] + body["encoder.embeddings.segments.weight"][0]
        assert torch.equal(learned[SPECIAL][0], body[SPECIAL][0] + first)
        assert torch.equal(learned[SPECIAL][1:], body[SPECIAL][1:])
    checkpoint = trained(finetuning(text["en"], task_files, path, tmp_path / "tuned", *ALL))
    tuned, segments = load(checkpoint), "encoder.embeddings.segments.weight"
    assert all(torch.equal(tuned[name], body[name]) for name in owned)
    assert not torch.equal(tuned[segments], body[segments])
    assert torch.load(checkpoint, weights_only=False)["cfg"]["model"]["embedding_noise"] == 0.075
    model_language_module.main(["extract", str(german), str(tmp_path / "de.pt")])
    expected = tuned | {name: learned[name] for name in owned | adapters}
    assert equal_parameters(with_module(checkpoint, text["de"], tmp_path / "de.pt")[0].state_dict(), expected)
    zero_shot(text["de"], checkpoint, tmp_path, lang="de", language_module=german)
    assert (tmp_path / "valid.de.tsv").is_file()


def test_a_language_is_added_to_a_multilingual_body(data_bin, text, tmp_path):
    """L1 is an ordinary checkpoint of three languages with language embeddings; German is learned again."""
    form = ["--language-embeddings", "added", "--output-form", "plain", "--segment-embeddings", "none"]
    body = trained(commands.pretraining(data_bin, tmp_path / "L1", "--max-update", 2, objectives="mlm"))
    german = trained(learning(text["de"], body, tmp_path / "de", *form, *ONLY_WORDS))
    before, after = load(body), load(german)
    owned = MODULE | {"encoder.embeddings.languages.weight"}
    assert all(torch.equal(after[name], value) for name, value in before.items() if name not in owned)
    table = before["encoder.token_embeddings.table.weight"]
    assert torch.equal(after[SPECIAL], table[[0, 1, 2, 3, len(table) - 4]])  # <mask> is before three languages' symbols
    assert after["encoder.embeddings.languages.weight"].shape == (1, 16)
    module = language_modules.read(german, "de")
    assert module.state.keys() == owned and module.body == language_modules.body_digest(before, False)
    with pytest.raises(UserError, match="lacks heads.nsp.0.weight, which would stay random"):
        run_train(learning(text["de"], body, tmp_path / "nsp", *form))


PUBLISHED = {
    "XLM-R": (fairseq_xlm_r, cli(position_offset=2, layer_norm_eps=1e-5)),
    "XLM": (xlm_pth, cli(language_embeddings="added", output_form="plain", framing="xlm", ffn_dim=64)),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_language_is_added_to_a_published_body(data_bin, text, task_files, tmp_path, kind):
    """Steps 2 to 4 on published layouts with random weights; the classifier uses the body's own dictionary."""
    symbols = XLDictionary.load(data_bin / "dict.txt")
    make, form = PUBLISHED[kind]
    form = [*form, *cli(layers=2, segment_embeddings="none")]
    file, _ = make(data_bin, symbols.symbols[: symbols.first_language], tmp_path)
    module = trained(learning(text["de"], file, tmp_path / "de", *form, *ONLY_WORDS))
    if kind == "XLM":
        positions = learning(text["de"], file, tmp_path / "positions", *form, *ONLY_WORDS, ALL[0])
        assert "needs --language-positions False: an input of --framing xlm begins" in refusal(run_train, positions)
    before, after = published_models.read(file).state, load(module)
    owned = MODULE | ({"encoder.embeddings.languages.weight"} if kind == "XLM" else set())
    body = {name: value for name, value in before.items() if name not in owned}
    assert len(before) > 25 and all(torch.equal(after[name], value) for name, value in body.items())
    assert after.keys() - before.keys() == {SPECIAL}
    assert torch.equal(after[SPECIAL], before["encoder.token_embeddings.table.weight"][[0, 1, 2, 3, -1]])
    checkpoint = trained(finetuning(data_bin, task_files, file, tmp_path / "tuned", *form, "--max-update", 2))
    tuned = load(checkpoint)
    table = before["encoder.token_embeddings.table.weight"]
    assert torch.equal(tuned["encoder.token_embeddings.table.weight"][4 : len(table) - 1], table[4:-1])
    assert not torch.equal(tuned[SPECIAL], after[SPECIAL])
    model, _ = with_module(checkpoint, text["de"], module)
    assert equal_parameters(model.state_dict(), tuned | {name: after[name] for name in owned})


def refusal(command, *arguments):
    with pytest.raises(UserError) as refused:
        command(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_language_modules_that_do_not_fit(text, task_files, steps, module_files, tmp_path):
    def error(code, *more):
        return refusal(zero_shot, text[code], steps["tuned"], tmp_path, *more)

    other = f"--language-module {module_files['fr']} is of another dictionary .languages fr. than"
    for code, more, expected in (
        ("de", cli(language_module=module_files["fr"]), other),
        ("de", cli(lang="fr", language_module=module_files["de"]), "^--lang fr: "),
        ("en", cli(lang="xx"), "has no symbol in the dictionary"),
        ("de", cli(lang="de"), "was trained with another dictionary"),
        ("de", cli(language_module=text["de"] / "dict.txt"), "is not a checkpoint, or it is damaged"),
    ):
        assert re.search(expected, error(code, *more))
    content = torch.load(module_files["de"])
    wide = {name: v.repeat(1, 2)[..., :40] if v.dim() > 1 else v for name, v in content["state"].items()}
    for name, change, expected in (
        ("wide", {"state": wide}, "has shape"),
        ("other", {"body": "0"}, "was learned with another body than the model's"),
        ("positions", {"language_positions": True}, "is with positions of its own (--language-positions), the model"),
        ("adapters", {"adapters": 4}, "lacks encoder.layers.0.attention_adapter.down.weight, which the model has"),
    ):
        torch.save(content | change, tmp_path / name)
        assert expected in error("de", "--language-module", tmp_path / name), name
    assert not list(tmp_path.glob("*.tsv"))


def test_options_that_do_not_fit(text, task_files, steps, tmp_path):
    line = pretraining(text["de"], tmp_path / "save", "--max-update", 1)
    step_2 = learning(text["de"], steps["L1"], tmp_path / "save")
    new, module = "--new-language-module", cli(language_module=steps["de"], lang="de")
    plain = finetuning(text["en"], task_files, steps["L1"], tmp_path / "save")
    plain[plain.index("xl_monotrans_tiny")] = "xl_xlmr_tiny"
    for words, expected in (
        ([*line, new], f"^{new} needs --init-from and an encoder with language modules"),
        ([*line, "--init-from", steps["L1"]], "was trained with another dictionary"),
        ([*step_2, "--language-positions", "--framing", "xlm"], "needs --framing xl, this run has xlm"),
        ([*step_2, "--segment-embeddings", "none"], "needs --segment-embeddings added, this run has none"),
        ([*line, *module], f"^--language-module {steps['de']}: --init-from must name the model"),
        ([*step_2, *module], "choose one of them"),
        (plain, "--freeze language-module: no parameter has such a name"),
    ):
        assert re.search(expected, refusal(run_train, words))


def test_a_body_that_is_trained_too_fits_no_other_model(text, steps, tmp_path):
    line = learning(text["de"], steps["L1"], tmp_path / "save")
    del line[line.index("--train-only") : line.index("--train-only") + 2]
    assert "the body is trained too: the language module fits no other model" in run_train(line).log
    more = cli(lang="de", language_module=tmp_path / "save/checkpoint_last.pt")
    assert "another body" in refusal(zero_shot, text["de"], steps["tuned"], tmp_path, *more)


def test_a_language_module_learned_over_a_classifier_belongs_to_its_body(
    text, task_files, steps, module_files, tmp_path
):
    """It fits that classifier only, which also takes the modules of the body that it was fine-tuned from."""
    module = trained(learning(text["fr"], steps["tuned"], tmp_path / "fr", *ONLY_WORDS))
    before, predicting = load(steps["L1"]), [name for name in load(module) if name.startswith("output.")]
    assert predicting and all(torch.equal(load(module)[name], before[name]) for name in predicting)
    assert language_modules.read(module).body == language_modules.body_digest(load(steps["tuned"]), False)
    with_module(steps["tuned"], text["fr"], module, "fr")
    other = trained(finetuning(text["en"], task_files, steps["L1"], tmp_path / "other", "--max-update", 1))
    with_module(other, text["fr"], module_files["fr"], "fr")
    more = cli(lang="fr", language_module=module)
    assert "another body" in refusal(zero_shot, text["fr"], other, tmp_path, *more)


def test_a_language_module_learned_in_16_bits_belongs_to_the_body_in_32(text, steps, module_files, tmp_path):
    module = trained(learning(text["de"], steps["L1"], tmp_path / "de", "--bf16"))
    bodies = {language_modules.read(path).body for path in (module, module_files["de"])}
    assert bodies == {language_modules.body_digest(load(steps["L1"]), False)}
    with_module(steps["tuned"], text["de"], module)


def test_a_language_module_of_several_languages_serves_those_named(data_bin, task_files, tmp_path):
    """A joint model's: without --lang, --eval-langs names the languages."""
    body = trained(pretraining(data_bin, tmp_path / "L1", *ONLY_WORDS, "--max-update", 1))
    output = run_train(finetuning(data_bin, task_files, body, tmp_path / "tuned", "--max-update", 1, "--pooler"))
    assert "heads.classification.pooler.weight, heads.classification.pooler.bias" in output.log  # new: no NSP
    tuned = tmp_path / "tuned/checkpoint_last.pt"
    zero_shot(data_bin, tuned, tmp_path, language_module=body, eval_langs="de,fr")
    assert {path.name for path in tmp_path.glob("*.tsv")} == {"valid.de.tsv", "valid.fr.tsv"}
