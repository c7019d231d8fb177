"""Unpaired halves of parallel text; smoke tests of unsupervised translation and back-translation at nano size."""

import json
import re
from pathlib import Path

import pytest
import yaml

from fairseq_xl.errors import UserError
from preprocess.commands.sample import main as write_sample
from recipes import corpus, experiment, experiment_file, unpaired

pytestmark = pytest.mark.usefixtures("warm")
ROOT = Path(__file__).resolve().parents[2]


def write_pages(folder, pages):
    """Parallel pages, lists of words, as en-de; German words are the English ones in capitals."""
    (folder / "bitext").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        for code in ("en", "de"):
            lines = ["\n".join(word.upper() if code == "de" else word for word in page) for page in pages]
            (folder / f"bitext/{split}.en-de.{code}").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def read(path):
    return path.read_text(encoding="utf-8")


def divided(folder, pages, *arguments, mono=None):
    """The folder of the unpaired halves of pages, and the sides of its training text: name -> content."""
    write_pages(folder / "text", pages)
    if mono:
        (folder / "text/mono").mkdir()
        (folder / "text/mono/train.en").write_text(mono, encoding="utf-8")
    unpaired.main([str(folder / "text"), str(folder / "out"), *arguments])
    return folder / "out", {path.name: read(path) for path in (folder / "out").glob("*/train.*")}


FIVE = [["a", "b"], ["c"], ["d"], ["e", "f"], ["g"]]


def test_pages_are_of_one_language_each(tmp_path):
    out, texts = divided(tmp_path, FIVE, "--langs", "en,de", "--vocabulary", "300")
    assert texts == {"train.en": "a\nb\n\nd\n\ng\n", "train.de": "C\n\nE\nF\n"}
    described = yaml.safe_load(read(out / "corpus.yaml"))
    assert described["languages"] == ["en", "de"] and described["vocabulary"]["size"] == 300
    assert set(described["bitext"]["en-de"]) == {"valid", "test"}
    assert described["monolingual"]["de"]["valid"] == f"{tmp_path}/text/bitext/valid.en-de.de"


def test_a_share_of_the_pages_stays_parallel(tmp_path):
    """Two of five pages, at equal distances: the third and the fifth."""
    out, texts = divided(tmp_path / "five", FIVE, "--parallel", "0.4")
    pairs = {"train.en-de.en": "d\n\ng\n", "train.en-de.de": "D\n\nG\n"}
    assert texts == pairs | {"train.en": "a\nb\n\ne\nf\n", "train.de": "C\n"}
    assert yaml.safe_load(read(out / "corpus.yaml"))["bitext"]["en-de"]["train"].endswith("train.en-de")
    # of all parts of the text: a corpus is sorted by application, ten pages of one, then thirty of another
    _, texts = divided(tmp_path / "sorted", [["a"]] * 10 + [["b"]] * 30, "--parallel", "0.1")
    assert texts["train.en-de.en"].split() == ["a", "b", "b", "b"]


def test_pages_that_only_one_language_has_follow(tmp_path):
    """Those with a line of the parallel text, of either half, are left out."""
    _, texts = divided(tmp_path, [["a"], ["b"]], mono="a\nx\n\nb\n\ny\nz\n")
    assert texts == {"train.en": "a\n\ny\nz\n", "train.de": "B\n"}


def test_translations_that_both_halves_have_are_counted(tmp_path, capsys):
    """English has pages 1, 3 and one of its own, German has page 2. "b" and "c" are in page 2, too; "d" is not."""
    out, _ = divided(tmp_path, [["a", "b", "b"], ["b", "c"], ["d", "c"]], mono="x\n")
    counts = json.loads(read(out / "manifest.json"))
    assert counts == {"en": {"lines": 6, "translated": 3}, "de": {"lines": 2, "translated": 2}}
    assert capsys.readouterr().err.splitlines() == [
        "en: 3 of 6 lines have a translation in the text of de",
        "de: 2 of 2 lines have a translation in the text of en",
    ]


def test_text_that_cannot_be_divided(tmp_path):
    one = "train.en-de has one page: empty lines separate pages"
    for number, (pages, arguments, message) in enumerate(
        (
            ([["a", "b", "c"]], ["--parallel", "0"], one),
            ([["a", "b", "c"]], ["--parallel", "1"], one),
            (
                [["a"]] * 3,
                ["--parallel", "1"],
                "--parallel 1.0: none of the 3 pages of .*train.en-de is left as text of en",
            ),
            ([["a"], ["b"]], ["--langs", "en"], "--langs en: name two languages"),
            ([["a"], ["b"]], ["--langs", "en,fr"], "has no parallel text of en and fr"),
            ([["a"], ["b"]], ["--parallel", "1.5"], "--parallel 1.5: expected a share from 0 to 1"),
        )
    ):
        with pytest.raises(UserError, match=message):
            divided(tmp_path / str(number), pages, *arguments)
        assert not (tmp_path / str(number) / "out").exists()
    (tmp_path / "5/text/bitext/train.en-de.de").write_text("A\nB\n", encoding="utf-8")
    with pytest.raises(UserError, match="the pages of en and de differ in their numbers of lines"):
        unpaired.main([str(tmp_path / "5/text"), str(tmp_path / "out")])


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    write_sample([str(folder), "--documents", "60"])
    for path in (*folder.glob("bitext/test.*"), *folder.glob("*/valid.*")):
        path.write_text("".join(f"{line}\n" for line in read(path).splitlines()[:20]), encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, values, line",
    [
        (
            "smoke-unmt",
            ["skipgram=--dim 128 --epochs 2 --buckets 400 --min-count 1", "mapping=--ignore-case --min-length 2"],
            r"unmt en-de=[\d.]+ de-en=[\d.]+ random=[\d.]+ copy=[\d.]+",
        ),
        ("smoke-backtranslation", [], r"bt online=[\d.]+ with=[\d.]+ without=[\d.]+"),
    ],
    ids=["unmt", "backtranslation"],
)
def test_the_smoke_tests_run(sample, tmp_path, capsys, name, values, line):
    nano = ["--output", str(tmp_path), f"sample={sample}", "vocabulary=400", *values, "--updates", "2"]
    experiment.main([str(ROOT / f"recipes/xlm/{name}.yaml"), *nano])
    assert re.fullmatch(line, capsys.readouterr().out.splitlines()[-1])
    if name == "smoke-backtranslation":
        statistics = json.loads(read(tmp_path / "data-bin/en-de/back-de.en-de.json"))
        assert statistics["pairs"] > 100
    else:
        assert '"valid_round_trip_bleu": ' in read(tmp_path / "random/train.log")


@pytest.mark.slow  # the whole smoke test, minutes
def test_translation_is_learned_without_parallel_text(tmp_path, capsys):
    experiment.main([str(ROOT / "recipes/xlm/smoke-unmt.yaml"), "--output", str(tmp_path), "--jobs", "2"])
    scores = re.findall(r"=([\d.]+)", capsys.readouterr().out.splitlines()[-1])
    forward, backward, random, copied = map(float, scores)
    assert min(forward, backward) > max(random, copied)


@pytest.mark.slow
def test_translation_with_little_parallel_text_is_compared(sample, tmp_path, capsys):
    arguments = [
        str(ROOT / "recipes/xlm/experiment.yaml"),
        *("--output", str(tmp_path), f"corpus={sample}", "vocabulary=400", "pairs=en-de", "--updates", "2"),
        *("models=random", "supervised-models=mlm", "objectives=mlm", "seeds=2", "first=2", "checkpoints=2"),
        *("--jobs", "2"),
    ]
    experiment.main(arguments)
    shown = capsys.readouterr().out
    for name in (
        "unsupervised, from random weights",
        "supervised, half of the pages, from MLM",
        "supervised, a tenth of the pages, from MLM",
        "supervised, a tenth of the pages, from MLM, with back-translation",
        "source copied",
    ):
        assert re.search(rf"^\| {name} \| [\d.]+ \| [\d.]+ \|$", shown, re.MULTILINE), name
    assert re.search(r"^\| BLEU of round trips, from random weights \| [\d.]+ \|$", shown, re.MULTILINE)
    for target, code in (("en→de", "de"), ("de→en", "en")):
        _, _, table = shown.partition(f"| {target}: BLEU, difference | {code} |")
        table = table.partition("\n\n")[0]
        for difference in (
            "half of the pages, from MLM − unsupervised, from random weights",
            "a tenth of the pages, from MLM, with back-translation − a tenth of the pages, from MLM",
            "source copied − a tenth of the pages, from MLM, with back-translation",
        ):
            assert re.search(rf"^\| {difference} \| [+-][\d.]+ \(p = [\d.]+\) \|$", table, re.MULTILINE), shown
        copied = read(tmp_path / f"en-de/copy/{target.replace('→', '-')}/hypotheses.{code}")
        assert copied.split() == read(sample / f"bitext/test.en-de.{target[:2]}").split()
    for name in ("bleu", "round-trip"):
        assert (tmp_path / f"en-de/pictures-2/{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "   - unsupervised, from random weights: " in shown
    lines = [len(read(tmp_path / f"en-de/{share}/text/bitext/train.en-de.en").split()) for share in ("half", "tenth")]
    assert lines[0] > 4 * lines[1]
    for pair in ("en-de", "de-en"):
        statistics = json.loads(read(tmp_path / f"en-de/back-2/data-bin/{pair}/back-{pair[3:]}.{pair}.json"))
        assert statistics["pairs"] > 20
    experiment.main(arguments)  # nothing is refused or trained again
    captured = capsys.readouterr()
    assert captured.out == shown and captured.err.count("--- ") == 1


@pytest.mark.parametrize("name", ["experiment", "many-to-many"])
def test_steps_wait_for_the_corpus(name, tmp_path):
    """The step of the same pair that makes corpora/lohelp, if it is missing, runs before those that read it."""
    steps = experiment_file.Experiment(ROOT / f"recipes/xlm/{name}.yaml", output=tmp_path).select([])
    readers = [step for step in steps if any("corpora/lohelp/" in path for path in step.paths)]
    assert any(step.name.startswith("copy") for step in readers)
    for step in readers:
        text = "/".join(["text", *step.name.split("/")[1:2]]) if name == "experiment" else "text"
        done, todo = set(), [step]
        while todo:
            done |= {one.name for one in todo}
            todo = [need for one in todo for need in one.required_steps]
        assert text in done, step.name


def test_a_test_set_of_two_languages_is_joined_by_ids(tmp_path):
    """Lines 1 and 3 of German have the ids of lines 2 and 1 of French."""
    folder = tmp_path / "text/bitext"
    folder.mkdir(parents=True)
    for code, ids, lines in (("de", "a\nb\nc\n", "A\nB\nC\n"), ("fr", "c\na\nx\n", "c1\na1\nx1\n")):
        (folder / f"test.en-{code}.ids").write_text(ids)
        (folder / f"test.en-{code}.{code}").write_text(lines)
    assert corpus.zero_shot_test(tmp_path / "text", "en", "de-fr") == {"de": ["A", "C"], "fr": ["a1", "c1"]}
    (folder / "test.en-fr.ids").write_text("a\n")
    with pytest.raises(UserError, match="test.en-fr.ids has 1 lines, .*test.en-fr.fr has 3"):
        corpus.zero_shot_test(tmp_path / "text", "en", "de-fr")
    (folder / "test.en-fr.ids").write_text("x\ny\nz\n")
    with pytest.raises(UserError, match="--zero-shot de-fr: no line of these test sets in .* has the same id"):
        corpus.zero_shot_test(tmp_path / "text", "en", "de-fr")
    with pytest.raises(UserError, match=r"--zero-shot: there is no .*test.en-it.ids"):
        corpus.zero_shot_test(tmp_path / "text", "en", "de-it")
    for code in ("de", "fr"):
        (folder / f"test.de-fr.{code}").write_text("X\n")
    assert corpus.zero_shot_test(tmp_path / "text", "en", "de-fr") == {"de": ["X"], "fr": ["X"]}


@pytest.mark.slow
def test_many_directions_in_one_model_are_scored(sample, tmp_path, capsys):
    """Spanish stands for Hindi, and ids are the numbers of the lines."""
    for code in ("de", "fr"):
        lines = read(sample / f"bitext/test.en-{code}.{code}").splitlines()
        text = "".join(f"{number if line else ''}\n" for number, line in enumerate(lines))
        (sample / f"bitext/test.en-{code}.ids").write_text(text)
    experiment.main(
        [
            str(ROOT / "recipes/xlm/many-to-many.yaml"),
            *(
                "--output",
                str(tmp_path),
                f"corpus={sample}",
                "vocabulary=500",
                "languages=en,de,fr,es",
                "--updates",
                "2",
            ),
            *("languages=en,de,fr,es", "directions=en-de,de-en,en-fr,fr-en,es-en"),
            *("tests=en-de,fr-en,de-fr", "seeds=1"),
        ]
    )
    shown = capsys.readouterr().out
    for name in ("temperature 1", "temperature 5", "source copied"):
        assert re.search(rf"^\| {name} \|( [\d.]+ \|){{3}}$", shown, re.MULTILINE), shown
    for test, code in (("en→de", "de"), ("fr→en", "en"), ("de→fr", "fr")):
        _, _, table = shown.partition(f"| {test}: BLEU, difference | {code} |")
        rows = re.findall(r"^\| (.*?) \| [+-][\d.]+ \(p = [\d.]+\) \|$", table.partition("\n\n")[0], re.MULTILINE)
        assert rows == [
            *("temperature 5 − temperature 1", "source copied − temperature 1", "source copied − temperature 5")
        ], shown
