"""What a script made a folder with: other settings and other content are refused."""

import shutil

import pytest

from fairseq_xl.errors import UserError
from recipes.settings import check


def test_other_settings_and_other_content_are_refused(tmp_path):
    weights, copied, folder = tmp_path / "weights", tmp_path / "copied", tmp_path / "made"
    weights.write_text("1")
    copied.write_text("1")
    check(folder, [str(weights), "--lr", "0.1"])
    check(folder, [str(weights), "--lr", "0.2"])  # nothing was made so far
    (folder / "train.log").touch()
    check(folder, [str(weights), "--lr", "0.3"])  # a log alone
    (folder / "checkpoint_last.pt").touch()
    for same in (weights, copied):
        check(folder, [str(same), "--lr", "0.3"])
    message = f"{folder} was made with other settings or weights"
    for arguments, which in (
        ([weights, "--lr", "0.4"], "0.4"),
        ([weights, "--lr", "0.3", "--cpu"], "--cpu"),
        ([weights, "--lr"], "without 0.3"),
    ):
        with pytest.raises(UserError) as refused:
            check(folder, list(map(str, arguments)))
        assert str(refused.value) == f"{message} ({which}): remove it or choose another folder"
    weights.write_text("2")
    with pytest.raises(UserError, match=r"\(.*/weights\)"):
        check(folder, [str(weights), "--lr", "0.3"])
    check(folder, [str(copied), "--lr", "0.3"])


def test_a_folder_counts_by_the_files_in_it(tmp_path):
    (tmp_path / "text/inside").mkdir(parents=True)
    (tmp_path / "text/inside/one").write_text("text")
    check(tmp_path / "made", [str(tmp_path / "text")])
    (tmp_path / "made/scores.json").touch()
    shutil.copytree(tmp_path / "text", tmp_path / "same")
    check(tmp_path / "made", [str(tmp_path / "same")])
    (tmp_path / "same/inside/one").write_text("other")
    with pytest.raises(UserError, match=r"other settings or weights \(.*/same\)"):
        check(tmp_path / "made", [str(tmp_path / "same")])


def test_a_record_that_was_cut_off_is_another_one(tmp_path):
    (tmp_path / "settings.json").write_text('["--lr"')
    (tmp_path / "checkpoint_last.pt").touch()
    with pytest.raises(UserError, match="was made with other settings"):
        check(tmp_path, ["--lr"])
