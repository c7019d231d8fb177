"""Banks in files: one of a language or of several, and what they refuse (M1)."""

import json
import re
import zipfile

import pytest
import torch

import fairseq_xl
from fairseq_xl.checkpoints import banks
from fairseq_xl.commands.language_module import main
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint

fairseq_xl.register()


def bank(*languages, fill=1.0, body="body", **more):
    state = {banks.TOKENS: torch.full((6, 4), fill), "encoder.bank.bias": torch.full((6,), fill)}
    return {
        "kind": banks.KIND, "format": banks.FORMAT, "languages": list(languages), "dictionary": f"of {languages}",
        "body": body, "language_positions": False, "adapters": 0, "state": state,
    } | more  # fmt: skip


@pytest.fixture
def file(tmp_path):
    """file(*languages, …) -> a file of that bank."""

    def file(*languages, name=None, **more):
        path = tmp_path / (name or f"{languages[0]}.pt")
        save_checkpoint(bank(*languages, **more), path)
        return path

    return file


def refusal(*arguments):
    with pytest.raises(UserError) as refused:
        banks.read(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def contents(family):
    with zipfile.ZipFile(family) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_adding_a_bank_leaves_the_others_byte_by_byte(file, tmp_path, capsys):
    paths = [file("de"), file("fr", fill=2.0), file("en", "es", fill=3.0)]
    family = tmp_path / "family"
    for count, path in enumerate(paths, start=1):
        before = contents(family) if family.exists() else {}
        main(["pack", str(family), str(path)])
        after = contents(family)
        assert len(after) == count and all(after[name] == content for name, content in before.items())
    assert list(after.values()) == [path.read_bytes() for path in paths]
    main(["get", str(family), "fr", str(tmp_path / "again.pt")])
    assert (tmp_path / "again.pt").read_bytes() == paths[1].read_bytes()
    for name in ("es", "en+es"):
        main(["get", str(family), name, str(tmp_path / "both.pt")])
        assert (tmp_path / "both.pt").read_bytes() == paths[2].read_bytes()
    for language, fill in (("de", 1), ("fr", 2), ("en", 3), ("es", 3)):
        assert (banks.read(family, language)["state"][banks.TOKENS] == fill).all()
    main(["list", str(family)])
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == ["de", "fr", "en+es"]
    assert listed["de"] | {"dictionary": "", "body": ""} == {
        "symbols": 6, "channels": 4, "positions": False, "adapters": 0, "dictionary": "", "body": "",
    }  # fmt: skip


def test_what_a_family_does_not_take(file, tmp_path):
    family = tmp_path / "family"
    banks.pack(family, [file("de"), file("fr")])
    before = family.read_bytes()
    banks.pack(family, [file("de", name="again.pt")])  # the same once more
    other = file("de", fill=5.0, name="other.pt")
    with pytest.raises(UserError, match="has another bank of de already"):
        banks.pack(family, [other])
    with pytest.raises(UserError, match="has another bank of de already"):
        banks.pack(family, [file("en", "de", name="both.pt")])
    with pytest.raises(UserError, match="was learned over another body than those of"):
        banks.pack(family, [file("es", body="another")])
    with pytest.raises(UserError, match="is no family of banks"):
        banks.pack(other, [file("fr")])
    assert contents(family).keys() == {"de.bank.pt", "fr.bank.pt"} and len(family.read_bytes()) == len(before)


def test_a_language_that_is_not_there(file, tmp_path):
    path, family = file("de"), tmp_path / "family"
    banks.pack(family, [path, file("fr")])
    assert refusal(path, "es") == f"--lang es: {path} is the bank of de"
    assert refusal(family, "es") == f"{family} has banks of de, fr, not of es"
    assert refusal(family) == f"{family} has banks of de, fr: name one as --lang"
    with pytest.raises(UserError, match="has banks of de, fr, not of es"):
        main(["get", str(family), "es", str(tmp_path / "es.pt")])
    assert not (tmp_path / "es.pt").exists()


def test_what_a_bank_is_not_written_over(file, tmp_path):
    """A checkpoint, a family, a bank of another language stays; one of the same is replaced."""
    path, family = file("de"), tmp_path / "family"
    banks.pack(family, [path, file("fr")])
    torch.save({"model": {}}, tmp_path / "other.pt")
    before = {name: (tmp_path / name).read_bytes() for name in ("family", "other.pt")}
    for name in before:
        with pytest.raises(UserError, match="nothing is written over it: remove it or name another file"):
            main(["get", str(family), "de", str(tmp_path / name)])
        with pytest.raises(UserError, match="nothing is written over it: remove it or name another file"):
            banks.write(bank("de"), tmp_path / name)
        assert (tmp_path / name).read_bytes() == before[name]
    before = path.read_bytes()
    with pytest.raises(UserError, match="is a bank of de with other languages, dictionary: remove it or name another"):
        main(["get", str(family), "fr", str(path)])
    for change in (dict(body="other"), dict(adapters=8), dict(language_positions=True)):
        with pytest.raises(
            UserError, match=f"is a bank of de with other {[*change][0]}: remove it or name another file"
        ):
            banks.write(bank("de", **change), path)
    assert path.read_bytes() == before
    banks.write(bank("de", fill=8.0), path)
    main(["get", str(family), "de", str(path)])
    assert path.read_bytes() == before


def test_files_that_are_missing_damaged_or_something_else(file, tmp_path):
    assert "cannot be read as a checkpoint" in refusal(tmp_path / "nothing")
    path = file("de")
    content = bytearray(path.read_bytes())
    for name, damaged in (("cut", content[: len(content) // 2]), ("empty", b""), ("text", b"text")):
        (tmp_path / name).write_bytes(damaged)
        assert "is not a checkpoint, or it is damaged or cut short" in refusal(tmp_path / name)
    at = bytes(content).index(b"\x00\x00\x80?" * 20)  # floats of the table
    content[at : at + 40] = bytes(40)
    (tmp_path / "zeros").write_bytes(content)
    assert "another checksum" in refusal(tmp_path / "zeros")
    family = tmp_path / "family"
    banks.pack(family, [file("fr")])
    family.write_bytes(family.read_bytes().replace(b"\x00\x00\x80?" * 6, bytes(24), 1))
    assert "damaged" in refusal(family, "fr")
    torch.save({"model": {}}, tmp_path / "other.pt")
    assert "has no bank: it is no checkpoint of an xl_monotrans_* model" in refusal(tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    assert "is no bank" in refusal(tmp_path / "list.pt")


@pytest.mark.parametrize(
    "change, told",
    [
        (dict(format=2), "has format 2 of banks, this version reads 1"),
        (dict(adapters="4"), "is damaged: it lacks adapters"),
        (dict(state={}), f"is damaged: it lacks {banks.TOKENS}"),
        (dict(languages=None), "is damaged: it lacks languages"),
        (dict(languages=[]), "is damaged: it names no languages"),
        (dict(languages=["../../x"]), "is damaged: '../../x' is not a language code, such as de or pt-BR"),
        (dict(languages=["de", 3]), "is damaged: 3 is not a language code, such as de or pt-BR"),
        (dict(languages=["de\n"]), r"is damaged: 'de\n' is not a language code, such as de or pt-BR"),
        (dict(languages=["x/" * 10**6]), "is damaged: 'x/x/x/x/x/x/"),
        (dict(state=bank("de")["state"] | {banks.BIAS: 3}), f"is damaged: {banks.BIAS} is no tensor"),
    ],
)
def test_banks_that_lack_something(file, tmp_path, change, told):
    path = file("de")
    torch.save(bank("de") | change, path)
    refused = refusal(path)
    assert refused.startswith(f"{path} {told}") and len(refused) < 300
    with pytest.raises(UserError, match=re.escape(refused)):
        banks.pack(tmp_path / "family", [path])
    assert not (tmp_path / "family").exists()


def test_languages_that_a_file_names_are_no_paths(file, tmp_path):
    with zipfile.ZipFile(tmp_path / "family", "w") as archive:
        archive.write(file("de"), "../../x.bank.pt")
    told = "family is damaged: '../../x' is not a language code"
    for call in (
        lambda: banks.read(tmp_path / "family"),
        lambda: banks.pack(tmp_path / "family", [file("fr")]),
        lambda: main(["get", str(tmp_path / "family"), "../../x", str(tmp_path / "x.pt")]),
        lambda: main(["list", str(tmp_path / "family")]),
    ):
        with pytest.raises(UserError, match=told):
            call()
    model = {"_name": "xl_monotrans_tiny", "language_positions": False, "adapters": 0}
    monotrans = {"model": {banks.SPECIAL: torch.ones(1)}, "cfg": {"model": model}}
    identity = {"dictionary": "", "languages": ["../../x"]}
    with pytest.raises(UserError, match="c.pt is damaged: '../../x' is not a language code"):
        banks.extract(monotrans | {"task_state": {"fairseq_xl": identity}}, "c.pt")


def test_special_symbols_come_and_go():
    """Rows 0 to 3 and the last but the two languages' are the special symbols' own table."""
    table = torch.arange(18.0).view(9, 2)
    plain = {banks.TOKENS: table, "other": torch.ones(1)}
    split = banks.with_special(plain, languages=2)
    assert torch.equal(split[banks.SPECIAL], table[[0, 1, 2, 3, 6]]) and split["other"] is plain["other"]
    assert banks.with_special(split, 2) is split and banks.without_special(plain, 2) is plain
    split[banks.SPECIAL] = -split[banks.SPECIAL]
    joined = banks.without_special(split, 2)
    expected = table.clone()
    expected[[0, 1, 2, 3, 6]] *= -1
    assert joined.keys() == plain.keys() and torch.equal(joined[banks.TOKENS], expected)
    assert torch.equal(plain[banks.TOKENS], torch.arange(18.0).view(9, 2))


def test_the_bodys_digest_is_of_the_body_alone():
    state = {
        banks.TOKENS: torch.ones(2), banks.SPECIAL: torch.ones(2), banks.POSITIONS: torch.ones(2),
        "encoder.layers.0.ffn.up.weight": torch.ones(2), "heads.nsp.0.weight": torch.ones(2),
        "encoder.layers.0.ffn_adapter.up.weight": torch.ones(2),
    }  # fmt: skip
    for positions in (False, True):
        digest = banks.body_digest(state, positions)
        for name in state:
            same = banks.body_digest(state | {name: torch.zeros(2)}, positions) == digest
            assert same == (not name.endswith("ffn.up.weight") and (positions or name != banks.POSITIONS)), name
