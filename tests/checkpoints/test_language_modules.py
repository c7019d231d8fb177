"""Language modules in files; files that are refused (M1)."""

import dataclasses

import pytest
import torch

import fairseq_xl
from fairseq_xl.checkpoints import description, language_modules, parameter_names
from fairseq_xl.checkpoints.identity import open_checkpoint
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


def test_a_file_has_the_module_that_was_written(tmp_path):
    written = module("en", "es", adapters=8)
    language_modules.write(written, tmp_path / "both.pt")
    read = language_modules.read(tmp_path / "both.pt", "es")
    assert read.name == "en+es" and all(map(torch.equal, read.state.values(), written.state.values()))
    assert dataclasses.replace(read, state=written.state) == written
    assert refusal(tmp_path / "both.pt", "de") == f"--lang de: {tmp_path}/both.pt is the language module of en, es"
    sizes = {"symbols": 6, "channels": 4, "positions": False, "adapters": 8, "body": "body"}
    expected = {"kind": "language module of fairseq_xl", "languages": ["en", "es"], "dictionary": written.dictionary}
    assert description.describe(tmp_path / "both.pt") == expected | sizes


def test_files_that_a_module_does_not_replace(file, tmp_path):
    """Another file and a module of another language stay; a module of the same language is replaced."""
    path, other = file("de"), tmp_path / "other.pt"
    torch.save({"model": {}}, other)
    for name, changed, message in (
        (other, module("de"), "nothing is written over it: remove it or name another file"),
        (path, module("fr"), "is a language module of de with other languages, dictionary: remove it or name another"),
        *(
            (path, module("de", **{name: value}), f"is a language module of de with other {name}: remove it or name")
            for name, value in (("body", "other"), ("adapters", 8), ("language_positions", True))
        ),
    ):
        before = name.read_bytes()
        with pytest.raises(UserError, match=message):
            language_modules.write(changed, name)
        assert name.read_bytes() == before
    language_modules.write(module("de", fill=8.0), path)
    assert (language_modules.read(path).state[parameter_names.TOKENS] == 8).all()


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
def test_modules_that_lack_something(tmp_path, change, message):
    path = tmp_path / "de.pt"
    torch.save(content("de") | change, path)
    refused = refusal(path)
    assert refused.startswith(f"{path} {message}") and len(refused) < 300


def test_languages_that_a_checkpoint_names_are_no_paths():
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
