"""Claims of a report: tests over seeds and examples, and what is wrong with their scores."""

import json
import math
import re

import pytest

from fairseq_xl.errors import UserError
from recipes import report
from tests.recipes.report_builders import folder, nc, printed, write  # noqa: F401

CLAIMS = """
values: {seeds: [1, 2, 3], languages: [en, de], models: {xlm: {name: XLM}, unicoder: {name: Unicoder}}}
include: {mono: {file: experiment.yaml, for: {seed: seeds}, values: {models: xlm, seeds: 1}}}
steps: {}
claims: {1: {says: Unicoder > XLM, steps: []}, 2: {says: XLM > random, steps: []}}
report:
  - table: accuracy
    claim: 1
    columns: languages
    average: languages
    rows:
      - for: {model: models}
        name: "{model.name}"
        scores: "{model}-{seed}/scores.json"
        key: languages.{column}.accuracy
        examples: {classification: "{model}-{seed}/test.{column}.tsv"}
      - {name: tf-idf, scores: baseline/scores.json, key: "languages.{column}.accuracy"}
  - tests: claim 1
    claim: 1
    columns: [accuracy, another table]
    greater: [[Unicoder, XLM], [XLM, nothing]]
    controls: [[XLM, tf-idf], [tf-idf, Unicoder]]
    caption: Tests over seeds {seeds}.
  - included: mono
    claim: 2
    tables: ["{task}: accuracy"]
  - tests: claim 2
    claim: 2
    columns: ["nc: accuracy"]
    greater: [[XLM, majority]]
last line: "claims=[claims.json claims] run=[claims.json run]"
"""


@pytest.fixture
def claims(folder):
    """Three seeds of two systems, each with three test examples in each of two languages, and three pre-trainings."""
    (folder.parent / "claims.yaml").write_text(CLAIMS)
    write(folder / "baseline/scores.json", nc(en=50.0, de=50.0))
    for seed, (xlm, unicoder) in enumerate([(50.0, 60.0), (52.0, 66.0), (54.0, 66.0)], start=1):
        for model, accuracy in (("xlm", xlm), ("unicoder", unicoder)):
            write(folder / f"{model}-{seed}/scores.json", nc(en=accuracy, de=accuracy))
            for language in ("en", "de"):
                right = "a" if model == "unicoder" else "b"
                write(
                    folder / f"{model}-{seed}/test.{language}.tsv", f"1\ta\t{right}\t1\n2\tb\tb\t1\n3\ta\t{right}\t1\n"
                )
        write(folder / f"mono/{seed}/xlm/nc-1/scores.json", nc(en=70.0 + seed, de=70.0 + seed))
        write(folder / f"mono/{seed}/xlm/qam-1/scores.json", nc(en=50.0, de=50.0))
        write(folder / f"mono/{seed}/random/nc-1/scores.json", nc(en=40.0, de=40.0))
    return folder


def of_claims(folder, capsys, *words):
    report.main([str(folder.parent / "claims.yaml"), str(folder), *words])
    return capsys.readouterr().out


def test_claims_are_tested_over_seeds_and_examples(claims, capsys):
    """Unicoder - XLM: 10, 14, 12, mean 12, error 2 / sqrt(3), t 4.303. XLM - tf-idf: 0, 2, 4."""
    text = of_claims(claims, capsys)
    width = 4.30265 * 2 / math.sqrt(3)
    # in each language two examples differ, by 100 each: p = 2 / 2^2
    assert f"| Unicoder > XLM | accuracy | +12.0 (+{12 - width:.1f} to +{12 + width:.1f}) | 0.5000 | shown |" in text
    assert (
        f"| XLM − tf-idf | accuracy | +2.0 ({2 - width:.1f} to +{2 + width:.1f}) |  | no difference shown (detectable: "
        in text
    )
    assert re.search(r"\| tf-idf − Unicoder \| accuracy \| -14\.0 \(.*\) \|  \| worse \|", text)
    assert "| 1 | Unicoder > XLM | 1 | 0 | 0 |\n| 2 | XLM > random | 1 | 0 | 0 |\n" in text
    assert "XLM > nothing" not in text and "another table" not in text
    assert "Tests over seeds 1,2,3.\n" in text
    assert text.index("## Claim 1: Unicoder > XLM\n") < text.index("| accuracy |") < text.index("## Claim 2:")
    assert text.endswith("claims=2 run=2\n")
    state = json.loads((claims / "claims.json").read_text())
    assert state["1"]["tests"] == {"Unicoder > XLM | accuracy": "shown"} and state["1"]["missing"] == []
    controls = {"XLM − tf-idf | accuracy": "no difference shown", "tf-idf − Unicoder | accuracy": "worse"}
    assert state["1"]["controls"] == controls


def test_tables_of_an_included_experiment_are_over_its_pretrainings(claims, capsys):
    text = of_claims(claims, capsys)
    assert "mean over 3 pre-trainings with a fine-tuning each" in text and "| qam: accuracy |" in text
    assert "| XLM | 72.0 (" in text and "| XLM > majority | nc: accuracy | +32.0 (" in text
    assert (claims / "mono/nc.png").exists()


def test_saved_scores_make_the_same_tests(claims, capsys, tmp_path):
    """Files of predictions are not needed then."""
    text, kept = of_claims(claims, capsys, "--save", str(tmp_path / "kept.json")), tmp_path / "kept.json"
    saved = json.loads(kept.read_text())
    assert saved["mono/2/xlm/nc-1"] == nc(en=72.0, de=72.0)
    entry = saved["claim 1 | Unicoder > XLM | accuracy"]
    assert entry["differences"] == [10, 14, 12]
    assert entry["over_examples"] == {language: [pytest.approx(200 / 3), 0.5] for language in ("en", "de")}
    report.main([str(claims.parent / "claims.yaml"), str(kept), "--output", str(tmp_path / "page")])
    assert capsys.readouterr().out == text
    assert (tmp_path / "page/report.md").read_text() + "claims=2 run=2\n" == text
    assert (tmp_path / "page/mono/nc.png").exists()
    # p is of the three seeds: not of two of them
    report.main([str(claims.parent / "claims.yaml"), str(kept), "seeds=1,2"])
    assert "| Unicoder > XLM | accuracy | +12.0 (-13.4 to +37.4) |  | not shown" in capsys.readouterr().out


def test_a_test_without_scores_is_missing(claims, capsys):
    (claims / "xlm-3/scores.json").unlink()
    text = of_claims(claims, capsys)
    assert "| 2 | XLM > random | 1 | 0 | 0 |\n" in text and text.endswith("claims=2 run=1\n")
    state = json.loads((claims / "claims.json").read_text())
    assert state["1"]["missing"] == ["Unicoder > XLM | accuracy", "XLM − tf-idf | accuracy"]


def test_bleu_is_tested_with_each_seed_and_the_largest_p_is_shown(folder, capsys):
    """The second seed's systems are equal: p = 1. If the third one's order is the opposite, no p is of all seeds."""
    part = {"table": "BLEU", "columns": ["de"]}
    row = {"for": {"model": "models"}, "name": "{model.name}", "scores": "{model}-{seed}/bleu.json", "key": "score"}
    row["examples"] = {"bleu": "{model}-{seed}/hypotheses.{column} " + f"{folder}/reference.{{column}}"}
    tested = {"tests": "claim", "columns": ["BLEU"], "greater": [["XLM", "random"]]}
    models = {"random": {"name": "random"}, "xlm": {"name": "XLM"}}
    content = {
        "values": {"seeds": [1, 2, 3], "models": models},
        "steps": {},
        "report": [part | {"rows": [row]}, tested],
    }
    (folder.parent / "experiment.yaml").write_text(json.dumps(content))
    lines = [f"das ist der Satz {number} von allen\n" for number in range(40)]
    write(folder / "reference.de", "".join(lines))
    bad = "".join(line.replace("das ist der", "was war kein") for line in lines)
    good = "".join(lines)
    texts = [(bad, good), (bad, bad), (good, bad)]
    for seed, model, text in ((n, *one) for n, pair in enumerate(texts, 1) for one in zip(("random", "xlm"), pair)):
        write(folder / f"{model}-{seed}/hypotheses.de", text)
        write(folder / f"{model}-{seed}/bleu.json", {"score": 10.0 * seed + (model == "xlm")})
    start = "| XLM > random | BLEU | +1.0 |"  # equal differences: no interval
    assert f"{start} 1.0000 | not shown |" in printed(capsys, folder, values=["seeds=1,2"])
    for seeds, above, below in (("1,2,3", 1, 3), ("3,1", 1, 3)):
        mixed = f"mixed: above in de seed {above}; below in de seed {below}"
        assert f"{start} {mixed} | not shown |" in printed(capsys, folder, values=[f"seeds={seeds}"])
    assert "| 0.00" in printed(capsys, folder, values=["seeds=1"])


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("included: mono", "included: multi", "no included experiment is called 'multi'"),
        ('"{task}: accuracy"]', "accuracies]", "mono has no part with the title 'accuracies'"),
        ("greater: [[XLM, majority]]", "lesser: [[XLM, majority]]", "tests claim 2: missing a required argument"),
        ("columns: languages", "columns: languages\n    row: 1", "table accuracy: got an unexpected keyword argument"),
    ],
)
def test_a_wrong_part_of_a_report_is_one_sentence(claims, old, new, words):
    file = claims.parent / "claims.yaml"
    file.write_text(CLAIMS.replace(old, new, 1))
    with pytest.raises(UserError, match=f"claims.yaml: report: {words}"):
        report.main([str(file), str(claims)])


def test_scores_that_are_no_numbers_are_one_sentence(claims, capsys):
    for value in ("12", [12], True):
        write(claims / "xlm-2/scores.json", nc(en=value, de=1.0))
        with pytest.raises(
            UserError, match=r"languages.\{column\}.accuracy of xlm-\*/scores.json: .* is not a number$"
        ):
            of_claims(claims, capsys)
    write(claims.parent / "empty.json", {})
    with pytest.raises(UserError, match="empty.json: this file has no scores$"):
        report.main([str(claims.parent / "claims.yaml"), str(claims.parent / "empty.json")])


def test_scores_that_are_no_json_are_one_sentence(claims, tmp_path):
    for content, words in (("{", "kept.json is not JSON: "), ("[]", "kept.json: this file is not a JSON object")):
        write(tmp_path / "kept.json", content)
        with pytest.raises(UserError, match=words):
            report.main([str(claims.parent / "claims.yaml"), str(tmp_path / "kept.json")])


def test_scores_of_other_numbers_of_seeds_are_no_pairs(claims):
    file = claims.parent / "claims.yaml"
    other = '{name: tf-idf, seeds: others, scores: "xlm-{seed}/scores.json"'
    content = CLAIMS.replace("{name: tf-idf, scores: baseline/scores.json", other).replace(
        "{seeds:", "{others: [1, 2], seeds:"
    )
    file.write_text(content)
    with pytest.raises(UserError, match="accuracy: XLM has 3 scores and tf-idf 2: no pairs"):
        report.main([str(file), str(claims)])
