"""--save-dir: one training at a time, and none from scratch over existing checkpoints."""

import errno
import multiprocessing
import os

import pytest
from omegaconf import OmegaConf

from fairseq_xl.engine import save_dir
from fairseq_xl.errors import UserError
from tests.io.builders import one_sentence


def restore(folder, file="checkpoint_last.pt", finetune=None, suffix=""):
    resets = dict.fromkeys(("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader"), False)
    files = dict(save_dir=str(folder), restore_file=file, finetune_from_model=finetune, continue_once=None)
    return files | resets | dict(no_save=False, checkpoint_suffix=suffix, optimizer_overrides="{}")


def chosen(cfg):
    """The checkpoint that a run restores."""
    return save_dir.choose_checkpoint(OmegaConf.create(cfg))[0]


def test_a_first_launch_starts_without_a_checkpoint(tmp_path):
    for file in ("checkpoint_last.pt", str(tmp_path / "checkpoint_last.pt")):
        assert chosen(restore(tmp_path, file)) == str(tmp_path / "checkpoint_last.pt")


LEFT = ["checkpoint_1_20.pt", "checkpoint_best.pt", "checkpoint3.pt", "checkpoint.best_ppl_3.1250.pt"]


@pytest.mark.parametrize("left", LEFT)
def test_without_the_last_checkpoint_the_newest_one_is_named(tmp_path, left):
    for age, name in enumerate((left, "checkpoint_2_10.pt", "checkpoint_9_90-1.pt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    for more in ({}, {"finetune": str(tmp_path / "model.pt")}):
        with pytest.raises(UserError) as error:
            chosen(restore(tmp_path, **more))
        one_sentence(error, tmp_path / "checkpoint_last.pt", f"--restore-file {tmp_path / left}", "an empty --save-dir")
    chosen(restore(tmp_path, str(tmp_path / left)))
    chosen(restore(tmp_path / "none"))
    with pytest.raises(UserError, match="checkpoint_last-1.pt is missing.*checkpoint_9_90-1.pt"):
        chosen(restore(tmp_path, suffix="-1"))
    (tmp_path / "checkpoint_last.pt").touch()
    chosen(restore(tmp_path))


def test_training_may_begin_beside_what_it_does_not_overwrite(tmp_path):
    for name in ("crash.pt", "model.pt", "checkpoint_average.pt"):
        (tmp_path / name).touch()
    chosen(restore(tmp_path))
    (tmp_path / "checkpoint_best.pt").touch()
    chosen(restore(tmp_path, finetune=str(tmp_path / "checkpoint_best.pt")))


def of_rank(rank, folder, no_save=False):
    cfg = {"checkpoint": {"save_dir": str(folder), "no_save": no_save}}
    return OmegaConf.create(cfg | {"distributed_training": {"distributed_rank": rank}})


def elsewhere(cfg):
    """Exit status of a training in another process: 0, or 1 if the folder is locked."""

    def run():
        try:
            with save_dir.lock(cfg):
                pass
        except UserError:
            os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return process.exitcode


def test_one_training_saves_in_a_folder_and_lets_go_of_it_at_its_end(tmp_path):
    with save_dir.lock(of_rank(0, tmp_path)):
        assert elsewhere(of_rank(0, tmp_path)) == 1
        assert elsewhere(of_rank(1, tmp_path)) == 0  # a rank of the same run
        assert elsewhere(of_rank(0, tmp_path, no_save=True)) == 0
        assert elsewhere(of_rank(0, tmp_path / "other")) == 0
        assert elsewhere(of_rank(0, tmp_path)) == 1  # the refused one has not removed the lock
        assert (tmp_path / save_dir.LOCK).read_text().startswith(f"process {os.getpid()} on ")
    assert elsewhere(of_rank(0, tmp_path)) == 0
    (tmp_path / save_dir.LOCK).write_text("process 1 on another machine\n")  # of a training that was killed
    assert elsewhere(of_rank(0, tmp_path)) == 0 and not any(tmp_path.iterdir())


def test_a_lock_that_its_owner_removes_in_between_is_taken_anew(tmp_path, monkeypatch):
    path, lockf, removed = tmp_path / save_dir.LOCK, save_dir.fcntl.lockf, []

    def lockf_after_removal(stream, *more):
        if not removed:
            removed.append(path.unlink())
        return lockf(stream, *more)

    monkeypatch.setattr(save_dir.fcntl, "lockf", lockf_after_removal)
    with save_dir.lock(of_rank(0, tmp_path)):
        monkeypatch.undo()
        assert path.exists() and elsewhere(of_rank(0, tmp_path)) == 1


def test_the_lock_is_no_link_to_another_file(tmp_path):
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / save_dir.LOCK).symlink_to(other)
    with (
        pytest.raises(UserError, match=f"--save-dir {tmp_path}: .*{save_dir.LOCK}"),
        save_dir.lock(of_rank(0, tmp_path)),
    ):
        pass
    assert other.read_text() == "kept"


def test_a_folder_that_cannot_be_locked_is_a_warning(tmp_path, monkeypatch, caplog):
    def lockf(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(save_dir.fcntl, "lockf", lockf)
    with save_dir.lock(of_rank(0, tmp_path)):
        assert f"{tmp_path}/.lock cannot be locked (No locks available)" in caplog.text


def test_a_folder_in_which_nothing_was_saved_is_removed(tmp_path):
    with save_dir.lock(of_rank(0, tmp_path / "new")):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()
    with save_dir.lock(of_rank(0, tmp_path / "new")):
        (tmp_path / "new/checkpoint_last.pt").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["checkpoint_last.pt"]


def test_a_full_disk_does_not_prevent_the_lock(tmp_path, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(save_dir.os, "write", write)
    with save_dir.lock(of_rank(0, tmp_path)):
        assert elsewhere(of_rank(0, tmp_path)) == 1
