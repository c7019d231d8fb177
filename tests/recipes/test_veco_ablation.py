"""VECO's ablation from random weights (V16): its values, and two of its models at nano size."""

import json
import re

import pytest

from preprocess.commands.sample import main as write_sample
from recipes import experiment
from recipes.experiment_file import Experiment
from tests.recipes.configurations import RECIPES, VECO, build, configuration, objectives_of

pytestmark = pytest.mark.usefixtures("warm")
ABLATION = RECIPES / "veco/ablation-lohelp.yaml"
SMALL = [VECO / "pretrain.yaml", VECO / "small.yaml"]


@pytest.mark.parametrize("more", [[], [RECIPES / "veco/lohelp/ablation.yaml"]])
def test_the_small_xlm_differs_from_veco_in_its_objectives_only(more, dictionary):
    """Same encoder, optimization, sampling, masking, and tokens of a batch."""
    veco = configuration([*SMALL, *more])
    xlm = configuration([*SMALL, VECO / "small-xlm.yaml", *more], "--objectives", "mlm,tlm")
    own, other = (build(cfg, dictionary).state_dict() for cfg in (veco, xlm))
    assert {name: value.shape for name, value in own.items() if "cross_attention" not in name} == {
        name: value.shape for name, value in other.items()
    }
    assert veco.optimization == xlm.optimization and veco.optimizer == xlm.optimizer
    assert veco.lr_scheduler == xlm.lr_scheduler and veco.model.dropout == xlm.model.dropout
    ours, theirs = objectives_of(veco, dictionary), objectives_of(xlm, dictionary)
    mono, mlm, bi, tlm = ours["veco_mono"].cfg, theirs["mlm"].cfg, ours["veco_bi"].cfg, theirs["tlm"].cfg
    assert (mono.alpha, mono.mask_prob, mono.length) == (mlm.alpha, mlm.mask_prob, mlm.length)
    if more:
        assert mono.batch_tokens == mlm.batch_tokens == bi.batch_tokens == tlm.batch_tokens
    else:
        assert 2 * mono.batch_sentences == mlm.batch_sentences
    assert mlm.frequency_exponent == 0
    assert (bi.alpha, bi.mask_prob, bi.length) == (tlm.alpha, tlm.mask_prob, tlm.length)
    assert bi.batch_sentences == tlm.batch_sentences and tlm.frequency_exponent == 0


@pytest.mark.parametrize(
    "name, first, languages, validated",
    [
        ("ablation", "pretrain/xlm-mono", "en,de,es,fr,ru,tr,th,vi,zh", "en,de,es,fr,ru,tr,th,vi,zh"),  # table 2
        ("ablation-lohelp", "text", "en,de,el,es,fr,ru,tr,vi,zh", "en"),
    ],
)
def test_four_models_begin_with_random_weights(tmp_path, name, first, languages, validated):
    """The paper's languages, that also select; LibreOffice help is made only for its own run."""
    experiment = Experiment(RECIPES / f"veco/{name}.yaml", (), tmp_path)
    steps = {step.name: " ".join(step.commands[0]) for step in experiment.select([])}
    assert next(iter(steps)) == first
    pretraining = {name.split("/")[1]: command for name, command in steps.items() if name.startswith("pretrain")}
    objectives = {name: re.search(r"--objectives (\S+)", command)[1] for name, command in pretraining.items()}
    assert objectives == {
        "xlm-mono": "mlm",
        "veco-mono": "veco_mono",
        "xlm-bi": "mlm,tlm",
        "veco-bi": "veco_mono,veco_bi",
    }
    assert all(" random --config recipes/veco/config/small.yaml " in command for command in pretraining.values())
    assert all(("small-xlm.yaml" in command) == name.startswith("xlm") for name, command in pretraining.items())
    command = steps["classify/veco-bi/3"]
    assert f"--init-from {tmp_path}/veco-bi/checkpoint_last.pt" in command
    assert f" en {languages} " in command and f"--valid-langs {validated} --seed 3" in command


@pytest.mark.slow
def test_two_models_at_nano_size(tmp_path, capsys):
    folder = tmp_path / "corpus"
    write_sample([str(folder), "--documents", "30"])
    (folder / "tasks/qam").mkdir()
    for path in (*folder.glob("*/valid.*"), *folder.glob("tasks/nc/[vt][ae][ls]*")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:40]))
    shape = "layers: 1\nembed-dim: 16\nffn-dim: 32\nheads: 2\n"
    (tmp_path / "nano.yaml").write_text(
        f"{shape}fp16: null\nnum-workers: 0\n"
        "objective-options: veco_mono.length=16 veco_bi.length=16 mlm.length=16 tlm.length=16\n"
    )
    (tmp_path / "tuned.yaml").write_text(
        "arch: xl_xlmr_small\nlayers: 1\nembed-dim: 16\nffn-dim: 32\nheads: 2\nlength: 64\n"
    )
    values = {"corpus": folder, "others": "de", "seeds": "1", "vocabulary": 300, "models": "xlm-mono,veco-bi"}
    values |= {"pretraining": f"--config {tmp_path}/nano.yaml", "finetuning": f"--config {tmp_path}/tuned.yaml"}
    words = [f"{name}={value}" for name, value in values.items()]
    experiment.main([str(ABLATION), *words, "--output", str(tmp_path / "out"), "--updates", "2"])
    table = capsys.readouterr().out
    for name in ("XLM (MLM)", "VECO, with bitext", "tf-idf, logistic regression"):
        assert re.search(rf"^\| {re.escape(name)} \| \d+\.\d \(examples ", table, re.MULTILINE), table
    assert not (tmp_path / "out/veco-bi/cross-attention").exists()
    scores = json.loads((tmp_path / "out/veco-bi/nc-1/scores.json").read_text())
    assert set(scores["languages"]) == {"en", "de"}
