"""VECO's corpus: its languages and pairs, and the description of the text that a folder has."""

import itertools

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.paper_figures import tables
from preprocess.config import read_config
from recipes.veco.corpus import corpus_of, describe


def test_languages_and_pairs():
    languages, pairs = corpus_of()
    figures = {code: next(iter(tables()[code][0].rows.values())) for code in ("V-T5", "V-T6")}
    assert (len(set(languages)),) == figures["V-T5"]["languages"]
    assert len(set(map(frozenset, (pair.split("-") for pair in pairs)))) == len(pairs) == 899
    assert abs(len(pairs) / figures["V-T6"]["language-pairs"][0] - 1) < 0.03  # the paper does not list its 879
    assert set(pairs) <= {"-".join(pair) for pair in itertools.combinations(sorted(languages), 2)}
    small, small_pairs = corpus_of("small")
    assert len(small) == 33 and {*small} <= {*languages} and {*small_pairs} < {*pairs}
    assert {*tables()["V-T2"][0].columns} - {"average"} <= {*small}


def test_the_text_of_a_folder_is_described(tmp_path, capsys):
    bitext = "de-en/bitext/train.de-en.de fr-zu/bitext/train.fr-zu.fr"
    for name in f"mono/train.de.gz mono/train.en mono/train.zu {bitext}".split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "pieces.model").touch()
    describe(str(tmp_path), str(tmp_path / "pieces.model"), str(tmp_path / "veco.yaml"), "small")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("languages: 2 of 33, missing: af, ar") and printed[1] == "pairs: 1 of 456"
    config, problems = read_config(tmp_path / "veco.yaml")
    assert config.languages == ("de", "en") and [folder.name for folder in config.folders] == ["de", "en", "de-en"]
    assert config.shards == 4 and not problems
    with pytest.raises(UserError, match="none has no training text of these languages, such as mono/train.af"):
        describe(str(tmp_path / "none"), "", "", "")
