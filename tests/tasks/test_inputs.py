"""A resumed run reads the files that the run read before: other text, task files, shards or sub-words are refused."""

import shutil

import numpy as np
import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.inference.embedder import Embedder
from fairseq_xl.io.files import write_json
from tests.builders import several, write_others, write_task
from tests.commands import classification, generation, pretraining, run_train, translation
from tests.tasks.conftest import write_encoded
from tests.tasks.titles import write_titles

SAVED = ["--no-epoch-checkpoints", "--max-update"]


@pytest.fixture
def data(data_bin, tmp_path):
    """A copy of the data folder without manifest, which would name changed files itself."""
    return shutil.copytree(data_bin, tmp_path / "data", ignore=shutil.ignore_patterns("manifest.json", ".*"))


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    """{name of a task: folder of its files}, and files of titles. Read only."""
    root = tmp_path_factory.mktemp("task-files")
    write_titles(root / "titles")
    return {"nc": write_task(root / "nc", sides=1), **write_others(root)}, root / "titles"


def changed(path):
    """Exchanges two tokens of binarized text, or the labels of two lines of text."""
    if path.suffix == ".bin":
        tokens = np.fromfile(path, np.uint16)
        place = next(place for place in range(len(tokens) - 1) if 2 not in tokens[place : place + 2])
        tokens[place : place + 2] += 1
        tokens.tofile(path)
        return
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    place = next(place for place, line in enumerate(lines) if line[0] != lines[0][0])
    lines[0][0], lines[place][0] = lines[place][0], lines[0][0]
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize("name", ["de/valid.bin", "en-de/train.en-de.de.bin"])
def test_another_text_is_refused(data, tmp_path, name):
    line = pretraining(data, tmp_path / "run", "--updates-per-epoch", 2, *SAVED)
    run_train([*line, 1])
    moved = shutil.copytree(data, tmp_path / "moved")
    assert list(run_train([moved, *line[1:], 2]).updates) == [2], "a copy is the same text"
    changed(moved / name)
    with pytest.raises(UserError, match=f"{moved / name} is not the file that .*checkpoint_last.pt was trained with"):
        run_train([moved, *line[1:], 3])
    assert list(run_train([moved, *line[1:], 3, "--reset-dataloader"]).updates) == [3]


def test_a_changed_model_is_not_trained_with(data_bin, tmp_path):
    """Binarized text does not need it, but the checkpoint's users do."""
    model = shutil.copytree(data_bin, tmp_path / "data") / "sentencepiece.model"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{model} is not the file that `fairseq-xl data prepare` wrote"):
        run_train(pretraining(model.parent, tmp_path / "run", *SAVED, 1))


def test_more_or_less_text_is_refused(data, task_files, tmp_path):
    line = translation(data, tmp_path / "run", "--disable-validation", *SAVED)
    run_train([*line, 1, "--lang-pairs", "en-de,en-fr"])
    with pytest.raises(UserError, match="its run also read en-fr/train.en-fr.en.bin for the split 'train'"):
        run_train([*line, 2, "--lang-pairs", "en-de"])
    line = classification(data, task_files[0]["nc"], tmp_path / "other", "--disable-validation", *SAVED)
    run_train([*line, 1])
    with pytest.raises(UserError, match="its run also read train.de.tsv for the split 'train'"):
        run_train([*line, 2, "--train-langs", "en"])


@pytest.mark.parametrize("kind, name", [("several", "qa/train.en.json"), ("generation", "titles/train.en.tgt")])
def test_other_task_files_are_refused(data, task_files, tmp_path, kind, name):
    root = shutil.copytree(task_files[1].parent, tmp_path / "files")
    folders = {name: root / name for name in task_files[0]}
    path, run = root / name, tmp_path / "run"
    line = several(data, folders, run) if kind == "several" else generation(data, root / "titles", run)
    run_train([*line, *SAVED, 1])
    if path.suffix == ".json":
        path.write_text(path.read_text(encoding="utf-8").replace("en-0", "en-zero"), encoding="utf-8")
    else:
        changed(path)
    with pytest.raises(UserError, match=f"{path} is not the file that .*checkpoint_last.pt was trained with"):
        run_train([*line, *SAVED, 2])


def test_exchanged_shards_are_refused(tmp_path):
    folder = write_encoded(tmp_path, shards=2)
    shards = [folder / "0", folder / "1"]
    line = pretraining(":".join(map(str, shards)), tmp_path / "run", "--updates-per-epoch", 1, *SAVED)
    run_train([*line, 1])
    for other, message in ((shards[::-1], "/train.idx is not"), (shards[:1], "0/de/train.bin")):
        with pytest.raises(UserError, match=message):
            run_train([":".join(map(str, other)), *line[1:], 2])


@pytest.mark.parametrize("part", ["sentencepiece.model", "tokenizer"])
def test_other_subwords_and_tokenizers_are_refused(data, tmp_path, part):
    line = pretraining(data, tmp_path / "run", "--updates-per-epoch", 2, *SAVED)
    if part == "tokenizer":
        write_json(data / "manifest.json", {"format": 1, "config": {"tokenizer": {"en": "segmented"}}})
    run_train([*line, 1])
    path = tmp_path / "run/checkpoint_last.pt"
    Embedder(path, data)
    if part == "tokenizer":
        (data / "manifest.json").unlink()
    else:
        with open(data / part, "ab") as file:
            file.write(b"\x0a\x00")
    for run in (lambda: run_train([*line, 2]), lambda: Embedder(path, data)):
        with pytest.raises(UserError, match=f"{data}.*{part}.*{path}|{path}.*{part}"):
            run()
