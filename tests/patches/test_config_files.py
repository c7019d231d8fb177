"""--config FILE in fairseq's commands: the flags of files, once, in front of the command line's own."""

import pytest
from fairseq import options

import fairseq_xl
from fairseq_xl.commands import config
from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import expanded

fairseq_xl.register()
TRAINING = """
task: xl_pretraining
criterion: xl_pretraining
arch: xl_xlm_tiny
objectives: mlm
objective-options: mlm.length=32 mlm.alpha=0.5
lr: 0.1
max-tokens: 500
fp16: true
"""


@pytest.fixture
def files(tmp_path):
    """A configuration, and one that overrides it."""
    (tmp_path / "a.yaml").write_text(TRAINING)
    (tmp_path / "b.yaml").write_text("lr: 0.2\nobjective-options: mlm.length=64\nseed: 7\n")
    return [f"--config={tmp_path / 'a.yaml'}", "--config", str(tmp_path / "b.yaml")]


def parsed(words, parser=options.get_training_parser, **kwargs):
    return vars(options.parse_args_and_arch(parser(), [*map(str, words)], **kwargs))


def test_files_are_flags(files):
    """A later file overrides an earlier one, the command line both, wherever the files stand."""
    line = ["--user-dir", "x", "--lr", "0.3", "--bf16", "--objective-options", "mlm.alpha=1"]
    for words in (["data", *files, *line], ["data", *line, *files], [*line, *files, "data"]):
        arguments = expanded(words)
        assert "--fp16" not in arguments and arguments.count("--objective-options") == 1
        values = parsed([word for word in words if word not in ("--user-dir", "x")])
        assert (values["data"], values["lr"], values["max_tokens"], values["seed"]) == ("data", [0.3], 500, 7)
        assert (values["fp16"], values["bf16"], values["objective_options"]) == (
            False,
            True,
            "mlm.length=64 mlm.alpha=1",
        )
    assert expanded(["data", "--lr", "1"]) == ["data", "--lr", "1"]


def test_a_checkpoint_is_overridden_by_the_command_line_alone(tmp_path):
    """As in fairseq-validate, which asks for the options that were given."""
    (tmp_path / "a.yaml").write_text("task: xl_pretraining\npath: checkpoint.pt\nmax-tokens: 100\n")
    words = ["data", "--config", tmp_path / "a.yaml", "--batch-size", 3]
    assert parsed(words, options.get_validation_parser)["max_tokens"] == 100
    given = parsed(words, options.get_validation_parser, suppress_defaults=True)
    assert given == {"data": "data", "batch_size": 3}


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("max-tokns: 5", "a.yaml: unrecognized arguments: --max-tokns 5: did you mean --max-tokens?"),
        ("clip-norm: much", "a.yaml: argument --clip-norm: invalid float value: 'much'"),
        ("beam: 5", "a.yaml: unrecognized arguments: --beam 5"),
    ],
)
def test_a_wrong_flag_is_named_with_its_file(files, tmp_path, capsys, line, sentence):
    (tmp_path / "a.yaml").write_text(f"{TRAINING}{line}\n")
    with pytest.raises(SystemExit):
        parsed(["data", *files])
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--config"], "--config: name a YAML file of flags"),
        (["--config", "--lr"], "--config: name a YAML file of flags"),
        (["--config", "absent.yaml"], "absent.yaml"),
        (["--config", "c.yaml"], "c.yaml: user-dir: --user-dir stands on the command line only"),
        (["--config", "d.yaml"], "d.yaml: config: --config stands on the command line only"),
        (["--config", "toy.yaml"], "toy.yaml: --task is missing: if the file overrides another one"),
        (["--config", "model.yaml"], "model.yaml: --task is missing: if the file overrides another one"),
    ],
)
def test_what_is_no_file_of_flags(tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("user-dir: fairseq_xl")
    (tmp_path / "d.yaml").write_text("config: c.yaml")
    (tmp_path / "toy.yaml").write_text("arch: xl_xlm_tiny\nobjectives: mlm")
    (tmp_path / "model.yaml").write_text("arch: xl_xlm_tiny\nadam-eps: 1e-8")
    with pytest.raises(UserError, match=sentence):
        parsed(["data", *words])


def test_the_merged_configuration_says_where_each_flag_comes_from(files, tmp_path, capsys):
    """Its output is a configuration with the same flags."""
    paths = [str(tmp_path / name) for name in ("a.yaml", "b.yaml")]
    config.main([*paths, "--bf16", "--objective-options", "mlm.alpha=1", "--seed", "8"])
    shown = capsys.readouterr().out
    for line in (
        f"lr: 0.2  # {paths[1]}:1",
        f"max-tokens: 500  # {paths[0]}:8",
        f"objective-options: mlm.length=64 mlm.alpha=1  # {paths[0]}:6, {paths[1]}:2, command line",
        "bf16: true  # command line",
        "seed: 8  # command line",
    ):
        assert line in shown.splitlines()
    (tmp_path / "c.yaml").write_text(shown)
    assert "fp16" not in shown.replace("bf16", "") and parsed(["data", "--config", tmp_path / "c.yaml"])["seed"] == 8
    (tmp_path / "d.yaml").write_text("lrr: 3")
    for words, sentence in (
        ([], "name the YAML files"),
        ([paths[0], "-s", "en"], "-s: a file has long names"),
        ([*paths, "--lrr", "3"], "^unrecognized arguments: --lrr 3: did you mean --lr"),
        ([*paths, str(tmp_path / "d.yaml")], "d.yaml: unrecognized arguments: --lrr 3: did you mean --lr"),
    ):
        with pytest.raises(UserError, match=sentence):
            config.main(words)
