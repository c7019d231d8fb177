"""The figures of the papers: their tables, means and slips of print; and `score --compare`."""

import json

import pytest

from fairseq_xl.commands import score_xglue
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import xglue, xtreme
from fairseq_xl.evaluation.comparisons import compare
from fairseq_xl.evaluation.paper_figures import cell, example, find_row, selected, tables
from tests.evaluation.builders import XGLUE, write


def test_rows_by_name():
    """A table of several parts gives the one with the columns."""
    table, row = find_row("G-T4:xDAE", ["QG", "NTG"])
    assert row == {"QG": (7.9,), "NTG": (11.0,), "average": (9.5,)} and table.source == "Liang et al. 2020, table 4"
    assert find_row("G-T4:xDAE", ["de", "en", "es"])[1]["es"] == (11.1,)
    with pytest.raises(UserError, match="G-T4:xDAEs: expected CODE:ROW"):
        find_row("G-T4:xDAEs", [])


def recomputed_mean(table, row, column):
    """The mean of a row's cells, by metric if the printed one has several; None if a cell is missing."""
    columns = table.fields.get("means", {}).get(column, " ".join({*table.columns} - {column})).split()
    cells = [row.get(name, ()) for name in columns]
    if not cells or not all(cells):
        return None
    if len(row[column]) == 1:
        cells = [(sum(values) / len(values),) for values in cells]
    return tuple(sum(values) / len(cells) for values in zip(*cells))  # as many as the cells have: M-T8 has F1 only


def test_every_table_of_the_papers():
    counts = {"X": 5, "U": 6, "G": 12, "V": 18, "M": 11}
    assert list(tables()) == [f"{letter}-T{n}" for letter, count in counts.items() for n in range(1, count + 1)]
    assert len(tables()) == 52
    without_rows = [code for code, parts in tables().items() if not all(table.rows for table in parts)]
    assert without_rows == ["G-T10", "V-T8", "M-T6"]  # examples, and sizes that are not recorded
    for parts in tables().values():
        for table in parts:
            for row in table.rows.values():
                assert {*row} <= {*table.columns} and all(len(values) <= len(table.metrics) for values in row.values())
            assert {*table.fields.get("shown", ())} <= {*table.rows}
            assert {*table.fields.get("notes", ()), *table.fields.get("slips", ())} <= {*table.rows}


def test_printed_means_are_those_of_their_rows_or_marked():
    checked, slips = 0, {}
    for code, parts in tables().items():
        for table in parts if parts[0].code == code else ():  # not of those with the rows of another one
            for name, row in table.rows.items():
                if "average" in row and (means := recomputed_mean(table, row, "average")):
                    marked = table.fields.get("slips", {}).get(name, {}).get("average")
                    if marked is not None:
                        slips[code] = (*row["average"], *cell(marked))
                    for mean, printed in zip(means, row["average"] if marked is None else cell(marked)):
                        digits = 2 if code == "G-T12" else 1
                        assert abs(mean - printed) <= 0.5 * 10**-digits + 1e-9, (code, name, mean)
                        checked += 1
    assert checked == 122
    assert slips == {
        "V-T1": (73.1, 73.3),
        "V-T14": (77.3, 61.8, 77.4, 61.4),
        "V-T16": (67.6, 49.1, 67.6, 49.2),
        "M-T4": (62.7, 62.6),
        "M-T7": (82.7, 82.8),
    }


@pytest.mark.parametrize(
    "code, part, row, column, values",
    [
        ("X-T1", 0, "XLM (MLM + TLM)", "sw", (68.4,)),
        ("X-T2", 0, "MLM/random", "en-de", (27.0,)),
        ("X-T4", 0, "ne, hi and en", "ne", (109.3,)),
        ("U-T1", 0, "bilingual", "en", ()),
        ("U-T5", 0, "fine-tuned on ru", "average", (75.7,)),
        ("U-T5", 0, "fine-tuned on en", "zh", (76.2,)),
        ("G-T4", 1, "Unicoder", "th", (57.6,)),
        ("G-T4", 11, "xDAE", "en", (16.7,)),
        ("G-T12", 0, "Unicoder", "zh", (42.23,)),
        ("V-T3", 0, "VECO", "en-fr", (44.4, 42.0)),
        ("V-T16", 0, "VECO, translate-train-all", "te", (76.0, 58.0)),
        ("M-T2", 0, "MonoTrans + positions", "ru", (61.6,)),
        ("M-T8", 0, "MonoTrans + positions", "tr", (16.2,)),
        ("M-T9", 0, "MonoTrans + positions + noise + adapters", "average", (66.8, 50.5)),
        ("M-T10", 0, "agreement, simple", "used", (80,)),
        ("M-T11", 0, "reflexives, simple", "transferred", (68.4,)),
    ],
)
def test_figures(code, part, row, column, values):
    assert repr(tables()[code][part].rows[row][column]) == repr(values)  # a count has no point


def test_scores_beside_figures(tmp_path, capsys, caplog):
    for name in ("NER", "NTG"):
        task, (_, labeled, predicted, _) = xglue.tasks()[name], XGLUE[name]
        for language in task.languages:
            write(tmp_path / "right" / task.references.format(language=language, split="test"), labeled)
            write(tmp_path / "found" / task.predictions.format(language=language, split="test"), predicted)
    line = ["--predictions", str(tmp_path / "found"), "--references", str(tmp_path / "right")]
    score_xglue.main([*line, "--table", str(tmp_path / "table.md"), "--compare", "G-T4:Unicoder", "G-T8"])
    result = json.loads(capsys.readouterr().out)["compare"]
    assert [row["language"] for row in result] == "de en es nl average en es fr de ru average".split()
    names = {"paper": "G-T4:Unicoder", "source": "Liang et al. 2020, table 4", "task": "NER", "language": "de"}
    assert result[0] == names | {"metric": "f1", "score": 66.67, "figure": 71.8, "difference": -5.13}
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| G-T4:Unicoder (Liang et al. 2020, table 4) | NER | de | f1 | 66.7 | 71.8 | -5.1 |" in text
    score_xglue.main([*line, "--compare", "U-T2", "G-T8"])
    assert caplog.messages == ["--compare U-T2: no figure of it is of a score of NER, NTG"]
    with pytest.raises(UserError, match="X-T2 has no figure of xglue: expected CODE .* X-T1 .XLM: XNLI., U-T2 "):
        score_xglue.main([*line, "--compare", "X-T2"])
    with pytest.raises(UserError, match="--compare G-T4:BERT: expected one of the rows Unicoder; XLM-R base; mBERT; "):
        score_xglue.main([*line, "--compare", "G-T4:BERT"])
    assert selected(["g-t4:xlm-r BASE"], "xglue") == selected(["G-T4:XLM-R base"], "xglue")
    assert [example(name) for name in ("xglue", "xtreme")] == ["G-T4:Unicoder", "V-T1:VECO"]


def test_columns_of_tasks_are_compared():
    """V-T1 has averages of tasks; those of PAWS-X and XQuAD are accuracy, and F1 and exact match."""
    pawsx = {"variant": "accuracy", "languages": {"de": {"accuracy": 90.0}}, "accuracy": 80.0}
    xquad = {"variant": xtreme.BENCHMARK.tasks["xquad"].official, "languages": {}, "f1": 78.0, "exact_match": 60.0}
    result = {"split": "test", "tasks": {"pawsx": pawsx, "xquad": xquad}, "average": 70.0}
    rows = compare(xtreme.BENCHMARK, result, selected(["V-T1:VECO"], "xtreme"))
    differences = [(row["task"], row["language"], row["metric"], row["difference"]) for row in rows]
    assert differences == [
        ("pawsx", "average", "accuracy", -8.7),
        ("xquad", "average", "f1", 0.7),
        ("xquad", "average", "exact_match", -1.8),
        ("average", "average", "average", -3.1),
    ]
    assert {*selected(["V-T1"], "xtreme")[0][0].column_tasks("xtreme").values()} == {*xtreme.BENCHMARK.tasks}


def test_figures_of_other_splits_languages_and_variants_are_not_compared():
    entry = {"variant": "accuracy", "languages": {"de": {"accuracy": 90.0}}, "accuracy": 80.0}
    result = {"split": "test", "tasks": {"PAWSX": entry}}
    figures = selected(["V-T11:VECO"], "xglue")  # seven languages, XGLUE has four
    rows = compare(xglue.BENCHMARK, result, figures)
    assert [(row["language"], row.get("difference")) for row in rows] == [("de", -1.3), ("average", None)]
    assert rows[1]["not comparable"] == "the figure is an average over other languages"
    rows = compare(xglue.BENCHMARK, result | {"split": "dev"}, figures)
    assert {row["not comparable"] for row in rows} == {"the figure is of the split test"}
    pos = {"variant": "accuracy", "languages": {}, "accuracy": 80.0}
    (row,) = compare(xglue.BENCHMARK, {"split": "test", "tasks": {"POS": pos}}, selected(["G-T4:Unicoder"], "xglue"))
    assert row["not comparable"] == "the score is of the variant accuracy"
    rows = compare(
        xglue.BENCHMARK, {"split": "test", "tasks": {}, "generation": 10.0}, selected(["G-T4:xDAE"], "xglue")
    )
    assert [(row["task"], row["difference"]) for row in rows] == [("generation", 0.5)]
