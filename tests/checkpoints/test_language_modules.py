"""Language modules in files and archives; files that are refused (M1)."""

import dataclasses
import json
import re
import zipfile

import pytest
import torch

import fairseq_xl
from fairseq_xl.checkpoints import language_modules, parameter_names
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.commands.language_module import main
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import save_checkpoint

fairseq_xl.register()

IDENTITY = {"format": 1, "task": "xl_pretraining", "languages": ["de"], "framing": "xl", "heads": 2, "encoding": {}}
CHECKPOINT = {"model": {}, "optimizer_history": [], "task_state": {"fairseq_xl": IDENTITY | {"dictionary": ""}}}


def module(*languages, fill=1.0, body="body", **more):
    state = {parameter_names.TOKENS: torch.full((6, 4), fill), parameter_names.BIAS: torch.full((6,), fill)}
    made = language_modules.LanguageModule(list(languages), f"of {languages}", body, False, 0, state)
    return dataclasses.replace(made, **more)


def content(*languages, **more):
    """The content of a language module's file."""
    return {"kind": "fairseq_xl language module", "format": 1} | dataclasses.asdict(module(*languages, **more))


@pytest.fixture
def file(tmp_path):
    """file(*languages, …) -> a file of that language module."""

    def file(*languages, name=None, **more):
        path = tmp_path / (name or f"{languages[0]}.pt")
        save_checkpoint(content(*languages, **more), path)
        return path

    return file


def refusal(*arguments):
    with pytest.raises(UserError) as refused:
        language_modules.read(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def contents(archive_path):
    with zipfile.ZipFile(archive_path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_adding_a_module_leaves_the_others_byte_by_byte(file, tmp_path, capsys):
    paths = [file("de"), file("fr", fill=2.0), file("en", "es", fill=3.0)]
    archive_path = tmp_path / "archive"
    for count, path in enumerate(paths, start=1):
        before = contents(archive_path) if archive_path.exists() else {}
        main(["pack", str(archive_path), str(path)])
        after = contents(archive_path)
        assert len(after) == count and all(after[name] == content for name, content in before.items())
    assert list(after.values()) == [path.read_bytes() for path in paths]
    main(["get", str(archive_path), "fr", str(tmp_path / "again.pt")])
    assert (tmp_path / "again.pt").read_bytes() == paths[1].read_bytes()
    for name in ("es", "en+es"):
        main(["get", str(archive_path), name, str(tmp_path / "both.pt")])
        assert (tmp_path / "both.pt").read_bytes() == paths[2].read_bytes()
    for language, fill in (("de", 1), ("fr", 2), ("en", 3), ("es", 3)):
        assert (language_modules.read(archive_path, language).state[parameter_names.TOKENS] == fill).all()
    main(["list", str(archive_path)])
    listed = json.loads(capsys.readouterr().out)
    assert list(listed) == ["de", "fr", "en+es"]
    assert listed["de"] | {"dictionary": "", "body": ""} == {
        "symbols": 6,
        "channels": 4,
        "positions": False,
        "adapters": 0,
        "dictionary": "",
        "body": "",
    }


def test_files_that_an_archive_refuses(file, tmp_path):
    archive_path = tmp_path / "archive"
    language_modules.pack(archive_path, [file("de"), file("fr")])
    before = archive_path.read_bytes()
    language_modules.pack(archive_path, [file("de", name="again.pt")])  # the same once more
    with pytest.raises(UserError, match="fr.* is named twice"):
        language_modules.pack(archive_path, [file("fr")] * 2)
    other = file("de", fill=5.0, name="other.pt")
    with pytest.raises(UserError, match="has another language module of de already"):
        language_modules.pack(archive_path, [other])
    with pytest.raises(UserError, match="has another language module of de already"):
        language_modules.pack(archive_path, [file("en", "de", name="both.pt")])
    with pytest.raises(UserError, match="was learned with another body than those of"):
        language_modules.pack(archive_path, [file("es", body="another")])
    with pytest.raises(UserError, match="is not an archive of language modules"):
        language_modules.pack(other, [file("fr")])
    assert contents(archive_path).keys() == {"de.language-module.pt", "fr.language-module.pt"} and len(
        archive_path.read_bytes()
    ) == len(before)


def test_a_language_that_is_not_there(file, tmp_path):
    path, archive_path = file("de"), tmp_path / "archive"
    language_modules.pack(archive_path, [path, file("fr")])
    assert refusal(path, "es") == f"--lang es: {path} is the language module of de"
    assert refusal(archive_path, "es") == f"{archive_path} has language modules of de, fr, not of es"
    assert refusal(archive_path) == f"{archive_path} has language modules of de, fr: choose one with --lang"
    with pytest.raises(UserError, match="has language modules of de, fr, not of es"):
        main(["get", str(archive_path), "es", str(tmp_path / "es.pt")])
    assert not (tmp_path / "es.pt").exists()


def test_files_that_a_module_does_not_replace(file, tmp_path):
    """A checkpoint, an archive and a module of another language stay; a module of the same language is replaced."""
    path, archive_path = file("de"), tmp_path / "archive"
    language_modules.pack(archive_path, [path, file("fr")])
    torch.save({"model": {}}, tmp_path / "other.pt")
    before = {name: (tmp_path / name).read_bytes() for name in ("archive", "other.pt")}
    for name in before:
        with pytest.raises(UserError, match="nothing is written over it: remove it or name another file"):
            main(["get", str(archive_path), "de", str(tmp_path / name)])
        with pytest.raises(UserError, match="nothing is written over it: remove it or name another file"):
            language_modules.write(module("de"), tmp_path / name)
        assert (tmp_path / name).read_bytes() == before[name]
    before = path.read_bytes()
    with pytest.raises(
        UserError, match="is a language module of de with other languages, dictionary: remove it or name another"
    ):
        main(["get", str(archive_path), "fr", str(path)])
    for change in (dict(body="other"), dict(adapters=8), dict(language_positions=True)):
        with pytest.raises(
            UserError,
            match=f"is a language module of de with other {next(iter(change))}: remove it or name another file",
        ):
            language_modules.write(module("de", **change), path)
    assert path.read_bytes() == before
    language_modules.write(module("de", fill=8.0), path)
    main(["get", str(archive_path), "de", str(path)])
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
    archive_path = tmp_path / "archive"
    language_modules.pack(archive_path, [file("fr")])
    whole = archive_path.read_bytes()
    for content in (whole.replace(b"\x00\x00\x80?" * 6, bytes(24), 1), whole + bytes(9), whole + whole):
        archive_path.write_bytes(content)
        assert "damaged" in refusal(archive_path, "fr")
    torch.save(CHECKPOINT, tmp_path / "other.pt")
    assert "has no language module: it is not a checkpoint of an xl_monotrans_* model" in refusal(tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    assert "is not a language module" in refusal(tmp_path / "list.pt")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(adapters="4"), "is damaged: it lacks adapters"),
        (dict(state={}), f"is damaged: it lacks {parameter_names.TOKENS}"),
        (dict(languages=None), "is damaged: it lacks languages"),
        (dict(languages=[]), "is damaged: it names no languages"),
        (dict(languages=["../../x"]), "is damaged: '../../x' is not a language code, such as de or pt-BR"),
        (dict(languages=["de", 3]), "is damaged: 3 is not a language code, such as de or pt-BR"),
        (dict(languages=["de\n"]), r"is damaged: 'de\n' is not a language code, such as de or pt-BR"),
        (dict(languages=["x/" * 10**6]), "is damaged: 'x/x/x/x/x/x/"),
        (
            dict(state=content("de")["state"] | {parameter_names.BIAS: 3}),
            f"is damaged: {parameter_names.BIAS!r} is not the name of a tensor",
        ),
        (dict(state=content("de")["state"] | {7: torch.ones(1)}), "is damaged: 7 is not the name of a tensor"),
    ],
)
def test_modules_that_lack_something(file, tmp_path, change, message):
    path = file("de")
    torch.save(content("de") | change, path)
    refused = refusal(path)
    assert refused.startswith(f"{path} {message}") and len(refused) < 300
    with pytest.raises(UserError, match=re.escape(refused)):
        language_modules.pack(tmp_path / "archive", [path])
    assert not (tmp_path / "archive").exists()


def test_languages_that_a_file_names_are_no_paths(file, tmp_path):
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.write(file("de"), "../../x.language-module.pt")
    message = "archive is damaged: '../../x' is not a language code"
    for call in (
        lambda: language_modules.read(tmp_path / "archive"),
        lambda: language_modules.pack(tmp_path / "archive", [file("fr")]),
        lambda: main(["get", str(tmp_path / "archive"), "../../x", str(tmp_path / "x.pt")]),
        lambda: main(["list", str(tmp_path / "archive")]),
    ):
        with pytest.raises(UserError, match=message):
            call()
    model = {"_name": "xl_monotrans_tiny", "language_positions": False, "adapters": 0}
    monotrans = CHECKPOINT | {"model": {language_modules.SPECIAL: torch.ones(1)}, "cfg": {"model": model}}
    identity = CHECKPOINT["task_state"]["fairseq_xl"] | {"languages": ["../../x"]}
    with pytest.raises(UserError, match="c.pt is damaged: '../../x' is not a language code"):
        open_checkpoint("c.pt", content=monotrans | {"task_state": {"fairseq_xl": identity}})


def test_special_symbols_come_and_go():
    """The special symbols have a table of their own: rows 0 to 3 and the one before the two languages."""
    table = torch.arange(18.0).view(9, 2)
    plain = {parameter_names.TOKENS: table, "other": torch.ones(1)}
    split = language_modules.with_special(plain, languages=2)
    assert torch.equal(split[language_modules.SPECIAL], table[[0, 1, 2, 3, 6]]) and split["other"] is plain["other"]
    assert language_modules.with_special(split, 2) is split and language_modules.without_special(plain, 2) is plain
    split[language_modules.SPECIAL] = -split[language_modules.SPECIAL]
    joined = language_modules.without_special(split, 2)
    expected = table.clone()
    expected[[0, 1, 2, 3, 6]] *= -1
    assert joined.keys() == plain.keys() and torch.equal(joined[parameter_names.TOKENS], expected)
    assert torch.equal(plain[parameter_names.TOKENS], torch.arange(18.0).view(9, 2))


def test_the_bodys_digest_is_of_the_body_alone():
    state = {
        parameter_names.TOKENS: torch.ones(2),
        language_modules.SPECIAL: torch.ones(2),
        parameter_names.POSITIONS: torch.ones(2),
        "encoder.layers.0.ffn.up.weight": torch.ones(2),
        "heads.nsp.0.weight": torch.ones(2),
        "encoder.layers.0.ffn_adapter.up.weight": torch.ones(2),
    }
    for positions in (False, True):
        digest = language_modules.body_digest(state, positions)
        for name in state:
            same = language_modules.body_digest(state | {name: torch.zeros(2)}, positions) == digest
            assert same == (not name.endswith("ffn.up.weight") and (positions or name != parameter_names.POSITIONS)), (
                name
            )
