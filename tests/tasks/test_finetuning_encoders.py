"""Classification from every kind of encoder, and every task type from one: built, trained, predicting."""

import math

import pytest
import torch

from fairseq_xl.commands import model_language_module
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from tests.builders import FILES, NAMES, line, read_predictions, task_files  # noqa: F401
from tests.command_line import cli
from tests.commands import load, pretraining, run_train, run_validate
from tests.tasks.published_models import XLM_OPTIONS, XLM_R_OPTIONS, fairseq_xlm_r, xlm_pth


@pytest.fixture(scope="module")
def encoders(data_bin, tmp_path_factory):
    """{kind: options that start from it}."""
    root = tmp_path_factory.mktemp("encoders")
    for name in ("XLM-R", "XLM"):
        (root / name).mkdir()
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    symbols = dictionary.symbols[: dictionary.first_language]
    xlm_r, _ = fairseq_xlm_r(data_bin, symbols, root / "XLM-R")
    xlm, _ = xlm_pth(data_bin, symbols, root / "XLM")
    for arch in ("xl_veco_tiny", "xl_monotrans_tiny"):
        more = ["--arch", arch, "--max-update", 1, "--disable-validation"]
        run_train(pretraining(data_bin, root / arch, *more, objectives="mlm"))
    veco, body = (root / arch / "checkpoint_last.pt" for arch in ("xl_veco_tiny", "xl_monotrans_tiny"))
    unicoder = root / "unicoder"
    more = ["--max-update", 1, "--disable-validation"]
    run_train(pretraining(data_bin, unicoder, *more, objectives="word_recovery,paraphrase"))
    module = root / "module.pt"
    model_language_module.main(["extract", str(body), str(module)])
    frozen = cli(arch="xl_monotrans_tiny", init_from=body, language_module=module, freeze="language-module")
    return {
        "XLM-R": [*XLM_R_OPTIONS, "--init-from", xlm_r],
        "XLM": [*XLM_OPTIONS, "--init-from", xlm],
        "Unicoder": ["--init-from", unicoder / "checkpoint_last.pt"],
        "VECO": ["--arch", "xl_veco_tiny", "--init-from", veco],
        "MonoTrans": frozen,
    }


@pytest.mark.parametrize(
    "kind, name",
    [
        *((kind, "classification") for kind in ("XLM-R", "XLM", "Unicoder", "VECO", "MonoTrans")),
        *(("MonoTrans", name) for name in NAMES),
    ],
)
def test_it_learns_and_predicts(data_bin, task_files, encoders, tmp_path, name, kind):
    """Two updates change the encoder and the head, but no frozen module; every example of a split gets a prediction."""
    more = [*encoders[kind], "--disable-validation", "--no-epoch-checkpoints"]
    files = {**task_files, "classification": task_files["ranking"]}  # relevances are labels of two texts
    states = []
    for folder, rate, updates in (("start", 0, 1), ("run", 0.01, 2)):
        run = line(data_bin, files, name, tmp_path / folder, *more, "--max-update", updates, "--lr", rate)
        output = run_train(run)
        states.append(load(tmp_path / folder / "checkpoint_last.pt"))
    losses = [float.fromhex(loss) for loss in output.losses]
    assert len(losses) == 2 and all(map(math.isfinite, losses))
    changed = {key for key, value in states[1].items() if not torch.equal(value, states[0][key])}
    assert any(key.startswith(f"heads.{name}.") for key in changed)
    assert any(key.startswith("encoder.layers.0.") for key in changed)
    assert ("encoder.token_embeddings.table.weight" in changed) == (kind != "MonoTrans")
    options = cli(task=f"xl_{name}", path=tmp_path / "run/checkpoint_last.pt", user_dir="fairseq_xl", batch_size=8)
    run_validate([data_bin, *options, "--predictions-to", tmp_path / "to"])
    for code in ("en", "de"):
        found = read_predictions(name, tmp_path / f"to/valid.{code}.{FILES.get(name, 'tsv')}")
        assert len(found) >= 31 and (name != "ranking" or all(map(math.isfinite, found)))
