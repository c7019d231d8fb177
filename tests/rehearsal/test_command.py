"""Output and refusals of `fairseq-xl plan`."""

import contextlib
import sys

import pytest

import fairseq_xl
from fairseq_xl import commands
from fairseq_xl.errors import UserError
from tests.rehearsal.builders import PRETRAIN

fairseq_xl.register()


def test_rehearse_command_counts(tmp_path, capsys):
    lines = zip(PRETRAIN[::2], PRETRAIN[1::2])
    config, more = tmp_path / "config.yaml", tmp_path / "more.yaml"
    config.write_text("".join(f"{key[2:]}: {value}\n" for key, value in lines), encoding="utf-8")
    more.write_text("objective-options: mlm.batch_sentences=8\nfp16: true\n", encoding="utf-8")
    commands.main(["plan", str(config), str(more), "--vocabulary", "1000", "--update-freq", "3"])
    shown = capsys.readouterr().out
    assert "tokens of an update    1,536 mlm (1 process, --update-freq 3)" in shown  # 3 x 8 x 64
    assert "epoch                  10 updates, which read 15,360 tokens" in shown
    commands.main(["plan", str(config), "--batches-per-update", "6", "--distributed-world-size", "2"])
    assert "1,536 mlm (2 processes, --batches-per-update 6, 3 of each process)" in capsys.readouterr().out  # 6 x 4 x 64


def test_rehearse_command_names_itself_and_the_file_of_a_wrong_key(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("max-tokn: 5\n", encoding="utf-8")
    words = ["plan", "recipes/xlm/config/pretrain.yaml"]
    with pytest.raises(UserError, match="my.yaml: max-tokn: fairseq-train has no flag --max-tokn"):
        commands.main([*words[:2], str(tmp_path / "my.yaml")])
    before = sys.argv[0]
    for wrong, sentence in (("--max-tokn", "unrecognized arguments: --max-tokn 5"), ("--clip-norm", None)):
        with contextlib.suppress(SystemExit):
            commands.main([*words, wrong, "5" if sentence else "x"])
        shown = capsys.readouterr().err
        assert shown.startswith("fairseq-xl plan: error: ") and (sentence or "--clip-norm: invalid float") in shown
    assert sys.argv[0] == before


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "name CONFIG.yaml …, or --list LIST.yaml"),
        (["absent.yaml"], "absent.yaml: no such file"),
        (["--list", "absent.yaml"], "absent.yaml: no such file"),
        (
            ["--list", "recipes/papers.yaml", "--lr", "1"],
            "unexpected --lr: with --list, flags come from the list's 'flags'",
        ),
        (["--list", "recipes/papers.yaml", "--only", "bert"], "has no bert: expected some of xlm, unicoder, veco"),
        (["recipes/xlm/config/pretrain.yaml", "--languages", "0"], "--languages 0: 1 or more is needed"),
        (["recipes/xlm/config/pretrain.yaml", "--write"], "--only and --write need --list"),
    ],
)
def test_rehearse_command_refuses_in_one_sentence(words, sentence):
    with pytest.raises(UserError, match=sentence):
        commands.main(["plan", *words])
