"""Checkpoints: only plain data is read, files appear whole or not at all, mistakes are told in one sentence."""

import argparse
import errno
import gc
import io
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import iterators
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.file_io import PathManager
from omegaconf import OmegaConf

import fairseq_xl
from fairseq_xl import compat, error_reporting
from fairseq_xl.compat import save_dir, training
from fairseq_xl.compat.configuration import is_finite
from fairseq_xl.errors import UserError
from preprocess import files as files_of_text


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


def checkpoint(**more):
    return {
        "args": None,
        "cfg": {"task": {"_name": "xl_translation"}},
        "model": {"weight": torch.arange(4.0)},
        "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        **more,
    }


def one_sentence(error, *names):
    message = str(error.value)
    words = message
    for name in names:
        words = words.replace(str(name), "")  # a folder's path may have any length
    assert "\n" not in message and len(words) < 400
    for name in names:
        assert str(name) in message
    return message


def test_a_checkpoint_loads(tmp_path):
    torch.save(checkpoint(), tmp_path / "good.pt")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "good.pt"))
    assert torch.equal(state["model"]["weight"], torch.arange(4.0))
    assert state["cfg"].task._name == "xl_translation"


READERS = {
    "load_checkpoint_to_cpu": lambda path: checkpoint_utils.load_checkpoint_to_cpu(path),
    "generate": lambda path: checkpoint_utils.load_model_ensemble([path]),
    "ema": lambda path: checkpoint_utils.load_ema_from_checkpoint(path),
    "load_checkpoint": lambda path: compat.load_checkpoint(path),
    "load_plain": lambda path: compat.load_plain(path),
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


def test_fairseq_cannot_turn_the_check_off(tmp_path):
    """fairseq's main branch asks for weights_only=False."""
    torch.save(checkpoint(trap=MakesFolder(tmp_path / "made")), tmp_path / "hostile.pt")
    with open(tmp_path / "hostile.pt", "rb") as stream, pytest.raises(UserError):
        checkpoint_utils.torch.load(stream, map_location="cpu", weights_only=False)
    assert not (tmp_path / "made").exists()


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


@pytest.mark.parametrize(
    "write",
    [
        write_truncated,
        write_old_truncated,
        lambda path: path.write_text("the cat\nsat on the mat\n" * 30),
        lambda path: path.write_text("Hello.\n"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(pickle.dumps([1, 2])),
        lambda path: torch.save([1, 2], path),
        lambda path: torch.save(torch.zeros(3), path),
        lambda path: torch.save({"weight": torch.zeros(3)}, path),
        lambda path: torch.save({"model": {"weight": torch.zeros(3)}}, path),
        lambda path: path.mkdir(),
        lambda path: None,
    ],
    ids="truncated truncated-legacy text sentence empty pickle list tensor weights no-history folder missing".split(),
)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_what_is_no_checkpoint_is_told_in_one_sentence(tmp_path, write):
    path = tmp_path / "c.pt"
    write(path)
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "weights_only" not in one_sentence(error, path)


def test_missing_model_of_generate(tmp_path):
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_model_ensemble([str(tmp_path / "none.pt")])
    one_sentence(error, tmp_path / "none.pt")


def trainer(loaded):
    def load_checkpoint(path, *args, **kwargs):
        loaded.append(path)

    iterator = SimpleNamespace(epoch=1)
    return SimpleNamespace(
        checkpoint_suffix="",
        task=None,
        cfg=SimpleNamespace(
            optimization=SimpleNamespace(max_update=0),
            checkpoint=SimpleNamespace(patience=-1, no_save=True),
        ),
        get_num_updates=lambda: 0,
        load_checkpoint=load_checkpoint,
        get_train_iterator=lambda **kwargs: iterator,
        lr_step=lambda epoch: None,
    )


def restore(folder, file="checkpoint_last.pt", finetune=None):
    return SimpleNamespace(
        save_dir=str(folder),
        restore_file=file,
        finetune_from_model=finetune,
        continue_once=None,
        no_save=False,
        reset_optimizer=False,
        reset_lr_scheduler=False,
        reset_meters=False,
        reset_dataloader=False,
        optimizer_overrides="{}",
    )


def test_a_missing_restore_file_does_not_train_from_scratch(tmp_path):
    loaded = []
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint(restore(tmp_path, str(tmp_path / "none.pt")), trainer(loaded))
    one_sentence(error, "--restore-file", tmp_path / "none.pt")
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint(restore(tmp_path, finetune=str(tmp_path / "none.pt")), trainer(loaded))
    one_sentence(error, "--finetune-from-model", tmp_path / "none.pt")
    assert not loaded


def test_a_first_launch_starts_without_a_checkpoint(tmp_path):
    loaded = []
    for file in ("checkpoint_last.pt", str(tmp_path / "checkpoint_last.pt")):
        checkpoint_utils.load_checkpoint(restore(tmp_path, file), trainer(loaded))
    assert loaded == [str(tmp_path / "checkpoint_last.pt")] * 2


LEFT = ["checkpoint_1_20.pt", "checkpoint_best.pt", "checkpoint3.pt", "checkpoint.best_ppl_3.1250.pt"]


@pytest.mark.parametrize("left", LEFT)
def test_without_the_last_checkpoint_the_newest_one_is_named(tmp_path, left):
    for age, name in enumerate((left, "checkpoint_2_10.pt", "checkpoint_9_90-1.pt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    for more in ({}, {"finetune": str(tmp_path / "model.pt")}):
        with pytest.raises(UserError) as error:
            save_dir.check_last_checkpoint(restore(tmp_path, **more), "")
        one_sentence(error, tmp_path / "checkpoint_last.pt", f"--restore-file {tmp_path / left}", "an empty --save-dir")
    save_dir.check_last_checkpoint(restore(tmp_path, str(tmp_path / left)), "")
    save_dir.check_last_checkpoint(restore(tmp_path / "none"), "")
    with pytest.raises(UserError, match="checkpoint_last-1.pt is missing.*checkpoint_9_90-1.pt"):
        save_dir.check_last_checkpoint(restore(tmp_path), "-1")
    (tmp_path / "checkpoint_last.pt").touch()
    save_dir.check_last_checkpoint(restore(tmp_path), "")


def test_training_may_begin_beside_what_it_does_not_overwrite(tmp_path):
    for name in ("crash.pt", "model.pt", "checkpoint_average.pt"):
        (tmp_path / name).touch()
    save_dir.check_last_checkpoint(restore(tmp_path), "")
    (tmp_path / "checkpoint_best.pt").touch()
    save_dir.check_last_checkpoint(restore(tmp_path, finetune=str(tmp_path / "checkpoint_best.pt")), "")


def of_rank(rank, folder, no_save=False):
    cfg = {"checkpoint": {"save_dir": str(folder), "no_save": no_save}}
    return SimpleNamespace(cfg=OmegaConf.create(cfg | {"distributed_training": {"distributed_rank": rank}}))


def elsewhere(call):
    """Exit status of `call` in another process: 0, or 1 if it ends in a `UserError`."""

    def run():
        try:
            call()
        except UserError:
            os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return process.exitcode


def test_one_training_saves_in_a_folder_and_lets_go_of_it_at_its_end(tmp_path):
    first = of_rank(0, tmp_path)
    save_dir.lock(first)
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path))) == 1
    assert elsewhere(lambda: save_dir.lock(of_rank(1, tmp_path))) == 0  # a rank of the same run
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path, no_save=True))) == 0
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path / "other"))) == 0
    assert (tmp_path / save_dir.LOCK).read_text().startswith(f"process {os.getpid()} on ")
    del first
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path))) == 0


def test_the_lock_is_no_link_to_another_file(tmp_path):
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / save_dir.LOCK).symlink_to(other)
    with pytest.raises(UserError, match=f"{save_dir.LOCK} cannot be opened to lock --save-dir"):
        save_dir.lock(of_rank(0, tmp_path))
    assert other.read_text() == "kept"


def test_a_folder_that_cannot_be_locked_is_a_warning(tmp_path, monkeypatch, caplog):
    def lockf(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(save_dir.fcntl, "lockf", lockf)
    save_dir.lock(of_rank(0, tmp_path))
    assert f"--save-dir {tmp_path} cannot be locked (No locks available)" in caplog.text


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_that_are_not_finite_are_found(kind):
    for wrong in (math.nan, math.inf, -math.inf):
        assert not is_finite(torch.tensor([[1.0, wrong], [0.0, 2.0]], dtype=kind))
    assert is_finite(torch.tensor([torch.finfo(kind).min, torch.finfo(kind).max], dtype=kind))
    assert is_finite(torch.ones((), dtype=kind)) and is_finite(torch.empty(0, dtype=kind))


def test_an_explosion_in_a_task_of_fairseqs(tmp_path):
    def step(self, samples, raise_oom):
        raise FloatingPointError("gradients are Nan/Inf")

    cfg = SimpleNamespace(checkpoint=SimpleNamespace(save_dir=str(tmp_path)))
    trainer = SimpleNamespace(task=object(), get_num_updates=lambda: 4, checkpoint_suffix="", cfg=cfg)
    with pytest.raises(UserError, match="^update 5: gradients are NaN or infinite; no checkpoint has been saved"):
        training._report_divergence(step)(trainer, [{"net_input": {}}])


def reread(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return compat.load_plain(buffer)


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
    assert compat.load_plain(path) == {"best": 2.5}


def test_what_ranks_send_each_other_is_plain_data():
    config = OmegaConf.create({"a": [1, "x", None], "b": {"c": 2.0}}, flags={"allow_objects": True})
    assert reread(config) == config
    assert reread({"weight": _TensorPlaceholder(3)}) == {"weight": _TensorPlaceholder(3)}


def test_legacy_options_are_plain_data():
    assert reread(argparse.Namespace(arch="x", lr=[0.1])) == argparse.Namespace(arch="x", lr=[0.1])


WRITERS = {
    "copy": "PathManager.copy(source, target, overwrite=True)",
    "save": "checkpoint_utils.torch_persistent_save(torch.load(source), target)",
}


def run_writer(writer, source, target, before):
    program = f"""
import os, resource, sys, torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq_xl import compat
compat.install()
source, target = sys.argv[1:]
{before}
{WRITERS[writer]}
"""
    command = [sys.executable, "-c", program, str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "new.pt", tmp_path / "checkpoint_last.pt"
    torch.save(checkpoint(big=torch.ones(100_000)), source)
    target.write_bytes(b"the old one")
    return source, target


@pytest.mark.parametrize("writer", WRITERS)
def test_a_kill_before_the_end_keeps_the_old_file(files, writer):
    source, target = files
    result = run_writer(writer, source, target, "os.replace = lambda *names: os._exit(9)")
    assert result.returncode == 9, result.stderr
    assert target.read_bytes() == b"the old one"
    # What the kill left behind does not stop the next attempt.
    PathManager.copy(str(source), str(target), overwrite=True)
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
@pytest.mark.parametrize("writing", [lambda path: compat.replacing(path), lambda path: files_of_text.replacing(path)])
def test_what_has_the_name_of_the_unfinished_file_is_not_followed(tmp_path, planted, writing):
    victim, path = tmp_path / "victim", tmp_path / "c.pt"
    victim.write_bytes(b"someone's")
    PLANTED[planted](tmp_path / "c.pt.tmp", victim)
    with writing(path) as stream:
        stream.write(b"whole")
    assert victim.read_bytes() == b"someone's" and path.read_bytes() == b"whole"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c.pt", "victim"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_name_that_is_taken_again_while_a_file_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "unlink", lambda path: None)  # as if the link came back at once
    (tmp_path / "c.pt.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError) as error, compat.replacing(tmp_path / "c.pt"):
        pass
    one_sentence(error, tmp_path / "c.pt", "was not written: File exists")
    assert not (tmp_path / "victim").exists()


def test_trying_the_save_dir_empties_no_file(tmp_path):
    (tmp_path / "victim").write_bytes(b"someone's")
    (tmp_path / "dummy").symlink_to(tmp_path / "victim")
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path))
    assert (tmp_path / "victim").read_bytes() == b"someone's" and (tmp_path / "dummy").is_symlink()
    checkpoint_utils.verify_checkpoint_directory(str(tmp_path / "new" / "folder"))
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_gives_one_sentence_and_keeps_the_old_file(files, writer):
    """A limit on the size of files stands for the disk: writing fails in the middle in the same way."""
    source, target = files
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))"
    result = run_writer(writer, source, target, limit)
    assert result.returncode == 1
    shown = [line for line in result.stderr.splitlines() if "tensorboardX" not in line]
    assert len(shown) == 1 and shown[0].startswith(f"fairseq_xl: error: {target} was not written"), result.stderr
    assert "no room" in shown[0]
    assert target.read_bytes() == b"the old one"
    assert sorted(path.name for path in target.parent.iterdir()) == ["checkpoint_last.pt", "new.pt"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota(files, monkeypatch, code):
    source, target = files

    def full(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    for write in (
        lambda: PathManager.copy(str(source), str(target), overwrite=True),
        lambda: checkpoint_utils.torch_persistent_save(checkpoint(), str(target)),
    ):
        with pytest.raises(UserError) as error:
            write()
        one_sentence(error, target, "no room", "previous file is kept")
        assert target.read_bytes() == b"the old one"


def test_copies_are_synced_before_they_take_the_place(files, monkeypatch):
    source, target = files
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("sync"), sync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace(*names)))
    assert PathManager.copy(str(source), str(target), overwrite=True)
    assert calls == ["sync", "replace", "sync"]  # the file, then the name, then the folder
    assert target.read_bytes() == source.read_bytes()


def test_a_passing_failure_is_tried_again_on_a_fresh_file(tmp_path, monkeypatch):
    save, failures = torch.save, [OSError(errno.EIO, "passing")]

    def unreliable(obj, stream):
        if failures:
            stream.write(b"half of a checkpoint")
            raise failures.pop()
        save(obj, stream)

    monkeypatch.setattr(torch, "save", unreliable)
    monkeypatch.setattr(compat.saving, "SECONDS_BETWEEN_ATTEMPTS", 0)
    path = str(tmp_path / "c.pt")
    checkpoint_utils.torch_persistent_save(checkpoint(), path)
    assert not failures and Path(path).read_bytes()[:2] == b"PK"
    failures.extend(OSError(errno.EIO, "lasting") for _ in range(compat.saving.SAVE_ATTEMPTS))
    with pytest.raises(OSError, match="lasting"):
        checkpoint_utils.torch_persistent_save(checkpoint(), path)


def test_installing_twice_changes_nothing():
    patched = [PathManager.copy, checkpoint_utils.torch_persistent_save, checkpoint_utils.load_checkpoint_to_cpu]
    hook = sys.excepthook
    compat.install()
    again = [PathManager.copy, checkpoint_utils.torch_persistent_save, checkpoint_utils.load_checkpoint_to_cpu]
    assert patched == again and sys.excepthook is hook


def test_only_mistakes_lose_their_traceback(capsys):
    others = []
    show = error_reporting.showing_messages(lambda *error: others.append(error))
    show(UserError, UserError("--data x does not exist"), None)
    assert capsys.readouterr().err == "fairseq_xl: error: --data x does not exist\n"
    defect = ValueError("a defect")
    show(ValueError, defect, None)
    assert others == [(ValueError, defect, None)]


def test_a_mistake_in_a_spawned_rank_is_one_sentence_too(capsys):
    others = []
    show = error_reporting.showing_messages(lambda *error: others.append(error))
    raised = torch.multiprocessing.ProcessRaisedException
    text = "-- Process 0 terminated\nTraceback (most recent call last):\n  File ...\n{}: wrong file\n"
    told, defect = (raised(text.format(name), 0, 1) for name in ("fairseq_xl.errors.UserError", "ValueError"))
    show(raised, told, None)
    show(raised, defect, None)
    assert capsys.readouterr().err == "fairseq_xl: error: wrong file\n"
    assert others == [(raised, defect, None)]


def test_workers_end_with_the_last_batch():
    """Those of a DataLoader that the garbage collector finds first are waited for five seconds each."""
    loader = iterators.torch.utils.data.DataLoader([0, 1, 2], num_workers=2)
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        buffered = iterators.BufferedIterator(2, loader)
        batches = iterators.CountingIterator(buffered)  # which refers to itself
        assert len(list(itertools.islice(batches, 3))) == 3  # as many as there are: the end is not asked for
        buffered._consumer.join()
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


def test_workers_outlive_a_signal_from_their_start(monkeypatch):
    """One to the whole process group, such as the end of a job, may come before a worker can ignore it."""
    prepare = torch.utils.data._utils.signal_handling._set_worker_signal_handlers

    def signaled():  # the first that a worker does
        prepare()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_set_worker_signal_handlers", signaled)
    assert list(iterators.torch.utils.data.DataLoader([0, 1, 2], num_workers=1)) == [0, 1, 2]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])  # here they are not blocked


def test_python_ends_while_a_thread_reads_ahead():
    """A thread that wakes up inside torch after Python's end would abort the process: status -6, not 0."""
    code = """
import sys, time, torch
from fairseq.data.iterators import BufferedIterator
if "adapted" in sys.argv:
    import fairseq_xl
    fairseq_xl.register()
class Endless:
    def __len__(self):
        return sys.maxsize
    def __iter__(self):
        batch = torch.zeros(300, 300)
        while True:
            batch = batch @ batch
            yield None
class LongEnd:
    sleep = time.sleep
    def __del__(self):
        self.sleep(0.5)
long_end = LongEnd()
next(BufferedIterator(sys.maxsize, Endless()))
"""

    def status(*arguments):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True).returncode

    assert status("adapted") == 0
    if sys.version_info < (3, 14):
        assert status() == -6  # a later Python leaves such threads asleep


def test_no_ngram_is_written_twice():
    """In fairseq's buffer, which is padded: after a b c b, c is forbidden, and after a a a, a."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    tokens = torch.tensor([[2, 5, 6, 7, 6, 1, 1, 1], [2, 8, 5, 5, 5, 1, 1, 1], [2, 5, 6, 7, 8, 1, 1, 1]])
    scores = NGramRepeatBlock(2)(tokens, torch.zeros(3, 9), bsz=3, beam_size=1, step=4)
    assert [(row == -math.inf).nonzero().flatten().tolist() for row in scores] == [[7], [5], []]


def test_versions_name_what_is_installed():
    versions = compat.versions()
    assert versions["torch"] == torch.__version__ and versions["numpy"] == numpy.__version__
    assert versions["python"] == sys.version.split()[0]
    packages = {"sentencepiece", "sacrebleu", "sacremoses", "rouge-score", "py3langid"}
    assert set(versions) == {"python", "fairseq", "torch", "numpy", *packages}
    assert versions["fairseq"]
