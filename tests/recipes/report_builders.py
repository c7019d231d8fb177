"""An experiment with a report, and its scores."""

import json

import pytest

from recipes import report

EXPERIMENT = """
values:
  languages: [en, de]
  targets: [de]
  seeds: [1, 2, 3]
  tasks: [nc, qam]
  models:
    random: {name: random}
    xlm: {name: XLM}
    unicoder: {name: Unicoder}
steps: {}
report:
  - table: BLEU
    header: en→{column}
    columns: targets
    rows:
      - {for: {model: models}, name: "{model.name}", scores: "{model}/en-{column}/bleu.json", key: sacrebleu.score,
         interval: sacrebleu.interval, decimals: 2}
      - {name: source copied, scores: "copy.en-{column}/bleu.json", key: sacrebleu.score,
         interval: sacrebleu.interval, decimals: 2, optional: true}
    caption: One seed.
  - paired: BLEU, difference
    columns: targets
    rows: [{for: {model: models}, name: "{model.name}", file: "{model}/en-{column}/hypotheses.{column}"}]
    references: "{output}/reference.{column}"
  - table: "{task}: accuracy"
    for: {task: tasks}
    columns: languages
    average: languages
    rows:
      - {for: {model: models}, name: "{model.name}", scores: "{model}/{task}-{seed}/scores.json",
         key: "languages.{column}.accuracy"}
      - {name: majority, scores: "random/{task}-{seed}/scores.json", key: "languages.{column}.majority"}
      - {name: baseline, scores: "baseline/{task}/scores.json", key: "languages.{column}.accuracy", optional: true}
    picture: {file: "{task}.png", title: "{task} from {languages}", axis: accuracy}
    caption: "{task}, {over}."
  - minus: Unicoder
    columns: ["nc: accuracy", "qam: accuracy"]
    caption: "Differences, {over}."
  - table: retrieval
    header: en-{column}
    columns: targets
    average: targets
    notes: {"layer, pooling": layer pooling}
    rows:
      - {for: {model: models}, name: "{model.name}", scores: "{model}/retrieval/scores.json",
         key: "test.en-{column}.margin.*.accuracy", interval: "test.en-{column}.margin.*.interval"}
  - table: joint
    columns: languages
    rows:
      - {name: pairs, scores: "joint/{column}/nc-{seed}/scores.json", key: "languages.{column}.accuracy",
         in: {en: "joint/{targets:each}/nc-{seed}/scores.json joint/fr/nc-{seed}/scores.json"}}
  - tokens: pre-training
    rows: [{for: {model: models}, name: "{model.name}", file: "{model}/train.log"}]
  - outputs: "Titles in {column}, seed {seed}."
    columns: languages
    rows: [{for: {model: models}, name: "{model.name}", file: "{model}/{column}-{seed}/generate-test.txt"}]
    source: "{output}/test.{column}.src"
    reference: "{output}/test.{column}.tgt"
last line: "nc=[random/nc-1/scores.json languages.en.accuracy] de=[random/nc-1/scores.json languages.de.accuracy .2f]"
"""


DRAW = report.draw


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a run; pictures are empty files."""
    monkeypatch.setattr(report, "draw", lambda outcomes, path, *_: path.touch())
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    write(tmp_path / "run/random/nc-1/scores.json", nc(en=1.0, de=10.0))
    return tmp_path / "run"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def nc(**accuracies):
    languages = {language: {"accuracy": value, "majority": 40.0} for language, value in accuracies.items()}
    return {"languages": languages, "missing": []}


def printed(capsys, *runs, values=()):
    report.main([str(runs[0].parent / "experiment.yaml"), *map(str, runs), *values])
    return capsys.readouterr().out
