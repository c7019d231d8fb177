"""Checkpoints are read as plain data only; what is none, or would take for ever, is refused in one sentence."""

import argparse
import collections
import functools
import io
import math
import pickle
import zipfile

import numpy
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models.ema.ema import EMA
from omegaconf import OmegaConf

import fairseq_xl
from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.checkpoints import check_pickle, is_finite, load_plain
from tests.bad_input.builders import MakesFolder
from tests.io.builders import checkpoint, one_sentence

# (), then a pair of the last value twice, and so on
DOUBLED = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
# [], 60 times; then each gets the next one twice: an item is counted when it is empty
LISTS = b"".join(b"]q%c" % number for number in range(60))
LISTS += b"".join(b"h%c(h%ch%ce" % (number, number + 1, number + 1) for number in range(59))
SAME_HASH = b"".join(b"\x8a\x0e" + ((2**61 - 1) * (2**40 + each)).to_bytes(14, "little") + b"N" for each in range(9))

# 170 keys, none the next one of that before
NUMBERS = b"".join(b"J" + (each * 8191).to_bytes(4, "little") + b"Ns" for each in range(170))
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"


@pytest.fixture(autouse=True, scope="module")
def installed():
    fairseq_xl.register()


class Unlisted:
    pass


def test_a_checkpoint_loads(tmp_path):
    torch.save(checkpoint(), tmp_path / "good.pt")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "good.pt"))
    assert torch.equal(state["model"]["weight"], torch.arange(4.0))
    assert state["cfg"].task._name == "xl_translation"


def seeded_by(path):
    """The configuration of a training with --ema-seed-model."""
    line = ["DATA", "--task", "translation", "--arch", "transformer", "--store-ema", "--ema-seed-model", path]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), line))


def read_seed(cfg):
    """What fairseq's training does with the file."""
    EMA(torch.nn.Linear(1, 1), cfg.ema)


#: tests/bad_input/test_bad_input_configurations.py has the other ways to read a checkpoint
READERS = {
    "ema": lambda path: distributed_utils.call_main(seeded_by(path), read_seed),
    "load_plain": load_plain,
    "load_plain, mapped": lambda path: load_plain(path, mapped=True),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_hostile_checkpoint_is_refused_and_not_run(tmp_path, monkeypatch, reader, zipped):
    made, path = tmp_path / "made", str(tmp_path / "hostile.pt")
    torch.save(checkpoint(trap=MakesFolder(made)), path, _use_new_zipfile_serialization=zipped)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # must not open the door
    with pytest.raises(UserError) as error:
        READERS[reader](path)
    one_sentence(error, path, "mkdir")
    assert not made.exists()
    torch.load(path, weights_only=False)
    assert made.exists()  # it would act


def test_an_unknown_class_is_named(tmp_path):
    torch.save(checkpoint(thing=Unlisted()), tmp_path / "c.pt")
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "c.pt"))
    one_sentence(error, tmp_path / "c.pt", "Unlisted")


def with_bytes(change, zipped=True):
    """Writes a checkpoint of other bytes."""

    def write(path):
        torch.save(checkpoint(big=torch.zeros(5000)), path, _use_new_zipfile_serialization=zipped)
        path.write_bytes(change(path.read_bytes()))

    return write


def saved(content):
    return lambda path: torch.save(content, path)


def compressed(path):
    torch.save(checkpoint(big=torch.zeros(5000)), path)
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)


NESTED = functools.reduce(lambda inner, _: {"inner": inner}, range(100), {})
DAMAGED, FOREIGN = "is not a checkpoint, or it is damaged or cut short", "is not a fairseq checkpoint"
#: name -> (what writes the file, part of the sentence)
NO_CHECKPOINT = {
    "cut in the middle": (with_bytes(lambda raw: raw[: len(raw) // 2]), DAMAGED),
    "cut in the middle, earlier format": (with_bytes(lambda raw: raw[: len(raw) // 2], zipped=False), DAMAGED),
    "without its last bytes": (with_bytes(lambda raw: raw[:-10]), DAMAGED),
    "zeros in the middle": (with_bytes(lambda raw: raw[:9000] + bytes([1]) + raw[9001:]), "another checksum"),
    "zeros only": (with_bytes(lambda raw: bytes(len(raw))), DAMAGED),
    "more": (with_bytes(lambda raw: raw + b"x"), "before or after its content"),
    "more zeros": (with_bytes(lambda raw: raw + bytes(30)), "before or after its content"),
    "more, earlier format": (with_bytes(lambda raw: raw + b"x", zipped=False), "other bytes stand after its content"),
    "more before": (with_bytes(lambda raw: b"PK\x03\x04x" + raw), "before or after its content"),
    "text": (lambda path: path.write_text("the cat\nsat on the mat\n" * 30), DAMAGED),
    "a sentence": (lambda path: path.write_text("Hello.\n"), DAMAGED),
    "empty": (lambda path: path.write_bytes(b""), "(it is empty)"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps([1, 2])), DAMAGED),
    "compressed": (compressed, "bytes declare"),
    "a list": (saved([1, 2]), FOREIGN),
    "a tensor": (saved(torch.zeros(3)), FOREIGN),
    "weights": (saved({"weight": torch.zeros(3)}), FOREIGN),
    "without history": (saved({"model": {"weight": torch.zeros(3)}}), FOREIGN),
    "numbers as names": (saved(checkpoint(model={7: torch.zeros(3)})), FOREIGN),
    "a sparse table": (saved(checkpoint(model={"weight": torch.zeros(5, 4).to_sparse()})), "weight' is a sparse"),
    "a table of one number": (saved(checkpoint(big=torch.zeros(1, 1).expand(10**6, 10**6))), "(1000000, 1000000)"),
    "complex numbers": (saved(checkpoint(big=torch.zeros(3, dtype=torch.complex64))), "torch.complex64"),
    "nested": (saved(checkpoint(nested=NESTED)), "nested more than"),
    "half of a character": (saved(checkpoint(cfg={"task": {"data": "\ud800"}})), "'cfg.task.data' is text"),
    "a folder": (lambda path: path.mkdir(), "cannot be read"),
    "missing": (lambda path: None, "cannot be read"),
}


@pytest.mark.parametrize("name", NO_CHECKPOINT)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_what_is_no_checkpoint_is_reported_in_one_sentence(tmp_path, name):
    path, (write, part) = tmp_path / "c.pt", NO_CHECKPOINT[name]
    write(path)
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "weights_only" not in one_sentence(error, path, part)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_that_are_not_finite_are_found(kind):
    for wrong in (math.nan, math.inf, -math.inf):
        assert not is_finite(torch.tensor([[1.0, wrong], [0.0, 2.0]], dtype=kind))
    assert is_finite(torch.tensor([torch.finfo(kind).min, torch.finfo(kind).max], dtype=kind))
    assert is_finite(torch.ones((), dtype=kind)) and is_finite(torch.empty(0, dtype=kind))


def reread(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return load_plain(buffer)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "bool"])
def test_numpy_numbers_and_arrays_are_plain_data(dtype):
    array = numpy.array([[0, 1], [1, 0]], dtype=dtype)
    numpy.testing.assert_array_equal(reread(array), array)
    assert reread(array[0, 1]) == array[0, 1] and reread(array[0, 1]).dtype == array.dtype


@pytest.mark.parametrize("core", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numpy_numbers_of_the_other_numpy_are_read(tmp_path, core):
    path = tmp_path / "scalar.pt"
    torch.save({"best": numpy.float64(2.5)}, path, _use_new_zipfile_serialization=False)
    written = b"c" + numpy.float64(0).__reduce__()[0].__module__.encode() + b"\nscalar\n"
    content = path.read_bytes()
    assert content.count(written) == 1
    path.write_bytes(content.replace(written, b"c" + core + b"\nscalar\n"))
    assert load_plain(path) == {"best": 2.5}


def test_configurations_and_legacy_options_are_plain_data():
    config = OmegaConf.create({"a": [1, "x", None], "b": {"c": 2.0}}, flags={"allow_objects": True})
    for data in (config, argparse.Namespace(arch="x", lr=[0.1])):
        assert reread(data) == data


def test_data_beside_tensors_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "LARGEST_STRUCTURE", 1000)
    torch.save({"model": torch.zeros(1000)}, tmp_path / "a.pt")
    assert load_plain(tmp_path / "a.pt")["model"].shape == (1000,)
    torch.save({"model": {f"{number}": number for number in range(1000)}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"a.pt was refused: it has [\d,]+ bytes beside its tensors' values"):
        load_plain(tmp_path / "a.pt")


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
    "pickled, problem",
    [
        (b"}" + DOUBLED + b"Ns", "more than 16,000 values"),
        (b"}(" + SAME_HASH + b"u", "an integer of more than 64 bits"),
        (b"})Ns", "a key that is neither text, a number nor a tuple of texts"),
        (b"ccollections\nOrderedDict\n](N)\x86e\x85R", "a call of collections OrderedDict with values"),
        (b"c__builtin__\nset\n](Ne\x85R", "a call of __builtin__ set with values"),
        (b"}" + NUMBERS, "more than 16,000 values"),
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
        (b"(" + LISTS + b"t", "a part of more than 16,000 values"),
        (b"](" + b"N" * 16_001 + b"e", "more than 16,000 values"),
        (b"]q\x00(h\x00e", "data that is nested more than 50 times"),
    ],
    ids=(
        "doubled integers key pairs set numbers attributes copies memory values size storage array encoding type "
        "function class lists many itself"
    ).split(),
)
def test_work_is_bounded(tmp_path, monkeypatch, pickled, problem):
    monkeypatch.setattr(bounds, "MOST_INSTRUCTIONS", 16_000)
    path = tmp_path / "c.pt"
    path.write_bytes(in_zip(b"\x80\x02" + pickled + b".", "data.pkl"))
    with pytest.raises(UserError, match=rf"c.pt was refused: .*{problem} \(nothing in the file was run\)"):
        load_plain(path)


@pytest.mark.parametrize("write", [lambda each: in_zip(each, "DATA.PKL"), in_earlier_format])
def test_work_is_bounded_in_all_formats(tmp_path, write):
    path = tmp_path / "c.pt"
    path.write_bytes(write(b"\x80\x02}" + DOUBLED + b"Ns."))
    with pytest.raises(
        UserError, match=r"c.pt was refused: .*more than 1,600,000 values \(nothing in the file was run"
    ):
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
