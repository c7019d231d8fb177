"""`model card`: what stands in a card is what the checkpoint, the data folder and the score files say."""

import hashlib
import json

import pytest
import torch
import yaml

from fairseq_xl.commands import model_card, model_convert
from fairseq_xl.errors import UserError
from tests.commands import trained, translation
from tests.tasks.conversion_builders import xlm_roberta


def test_a_resumed_translation_model(data_bin, tmp_path):
    save = tmp_path / "en-de"
    arguments = [*translation(data_bin, save, "-s", "en", "-t", "de"), "--clip-norm", "7"]
    for updates in ("2", "3"):
        trained([*arguments, "--max-update", updates])
    (save / "bleu.json").write_text(json.dumps({"bleu": {"score": 31.4159, "signature": "nrefs:1|tok:13a"}}))
    model_card.main([str(save / "checkpoint_last.pt")])
    card = (save / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---\n")[1])
    expected = {"language": ["en", "de", "fr"], "license": None, "pipeline_tag": "translation", "tags": ["fairseq_xl"]}
    assert head == expected
    rows = {line.split()[0]: line.split()[1:] for line in card.splitlines() if len(line.split()) > 1}
    assert rows["resumed"] == ["at", "update", "2"] and rows["updates"] == ["3"] and rows["directions"] == ["en-de"]
    weights = torch.load(save / "checkpoint_last.pt", weights_only=True)["model"]
    sizes = {value.data_ptr(): value.numel() for value in weights.values()}  # tied parameters once
    assert rows["parameters"] == [f"{sum(sizes.values()):,}"]
    assert "clip-norm: 7.0" in card and 'source-lang: "en"' in card and str(data_bin) not in card
    manifest = data_bin / "manifest.json"
    assert hashlib.sha256(manifest.read_bytes()).hexdigest() in card
    for file in json.loads(manifest.read_text())["files"]:
        assert file["sha256"] in card
    assert "31.4159  nrefs:1|tok:13a" in card
    with pytest.raises(UserError, match="README.md exists: remove it, or name another file by --output"):
        model_card.main([str(save)])


def test_a_published_model_has_no_settings_of_a_training(data_bin, tmp_path):
    (tmp_path / "theirs").mkdir()
    xlm_roberta(tmp_path / "theirs", data_bin)
    model_convert.main([str(tmp_path / "theirs"), str(tmp_path / "ours")])
    model_card.main([str(tmp_path / "ours")])
    training = (tmp_path / "ours/README.md").read_text(encoding="utf-8").split("## Training")[1].split("##")[0]
    assert training.split() == ["```", "--init-from", "theirs", "updates", "0", *"resumed at update none ```".split()]
