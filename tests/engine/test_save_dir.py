"""--save-dir: one training at a time, and none from scratch over existing checkpoints."""

import errno
import multiprocessing
import os
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from fairseq_xl.engine import resume, save_dir, saving
from fairseq_xl.errors import UserError
from tests.io.test_checkpoints import one_sentence


def restore(folder, file="checkpoint_last.pt", finetune=None):
    return SimpleNamespace(
        save_dir=str(folder),
        restore_file=file,
        finetune_from_model=finetune,
        continue_once=None,
        no_save=False,
        checkpoint_suffix="",
        reset_optimizer=False,
        reset_lr_scheduler=False,
        reset_meters=False,
        reset_dataloader=False,
        optimizer_overrides="{}",
    )


def chosen(cfg):
    """The checkpoint that a run restores."""
    run = SimpleNamespace(cfg=SimpleNamespace(checkpoint=cfg), rank=0, world_size=1)
    resume.check_restore_file(run)
    return save_dir.chosen(OmegaConf.create(vars(cfg)))[0]


def test_a_missing_restore_file_does_not_train_from_scratch(tmp_path):
    with pytest.raises(UserError) as error:
        chosen(restore(tmp_path, str(tmp_path / "none.pt")))
    one_sentence(error, "--restore-file", tmp_path / "none.pt")
    with pytest.raises(UserError) as error:
        chosen(restore(tmp_path, finetune=str(tmp_path / "none.pt")))
    one_sentence(error, "--finetune-from-model", tmp_path / "none.pt")


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
    return OmegaConf.create(cfg | {"distributed_training": {"distributed_rank": rank}})


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
    held = save_dir.lock(of_rank(0, tmp_path))
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path))) == 1
    assert elsewhere(lambda: save_dir.lock(of_rank(1, tmp_path))) == 0  # a rank of the same run
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path, no_save=True))) == 0
    assert elsewhere(lambda: save_dir.lock(of_rank(0, tmp_path / "other"))) == 0
    assert (tmp_path / save_dir.LOCK).read_text().startswith(f"process {os.getpid()} on ")
    held.close()
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


def test_trying_the_save_dir_empties_no_file(tmp_path):
    (tmp_path / "victim").write_bytes(b"someone's")
    (tmp_path / "dummy").symlink_to(tmp_path / "victim")
    saving.check_folder(str(tmp_path))
    assert (tmp_path / "victim").read_bytes() == b"someone's" and (tmp_path / "dummy").is_symlink()
    saving.check_folder(str(tmp_path / "new" / "folder"))
    assert list((tmp_path / "new" / "folder").iterdir()) == []
