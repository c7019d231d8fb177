"""A checkpoint layout is added by one file, in the package or in another one: the example of fairseq_xl/README.md."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fairseq_xl
from fairseq_xl.checkpoints import layouts, published_models
from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.commands import model_convert
from fairseq_xl.errors import UserError
from tests.published_text import write_wordpiece

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "fairseq_xl/checkpoints/layouts/distilbert.py"
NAME = "mine"
TEXT = ["the house is green .", "a bird sings in the green house .", "the bird is in a tree ."]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The example as an installed package, whose entry point names its module."""
    site = tmp_path / "site-packages"
    (site / "my_layouts-1.0.dist-info").mkdir(parents=True)
    text = EXAMPLE.read_text(encoding="utf-8")
    for names in ('name = "distilbert"', 'model_types = ("distilbert",)'):
        assert names in text
        text = text.replace(names, names.replace("distilbert", NAME))
    (site / "my_layouts.py").write_text(text, encoding="utf-8")
    (site / "my_layouts-1.0.dist-info/METADATA").write_text("Name: my-layouts\nVersion: 1.0\n")
    entry = f"[fairseq_xl.checkpoints.layouts]\n{NAME} = my_layouts\nwrong = no_such_module\n"
    (site / "my_layouts-1.0.dist-info/entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(site)
    layouts.load_all()
    yield
    LAYOUTS.pop(NAME)
    sys.modules.pop("my_layouts")
    importlib.invalidate_caches()


def test_the_readme_shows_the_example():
    readme = (ROOT / "fairseq_xl/README.md").read_text(encoding="utf-8")
    assert "fairseq_xl/checkpoints/layouts/distilbert.py" in readme
    entries = re.findall(r"^ +(\[project\.entry-points.*\n.*)$", readme, re.MULTILINE)
    assert any('"fairseq_xl.checkpoints.layouts"' in entry and f"{NAME} =" in entry for entry in entries)
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 70


def rename(folder, before, after):
    """Changes the model_type of a folder of transformers."""
    config = folder / "config.json"
    names = [f'"model_type": "{name}"' for name in (before, after)]
    config.write_text(config.read_text(encoding="utf-8").replace(*names), encoding="utf-8")


@torch.no_grad()
def test_a_layout_of_another_package_comes_in_and_goes_out(installed, tmp_path, caplog):
    from transformers import AutoModelForMaskedLM, DistilBertConfig, DistilBertForMaskedLM

    messages = [record.getMessage() for record in caplog.get_records("setup")]
    assert any("layout 'wrong' of the installed package my-layouts cannot be used" in each for each in messages)
    folder = tmp_path / "original"
    folder.mkdir()
    pieces = write_wordpiece(folder / "vocab.txt", TEXT, least=2)
    sizes = {"vocab_size": len(pieces), "dim": 16, "hidden_dim": 32, "n_heads": 2, "n_layers": 3}
    torch.manual_seed(0)
    model = DistilBertForMaskedLM(DistilBertConfig(**sizes, max_position_embeddings=40)).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=float("norm" in name.lower() and name.endswith("weight")), std=0.3)
    model.save_pretrained(folder)
    rename(folder, "distilbert", NAME)
    assert published_models.read(folder, values=False).layout is LAYOUTS[NAME]

    model_convert.main([str(folder), str(tmp_path / "ours"), "--langs", "en,de"])
    loaded = fairseq_xl.load(tmp_path / "ours")
    dictionary = loaded.task.dictionary
    rows = {piece: row for row, piece in enumerate(pieces)}
    rows |= {"<s>": rows["[CLS]"], "<pad>": rows["[PAD]"], "</s>": rows["[SEP]"], "<unk>": rows["[UNK]"]}
    rows |= {"<mask>": rows["[MASK]"]}
    symbols = torch.tensor([rows[symbol] for symbol in dictionary.symbols[: dictionary.first_language]])
    tokens = torch.tensor([[0, 6, 7, 8, 2], [0, 9, 2, 1, 1]])
    mask = tokens.ne(1)
    expected = model(symbols[tokens], attention_mask=mask.long()).logits[..., symbols]
    logits = loaded.model.output(loaded.model.encode(tokens, padding_mask=~mask))
    torch.testing.assert_close(logits[..., : len(symbols)][mask], expected[mask], atol=1e-5, rtol=0)

    model_convert.main([str(tmp_path / "ours"), str(tmp_path / "back"), "--layout", NAME])
    rename(tmp_path / "back", NAME, "distilbert")
    back = AutoModelForMaskedLM.from_pretrained(tmp_path / "back").eval()
    assert type(back) is DistilBertForMaskedLM
    found = back(symbols[tokens], attention_mask=mask.long()).logits[..., symbols]  # rows as they came
    torch.testing.assert_close(found[mask], expected[mask], atol=1e-6, rtol=0)
    state, name = back.state_dict(), "distilbert.transformer.layer.2.ffn.lin1.weight"
    assert torch.equal(state[name], model.state_dict()[name]) and state.keys() == model.state_dict().keys()

    with pytest.raises(UserError, match="ours/checkpoint.pt has another form than models of --layout bert"):
        model_convert.main([str(tmp_path / "ours"), str(tmp_path / "bert"), "--layout", "bert"])
    with pytest.raises(UserError, match="--layout gpt2: expected one of bart, bert, distilbert, .*mine, "):
        model_convert.main([str(tmp_path / "ours"), str(tmp_path / "gpt2"), "--layout", "gpt2"])


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="layout 'bert' is registered twice"):
        layouts.Layout.register(type(LAYOUTS["bert"]))
