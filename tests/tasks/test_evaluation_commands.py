"""fairseq-validate and fairseq-eval-lm agree with training's own validation."""

import math
import re

import pytest
import torch
from fairseq import checkpoint_utils
from torch.nn import functional as F

from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.errors import UserError
from tests.builders import eval_lm, validation_losses
from tests.command_line import cli
from tests.commands import evaluated, pretraining, run_eval_lm, run_train, run_validate, translation

BLOCK = 32  # --objective-options clm.length


PRETRAINING = cli(updates_per_epoch=3, max_epoch=2)
TRANSLATION = cli(lang_pairs="en-de,de-en", label_smoothing=0.1, max_epoch=2)


@pytest.mark.parametrize("name", ["pretraining", "translation"])
def test_validate_gives_the_loss_of_training(data_bin, tmp_path, name):
    line = {
        "pretraining": lambda: pretraining(data_bin, tmp_path, *PRETRAINING, objectives="clm,mlm,tlm"),
        "translation": lambda: translation(data_bin, tmp_path, *TRANSLATION),
    }[name]()
    expected, last = validation_losses(run_train(line))
    again = run_validate(evaluated(data_bin, name, tmp_path / "checkpoint1.pt", max_tokens=256))
    (found,) = validation_losses(again)
    names = {key for key in expected if re.search("loss|ppl", key)} - {"best_loss"}
    assert len(names) > 2 and expected["loss"] != last["loss"]
    assert {key: found.get(key) for key in names} == {key: expected[key] for key in names}


@pytest.fixture(scope="module")
def language_model(data_bin, tmp_path_factory):
    """A CLM checkpoint's folder and its last validation."""
    folder = tmp_path_factory.mktemp("clm")
    output = run_train(pretraining(data_bin, folder, "--max-epoch", 1, "--updates-per-epoch", 40, objectives="clm"))
    return folder / "checkpoint_last.pt", validation_losses(output)[-1]


CLM = ["--objectives", "clm", "--objective-options", f"clm.length={BLOCK}"]


def test_perplexity_is_the_exponential_of_the_mean_loss(data_bin, language_model):
    """Recomputed block by block from the model's own logits, without our batches and our loss."""
    checkpoint, valid = language_model
    output = eval_lm(data_bin, checkpoint, *CLM, "--langs", "fr")
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    model.eval()
    text = TokenStream(data_bin / "fr/valid", "fr")
    stream = torch.from_numpy(text.tokens.astype("int64"))
    total, identity = 0.0, torch.tensor([[task.dictionary.languages.index("fr")]])
    with torch.no_grad():
        for block in stream.split(BLOCK - 1):  # one place is for <s>
            given = torch.cat((torch.tensor([0]), block))[None, :-1]
            logits = model.output(model.encode(given, languages=identity, causal=True))[0]
            total += float(F.cross_entropy(logits, block, reduction="sum"))
    mean = total / len(stream)
    assert output.result["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert output.result["loss"] == pytest.approx(mean / math.log(2), rel=1e-5)
    assert float(valid["clm_fr_ppl"]) == pytest.approx(math.exp(mean), rel=1e-3)
    assert math.exp(mean) < 0.9 * len(task.dictionary)  # it has learned something


def test_perplexity_over_all_languages_and_batch_sizes(data_bin, language_model):
    checkpoint, valid = language_model
    whole = eval_lm(data_bin, checkpoint, *CLM)
    assert whole.result["loss"] == pytest.approx(float(valid["clm_loss"]), abs=6e-4)
    single = eval_lm(data_bin, checkpoint, *CLM, "--batch-size", 1)
    assert single.result["loss"] == pytest.approx(float(whole.result["loss"]), rel=1e-5)


def test_shards_of_a_perplexity(data_bin, language_model):
    checkpoint, _ = language_model
    line = [data_bin, checkpoint, *CLM, "--batch-size", 1]
    whole = eval_lm(*line).result["loss"]
    shards = [eval_lm(*line, *cli(num_shards=2, shard_id=shard)).result["loss"] for shard in (0, 1)]
    assert min(shards) < whole < max(shards)
    with pytest.raises(UserError, match="--shard-id 9999: the text has .* batches only"):
        eval_lm(*line, *cli(num_shards=10000, shard_id=9999))


def test_options_without_effect_are_refused(data_bin, language_model):
    checkpoint, _ = language_model
    for more in (["--results-path", "x"], ["--valid-subset", "test"], ["--bf16"]):
        with pytest.raises(UserError, match=f"{more[0]} .* no effect in fairseq-eval-lm"):
            eval_lm(data_bin, checkpoint, *CLM, *more)
    for more in (["--gen-subset", "valid"], ["--remove-bpe"], ["--num-shards", 2]):
        with pytest.raises(UserError, match="no effect"):
            run_validate([data_bin, *cli(task="xl_pretraining", path=checkpoint, user_dir="fairseq_xl"), *more])


def test_the_checkpoint_sets_what_the_command_line_does_not(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path, *cli(max_update=2, langs="en,fr"), objectives="clm")
    run_train([*line, "--disable-validation"])
    checkpoint = tmp_path / "checkpoint_last.pt"
    found = float(eval_lm(data_bin, checkpoint, "--objectives", "clm").result["loss"])
    assert found == eval_lm(data_bin, checkpoint, *CLM, "--langs", "en,fr").result["loss"]
    command = cli(task="xl_pretraining", path=checkpoint, max_tokens=256, user_dir="fairseq_xl")
    (valid,) = validation_losses(run_validate([data_bin, *command, *CLM[2:3], "clm.batch_sentences=2"]))
    assert float(valid["clm_loss"]) == pytest.approx(found, abs=6e-4) and "clm_de_loss" not in valid
    for more, message in (
        (["--framing", "bert"], "--framing bert: .*checkpoint_last.pt was trained with --framing xl"),
        (["--criterion", "cross_entropy"], "--criterion cross_entropy: .* is evaluated with xl_pretraining"),
        (["--model-overrides", "{'dropuot': 0.1}"], "--model-overrides dropuot: .* has no such option"),
    ):
        with pytest.raises(UserError, match=message):
            run_validate([data_bin, *command, *more])
    with pytest.raises(UserError, match="language_modeling .* does not read .*: use --task xl_pretraining"):
        run_eval_lm([data_bin, *command[2:]])


def test_only_a_causal_model_has_a_perplexity(data_bin, tmp_path, language_model):
    checkpoint, _ = language_model
    with pytest.raises(UserError, match="give --objectives clm"):
        eval_lm(data_bin, checkpoint, "--objectives", "mlm", "--objective-options", f"mlm.length={BLOCK}")
    with pytest.raises(UserError, match="--context-window"):
        eval_lm(data_bin, checkpoint, *CLM, "--context-window", 5)
