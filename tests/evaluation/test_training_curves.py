"""Curves from fairseq's JSON logs, in both of their forms."""

import json
import math

import pytest

from fairseq_xl.commands.plot_curves import main
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.training_curves import draw, read_log

INNER = '{"epoch": 1, "update": 0.5, "loss": "2.5", "ppl": "6", "mlm_en_loss": "2.2", "num_updates": "50", "lr": null}'
VALID = '{"epoch": 1, "valid_loss": "10.25", "valid_num_updates": "100", "valid_best_ppl": "1200.5"}'
TRAIN = '{"epoch": 1, "train_loss": "11.5", "train_ppl": "inf", "train_num_updates": "100", "train_wall": "34"}'

LOG_FILE = f"""{{"_name": null, "common": {{"seed": 1}}}}
{INNER}
begin validation on "valid" subset
{VALID}
{TRAIN}
"""
PRINTED = f"""2026-01-02 10:00:00 | INFO | fairseq_cli.train | {{'_name': None, 'common': {{'seed': 1}}}}
2026-01-02 10:00:01 | INFO | train_inner | {INNER}
2026-01-02 10:00:02 | INFO | fairseq.trainer | begin training epoch 2
2026-01-02 10:00:03 | INFO | valid | {VALID}
2026-01-02 10:00:04 | INFO | train | {TRAIN}
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(PRINTED, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [LOG_FILE, PRINTED], ids=["--log-file", "printed"])
def test_entries(log, text):
    log.write_text(text, encoding="utf-8")
    entries = read_log(log)
    assert {kind: len(found) for kind, found in entries.items()} == {"train_inner": 1, "train": 1, "valid": 1}
    inner, train, valid = entries["train_inner"][0], entries["train"][0], entries["valid"][0]
    assert (inner["num_updates"], inner["loss"], inner["mlm_en_loss"]) == (50, 2.5, 2.2)
    assert math.isnan(inner["lr"])
    assert (train["num_updates"], train["loss"], train["ppl"]) == (100, 11.5, math.inf)
    assert (valid["num_updates"], valid["loss"], valid["best_ppl"]) == (100, 10.25, 1200.5)


def pixels(path):
    from matplotlib import pyplot

    return pyplot.imread(path)


def test_a_picture(log, tmp_path):
    main([f"one={log}", "--output", str(tmp_path / "loss.png")])
    draw({"one": log}, tmp_path / "ppl.png", "ppl")
    loss, ppl = pixels(tmp_path / "loss.png"), pixels(tmp_path / "ppl.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert loss.std() > 0.01
    assert loss.shape == ppl.shape and not (loss == ppl).all()
    with pytest.raises(UserError, match="no entry of 'bleu'"):
        draw({"one": log}, tmp_path / "bleu.png", "bleu")


@pytest.fixture
def figure(monkeypatch):
    """A function that returns the last figure of `draw`."""
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "close", lambda figure: None)
    yield pyplot.gcf
    monkeypatch.undo()
    pyplot.close("all")


def written(path, name, values, best=None):
    lines = [f'{{"epoch": 1, "{name}": "{value}", "num_updates": "{n}"}}' for n, value in enumerate(values)]
    lines += [f'{{"epoch": 1, "valid_loss": "1", "valid_{name}": "{best}", "valid_num_updates": "9"}}'] * bool(best)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_wide_range_has_a_logarithmic_axis(figure, tmp_path):
    draw({"one": written(tmp_path / "a", "ppl", [900, 400, 60], 50)}, tmp_path / "a.png", "ppl")
    assert figure().axes[0].get_yscale() == "log"
    assert figure().axes[0].get_title() == "ppl in training (thin) and validation (thick)"
    draw({"one": written(tmp_path / "a", "loss", [12, 9, 7])}, tmp_path / "a.png")
    assert figure().axes[0].get_yscale() == "linear" and figure().axes[0].get_title() == "loss in training"
    draw({"one": written(tmp_path / "a", "gain", [-1, 0, 70])}, tmp_path / "a.png", "gain")
    assert figure().axes[0].get_yscale() == "linear"


def test_the_legend_stands_beside_the_curves_and_names_what_is_drawn(figure, tmp_path, caplog):
    logs = {
        "one": written(tmp_path / "a", "loss", [9, 8, 7], 7),
        "none": written(tmp_path / "b", "mlm_loss", [9]),
        "single": written(tmp_path / "c", "loss", [8, "nan"]),
        "lost": written(tmp_path / "d", "loss", ["nan"]),
    }
    draw(logs, tmp_path / "a.png")
    (axes,), (legend,) = figure().axes, figure().legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "single"] and axes.get_legend() is None
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1
    assert [line.get_marker() for line in axes.lines] == ["None", ".", "."]  # a point alone is seen
    messages = [record.getMessage() for record in caplog.records if "not in the picture" in record.getMessage()]
    assert len(messages) == 2 and messages[0].endswith("b has no entry of 'loss': none is not in the picture")


def test_validations_as_json(log, tmp_path):
    main([f"a={log}", "--output", str(tmp_path / "curves.json")])
    assert json.loads((tmp_path / "curves.json").read_text()) == {"a": {"values": {"100": 10.25}, "last": 10.25}}
    with pytest.raises(UserError, match="no validation entry has the metric 'bleu'"):
        main([f"a={log}", "--output", str(tmp_path / "curves.json"), "--metric", "bleu"])


def test_logs_that_hold_nothing_are_reported(tmp_path):
    with pytest.raises(UserError, match="nowhere.log: no such log"):
        read_log(tmp_path / "nowhere.log")
    (tmp_path / "plain.log").write_text("2026-01-02 | INFO | train_inner | epoch 001: 10 / 50 loss=12.7\n")
    with pytest.raises(UserError, match="plain.log has no JSON entries of a training"):
        read_log(tmp_path / "plain.log")


def test_a_log_cut_short_by_a_kill_is_read_up_to_there(tmp_path):
    (tmp_path / "cut.log").write_text(f"{INNER}\n{INNER[:60]}\n{INNER[:40]}}}\n")
    assert len(read_log(tmp_path / "cut.log")["train_inner"]) == 1
