"""The configurations of the papers have the papers' values, item by item (paper_values.yaml)."""

from pathlib import Path

import pytest
import yaml

import fairseq_xl
from fairseq_xl.planning.setting import configuration, read_list
from tests.recipes.configurations import RECIPES, objectives_of

fairseq_xl.register()

VALUES = yaml.safe_load(Path(__file__).with_name("paper_values.yaml").read_text(encoding="utf-8"))
ENTRIES = {entry.name.rpartition(": ")[0]: entry for entry in read_list(RECIPES / "papers.yaml")}
NAMES = [f"{system}, {name}" for system, entries in VALUES.items() for name in entries]


#: entries without a value of the paper that is not another entry's
REPEATED = [
    *("xlm, question answering", "xlm, ranking", "xlm, tagging", "unicoder, deep averaging network"),
    *("unicoder, four tasks, without word recovery", "veco, large, without checkpointing", "veco, large, 64 processes"),
    *("xglue, generation, mBERT", "xglue, generation, XLM"),
]


def test_every_configuration_of_a_paper_has_its_values():
    assert {*NAMES} == ENTRIES.keys() - {*REPEATED} and ENTRIES.keys() > {*REPEATED}


@pytest.mark.parametrize("name", [*NAMES, *REPEATED])
def test_values_are_those_of_the_paper(name, dictionary):
    """Batches of pre-training are limited once, by tokens or by sentences, and inputs fit the positions."""
    cfg = configuration(ENTRIES[name])
    objectives = objectives_of(cfg, dictionary) if "objectives" in cfg.task else {}
    system, _, training = name.partition(", ")
    if "pretrain" in ENTRIES[name].files[0]:
        for objective in objectives.values():
            assert (objective.cfg.batch_tokens is None) != (objective.cfg.batch_sentences is None)
            assert objective.input_length.positions <= cfg.model.max_positions
    for item, expected in VALUES[system].get(training, {}).items():
        assert {key: value_of(key, cfg, objectives) for key in expected} == expected, item


def value_of(key, cfg, objectives):
    section, _, option = key.partition(".")
    batches = cfg.task.batches_per_update or 1
    if key == "tokens":
        return batches * cfg.dataset.max_tokens
    if key == "examples":
        return batches * cfg.dataset.batch_size
    if section == "examples":  # cycle: every objective has its share of the batches
        share = len(objectives) if cfg.task.schedule == "cycle" else 1
        return batches // share * objectives[option].cfg.batch_sentences
    if section == "epoch":
        return int(cfg.task.updates_per_epoch) * objectives[option].cfg.batch_sentences
    value = getattr(objectives[section].cfg if section in objectives else cfg[section], option)
    if isinstance(value, str):  # of an enumeration too
        return str(value)
    return list(value) if hasattr(value, "__iter__") else value
