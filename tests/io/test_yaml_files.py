"""The one loader of YAML: languages are text, and hostile files are refused in a sentence."""

import os

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.flags import flags, overridden
from fairseq_xl.io.yaml_files import load, parse
from fairseq_xl.planning.setting import read_list
from recipes.experiment_file import Experiment

CODES = ["no", "on", "off", "y", "n", "yes", "No", "1e3", "10", "007", "1_0", "0x1", "1:30", "2024-01-01"]


def test_values_are_what_the_file_says():
    text = "{a: true, b: False, c: null, d: ~, e: , f: 10, g: 0.5, h: 1e-05, i: .5, j: 'true', k: !!str 10, l: +1}"
    assert parse(text, "x") == {
        **{"a": True, "b": False, "c": None, "d": None, "e": None, "f": 10, "g": 0.5, "h": 1e-05},
        **{"i": ".5", "j": "true", "k": "10", "l": "+1"},
    }
    assert list(map(str, parse(f"[{', '.join(CODES)}]", "x"))) == CODES
    assert parse("{no: {on: n}, 1: x}", "x") == {"no": {"on": "n"}, "1": "x"}
    assert parse("[true, ~, 10, ]", "x", only_text=True) == ["true", "~", "10"]
    assert parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a", "x")["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize("code", ["no", "1e3", "007"])
def test_languages_are_text_in_recipes_and_experiments(tmp_path, code):
    (tmp_path / "a.yaml").write_text(f"train-langs: {code}\n", encoding="utf-8-sig")
    assert flags([tmp_path / "a.yaml"]) == ["--train-langs", code]
    step = "steps: {a: {for: {code: codes}, run: 'train {code} {source}'}}"
    (tmp_path / "b.yaml").write_text(f"values: {{codes: [{code}], source: {code}}}\n{step}\n", encoding="utf-8")
    (made,) = Experiment(tmp_path / "b.yaml", output=tmp_path / "out").steps
    assert made.commands == [["train", code, code]]


LAUGHS = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{f'*a{i - 1}, ' * 9}]}}\n" for i in range(1, 12))


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"a: !!python/object/apply:os.system ['true']", " in line 1: a tag is not supported, found 'tag:.*system'"),
        (b"a: !!binary aGk=", " in line 1: a tag is not supported"),
        (b"a: 1\nb: 2\na: 3", " in line 3: 'a' is named twice"),
        (b"? [a]\n: 1", " in line 1: a key must be one value"),
        (b"a: &a [*a]", " in line 1: found unconstructable recursive node"),
        (LAUGHS.encode(), " in line 4: it holds more than 1000 values"),
        (b"[" + b"a," * 1100 + b"]", "more than 1000 values"),
        (b"[" * 5000, "nested too deeply"),
        (b'a: "\\0"', " in line 1: .* is not text"),
        (b'a: "\\ud800"', " in line 1: .* is not text"),
        (b"a:\n\tb", " in line 2: found character"),
        (b"a: \xe9", "is not UTF-8: it has the byte 0xe9"),
        ("a: 1".encode("utf-16"), "is not UTF-8: it has the byte 0xff"),
        (b"a" * (bounds.LARGEST_SETTINGS + 1), "at most 1048576 bytes"),
    ],
)
def test_hostile_files(tmp_path, monkeypatch, content, sentence):
    monkeypatch.setattr(bounds, "MOST_SETTINGS", 1000)
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(UserError, match=f"a.yaml.*{sentence}") as refused:
        load(tmp_path / "a.yaml")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["absent.yaml", ".", "a.yaml/b.yaml", os.devnull, "/dev/zero"])
def test_what_is_no_file(tmp_path, name):
    (tmp_path / "a.yaml").touch()
    for read in (lambda path: flags([path]), read_list, lambda path: Experiment(path).steps):
        with pytest.raises(UserError, match=name):
            read(tmp_path / name)


def test_one_precision_replaces_another(tmp_path):
    for name, text in (
        ("a", "fp16: true\nlr: 1"),
        ("b", "memory-efficient-bf16: true"),
        ("two", "amp: true\nbf16: true"),
    ):
        (tmp_path / name).write_text(text)
    files = [tmp_path / "a", tmp_path / "b"]
    assert flags(files) == ["--lr", "1", "--memory-efficient-bf16"]
    assert overridden(files, ["--fp16"]) == ["--lr", "1", "--fp16"]
    with pytest.raises(UserError, match=f"{tmp_path}/two: amp and bf16"):
        flags([tmp_path / "two"])
