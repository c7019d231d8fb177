"""RoBERTa with its own sub-words, byte-level BPE: in, training, and out again."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import ByteLevelBPETokenizer

import fairseq_xl
from fairseq_xl.commands import model_trim_vocabulary
from fairseq_xl.data.vocabulary.byte_level import BytePieces
from fairseq_xl.errors import UserError
from fairseq_xl.tasks.subword_bpe import XLSubwords
from tests.command_line import cli
from tests.commands import CPU, run_train
from tests.tasks.conftest import prepare_here
from tests.tasks.conversion_builders import TEXT, original, run, saved  # noqa: F401
from tests.tasks.published_models import XLM_R
from tests.tasks.tiny_text import write

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
HARD = ["The house isn't green, it's RED!", "naïve Ġimgħa 東京 👩‍🚀 e\u0301", "12 trees;\tfoo_bar <mask> </s>", "a"]


@pytest.fixture(params=["merges.txt", "tokenizer.json"])
def roberta(original, request):
    """A folder of RoBERTa with either kind of tokenizer files; its model and tokenizer."""
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(TEXT, vocab_size=300, special_tokens=SPECIAL[:4], show_progress=False)
    content = json.loads(learned.to_str())["model"]
    vocabulary = content["vocab"] | {"<mask>": len(content["vocab"])}
    merges = [tuple(merge) for merge in content["merges"]]
    tokenizer = transformers.RobertaTokenizer(vocab=vocabulary, merges=merges)
    if request.param == "tokenizer.json":
        tokenizer.save_pretrained(original)
    else:
        (original / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        lines = ["#version: 0.2", *map(" ".join, merges)]
        (original / "merges.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), **XLM_R)
    return saved(transformers.RobertaForMaskedLM(config), original), tokenizer


def ids_of(model, text):
    """Ids of a text without special symbols, in the order of the published rows, which is ours but for <mask>."""
    return model.embedder.encode(text, "en")[:-1].tolist()


def test_text_and_weights_are_those_of_transformers(roberta, original, tmp_path):
    theirs, tokenizer = roberta
    run(original, tmp_path / "ours", "--langs", "en,de")
    model = fairseq_xl.load(tmp_path / "ours")
    for text in (*TEXT, *HARD):
        plain = " ".join(text.split()).replace("<mask>", "<mas k>").replace("</s>", "</ s>")
        assert ids_of(model, plain) == tokenizer(plain, add_special_tokens=False)["input_ids"], plain
    batch = tokenizer(TEXT, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = theirs.roberta(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    expected = ((states * mask).sum(1) / mask.sum(1)).numpy()
    np.testing.assert_allclose(model.encode(TEXT, "en", normalize=False), expected, atol=1e-5)
    filled = model.fill_mask("the house is <mask>.", "en")[0]
    assert filled.text.startswith("the house is") and filled.text.endswith(".")
    run(tmp_path / "ours/checkpoint.pt", tmp_path / "out", "--data", tmp_path / "ours")
    for path in original.iterdir():
        if path.suffix != ".safetensors":
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name
    before, after = (load_file(folder / "model.safetensors") for folder in (original, tmp_path / "out"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_a_trained_model_goes_out_with_its_text(roberta, original, tmp_path):
    """Also with the rows of new binarized text, whose tokenizer is written anew."""
    _, tokenizer = roberta
    run(original, tmp_path / "ours", "--langs", "en,de")
    files = {code: {"train": str(tmp_path / f"train.{code}")} for code in ("en", "de")}
    for code in files:
        write(tmp_path / f"train.{code}", [*TEXT, *HARD[:2]])
    description = {"languages": [*files], "monolingual": files}
    data = prepare_here(description, tmp_path, "data", vocabulary_from=tmp_path / "ours")
    task = cli(task="xl_pretraining", criterion="xl_pretraining", objectives="mlm", optimizer="xl_adam", langs="en,de")
    limits = cli(max_update=1, batch_size=2, disable_validation=True, save_dir=tmp_path / "run", lr=0.01)
    limits += cli(init_from=tmp_path / "ours", objective_options="mlm.length=16")
    run_train([data, *task, *limits, *CPU])
    for folder in ("ours", "data"):
        out = tmp_path / f"of {folder}"
        run(tmp_path / "run/checkpoint_last.pt", out, "--data", tmp_path / folder)
        written = transformers.AutoTokenizer.from_pretrained(out)
        for text in (*TEXT, *HARD[:2], HARD[3]):
            pieces, expected = (t.convert_ids_to_tokens(t(text)["input_ids"]) for t in (written, tokenizer))
            assert pieces == expected
            assert written.decode(written(text)["input_ids"], skip_special_tokens=True) == text
        assert transformers.AutoConfig.from_pretrained(out).architectures == ["RobertaForMaskedLM"]
    dictionary = fairseq_xl.load(tmp_path / "ours").task.dictionary
    bpe = XLSubwords.from_folder(tmp_path / "ours", dictionary, "en")
    for text in TEXT:
        pieces = bpe.encode(text)
        assert bpe.is_in_pieces(pieces) and not bpe.is_in_pieces(text) and bpe.decode(pieces) == text
    with pytest.raises(UserError, match="has a byte-level vocabulary: its pieces are parts of others, and none is"):
        trim = [tmp_path / "run/checkpoint_last.pt", "--data", data, "--output", tmp_path / "trimmed"]
        model_trim_vocabulary.main([*map(str, trim)])


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("vocab", lambda text: text.replace('"!"', '"two words"'), "is not a byte-level vocabulary: it has no !"),
        ("merges", lambda text: text[:-1], "merges is cut short: its last line has no end"),
        ("merges", lambda text: text + "a b c\n", "expected 'left right count' or 'left right', found 'a b c'"),
        ("merges", lambda text: text + "q q\n", "is not of .*vocab, which lacks qq of the merge q q"),
    ],
)
def test_damaged_files(original, tmp_path, name, change, message):
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(TEXT, vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    learned.save_model(str(original))
    files = [shutil.copy(original / f"{kind}", tmp_path / kind.split(".")[0]) for kind in ("merges.txt", "vocab.json")]
    path = tmp_path / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        BytePieces(*files, False)
