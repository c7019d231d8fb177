"""XTREME's retrieval tasks: the submission has the files of `search bitext`; the layer is chosen on BUCC's dev."""

import json
from pathlib import Path

import pytest

from fairseq_xl.commands import search_bitext, search_xtreme
from fairseq_xl.errors import UserError
from fairseq_xl.mining.bitext_mining import distinct
from tests.commands import pretraining, trained
from tests.tasks.conversion_builders import original, run  # noqa: F401
from tests.tasks.sentence_encoders import sentences  # noqa: F401
from tests.tasks.tiny_text import WORDS, sentences as written


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    return trained(pretraining(data_bin, folder, "--arch", "xl_xlmr_tiny", "--max-update", 1, "--disable-validation"))


@pytest.fixture
def download(tmp_path):
    """German and English files; the sentences are the same on both sides, some of them without translation."""
    lines = list(dict.fromkeys(written(WORDS, 60, "retrieval")["en"]))
    for split, kept in (("dev", lines[:14]), ("test", lines[14:28])):
        rows = {"de": kept[:10], "en": kept[4:]}
        for code, texts in rows.items():
            text = "".join(f"{code}-{kept.index(line)}\t{line}\n" for line in texts)
            write(tmp_path / f"bucc2018/de-en.{split}.{code}", text)
        write(tmp_path / f"bucc2018/de-en.{split}.gold", "".join(f"de-{n}\ten-{n}\n" for n in range(4, 10)))
    write(tmp_path / "tatoeba/de-en.de", "".join(f"{line}\n" for line in lines[:9]))
    write(tmp_path / "tatoeba/de-en.en", "".join(f"{line}\n" for line in sorted(lines[:9])))
    labels = [lines.index(line) for line in sorted(lines[:9])]  # XTREME's: the line of each English sentence
    assert labels != [sorted(lines[:9]).index(line) for line in lines[:9]]
    write(tmp_path / "tatoeba-labels.tsv", "".join(f"{label}\n" for label in labels))
    return tmp_path


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def printed(capsys, command, *words):
    capsys.readouterr()
    command.main([str(word) for word in words])
    return json.loads(capsys.readouterr().out)


def test_files_are_those_of_mine_bitext(data_bin, checkpoint, download, capsys):
    chosen = ["--layer", 1, "--pooling", "mean"]
    out = download / "out"
    result = printed(capsys, search_xtreme, checkpoint, data_bin, download, out, "--langs", "de", *chosen)
    assert (result["layer"], result["pooling"]) == (1, "mean")
    found = {}
    for name, more in (("dev", ["--gold", download / "bucc2018/de-en.dev.gold"]), ("test", [])):
        sides = [f"{code}={download}/bucc2018/de-en.{name}.{code}" for code in ("de", "en")]
        threshold = ["--threshold", found["dev"]["threshold"]] if found else []
        saved = ["--layer", 1, "--output", download / "mined"]
        found[name] = printed(capsys, search_bitext, checkpoint, data_bin, *sides, *more, *threshold, *saved)
    scores = result["choices"][0]["dev"]["de"]
    assert scores == {name: found["dev"][name] for name in scores} and scores["f1"] > 0
    assert (out / "bucc2018/test-de.tsv").read_text() == (download / "mined").read_text() != ""
    sides = [f"{code}={download}/tatoeba/de-en.{code}" for code in ("en", "de")]
    printed(
        capsys, search_bitext, checkpoint, data_bin, *sides, "--nearest", "--layer", 1, "--output", download / "mined"
    )
    assert (out / "tatoeba/test-de.tsv").read_text() == (download / "mined").read_text()
    assert (out / "tatoeba/test-de.tsv").read_text() == (download / "tatoeba-labels.tsv").read_text()


def test_the_files_that_are_stored_with_the_tests(data_bin, checkpoint, tmp_path, capsys):
    stored = Path(__file__).parents[1] / "preprocess/files/xtreme/download"
    chosen = ["--langs", "de", "--layer", 1, "--pooling", "mean"]
    result = printed(capsys, search_xtreme, checkpoint, data_bin, stored, tmp_path, *chosen)
    assert set(result["choices"][0]["dev"]["de"]) == {"threshold", "f1", "precision", "recall"}
    nearest = (tmp_path / "tatoeba/test-de.tsv").read_text().splitlines()
    assert len(nearest) == 3 and set(nearest) <= {"0", "1", "2"}
    assert (tmp_path / "bucc2018/test-de.tsv").is_file()


def test_16_bits(data_bin, checkpoint, download, capsys):
    chosen = ["--langs", "de", "--layer", 1, "--pooling", "mean", "--fp16"]
    printed(capsys, search_xtreme, checkpoint, data_bin, download, download / "out", *chosen)
    assert (download / "out/tatoeba/test-de.tsv").read_text() == (download / "tatoeba-labels.tsv").read_text()


def test_the_best_layer_of_bucc_is_used(data_bin, checkpoint, download, capsys, monkeypatch):
    """Repeated sentences are searched for once in each of BUCC's four files, not for each choice."""
    searched = []
    monkeypatch.setattr(search_xtreme, "distinct", lambda texts: searched.append(texts) or distinct(texts))
    result = printed(capsys, search_xtreme, checkpoint, data_bin, download, download / "out", "--langs", "de")
    scores = {(entry["layer"], entry["pooling"]): entry["dev"]["de"]["f1"] for entry in result["choices"]}
    assert len(searched) == 4
    assert len(scores) > 2 and scores[result["layer"], result["pooling"]] == max(scores.values())
    chosen = ["--layer", result["layer"], "--pooling", result["pooling"], "--langs", "de"]
    printed(capsys, search_xtreme, checkpoint, data_bin, download, download / "again", *chosen)
    for name in ("bucc2018/test-de.tsv", "tatoeba/test-de.tsv"):
        assert (download / "out" / name).read_text() == (download / "again" / name).read_text()


@pytest.mark.parametrize(
    "change, more, message",
    [
        (None, ["--langs", "de,xx"], "--langs de,xx: neither BUCC nor Tatoeba of XTREME has xx"),
        (None, ["--langs", "de", "--layer", "9"], "--layer 9: the model has the layers 0 to"),
        (None, ["--langs", "fr"], r"fr-en.dev.fr: [Nn]o such file"),
        (("tatoeba/de-en.en", "a\n\nb\n"), ["--langs", "de"], "de-en.en: expected a sentence on each line"),
        (("bucc2018/de-en.test.en", ""), ["--langs", "de"], "de-en.test.en holds no sentences"),
    ],
)
def test_what_is_refused(data_bin, checkpoint, download, capsys, change, more, message):
    if change:
        write(download / change[0], change[1])
    with pytest.raises(UserError, match=message):
        printed(capsys, search_xtreme, checkpoint, data_bin, download, download / "out", *more)
    assert not (download / "out").exists()


@pytest.mark.parametrize("sentences", ["mean"], indirect=True)
def test_a_sentence_encoder_embeds_as_sentence_transformers(sentences, download, capsys):
    """With pooling, length and default prompt of its folder."""
    run(download / "theirs", download / "ours")
    english, german = ((download / f"tatoeba/de-en.{code}").read_text("utf-8").splitlines() for code in ("en", "de"))
    german = [line[::-1] for line in german]  # other texts than in English
    write(download / "tatoeba/de-en.de", "".join(f"{line}\n" for line in german))
    result = printed(capsys, search_xtreme, *[download / "ours"] * 2, download, download / "out", "--langs", "de")
    assert (result["layer"], result["pooling"]) == (2, "mean")
    similarities = sentences.encode(english) @ sentences.encode(german).T
    rows = (download / "out/tatoeba/test-de.tsv").read_text().split()
    assert [*map(int, rows)] == similarities.argmax(1).tolist() and len({*rows}) > 1


def test_without_bucc_a_layer_is_needed(data_bin, checkpoint, download, capsys):
    """Afrikaans is in Tatoeba only."""
    for code in ("af", "en"):
        write(download / f"tatoeba/af-en.{code}", "a\n")
    with pytest.raises(UserError, match="give --layer and --pooling: without BUCC's dev files they cannot be selected"):
        printed(capsys, search_xtreme, checkpoint, data_bin, download, download / "out", "--langs", "af")
