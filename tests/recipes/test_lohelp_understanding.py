"""The comparison of five tasks on LibreOffice help: its steps, and some of them at nano size on synthetic text."""

import re

import pytest

from preprocess.commands.sample import main as write_sample
from recipes import experiment
from recipes.experiment_file import Experiment
from tests.builders import squad
from tests.recipes.configurations import RECIPES, build, configuration

pytestmark = pytest.mark.usefixtures("warm")
COMPARISON = RECIPES / "lohelp/understanding.yaml"
OWN = RECIPES / "lohelp/understanding"


def steps(output, *values):
    made = Experiment(COMPARISON, values, output)
    return {step.name: step for step in made.select([])}


def test_every_model_is_fine_tuned_for_every_task_from_its_own_seed(tmp_path):
    found = steps(tmp_path)
    names = {
        f"finetune/{model}/{task}/{seed}"
        for model in ("random", "xlm", "unicoder", "veco")
        for task in ("nc", "qam", "wpr", "ui", "qa")
        for seed in (1, 2, 3)
    }
    assert {name for name in found if name.startswith("finetune")} == names
    for name in names:
        _, model, task, seed = name.split("/")
        command = " ".join(found[name].commands[0])
        weights = re.findall(r"--init-from (\S+)", command)
        assert weights == ([] if model == "random" else [f"{tmp_path}/{model}-{seed}/checkpoint_last.pt"])
        assert f"tasks/{task} en en,de,es,fr,ru,zh " in command and f"--valid-langs en --seed {seed} " in command
        assert ("--length 256 --answer-length 120 --normalization mlqa" in command) == (task == "qa")
        needed = {step.name for step in found[name].required_steps}
        pretraining = f"veco/{seed}" if model == "veco" else f"pretrain/{model}/{seed}"
        assert needed == {"text"} | (set() if model == "random" else {pretraining})
    for name, step in found.items():
        if name.startswith(("pretrain", "veco")):
            kinds = {need.name for need in step.required_steps}
            assert kinds == {"text", f"start/{name[-1]}"} | ({"mine"} if "unicoder" in name else set())
    baselines = [name.removeprefix("baseline/") for name in found if name.startswith("baseline")]
    expected = (
        "nc/tf-idf qam/pairs wpr/tf-idf wpr/overlap ui/dictionary ui/capitals ui/outside qa/tf-idf qa/overlap qa/first"
    )
    assert baselines == expected.split()


def test_models_have_the_same_encoder_and_positions_for_questions(dictionary):
    start = configuration([RECIPES / "xlm/config/pretrain.yaml", OWN / "start.yaml"])
    veco = configuration([RECIPES / "veco/config/pretrain.yaml", OWN / "veco.yaml"])
    unicoder = RECIPES / "unicoder/config"
    others = configuration([unicoder / "pretrain.yaml", unicoder / "toy.yaml", OWN / "continue.yaml"])
    tuned = configuration(
        [RECIPES / f"xlm/config/{name}.yaml" for name in ("finetune", "finetune-toy")] + [OWN / "finetune.yaml"]
    )
    encoder = {name: value.shape for name, value in build(start, dictionary).state_dict().items() if "encoder" in name}
    for cfg in (veco, others, tuned):
        own = {name: value.shape for name, value in build(cfg, dictionary).state_dict().items()}
        assert encoder.items() <= own.items() and cfg.model.max_positions >= 256
    stages = [cfg.optimization.max_update for cfg in (veco, others)]
    first = configuration([RECIPES / "veco/config/pretrain.yaml", OWN / "veco.yaml", OWN / "cross-attention-veco.yaml"])
    assert stages[0] + first.optimization.max_update == stages[1]
    assert veco.optimization.update_freq == [2]


@pytest.fixture
def corpus(tmp_path):
    """A corpus folder of synthetic text with the tasks wpr and qa: the title of a text, and the text."""
    folder = tmp_path / "corpus"
    write_sample([str(folder), "--documents", "40"])
    for path in (*folder.glob("bitext/test.*"), *folder.glob("*/valid.*")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:60]))
    for name in ("train.en", "valid.en", "valid.de", "test.en", "test.de"):
        bodies, titles = ((folder / f"tasks/ntg/{name}.{side}").read_text().splitlines()[:8] for side in ("src", "tgt"))
        for task in ("wpr", "qa"):
            (folder / "tasks" / task).mkdir(exist_ok=True)
        ranked = [
            f"{int(own == text)}\t{place} {title}\t{text}\n"
            for place, (own, title) in enumerate(zip(bodies, titles))
            for text in bodies[:3]
        ]
        (folder / f"tasks/wpr/{name}.tsv").write_text("".join(ranked))
        pages = [
            (f"{title}\n{body}", (f"{place}", title, body)) for place, (body, title) in enumerate(zip(bodies, titles))
        ]
        (folder / f"tasks/qa/{name}.json").write_text(squad(*pages))
    return folder


@pytest.mark.slow
def test_tables_have_both_intervals_and_the_baselines(corpus, tmp_path, capsys):
    values = [f"corpus={corpus}", "others=de", "seeds=1", "vocabulary=300", "models=veco", "tasks=wpr,qa"]
    experiment.main([str(COMPARISON), *values, "--output", str(tmp_path / "out"), "--updates", "2", "--jobs", "2"])
    tables = capsys.readouterr().out
    cell = r"\d+\.\d \(examples \d+\.\d–\d+\.\d\)"
    for title, rows in (
        ("wpr: ndcg", ["VECO", "tf-idf", "shared words"]),
        ("qa: f1", ["VECO", "tf-idf", "shared words", "first paragraph"]),
        ("qa: exact_match", ["VECO", "tf-idf", "shared words", "first paragraph"]),
    ):
        table = tables[tables.index(f"| {title} | en | de | average of de |") :].split("\n\n")[0]
        for row in rows:
            assert re.search(rf"^\| {row} \| {cell} \| {cell} \| \d+\.\d \|$", table, re.MULTILINE), (row, table)
    assert re.search(r"^\| chance \| \d+\.\d \| \d+\.\d \| \d+\.\d \|$", tables, re.MULTILINE)
    assert "| VECO, first stage | 2 | " in tables and "| VECO, second stage | 2 | " in tables
