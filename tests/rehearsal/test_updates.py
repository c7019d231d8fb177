"""Two real updates in two processes, and what ends them."""

import pytest

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.errors import UserError
from fairseq_xl.rehearsal import updates
from fairseq_xl.rehearsal.setting import Setting, prepared
from tests.rehearsal.test_counting import PRETRAIN
from tests.warm_python import python

fairseq_xl.register()


def test_rehearse_goes_on_after_an_error_of_one_configuration(tmp_path, monkeypatch):
    """The second one fails in the processes, the third one before them."""
    program = python()  # it writes a folder of its own
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = [
        Setting(PRETRAIN),
        Setting((*PRETRAIN, "--adam-betas", "(0.9,)")),
        Setting((*PRETRAIN, "--objectives", "nothing")),
        Setting((*PRETRAIN, "--bf16", "--update-freq", "8")),
    ]
    first, second, third, last = updates.update(settings, program)
    for found in (first, last):
        assert found.error is None and len(found.losses) == 2 and all(4 < loss < 12 for loss in found.losses)
    assert not second.losses and second.error and "\n" not in second.error
    assert third.error.startswith("--objectives 'nothing': unknown nothing")
    assert "--update-freq 2" in last.notes[-1] and "one layer, 64 channels, 4 heads" in last.notes[-1]
    assert not list(tmp_path.iterdir())


def test_rehearse_shrinks_model_and_batches_and_keeps_the_rest(tmp_path):
    made = prepared(Setting((*PRETRAIN, "--init-from", "absent.pt", "--dropout", "0.3")), tmp_path / "text", small=True)
    cfg = made.cfg
    model = cfg.model
    assert (model.layers, model.embed_dim, model.ffn_dim, model.heads, model.dropout) == (1, 64, 256, 4, 0.3)
    assert cfg.task.objective_options == "mlm.length=64 mlm.batch_sentences=2" and cfg.task.init_from is None
    assert cfg.optimization.max_update == 2 and cfg.optimization.lr == [0.001]
    assert made.notes[0] == "random weights: --init-from left out"


def test_rehearse_command_counts_and_updates(tmp_path, monkeypatch, capsys):
    lines = zip(PRETRAIN[::2], PRETRAIN[1::2])
    config, more = tmp_path / "config.yaml", tmp_path / "more.yaml"
    config.write_text("".join(f"{key[2:]}: {value}\n" for key, value in lines), encoding="utf-8")
    more.write_text("objective-options: mlm.batch_sentences=8\nfp16: true\n", encoding="utf-8")
    monkeypatch.setattr(updates.update, "__defaults__", (python(),))
    commands.main(["rehearse", str(config), str(more), "--vocabulary", "1000", "--update-freq", "3"])
    shown = capsys.readouterr().out
    assert "tokens of an update  1,536 mlm (1 process, --update-freq 3)" in shown  # 3 x 8 x 64
    assert "epoch                10 updates, which read 15,360 tokens" in shown
    assert "two updates done in 2 processes: loss " in shown


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "name CONFIG.yaml …, or --list LIST.yaml"),
        (["absent.yaml"], "absent.yaml: no such file"),
        (["--list", "absent.yaml"], "absent.yaml: No such file"),
        (
            ["--list", "recipes/papers.yaml", "--lr", "1"],
            "--lr: with --list the flags of a configuration are in the list",
        ),
        (["--list", "recipes/papers.yaml", "--only", "bert"], "has no bert: expected some of xlm, unicoder, veco"),
        (["recipes/xlm/config/pretrain.yaml", "--languages", "0"], "--languages 0: 1 or more is needed"),
        (["recipes/xlm/config/pretrain.yaml", "--write"], "--only and --write need --list"),
    ],
)
def test_rehearse_command_refuses_in_one_sentence(words, sentence):
    with pytest.raises(UserError, match=sentence):
        commands.main(["rehearse", *words])
