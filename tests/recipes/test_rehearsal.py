"""Rehearsals of the papers' configurations: what they need, as the pages say."""

import re
from pathlib import Path

import pytest

import fairseq_xl
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.rehearsal import report
from fairseq_xl.rehearsal.counting import count
from fairseq_xl.rehearsal.setting import prepare, pretraining_objectives

fairseq_xl.register()

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
ENTRIES = report.read_list(RECIPES / "papers.yaml")
#: of each system; 24 layers take four times as long
FIRST = [
    next(entry for entry in ENTRIES if entry.system == system and not entry.name.startswith("large"))
    for system in report.TITLES
]
NAMES = [f"{entry.system}, {entry.name}" for entry in ENTRIES]
#: configurations that are none of the five papers, of other sizes, and of fairseq-generate and fairseq-validate
OTHER = re.compile("toy|medium|longer|multi30k|unsupervised-small|generate|denoise|predict")
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


@pytest.mark.parametrize(
    "entry", [pytest.param(entry, marks=[] if entry in FIRST else pytest.mark.slow) for entry in ENTRIES], ids=NAMES
)
def test_rehearse_counts_what_the_page_says(entry, tmp_path):
    """After a change of the memory: fairseq-xl plan --list recipes/papers.yaml --write."""
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


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if "pretrain" in entry.files[0]], ids=str)
def test_rehearse_limits_batches_of_pretraining_once(entry, tmp_path):
    """By tokens or by sentences; and its inputs fit the positions."""
    cfg = prepare(entry.setting(), tmp_path / "text").cfg
    for objective in pretraining_objectives(cfg, XLDictionary.load(tmp_path / "text/dict.txt")).values():
        assert (objective.cfg.batch_tokens is None) != (objective.cfg.batch_sentences is None)
        assert objective.input_length.positions <= cfg.model.max_positions
