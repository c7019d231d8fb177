"""Fine-tuned heads of transformers come in with their labels, predict at once, and go out as they were."""

import io
import json
import shutil
import sys

import pytest
import torch
import transformers

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from tests.command_line import cli
from tests.commands import run_validate
from tests.tasks.conversion_builders import (  # noqa: F401
    SENTENCES,
    camembert,
    distilbert,
    framed,
    mbert,
    original,
    roberta,
    run,
    xlm,
    xlm_roberta,
    xlm_roberta_xl,
)
from tests.tasks.published_models import change_config, randomize

FAMILIES = {"XLMRoberta": xlm_roberta, "Roberta": roberta, "Camembert": camembert}
FAMILIES |= {"XLMRobertaXL": xlm_roberta_xl, "Bert": mbert, "DistilBert": distilbert, "XLM": xlm}
LABELS = {0: "no", 1: "perhaps", 2: "yes"}
HEADS = {"SequenceClassification": "classification", "TokenClassification": "tagging"}
HEADS |= {"QuestionAnswering": "question_answering"}


def fine_tuned(folder, data_bin, family, head):
    """A model of transformers with a head of random weights, in a folder with its tokenizer."""
    FAMILIES[family](folder, data_bin)
    kind = getattr(transformers, f"{family}For{head}{'Simple' * ((family, head) == ('XLM', 'QuestionAnswering'))}")
    labels = {} if head == "QuestionAnswering" else {"num_labels": 3, "id2label": LABELS}
    model = randomize(kind.from_pretrained(folder, **labels))
    model.save_pretrained(folder)
    return model


def logits_of(model, **inputs):
    """(B, labels), (B, T, labels), or start and end, (B, T, 2)."""
    result = model(**inputs)
    return result.logits if "logits" in result else torch.stack((result.start_logits, result.end_logits), -1)


@torch.no_grad()
@pytest.mark.parametrize(
    "family, head",
    [
        *((family, "SequenceClassification") for family in FAMILIES),  # in which layers and names differ
        *((family, "TokenClassification") for family in ("XLMRoberta", "Bert", "XLM")),
        *((family, "QuestionAnswering") for family in ("Camembert", "DistilBert", "XLM")),
    ],
)
def test_a_head_comes_in_and_goes_out(original, data_bin, tmp_path, family, head):
    theirs = fine_tuned(original, data_bin, family, head)
    run(original, tmp_path / "ours", *(["--langs", "en,de"] if family == "XLM" else []))
    loaded, task = fairseq_xl.load(tmp_path / "ours"), HEADS[head]
    tokens = framed(loaded, "de")
    real, ids = tokens.ne(1), loaded.task.dictionary.language_id("de")
    hidden = loaded.model.encode(tokens, padding_mask=~real, languages=torch.full((2, 1), ids), segments=0 * tokens)
    found = loaded.model.heads[task](hidden[:, 0] if task == "classification" else hidden)
    symbols = loaded.task.dictionary.symbols
    rows = list(range(len(symbols)))
    if "oberta" not in family:  # the rows of its own vocabulary
        tokenizer = transformers.AutoTokenizer.from_pretrained(original)
        words = {"<s>": tokenizer.cls_token, "<pad>": tokenizer.pad_token, "</s>": tokenizer.sep_token}
        if family == "XLM":
            words = {name: name[:-2] if name.endswith("@@") else f"{name}</w>" for name in symbols[4:]}
        named = [name.removeprefix("madeupword") for name in symbols]  # <s>NOTUSED of CamemBERT
        rows = [tokenizer.convert_tokens_to_ids(words.get(name, name)) for name in named]
    inputs = {"langs": torch.full_like(tokens, 1)} if family == "XLM" else {}  # the published model numbers de 1
    expected = logits_of(theirs, input_ids=torch.tensor(rows)[tokens], attention_mask=real.long(), **inputs)
    kept = slice(None) if task == "classification" else real
    torch.testing.assert_close(found[kept], expected[kept], atol=1e-5, rtol=0)
    if task == "classification":
        records = loaded.predict(SENTENCES, "de")
        probabilities = [[record["probabilities"][name] for name in LABELS.values()] for record in records]
        torch.testing.assert_close(torch.tensor(probabilities), expected.softmax(-1), atol=1e-5, rtol=0)

    run(tmp_path / "ours", tmp_path / "back", *(["--keep-languages"] if family == "XLM" else []))
    back = type(theirs).from_pretrained(tmp_path / "back").eval()
    state = theirs.state_dict()
    changed = {name for name, value in back.state_dict().items() if not torch.equal(value, state[name])}
    if family != "XLM":
        assert not changed
    else:
        assert changed <= {name for name in state if name.endswith("embeddings.weight")}
    assert type(back).__name__ in back.config.architectures
    if task != "question_answering":
        assert back.config.id2label == LABELS
    has_new_config = (family, task) == ("XLM", "classification")  # some rows of XLM do not come in
    assert back.config.problem_type == ("single_label_classification" if has_new_config else None)


def test_a_published_classifier_is_scored_at_once(original, data_bin, tmp_path, capsys, monkeypatch):
    """Pairs and single texts: a published classifier does not say which it was trained on."""
    theirs = fine_tuned(original, data_bin, "XLMRoberta", "SequenceClassification")
    run(original, tmp_path / "ours")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the house\ta tree\nthe house\n")))
    commands.main(["predict", str(tmp_path / "ours"), "--lang", "en", "--json"])
    pair, single = map(json.loads, capsys.readouterr().out.splitlines())
    assert pair["probability"] != single["probability"] and pair.keys() == single.keys()
    (tmp_path / "test.de.tsv").write_text("yes\tthe house\nno\ta tree\nno\tthe bird\n", encoding="utf-8")
    line = cli(task="xl_classification", path=tmp_path / "ours/checkpoint.pt", eval_langs="de", batch_size=2)
    folders = cli(task_files=tmp_path, valid_subset="test", predictions_to=tmp_path / "predictions")
    run_validate([tmp_path / "ours", *line, *folders])
    loaded = fairseq_xl.load(tmp_path / "ours")
    predicted = [record["label"] for record in loaded.predict(["the house", "a tree", "the bird"], "de")]
    commands.main(["score", "classification", str(tmp_path / "predictions"), "--langs", "de"])
    accuracy = sum(map(str.__eq__, predicted, ("yes", "no", "no"))) / 3
    assert f'"accuracy": {round(100 * accuracy, 2)}' in capsys.readouterr().out
    assert theirs.config.id2label == LABELS


@torch.no_grad()
@pytest.mark.parametrize("family", ["XLMRoberta", "Bert"])
def test_one_label_is_a_score(original, data_bin, tmp_path, capsys, family):
    """Of a cross-encoder; a trained one goes out with its new head."""
    FAMILIES[family](original, data_bin)
    kind, labels = getattr(transformers, f"{family}ForSequenceClassification"), {0: "relevance"}
    theirs = kind.from_pretrained(original, num_labels=1, id2label=labels)
    randomize(theirs).save_pretrained(original)
    tokenizer = transformers.AutoTokenizer.from_pretrained(original)
    run(original, tmp_path / "ours")
    texts = ["the house", "a tree", "the bird"]
    inputs = tokenizer([SENTENCES[0]] * 3, texts, return_tensors="pt", padding=True)
    expected = theirs(**inputs).logits[:, 0]
    lines = [f"{SENTENCES[0]}\t{text}" for text in texts]
    scores = [record["score"] for record in fairseq_xl.load(tmp_path / "ours").predict(lines, "de")]
    torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-5, rtol=0)
    (tmp_path / "test.de.tsv").write_text("".join(f"{n}\t{line}\n" for n, line in enumerate(lines)), encoding="utf-8")
    line = cli(task="xl_ranking", path=tmp_path / "ours/checkpoint.pt", eval_langs="de", batch_size=2)
    folders = cli(task_files=tmp_path, valid_subset="test", predictions_to=tmp_path / "predictions")
    run_validate([tmp_path / "ours", *line, *folders])
    rows = (tmp_path / "predictions/test.de.tsv").read_text(encoding="utf-8").splitlines()
    assert [float(row.split("\t")[-1]) for row in rows] == pytest.approx(expected.tolist(), abs=1e-5)
    run(tmp_path / "ours", tmp_path / "back")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (original / name).read_bytes()
    content = load_plain(tmp_path / "ours/checkpoint.pt")
    content["optimizer_history"][-1]["num_updates"] = 1
    content["model"]["heads.ranking.output.bias"] += 1
    torch.save(content, tmp_path / "trained.pt")
    run(tmp_path / "trained.pt", tmp_path / "trained", "--data", tmp_path / "ours")
    trained = type(theirs).from_pretrained(tmp_path / "trained").eval()
    torch.testing.assert_close(trained(**inputs).logits[:, 0], expected + 1, atol=1e-5, rtol=0)
    assert trained.config.id2label == labels and trained.config.label2id == {"relevance": 0}


@torch.no_grad()
@pytest.mark.parametrize("name", ["tokenizer.json", "sentencepiece.bpe.model"])
def test_the_tokenizer_frames_pairs(original, data_bin, tmp_path, name):
    """BERT with XLM-R's tokenizer, as Multilingual-MiniLM: two </s> between texts, one token type."""
    shutil.copy(data_bin / "sentencepiece.model", original / "sentencepiece.bpe.model")
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(original)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    config = transformers.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, num_labels=3, **sizes)
    theirs = randomize(transformers.BertForSequenceClassification(config))
    theirs.save_pretrained(original)
    if name == "tokenizer.json":
        (original / "sentencepiece.bpe.model").unlink()
        tokenizer.save_pretrained(original)
    run(original, tmp_path / "ours")
    loaded = fairseq_xl.load(tmp_path / "ours")
    options = loaded.model.cfg
    assert (loaded.task.framing.name, options.segment_embeddings, options.position_offset) == ("xl", "first", 0)
    inputs = tokenizer([SENTENCES[0]], [SENTENCES[1]], return_tensors="pt")
    assert inputs["input_ids"].eq(2).sum() == 3 and "token_type_ids" not in inputs
    (record,) = loaded.predict(["\t".join(SENTENCES)], "en")
    probabilities = torch.tensor([record["probabilities"][f"LABEL_{row}"] for row in range(3)])
    torch.testing.assert_close(probabilities, theirs(**inputs).logits[0].softmax(-1), atol=1e-5, rtol=0)
    run(tmp_path / "ours", tmp_path / "back")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")(*SENTENCES, return_tensors="pt")
    assert torch.equal(again["input_ids"], inputs["input_ids"]) and "token_type_ids" not in again
    back = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "back").state_dict()
    assert all(torch.equal(back[key], value) for key, value in theirs.state_dict().items())


@pytest.mark.parametrize(
    "settings", [{"problem_type": "multi_label_classification"}, {"architectures": ["MineForSequenceRegression"]}]
)
def test_heads_that_do_not_fit(original, data_bin, tmp_path, caplog, settings):
    """Labels of other outputs are refused; of a head that no task computes the encoder comes in, with a warning."""
    fine_tuned(original, data_bin, "XLMRoberta", "SequenceClassification")
    for labels in ({"0": "a", "1": "b"}, {"0": "a", "1": "b", "2": "a"}):
        change_config(original, id2label=labels)
        with pytest.raises(UserError, match="its id2label .* does not name the 3 outputs of its head"):
            run(original, tmp_path / "ours")
    change_config(original, id2label={str(row): name for row, name in LABELS.items()}, **settings)
    run(original, tmp_path / "ours")
    assert "the head of fine-tuning is not read: classifier.dense.bias, " in caplog.text
    assert fairseq_xl.load(tmp_path / "ours").task.cfg._name == "xl_pretraining"
    run(tmp_path / "ours", tmp_path / "back")  # unchanged, with the head
    assert (tmp_path / "back/model.safetensors").read_bytes() == (original / "model.safetensors").read_bytes()
