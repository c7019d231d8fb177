"""What a published folder says lives on in checkpoints, through training and moves, and in the folders made of them."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import fairseq_xl
from fairseq_xl.checkpoints.description import describe
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.checkpoints.layouts.stored_origin import KEY, Origin
from fairseq_xl.commands import search_bitext, search_pairs
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.retrieval_scores import cosine, evaluate_similarity
from fairseq_xl.inference.cards import model_card
from fairseq_xl.io.checkpoints import load_plain
from tests.command_line import cli
from tests.commands import CPU, run_train
from tests.tasks.conftest import prepare_here
from tests.tasks.conversion_builders import (  # noqa: F401
    SENTENCES,
    TEXT,
    camembert,
    framed,
    mbart,
    mbert,
    original,
    roberta,
    run,
    xlm_roberta,
)
from tests.tasks.sentence_encoders import embedded, sentences  # noqa: F401
from tests.tasks.tiny_text import write

FAMILIES = {"RobertaForMaskedLM": roberta, "CamembertForMaskedLM": camembert, "BertForPreTraining": mbert}


def train(data, folder, init_from, **options):
    """A training of one update, which starts from a folder or a checkpoint; returns its checkpoint."""
    task = cli(task="xl_pretraining", criterion="xl_pretraining", objectives="mlm", optimizer="xl_adam", langs="en,de")
    limits = cli(max_update=1, batch_size=2, disable_validation=True, save_dir=folder, init_from=init_from)
    run_train([data, *task, *limits, *cli(objective_options="mlm.length=16", **options), *CPU])
    return folder / "checkpoint_last.pt"


def changed(folder, change, updates=1):
    """The checkpoint of a converted folder with a change, as if it had been trained."""
    content = load_plain(folder / "checkpoint.pt")
    content["optimizer_history"][-1]["num_updates"] = updates
    change(content)
    torch.save(content, folder / "trained.pt")
    return folder / "trained.pt"


@pytest.mark.parametrize("sentences", ["mean"], indirect=True)
def test_a_trained_sentence_encoder_is_one_in_any_folder(sentences, data_bin, tmp_path, caplog):
    """Settings and pooler of the folder are in checkpoints of trainings that start from it, and no output layer."""
    from sentence_transformers import SentenceTransformer

    last = train(data_bin, tmp_path / "run", tmp_path / "theirs", lr=0)
    last = train(data_bin, tmp_path / "more", last, lr=0)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(last, tmp_path / "elsewhere/model.pt")
    expected = sentences.encode(SENTENCES)
    np.testing.assert_allclose(embedded(moved, tmp_path, data_bin, text=SENTENCES), expected, atol=1e-6)
    shown = describe(moved)
    assert shown["published as"] == ["XLMRobertaModel"] and shown["sentence embeddings"]["max_length"] == 9
    assert "pipeline_tag: sentence-similarity" in model_card(open_checkpoint(moved), "a")
    run(moved, tmp_path / "out", "--data", data_bin)
    again = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(again.encode(SENTENCES), expected, atol=1e-6)
    run(moved, tmp_path / "plain", "--data", data_bin, "--to", "transformers")
    assert "model.pt: the output layer is left out: its biases are 0" in caplog.text
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "plain"))
    assert {name.removeprefix("roberta.") for name in after} == before.keys()
    assert torch.equal(after["roberta.pooler.dense.weight"], before["pooler.dense.weight"])
    assert json.loads((tmp_path / "plain/config.json").read_text())["architectures"] == ["XLMRobertaModel"]
    content = load_plain(moved)
    content["task_state"][KEY]["names"] = [1]
    torch.save(content, moved)
    with pytest.raises(UserError, match="task_state.published.names is expected to be dict, found"):
        run(moved, tmp_path / "no", "--data", data_bin)


@pytest.mark.parametrize("sentences", ["mean"], indirect=True)
def test_a_translation_model_that_began_as_a_sentence_encoder_goes_out_with_its_decoder(sentences, data_bin, tmp_path):
    run(tmp_path / "theirs", tmp_path / "encoder")
    (tmp_path / "mbart").mkdir()
    mbart(tmp_path / "mbart", data_bin)
    run(tmp_path / "mbart", tmp_path / "ours", "--langs", "en,de")
    origin = load_plain(tmp_path / "encoder/checkpoint.pt")["task_state"][KEY]
    trained = changed(tmp_path / "ours", lambda content: content["task_state"].update({KEY: origin}))
    assert "pipeline_tag: translation" in model_card(open_checkpoint(trained), "a")
    run(trained, tmp_path / "out", "--data", tmp_path / "ours", "--lang", "en-de")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out").architectures == ["MBartForConditionalGeneration"]
    with pytest.raises(UserError, match="has a decoder, which sentence-transformers lacks: --to transformers"):
        run(trained, tmp_path / "no", "--data", tmp_path / "ours", "--to", "sentence-transformers", "--lang", "en-de")


def test_a_stored_config_names_no_code():
    origin = Origin("bert", "bert", False, '{"auto_map": {"AutoModel": "mine.Model"}}', {}, {}, {})
    with pytest.raises(UserError, match="published.config names code, auto_map {'AutoModel': 'mine.Model'}"):
        _ = origin.entries


@pytest.fixture
def trained(original, data_bin, tmp_path):
    """Converts a family's model and trains it for an update on text of its vocabulary; the model and the checkpoint."""

    def trained(name):
        theirs = FAMILIES[name](original, data_bin)
        run(original, tmp_path / "ours", "--langs", "en,de")
        files = {code: {"train": str(tmp_path / f"train.{code}")} for code in ("en", "de")}
        for code in files:
            write(tmp_path / f"train.{code}", TEXT)
        description = {"languages": [*files], "monolingual": files}
        data = prepare_here(description, tmp_path, "data", vocabulary_from=tmp_path / "ours")
        return theirs, train(data, tmp_path / "run", tmp_path / "ours", lr=0.01)

    return trained


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trained_model_is_of_the_class_that_came_in(trained, tmp_path, name):
    """Also in the order of rows of this package; mBERT has its pooler and next-sentence classifier."""
    theirs, checkpoint = trained(name)
    before, states = theirs.state_dict(), []
    for data in ("ours", "data"):
        run(checkpoint, tmp_path / f"of {data}", "--data", tmp_path / data)
        back = getattr(transformers, name).from_pretrained(tmp_path / f"of {data}").eval()
        assert back.config.architectures == [name] and back.config.model_type == theirs.config.model_type
        states.append(back.state_dict())
        assert states[-1].keys() == before.keys()
    moved = ("word_embeddings", "predictions.bias", "decoder", "lm_head.bias")  # rows
    same = [key for key in before if not any(part in key for part in moved)]
    assert len(same) > 20 and all(torch.equal(states[0][key], states[1][key]) for key in same)
    unread = [key for key in before if "pooler" in key or "seq_relationship" in key]
    assert len(unread) == 4 * (name == "BertForPreTraining")
    assert all(torch.equal(states[0][key], before[key]) for key in unread)
    assert sum(not torch.equal(states[0][key], before[key]) for key in same) > 20
    loaded = fairseq_xl.load(checkpoint, tmp_path / "data")
    tokens = framed(loaded, "en")
    real = tokens.ne(1)
    with torch.no_grad():
        expected = loaded.model.output(loaded.model.encode(tokens, padding_mask=~real, segments=0 * tokens))
        logits = back(tokens, attention_mask=real.long())[0]
    torch.testing.assert_close(logits[real], expected[real], atol=1e-5, rtol=0)


def test_the_tokenizer_is_true_of_the_trained_model(original, data_bin, tmp_path):
    """Its length is that of fine-tuning; a model of another framing gets a tokenizer of its own."""
    model = xlm_roberta(original, data_bin)
    transformers.XLMRobertaForTokenClassification(model.config).save_pretrained(original)
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(original, model_max_length=30)
    tokenizer(SENTENCES, truncation=True, max_length=30)  # which is saved too
    tokenizer.save_pretrained(original)
    (original / "sentencepiece.bpe.model").unlink()
    run(original, tmp_path / "ours")
    lengths = []
    for updates in (0, 1):
        trained = changed(tmp_path / "ours", lambda content: content["cfg"]["task"].update(length=12), updates)
        run(trained, tmp_path / f"{updates}", "--data", tmp_path / "ours")
        back = transformers.AutoTokenizer.from_pretrained(tmp_path / f"{updates}")
        lengths.append((back.model_max_length, back.backend_tokenizer.truncation["max_length"]))
        assert len(back(*SENTENCES, add_special_tokens=True)["input_ids"]) == len(tokenizer(*SENTENCES)["input_ids"])
    assert lengths == [(30, 30), (12, 12)]
    path = tmp_path / "ours/published/tokenizer.json"
    whole = path.read_text(encoding="utf-8")
    path.write_text(json.dumps(json.loads(whole) | {"truncation": "x"}), encoding="utf-8")
    with pytest.raises(UserError, match="published/tokenizer.json is damaged: its truncation is 'x'"):
        run(trained, tmp_path / "damaged", "--data", tmp_path / "ours")
    path.write_text(whole, encoding="utf-8")

    def reframe(content):
        content["cfg"]["task"]["framing"] = content["task_state"]["fairseq_xl"]["framing"] = "bert"

    run(changed(tmp_path / "ours", reframe), tmp_path / "bert", "--data", tmp_path / "ours")
    framed = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")(*SENTENCES)["input_ids"]
    assert framed.count(2) == 2 and tokenizer(*SENTENCES)["input_ids"].count(2) == 3


@pytest.mark.parametrize("sentences", ["cls"], indirect=True)
def test_searches_embed_as_embed_does(sentences, tmp_path, capsys):
    """With pooling and default prompt of the folder, or another prompt."""
    run(tmp_path / "theirs", tmp_path / "ours")
    texts = {"en": [*TEXT, *SENTENCES], "de": [*SENTENCES, *TEXT]}
    for code, lines in texts.items():
        (tmp_path / f"x.{code}").write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)), encoding="utf-8")
    sides = [[*dict.fromkeys(lines)] for lines in texts.values()]
    for prompt in ("passage", "query"):
        first, second = (sentences.encode(side, prompt_name=prompt) for side in sides)
        more = () if prompt == "passage" else ("--prompt", prompt)
        capsys.readouterr()
        folder = [str(tmp_path / "ours")] * 2
        search_pairs.main([*folder, "--test", f"en-de={tmp_path / 'x'}", *more])
        result = json.loads(capsys.readouterr().out)
        expected = evaluate_similarity(cosine(first, second))
        assert (result["layer"], result["pooling"]) == (2, "first")
        assert {name: result["test"]["en-de"][name] for name in expected} == expected
        files = [f"{code}={tmp_path / 'x'}.{code}" for code in texts]
        search_bitext.main([*folder, *files, *more, "--output", str(tmp_path / "a")])
        for name, rows in (("en", first), ("de", second)):
            np.save(tmp_path / f"{name}.npy", rows)
        matrices = ["--embeddings", *(str(tmp_path / f"{name}.npy") for name in texts)]
        search_bitext.main([*matrices, *files, "--output", str(tmp_path / "b")])
        assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() != ""
