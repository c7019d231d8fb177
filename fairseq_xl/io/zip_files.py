"""Zip files: checkpoints of torch, .npz files of numpy, archives of language modules."""

import zipfile

END, END_BYTES = b"PK\x05\x06", 22  # the last record of a zip file without a comment: its signature and size


def is_whole_file(archive: zipfile.ZipFile) -> bool:
    """Whether a file has no bytes before or after the archive, which zipfile and torch would ignore."""
    stream = archive.fp
    assert stream is not None, "the archive is open"
    position = stream.tell()
    stream.seek(0, 2)
    stream.seek(max(0, stream.tell() - END_BYTES))
    end = stream.read()
    stream.seek(position)
    first = min((part.header_offset for part in archive.infolist()), default=0)
    return end.startswith(END) and end.endswith(b"\0\0") and first == 0
