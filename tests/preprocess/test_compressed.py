"""Compressed text is read as the text that it holds, and damaged text is one sentence."""

import gzip
import lzma
import sys

import pytest
import zstandard
from tiny_corpus import change, content

from fairseq_xl.errors import UserError
from fairseq_xl.io import compressed
from preprocess import check, files
from preprocess.config import read_config
from preprocess.pipeline import prepare

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
TEXT = "".join(f"Zeile {number} für Öl\n" for number in range(5000)).encode()


def compress(path, suffix):
    """Put a compressed file in the place of a plain one."""
    path.with_name(path.name + suffix).write_bytes(COMPRESS[suffix](path.read_bytes()))
    path.unlink()


def read(path):
    return b"".join(files.read_blocks(path))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_the_content_decides(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(files, "BLOCK", 1 << 12)
    monkeypatch.setattr(compressed, "INPUT", 100)
    path = tmp_path / "text"
    packed = COMPRESS[suffix](TEXT)
    path.write_bytes(packed)
    sizes = []
    assert b"".join(files.read_blocks(path, sizes.append)) == TEXT
    assert sum(sizes) == len(packed) and len(sizes) > 5  # a progress bar counts what is on the disk
    assert all(block.endswith(b"\n") for block in files.read_blocks(path))
    # several parts, as `cat a.gz b.gz` and parallel compressors make them, and zeros behind them
    path.write_bytes(packed + COMPRESS[suffix](b"") + COMPRESS[suffix](b"Ende") + bytes(1000))
    assert read(path) == TEXT + b"Ende"
    path.write_bytes(COMPRESS[suffix](b""))
    assert read(path) == b""
    (tmp_path / f"plain{suffix}").write_bytes(TEXT)
    assert read(tmp_path / f"plain{suffix}") == TEXT


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (lambda data: data[:-1], "is truncated: its .* data has no end"),
        (lambda data: data[:9] + bytes(200) + data[209:], "is damaged: its .* data can't be decompressed"),
        (lambda data: data + b"more" * 9, "is damaged: its .* data can't be decompressed"),
    ],
)
def test_damaged_data_is_one_sentence(tmp_path, suffix, spoil, sentence):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(spoil(COMPRESS[suffix](TEXT)))
    with pytest.raises(UserError, match=f"text{suffix} {sentence}") as error:
        read(path)
    assert "\n" not in str(error.value)


def test_zstandard_that_is_not_installed_is_named(tmp_path, monkeypatch):
    path = tmp_path / "text.zst"
    path.write_bytes(zstandard.compress(TEXT))
    for module in ("zstandard", "compression"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match="text.zst is compressed with zstandard, .*: pip install zstandard$"):
        read(path)


def test_a_compressed_corpus_gives_the_same_data_bin(corpus, whole, tmp_path, fairseq_in_process):
    change(corpus, monolingual={"en": {"train": ["train.en"], "valid": "valid.en.zst"}})
    (corpus.parent / "valid.en").rename(corpus.parent / "valid.en.zst")  # named so, and plain
    compress(corpus.parent / "train.en", ".gz")  # named without its suffix
    compress(corpus.parent / "train.en-de.en", ".xz")  # as bitext is
    compress(corpus.parent / "train.en-de.de", ".zst")
    prepare(corpus, tmp_path / "compressed")
    plain, packed = content(whole), content(tmp_path / "compressed")
    assert plain.pop("manifest.json") != packed["manifest.json"]  # it names the files that are there
    assert b'"train.en-de.en.xz"' in packed.pop("manifest.json")
    assert plain == packed


def test_the_lines_of_a_compressed_file_are_checked(corpus):
    with open(corpus.parent / "train.en-de.de", "ab") as file:
        file.write(b"caf\xe9\n")
    compress(corpus.parent / "train.en-de.de", ".gz")
    (corpus.parent / "valid.en.gz").write_bytes(gzip.compress(TEXT)[:-4])
    (corpus.parent / "valid.en").unlink()
    (corpus.parent / "test.en-de.en").write_bytes(gzip.compress(b""))
    with pytest.raises(UserError) as error:
        prepare(corpus, None, check_only=True)
    message = str(error.value)
    assert "train.en-de.de.gz: invalid UTF-8 in line 84 (1 line(s) in all)" in message
    assert "train.en-de.en has 83 lines and train.en-de.de.gz has 84" in message
    assert "valid.en.gz is truncated: its gzip data has no end" in message
    assert "test.en-de.en: empty, there is no sentence in it" in message
    assert message.startswith("4 problem(s)")


def test_a_plain_file_goes_before_a_compressed_one(corpus):
    path = corpus.parent / "train.en"
    (corpus.parent / "train.en.gz").write_bytes(gzip.compress(TEXT))
    assert read_config(corpus)[0].files()[0] == "train.en"
    path.unlink()
    assert read_config(corpus)[0].files()[0] == "train.en.gz"
    assert check.check(read_config(corpus)[0], [], 1, None)["train.en.gz"].lines == 5000
