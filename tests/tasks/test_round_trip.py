"""A folder of transformers that comes in and goes out unchanged is the same, file for file and tensor for tensor."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, BertConfig, BertModel, BertTokenizer, MBartTokenizer, pipeline

import fairseq_xl
from fairseq_xl.checkpoints.layouts import published_files, published_vocabularies
from fairseq_xl.checkpoints.parameter_names import BIAS
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from tests.published_text import write_wordpiece
from tests.tasks.conversion_builders import (  # noqa: F401
    SENTENCES,
    TEXT,
    mbart,
    mbert,
    nllb,
    original,
    run,
    xlm_roberta,
    xlm_roberta_xl,
)
from tests.tasks.published_models import change_config, randomize


def bert_without_output(folder, data_bin):
    """BertModel: a pooler, no masked language model, names of parameters without prefix."""
    pieces = write_wordpiece(folder / "vocab.txt", TEXT, least=2)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = randomize(BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=40, **sizes)))
    model.save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False).save_pretrained(folder)


def mbart_in_16_bits(folder, data_bin):
    model = mbart(folder, data_bin).half()
    model.generation_config.update(num_beams=3, max_length=31)
    model.save_pretrained(folder)


def xlm_roberta_in_16_bits(folder, data_bin):
    """With an embedding of the token type, which this package adds to the positions; a config of transformers 4."""
    model = xlm_roberta(folder, data_bin)
    torch.nn.init.normal_(model.roberta.embeddings.token_type_embeddings.weight)
    model.to(torch.bfloat16).save_pretrained(folder)
    change_config(folder, dtype=None, torch_dtype="bfloat16")


FAMILIES = {"bert": mbert, "bert without output": bert_without_output, "mbart": mbart, "xlm-roberta": xlm_roberta}
FAMILIES |= {
    "xlm-roberta-xl": xlm_roberta_xl,
    "nllb": nllb,
    "mbart 16": mbart_in_16_bits,
    "xlm-roberta 16": xlm_roberta_in_16_bits,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unchanged_model_is_the_same_folder(original, data_bin, tmp_path, family):
    FAMILIES[family](original, data_bin)
    run(original, tmp_path / "ours", "--langs", "eng_Latn,deu_Latn" if family == "nllb" else "en,de")
    run(tmp_path / "ours", tmp_path / "back")
    names = [{path.name for path in folder.iterdir()} for folder in (original, tmp_path / "back")]
    assert names[0] == names[1]
    for name in names[0]:
        assert (original / name).read_bytes() == (tmp_path / "back" / name).read_bytes(), name
    (tmp_path / "ours/published/origin.json").write_text("{}")
    with pytest.raises(UserError, match="origin.json is damaged: expected what `fairseq-xl model convert` wrote"):
        run(tmp_path / "ours", tmp_path / "again")


def test_weights_of_several_types_go_out_in_32_bits(original, data_bin, tmp_path):
    model = xlm_roberta(original, data_bin).half()
    model.get_input_embeddings().float()
    model.save_pretrained(original)
    change_config(original, dtype=None, torch_dtype="float16")
    run(original, tmp_path / "ours")
    run(tmp_path / "ours", tmp_path / "back")
    back = type(model).from_pretrained(tmp_path / "back")
    assert all(torch.equal(value, model.state_dict()[name].float()) for name, value in back.state_dict().items())
    assert back.dtype == torch.float32


def test_a_stored_parameter_that_the_folder_had_not_is_refused(original, data_bin, tmp_path):
    xlm_roberta(original, data_bin)
    run(original, tmp_path / "ours")
    state = load_plain(tmp_path / "ours/checkpoint.pt")
    state["task_state"]["published"]["parameters"]["other.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "ours/checkpoint.pt")
    with pytest.raises(UserError, match="task_state.published does not describe a published folder"):
        run(tmp_path / "ours", tmp_path / "back")


@pytest.mark.parametrize(
    "rows, symbols, names", [(250_880, 250_002, 878), (250_037, 250_002, 35), (1024, 896, None), (512, 3, None)]
)
def test_rows_of_padding(rows, symbols, names):
    if names:
        assert len(published_vocabularies._padding(rows, symbols, Path("tokenizer.json"))) == names
    else:
        with pytest.raises(UserError, match=f"its token embeddings have {rows} rows, but .* lists {symbols} symbols"):
            published_vocabularies._padding(rows, symbols, Path("tokenizer.json"))


def test_the_values_of_weights_are_read_once(original, data_bin, tmp_path, monkeypatch):
    """Their shapes are read before."""
    loads, load = [], published_files.load_weights
    count = lambda file, values=True: loads.append(values) or load(file, values)  # noqa: E731
    monkeypatch.setattr(published_files, "load_weights", count)
    bert_without_output(original, data_bin)
    run(original, tmp_path / "ours")
    assert loads.count(True) == 1


def test_mbart_translates_as_with_its_own_names(original, data_bin, tmp_path):
    mbart(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    run(tmp_path / "ours", tmp_path / "back", "--lang", "en-de")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    tokenizer = MBartTokenizer.from_pretrained(tmp_path / "back", src_lang="en_XX")
    assert model.generation_config.decoder_start_token_id == tokenizer.convert_tokens_to_ids("de_DE")
    found = model.generate(**tokenizer(SENTENCES, return_tensors="pt", padding=True))
    expected = fairseq_xl.load(tmp_path / "ours").translate(SENTENCES, "en", "de", beam=5)
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == expected


@pytest.mark.parametrize("bias", [BIAS, "output.dense.bias"])
def test_a_trained_model_keeps_rows_and_tokenizer(original, data_bin, tmp_path, bias):
    bert_without_output(original, data_bin)
    run(original, tmp_path / "ours", "--langs", "en,de")
    checkpoint = torch.load(tmp_path / "ours" / "checkpoint.pt", weights_only=False)
    checkpoint["optimizer_history"][-1]["num_updates"] = 1
    checkpoint["model"][bias] += 1  # which each training of the output layer changes unless it is frozen
    torch.save(checkpoint, tmp_path / "trained.pt")
    run(tmp_path / "trained.pt", tmp_path / "out", "--data", tmp_path / "ours")
    config = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertForMaskedLM"]  # with the output layer of the training
    masked = pipeline("fill-mask", model=str(tmp_path / "out"))("the house is [MASK] .", top_k=20)
    trained = fairseq_xl.load(tmp_path / "trained.pt", tmp_path / "ours")
    best = trained.fill_mask("the house is <mask> .", lang="en", top=3)
    special = {"[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"}
    assert [row["token_str"] for row in masked if row["token_str"] not in special][:3] == [
        piece for _, piece, _ in best
    ]
