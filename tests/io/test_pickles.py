"""Pickles on which torch would work for ever: small ones, in all three forms of a file."""

import argparse
import collections
import io
import pickle
import zipfile

import numpy
import pytest
import torch

from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.checkpoints import check_pickle, load_plain

# (), then a pair of the last value twice, and so on
DOUBLED = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
# [], 60 times; then each gets the next one twice: an item is counted when it is empty
LISTS = b"".join(b"]q%c" % number for number in range(60))
LISTS += b"".join(b"h%c(h%ch%ce" % (number, number + 1, number + 1) for number in range(59))
SAME_HASH = b"".join(b"\x8a\x0e" + ((2**61 - 1) * (2**40 + each)).to_bytes(14, "little") + b"N" for each in range(9))

# 17,000 keys, none the next one of that before
NUMBERS = b"".join(b"J" + (each * 8191).to_bytes(4, "little") + b"Ns" for each in range(17_000))
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"


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
        (b"}" + DOUBLED + b"Ns", "more than 1,600,000 values"),
        (b"}(" + SAME_HASH + b"u", "an integer of more than 64 bits"),
        (b"})Ns", "a key that is neither text, a number nor a tuple of texts"),
        (b"ccollections\nOrderedDict\n](N)\x86e\x85R", "a call of collections OrderedDict with values"),
        (b"c__builtin__\nset\n](Ne\x85R", "a call of __builtin__ set with values"),
        (b"}" + NUMBERS, "more than 1,600,000 values"),
        (b"ccollections\nOrderedDict\n)R](](NNeeb", "an object whose attributes are no dict"),
        (b"c__builtin__\nlist\n]\x85R", "a call of __builtin__ list with values"),
        (b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R", "a call of __builtin__ bytearray with values"),
        (b"ctorch\nTensor\nJ\xff\xff\xff\x3f\x85R", "a call of torch Tensor with values"),
        (b"ctorch\nSize\n]\x85R", "a call of torch Size with values"),
        (b"ctorch\nSize\n)Q\x85R", "a call of torch Size with values"),
        (RECONSTRUCT + b"cnumpy\nndarray\nM\xff\xff\x85U\x01b\x87R", "a call of .*_reconstruct with values"),
        (b"c_codecs\nencode\nU\x01aU\x05utf32\x86R", "a call of _codecs encode with values"),
        (b"cnumpy\ndtype\nX\x96\x00\x00\x00" + b"f8," * 50 + b"\x85R", "a call of numpy dtype with values"),
        (b"(" + LISTS + b"h\x00)R", "a call of what is no function"),
        (b"(" + LISTS + b"h\x00)\x81", "a call of what is no function"),
        (b"(" + LISTS + b"t", "a part of more than 1,600,000 values"),
        (b"](" + b"N" * 1_600_001 + b"e", "more than 1,600,000 values"),
        (b"]q\x00(h\x00e", "data that is nested more than 50 times"),
    ],
    ids=(
        "doubled integers key pairs set numbers attributes copies memory values size storage array encoding type "
        "function class lists many itself"
    ).split(),
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
    shared = [1, 2.5, None, True, "x", b"y\xff", (3, 4), -(2**63), 2**63, torch.Size((2, 3)), numpy.float64(3)]
    shared += [argparse.Namespace(x=1), collections.defaultdict(list), torch.float16, torch.device("cpu")]
    keys = {1: shared, 2.0: shared, ("de", "en"): {"train": ("de", "en")}}  # XLM's data of pairs
    state = {"a": keys, "b": [shared] * 9, "weights": torch.nn.Linear(3, 2).state_dict()}
    for zipped in (True, False):
        torch.save(state, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
        found = load_plain(tmp_path / "c.pt")
        assert found["a"] == state["a"] and found["b"] == state["b"]
        assert torch.equal(found["weights"]["bias"], state["weights"]["bias"])
    monkeypatch.setattr(bounds, "MOST_INSTRUCTIONS", 50)
    with pytest.raises(UserError, match="more than 50 values"):
        load_plain(tmp_path / "c.pt")


def test_the_vocabulary_of_xlm_100_is_read():
    words = [f"w{number}" for number in range(200_000)]
    numbers = dict(zip(words, range(200_000)))
    content = {"dico_id2word": dict(enumerate(words)), "dico_word2id": numbers, "dico_counts": dict.fromkeys(words, 1)}
    check_pickle(io.BytesIO(pickle.dumps(content, protocol=2)))
