"""Output and refusals of `fairseq-xl plan`."""

import json
import re
import sys

import pytest

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.errors import UserError
from fairseq_xl.planning.gpus import hours
from fairseq_xl.planning.setting import listed_setting, read_list
from tests.planning.builders import PRETRAIN

fairseq_xl.register()


@pytest.fixture
def config(tmp_path):
    lines = zip(PRETRAIN[::2], PRETRAIN[1::2])
    (tmp_path / "config.yaml").write_text("".join(f"{key[2:]}: {value}\n" for key, value in lines), encoding="utf-8")
    return str(tmp_path / "config.yaml")


def test_plan_command_counts(config, tmp_path, capsys):
    more = tmp_path / "more.yaml"
    more.write_text("objective-options: mlm.batch_sentences=8\nfp16: true\n", encoding="utf-8")
    speed = ["--tokens-per-second", "9"]
    commands.main(["plan", config, "--config", str(more), "--vocabulary", "1000", "--update-freq", "3", *speed])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["tokens_per_update"], shown["precision"]) == (3 * 8 * 64, "fp16")
    (hours_at_speed,) = shown["hours"]
    values = {"gpus": "", "count": 1, "hours": 4740, "updates": 100_000}
    assert hours_at_speed == {"source": "9 tokens per second", **values} and "share_of_peak" not in shown
    assert "no end: set --max-update" in shown["notes"][0]


def test_plan_command_counts_hours_and_largest_batches(config, capsys, monkeypatch):
    """In tables on a terminal: 10^8 updates of 6 x 4 x 64 tokens, on GPUs of 8.1 TFLOP/s in FP32."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    gpus = ["--gpus", "2", "--gpu", "T4", "--share", "0.5", "--memory", "0.5", "--tokens-per-second", "1000000"]
    commands.main(["plan", config, "--batches-per-update", "6", "--max-update", "100000000", *gpus])
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert (shown["batches_per_update"], shown["tokens"]) == ("6", "153,600,000,000")
    hours_of_flops = float(shown["flops"]) / (2 * 8.1e12 * 0.5) / 3600
    _, gpu, count, time, updates = re.split(" +", shown["1"])
    assert (gpu, count, updates) == ("T4", "2", "100,000,000")
    assert float(time) == pytest.approx(hours_of_flops, abs=0.1) and hours_of_flops > 30
    assert float(re.split(" {2,}", shown["2"])[3]) == pytest.approx(153600 / 3600, abs=0.1)
    examples, tokens, flops, most, most_tokens, *_ = re.split(" +", shown["mlm"])
    assert (examples, tokens) == ("4", "256") and int(most) > 4 and most_tokens == f"{64 * int(most):,}"


def test_hours_by_hand():
    """1e20 operations on 64 GPUs of 125 TFLOP/s at 30 %, or of 15.7 in FP32; a V100 has no fast bf16."""
    assert hours(1e20, 64, "V100", "memory-efficient fp16", 0.3) == pytest.approx(1e20 / 2.4e15 / 3600)
    for precision in ("fp32", "bf16", "memory-efficient bf16"):
        assert hours(1e20, 1, "V100", precision, 1) == pytest.approx(1e20 / 15.7e12 / 3600)
    assert hours(1e20, 1, "A100", "bf16", 1) == pytest.approx(1e20 / 312e12 / 3600)


def test_plan_command_notes_options_without_effect(config, capsys):
    words = ["--bf16", "--gpu", "V100", "--line-tokens", "9", "--examples", "5", "--update-freq", "1,2"]
    commands.main(["plan", config, "--vocabulary", "1000", *words])
    shown = json.loads(capsys.readouterr().out)
    assert shown["notes"][:3] == [
        "--line-tokens: no effect, the training reads no sentence pairs",
        "--update-freq: all epochs are counted as the first, 1",
        "--examples: no effect, --updates-per-epoch is 10",
    ]
    assert shown["notes"][-1] == "V100 has no bf16 tensor cores: hours are those at its FP32 peak"


def test_plan_command_notes_peaks_of_different_precisions(config, tmp_path, capsys):
    (tmp_path / "list.yaml").write_text(f"x: {{y: {{files: [{config}], gpus: 64 TPUv3}}}}")
    for gpu, instead in (("A100", "--bf16"), ("V100", "--fp16")):
        commands.main(["plan", "--list", str(tmp_path / "list.yaml"), "--gpu", gpu])
        note = json.loads(capsys.readouterr().out)["notes"][-1]
        assert (
            note.startswith(f"hours are not comparable: {gpu} at its FP32 peak, TPUv3, ") and f"with {instead} " in note
        )


def test_plan_command_names_itself_and_the_file_of_a_wrong_key(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("max-tokn: 5\n", encoding="utf-8")
    words = ["plan", "recipes/xlm/config/pretrain.yaml"]
    for wrong, sentence in (
        ([str(tmp_path / "my.yaml")], "my.yaml: unrecognized arguments: --max-tokn 5: did you mean --max-tokens?"),
        (["--max-tokn", "5"], "unrecognized arguments: --max-tokn 5"),
        (["--clip-norm", "x"], "--clip-norm: invalid float"),
    ):
        with pytest.raises(SystemExit):
            commands.main([*words, *wrong])
        shown = capsys.readouterr().err
        assert shown.startswith("fairseq-xl plan: error: ") and sentence in shown


XLM = "recipes/xlm/config/pretrain.yaml"
PAPERS = ["--list", "recipes/papers.yaml"]


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "name CONFIG.yaml …, or --list LIST.yaml"),
        (["absent.yaml"], "absent.yaml: no such file"),
        (["--list", "absent.yaml"], "absent.yaml: no such file"),
        ([*PAPERS, "--lr", "1"], "unexpected --lr: with --list, the list sets it"),
        ([*PAPERS, "--line-tokens", "9"], "unexpected --line-tokens: with --list, the list sets it"),
        ([*PAPERS, "--gpus", "8"], "unexpected --gpus: with --list, the list sets it"),
        (["recipes/xlm/config/finetune.yaml", "--share", "0.5"], "--share 0.5: name the GPU, --gpu V100"),
        ([XLM, "--languages", "0"], "--languages 0: 1 or more is needed"),
        ([XLM, "--gpu", "GTX"], "there is no GPU 'GTX': expected one of T4, V100"),
        ([XLM, "--gpus", "-1"], "--gpus -1: 1 or more is needed"),
        ([XLM, "--batches-per-update", "6", "--gpus", "4"], "cannot be divided by 4 processes: start 3 or 6"),
        ([XLM, "--share", "1"], "--share 1.0: a number below 1 is needed"),
        ([XLM, "--memory", "-4"], "--memory -4.0: more than 0 is needed"),
    ],
)
def test_plan_command_refuses_in_one_sentence(words, sentence):
    with pytest.raises(UserError, match=sentence):
        commands.main(["plan", *words])


@pytest.mark.parametrize(
    "entry, sentence",
    [
        ("{files: [a.yaml], gpus: 64 GTX}", "there is no GPU 'GTX'"),
        ("{files: [a.yaml], gpus: V100}", "'V100': expected a number and a GPU, such as 64 V100"),
        ("{files: [a.yaml], vocabulary: x}", "x: y: vocabulary: 'x': expected some of files: list, flags: str"),
        ("{files: [a.yaml], size: 3}", "x: y: size: 3: expected some of"),
        ("{flags: --lr 1}", "x: y: the key 'files' is missing"),
        ("3", "x: y: expected a mapping, found 3"),
    ],
)
def test_a_list_is_refused_in_one_sentence(entry, sentence, tmp_path):
    (tmp_path / "list.yaml").write_text(f"x: {{y: {entry}}}\n", encoding="utf-8")
    with pytest.raises(UserError, match=sentence):
        read_list(tmp_path / "list.yaml")


def test_a_listed_training_has_the_values_of_the_list():
    flags = ["--objectives", "clm"]
    setting = listed_setting([XLM], flags)
    assert (setting.vocabulary, setting.languages, setting.parameters, setting.gpus) == (95000, 15, "250M", "64 V100")
    assert setting.arguments == ["--config", XLM, *flags] and listed_setting([], []).vocabulary == 32000
    sixty_four = ["--distributed-world-size", "64"]  # an entry of its own, without the paper's GPUs
    assert listed_setting([XLM.replace("xlm", "veco")], sixty_four).gpus == "64 V100"
