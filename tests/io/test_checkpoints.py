"""Checkpoints are read as plain data only; what is none is refused in one sentence."""

import argparse
import io
import math
import os
import pickle

import numpy
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models.ema.ema import EMA
from omegaconf import OmegaConf

import fairseq_xl
from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.errors import UserError
from fairseq_xl.io import bounds
from fairseq_xl.io.checkpoints import is_finite, load_plain
from tests.io.builders import checkpoint, one_sentence


@pytest.fixture(autouse=True, scope="module")
def installed():
    fairseq_xl.register()


class MakesFolder:
    """Unpickled by a reader that runs what a file says, this makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


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


READERS = {
    "load_checkpoint_to_cpu": lambda path: checkpoint_utils.load_checkpoint_to_cpu(path),
    "generate": lambda path: checkpoint_utils.load_model_ensemble([path]),
    "ema": lambda path: distributed_utils.call_main(seeded_by(path), read_seed),
    "open_checkpoint": open_checkpoint,
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


def test_the_hostile_checkpoint_would_act(tmp_path):
    torch.save(checkpoint(trap=MakesFolder(tmp_path / "made")), tmp_path / "hostile.pt")
    torch.load(tmp_path / "hostile.pt", weights_only=False)
    assert (tmp_path / "made").exists()


def test_an_unknown_class_is_named(tmp_path):
    torch.save(checkpoint(thing=Unlisted()), tmp_path / "c.pt")
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "c.pt"))
    one_sentence(error, tmp_path / "c.pt", "Unlisted")


def write_truncated(path):
    torch.save(checkpoint(big=torch.zeros(5000)), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def write_old_truncated(path):
    torch.save(checkpoint(big=torch.zeros(5000)), path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def write_with_more(path, before=b"", behind=b"", zipped=True):
    torch.save(checkpoint(big=torch.zeros(5000)), path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(before + path.read_bytes() + behind)


@pytest.mark.parametrize(
    "write",
    [
        write_truncated,
        write_old_truncated,
        lambda path: write_with_more(path, behind=b"x"),
        lambda path: write_with_more(path, behind=bytes(30)),
        lambda path: write_with_more(path, behind=b"x", zipped=False),
        lambda path: write_with_more(path, before=b"PK\x03\x04x"),
        lambda path: path.write_text("the cat\nsat on the mat\n" * 30),
        lambda path: path.write_text("Hello.\n"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(pickle.dumps([1, 2])),
        lambda path: torch.save([1, 2], path),
        lambda path: torch.save(torch.zeros(3), path),
        lambda path: torch.save({"weight": torch.zeros(3)}, path),
        lambda path: torch.save({"model": {"weight": torch.zeros(3)}}, path),
        lambda path: torch.save(checkpoint(model={7: torch.zeros(3)}), path),
        lambda path: path.mkdir(),
        lambda path: None,
    ],
    ids=(
        "truncated truncated-legacy more zeros more-legacy before text sentence empty pickle list tensor weights "
        "no-history no-names folder missing"
    ).split(),
)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_what_is_no_checkpoint_is_reported_in_one_sentence(tmp_path, write):
    path = tmp_path / "c.pt"
    write(path)
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "weights_only" not in one_sentence(error, path)


def test_missing_model_of_generate(tmp_path):
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_model_ensemble([str(tmp_path / "none.pt")])
    one_sentence(error, tmp_path / "none.pt")


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


def test_configurations_are_plain_data():
    config = OmegaConf.create({"a": [1, "x", None], "b": {"c": 2.0}}, flags={"allow_objects": True})
    assert reread(config) == config


def test_legacy_options_are_plain_data():
    assert reread(argparse.Namespace(arch="x", lr=[0.1])) == argparse.Namespace(arch="x", lr=[0.1])


def test_data_beside_tensors_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "LARGEST_STRUCTURE", 1000)
    torch.save({"model": torch.zeros(1000)}, tmp_path / "a.pt")
    assert load_plain(tmp_path / "a.pt")["model"].shape == (1000,)
    torch.save({"model": {f"{number}": number for number in range(1000)}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"a.pt was refused: it has [\d,]+ bytes beside its tensors' values"):
        load_plain(tmp_path / "a.pt")
