"""Conversion: bad input, options that do not fit, what is written beside a model, descriptions."""

import contextlib
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.commands import model_show
from fairseq_xl.errors import UserError
from tests.builders import write_task
from tests.command_line import cli
from tests.commands import run_train
from tests.tasks.conversion_builders import SENTENCES, framed, mbart, nllb, original, run, xlm_roberta  # noqa: F401
from tests.warm_python import python


def with_files(contents, *removed, builder=xlm_roberta, shards=False):
    """A writer of a model's folder: {name: text, or changed entries of a JSON file}, without the files `removed`."""

    def write(folder, data_bin):
        builder(folder, data_bin, **{"shards": True} if shards else {})
        for name in removed:
            next(folder.glob(name)).unlink()
        for name, content in contents.items():
            if isinstance(content, dict):
                old = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
                content = json.dumps(old | content)
            (folder / name).write_text(content)

    return write


def damaged(folder, data_bin):
    xlm_roberta(folder, data_bin)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def another_kind(folder, data_bin):
    config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2)
    transformers.GPT2Model(config).save_pretrained(folder)


PIECES, CODE = "sentencepiece.bpe.model", {"modeling.py": "raise SystemExit('ran')"}
MINE = {"auto_map": {"AutoModel": "modeling.Mine"}}
ELSEWHERE = {"weight_map": {"roberta.embeddings.LayerNorm.bias": "../other.safetensors"}}
code = with_files({"config.json": {"model_type": "mine"} | MINE} | CODE)
BAD = [
    (damaged, "model.safetensors is not a safetensors file, or it is damaged or cut short"),
    (
        with_files({}, "model-00002*", shards=True),
        "model-00002.* cannot be read as a checkpoint: No such file",
    ),
    (
        with_files({"model.safetensors.index.json": ELSEWHERE}, shards=True),
        "names the shard '../other.safetensors': expected a file in the same folder",
    ),
    (
        with_files({"vocab.json": "{}", "merges.txt": ""}, PIECES),
        "its tokenizer, vocab.json and merges.txt, is byte-level BPE as of roberta-base, which is not",
    ),
    (with_files({}, PIECES), "is needed beside model.safetensors"),
    (
        with_files({"dict.txt": "".join(f"p{number} 1\n" for number in range(7))}, PIECES),
        "token embeddings have 83 rows, but .*dict.txt lists 12 symbols",
    ),
    (another_kind, "model_type 'gpt2'; bart, bert, camembert, distilbert, encoder-decoder, m2m_100, mb"),
    (code, "model_type 'mine'; "),
    (with_files({"config.json": MINE} | CODE), "config.json names code of its own, .*modeling.Mine'}: no code"),
    (with_files({"tokenizer_config.json": MINE} | CODE), "tokenizer_config.json names code of its own, auto_map"),
    (with_files({"added_tokens.json": {"a": [1]}}), "added_tokens.json is damaged: its added tokens are not texts wit"),
    (
        with_files({"added_tokens.json": {"a": 83}, "tokenizer_config.json": {"added_tokens_decoder": [1]}}),
        "tokenizer_config.json is damaged: its added_tokens_decoder is .1., expected flags by row",
    ),
    (
        with_files({"config.json": {"max_position_embeddings": 10**12}}, builder=nllb),
        "max_position_embeddings 1000000000000: 1 to 65536 are expected",
    ),
]


@pytest.mark.parametrize("make, message", BAD)
def test_bad_input_is_one_sentence_and_writes_nothing(original, data_bin, tmp_path, make, message):
    make(original, data_bin)
    with pytest.raises(UserError, match=message):
        run(original, tmp_path / "ours", "--langs", "en")
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def test_options_of_the_other_direction_are_refused(original, data_bin, tmp_path):
    def refused(name, output, *options, match):
        with pytest.raises(UserError, match=match):
            run(tmp_path / name, tmp_path / output, *options)

    xlm_roberta(original, data_bin)
    refused("nothing", "ours", match="there is no such file or folder")
    first = "{}: .* is a published model: convert it to a checkpoint first"
    refused("original", "ours", "--dtype", "float16", match=first.format("--dtype"))
    refused("original", "ours", "--to", "transformers", match=first.format("--to"))
    refused("original", "ours", "--langs", "en,en", match="en is named twice")
    refused("original", "ours", "--langs", "e n", match="'e n' is not")
    (tmp_path / "ours.tmp").mkdir()
    (tmp_path / "ours.tmp" / "thesis.txt").write_text("mine")
    run(original, tmp_path / "ours", "--langs", "en")
    assert (tmp_path / "ours.tmp" / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["original", "ours", "ours.tmp"]
    for output in ("ours", "ours/.."):
        refused("original", output, "--langs", "en", match="exists: name a new folder")
    shutil.copytree(tmp_path / "ours", tmp_path / "two" / "folders" / "ours")
    run(tmp_path / "two" / "folders" / "ours", tmp_path / "above" / "it" / "back")  # folders that do not exist
    assert (tmp_path / "above" / "it" / "back" / "config.json").is_file()
    fairseq = ("--to", "fairseq", "--no-tokenizer")
    refused("ours", "more", *fairseq, match="--no-tokenizer: not for --to fairseq")
    refused("ours", "more", "--layer", 1, match="--layer: not for --to transformers")
    refused("ours", "more", "--to", "transformers.js", "--layer", 1, match="--layer: not for --to transformers.js")
    refused("ours", "more", "--lang", "qq", match="language 'qq' has no symbol in the dictionary")
    published = "--langs: for published models only, and .*checkpoint.pt is not one"
    refused("ours", "more", "--langs", "en", match=published)
    shutil.move(tmp_path / "ours" / "dict.txt", tmp_path / "dict.txt")
    refused("ours", "more", match="--data: name the data folder of .*checkpoint.pt, with its dict.txt")


def test_a_model_without_languages_reads_any(original, data_bin, tmp_path, capsys, monkeypatch):
    """Its dictionary has no symbols of languages; its predictions are fine-tuned, and scored by language."""
    xlm_roberta(original, data_bin)
    for name, options in (("any", ()), ("two", ("--langs", "en,de"))):
        run(original, tmp_path / name, *options)
    models = [fairseq_xl.load(tmp_path / name) for name in ("any", "two")]
    assert models[0].task.dictionary.symbols == models[1].task.dictionary.symbols[:-2]
    assert "languages: any" in repr(models[0])
    assert np.array_equal(models[0].encode(SENTENCES, lang="sw"), models[1].encode(SENTENCES, lang="de"))
    files = write_task(tmp_path / "files", 1)
    line = [tmp_path / "any", *cli(task="xl_classification", criterion="xl_classification", init_from=tmp_path / "any")]
    line += [*cli(optimizer="xl_adam", lr=0.1, length=20, batch_size=8, max_update=1, save_dir=tmp_path / "run")]
    log = run_train([*line, *cli(task_files=files, train_langs="en", eval_langs="en,de")]).log
    assert '"valid_accuracy_de"' in log and '"valid_accuracy_en"' in log
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Das ist ein Haus.\n")))
    commands.main(["predict", str(tmp_path / "run/checkpoint_last.pt"), str(tmp_path / "any")])
    assert capsys.readouterr().out.count("\t") == 1
    run(tmp_path / "run/checkpoint_last.pt", tmp_path / "back", "--data", tmp_path / "any", "--no-head")


@torch.no_grad()
def test_sentence_transformers_has_the_embeddings_of_a_layer(original, data_bin, tmp_path):
    from sentence_transformers import SentenceTransformer

    xlm_roberta(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    run(tmp_path / "ours", tmp_path / "out", *cli(to="sentence-transformers", layer=1, pooling="first"))
    expected = fairseq_xl.load(tmp_path / "ours").encode(SENTENCES, lang="de", layer=1, pooling="first")
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-5)
    assert model.max_seq_length == model.tokenizer.model_max_length
    with pytest.raises(UserError, match="--layer 3: expected 1 to 2, the layers of .*checkpoint.pt"):
        run(tmp_path / "ours", tmp_path / "deeper", *cli(to="sentence-transformers", layer=3))


#: fairseq without this package: FOLDER OUTPUT SENTENCE ...
FROM_PRETRAINED = """
import sys
import torch
from fairseq.models.roberta import RobertaModel
folder, output, *sentences = sys.argv[1:]
model = RobertaModel.from_pretrained(folder).eval()
with torch.no_grad():
    rows = [model.encode(sentence) for sentence in sentences]
    torch.save([(row, model.extract_features(row[None])) for row in rows], output)
"""


@torch.no_grad()
def test_fairseq_gets_the_sub_words_too(original, data_bin, tmp_path):
    xlm_roberta(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    run(tmp_path / "ours", tmp_path / "fairseq", "--to", "fairseq")
    arguments = [str(tmp_path / "fairseq"), str(tmp_path / "features"), *SENTENCES]
    subprocess.run([python(), "-c", FROM_PRETRAINED, *arguments], check=True, capture_output=True, cwd=tmp_path)
    ours = fairseq_xl.load(tmp_path / "ours")
    for row, (tokens, features) in zip(framed(ours, "de"), torch.load(tmp_path / "features"), strict=True):
        assert torch.equal(tokens, row[row != 1])
        torch.testing.assert_close(features, ours.model.encode(tokens[None]), atol=1e-5, rtol=0)
    run(tmp_path / "fairseq", tmp_path / "again")
    again = fairseq_xl.load(tmp_path / "again")
    assert again.task.dictionary.symbols == ours.task.dictionary.symbols
    assert torch.equal(framed(again, "de"), framed(ours, "de"))
    one, other = (loaded.model.state_dict() for loaded in (ours, again))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)  # rows of [xx] too


def test_a_direction_is_needed_where_there_are_several(original, data_bin, tmp_path, caplog):
    mbart(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    for language in ("en", "en-sw", "de-"):
        with pytest.raises(UserError, match=f"--lang {language}: expected a direction of two of en, de"):
            run(tmp_path / "ours", tmp_path / "other", "--lang", language)
    with pytest.raises(UserError, match="--langs: .*original has de_DE under the name de"):
        run(original, tmp_path / "other", "--langs", "de_DE,en")
    run(original, tmp_path / "unknown", "--langs", "sw,en")
    assert "original has no sw: random embeddings" in caplog.text
    shutil.rmtree(tmp_path / "ours" / "published")
    with pytest.raises(UserError, match="--framing mbart puts the language behind each text: name it"):
        run(tmp_path / "ours", tmp_path / "other")
    run(tmp_path / "ours", tmp_path / "other", "--no-tokenizer")
    assert "without a direction" in caplog.text or "no direction is named" in caplog.text


def described(*paths):
    """The JSON objects that `fairseq-xl model show` writes."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        model_show.main(["--json", *map(str, paths)])
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_descriptions_of_every_form_of_a_model(original, data_bin, tmp_path):
    xlm_roberta(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    run(tmp_path / "ours", tmp_path / "theirs")
    run(tmp_path / "ours", tmp_path / "sentences", "--to", "sentence-transformers")
    run(tmp_path / "ours", tmp_path / "fairseq", "--to", "fairseq")
    names = ("original", "ours", "theirs", "sentences", "fairseq")
    published_one, ours, theirs, sentences, of_fairseq = described(*(tmp_path / name for name in names))
    assert published_one["kind"] == "folder of transformers" and published_one["model_type"] == "xlm-roberta"
    assert published_one["encoder layers"] == 2 and published_one["channels"] == 16
    assert published_one["options"]["--position-offset"] == 2 and published_one["options"]["--heads"] == 2
    assert ours["kind"] == "checkpoint of fairseq_xl, task xl_pretraining" and ours["languages"] == ["en", "de"]
    assert ours["architecture"] == "xl_xlmr_base" and ours["updates"] == 0 and ours["objectives"] == "mlm"
    assert ours["initialized from"] == {"init_from": str(original)} and ours["optimizer state"] is False
    rows = published_one["token embeddings"]
    assert ours["token embeddings"] == sentences["token embeddings"] == rows + 2
    assert sentences["languages"] == ["en", "de"]  # tokenizer.json has [en] and [de]
    assert theirs["token embeddings"] == rows and theirs["languages"] == []
    assert sentences["kind"] == "folder of sentence-transformers" and "--output-form" not in sentences["options"]
    assert of_fairseq["kind"] == "published model, layout fairseq_roberta"
    assert ours["parameters"] == of_fairseq["parameters"] == published_one["parameters"] + 2 * 17  # rows, their bias


def test_descriptions_run_nothing_and_name_what_is_wrong(original, data_bin, tmp_path):
    code(original, data_bin)
    (found,) = described(original)
    assert found["model_type"] == "mine" and "can be converted" in found["convertible"]
    whole = original / "model.safetensors"
    whole.write_bytes(whole.read_bytes()[:100])
    torch.save({"weights": torch.zeros(1)}, tmp_path / "foreign.pt")
    for path, message in (
        (whole, "is not a safetensors file, or it is damaged or cut short"),
        (tmp_path / "nothing", "there is no such file or folder"),
        (tmp_path, "is a folder without published weights"),
        (tmp_path / "foreign.pt", "foreign.pt"),
    ):
        with pytest.raises(UserError, match=message):
            described(path)
