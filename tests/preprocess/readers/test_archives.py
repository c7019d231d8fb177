"""Archives of releases are unpacked for a while; unsafe and damaged ones are refused."""

import errno
import io
import logging
import shutil
import signal
import stat
import sys
import tarfile
import zipfile

import pytest

from fairseq_xl.errors import UserError
from preprocess.commands import run
from preprocess.readers.archives import unpacked, unpacked_inside
from tests.preprocess.readers.written_files import contents


def tar(path, *members, mode="w:gz"):
    """Writes a tar file of (name, content); a content that is text is the target of a link."""
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return path


def zipped(path, *members):
    """Writes a zip file of (name, content); a content that is text is the target of a link."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3
            entry.external_attr = ((stat.S_IFLNK if isinstance(content, str) else stat.S_IFREG) | 0o644) << 16
            archive.writestr(entry, content)
    return path


MEMBERS = [("x/a.tsv", b"1\n"), ("x/de/b.tsv.gz", b"2\n"), ("x/c.tsv", b"3\n")]


def copies(tmp_path):
    """The folders that archives have been unpacked to and that are still there."""
    return list(tmp_path.rglob(".*.unfinished-*"))


@pytest.mark.parametrize(
    "write", [tar, lambda *each: tar(*each, mode="w"), lambda *each: tar(*each, mode="w:xz"), zipped]
)
def test_the_files_that_are_needed_are_unpacked_for_a_while(write, tmp_path):
    """The kind of an archive is that of its content; a file may be compressed. Files of macOS are left out."""
    path = write(tmp_path / "archive", *MEMBERS, ("__MACOSX/x/._a.tsv", b"?"), ("._x", b"?"), ("README", b"?"))
    with unpacked(path, tmp_path / "to/out", {"a.tsv", "b.tsv"}) as folder:
        assert contents(folder) == {"a.tsv": b"1\n", "de/b.tsv.gz": b"2\n"}
        assert folder.name == "x" and folder.parent.parent == tmp_path / "to"
        assert folder.parent.name.startswith(".out.unfinished-")
    assert not copies(tmp_path) and not (tmp_path / "to/out").exists()


def test_a_folder_is_left_as_it_is(tmp_path):
    with unpacked(tmp_path, tmp_path / "out", {"a.tsv"}) as folder:
        assert folder is tmp_path
    assert not list(tmp_path.iterdir())


def test_only_a_single_folder_of_all_files_is_the_release(tmp_path):
    """Whatever is needed of it."""
    path = tar(tmp_path / "a.tar.gz", ("./NER/a", b"1"), ("./POS/b", b"2"))
    with unpacked(path, tmp_path / "out", {"a"}) as folder:
        assert contents(folder) == {"NER/a": b"1"}


def refused(path, tmp_path):
    """The message about an archive, of which nothing is left."""
    with pytest.raises(UserError) as error, unpacked(path, tmp_path / "out", {"a.tsv", "b.tsv", "c.tsv"}):
        pytest.fail("it was read")
    assert not copies(tmp_path) and not (tmp_path / "a.tsv").exists() and not (tmp_path / "out").exists()
    return str(error.value)


@pytest.mark.parametrize("write", [tar, zipped])
@pytest.mark.parametrize(
    "member, message",
    [
        (("../a.tsv", b"1"), "the path of its member '../a.tsv' leads out of the release"),
        (("x/../../a.tsv", b"1"), "the path of its member 'x/../../a.tsv' leads out of the release"),
        (("/a.tsv", b"1"), "the path of its member '/a.tsv' leads out of the release"),
        (("x/d.tsv", "/etc/passwd"), "its member 'x/d.tsv' is a link or a device"),
        (("x/de", ".."), "its member 'x/de' is a link or a device"),
    ],
)
def test_members_that_lead_elsewhere_are_refused(write, member, message, tmp_path):
    path = write(tmp_path / "archive", *MEMBERS, member)
    assert refused(path, tmp_path) == f"{path} is refused: {message}"


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_other_kinds_of_members_are_refused(kind, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        entry = tarfile.TarInfo("x/a.tsv")
        entry.type, entry.linkname = kind, "x/b.tsv"
        archive.addfile(entry)
    assert refused(tmp_path / "a.tar", tmp_path).endswith("its member 'x/a.tsv' is a link or a device")


@pytest.mark.parametrize("name", ["x/a.tsv", "x/a.tsv/b.tsv"])
def test_two_members_of_one_path_are_refused(name, tmp_path):
    path = tar(tmp_path / "a.tar.gz", *MEMBERS, (name, b"2"))
    assert refused(path, tmp_path) == f"{path} has {name} twice, or as a file and as a folder"


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>\n" * 100, b"PK of bytes"])
def test_what_is_no_archive_is_refused(content, tmp_path):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    message = refused(path, tmp_path)
    assert message.startswith(f"{path} is damaged or neither a tar nor a zip file (")
    assert message.endswith("): download it again, or unpack it yourself") and "\n" not in message


def test_what_is_not_there_is_one_sentence(tmp_path):
    assert refused(tmp_path / "x.tar.gz", tmp_path) == f"{tmp_path / 'x.tar.gz'}: there is no such file or folder"


@pytest.mark.parametrize("cut", [1, 9, 0.5])
@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "zip"])
def test_truncated_archives_are_refused(mode, cut, tmp_path):
    """Even if all files that are needed are before the end."""
    path = tmp_path / "archive"
    zipped(path, *MEMBERS) if mode == "zip" else tar(path, *MEMBERS, mode=mode)
    content = path.read_bytes()
    path.write_bytes(content[: -cut if cut >= 1 else int(len(content) * cut)])
    message = refused(path, tmp_path)
    assert message.startswith(f"{path} is truncated" if mode != "zip" else f"{path} is damaged")


@pytest.mark.parametrize("blocks, reason", [(2, "unexpected end of data"), (7, "its end is missing")])
def test_a_truncated_tar_file_without_compression_is_refused(blocks, reason, tmp_path):
    """A member has a header and a block of text, 512 bytes each; two blocks of zeros are the end."""
    path = tar(tmp_path / "a.tar", *MEMBERS, mode="w")
    path.write_bytes(path.read_bytes()[: 512 * blocks])
    assert reason in refused(path, tmp_path)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_member_larger_than_the_archive_is_refused(tmp_path, mode):
    """Also one that is not needed: 1 TiB is not read over."""
    with tarfile.open(tmp_path / "a.tar", mode) as archive:
        archive.fileobj.write(entry("x/other", 1 << 40).tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "unexpected end of data" in refused(tmp_path / "a.tar", tmp_path)


def entry(name, size, kind=tarfile.REGTYPE):
    made = tarfile.TarInfo(name)
    made.size, made.type = size, kind
    return made


def test_a_sparse_file_is_refused(tmp_path):
    header = bytearray(entry("x/a.tsv", 0, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[483:495] = tarfile.itn(1 << 40, 12, tarfile.GNU_FORMAT)  # the size with its holes
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(header + bytes(1024))
    assert refused(tmp_path / "a.tar", tmp_path).endswith("its member 'x/a.tsv' is a sparse file")


def test_a_zip_file_of_much_larger_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/a.tsv", bytes(24_000_000))
    assert "bytes declare 24,000,000 bytes of files" in refused(tmp_path / "a.zip", tmp_path)


@pytest.mark.parametrize("write", [tar, lambda *each: tar(*each, mode="w"), zipped])
def test_damaged_archives_are_refused(write, tmp_path):
    path = write(tmp_path / "archive", ("x/a.tsv", bytes(range(256)) * 4))
    content = path.read_bytes()
    place = content.index(b"x/a.tsv") if b"x/a.tsv" in content else len(content) // 2  # compressed: anywhere
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    assert refused(path, tmp_path).startswith(f"{path} is damaged")


def test_an_encrypted_zip_is_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", *MEMBERS)
    content = bytearray(path.read_bytes())
    for start, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(start) + flags] |= 1
    path.write_bytes(content)
    assert "is encrypted" in refused(path, tmp_path)


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    path = tar(tmp_path / "a.tar.gz", *MEMBERS)

    def work():
        with unpacked(path, tmp_path / "out", {"a.tsv"}):
            pytest.fail("it was read")

    assert run(work, tmp_path, "reader: ") == 1
    reason = f"the disk of {tmp_path} is full: make room, and run the same command to continue"
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("unpack ")]  # a log line
    assert lines == [f"reader: {path} cannot be unpacked: {reason}"]
    assert not copies(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_copy_is_removed_after_a_signal(number, tmp_path):
    path = tar(tmp_path / "a.tar.gz", *MEMBERS)

    def work():
        with unpacked(path, tmp_path / "out", {"a.tsv"}):
            assert copies(tmp_path)
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as ended:
        sys.exit(run(work, tmp_path, "reader: "))
    assert ended.value.code == 128 + number and not copies(tmp_path)


def test_top_level_files_count_beside_a_folder(tmp_path):
    """A file that is needed is beside the only folder, which is then not the release; other files do not count."""
    path = tar(tmp_path / "a.tar.gz", ("a.tsv", b"1\n"), ("docs/readme", b"2\n"))
    with unpacked(path, tmp_path / "out", {"a.tsv"}) as folder:
        assert contents(folder) == {"a.tsv": b"1\n"}
    path = tar(tmp_path / "b.tar.gz", ("readme", b"1\n"), ("x/a.tsv", b"2\n"))
    with unpacked(path, tmp_path / "out", {"a.tsv"}) as folder:
        assert contents(folder) == {"a.tsv": b"2\n"}


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_in_a_zip_is_one_sentence(method, tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x/a.tsv", bytes(range(256)) * 100)
    content = bytearray(path.read_bytes())
    content[50:70] = bytes(20)
    path.write_bytes(content)
    assert "download it again" in refused(path, tmp_path)


def test_messages_name_the_path_in_the_archive(tmp_path, caplog):
    caplog.set_level("INFO")
    path, logger = tar(tmp_path / "a.tar.gz", *MEMBERS), logging.getLogger("preprocess")
    with pytest.raises(UserError) as error, unpacked(path, tmp_path / "out", {"a.tsv"}) as folder:
        logger.warning("%s: %d", folder / "a.tsv", 1)
        raise UserError(f"{folder / 'a.tsv'}, line 1: wrong\n{folder / 'c.tsv'}: wrong")
    assert str(error.value) == f"{path}/x/a.tsv, line 1: wrong\n{path}/x/c.tsv: wrong"
    assert caplog.messages == [f"unpack {path}", f"{path}/x/a.tsv: 1"]
    logger.warning("%s", folder)
    assert caplog.messages[-1] == str(folder)


def test_archives_inside_a_release_replace_missing_folders(tmp_path):
    """The folder `one` is there, beside an archive that is not read; `two` is an archive only."""
    release = tmp_path / "in"
    (release / "one").mkdir(parents=True)
    (release / "one/a.tsv").write_bytes(b"folder\n")
    zipped(release / "one.zip", ("one/a.tsv", b"archive\n"))
    path = zipped(release / "two.zip", ("two/b.tsv", b"2\n"))
    opened = unpacked_inside(release, ("one", "two"), tmp_path / "out", {"a.tsv", "b.tsv"})
    with pytest.raises(UserError) as error, opened as folder:
        assert (folder / "one/a.tsv").read_bytes() == b"folder\n"
        assert (folder / "two/b.tsv").read_bytes() == b"2\n"
        raise UserError(f"{folder}/one/a.tsv, {folder}/two/b.tsv, {folder}")
    assert str(error.value) == f"{release}/one/a.tsv, {path}/two/b.tsv, {release}"
    assert not copies(tmp_path) and (release / "one/a.tsv").exists()


def test_an_archive_does_not_write_to_the_folder_beside_it(tmp_path):
    (tmp_path / "one").mkdir()
    zipped(tmp_path / "two.zip", ("one/a.tsv", b"1\n"))
    opened = unpacked_inside(tmp_path, ("one", "two"), tmp_path / "out", {"a.tsv"})
    message = f"{tmp_path}: the folder one is there unpacked and in an archive: remove one of them"
    with pytest.raises(UserError, match=message), opened:
        pytest.fail("it was read")
    assert not copies(tmp_path) and not list((tmp_path / "one").iterdir())
