"""What a script made a folder with: other settings and other content are refused."""

import json
import os
import shutil

import pytest

from fairseq_xl.errors import UserError
from recipes.settings import Digests, main as check


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
        ([weights, "--lr", "0.4"], "then --lr 0.3, now --lr 0.4"),
        ([weights, "--lr", "0.3", "--cpu"], "then nothing, now --cpu"),
        ([weights, "--lr"], "then --lr 0.3, now --lr nothing"),
        ([weights], "then --lr 0.3, now nothing"),
    ):
        with pytest.raises(UserError) as refused:
            check(folder, list(map(str, arguments)))
        assert str(refused.value) == f"{message} ({which}): remove it or choose another folder"
    weights.write_text("other")
    with pytest.raises(UserError, match=r"\(then .*/copied, now .*/weights\)"):
        check(folder, [str(weights), "--lr", "0.3"])
    check(folder, [str(copied), "--lr", "0.3"])
    copied.write_text("other")
    with pytest.raises(UserError, match=r"\(.*/copied has changed\)"):
        check(folder, [str(copied), "--lr", "0.3"])


def test_a_folder_counts_by_the_files_in_it(tmp_path):
    (tmp_path / "text/inside").mkdir(parents=True)
    (tmp_path / "text/inside/one").write_text("text")
    check(tmp_path / "made", [str(tmp_path / "text")])
    (tmp_path / "made/scores.json").touch()
    shutil.copytree(tmp_path / "text", tmp_path / "same")
    check(tmp_path / "made", [str(tmp_path / "same")])
    (tmp_path / "same/inside/one").write_text("other")
    with pytest.raises(UserError, match=r"other settings or weights \(.*/same/inside/one has changed\)"):
        check(tmp_path / "made", [str(tmp_path / "same")])


def test_files_that_a_folder_gains_do_not_count(tmp_path):
    """Another language of a corpus, hidden files, manifest and description; a data-bin counts by its manifest."""
    corpus, data, made = tmp_path / "corpus", tmp_path / "data-bin", tmp_path / "made"
    for folder in (corpus, data):
        folder.mkdir()
        for name in ("manifest.json", "corpus.yaml", "train.en"):
            (folder / name).write_text("before")
    (data / "dict.txt").touch()
    check(made, [str(corpus), f"en={data}"])
    (made / "scores.json").touch()
    for name in ("train.de", "manifest.json", "corpus.yaml", ".stages"):
        (corpus / name).write_text("added")
    (data / "train.en").write_text("the manifest has its hash")
    check(made, [str(corpus), f"en={data}"])
    (corpus / "train.de").write_text("changed")
    with pytest.raises(UserError, match=r"\(.*/corpus/train.de has changed\)"):  # known since the last check
        check(made, [str(corpus), f"en={data}"])
    (corpus / "train.de").write_text("added")
    (corpus / "train.en").unlink()
    with pytest.raises(UserError, match=r"\(.*/corpus/train.en has changed\)"):
        check(made, [str(corpus), f"en={data}"])
    (corpus / "train.en").write_text("before")
    (data / "manifest.json").write_text("other")
    with pytest.raises(UserError, match=r"\(.*/data-bin/manifest.json has changed\)"):
        check(made, [str(corpus), f"en={data}"])


def test_an_empty_argument_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("text")
    check(tmp_path / "made", ["", "--lr="])
    assert json.loads((tmp_path / "made/settings.json").read_text())["files"] == {}


def test_a_file_that_has_not_changed_is_read_once(tmp_path):
    file, digests = tmp_path / "weights", Digests()
    file.write_text("1")
    before, status = digests.of(file), file.stat()
    file.write_text("2")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.of(file) == before != Digests().of(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert digests.of(file) != before


def test_a_record_that_was_cut_off_is_another_one(tmp_path):
    (tmp_path / "settings.json").write_text('["--lr"')
    (tmp_path / "checkpoint_last.pt").touch()
    with pytest.raises(UserError, match="was made with other settings"):
        check(tmp_path, ["--lr"])


def test_a_training_may_continue_to_a_larger_limit(tmp_path):
    def begin(*arguments, **options):
        check(tmp_path, ["--lr", "1", *arguments], may_grow=True, **options)

    begin("--max-update", "12", "--max-epoch=3")
    begin("--max-update", "10")  # nothing was made so far
    (tmp_path / "checkpoint_last.pt").touch()
    for larger in (["--max-update", "20"], ["--max-update", "5", "--max-update=30"], [], ["--max-epoch", "2"]):
        begin(*larger)
    begin("--max-update", "0", "--max-epoch", "4")
    for smaller, shown in (
        ("--max-epoch", "then --max-epoch 4, now --max-epoch 3"),
        ("--max-update", "then .* 0, now"),
    ):
        with pytest.raises(UserError, match=rf"was made with other settings or weights \({shown}"):
            begin(smaller, "3")
    with pytest.raises(UserError, match="then nothing, now --cpu"):
        begin("--max-epoch", "4", "--cpu")


def test_a_folder_inside_its_input_does_not_count(tmp_path):
    """SAVE_DIR in the folder of the task files: what the run writes there is no input."""
    (tmp_path / "train.en.tsv").touch()
    folder = tmp_path / "run"
    for content in ("first", "second"):
        check(folder, [str(tmp_path)])
        (folder / "scores.json").write_text(content)
    (record,) = json.loads((folder / "settings.json").read_text())["files"].values()
    assert list(record) == ["train.en.tsv"]
