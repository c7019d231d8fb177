"""Pickles on which torch would work for ever: small ones, in all three forms of a file."""

import io
import zipfile

import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.pickles import check_pickle

# (), then a pair of the last value twice, and so on
DOUBLED = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
# [], 60 times; then each gets the next one twice: an item is counted when it is empty
LISTS = b"".join(b"]q%c" % number for number in range(60))
LISTS += b"".join(b"h%c(h%ch%ce" % (number, number + 1, number + 1) for number in range(59))
SAME_HASH = b"".join(b"\x8a\x0e" + ((2**61 - 1) * (2**40 + each)).to_bytes(14, "little") + b"N" for each in range(9))


def in_zip(pickled, name):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr(f"archive/{name}", pickled)
        file.writestr("archive/version", "3\n")
    return stream.getvalue()


def in_earlier_format(pickled):
    begin, end = io.BytesIO(), b"\x80\x02}."
    torch.save(None, begin, _use_new_zipfile_serialization=False)
    # behind what says the format, its version and the machine
    return begin.getvalue()[: -len(b"\x80\x02N.\x80\x02]q\x00.")] + pickled + end


@pytest.mark.parametrize(
    "write", [lambda each: in_zip(each, "data.pkl"), lambda each: in_zip(each, "DATA.PKL"), in_earlier_format]
)
@pytest.mark.parametrize(
    "pickled, problem",
    [
        (b"}" + DOUBLED + b"Ns", "more than 1,000,000 values"),
        (b"}(" + SAME_HASH + b"u", "an integer of more than 64 bits"),
        (b"})Ns", "a key that is neither text nor a number"),
        (b"ccollections\nOrderedDict\n](N)\x86e\x85R", "a call of collections OrderedDict with values"),
        (b"c__builtin__\nset\n](Ne\x85R", "a call of __builtin__ set with values"),
        (b"(" + LISTS + b"h\x00)R", "a call of what is no function"),
        (b"(" + LISTS + b"h\x00)\x81", "a call of what is no function"),
        (b"(" + LISTS + b"t", "a part of more than 1,000,000 values"),
        (b"](" + b"N" * 1_000_001 + b"e", "more than 1,000,000 values"),
        (b"]q\x00(h\x00e", "data that is nested more than 50 times"),
    ],
    ids="doubled integers key pairs set function class lists many itself".split(),
)
def test_work_is_bounded(tmp_path, write, pickled, problem):
    path = tmp_path / "c.pt"
    path.write_bytes(write(b"\x80\x02" + pickled + b"."))
    with pytest.raises(UserError, match=rf"c.pt was refused: .*{problem} \(nothing in the file was run\)"):
        load_plain(path)


@pytest.mark.parametrize("pickled", [b"\x80\x02.", b"\x80\x02t.", b"\x80\x02h\x05.", b"\x80\x02](K\x01", b"\x80\x02u."])
def test_a_damaged_pickle(pickled):
    with pytest.raises((ValueError, LookupError)):
        check_pickle(io.BytesIO(pickled))


def test_plain_data_is_read(tmp_path, monkeypatch):
    shared = [1, 2.5, None, True, "x", b"y", (3, 4), -(2**63), 2**63]
    state = {"a": {1: shared, 2.0: shared}, "b": [shared] * 9, "weights": torch.nn.Linear(3, 2).state_dict()}
    for zipped in (True, False):
        torch.save(state, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
        found = load_plain(tmp_path / "c.pt")
        assert found["a"] == state["a"] and found["b"] == state["b"]
        assert torch.equal(found["weights"]["bias"], state["weights"]["bias"])
    monkeypatch.setattr(bounds, "MOST_INSTRUCTIONS", 50)
    with pytest.raises(UserError, match="more than 50 values"):
        load_plain(tmp_path / "c.pt")
