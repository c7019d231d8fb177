"""Files are written whole or not at all: after a kill, on a full disk, beside a planted link, or of another format."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch

import fairseq_xl
from fairseq_xl.checkpoints import language_modules
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.data.store.manifest import read_manifest, read_note
from fairseq_xl.engine import saving
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import prediction_folders
from fairseq_xl.evaluation.score_files import read_score_file
from fairseq_xl.io.error_reporting import message
from fairseq_xl.io.files import FORMATS, REMEDIES, replacing
from fairseq_xl.io.step_records import begin_parts
from fairseq_xl.serving.runtime import Exported
from recipes import settings
from recipes.wmt_arguments import corpus_content
from tests.bad_input.every_command import with_small_files
from tests.io.builders import checkpoint, in_a_fork, one_sentence


@pytest.fixture(autouse=True, scope="module")
def installed():
    fairseq_xl.register()


WRITERS = {"copy": saving.copy, "save": lambda source, target: saving.persist(torch.load(source), target)}


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "new.pt", tmp_path / "checkpoint_last.pt"
    torch.save(checkpoint(big=torch.ones(100_000)), source)
    target.write_bytes(b"the old one")
    return str(source), str(target)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_kill_or_a_full_disk_keeps_the_old_file(files, writer):
    """A limit on the size of files stands for the disk: writing fails in the middle in the same way."""
    source, target = map(Path, files)

    def killed():
        os.replace = lambda *names: os._exit(9)
        WRITERS[writer](*files)

    assert in_a_fork(killed) == 9
    assert target.read_bytes() == b"the old one"
    status, shown = with_small_files(lambda: WRITERS[writer](*files), 50_000)
    assert status == 1 and len(shown.splitlines()) == 1, shown
    assert shown.startswith(f"fairseq_xl: error: {target} was not written")
    assert "the limit on file sizes (ulimit -f) is reached" in shown
    assert target.read_bytes() == b"the old one"
    # What the kill left behind does not stop the next attempt.
    saving.copy(*files)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(path.name for path in target.parent.iterdir()) == ["checkpoint_last.pt", "new.pt"]


PLANTED = {
    "a link": lambda path, victim: path.symlink_to(victim),
    "a second name": lambda path, victim: path.hardlink_to(victim),
    "a link to nowhere": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "what a kill left": lambda path, victim: path.write_bytes(b"half of a checkpoint"),
    "a pipe": lambda path, victim: os.mkfifo(path),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_has_the_name_of_the_unfinished_file_is_not_followed(tmp_path, planted):
    victim, path = tmp_path / "victim", tmp_path / "c.pt"
    victim.write_bytes(b"someone's")
    PLANTED[planted](tmp_path / "c.pt.tmp", victim)
    with replacing(path) as stream:
        stream.write(b"whole")
    assert victim.read_bytes() == b"someone's" and path.read_bytes() == b"whole"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c.pt", "victim"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_name_that_is_taken_again_while_a_file_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "unlink", lambda path: None)  # as if the link came back at once
    (tmp_path / "c.pt.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError) as error, replacing(tmp_path / "c.pt"):
        pass
    one_sentence(error, tmp_path / "c.pt", "was not written: File exists")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota(files, monkeypatch, code):
    error = OSError(code, os.strerror(code), "x")

    def full(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: saving.copy(*files), lambda: saving.persist(checkpoint(), files[1])):
        with pytest.raises(UserError) as refused:
            write()
        one_sentence(refused, files[1], "was not written and the previous file is kept: no room is left on its disk")
        assert Path(files[1]).read_bytes() == b"the old one"
    assert message(error) == "no room is left on the disk of x: what was being written is cut short"


def test_copies_are_synced_before_they_take_the_place(files, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("sync"), sync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace(*names)))
    saving.copy(*files)
    assert calls == ["sync", "replace", "sync"]  # the file, then the name, then the folder


def test_a_passing_failure_is_tried_again_on_a_fresh_file(tmp_path, monkeypatch):
    save, failures = torch.save, [OSError(errno.EIO, "passing")]

    def unreliable(obj, stream):
        if failures:
            stream.write(b"half of a checkpoint")
            raise failures.pop()
        save(obj, stream)

    monkeypatch.setattr(torch, "save", unreliable)
    monkeypatch.setattr(saving, "SECONDS_BETWEEN_ATTEMPTS", 0)
    path = str(tmp_path / "c.pt")
    saving.persist(checkpoint(), path)
    assert not failures and Path(path).read_bytes()[:2] == b"PK"
    failures.extend(OSError(errno.EIO, "lasting") for _ in range(saving.ATTEMPTS))
    with pytest.raises(OSError, match="lasting"):
        saving.persist(checkpoint(), path)


def format_of_checkpoint(path, number):
    open_checkpoint(path, content={"model": {}, "optimizer_history": [], "task_state": {"fairseq_xl": number}})


def format_of_module(path, number):
    torch.save({"kind": language_modules.KIND, **number}, path)
    language_modules.read(path)


def check_record(path):
    (path.parent / "checkpoint.pt").touch()
    settings.check(path.parent, path.name, {"commands": [], "files": {}}, "")


def json_file(read, **more):
    """A function that writes a number to a JSON file and calls `read` with its path."""

    def written(path, number):
        path.write_text(json.dumps(number | more | {"fingerprints": {}}))
        read(path)

    return written


#: kind -> name of a file, and function that reads a file with an entry `format`
READERS = {
    "checkpoint": ("checkpoint.pt", format_of_checkpoint),
    "language module": ("de.language-module.pt", format_of_module),
    "ONNX export": ("model.json", json_file(lambda path: Exported(path.parent))),
    "data folder": ("manifest.json", json_file(lambda path: read_manifest(path.parent))),
    "corpus": ("manifest.json", json_file(lambda path: corpus_content(str(path.parent)))),
    "note of added files": ("train.en-de.negatives.json", json_file(read_note)),
    "note of predictions": ("predictions.json", json_file(lambda path: prediction_folders.read_note(path.parent))),
    "score file": ("scores.json", json_file(lambda path: read_score_file(str(path), "system"), benchmark="xtreme")),
    "record of settings": ("step.json", json_file(check_record)),
    "partial results": ("made_with.json", json_file(lambda path: begin_parts(path.parent, {}))),
}


def test_every_kind_has_a_reader_and_a_remedy():
    assert FORMATS.keys() == READERS.keys() == REMEDIES.keys()


@pytest.mark.parametrize("kind", READERS)
def test_another_format_is_refused_in_a_sentence(tmp_path, kind):
    name, read = READERS[kind]
    for number in (FORMATS[kind] - 1, FORMATS[kind] + 1):
        with pytest.raises(UserError) as refused:
            read(tmp_path / name, {"format": number})
        known = f"this version of fairseq_xl reads format {FORMATS[kind]}: {REMEDIES[kind]}"
        assert str(refused.value) == f"{tmp_path / name}: {kind} of format {number}, {known}"
