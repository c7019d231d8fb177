"""Every training configuration that is shipped makes two updates.

The configurations are those of the papers (recipes/papers.yaml), of toy sizes, for hydra, and of experiments on real
text.

Files are found by their names: a new one is tested too, and its comment has to name the file that it overrides. Changed
are the size (one layer, 64 channels, 4 heads), the data (a tiny vocabulary, random negatives), and how much of it an
update reads: the number of batches, their limits, `--num-workers`, the number of processes. Nothing is validated or
saved. All other flags are as shipped. The configurations of the comparisons on real text, which override others, and
those of the papers but the first of each system run with --slow.
"""

import itertools
import math
import re
from pathlib import Path

import pytest
import yaml
from tiny_data import write_data_bin

from fairseq_xl.engine import main
from fairseq_xl.io.flags import flags, overridden
from fairseq_xl.planning.setting import read_list
from tests.builders import write_others, write_task
from tests.command_line import cli
from tests.commands import one_run, pretraining, run_train
from tests.distributed.two_processes import ROOT
from tests.tasks.conftest import write_encoded
from tests.tasks.hydra_configs import composed, write_hydra
from tests.tasks.titles import write_titles

RECIPES = ROOT / "recipes"
OVERRIDDEN = re.compile(r"\boverrides ([^;:]*?\.yaml(?: and [\w.-]+\.yaml)*)", re.IGNORECASE)
#: task -> folder of its files
FILES = {
    "xl_classification": "tasks",
    "xl_ranking": "ranked",
    "xl_tagging": "ner",
    "xl_question_answering": "qa",
    "xl_generation": "titles",
}


def stack(path):
    """The files that a configuration overrides, as its comment says, and itself."""
    comment = " ".join(line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    named = OVERRIDDEN.search(comment)
    below, folder = [], path.parent
    for name in named[1].split(" and ") if named else []:
        folder = (folder / name).parent
        below += [file for file in stack((folder / Path(name).name).resolve()) if file not in below]
    return [*below, path]


def configurations():
    """{name: flags} of every configuration that trains."""
    files = sorted(
        {*RECIPES.glob("*/config/*.yaml"), *RECIPES.glob("*/lohelp/**/*.yaml"), *RECIPES.glob("lohelp/**/*.yaml")}
    )
    experiments = {
        path for path in files if "\nsteps:" in path.read_text(encoding="utf-8")
    }  # lists of commands, not of flags
    papers = read_list(RECIPES / "papers.yaml")
    listed = {Path(entry.files[-1]).resolve() for entry in papers}
    found = {path: flags(stack(path)) for path in files if path not in experiments | listed}
    named = {str(path.relative_to(RECIPES).with_suffix("")): given for path, given in found.items()}
    named |= {entry.name.split(": ")[0]: overridden(entry.files, entry.flags) for entry in papers}
    return {name: given for name, given in named.items() if not {"--beam", "--valid-subset"} & set(given)}


CONFIGURATIONS = configurations()
PAPERS = [name for name in CONFIGURATIONS if ", " in name]
SYSTEMS = ("xlm", "unicoder", "veco", "xglue", "monotrans")
FIRST = [next(name for name in PAPERS if name.startswith(f"{system}, ")) for system in SYSTEMS]


def small(name, given, root):
    """The command line of a configuration at nano size, except for --save-dir."""
    value = dict(itertools.pairwise(given)).get
    files = FILES.get(value("--task"))
    more = ["--task-files", root / "labeled" / files, "--train-langs", "en", "--eval-langs", "en,de"] if files else []
    more += ["-s", "en", "-t", "de", "--max-tokens", 128] if value("--task") == "xl_translation" else []
    objectives = value("--objectives", "")
    if objectives:
        options = re.sub(r"batch_sentences=\d+", "batch_sentences=2", value("--objective-options", ""))
        options = re.sub(r"batch_tokens=\d+", "batch_tokens=256", options)  # the longest examples have 255
        more += ["--objective-options", f"{options} paraphrase.negatives=random"]
        more += ["--updates-per-epoch", 2]
    batches = len(objectives.split(",")) if value("--schedule") == "cycle" else 1
    more += ["--batches-per-update" if value("--batches-per-update") else "--update-freq", batches]
    if "language-module" in name:
        more += ["--init-from", root / "body/checkpoint_last.pt", "--new-language-module"]  # add-language.sh
        more += ["--train-only", "language-module"]
    two_stacks = "_mt_" in value("--arch") or value("--arch").startswith(("xl_unmt", "xl_xdae", "xl_xfnp"))
    size = ["--encoder-layers", 1, "--decoder-layers", 1] if two_stacks else ["--layers", 1]
    size += ["--ffn-dim", 128, "--heads", 4] if value("--arch") != "xl_dan" else []
    data = root / ("labeled/data-bin" if files else "tiny")
    return [
        data,
        *cli(user_dir="fairseq_xl"),
        *given,
        *more,
        *size,
        *cli(embed_dim=64, max_update=2, disable_validation=True, no_save=True, distributed_world_size=1),
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The folder of the data and of a checkpoint of MonoTrans."""
    root = tmp_path_factory.mktemp("recipes")
    data_bin = write_data_bin(root / "tiny")
    (root / "labeled").mkdir()
    write_encoded(root / "labeled")
    write_task(root / "labeled/tasks", sides=1)
    write_titles(root / "labeled/titles")
    write_others(root / "labeled")
    (root / "labeled/ranked").mkdir()
    for split in ("train", "valid"):
        for code in ("en", "de"):
            rows = "".join(f"1\triver {row}\tthe river\n0\triver {row}\twater\n" for row in range(40))
            (root / f"labeled/ranked/{split}.{code}.tsv").write_text(rows, encoding="utf-8")
    body = ["--arch", "xl_monotrans_tiny", "--embed-dim", 64, "--ffn-dim", 128, "--heads", 4, "--max-positions", 512]
    run_train(pretraining(data_bin, root / "body", *body, "--max-update", 1, "--disable-validation", objectives="nsp"))
    return root


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "lohelp" in name or name in {*PAPERS} - {*FIRST} else [])
        for name in CONFIGURATIONS
    ],
)
def test_configuration_trains(root, tmp_path, name):
    output = run_train([*small(name, CONFIGURATIONS[name], root), "--save-dir", tmp_path])
    assert list(output.updates) == [1, 2] and all(0 < float.fromhex(loss) < math.inf for loss in output.losses)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FIRST[:2] else pytest.mark.slow) for name in CONFIGURATIONS]
)
def test_configuration_trains_with_hydra(root, tmp_path, name):
    """`fairseq-xl config --hydra` makes its YAML."""
    data, *words = map(str, small(name, CONFIGURATIONS[name], root))
    shipped = {CONFIGURATIONS[name][index][2:]: value for index, value in enumerate(CONFIGURATIONS[name][1:])}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"lr": shipped["lr"]}), encoding="utf-8")
    write_hydra(tmp_path / "run.yaml", [tmp_path / "a.yaml"], *words[2:])
    cfg = composed(tmp_path, "run", f"task.data={data}", f"checkpoint.save_dir={tmp_path}/run", "common.cpu=true")
    with one_run() as output:
        main.main(cfg)
    assert list(output.updates) == [1, 2]


def test_configurations_are_all_there():
    """Every configuration that is found trains; the file that its comment names beneath it is applied first."""
    assert {
        "xlm/config/pretrain-toy",
        "veco/config/toy",
        "lohelp/translate",
    } <= CONFIGURATIONS.keys()
    assert all("--criterion" in given and "--optimizer" in given for given in CONFIGURATIONS.values())
    assert [path.name for path in stack(RECIPES / "monotrans/lohelp/language-module.yaml")] == [
        "pretrain.yaml",
        "toy.yaml",
        "pretrain.yaml",
        "language-module.yaml",
    ]
