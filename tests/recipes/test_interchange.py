"""The chain of `recipes/interchange.sh` at nano size, and the figures on the page of results."""

import json
import re

import pytest

from preprocess.commands.sample import main as write_sample
from tests.recipes.configurations import RECIPES
from tests.recipes.scripts import run, succeeded

pytestmark = pytest.mark.usefixtures("warm")
RESULTS = RECIPES / "interchange/results"
CORPUS = """
languages: [en, de, fr]
vocabulary: {{model: unigram, size: 300}}
monolingual:
  en: {{train: {0}/mono/train.en, valid: {0}/mono/valid.en}}
  de: {{train: {0}/mono/train.de, valid: {0}/mono/valid.de}}
  fr: {{train: {0}/mono/train.fr, valid: {0}/mono/valid.fr}}
"""


@pytest.mark.slow
def test_weights_from_transformers_and_back(tmp_path):
    sample, output = tmp_path / "sample", tmp_path / "out"
    write_sample([str(sample), "--documents", "30"])
    (tmp_path / "corpus.yaml").write_text(CORPUS.format(sample))
    values = [f"sample={sample}", f"corpus={tmp_path / 'corpus.yaml'}"]
    done = run("bash", "recipes/interchange.sh", *values, "--output", output, "--updates", "2")
    succeeded(done)
    found = re.fullmatch(r"interchange logits=(\S+) ids=equal", done.stdout.splitlines()[-1])
    assert found and float(found[1]) < 1e-5
    compared = json.loads((output / "compared/compared.json").read_text())
    assert compared["sentences"] > 20
    whole, cut = (
        len((output / name / "dict.txt").read_text("utf-8").splitlines()) for name in ("data-bin", "cut/model")
    )
    assert cut < whole  # the pieces of French only are gone


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table_row(page, name):
    """Cells of the row that begins with `name`."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("| ").split(" | ")][1:]


def test_figures_are_those_of_the_kept_files():
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    classes = read("classes")
    assert list(classes) == ["en", "de", "es", "fr", "ru", "zh"]
    for name, key in (
        ("texts", "texts"),
        ("equal predictions", "equal"),
        ("here", "accuracy here"),
        ("in transformers", "accuracy there"),
        ("largest difference of a probability", "probability"),
    ):
        cells = page.partition("| translation en-de")[0]
        assert table_row(cells, name) == [str(each[key]) for each in classes.values()], name
    translations = read("translations")
    assert table_row(page, "BLEU") == [str(translations[f"bleu {side}"]) for side in ("here", "there")]
    assert translations["equal"] == translations["sentences"] == 300
    embeddings = [each["difference"] for each in read("embeddings").values()]
    assert table_row(page, "largest difference from sentence-transformers") == embeddings
    graph = read("onnx")["graphs"]["model"]
    sizes = [f"{graph['bytes'][name] / 1e6:.2f}" for name in ("model.onnx", "model.int8.onnx")]
    assert table_row(page, "size of the file, MB") == sizes
    equal = [f"{graph['text'][kind]['equal_predictions_percent']:.1f}" for kind in ("onnx", "int8")]
    assert table_row(page, "equal predictions, percent") == equal
    scores = [
        ", ".join(str(read(f"retrieval-{kind}")["test"]["en-de"]["margin"][side]["accuracy"]) for side in SIDES)
        for kind in ("whole", "cut")
    ]
    assert table_row(page, "retrieval en-de, 2,089 pairs: accuracy by margin, percent, forward and backward") == scores
    for name, kind in (("unigram, rounded scores", "unigram"), ("BPE", "bpe")):
        lines = read(f"ids-{kind}").values()
        assert len(lines) == 16 and sum(each["lines"] for each in lines) == 464_150
        sums = [sum(each[key] for each in lines) for key in ("different", "tokens")]
        assert table_row(page, name) == [f"{each:,}" for each in sums]
    gpu = read("gpu")
    assert table_row(page, "equal predictions, 350 texts") == [
        str(gpu["predict"][key]) for key in ("equal", "equal fp16")
    ]
    equal = [str(gpu["translate"][key]) for key in ("equal", "equal fp16")]
    assert table_row(page, "equal translations, 100 sentences") == equal
    differences = [f"difference at most {gpu[name]['difference']:.1e}" for name in ("embeddings", "score")]
    assert differences[0] in page and differences[1] in page
    chain = gpu["models of the chain"]
    sentences = " ".join(page.split())
    assert (
        f"{chain['equal']} of {chain['translations']} translations are equal (fp16: {chain['equal fp16']})" in sentences
    )
    assert "{} of {} sentences".format(*chain["fill_mask equal"]) in sentences
    largest = max(chain["score of translations"], chain["score of sentences"])
    assert f"scores differ by at most {largest:.1e}, embeddings by {chain['embeddings']:.1e}" in sentences
    for name, losses in gpu["loss of update 200"].items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert [cell.strip() for cell in row.split("|")[2:-1]] == [f"{loss:.3f}" for loss in losses.values()]


SIDES = ("forward", "backward")
