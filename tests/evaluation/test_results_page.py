"""`fairseq-xl plot results`: a page of score files that `score` printed for small files, read with a parser."""

import html.parser
import json
import re

import pytest

from fairseq_xl.commands import plot_results, score_xglue, score_xtreme
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import results_page, xglue, xtreme
from tests.evaluation.builders import ANSWERS, QUESTIONS, XGLUE, write

HOSTILE = "<script>alert('1')</script>\"><img src=x onerror=alert(2)> & <b>"
VOID = {"meta"}


class Page(html.parser.HTMLParser):
    """The elements of a page, the text of the cells of its tables, and all of its text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.tables, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)
        if name == "table":
            self.tables.append([])
        elif name == "tr":
            self.tables[-1].append([])
        elif name in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, text):
        if "style" not in self.open:
            self.text += text
        if {"th", "td"} & set(self.open):
            self.tables[-1][-1][-1] += text

    def named(self, name):
        """The attributes of the elements of a name."""
        return [attributes for found, attributes in self.elements if found == name]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Score files: XGLUE's tasks, all complete; and four of XTREME's in German."""
    folder = tmp_path_factory.mktemp("scores")
    for name, task in xglue.tasks().items():
        _, labeled, predicted, _ = XGLUE[name]
        for language in (*task.languages, *task.extra_languages):
            write(folder / "right" / task.references.format(language=language, split="test"), labeled)
            write(folder / "found" / task.predictions.format(language=language, split="test"), predicted)
    for name, labeled, predicted in (
        ("udpos", "NOUN\nVERB\n\nADJ\n\n", "NOUN\nNOUN\n\nADJ\n\n"),
        ("tatoeba", "0\n1\n2\n3\n", "0\n1\n2\n2\n"),
        ("mlqa", QUESTIONS, json.dumps(ANSWERS)),
    ):
        suffix = "json" if name == "mlqa" else "tsv"
        write(folder / f"right/{name}/test-de.{suffix}", labeled)
        write(folder / f"found/{name}/test-de.{suffix}", predicted)
    with pytest.MonkeyPatch.context() as patch:
        for name, main in (("xglue", score_xglue.main), ("xtreme", score_xtreme.main)):
            with open(folder / f"{name}.json", "w", encoding="utf-8") as file:
                patch.setattr("sys.stdout", file)
                main(["--predictions", str(folder / "found"), "--references", str(folder / "right")])
    return folder


@pytest.fixture
def scores(files):
    return json.loads((files / "xglue.json").read_text(encoding="utf-8"))


def made(folder, *arguments):
    """The page of `fairseq-xl plot results`."""
    plot_results.main([*map(str, arguments), "--output", str(folder / "page.html")])
    return Page((folder / "page.html").read_text(encoding="utf-8"))


def saved(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def table(page, first, last=None):
    """The rows by their first cells, of the first table with a row `first` and, if given, a last column `last`."""
    rows = next(
        rows for rows in page.tables if any(row[0] == first for row in rows) and (not last or rows[0][-1] == last)
    )
    return {row[0]: row[1:] for row in rows}


def test_averages_beside_those_of_the_paper(files, tmp_path):
    page = made(tmp_path, files / "xglue.json", "--title", "Scores of a model", "--note", "Made-up data")
    averages = table(page, "NER")
    assert averages["task"] == ["ours", "050100", "paper", "minus paper", "languages", "metric"]
    assert averages["NER"] == ["66.7", "", "Unicoder 79.7", "−13.0", "4 of 4", "F1 of spans (seqeval)"]
    assert averages["QG"][2:4] == ["xDAE 7.9xFNP 6.5mBERT 4.5", "+92.1+93.5+95.5"]
    assert averages["QG"][4] == "3 of 3"  # es, it, pt are not averaged
    assert averages["XNLI"][2] == "Unicoder 75.3Unicoder, multi-language 79.4"
    assert averages["POS"][5] == "precision of spans (seqeval); the benchmark calls this accuracy"
    assert averages["WPR"][4] == "6 of 6" and averages["POS"][4] == "18 of 18"
    of_tasks = [float(averages[name][0]) for name in xglue.GROUPS["understanding"]]
    assert float(averages["understanding"][0]) == pytest.approx(sum(of_tasks) / 9, abs=0.06)
    assert averages["understanding"][2] == "Unicoder 76.1XLM-R base 75.6mBERT 71.9"
    papers = "xDAE 9.5xFNP 7.8mBERT 6.4"
    assert averages["generation"] == ["50.0", "", papers, "+40.5+42.2+43.6", "–", "mean of 2 tasks"]
    assert page.text.count("Scores of a model") == 2 and "Scores of a modelMade-up data" in page.text


def test_all_published_averages_of_a_task(files, tmp_path):
    page = made(tmp_path, files / "xglue.json")
    xnli = table(page, "CLWE 768d, identical words")
    assert xnli["system"] == ["source", "score", "minus paper"] and len(xnli) == 1 + 21
    assert xnli["VECO"] == ["Luo et al. 2020", "79.9", "−29.9"]
    assert xnli["CLWE 768d, identical words"] == ["Artetxe et al. 2020", "60.1", "−10.1"]
    (pawsx,) = [rows for rows in page.tables if rows[0][:2] == ["system", "source"] and len(rows) == 1 + 7]
    assert pawsx[4] == ["MonoTrans", "Artetxe et al. 2020", "86.0*", "–"]  # of other languages
    assert "PAWSX of VECO and VECO, translate-train-all and MonoTrans and MonoTrans + positions and" in page.text


def test_published_scores_by_language(files, tmp_path):
    page = made(tmp_path, files / "xglue.json")
    titles = next(row for rows in page.tables for row in rows if "xDAE, multi-language (paper)" in row)
    assert titles[:5] == ["language", "ours", "0" + "12.5" + "25", "xDAE (paper)", "minus xDAE"]
    by_language = next({row[0]: row[3:] for row in rows} for rows in page.tables if titles in rows)
    assert by_language["ru"][:2] == ["7.5", "−7.5"] and by_language["average"][:2] == ["11.0", "−11.0"]
    assert by_language["ru"][2:] == ["0.1", "−0.1", "0.0", "+0.0", "13.2", "−13.2"]  # xFNP, mBERT, xDAE, multi-language
    section = (tmp_path / "page.html").read_text(encoding="utf-8").partition('<h3 id="xglue-NTG">')[2]
    assert re.search(r'<th scope="row">ru</th>.*?</tr>', section)[0].count('class="paper"') == 4


def test_tasks_with_published_scores_by_language_have_the_whole_width(files, tmp_path):
    """Their tables have more columns, which half of the page would clip."""
    made(tmp_path, files / "xglue.json", files / "xtreme.json")
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    wide = set(re.findall(r'<section class="wide"><h3 id="(\w+)-', source))
    assert wide == {"xglue"} and source.count('<section class="wide"') == 11  # XTREME's three have none


def test_no_differences_of_validation_scores(files, scores, tmp_path):
    """Published figures are of test sets."""
    page = made(tmp_path, saved(tmp_path / "valid.json", scores | {"split": "dev"}))
    averages = table(page, "NER")
    assert averages["NER"][2:4] == ["Unicoder 79.7", "–"] and averages["QG"][3] == "–––"
    assert "They are of the test sets, so no difference from them is given." in page.text
    assert not any(re.match(r"[−+]\d", cell) for rows in page.tables for row in rows for cell in row)
    assert "They are of the test sets" not in made(tmp_path, files / "xglue.json").text


def test_variants_are_said_and_not_compared(files, scores, tmp_path):
    other = scores["tasks"]["POS"]
    other |= {"variant": "accuracy", "metric": "accuracy of words", "accuracy": other["average"]}
    del other["paper"], scores["understanding"]
    for found in other["languages"].values():
        found["majority"] = 50.0
    page = made(tmp_path, saved(tmp_path / "other.json", scores))
    averages = table(page, "NER")
    assert averages["POS"][2:] == ["–", "–", "18 of 18", "accuracy of words"] and "understanding" not in averages
    assert "Not scored as the benchmark does, and in no average over tasks: POS." in page.text
    (tagged,) = [rows for rows in page.tables if len(rows) == 20]
    assert tagged[0] == ["language", "ours", "050100", "majority"]
    with pytest.raises(UserError, match="has POS scored by the variant precision, .*other.json by accuracy: scores of"):
        made(tmp_path, files / "xglue.json", f"b={tmp_path / 'other.json'}")


def test_averages_of_groups_have_notes(files, tmp_path):
    """Those that the paper does not print are marked, and 73.1, which is not the mean of its scores."""
    scores = json.loads((files / "xtreme.json").read_text(encoding="utf-8"))
    for name, task in xtreme.tasks().items():
        metrics = task.variants[task.official].metrics
        of_language = {"n": 4} | dict.fromkeys(metrics, 50.0) | {f"{m}_interval": [40, 60] for m in metrics}
        entry = {"metric": "m", "signature": "s", "variant": task.official, "missing": [], "paper": task.papers}
        entry |= {"languages": dict.fromkeys(task.languages, of_language)} | dict.fromkeys(metrics, 50.0)
        scores["tasks"][name] = entry | {"average": 50.0}
    scores |= dict.fromkeys(xtreme.GROUPS, 50.0)
    page = made(tmp_path, saved(tmp_path / "scores.json", scores))
    averages = table(page, "udpos")
    assert averages["average"][2] == "VECO 73.1*XLM-R 68.1VECO, translate-train-all 77.2*"
    assert averages["average"][3] == "−23.1−18.1−27.2" and averages["tagging"][2:4] == ["VECO 70.4*", "−20.4"]
    assert "* average of VECO: the paper prints 73.1; the mean of its nine task scores is 73.3." in page.text
    assert "* classification, tagging, qa, retrieval of VECO and VECO, translate-train-all: the mean of" in page.text
    xquad = next({row[0]: row[1:] for row in rows} for rows in page.tables if rows[0][1:5] == XQUAD)
    assert xquad["VECO"] == ["Luo et al. 2020", "69.5", "77.3", "61.8", "−19.5"]
    assert xquad["MonoTrans"][1:4] == ["52.4", "61.1", "43.6"]


XQUAD = ["source", "score", "F1", "exact match"]


def test_languages_have_intervals_as_numbers_and_whiskers(files, scores, tmp_path):
    page = made(tmp_path, files / "xglue.json")
    by_language = next({row[0]: row[1:] for row in rows} for rows in page.tables if "majority" in rows[0])
    low, high = scores["tasks"]["NC"]["languages"]["de"]["accuracy_interval"]
    assert by_language["de"] == [f"50.0 {low:.1f}–{high:.1f}", "", "50.0", "81.8", "−31.8"]
    assert by_language["average"] == ["50.0", "", "", "83.4", "−33.4"]
    section = (tmp_path / "page.html").read_text(encoding="utf-8").partition('<h3 id="xglue-NC">')[2]
    row = re.search(r'<tr><th scope="row">de</th>.*?</tr>', section)[0]
    assert re.findall(r'<rect class="s0" y="4" width="(.*?)"', row) == ["50.00%"]
    whiskers = re.findall(r'<line class="whisker" x1="(.*?)" x2="(.*?)"', row)
    bounds = f"{low:.2f}%", f"{high:.2f}%"
    assert whiskers == [bounds, (bounds[0],) * 2, (bounds[1],) * 2]
    assert re.findall(r'<line class="baseline" x1="(.*?)"', row) == ["50.00%"]
    (ranked,) = [{row[0]: row[1:] for row in rows} for rows in page.tables if "chance" in rows[0]]
    expected = scores["tasks"]["WPR"]["languages"]["zh"]
    assert ranked["zh"][0].split()[0] == f"{expected['ndcg']:.1f}" and ranked["zh"][2] == f"{expected['chance']:.1f}"
    assert "es (not averaged)" in ranked


def test_a_majority_of_words_is_no_baseline_of_spans(files, scores, tmp_path):
    assert "majority" in scores["tasks"]["NER"]["languages"]["de"]
    page = made(tmp_path, files / "xglue.json")
    (tagged,) = [rows for rows in page.tables if [row[0] for row in rows[1:-1]] == ["de", "en", "es", "nl"]]
    assert tagged[0] == ["language", "ours", "050100", "Unicoder (paper)", "minus Unicoder"]


def test_two_metrics_have_a_table_each(files, scores, tmp_path):
    page = made(tmp_path, f"VECO={files / 'xtreme.json'}")
    captions = re.findall("<caption>(.*?)</caption>", (tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [caption.split(";")[0] for caption in captions if "MLQA" in caption] == ["F1", "exact match"]
    averages = table(page, "udpos")
    assert averages["udpos"][0] == "–" and averages["udpos"][3] == "–"
    missing = [language for language in xtreme.tasks()["udpos"].languages if language != "de"]
    assert averages["udpos"][4] == f"1 of 33, missing {', '.join(missing)}"
    assert "No average of xnli, pawsx" in page.text and table(page, "af")["af"][0] == "–"


def test_systems_are_side_by_side(files, scores, tmp_path):
    other = saved(tmp_path / "other.json", scores)
    del scores["tasks"]["NER"]["languages"]["nl"], scores["tasks"]["NER"]["average"], scores["tasks"]["NER"]["f1"]
    del scores["understanding"], scores["tasks"]["QAM"]
    scores["tasks"]["NER"]["missing"] = ["nl"]
    saved(other, scores)
    page = made(tmp_path, f"one={files / 'xglue.json'}", f"two={other}", f"one={files / 'xtreme.json'}")
    averages = table(page, "NER")
    assert averages["task"][:2] == ["one", "two"]
    assert averages["task"][4:6] == ["one minus paper", "two minus paper"]
    assert averages["NER"][:2] == ["66.7", "–"] and averages["NER"][4:6] == ["−13.0", "–"]
    assert averages["NER"][6] == "one: 4 of 4two: 3 of 4, missing nl" and averages["NC"][6] == "5 of 5"
    assert averages["understanding"][1] == "–" and averages["generation"][:2] == ["50.0", "50.0"]
    (tagged,) = [rows for rows in page.tables if [row[0] for row in rows[1:-1]] == ["de", "en", "es", "nl"]]
    assert tagged[4][1].startswith("66.7 ") and tagged[4][2] == "–" and tagged[5][1:3] == ["66.7", "–"]
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    both = re.search(r'<h3 id="xglue-NC">.*?<th scope="row">de</th>.*?</tr>', text)[0]
    assert re.findall(r'<rect class="(s\d)" y="(\d+)" width="50.00%"', both) == [("s0", "4"), ("s1", "19")]
    assert "two: no average of NER, QAM." in page.text and "XTREME" in page.text


def test_the_page_is_accessible_and_needs_nothing_else(files, tmp_path):
    page = made(tmp_path, f"one={files / 'xglue.json'}", f"two={files / 'xglue.json'}", f"one={files / 'xtreme.json'}")
    assert page.named("html") == [{"lang": "en"}] and len(page.named("h1")) == 1
    assert len(page.named("table")) == len(page.named("caption")) == len(page.tables)
    assert all(cell["scope"] in ("row", "col") for cell in page.named("th"))
    assert all(len(row) == len(rows[0]) for rows in page.tables for row in rows)
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    linked = [link["href"] for link in page.named("a")]
    assert len(names) == len(set(names)) and {f"#{name}" for name in names} == set(linked)
    assert all(drawing.get("aria-hidden") or drawing.get("overflow") for drawing in page.named("svg"))
    assert not {"script", "link", "img", "iframe", "object"} & {name for name, _ in page.elements}
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bon\w+=", text)
    assert "default-src 'none'" in page.named("meta")[3]["content"].replace("&#x27;", "'")


def luminance(color):
    """WCAG 2.1's relative luminance of #rrggbb."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    low, high = sorted(map(luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [results_page.LIGHT, results_page.DARK], ids=["light", "dark"])
def test_contrasts(theme):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast(theme["text"], theme["ground"]) >= 4.5 and contrast(theme["text"], theme["note"]) >= 4.5
    assert contrast(theme["quiet"], theme["ground"]) >= 4.5
    for bar in results_page.BARS:
        assert contrast(bar, theme["ground"]) >= 3 and contrast(bar, theme["text"]) >= 3, bar


def test_hostile_text_is_text(scores, tmp_path):
    scores["split"] = scores["versions"][HOSTILE] = scores["tasks"]["NER"]["metric"] = HOSTILE
    scores["tasks"]["NER"]["paper"] = {HOSTILE: {"source": HOSTILE, "average": 1.0, "note": HOSTILE}}
    scores["tasks"]["QG"]["signature"] = HOSTILE
    scores["versions"]["sacrebleu"] = "\ud800"  # half of a pair
    folder = tmp_path / "<script>alert(1)<"
    folder.mkdir()
    written = saved(folder / "scores.json", scores)
    step = saved(folder / "step.json", {"commands": [["bash", HOSTILE]]})
    (folder / "a.yaml").write_text(json.dumps({HOSTILE: {"b": HOSTILE}}), encoding="utf-8")
    more = ["--title", HOSTILE, "--note", HOSTILE, "--settings", step, "--settings", folder / "a.yaml"]
    page = made(tmp_path, f"{HOSTILE}={written}".replace("src=x onerror=", "src onerror "), *more)
    assert not {"script", "img", "b"} & {name for name, _ in page.elements}
    assert not [key for _, attributes in page.elements for key in attributes if key.startswith("on")]
    assert page.text.count(HOSTILE) >= 10 and str(written) in page.text


def test_a_hostile_language_is_refused(scores, tmp_path):
    languages = scores["tasks"]["NER"]["languages"]
    languages[HOSTILE] = languages["de"]
    with pytest.raises(UserError, match="tasks.NER.languages: .*script.* is not one of the task's languages"):
        made(tmp_path, saved(tmp_path / "scores.json", scores))


def test_settings_and_versions(files, scores, tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("lr: 0.001\ntask:\n  langs: [en, de]\n  name: null\n", encoding="utf-8")
    step = saved(tmp_path / "step.json", {"commands": [["fairseq-xl", "a b"], ["c"]], "files": {"x": "0"}})
    page = made(tmp_path, files / "xglue.json", "--settings", tmp_path / "a.yaml", "--settings", step)
    assert ["lr", "0.001"] in page.tables[-1] and ["task.langs", '["en", "de"]'] in page.tables[-1]
    assert ["task.name", "null"] in page.tables[-1]
    assert page.text.rstrip().endswith("fairseq-xl 'a b'\nc")
    (versions,) = [rows for rows in page.tables if rows[0][:2] == ["system", "benchmark"]]
    monkeypatch.chdir(files)
    assert f"{files / 'xglue.json'}" in page.text and versions[1][5] != "xglue.json"
    assert made(tmp_path, files / "xglue.json").text.count(str(files)) == 0
    found = scores["versions"]
    assert found["fairseq_xl"] and versions[0] == ["system", "benchmark", "split", "fairseq_xl", "sacrebleu", "file"]
    assert versions[1][:5] == ["ours", "XGLUE", "test", found["fairseq_xl"], found["sacrebleu"]]
    (signatures,) = [rows for rows in page.tables if rows[0] == ["task", "signature"]]
    assert [row[0] for row in signatures[1:]] == list(xglue.LANGUAGES) and "case:lc" in signatures[-1][1]


def test_small_scores_have_a_short_axis(scores, tmp_path):
    for language in scores["tasks"]["NTG"]["languages"].values():
        language |= {"bleu": 5.0, "bleu_interval": [-1.0, 11.0]}
    made(tmp_path, saved(tmp_path / "scores.json", scores))
    section = (tmp_path / "page.html").read_text(encoding="utf-8").partition('<h3 id="xglue-NTG">')[2]
    assert 'aria-label="chart from 0 to 25"' in section and "5.0 " in section and "−1.0–11.0" in section
    row = re.search(r'<tr><th scope="row">de</th>.*?</tr>', section)[0]
    assert 'width="20.00%"' in row and '<line class="whisker" x1="0.00%" x2="44.00%"' in row


def without(*keys):
    """Removes the value at a path of keys."""

    def change(content):
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


def replaced(value, *keys):
    """Sets the value at a path of keys."""

    def change(content):
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


GERMAN = ("tasks", "NER", "languages", "de")


@pytest.mark.parametrize(
    "change, message",
    [
        (without("benchmark"), "is not a score file of `fairseq-xl score xglue` or .*: its benchmark is None"),
        (replaced(["xglue"], "benchmark"), r"its benchmark is \['xglue'\]"),
        (without("versions"), "versions: expected an object, found None"),
        (replaced({}, "tasks"), "tasks is empty"),
        (replaced({}, "tasks", "NERD"), "'NERD' is not one of xglue's tasks NER, POS"),
        (without("tasks", "NER", "average"), "tasks.NER.average: expected a number, found None"),
        (without("tasks", "NER", "missing"), r"tasks.NER.missing: expected \[\], found None"),
        (without(*GERMAN), r"tasks.NER.missing: expected \['de'\], found \[\]"),
        (
            replaced("80", "tasks", "NER", "paper", "Unicoder", "average"),
            "tasks.NER.paper.Unicoder.average: expected a number, found '80'",
        ),
        (without("paper", "generation", "xDAE", "average"), "paper.generation.xDAE.average: expected a number"),
        (replaced("recall", "tasks", "POS", "variant"), "POS.variant: 'recall' is not one of precision, accuracy, f1"),
        (
            replaced("exponential", "tasks", "WPR", "variant"),
            "it has understanding, an average over tasks, but WPR has the variant exponential",
        ),
        (replaced(float("nan"), *GERMAN, "f1"), "scores.json: NaN is not a finite number"),
        (replaced(10**400, *GERMAN, "n"), "tasks.NER.languages.de.n: expected a number"),
        (replaced(True, *GERMAN, "n"), "tasks.NER.languages.de.n: expected a number, found True"),
        (replaced([1], *GERMAN, "f1_interval"), r"f1_interval: expected two numbers, found \[1\]"),
        (without("tasks", "NC"), "it has understanding, an average over tasks, but no average of NC"),
        (
            lambda scores: (without(*GERMAN)(scores), replaced(["de"], "tasks", "NER", "missing")(scores)),
            "tasks.NER: an average without de",
        ),
    ],
)
def test_files_without_what_is_expected(scores, tmp_path, change, message):
    change(scores)
    with pytest.raises(UserError, match=message):
        made(tmp_path, saved(tmp_path / "scores.json", scores))
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "content, message",
    [
        (b"| task | metric |\n", "line 1: not JSON: Expecting value"),
        (b"[1]", r"expected one JSON object, found \[1\]"),
        (b"[" * 100_000, "not JSON that can be read"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not JSON that can be read"),
    ],
)
def test_files_that_are_no_json_objects(tmp_path, content, message):
    (tmp_path / "scores.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        made(tmp_path, tmp_path / "scores.json")


def test_files_that_do_not_go_together(files, scores, tmp_path):
    first = files / "xglue.json"
    with pytest.raises(UserError, match="are both scores of 'ours' on xglue: give one of them another name, NAME=FILE"):
        made(tmp_path, first, first)
    other = saved(tmp_path / "other.json", scores | {"split": "dev"})
    with pytest.raises(UserError, match="has scores of the split 'test', .*other.json of 'dev'"):
        made(tmp_path, first, f"b={other}")
    scores["tasks"]["XNLI"]["languages"]["sw"]["n"] = 3
    saved(other, scores)
    with pytest.raises(UserError, match="scores of different references: n of XNLI in sw is 2 and 3"):
        made(tmp_path, first, f"b={other}")


def test_arguments_that_are_wrong(files, tmp_path):
    scores = files / "xglue.json"
    for argument in ("=scores.json", "name="):
        with pytest.raises(UserError, match=f"{argument}: expected NAME=FILE or FILE"):
            made(tmp_path, argument)
    with pytest.raises(UserError, match=r"absent/page\.html was not written: No such file or directory"):
        made(tmp_path / "absent", scores)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.yaml", "- a", r"a.yaml: expected a mapping of settings, found \['a'\]"),
        ("a.json", "[]", r"a.json: expected one JSON object, found \[\]"),
        ("a", None, "--settings a --settings a: a file is named twice"),
    ],
)
def test_settings_that_cannot_be_read(files, tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        made(tmp_path, files / "xglue.json", *["--settings", name] * (1 if content else 2))
