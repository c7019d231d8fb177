"""The experiments on learning, run at nano size on the sample, and transformers' XLM as an architecture."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_xl.checkpoints.layouts import LAYOUTS
from fairseq_xl.models.encoder import XLEncoderModel
from fairseq_xl.models.model_options import EncoderConfig
from preprocess.commands.sample import main as write_sample
from recipes import experiment

pytestmark = pytest.mark.usefixtures("warm")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_sample([str(folder), "--documents", "40"])
    for path in folder.glob("mono/*.en"):  # a sentence that does not fit into a block
        path.write_text(f"{path.read_text()}{'a long sentence, ' * 40}\n")
    return folder


@pytest.mark.slow
def test_every_model_is_trained_and_shown(corpus, tmp_path, capsys):
    pytest.importorskip("transformers")
    arguments = [f"corpus={corpus}", "vocabulary=300", "seeds=1", "checkpoints=2", "sweep-seeds=1"]
    chosen = ["models=complete-sinusoidal,transformers-complete,fairseq-roberta-complete", "settings=linear"]
    only = ["--only", "text,ngrams,pretrain,reference,sweep,report"]
    experiment.main(
        [
            str(ROOT / "recipes/learning/experiment.yaml"),
            *("--output", str(tmp_path), *arguments, *chosen, *only, "--updates", "2"),
        ]
    )
    shown = capsys.readouterr().out
    for name, folder in (
        (r"`complete`, `sinusoidal` \(pretrain.yaml\)", "complete-sinusoidal-1"),
        ("transformers' XLM, `complete`, `normal`", "transformers-complete-1"),
        ("fairseq's RoBERTa, `complete`", "fairseq-roberta-complete-1"),
        ("fairseq's masked_lm, `complete`", "fairseq-complete-1"),
        ("fairseq's masked_lm, `none`", "fairseq-none-1"),
    ):
        bits = json.loads((tmp_path / folder / "bits.json").read_text())["loss"]["values"]["2"]
        assert re.search(rf"^\| {name} \| {bits:.2f} \|$", shown, re.MULTILINE)
        assert 6 < bits < 10  # log2 of 300 symbols is 8.2
    bits = json.loads((tmp_path / "linear-1/bits.json").read_text())["loss"]["last"]
    assert f"| linear decay to 0 | {bits:.2f} |" in shown
    entropies = json.loads((tmp_path / "ngrams/bits.json").read_text())["en"]
    assert entropies["both neighbors"] < entropies["bigram"] < entropies["unigram"]


def test_the_first_model_needs_no_other_vocabulary(capsys):
    """The command of recipes/learning/README.md. Several steps write a corpus folder: the first one makes it."""
    only = ["--only", "text,ngrams,pretrain", "models=complete-sinusoidal", "seeds=1"]
    experiment.main([str(ROOT / "recipes/learning/experiment.yaml"), "--list", *only])
    steps = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert steps == ["text", "ngrams", "pretrain/complete-sinusoidal/1"]


@pytest.mark.slow
def test_deep_models_are_trained_and_shown(corpus, tmp_path, capsys):
    experiment.main(
        [
            str(ROOT / "recipes/learning/deep.yaml"),
            *("--output", str(tmp_path), f"corpus={corpus}", "vocabulary=300", "checkpoints=2"),
            *("models=clm-3,clm-3-fairseq,clm-6,translation-3,translation-3-fairseq", "ablations=norm"),
            *("--updates", "2"),
        ]
    )
    shown = capsys.readouterr().out
    for name in (
        "CLM, 3 layers",
        "CLM, 3 layers, fairseq's transformer_lm",
        "CLM, 6 layers",
        "CLM, 6 layers, bfloat16",
        "CLM, 6 layers, init std 0.02",
        "translation, 3 + 3 layers",
        "translation, 3 + 3 layers, fairseq's transformer",
        "translation, 6 + 6 layers, fairseq's transformer, pre-layer-norm",
    ):
        assert re.search(rf"^\| {re.escape(name)} \| \d+\.\d\d \|$", shown, re.MULTILINE), name


@pytest.mark.slow
def test_translation_models_are_trained_and_shown(corpus, tmp_path, capsys):
    experiment.main(
        [
            str(ROOT / "recipes/learning/translation.yaml"),
            *("--output", str(tmp_path), f"corpus={corpus}", "vocabulary=300", "checkpoints=2", "settings=sinusoidal"),
            *("--updates", "2"),
        ]
    )
    shown = capsys.readouterr().out
    bits = json.loads((tmp_path / "sinusoidal-1/bits.json").read_text())["loss"]["values"]["2"]
    assert f"| sinusoidal initial positions | {bits:.2f} |" in shown
    for name, folder in (("sinusoidal initial positions", "sinusoidal-1"), ("source copied", "copy")):
        score = json.loads((tmp_path / folder / "bleu.json").read_text())["sacrebleu"]["score"]
        assert f"| {name} | {score:.2f} ± " in shown


def user_dir(name):
    """The module in recipes/learning/`name`, imported as --user-dir does."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "recipes/learning" / name / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def xlm():
    pytest.importorskip("transformers")
    return user_dir("transformers_xlm").TransformersXLM


@pytest.fixture(scope="module")
def roberta():
    return user_dir("fairseq_roberta").FairseqRoberta


def test_transformers_xlm_computes_what_ours_does(xlm):
    """With the same weights, hidden states and losses are equal: padding, languages and causal attention included."""
    torch.manual_seed(0)
    cfg = EncoderConfig(embed_dim=16, ffn_dim=64, heads=2, layers=2, dropout=0, attention_dropout=0, init_std=0.1)
    ours, theirs = XLEncoderModel(cfg, 30, pad=1, num_languages=2).eval(), xlm(cfg, 30, 1, 2).eval()
    found = theirs.xlm.state_dict()
    names = {
        "transformer.embeddings.weight": "token_embeddings.table.weight",
        "transformer.position_embeddings.weight": "embeddings.positions.weight",
        "transformer.lang_embeddings.weight": "embeddings.languages.weight",
        "transformer.layer_norm_emb.weight": "embeddings.norm.weight",
        "transformer.layer_norm_emb.bias": "embeddings.norm.bias",
        "pred_layer.proj.weight": "token_embeddings.table.weight",
        "pred_layer.proj.bias": "token_embeddings.output_bias",
    }
    own = ours.encoder.state_dict()
    for layer in range(2):
        qkv = [f"transformer.attentions.{layer}.{name}_lin" for name in "qkv"]
        for kind in ("weight", "bias"):
            found |= dict(
                zip((f"{name}.{kind}" for name in qkv), own[f"layers.{layer}.self_attention.qkv.{kind}"].chunk(3))
            )
            names |= {
                f"transformer.attentions.{layer}.out_lin.{kind}": f"layers.{layer}.self_attention.out.{kind}",
                f"transformer.layer_norm1.{layer}.{kind}": f"layers.{layer}.self_attention_norm.{kind}",
                f"transformer.ffns.{layer}.lin1.{kind}": f"layers.{layer}.ffn.up.{kind}",
                f"transformer.ffns.{layer}.lin2.{kind}": f"layers.{layer}.ffn.down.{kind}",
                f"transformer.layer_norm2.{layer}.{kind}": f"layers.{layer}.ffn_norm.{kind}",
            }
    assert theirs.xlm.pred_layer.proj.weight is theirs.xlm.transformer.embeddings.weight
    theirs.xlm.load_state_dict(found | {name: own[of] for name, of in names.items()})
    tokens = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]])
    inputs = dict(languages=torch.tensor([[0], [1]]), padding_mask=tokens.eq(1))
    kept = ~inputs["padding_mask"]
    for causal in (False, True):
        hidden = [model.encode(tokens, causal=causal, **inputs)[kept] for model in (ours, theirs)]
        torch.testing.assert_close(*hidden, rtol=1e-5, atol=1e-5)
        losses = [model.output.cross_entropy(each, tokens[kept]) for model, each in zip((ours, theirs), hidden)]
        torch.testing.assert_close(*losses)
        for model, loss in zip((ours, theirs), losses):
            model.zero_grad()
            loss.backward()
        table = ours.encoder.token_embeddings.table.weight.grad.to_dense()
        torch.testing.assert_close(table, theirs.xlm.transformer.embeddings.weight.grad, rtol=1e-4, atol=1e-5)


def roberta_dictionary():
    dictionary = Dictionary()
    for number in range(26):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def test_fairseq_roberta_computes_what_ours_does(roberta):
    """With the same weights, hidden states, losses and gradients are equal, padding included."""
    torch.manual_seed(0)
    sizes = dict(embed_dim=16, ffn_dim=64, heads=2, layers=2, dropout=0, attention_dropout=0)
    form = dict(language_embeddings="none", output_form="dense", position_offset=2, layer_norm_eps=1e-5)
    theirs = roberta(EncoderConfig(**sizes), roberta_dictionary()).eval()
    ours = XLEncoderModel(EncoderConfig(**sizes, **form), 30, pad=1, num_languages=2).eval()
    state = {f"encoder.{name}": value for name, value in theirs.roberta.state_dict().items()}
    ours.load_state_dict(ours.state_dict() | LAYOUTS["fairseq_roberta"].to_ours(state, {}))
    tokens = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]])
    inputs = dict(languages=torch.tensor([[0], [1]]), padding_mask=tokens.eq(1))
    kept = ~inputs["padding_mask"]
    hidden = [model.encode(tokens, **inputs)[kept] for model in (ours, theirs)]
    torch.testing.assert_close(*hidden, rtol=1e-5, atol=1e-5)
    losses = [model.output.cross_entropy(each, tokens[kept]) for model, each in zip((ours, theirs), hidden)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    table = ours.encoder.token_embeddings.table.weight.grad.to_dense()
    torch.testing.assert_close(table, theirs.roberta.lm_head.weight.grad, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="use mlm"):
        theirs.encode(tokens, causal=True)


def test_both_have_the_initial_weights_of_ours(xlm, roberta):
    for make, std, tolerance in (
        (lambda cfg: xlm(cfg, 500, 1, 2), 0.06, 0.1),
        (lambda cfg: roberta(cfg, roberta_dictionary()), 0.02, 0.15),
    ):
        torch.manual_seed(0)
        cfg = EncoderConfig(embed_dim=64, ffn_dim=256, heads=4, layers=2, init_std=std)
        for name, weight in make(cfg).named_parameters():
            if weight.dim() == 2 and len(weight) > 2:
                assert weight.std().item() == pytest.approx(std, rel=tolerance), name
