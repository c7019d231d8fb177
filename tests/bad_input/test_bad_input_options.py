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
from tests.bad_input.every_command import COMMANDS, fails, line_of
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


def without(line, *options):
    """A command line without some options and their values."""
    line = [*line]
    for option in options:
        del line[line.index(option) : line.index(option) + 2]
    return line


#: further flags of a pre-training -> parts of the sentence
PRETRAINING = {
    "--langs en,xx": ["--langs: ", "data-bin", "has no text of xx; expected one of en, de, fr"],
    "--pairs en-xx": ["--pairs: ", "data-bin", "has no text of en-xx; expected one of en-de, en-fr"],
    "--langs en,en": ["--langs en,en: en is named twice"],
    "--pairs en-de,en-fr,en-de": ["--pairs en-de,en-fr,en-de: en-de is named"],
    "--max-tokens 20": ["raise --max-tokens"],
    "--dropout 1.0": ["--dropout 1.0: a probability from 0 to below 1"],
    "--attention-dropout -0.1": ["--attention-dropout -0.1: a probability from 0 to below 1"],
    "--activation-dropout nan": ["--activation-dropout nan: a probability from 0 to below 1"],
    **{
        flag: [f"{flag.replace('1e999', 'inf')}: ", "is needed"]
        for option, values in {
            "--layers": [0, -1],
            "--layer-norm-eps": ["nan"],
            "--position-offset": [-1],
            "--lr": [-0.1, "1e999"],
            "--updates-per-epoch": [0, -3, 10**10],
            "--max-tokens": [0, -5],
            "--clip-norm": ["nan"],
        }.items()
        for flag in (f"{option} {value}" for value in values)
    },
    "--objective-options mlm.length=600 --max-tokens 2000": ["mlm.length=600", "--max-positions"],
    "--objectives tlm --objective-options tlm.length=600 --max-tokens 2000": ["tlm.length=600", "--max-positions"],
    "--train-subset valid": ["--train-subset valid: only the split 'train'"],
    "--adam-betas (0.9)": ["--adam-betas (0.9): expected two numbers from 0 to below 1"],
    "--adam-betas exit()": ["--adam-betas exit(): expected two numbers"],
    "--lr {}": ["--lr: expected one or more numbers, found none"],
    "--optimizer-overrides f()": ["--optimizer-overrides 'f()': expected a dict of options"],
    "--fp16 --bf16": ["--fp16, --bf16 and --amp"],
    "--memory-efficient-fp16 --memory-efficient-bf16": ["--fp16, --bf16 and --amp"],
}


@pytest.mark.parametrize("flags", PRETRAINING)
def test_options_of_a_pretraining(data_bin, tmp_path, flags):
    refused([*pretraining(data_bin, tmp_path), *flags.split()], *PRETRAINING[flags])
    assert "is needed" not in PRETRAINING[flags] or not list(tmp_path.iterdir())


#: further flags of a translation -> parts of the sentence
TRANSLATION = {
    "-s en -t xx": ["language 'xx'", "en, de, fr"],
    "--lang-pairs de-fr": ["no bitext de-fr or fr-de", "data-bin"],
    "--lang-pairs en": ["--lang-pairs en: en is no pair such as en-de"],
    "--lang-pairs en-de,en-de": ["--lang-pairs en-de,en-de: en-de is named"],
    "": ["name the direction"],
    "-s en": ["--source-lang and --target-lang"],
    "-s en -t de --arch transformer": ["--arch transformer ", " --task xl_translation: ", "encoder-decoder ", "xl_mt_"],
    "-s en -t de --criterion label_smoothed_cross_entropy_with_rdrop": [  # no checkpoint of it would be read
        "xl_translation needs --criterion cross_entropy or label_smoothed_cross_entropy or xl_translation, not label"
    ],
}


@pytest.mark.parametrize("flags", TRANSLATION)
def test_options_of_a_translation(data_bin, tmp_path, flags):
    refused([*translation(data_bin, tmp_path), *flags.split()], *TRANSLATION[flags])
    assert not list(tmp_path.glob("*.pt"))


def test_options_that_are_forgotten(data_bin, tmp_path):
    line = pretraining(data_bin, tmp_path)
    for option, sentence in (
        ("--max-tokens", "--max-tokens or --batch-size is missing: set one of them, the size of a batch"),
        ("--optimizer", "--optimizer is missing"),
        ("--criterion", "xl_pretraining needs --criterion xl_pretraining, not cross_entropy"),
        ("--lr", "--lr is missing: set the learning rate"),
    ):
        refused(without(line, option), sentence)
    for command in ([*without(line, "--lr"), "--lr", 0.25], [tmp_path, "--arch", "transformer"]):
        assert configuration(options.get_training_parser(), command).optimization.lr == [0.25]


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
    refused(without(line, "--layers", "--embed-dim", "--ffn-dim", "--heads", "--max-positions"), sentence)


def test_an_encoder_for_translation(data_bin, tmp_path):
    line = without(one_direction(data_bin, tmp_path, "--layers", 1), "--encoder-layers", "--decoder-layers")
    refused(changed(line, "--arch", "xl_xlm_tiny"), "--arch", "xl_mt_tiny")


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


@pytest.mark.parametrize("frequency", ["1", "2,3"])
def test_cycle_without_enough_micro_steps_is_refused_before_a_model_is_built(
    data_bin, tmp_path, monkeypatch, frequency
):
    monkeypatch.setattr(XLTask, "build_model", lambda *_: pytest.fail("a model is built"))
    line = pretraining(data_bin, tmp_path, "--schedule", "cycle", "--update-freq", frequency)
    refused(line, "--update-freq", f"multiple of the 2 objectives, not {frequency[-1]}")


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
def test_dictionary_of_another_run(place, other_data, tmp_path, change):
    """Whether or not the tables happen to have the same size; the next test resumes."""
    for name in ("validate translation", "generate", "back-translate", "eval-lm"):
        fails(lambda: COMMANDS[name](place.but(data=other_data / change), tmp_path), "another dictionary")


@pytest.mark.parametrize("flag", [[], ["--finetune-from-model"], ["--reset-dataloader", "--restore-file"]])
def test_run_that_goes_on_with_another_model(place, data_bin, other_data, tmp_path, flag):
    """Neither heads nor framing show in the shape of a tensor: others would be accepted silently."""
    last = place.pretraining
    if flag:
        flag = [*flag, last]
    else:
        last = tmp_path / "run/checkpoint_last.pt"
        last.parent.mkdir()
        shutil.copy(place.pretraining, last)
    line = line_of("pretraining", place, tmp_path / "run", "--max-update", 2, "--disable-validation", *flag)
    refused([*line, "--heads", 4], last, "2 attention heads, this model 4")
    refused([*line, "--framing", "xlm"], last, "--framing xl, this run has xlm")
    refused([other_data / "exchanged", *line[1:]], last, "another dictionary")
    refused([other_data / "longer", *line[1:]], last, "another dictionary")
    refused([*line, "--layers", 2], last, "Cannot load model parameters")
    refused(translation(data_bin, tmp_path / "run", "--lang-pairs", "en-de", "--max-update", 2, *flag), last)
    assert len(run_train(line).updates) in (1, 2)


def test_shards_with_different_dictionaries(data_bin, other_data, tmp_path):
    other = other_data / "exchanged"
    refused(pretraining(f"{data_bin}:{other}", tmp_path / "run"), other / "dict.txt", "differs")


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


@pytest.mark.parametrize("task", ["masked_lm", "translation"])
def test_architecture_of_ours_for_a_task_of_fairseqs(data_bin, tmp_path, task, monkeypatch):
    line = [data_bin, "--task", task, "--arch", "xl_xlm_tiny", "--user-dir", "fairseq_xl", "--max-tokens", 256]
    default = " (fairseq's default)" if task == "translation" else ""
    sentence = [f"--task {task}{default} does not fit --arch xl_xlm_tiny: expected one of xl_classification, xl_gen"]
    refused(line, *sentence)
    monkeypatch.setattr(checks, "check_arguments", lambda args: None)  # fairseq-hydra-train parses none
    cfg = configuration(options.get_training_parser(), [*line, "--optimizer", "sgd", "--lr", 0.1])
    fails(lambda: distributed_utils.call_main(cfg, None), *sentence)


def test_direction_that_the_model_was_not_trained_for(place):
    line = cli(task="xl_translation", user_dir="fairseq_xl", s="de", t="en", path=place.translation)
    with pytest.raises(UserError, match="trained for en-de, not for de-en"):
        run_generate([place.data, *line])
    with pytest.raises(UserError, match="trained for en-de, not for de-en"):
        fairseq_xl.load(place.translation, lang_pairs="en-de,de-en")


EVALUATION = {
    "generate": (run_generate, ["xl_translation", "-s", "en", "-t", "de"]),
    "interactive": (lambda line: run_interactive(line, ["x"]), ["xl_translation", "-s", "en", "-t", "de"]),
    "validate": (run_validate, ["xl_translation", "--batch-size", 8]),
    "eval-lm": (run_eval_lm, ["xl_pretraining"]),
}


@pytest.mark.parametrize("name", EVALUATION)
def test_options_of_evaluation(data_bin, tmp_path, name):
    run, task = EVALUATION[name]
    line = [data_bin, "--task", *task, "--user-dir", "fairseq_xl"]
    fails(lambda: run(line), "--path is missing: name the checkpoint")
    if name not in ("generate", "interactive"):
        return
    line += ["--path", "x.pt"]
    (tmp_path / "file").touch()
    fails(lambda: run([*line, "--results-path", tmp_path / "file"]), "--results-path", tmp_path / "file", "folder")
    for beam in (0, -1):
        fails(lambda: run([*line, "--beam", beam]), f"--beam {beam}: 1 or more is needed")
    fails(lambda: run([*line, "--sampling"]), "--sampling needs equal --beam and --nbest: --beam 5, --nbest 1")
    fails(lambda: run([*line, "--lm-path", "lm.pt"]), "--lm-path lm.pt is not supported", "leave it out")
    sentence = f"--task translation (the default) does not read {data_bin}", "use --task xl_translation"
    fails(lambda: run([line[0], *line[3:]]), *sentence)
    if name == "interactive":
        moses = [*without(line, "-s", "-t"), "--lang-pairs", "en-de", "--tokenizer", "moses"]
        fails(lambda: run(moses), "--tokenizer moses: --source-lang is missing")
