"""Plans of the papers' configurations: what they need, as the page says."""

import argparse
import re
from pathlib import Path

import pytest

import fairseq_xl
from fairseq_xl.commands.plan import result_of
from fairseq_xl.planning.counting import count
from fairseq_xl.planning.setting import read_list
from recipes import plans

fairseq_xl.register()

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
ENTRIES = read_list(RECIPES / "papers.yaml")
SYSTEMS = ("xlm", "unicoder", "veco", "xglue", "monotrans")
#: of each system; 24 layers take four times as long
FIRST = [
    next(entry for entry in ENTRIES if entry.name.startswith(f"{system}, ") and "large" not in entry.name)
    for system in SYSTEMS
]
#: configurations that are none of the five papers, of other sizes, of the selection of checkpoints, and of
#: fairseq-generate and fairseq-validate
OTHER = re.compile(
    "toy|medium|longer|multi30k|unsupervised-small|without-pooler|generation-bleu|generate|denoise|predict"
)
WITHIN = 0.035  # of the papers' round numbers: XLM-R base has 278M parameters, printed as 270M


def rows():
    """{name: {column: cell}} of the page's table."""
    lines = [line for line in plans.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head, _, *cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0]: dict(zip(head, row, strict=True)) for row in cells}


def test_plan_every_configuration_of_a_paper_is_in_the_list():
    shipped = {path for path in RECIPES.glob("*/config/*.yaml") if not OTHER.search(path.name)}
    assert {Path(file) for entry in ENTRIES for file in entry.files} == shipped
    assert list(rows()) == [entry.name for entry in ENTRIES]


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, marks=[] if entry in FIRST else pytest.mark.slow) for entry in ENTRIES],
    ids=lambda entry: entry.name,
)
def test_plan_counts_what_the_page_says(entry, tmp_path):
    """After a change: fairseq-xl plan --list recipes/papers.yaml --json | python -m recipes.plans."""
    options = argparse.Namespace(gpu=None, share=None, tokens_per_second=None)
    result = result_of(entry, count(entry, tmp_path / "text"), options)
    found, expected = plans.row(result), rows()[entry.name]
    for cells in (found, expected):
        memory = [float(cells.pop(name)) for name in list(cells) if name.endswith(", GiB")]
        cells["memory"] = pytest.approx(memory, rel=0.05, abs=0.02) if cells is found else memory
    assert found == expected
    if entry.parameters:
        assert result["parameters"] == pytest.approx(float(entry.parameters.removesuffix("M")) * 1e6, rel=WITHIN)
