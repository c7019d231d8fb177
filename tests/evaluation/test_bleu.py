"""BLEU from files: against sacrebleu's own command and Moses, by hand; files that are refused."""

import gzip
import json
import subprocess
import sys
from urllib.error import URLError

import pytest
import sacrebleu

from fairseq_xl.commands.score_bleu import main
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import bleu as evaluation_bleu
from fairseq_xl.evaluation.bleu import (
    LANGUAGES,
    TOKENIZERS,
    bleu,
    chrf,
    paired,
    read_generated,
    tokenized_bleu,
    tokenizer_name,
)
from fairseq_xl.io.files import write_lines
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.result_tables import table

REFERENCES = ["The cat sat on the mat.", "There's a dog, isn't there?", "It is raining today in the old town."]
HYPOTHESES = ["The cat sat on a mat.", "There is a dog, isn't there?", "It is raining today in town."]

GENERATED = """S-2\tx
T-2\tIt is raining today in the old town .
H-2\t-0.1\t▁It
D-2\t-0.1\tIt is raining today in town.
P-2\t-0.1 -0.2
H-0\t-0.3\t▁The
D-0\t-0.3\tThe cat sat on a mat.
D-0\t-0.5\tThe second best.
D-1\t-0.2\tThere is a dog, isn't there?
"""


@pytest.fixture
def files(tmp_path):
    generated, reference = tmp_path / "generate-test.txt", tmp_path / "test.de"
    generated.write_text(GENERATED, encoding="utf-8")
    reference.write_text("".join(f"{line}\n" for line in REFERENCES), encoding="utf-8")
    return generated, reference


def test_the_best_hypotheses_in_the_order_of_the_test_lines(files):
    assert read_generated(files[0])[0] == HYPOTHESES


def test_ten_comes_after_nine_and_an_empty_hypothesis_is_one(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("".join(f"D-{number}\t-1\t{number if number != 3 else ''}\n" for number in reversed(range(12))))
    assert read_generated(path)[0] == ["0", "1", "2", "", "4", "5", "6", "7", "8", "9", "10", "11"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("D-0\t-1\ta\nD-2\t-1\tc\n", "expected one D- line for each test line, found 2 of 3"),
        ("D-1\t-1\ta\n", "found 1 of 2"),
        ("H-0\t-1\ta\n", "has no D- lines of fairseq-generate; --plain reads"),
        ("", "has no D- lines of fairseq-generate"),
        ("S-0\ta\nD-0\t-1\ta\nS-1\tb\n", "found 1 of 2"),
        (GENERATED + GENERATED, "line 10: S-2 occurs twice"),
        ("D-0\t-1\ta\nD-1\t-1\tb\n" * 2, "line 3: D-0 occurs twice"),
    ],
)
def test_outputs_that_are_not_of_one_whole_run_are_refused(tmp_path, text, message):
    path = tmp_path / "out.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_generated(path)[0]


def test_the_score_is_sacrebleus(files, tmp_path):
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    result = bleu(HYPOTHESES, REFERENCES)
    assert result["score"] == round(expected.score, 2) > 0
    assert set(result) == {"score", "signature"}
    plain = tmp_path / "hypotheses"
    plain.write_text("\n".join(HYPOTHESES) + "\n")
    command = [sys.executable, "-m", "sacrebleu", str(files[1]), "-i", str(plain), "-w", "2", "-m", "bleu", "chrf"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    expected = [{key: entry[key] for key in ("score", "signature")} for entry in json.loads(done.stdout)]
    assert [result, chrf(HYPOTHESES, REFERENCES)] == expected


def test_a_reference_of_other_lines_is_refused(tmp_path, capsys):
    """Shifted by a line, or of another language; accents, case, punctuation and spaces may differ."""
    lines = ["an ▁unknown ▁<unk>", *(line.replace(" ", " ▁") for line in REFERENCES)]
    generated = tmp_path / "generate-test.txt"
    generated.write_text("".join(f"T-{n}\t▁{line}\nD-{n}\t-1\t{line}\n" for n, line in enumerate(lines)))
    reference = tmp_path / "reference"
    arguments = [str(generated), str(reference), "--tokenize", "13a", "--bootstrap", "0"]
    reference.write_text("\n".join(["an unknown word", *REFERENCES]) + "\n")
    main(arguments)
    reference.write_text("an unknown word\nThe cát sat on the mat!\nthere 's a dog, isn&apos;t there?\nOther\n")
    main(arguments)
    for wrong in ([*REFERENCES, "an unknown word"], ["ein", "Die Katze", "Ein Hund", "Es regnet"]):
        reference.write_text("\n".join(wrong) + "\n")
        with pytest.raises(UserError, match=f"{reference}: only 0 of 3 lines equal the target text"):
            main(arguments)
    main([str(reference), *arguments[1:], "--plain"])


def test_tokenized_bleu_is_case_insensitive_on_moses_tokens():
    """Moses splits isn't there? into isn 't there ? in English."""
    tokens = [
        ["The cat sat on a mat .", "There is a dog , isn 't there ?", "It is raining today in town ."],
        ["The cat sat on the mat .", "There 's a dog , isn 't there ?", "It is raining today in the old town ."],
    ]
    expected = sacrebleu.corpus_bleu(tokens[0], [tokens[1]], tokenize="none", lowercase=True, force=True)
    result = tokenized_bleu(HYPOTHESES, REFERENCES, "en")["tokenized"]
    assert result["score"] == round(expected.score, 2)
    assert "case:lc" in result["signature"] and "tok:none" in result["signature"]
    upper = [line.upper() for line in REFERENCES]
    assert tokenized_bleu(upper, REFERENCES, "en")["tokenized"]["score"] == 100


def test_tokenized_bleu_with_case():
    result = tokenized_bleu(REFERENCES, REFERENCES, "en")["tokenized_cased"]
    assert result["score"] == 100 and "case:mixed" in result["signature"]
    upper = [line.upper() for line in REFERENCES]
    assert tokenized_bleu(upper, REFERENCES, "en")["tokenized_cased"]["score"] == 0


def test_tokenized_bleu_is_not_smoothed():
    """No three words in order are right: multi-bleu.perl gives 0."""
    result = tokenized_bleu(["a b x d e"], ["a b c d e"], "en")["tokenized"]
    assert result["score"] == 0 and "smooth:none" in result["signature"]
    assert bleu(["a b x d e"], ["a b c d e"])["score"] > 20


def test_the_command(files, tmp_path, capsys):
    options = ["--bootstrap", "0", "--lang", "en"]
    main([str(files[0]), str(files[1]), *options, "--save-hypotheses", str(tmp_path / "saved")])
    result = json.loads(capsys.readouterr().out)
    assert result["sacrebleu"] == bleu(HYPOTHESES, REFERENCES)
    assert result["chrf"] == chrf(HYPOTHESES, REFERENCES)
    tokenized = tokenized_bleu(HYPOTHESES, REFERENCES, "en")
    assert len(tokenized) == 2 and result.items() >= tokenized.items()
    assert result["lines"] == 3
    assert read_lines(tmp_path / "saved") == HYPOTHESES
    main([str(tmp_path / "saved"), str(files[1]), "--plain", *options])
    assert json.loads(capsys.readouterr().out) == result


def test_several_references_are_sacrebleus(files, tmp_path, capsys):
    second, plain = tmp_path / "second.de", tmp_path / "hypotheses"
    second.write_text("The cat sat on a mat.\nThere is a hound.\nToday it rains in town.\n")
    plain.write_text("\n".join(HYPOTHESES) + "\n")
    command = [sys.executable, "-m", "sacrebleu", str(files[1]), str(second), "-i", str(plain), "-w", "2", "-m"]
    done = subprocess.run([*command, "bleu", "chrf"], check=True, capture_output=True, text=True)
    expected = [(entry["score"], entry["signature"]) for entry in json.loads(done.stdout)]
    scores, against = tmp_path / "scores.json", ["--against", str(plain)]
    main([str(plain), str(files[1]), str(second), "--plain", *against, "--lang", "en", "--output", str(scores)])
    result = json.loads(scores.read_text(encoding="utf-8"))
    for metric, (score, signature) in zip(("sacrebleu", "chrf"), expected):
        assert result[metric]["score"] == score and "nrefs:2|bs:1000" in result[metric]["signature"]
        assert result[metric]["interval"] > 0
        assert signature.replace("nrefs:2|", "") in result[metric]["signature"].replace(
            "nrefs:2|bs:1000|seed:12345|", ""
        )
    assert result["paired"]["against"] == result["sacrebleu"]["score"] > bleu(HYPOTHESES, REFERENCES)["score"]
    assert result["tokenized"]["score"] > tokenized_bleu(HYPOTHESES, REFERENCES, "en")["tokenized"]["score"]
    shown = capsys.readouterr().out.splitlines()  # a table
    assert shown[0].split()[:2] == ["score", "interval"] and shown[1].split()[:2] == ["sacrebleu", str(expected[0][0])]


def test_the_systems_of_a_folder(tmp_path, capsys, caplog):
    outputs, references = tmp_path / "outputs", tmp_path / "references"
    write_lines(outputs / "news.en-de.hyp.Our-1.5.de", HYPOTHESES)
    write_lines(outputs / "news.de-en.hyp.Our-1.5.en", REFERENCES)
    sides = {"A": REFERENCES, "B": [line.lower() for line in REFERENCES]}
    for name, lines in sides.items():
        write_lines(references / f"news.en-de.ref.{name}.de", lines)
        write_lines(references / f"news.de-en.ref.{name}.en", lines)
    write_lines(outputs / "my-system.de", HYPOTHESES)
    main(["--plain", str(outputs), str(references)])
    result = json.loads(capsys.readouterr().out)
    assert "outputs/my-system.de is left out: its name is none of a system's output or a reference" in caplog.text
    assert [line.split()[0] for line in table(result).splitlines() if line] == [
        "de-en",
        "bleu-A",
        *["Our-1.5", "en-de", "bleu-A", "Our-1.5"],
    ]
    for name, lines in [*((name, [lines]) for name, lines in sides.items()), ("all", [*sides.values()])]:
        scores = result["en-de"]["Our-1.5"]
        assert scores[f"bleu-{name}"] == sacrebleu.corpus_bleu(HYPOTHESES, lines, force=True).score
        assert scores[f"chrf-{name}"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, lines).score)
    assert result["de-en"]["Our-1.5"]["bleu-all"] == pytest.approx(100)
    for more in (["--lang", "de"], [str(references)]):
        with pytest.raises(UserError, match="is a folder: expected --plain, one folder of references, and none of"):
            main(["--plain", str(outputs), str(references), *more])
    with pytest.raises(UserError, match="outputs is a folder: expected --plain"):
        main([str(outputs), str(references)])
    (references / "news.en-de.ref.B.de").write_text("x\n")
    with pytest.raises(UserError, match="hyp.Our-1.5.de: 3 lines but 1 of reference B"):
        main(["--plain", str(outputs), str(references)])
    write_lines(outputs / "flores.en-de.hyp.Our.de", HYPOTHESES)
    with pytest.raises(UserError, match="has two test sets of a pair"):
        main(["--plain", str(outputs), str(references)])
    (outputs / "news.en-de.hyp.Our-1.5.de").unlink()
    with pytest.raises(UserError, match="no reference flores.en-de.ref.NAME.de of flores.en-de.hyp.Our.de"):
        main(["--plain", str(outputs), str(references)])
    with pytest.raises(UserError, match="no file SET.XX-YY.hyp.SYSTEM.YY"):
        main(["--plain", str(references), str(references)])


def test_a_score_needs_the_language_or_a_tokenizer(files, capsys):
    line = [str(files[0]), str(files[1]), "--bootstrap", "0"]
    with pytest.raises(UserError, match="--lang or --tokenize is needed: name the target language"):
        main(line)
    main([*line, "--tokenize", "char"])
    result = json.loads(capsys.readouterr().out)
    char = bleu(HYPOTHESES, REFERENCES, tokenize="char")
    assert result == {"sacrebleu": char, "chrf": chrf(HYPOTHESES, REFERENCES), "lines": 3}


def test_two_systems_are_compared_by_sacrebleus_paired_bootstrap(tmp_path, capsys):
    """The numbers are those of sacreBLEU's own command with the other system as baseline."""
    lines = {"own": HYPOTHESES * 4, "other": [*REFERENCES, *HYPOTHESES, "It rains.", *HYPOTHESES[1:], *HYPOTHESES]}
    lines["references"] = REFERENCES * 4
    paths = {name: str(tmp_path / name) for name in lines}
    for name in paths:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines[name]))
    main([paths["own"], paths["references"], "--plain", "--against", paths["other"], "--lang", "en"])
    found = json.loads(capsys.readouterr().out)["paired"]
    command = [sys.executable, "-m", "sacrebleu", paths["references"], "-i", paths["other"], paths["own"], "-f", "json"]
    command += ["-w", "2", "--paired-bs"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    other, own = (system["BLEU"] for system in json.loads(output))
    assert found["against"] == round(other["score"], 2) > own["score"]
    assert found["difference"] == round(own["score"] - other["score"], 2)
    assert 0.01 < found["p"] < 0.99 and found["p"] == round(own["p_value"], 4)
    assert found["signature"].startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_a_system_does_not_differ_from_itself():
    found = paired(HYPOTHESES, HYPOTHESES, REFERENCES, resamples=10)
    assert (found["difference"], found["p"]) == (0, 1)


@pytest.mark.parametrize(
    "lines, more, sentence",
    [
        (2, [], "other: 2 hypotheses but 3 references in"),
        (3, ["--bootstrap", "0"], "--against needs resamples: --bootstrap 0 must be 1 or more"),
        (3, ["--bootstrap", "-1"], "--bootstrap -1: 0 or more is needed"),
    ],
)
def test_systems_that_cannot_be_compared(files, tmp_path, lines, more, sentence):
    (tmp_path / "other").write_text("".join(f"D-{number}\t-1\ta\n" for number in range(lines)))
    with pytest.raises(UserError, match=sentence):
        main([*map(str, files), "--lang", "en", "--against", str(tmp_path / "other"), *more])


def test_a_tokenizer_whose_model_cannot_be_downloaded(files, monkeypatch):
    def download(**options):
        raise URLError("no network")

    monkeypatch.setattr(evaluation_bleu, "BLEU", download)
    with pytest.raises(UserError, match="tokenizer flores200 needs a file that cannot be downloaded: .*no network"):
        main([*map(str, files), "--lang", "en", "--tokenize", "flores200", "--bootstrap", "0"])


def test_the_language_chooses_sacrebleus_tokenizer():
    expected = {"de": "13a", "xx": "13a", "zh": "zh", "zh_CN": "zh", "zh-TW": "zh", "th": "char", "km": "char"}
    assert {language: tokenizer_name(language) for language in expected} == expected


@pytest.mark.parametrize(
    "given, warned",
    [
        (["--lang", "xx"], True),
        (["--lang", "hsb"], True),
        (["--lang", "zh_CN"], False),
        (["--lang", "th"], False),
        (["--lang", "xx", "--tokenize", "13a"], False),
    ],
)
def test_the_tokenizer_of_an_unknown_language_is_reported(files, caplog, given, warned):
    main([*map(str, files), "--bootstrap", "0", *given])
    assert len(caplog.messages) == warned
    for message in caplog.messages:
        assert all(word in message for word in (f"--lang {given[1]} ", "ISO 639-1", "13a", "--tokenize"))


def test_languages_with_a_tokenizer_are_known():
    assert TOKENIZERS.keys() <= LANGUAGES and len(LANGUAGES) == 184 and {len(code) for code in LANGUAGES} == {2}


@pytest.mark.parametrize("language, name", [("ja", "ja-mecab"), ("ko", "ko-mecab")])
@pytest.mark.parametrize("there", [True, False])
def test_a_tokenizer_without_its_package_gives_way_to_characters(language, name, there, monkeypatch):
    def made(tokenize):
        assert tokenize == name
        if not there:
            raise RuntimeError("pip install")

    monkeypatch.setattr("fairseq_xl.evaluation.bleu.BLEU", made)
    assert tokenizer_name(language) == (name if there else "char")


CHINESE = [["我来到北京清华大学。", "他喜欢看书和写字。"], ["我来到了北京清华大学。", "他很喜欢看书。"]]


@pytest.mark.parametrize("language, tokenizer", [("zh", "zh"), ("th", "char"), ("en", "13a")])
def test_text_without_blanks_is_scored_by_sacrebleus_tokenizer(tmp_path, capsys, language, tokenizer):
    for name, lines in zip(("hypotheses", "references"), CHINESE):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    line = [str(tmp_path / "hypotheses"), str(tmp_path / "references"), "--plain", "--bootstrap", "0"]
    expected = sacrebleu.corpus_bleu(CHINESE[0], [CHINESE[1]], tokenize=tokenizer, force=True).score
    assert expected > 20 or tokenizer == "13a"
    for more in (["--lang", language], ["--lang", "en", "--tokenize", tokenizer]):
        main([*line, *more])
        found = json.loads(capsys.readouterr().out)["sacrebleu"]
        assert found["score"] == round(expected, 2) and f"tok:{tokenizer}|" in found["signature"]


def test_a_tokenizer_that_is_not_installed_is_reported(monkeypatch):
    def missing(**options):
        raise RuntimeError("Please install\nthem")

    monkeypatch.setattr("fairseq_xl.evaluation.bleu.BLEU", missing)
    with pytest.raises(UserError, match="tokenizer ko-mecab needs a package that is not installed$"):
        bleu(HYPOTHESES, REFERENCES, tokenize="ko-mecab")


def test_references_may_be_compressed(files, capsys):
    files[1].with_name(f"{files[1].name}.gz").write_bytes(gzip.compress(files[1].read_bytes()))
    files[1].unlink()
    main([str(files[0]), str(files[1]), "--bootstrap", "0", "--lang", "en"])
    assert json.loads(capsys.readouterr().out)["sacrebleu"] == bleu(HYPOTHESES, REFERENCES)


def test_output_with_hardly_a_right_character_has_scores():
    """Most lines are empty, so that some resamples have a chrF of 0."""
    references = ["Das ist ein Haus .", *["Hund und Katze"] * 49]
    hypotheses = [references[0], *[""] * 49]
    found = chrf(hypotheses, references, bootstrap=1000)
    assert found["score"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score, abs=0.005)
    assert found["interval"] > 0
