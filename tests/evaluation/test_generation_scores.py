"""Scores of generated text: against sacreBLEU and rouge-score, by hand; files that are refused."""

import json

import numpy as np
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize

from fairseq_xl.commands.score_generation import main
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bootstrap
from fairseq_xl.evaluation.generation_scores import WordTokenizer, rouge_l, wrong_language
from fairseq_xl.evaluation.prediction_folders import Origin, write_origin

TITLES = {
    "en": ["Working with the styles of a document", "Saving a file in another format", "How to print the whole page"],
    "de": [
        "Mit den Vorlagen eines Dokuments arbeiten",
        "Eine Datei in einem anderen Format speichern",
        "Wie man die ganze Seite druckt",
    ],
    "fr": [
        "Utiliser les styles dans un document",
        "Enregistrer un fichier dans un autre format",
        "Imprimer toute la page avec une imprimante",
    ],
}
OUTPUTS = {
    "en": ["Working with styles of a Document", "Saving a file", "How to print a page"],
    "de": ["Mit Vorlagen eines Dokuments arbeiten", "Saving a file in another format", ""],
}


def generated(hypotheses):
    """The output of fairseq-generate for hypotheses, the longest first."""
    order = sorted(range(len(hypotheses)), key=lambda number: -len(hypotheses[number]))
    return "".join(f"S-{number}\tx\nD-{number}\t-0.5\t{hypotheses[number]}\n" for number in order)


@pytest.fixture
def folders(tmp_path):
    """FOLDER/XX/generate-test.txt and TASK_FILES/test.XX.{src,tgt}; the sources are the titles in capital letters."""
    for code, titles in TITLES.items():
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / f"files/test.{code}.tgt").write_text("".join(f"{title}\n" for title in titles), encoding="utf-8")
        (tmp_path / f"files/test.{code}.src").write_text("".join(f"{title.upper()}\n" for title in titles))
    for code, outputs in OUTPUTS.items():
        (tmp_path / "out" / code).mkdir(parents=True)
        (tmp_path / "out" / code / "generate-test.txt").write_text(generated(outputs), encoding="utf-8")
    return tmp_path


def scored(folders, capsys, *more, langs="en,de"):
    main([str(folders / "out"), "--references", str(folders / "files"), "--langs", langs, *more])
    return json.loads(capsys.readouterr().out)


def test_bleu_is_sacrebleus(folders, capsys):
    result = scored(folders, capsys)
    for code, entry in result["languages"].items():
        cased = sacrebleu.corpus_bleu(OUTPUTS[code], [TITLES[code]])
        lower = sacrebleu.corpus_bleu(OUTPUTS[code], [TITLES[code]], lowercase=True)
        assert entry["bleu"]["score"] == round(cased.score, 2)
        assert entry["bleu_lower"]["score"] == round(lower.score, 2)
        assert "case:mixed" in entry["bleu"]["signature"] and "case:lc" in entry["bleu_lower"]["signature"]
        assert entry["bleu"]["interval"] > 0
    assert result["languages"]["en"]["bleu_lower"]["score"] > result["languages"]["en"]["bleu"]["score"]


def test_rouge_is_rouge_scores_where_text_is_ascii(folders, capsys):
    entry = scored(folders, capsys)["languages"]["en"]["rouge_l"]
    scorer = RougeScorer(["rougeL"])
    values = [
        100 * scorer.score(title, output)["rougeL"].fmeasure for title, output in zip(TITLES["en"], OUTPUTS["en"])
    ]
    assert entry["score"] == round(float(np.mean(values)), 2)
    assert entry["interval"][0] <= entry["score"] <= entry["interval"][1]
    assert entry["interval"] == [round(min(values), 2), round(max(values), 2)]  # 3 of 3 the same: 1 in 27, twice
    for text in (*TITLES["en"], "it's A_b, 3.5% (x-y)"):
        assert WordTokenizer("en").tokenize(text) == tokenize(text, None)


def test_rouge_by_hand():
    """Words in common, in order: 2 of 3 and 4, so F1 = 2·2/7; all of 1; none."""
    hypotheses, references = ["Grüße aus Köln", "Да", "x"], ["Viele Grüße aus Bonn", "да!", "y"]
    assert rouge_l(hypotheses, references, "de")["score"] == pytest.approx(100 * (4 / 7 + 1 + 0) / 3, abs=0.01)


@pytest.mark.parametrize(
    "language, text, words",
    [
        ("zh", "打印整页 PDF,2页。", ["打", "印", "整", "页", "pdf", "2", "页"]),
        ("zh_CN", "打印", ["打", "印"]),
        ("th", "ไทย a", ["ไ", "ท", "ย", "a"]),
        ("hi", "हिन्दी में लिखें।", ["हिन्दी", "में", "लिखें"]),
        ("de", "Ärger-Fälle: 3", ["ärger", "fälle", "3"]),
    ],
)
def test_words_of_scripts(language, text, words):
    assert WordTokenizer(language).tokenize(text) == words


def test_rouge_of_a_language_without_blanks():
    """3 of 4 characters are common, in order; as undivided text nothing would be."""
    assert rouge_l(["打印全页"], ["打印整页"], "zh")["score"] == 75
    assert rouge_l(["打印全页"], ["打印整页"], "en")["score"] == 0


def test_outputs_in_a_wrong_language(folders, capsys):
    """One of the two German outputs with letters is English; only the third output is empty."""
    entries = scored(folders, capsys, "--among", "en,de,fr")["languages"]
    german = entries["de"]
    assert (german["n"], german["empty"]) == (3, 1)
    assert (german["wrong_language"]["score"], german["wrong_language"]["n"]) == (50, 2)
    assert (german["references_wrong_language"]["score"], german["references_wrong_language"]["n"]) == (0, 3)
    assert entries["en"]["wrong_language"]["score"] == 0 and entries["en"]["empty"] == 0
    assert german["wrong_language"]["signature"].endswith(" de,en,fr")


def test_a_language_is_found_among_the_candidates_only():
    assert wrong_language(TITLES["fr"], "fr", ["de"])["score"] == 0
    assert wrong_language(TITLES["de"], "fr", ["de"])["score"] == 100
    assert wrong_language(TITLES["en"], "fr", ["de", "en"], 10) == wrong_language(TITLES["en"], "fr", ["en", "de"], 10)
    assert wrong_language(["1 2", ""], "fr", ["de"]) | {"signature": ""} == {"score": None, "n": 0, "signature": ""}
    with pytest.raises(UserError, match="py3langid does not know qqq"):
        wrong_language(TITLES["en"], "fr", ["qqq"])


def test_there_is_no_wrong_language_where_there_is_one(folders, capsys):
    result = scored(folders, capsys, langs="en")
    entry = result["languages"]["en"]
    for name in ("wrong_language", "references_wrong_language"):
        assert (entry[name]["score"], entry[name]["n"]) == (None, 3)
    assert set(result["average"]) == {"bleu", "bleu_lower", "rouge_l"} and entry["bleu"]["score"] > 0
    with pytest.raises(UserError, match="--among en: expected two languages or more"):
        scored(folders, capsys, "--among", "en", langs="en")


def test_the_average_is_that_of_all_languages_or_none(folders, capsys):
    result = scored(folders, capsys)
    assert result["missing"] == []
    for name, value in result["average"].items():
        assert value == pytest.approx(
            np.mean([entry[name]["score"] for entry in result["languages"].values()]), abs=0.01
        )
    assert set(result["average"]) == {"bleu", "bleu_lower", "rouge_l", "wrong_language"}
    result = scored(folders, capsys, langs="en,de,fr")
    assert result["missing"] == ["fr"] and "average" not in result and set(result["languages"]) == {"en", "de"}


def test_copying_is_scored_beside(folders, capsys):
    result = scored(folders, capsys, "--copy", "--bootstrap", "0")
    for code, entry in result["copy"]["languages"].items():
        upper = [title.upper() for title in TITLES[code]]
        assert entry["bleu"]["score"] == round(sacrebleu.corpus_bleu(upper, [TITLES[code]]).score, 2)
        assert entry["bleu_lower"]["score"] == entry["rouge_l"]["score"] == 100 and "interval" not in entry["bleu"]
    assert result["copy"]["average"]["bleu_lower"] == 100
    assert "average" not in scored(folders, capsys, "--copy", langs="en,de,fr")["copy"]


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (lambda root: (root / "files/test.de.tgt").unlink(), "files/test.de.tgt: no such file"),
        (lambda root: (root / "files/test.de.tgt").write_text("x\n"), "3 hypotheses but 1 references in"),
        (lambda root: (root / "files/test.de.tgt").write_bytes(b"x\n\xff\n\n"), "line 2: not UTF-8"),
        (lambda root: (root / "out/de/generate-test.txt").write_text("D-1\t-1\tx\n"), "found 1 of 2"),
        (
            lambda root: (root / "out/de/generate-test.txt").write_text("D-0 x\n"),
            "expected D-NUMBER TAB score TAB text",
        ),
        (
            lambda root: (root / "out/de/generate-test.txt").write_text(
                "".join(f"T-{(n + 1) % 3}\t{title}\nD-{n}\t-1\tx\n" for n, title in enumerate(TITLES["de"]))
            ),
            "files/test.de.tgt: only 0 of 3 lines equal the target text",
        ),
    ],
)
def test_files_that_are_wrong(folders, capsys, spoil, sentence):
    spoil(folders)
    with pytest.raises(UserError) as error:
        scored(folders, capsys)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_outputs_of_several_models_are_refused(folders, capsys):
    """A note beside the output of fairseq-generate names the checkpoint."""
    for number, code in enumerate(OUTPUTS):
        write_origin(folders / f"out/{code}/generate-test.txt", Origin(f"{number}.pt", str(number), "xl_generation"))
    with pytest.raises(UserError, match=r"de/generate-test.txt is of 1.pt .* but .*en/generate-test.txt of 0.pt"):
        scored(folders, capsys)
    scored(folders, capsys, langs="en")


def test_no_output_at_all(folders, capsys):
    with pytest.raises(UserError, match="no output XX/generate-test.txt of fr"):
        scored(folders, capsys, langs="fr")
    with pytest.raises(UserError, match="--langs en,en: en is named twice"):
        scored(folders, capsys, langs="en,en")


def test_an_interval_is_that_of_means_of_resamples():
    values = np.arange(100.0)
    result = bootstrap.mean(values)
    error = values.std() / 10  # of a mean of 100
    assert result["score"] == 49.5
    assert result["interval"] == pytest.approx([49.5 - 1.96 * error, 49.5 + 1.96 * error], abs=0.3 * error)
    assert bootstrap.mean([3.0, 3.0]) == {"score": 3.0, "interval": [3.0, 3.0]}
