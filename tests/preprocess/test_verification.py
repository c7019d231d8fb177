"""Fingerprints of a data-bin: in the manifest, in samples when a text is opened, and in full with --verify."""

import hashlib
import json
import random
import shutil

import numpy as np
import pytest
from tiny_corpus import content

from fairseq_xl.data.store import manifest
from fairseq_xl.errors import UserError
from fairseq_xl.io import fingerprints
from fairseq_xl.io.fingerprints import SAMPLE_BYTES, SAMPLES, fingerprint
from preprocess import disjoint
from preprocess.commands.verify import main as verify_command
from preprocess.pipeline import prepare
from preprocess.verification import verify
from tests.preprocess.builders import joined, parts  # noqa: F401
from tests.tiny_data import write_items

MILLION = 1 << 20


def known(data_bin):
    return json.loads((data_bin / "manifest.json").read_text(encoding="utf-8"))["fingerprints"]


def test_the_manifest_has_one_of_every_file(prepared):
    assert set(known(prepared)) == set(content(prepared)) - {"manifest.json"}
    for name, entry in known(prepared).items():
        assert entry["bytes"] == (prepared / name).stat().st_size and len(entry["blocks"]) == 1
    text = (prepared / "en/train.idx").read_bytes()
    sizes = np.frombuffer(text, np.int32, int.from_bytes(text[18:26], "little"), 26)
    entry = known(prepared)["en/train.idx"]
    assert (entry["lines"], entry["tokens"]) == (len(sizes), int(sizes.sum()))


def test_verify_names_every_change(prepared, capsys, caplog):
    files = len(known(prepared))
    with caplog.at_level("INFO"):
        assert verify_command([str(prepared)]) == 0
    assert f"{prepared}: all {files} files are unchanged" in caplog.text
    capsys.readouterr()
    for name in ("en/train.bin", "en-de/valid.en-de.de.idx", "dict.txt"):
        raw = bytearray((prepared / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        (prepared / name).write_bytes(raw)
    (prepared / "en/valid.bin").unlink()
    with open(prepared / "en/train.idx", "ab") as file:
        file.write(b"0")
    write_items(prepared / "fr/train", [[4, 2]])
    assert verify_command([str(prepared)]) == 1
    first, *changes = capsys.readouterr().err.splitlines()
    assert first.startswith(f"7 change(s) since {prepared} was written; remove the changed files and run the same")
    size = known(prepared)["en/train.idx"]["bytes"]
    assert sorted(line.removeprefix(f"  - {prepared}/").split(" from ")[0] for line in changes) == sorted(
        [
            "en/train.bin has other content",
            "en-de/valid.en-de.de.idx has other content",
            "dict.txt has other content",
            "en/valid.bin is missing",
            f"en/train.idx has {size + 1} bytes, expected {size}",
            "fr/train.bin is not in the manifest",
            "fr/train.idx is not in the manifest",
        ]
    )


def test_what_is_removed_is_made_anew(corpus, prepared):
    before = content(prepared)
    raw = (prepared / "en/train.bin").read_bytes()
    (prepared / "en/train.bin").write_bytes(bytes(len(raw)))
    prepare(corpus, prepared)  # nothing of it looks changed: it stays, and is not taken for what was written
    with pytest.raises(UserError, match="1 change"):
        verify(prepared)
    (prepared / "en/train.bin").unlink()
    prepare(corpus, prepared)
    assert content(prepared) == before and verify(prepared)


def test_what_is_no_data_bin(tmp_path, capsys):
    assert verify_command([str(tmp_path)]) == 1
    assert "has no manifest.json" in capsys.readouterr().err
    for entries in ('["x"]', '{"a": 1}', '{"a": {"bytes": "many"}}', '{"a": {}}'):
        (tmp_path / "manifest.json").write_text(f'{{"format": 1, "fingerprints": {entries}}}')
        assert verify_command([str(tmp_path)]) == 1
        sentence = "is not a manifest" if entries == '["x"]' else "is damaged: "
        assert f"manifest.json {sentence}" in capsys.readouterr().err


def test_joined_languages_have_their_own_and_take_over_no_damage(parts, joined, tmp_path, capsys):
    assert set(known(joined)) == set(content(joined)) - {"manifest.json"} and verify(joined) == len(known(joined))
    folder = shutil.copytree(parts / "data/en", tmp_path / "en")
    arguments = [str(tmp_path / "joined"), str(folder), str(parts / "data/de")]
    raw, entries = (folder / "en/train.bin").read_bytes(), json.loads((folder / "manifest.json").read_text())
    (folder / "en/train.bin").write_bytes(raw[:100] + bytes(10) + raw[110:])
    assert disjoint.main(arguments) == 1
    assert f"{folder}/en/train.bin has other content" in capsys.readouterr().err
    (folder / "en/train.bin").write_bytes(b"\xff" * len(raw))
    entries["fingerprints"]["en/train.bin"] = fingerprint(folder / "en/train.bin")
    (folder / "manifest.json").write_text(json.dumps(entries))
    assert disjoint.main(arguments) == 1
    assert "en/train.bin has numbers that its dictionary of" in capsys.readouterr().err


@pytest.mark.parametrize("size", [0, 1, MILLION, MILLION + 1, 3 * MILLION + 17])
def test_256_pieces_of_a_file_are_sampled(tmp_path, size):
    """From its first byte to its last; the whole of a file of up to 1 MiB."""
    path, raw = tmp_path / "file", random.Random(size).randbytes(size)
    path.write_bytes(raw)
    places = [(size - 4096) * number // 255 for number in range(256)]
    pieces = [raw] if size <= MILLION else [raw[place : place + 4096] for place in places]
    assert fingerprint(path)["sampled"] == hashlib.blake2b(b"".join(pieces), digest_size=16).hexdigest()


def test_a_long_change_of_a_large_file_is_seen_and_a_short_one_by_verify(tmp_path):
    """2 MiB: pieces of 4 KiB are 8 KiB apart."""
    raw, path = random.Random(1).randbytes(2 * MILLION), tmp_path / "text.bin"
    path.write_bytes(raw)
    entry = fingerprint(path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "fingerprints": {"text.bin": entry}}))
    for place in (0, MILLION, MILLION + 3000, 2 * MILLION - 9000):
        path.write_bytes(raw[:place] + bytes(9000) + raw[place + 9000 :])
        with pytest.raises(UserError, match=r"text.bin is not the file .* it has other content: restore it"):
            manifest.check_fingerprint(tmp_path, "text.bin")
    unseen = next(place for place in range(MILLION, 2 * MILLION, 1000) if not _is_read(place, len(raw)))
    path.write_bytes(raw[:unseen] + bytes([raw[unseen] ^ 1]) + raw[unseen + 1 :])
    manifest.check_fingerprint(tmp_path, "text.bin")
    with pytest.raises(UserError, match=r"other content from byte 1048576 to 2097152 \(1 of 2 blocks\)"):
        verify(tmp_path)
    path.write_bytes(raw)
    assert verify(tmp_path) == 1


def _is_read(place, size):
    starts = ((size - SAMPLE_BYTES) * number // (SAMPLES - 1) for number in range(SAMPLES))
    return any(start <= place < start + SAMPLE_BYTES for start in starts)


def test_a_file_of_any_size_has_few_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "LEAST_BLOCK", 16)
    for size, block in ((1024, 16), (1025, 32), (100_000, 2048)):
        (tmp_path / "file").write_bytes(random.Random(size).randbytes(size))
        entry = fingerprint(tmp_path / "file")
        assert entry["block"] == block and len(entry["blocks"]) == -(-size // block) <= fingerprints.MOST_BLOCKS
