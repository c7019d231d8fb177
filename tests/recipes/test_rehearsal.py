"""Rehearsals of the papers' configurations: what they need, as the pages say, and two updates of each."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import fairseq_xl
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.io.flags import merge_objective_options
from fairseq_xl.rehearsal import report, updates
from fairseq_xl.rehearsal.counting import count
from fairseq_xl.rehearsal.setting import UPDATES, prepare, pretraining_objectives
from tests.warm_python import python

fairseq_xl.register()

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
ENTRIES = report.read_list(RECIPES / "papers.yaml")
NAMES = [f"{entry.system}, {entry.name}" for entry in ENTRIES]
FIRST = [next(entry for entry in ENTRIES if entry.system == system) for system in report.TITLES]
#: configurations of sizes that are not the papers', and of fairseq-generate and fairseq-validate
OTHER = re.compile("toy|medium|longer|unsupervised-small|generate|denoise|predict")
MEMORY = slice(4, 11)  # cells of a row
WITHIN = 0.035  # of the papers' round numbers: XLM-R base has 278M parameters, printed as 270M


def rows(system):
    """{first cell: cells} of the table of a system's page."""
    text = (RECIPES / system / "results/rehearsal.md").read_text(encoding="utf-8")
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells] for cells in lines[2:]}


def test_rehearse_every_configuration_of_a_paper_is_in_the_list():
    shipped = {path for path in RECIPES.glob("*/config/*.yaml") if not OTHER.search(path.name)}
    assert {Path(file) for entry in ENTRIES for file in entry.files} == shipped
    assert set(report.TITLES) == {entry.system for entry in ENTRIES}
    assert [list(rows(system)) for system in dict.fromkeys(entry.system for entry in ENTRIES)] == [
        [report.row_name(entry) for entry in ENTRIES if entry.system == system]
        for system in dict.fromkeys(entry.system for entry in ENTRIES)
    ]


@pytest.mark.parametrize("system", report.TITLES)
def test_rehearse_pages_have_the_text_and_head_of_the_command(system):
    """Except for the versions that they were written with."""
    text = (RECIPES / system / "results/rehearsal.md").read_text(encoding="utf-8")
    page, without_rows = (
        re.sub("(?<=again. Versions: ).*(?=[.]\n)", "VERSIONS", each) for each in (text, report.markdown(system, []))
    )
    assert page.startswith(without_rows) and without_rows.endswith("|---|\n")


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_rehearse_counts_what_the_page_says(entry, tmp_path):
    """After a change of the memory: fairseq-xl rehearse --list recipes/papers.yaml --no-updates --write."""
    counted = count(entry.setting(), tmp_path / "text")
    expected = rows(entry.system)[report.row_name(entry)]
    made = report.markdown(entry.system, [(entry, counted)])
    (found,) = (line for line in made.splitlines() if line.startswith(f"| {expected[0]} "))
    found = [cell.strip() for cell in found.strip("|").split("|")]
    assert found[: MEMORY.start] + found[MEMORY.stop :] == expected[: MEMORY.start] + expected[MEMORY.stop :]
    memory = [float(cell) for cell in found[MEMORY]]
    assert memory == pytest.approx([float(cell) for cell in expected[MEMORY]], rel=0.05, abs=0.02)
    if entry.paper:
        assert counted.parameters == pytest.approx(float(entry.paper.removesuffix("M")) * 1e6, rel=WITHIN)


def shortened(setting):
    """The setting with texts of 128 tokens: attention over 512 in half precision takes seconds on a CPU.

    Documents in two languages stay longer. That texts of the papers' lengths fit the positions is tested below.
    """
    flags = list(setting.arguments)
    if "--length" in flags:
        flags += ["--length", "128"]
    if "--objectives" in flags:
        names = flags[flags.index("--objectives") + 1].split(",")
        lengths = [f"{name}.length=128" for name in names if name != "cross_lingual_mlm"]
        flags += ["--objective-options", " ".join(lengths)]
    return replace(setting, arguments=tuple(merge_objective_options(flags)))


@pytest.mark.parametrize(
    "entries, shorten", [(FIRST, shortened), pytest.param(ENTRIES, lambda setting: setting, marks=pytest.mark.slow)]
)
def test_rehearse_two_updates(entries, shorten):
    """One launcher trains configurations one after the other, in two processes each: the first one of every system.

    With --slow all, at their own lengths; each trains in distributed/test_distributed_recipes.py, too.
    """
    found = updates.run_two_updates([shorten(entry.setting()) for entry in entries], python())
    errors = {entry.name: each.error for entry, each in zip(entries, found) if each.error is not None}
    assert not errors and len(found) == len(entries)
    for entry, each in zip(entries, found):
        assert len(each.losses) == UPDATES and all(0 < loss < 60 for loss in each.losses), f"{entry}: {each}"
        if entry.system == "veco" and entry.files[-1].endswith("/pretrain.yaml"):
            terms = [loss / math.log2(207) for loss in each.losses]  # of the two objectives in turn: 4 and 5
            assert terms == pytest.approx([4, 5], rel=0.03)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if "pretrain" in entry.files[0]], ids=str)
def test_rehearse_limits_batches_of_pretraining_once(entry, tmp_path):
    """By tokens or by sentences; and its inputs fit the positions."""
    cfg = prepare(entry.setting(), tmp_path / "text").cfg
    for objective in pretraining_objectives(cfg, XLDictionary.load(tmp_path / "text/dict.txt")).values():
        assert (objective.cfg.batch_tokens is None) != (objective.cfg.batch_sentences is None)
        assert objective.input_length.positions <= cfg.model.max_positions
