"""fairseq's own models beside the plugin, in fairseq's own loop."""

import argparse

import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from tests.command_line import cli
from tests.commands import run_generate, run_train, translation
from tests.tasks.conftest import preprocess_here
from tests.tasks.tiny_text import TEST_LINES

WIDTHS = {f"{side}_{part}_dim": 16 for side in ("encoder", "decoder") for part in ("embed", "ffn_embed")}
MODEL = cli(**WIDTHS, decoder_output_dim=16, encoder_layers=1, decoder_layers=1)
LINE = [
    *cli(task="translation", arch="transformer_iwslt_de_en", optimizer="adam", lr=0.01, max_tokens=256),
    *cli(s="en", t="de", log_format="json", log_interval=1, user_dir="fairseq_xl"),
]


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    """A folder of plain fairseq-preprocess with two dictionaries. Read only."""
    folder = tmp_path_factory.mktemp("plain") / "en-de"
    texts = {f"{split}pref": f"{split}.en-de" for split in ("train", "valid", "test")}
    preprocess_here([*map(str, cli(s="en", t="de", **texts, destdir=folder))], corpus, None)
    return folder


@pytest.fixture(scope="module")
def checkpoint(folder, tmp_path_factory):
    """A checkpoint of 4 updates of a model of fairseq. Read only."""
    save_dir = tmp_path_factory.mktemp("checkpoint")
    run_train([folder, *LINE, *MODEL, *cli(max_update=4, save_dir=save_dir)])
    return save_dir / "checkpoint_last.pt"


def test_it_trains_resumes_and_decodes(folder, checkpoint, tmp_path):
    for updates in (2, 4):
        run_train([folder, *LINE, *MODEL, *cli(max_update=updates, save_dir=tmp_path)])
    whole, resumed = map(load_plain, (checkpoint, tmp_path / "checkpoint_last.pt"))
    assert whole["optimizer_history"][-1]["num_updates"] == resumed["optimizer_history"][-1]["num_updates"] == 4
    torch.testing.assert_close(resumed["model"], whole["model"], rtol=0, atol=0)
    line = [folder, *cli(path=checkpoint, user_dir="fairseq_xl", max_len_b=9)]
    output = run_generate([*line, *cli(required_batch_size_multiple=1)])
    assert sorted(output.lines("H")) == list(range(TEST_LINES))


def test_tasks_of_the_plugin_refuse_it(data_bin, checkpoint, tmp_path):
    with pytest.raises(UserError, match="expected to be a model of fairseq_xl"):
        run_train(translation(data_bin, tmp_path, "-s", "en", "-t", "de", *cli(restore_file=checkpoint, max_update=1)))
    with pytest.raises(UserError, match="expected to be a model of fairseq_xl"):
        run_generate([data_bin, *cli(task="xl_translation", path=checkpoint, s="en", t="de", user_dir="fairseq_xl")])


@pytest.mark.parametrize(
    "section, value",
    [
        ("model", argparse.Namespace(arch="fconv", encoder_layers="__import__('os').getcwd()")),
        ("model", {"_name": "fconv", "path": "${oc.env:HOME}"}),
        ("task", ["x"] * 20_000),
        ("model", argparse.Namespace(arch="fconv")),
        ("model", {"_name": "wav2vec2"}),
    ],
)
def test_other_models_and_what_is_no_plain_data_are_refused(folder, checkpoint, tmp_path, section, value):
    state = load_plain(checkpoint)
    state["cfg"][section] = value
    torch.save(state, tmp_path / "spoilt.pt")
    with pytest.raises(UserError, match=r"spoilt\.pt was refused"):
        run_generate([folder, *cli(path=tmp_path / "spoilt.pt", user_dir="fairseq_xl")])
