"""Options that fit neither the data nor the checkpoint: one sentence, before training."""

import dataclasses
import re
import shutil

import pytest
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY

import fairseq_xl
from fairseq_xl.errors import RANGES, UserError
from fairseq_xl.io.configuration import OUTPUTS, check_configuration
from fairseq_xl.optimizers.lamb import LambConfig
from fairseq_xl.patches import command_line as checks
from fairseq_xl.tasks.base import XLTask
from tests.bad_input.builders import changed, one_direction, refused
from tests.bad_input.every_command import fails
from tests.command_line import cli
from tests.commands import (
    configuration,
    pretraining,
    run_eval_lm,
    run_generate,
    run_interactive,
    run_train,
    run_validate,
    translation,
)


def test_languages_and_pairs_that_are_missing(data_bin, tmp_path):
    expected = "has no text of xx; expected one of en, de, fr"
    refused(pretraining(data_bin, tmp_path, "--langs", "en,xx"), "--langs: ", data_bin, expected)
    expected = "has no text of en-xx; expected one of en-de, en-fr"
    refused(pretraining(data_bin, tmp_path, "--pairs", "en-xx"), "--pairs: ", data_bin, expected)


def test_translation_between_languages_that_are_missing(data_bin, tmp_path):
    refused(translation(data_bin, tmp_path, "-s", "en", "-t", "xx"), "language 'xx'", "en, de, fr")
    refused(translation(data_bin, tmp_path, "--lang-pairs", "de-fr"), "no bitext de-fr or fr-de", data_bin)
    refused(translation(data_bin, tmp_path, "--lang-pairs", "en"), "--lang-pairs en: en is no pair such as en-de")
    refused(translation(data_bin, tmp_path), "name the direction")
    refused(translation(data_bin, tmp_path, "-s", "en"), "--source-lang and --target-lang")


def test_data_that_is_missing(data_bin, tmp_path):
    refused(pretraining(tmp_path / "nowhere", tmp_path), tmp_path / "nowhere", "no such data folder")
    (tmp_path / "empty").mkdir()
    refused(pretraining(tmp_path / "empty", tmp_path), tmp_path / "empty" / "dict.txt", "fairseq-xl data prepare")
    shutil.copy(data_bin / "dict.txt", tmp_path / "empty")
    refused(pretraining(tmp_path / "empty", tmp_path), tmp_path / "empty", "'valid'")


def test_split_that_is_missing(data_bin, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(data_bin, data)
    for file in data.rglob("valid*"):
        file.unlink()
    refused(pretraining(data, tmp_path / "run"), data, "'valid'")
    refused(translation(data, tmp_path / "run", "-s", "en", "-t", "de"), data, "'valid'")
    seen = run_train(pretraining(data, tmp_path / "run", "--disable-validation", "--max-update", 1, "--no-save"))
    assert len(seen.updates) == 1
    for file in data.rglob("train*"):
        file.unlink()
    refused(pretraining(data, tmp_path / "run", "--disable-validation"), data, "'train'")
    refused(translation(data, tmp_path / "run", "-s", "en", "-t", "de", "--disable-validation"), data, "'train'")


def test_text_of_no_objective(data_bin, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("dict.txt", "en"):
        (shutil.copytree if name == "en" else shutil.copy)(data_bin / name, data / name)
    refused(pretraining(data, tmp_path / "run", objectives="tlm"), data, "no parallel text", "'valid'")
    run_train(pretraining(data, tmp_path / "run", "--max-update", 1, "--no-save", objectives="mlm"))


def test_batch_that_is_too_small(data_bin, tmp_path):
    refused(pretraining(data_bin, tmp_path, "--max-tokens", 20), "raise --max-tokens")


@pytest.mark.parametrize("option", ["--dropout", "--attention-dropout", "--activation-dropout"])
@pytest.mark.parametrize("value", [1.0, -0.1, "nan"])
def test_dropout_that_is_no_probability(data_bin, tmp_path, option, value):
    refused([*pretraining(data_bin, tmp_path), option, value], f"{option} {value}: a probability from 0 to below 1")


OUT_OF_RANGE = {
    "--layers": [0, -1],
    "--layer-norm-eps": ["nan"],
    "--position-offset": [-1],
    "--lr": [-0.1, "1e999"],
    "--updates-per-epoch": [0, -3, 10**10],
    "--max-tokens": [0, -5],
    "--clip-norm": ["nan"],
}


@pytest.mark.parametrize("option", OUT_OF_RANGE)
def test_numbers_that_cannot_be(data_bin, tmp_path, option):
    for value in OUT_OF_RANGE[option]:
        shown = "inf" if value == "1e999" else value
        refused([*pretraining(data_bin, tmp_path), option, value], f"{option} {shown}: ", "is needed")
    assert not list(tmp_path.iterdir())


def test_every_number_of_ours_has_a_range():
    """Except lengths, whose minimum the task checks, and an option that is refused elsewhere."""
    found = set()
    for registered in (TASK_DATACLASS_REGISTRY, MODEL_DATACLASS_REGISTRY, {"xl_lamb": LambConfig}):
        for name, dataclass in registered.items():
            for field in dataclasses.fields(dataclass) if name.startswith("xl_") else ():
                numbers = (int, float, int | None, float | None)
                if field.type in numbers and not str(field.default).startswith("$"):
                    found.add((field.name, field.metadata.get("range") in RANGES))
    assert {name for name, has_range in found if not has_range} == {"length", "tokens_per_sample"}
    assert len(found) > 15


def test_no_checkpoint_names_a_file_to_write():
    """All options of ours that name one, which end in `_to`, are removed when a checkpoint is read."""
    found = {}
    for name, dataclass in TASK_DATACLASS_REGISTRY.items():
        for field in dataclasses.fields(dataclass) if name.startswith("xl_") else ():
            if field.name.endswith("_to"):
                found[field.name] = {"cfg": {"task": {"_name": name, field.name: "stored"}}}
    assert found.keys() == OUTPUTS - {"results_path"}  # an option of fairseq
    stored = check_configuration({"cfg": {"common_eval": {"results_path": "stored"}}}, "x.pt")
    assert stored["cfg"]["common_eval"]["results_path"] is None
    for name, state in found.items():
        assert check_configuration(state, "x.pt")["cfg"]["task"][name] is None


def test_names_that_are_there_twice(data_bin, tmp_path):
    refused(pretraining(data_bin, tmp_path, "--langs", "en,en"), "--langs en,en: en is named twice")
    twice = "en-de,en-fr,en-de"
    refused(pretraining(data_bin, tmp_path, "--pairs", twice), f"--pairs {twice}: en-de is named")
    refused(translation(data_bin, tmp_path, "--lang-pairs", "en-de,en-de"), "--lang-pairs en-de,en-de: en-de is named")


def test_no_limit_of_batches(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path)
    del line[line.index("--max-tokens") : line.index("--max-tokens") + 2]
    refused(line, "--max-tokens or --batch-size is missing: set one of them, the size of a batch")


@pytest.mark.parametrize("frequency", ["1", "2,3"])
def test_cycle_without_enough_micro_steps_is_refused_before_a_model_is_built(
    data_bin, tmp_path, monkeypatch, frequency
):
    monkeypatch.setattr(XLTask, "build_model", lambda *_: pytest.fail("a model is built"))
    line = pretraining(data_bin, tmp_path, "--schedule", "cycle", "--update-freq", frequency)
    refused(line, "--update-freq", f"multiple of the 2 objectives, not {frequency[-1]}")


@pytest.fixture(scope="module")
def trained(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    for name, line in (("pretraining", pretraining), ("translation", one_direction)):
        run_train(line(data_bin, folder / name, "--max-update", 1, "--disable-validation"))
    return folder


@pytest.fixture(scope="module")
def other_data(data_bin, tmp_path_factory):
    """Copies of the data-bin: with two pieces of the dictionary exchanged, and with one more piece."""
    root = tmp_path_factory.mktemp("other")
    lines = (data_bin / "dict.txt").read_text(encoding="utf-8").splitlines()
    changed = {"exchanged": [lines[1], lines[0], *lines[2:]], "longer": ["new 1", *lines]}
    for name, symbols in changed.items():
        shutil.copytree(data_bin, root / name)
        for file in (root / name).rglob("dict*.txt"):  # as if the text were of that dictionary
            file.write_text("\n".join(symbols) + "\n", encoding="utf-8")
        (root / name / "manifest.json").unlink()
    return root


@pytest.mark.parametrize("change", ["exchanged", "longer"])
def test_dictionary_of_another_run(data_bin, tmp_path, trained, other_data, change):
    """Refused on resume, by generate and by validate, whether or not the tables happen to have the same size."""
    for task, line in (("pretraining", pretraining), ("translation", one_direction)):
        shutil.copytree(trained / task, tmp_path / task)
        refused([*line(other_data / change, tmp_path / task), "--max-update", 2], "another dictionary")
        with pytest.raises(UserError, match="another dictionary"):
            run_validate(
                [
                    other_data / change,
                    *cli(
                        task=f"xl_{task}",
                        path=tmp_path / task / "checkpoint_last.pt",
                        max_tokens=256,
                        user_dir="fairseq_xl",
                    ),
                ]
            )
    with pytest.raises(UserError, match="another dictionary"):
        run_generate(
            [
                other_data / change,
                *cli(
                    task="xl_translation",
                    s="en",
                    t="de",
                    path=trained / "translation" / "checkpoint_last.pt",
                    user_dir="fairseq_xl",
                ),
            ]
        )


@pytest.mark.parametrize("flag", [[], ["--finetune-from-model"], ["--reset-dataloader", "--restore-file"]])
def test_run_that_goes_on_with_another_model(data_bin, trained, other_data, tmp_path, flag):
    """Neither heads nor framing show in the shape of a tensor: others would be accepted silently."""
    shutil.copytree(trained / "pretraining", tmp_path / "run")
    last = tmp_path / "run" / "checkpoint_last.pt"
    if flag:
        last = last.rename(tmp_path / "saved.pt")
        flag = [*flag, last]
    line = pretraining(data_bin, tmp_path / "run", "--max-update", 2, *flag)
    refused([*line, "--heads", 4], last, "2 attention heads, this model 4")
    refused([*line, "--framing", "xlm"], last, "--framing xl, this run has xlm")
    refused([other_data / "exchanged", *line[1:]], last, "another dictionary")
    refused([*line, "--layers", 2], last, "Cannot load model parameters")
    refused(translation(data_bin, tmp_path / "run", "--lang-pairs", "en-de", "--max-update", 2, *flag), last)
    assert len(run_train(line).updates) in (1, 2)


def another_dictionary(data):
    """Reverses the pieces of a copy's dict.txt: the same symbols in another order."""
    for file in data.rglob("dict*.txt"):
        lines = file.read_text().splitlines()
        pieces = [line for line in lines if not line.startswith(("<", "["))]
        file.write_text("\n".join(pieces[::-1] + lines[len(pieces) :]) + "\n")


def test_shards_with_different_dictionaries(data_bin, tmp_path):
    shutil.copytree(data_bin, tmp_path / "data")
    another_dictionary(tmp_path / "data")
    (tmp_path / "data" / "manifest.json").unlink()
    refused(pretraining(f"{data_bin}:{tmp_path / 'data'}", tmp_path / "run"), tmp_path / "data" / "dict.txt", "differs")


def test_shards_take_turns(data_bin, tmp_path):
    """Epoch 2 reads the second shard, which has other text in German."""
    shutil.copytree(data_bin, tmp_path / "data")
    for end in ("bin", "idx"):
        shutil.copy(data_bin / "fr" / f"train.{end}", tmp_path / "data" / "de" / f"train.{end}")
    (tmp_path / "data" / "manifest.json").unlink()
    line = ["--updates-per-epoch", 2, "--max-update", 4, "--no-save", "--disable-validation", "--langs", "de"]
    both = run_train(pretraining(f"{data_bin}:{tmp_path / 'data'}", tmp_path / "run", *line, objectives="clm"))
    first = run_train(pretraining(data_bin, tmp_path / "run", *line, objectives="clm"))
    second = run_train(pretraining(tmp_path / "data", tmp_path / "run", *line, objectives="clm"))

    def tokens(output, update):
        return output.samples[update][0]["batch"]["tokens"].tolist()

    assert [tokens(both, update) for update in (1, 2)] == [tokens(first, update) for update in (1, 2)]
    assert [tokens(both, update) for update in (3, 4)] == [tokens(second, update) for update in (3, 4)]
    assert tokens(first, 3) != tokens(second, 3)


def test_direction_that_the_model_was_not_trained_for(data_bin, trained):
    line = ["--task", "xl_translation", "--user-dir", "fairseq_xl", "-s", "de", "-t", "en"]
    checkpoint = trained / "translation" / "checkpoint_last.pt"
    with pytest.raises(UserError, match="trained for en-de, not for de-en"):
        run_generate([data_bin, *line, "--path", checkpoint])
    with pytest.raises(UserError, match="trained for en-de, not for de-en"):
        fairseq_xl.load(checkpoint, lang_pairs="en-de,de-en")


def test_translation_with_a_pretraining_checkpoint_or_architecture(data_bin, tmp_path, trained):
    line = ["--task", "xl_translation", "--user-dir", "fairseq_xl", "-s", "en", "-t", "de"]
    with pytest.raises(UserError, match="is not a translation model"):
        run_generate([data_bin, *line, "--path", trained / "pretraining" / "checkpoint_last.pt"])
    rest = ["--arch", "xl_xlm_tiny", "--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam", "--lr", 0.1]
    refused([data_bin, *line, *rest, "--max-tokens", 256, "--save-dir", tmp_path], "--arch", "xl_mt_tiny")


@pytest.mark.parametrize("objective", ["mlm", "tlm"])
def test_objective_longer_than_the_model(data_bin, tmp_path, objective):
    options = ["--objective-options", f"{objective}.length=600", "--max-tokens", 2000]
    refused(
        pretraining(data_bin, tmp_path, *options, objectives=objective), f"{objective}.length=600", "--max-positions"
    )


def test_split_to_train_on_that_is_another(data_bin, tmp_path):
    with pytest.raises(UserError, match="--train-subset valid: only the split 'train'"):
        run_train(pretraining(data_bin, tmp_path, "--train-subset", "valid"))


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (
            ["--arch", "xl_xlm_tinny"],
            r"invalid choice: 'xl_xlm_tinny' \(choose from xl_\w+(, xl_\w+)*, or fairseq's own\)",
        ),
        (
            ["--task", "xl_pretrain"],
            r"invalid choice: 'xl_pretrain' \(choose from xl_\w+(, xl_\w+)*, or fairseq's own\)",
        ),
        (["--max-update", "many"], "argument --max-update: invalid int value: 'many'"),
        (["--lr", "nan"], "--lr.*: expected a finite number, or several joined by commas, found 'nan'"),
        (["--nonsense", "3"], "unrecognized arguments: --nonsense 3"),
        (["--fp16", "True"], "unrecognized arguments: True: --fp16 takes no value"),
        (["--learning_rate", "1"], r"--learning_rate 1: did you mean --lr\?"),
        (["--save_dir", "x"], r"--save_dir x: did you mean --save-dir\?"),
        (["--objectives", "mlm", "-s", "en"], "unrecognized arguments: -s en"),
        (["--objectives", "mlm", "tlm"], "tlm: --objectives takes one value; several are joined by commas"),
    ],
)
def test_argument_that_is_wrong_without_the_usage_of_all(data_bin, tmp_path, capsys, flags, sentence):
    with pytest.raises(SystemExit) as ended:
        run_train(pretraining(data_bin, tmp_path, *flags))
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and re.search(f"error: .*{sentence}$", line)


def test_a_model_of_fairseq_with_options_of_ours(data_bin, tmp_path):
    line = changed(translation(data_bin, tmp_path, "-s", "en", "-t", "de"), "--arch", "transformer")
    with pytest.raises(UserError, match="--arch transformer .* --task xl_translation: .*encoder-decoder .*xl_mt_"):
        run_train(line)


def test_no_optimizer(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path)
    place = line.index("--optimizer")
    with pytest.raises(UserError, match="--optimizer is missing"):
        run_train([*line[:place], *line[place + 2 :]])


SHAPE = ["--layers", "--embed-dim", "--ffn-dim", "--heads", "--max-positions"]  # options of our encoders


@pytest.mark.parametrize(
    "arch, sentence",
    [
        ("transformer", "--arch transformer: choose one of xl_bert_{base,tiny}, xl_dan, "),
        ("roberta_base", "--arch roberta_base: choose one"),
        ("xl_mt_tiny", "mlm needs an encoder: --arch xl_xlm_tiny"),
        ("xl_dan", "mlm needs an encoder"),
    ],
)
def test_architecture_that_is_none_of_ours_or_of_another_task(data_bin, tmp_path, arch, sentence):
    line = changed(pretraining(data_bin, tmp_path), "--arch", arch)
    for option in SHAPE:
        del line[line.index(option) : line.index(option) + 2]
    refused(line, sentence)


@pytest.mark.parametrize("task", ["masked_lm", "translation"])
def test_architecture_of_ours_for_a_task_of_fairseqs(data_bin, tmp_path, task, monkeypatch):
    line = [data_bin, "--task", task, "--arch", "xl_xlm_tiny", "--user-dir", "fairseq_xl", "--max-tokens", 256]
    default = " (fairseq's default)" if task == "translation" else ""
    sentence = [f"--task {task}{default} does not fit --arch xl_xlm_tiny: expected one of xl_classification, xl_gen"]
    refused(line, *sentence)
    monkeypatch.setattr(checks, "check_arguments", lambda args: None)  # fairseq-hydra-train parses none
    cfg = configuration(options.get_training_parser(), [*line, "--optimizer", "sgd", "--lr", 0.1])
    fails(lambda: distributed_utils.call_main(cfg, None), *sentence)


EVALUATION = {
    "generate": (run_generate, ["xl_translation", "-s", "en", "-t", "de"]),
    "interactive": (lambda line: run_interactive(line, ["x"]), ["xl_translation", "-s", "en", "-t", "de"]),
    "validate": (run_validate, ["xl_translation", "--batch-size", 8]),
    "eval-lm": (run_eval_lm, ["xl_pretraining"]),
}


@pytest.mark.parametrize("name", EVALUATION)
def test_checkpoint_that_is_not_named(data_bin, name):
    run, task = EVALUATION[name]
    line = [data_bin, "--task", *task, "--user-dir", "fairseq_xl"]
    fails(lambda: run(line), "--path is missing: name the checkpoint")


def test_results_and_hypotheses_that_cannot_be(data_bin, tmp_path):
    (tmp_path / "file").touch()
    for name in ("generate", "interactive"):
        run, task = EVALUATION[name]
        line = [data_bin, "--task", *task, "--user-dir", "fairseq_xl", "--path", "x.pt"]
        fails(lambda: run([*line, "--results-path", tmp_path / "file"]), "--results-path", tmp_path / "file", "folder")
        for beam in (0, -1):
            fails(lambda: run([*line, "--beam", beam]), f"--beam {beam}: 1 or more is needed")
        fails(lambda: run([*line, "--sampling"]), "--sampling needs equal --beam and --nbest: --beam 5, --nbest 1")
        fails(lambda: run([*line, "--lm-path", "lm.pt"]), "--lm-path lm.pt is not supported", "leave it out")


def test_a_tokenizer_of_fairseq_without_its_languages(data_bin):
    run, _ = EVALUATION["interactive"]
    line = [data_bin, "--task", "xl_translation", "--lang-pairs", "en-de", "--user-dir", "fairseq_xl", "--path", "x.pt"]
    fails(lambda: run([*line, "--tokenizer", "moses"]), "--tokenizer moses: --source-lang is missing")


@pytest.mark.parametrize("name", ["generate", "interactive"])
def test_translation_without_a_task(data_bin, name):
    line = [data_bin, "-s", "en", "-t", "de", "--user-dir", "fairseq_xl", "--path", "x.pt"]
    run, _ = EVALUATION[name]
    fails(lambda: run(line), f"--task translation (the default) does not read {data_bin}", "use --task xl_translation")


def test_criterion_that_is_forgotten(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path)
    del line[line.index("--criterion") : line.index("--criterion") + 2]
    refused(line, "xl_pretraining needs --criterion xl_pretraining, not cross_entropy")
    other = "label_smoothed_cross_entropy_with_rdrop"  # no checkpoint of it would be read
    line = changed(translation(data_bin, tmp_path, "-s", "en", "-t", "de"), "--criterion", other)
    known = "cross_entropy or label_smoothed_cross_entropy or xl_translation"
    refused(line, f"xl_translation needs --criterion {known}, not {other}")
    assert not (tmp_path / "crash.pt").exists()


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--adam-betas", "(0.9)"], "--adam-betas (0.9): expected two numbers from 0 to below 1"),
        (["--adam-betas", "exit()"], "--adam-betas exit(): expected two numbers"),
        (["--lr", "{}"], "--lr: expected one or more numbers, found none"),
        (["--optimizer-overrides", "f()"], "--optimizer-overrides 'f()': expected a dict of options"),
        (["--fp16", "--bf16"], "--fp16, --bf16 and --amp"),
        (["--memory-efficient-fp16", "--memory-efficient-bf16"], "--fp16, --bf16 and --amp"),
    ],
)
def test_options_of_the_optimizer(data_bin, tmp_path, more, sentence):
    refused(pretraining(data_bin, tmp_path, *more), sentence)


def test_learning_rate_that_is_forgotten(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path)
    without = [*line[: line.index("--lr")], *line[line.index("--lr") + 2 :]]
    refused(without, "--lr is missing: set the learning rate")
    for command, lr in (([*without, "--lr", 0.25], [0.25]), ([tmp_path, "--arch", "transformer"], [0.25])):
        assert configuration(options.get_training_parser(), command).optimization.lr == lr
