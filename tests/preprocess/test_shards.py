"""Shards: the places where text is divided, the data folders that are made, and runs that are interrupted."""

import gzip
import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import tiny_corpus
import yaml
from tiny_corpus import change, content, documents, write

from fairseq_xl.data.store.manifest import data_folders
from fairseq_xl.errors import UserError
from fairseq_xl.io.fingerprints import sha256_of
from preprocess import binarize, files, joined, shards
from preprocess.check import check
from preprocess.commands.prepare import main
from preprocess.config import read_config
from preprocess.pipeline import prepare
from preprocess.stages import Stages, locked
from preprocess.verification import verify
from tests.warm_python import python

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.filterwarnings("ignore")


def divided(path):
    """The shards of the first folder of a description, as bytes by side; the number of lines of each."""
    config, problems = read_config(path)
    reports = check(config, problems, 1, None)
    (_, split), *_ = shards.train_splits(config)
    found = shards.divide(config, split, reports, config.shards)
    with files.Sections() as opened:
        texts = [
            tuple(
                b"".join(
                    block
                    for part in parts
                    for block in opened.blocks(config.root / side.files[part.file], part.begin, part.end)
                )
                for side, parts in zip(split.sides, of_shard)
            )
            for of_shard in found["sections"]
        ]
    return texts, found["lines"]


def describe(folder, number, texts, pair=None):
    """Writes monolingual files of `texts`, or the two sides of a pair of files; the path of their description."""
    names = []
    for place, text in enumerate(texts):
        for code, side in zip(("en", "de"), [text] if isinstance(text, bytes) else text):
            (folder / f"{place}.{code}").write_bytes(side)
        names.append(str(place) if pair else f"{place}.en")
    named = {"bitext": {pair: {"train": names}}} if pair else {"monolingual": {"en": {"train": names}}}
    languages = pair.split("-") if pair else ["en"]
    path = folder / "corpus.yaml"
    path.write_text(yaml.safe_dump({"languages": languages, "shards": number} | named), encoding="utf-8")
    return path


def test_whole_documents_of_about_as_many_lines(tmp_path):
    """Documents of 3, 3, 2 and 4 lines, with their empty lines: 15 lines, and shards from lines 0, 5 and 10 on."""
    text = b"a\nb\nc\n\nd\ne\nf\n\ng\nh\n \t \ni\nj\nk\nl\n"
    texts, lines = divided(describe(tmp_path, 3, [text]))
    assert texts == [(b"a\nb\nc\n\nd\ne\nf\n\n",), (b"g\nh\n \t \n",), (b"i\nj\nk\nl\n",)] and lines == [8, 3, 4]
    assert divided(describe(tmp_path, 2, [text]))[1] == [8, 7]
    assert divided(describe(tmp_path, 4, [text]))[1] == [4, 4, 3, 4]
    assert divided(describe(tmp_path, 1, [text]))[0] == [(text,)]


def test_a_long_document_leaves_one_for_every_shard(tmp_path):
    first, last = b"a\n" * 90 + b"\n", b"a\n" * 90
    assert divided(describe(tmp_path, 3, [first + b"b\n\nc\n"]))[1] == [91, 2, 1]
    assert divided(describe(tmp_path, 3, [b"b\n\nc\n\n" + last]))[1] == [2, 2, 90]
    assert divided(describe(tmp_path, 3, [b"b\n\n" + first + b"c\n\nd\n"]))[1] == [93, 2, 1]


def test_text_without_empty_lines_is_divided_between_lines(tmp_path):
    texts, lines = divided(describe(tmp_path, 3, [b"a\nb\nc\n", b"d\ne\nf\ng\nh"]))
    assert texts == [(b"a\nb\n",), (b"c\nd\ne\n",), (b"f\ng\nh",)] and lines == [2, 3, 3]
    texts, _ = divided(describe(tmp_path, 2, [b"a\nb\n", b"c\nd\n"]))
    assert texts == [(b"a\nb\n",), (b"c\nd\n",)]


def test_the_sides_of_bitext_are_divided_at_the_same_lines(tmp_path):
    """A line that is empty on one side is a missing translation, and ends no document."""
    one, other = b"a\n\nb\n\nc\nd\ne\n", "ä\nä\nbb\n\u2003\n\ndd\ne\n".encode()
    texts, lines = divided(describe(tmp_path, 2, [(one, other)], "en-de"))
    assert lines == [4, 3] and texts == [(b"a\n\nb\n\n", "ä\nä\nbb\n\u2003\n".encode()), (b"c\nd\ne\n", b"\ndd\ne\n")]
    one, other = b"a\n\nb\nc\n", b"\xc3\xa4\nbb\ncc\n\n"  # no line is empty on both sides
    texts, lines = divided(describe(tmp_path, 2, [(one, other)], "en-de"))
    assert lines == [2, 2] and texts[1] == (b"b\nc\n", b"cc\n\n")


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_random_text_in_any_blocks(tmp_path, monkeypatch, block):
    """Against cuts that are found by going through a list of all lines."""
    monkeypatch.setattr(files, "BLOCK", block)
    rng = random.Random(block)
    for _ in range(30):
        texts = []
        for _ in range(rng.randint(1, 3)):
            lines = [rng.choice(["", " ", "\u3000", "a", "\u3042b", "word"]) for _ in range(rng.randint(3, 40))]
            texts.append("\n".join([*lines, "end"]).encode() + rng.choice([b"", b"\n"]))
        count = rng.randint(1, 4)
        starts = []
        every = [
            (file, line) for file, text in enumerate(texts) for line in text.decode().removesuffix("\n").split("\n")
        ]
        for place, (file, line) in enumerate(every):
            new = place == 0 or every[place - 1][0] != file or not every[place - 1][1].strip()
            starts += [place] if line.strip() and new else []
        path = describe(tmp_path, count, texts)
        if not any(not line.strip() for _, line in every):
            continue
        if len(starts) < count:
            config, problems = read_config(path)
            with pytest.raises(UserError, match=f"at most shards: {len(starts)}$"):
                shards.raise_problems(config, check(config, problems, 1, None))
            continue
        found, lines = divided(path)
        assert b"".join(text for (text,) in found) == b"".join(texts) and sum(lines) == len(every)
        begin, index = 0, 0
        for shard, before in enumerate(lines[:-1], start=1):
            begin += before
            due = [number for number, start in enumerate(starts) if start * count >= shard * len(every)]
            index = max(index + 1, min(due, default=len(starts)))
            index = min(index, len(starts) - count + shard)  # one document for each shard
            assert begin == starts[index]


SHARDS = 3


def write_divided(root):
    """A corpus in three languages with shards: two files of documents; bitext; sentences without documents."""
    root.mkdir()
    for name, count in (("train.en", 20), ("more.en", 11), ("valid.en", 3)):
        write(root / name, documents("en", count, random.Random(name)))
    for split, count in (("train", 20), ("valid", 2)):
        for language in ("en", "de"):
            write(root / f"{split}.en-de.{language}", documents(language, count, random.Random(split)))
    lines = [line for line in documents("de", 20, random.Random(1)) if line]
    (root / "train.fr.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    description = {"languages": ["en", "de", "fr"], "vocabulary": {"model": "unigram", "size": 60}, "shards": SHARDS}
    english = {"train": ["train.en", "more.en"], "valid": "valid.en"}
    text = {
        "monolingual": {"en": english, "fr": {"train": "train.fr"}},
        "bitext": {"en-de": {"train": "train.en-de", "valid": "valid.en-de"}},
    }
    return tiny_corpus.describe(root, description | text)


@pytest.fixture
def divided_corpus(tmp_path):
    return write_divided(tmp_path / "corpus")


@pytest.fixture(scope="session")
def prepared_corpus(prepared_once):
    """The data folder of the corpus, `data-bin`, and that of its description without shards, `whole`. Read only."""

    def write_both(folder):
        corpus = write_divided(folder / "corpus")
        prepare(corpus, folder / "data-bin")
        without_shards(corpus, folder / "whole")

    return prepared_once("divided", write_both)


@pytest.fixture
def sharded(divided_corpus, prepared_corpus, tmp_path, fairseq_in_process):
    """A copy of the data folder of the corpus, with its links."""
    copy = tmp_path / "data-bin"
    subprocess.run(["cp", "-a", prepared_corpus / "data-bin", copy], check=True)
    return copy


def items(prefix):
    """The sentences of a binarized text, by fairseq's reader."""
    from fairseq.data import data_utils

    return [item.tolist() for item in data_utils.load_indexed_dataset(str(prefix), None, "mmap")]


def without_shards(path, folder):
    """The data folder of the same description without shards."""
    description = yaml.safe_load(path.read_text(encoding="utf-8"))
    del description["shards"]
    other = path.with_name("whole.yaml")
    other.write_text(yaml.safe_dump(description), encoding="utf-8")
    prepare(other, folder)
    return folder


TRAINING = ["en/train", "fr/train", "en-de/train.en-de.en", "en-de/train.en-de.de"]


def test_the_shards_together_are_the_whole(divided_corpus, prepared_corpus, tmp_path, fairseq_in_process, monkeypatch):
    """Byte by byte: the training text one after the other, and in each shard the dictionary and all other text."""
    data_bin, whole = prepared_corpus / "data-bin", prepared_corpus / "whole"
    folders = [data_bin / str(shard) for shard in range(SHARDS)]
    assert sorted(path.name for path in data_bin.iterdir()) == [".stages", "0", "1", "2", "manifest.json"]
    expected = content(whole)
    for name in TRAINING:
        parts = [(folder / f"{name}.bin").read_bytes() for folder in folders]
        assert all(parts) and b"".join(parts) == expected[f"{name}.bin"], name
        assert [item for folder in folders for item in items(folder / name)] == items(whole / name)
        lines = [len(items(folder / name)) for folder in folders]
        assert max(lines) < 1.5 * min(lines), (name, lines)
    for name in TRAINING[:1] + TRAINING[2:]:  # a shard ends with the empty line after a document
        assert [items(folder / name)[-1] for folder in folders[:-1]] == [[2], [2]]
    for folder in folders:
        text = content(folder)
        assert text.keys() == expected.keys()
        same = [name for name in text if "/train" not in name and name != "manifest.json"]
        assert {"dict.txt", "sentencepiece.model", "en/valid.bin", "en-de/valid.en-de.de.idx"} < set(same)
        assert all(text[name] == expected[name] for name in same)
        assert folder.joinpath("dict.txt").samefile(folders[0] / "dict.txt")
    monkeypatch.setattr(files, "BLOCK", 300)
    prepare(divided_corpus, tmp_path / "again", jobs=2)
    assert content(tmp_path / "again") == content(data_bin)
    assert verify(data_bin) == 3 * verify(whole)


def test_manifests_of_shards(prepared_corpus):
    data_bin = prepared_corpus / "data-bin"
    joint, expected, *of_shards = (
        json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        for folder in (data_bin, prepared_corpus / "whole", *(data_bin / str(shard) for shard in range(SHARDS)))
    )
    assert joint["config"].pop("shards") == SHARDS
    assert joint.pop("shards") == [sha256_of(data_bin / str(shard) / "manifest.json") for shard in range(SHARDS)]
    del expected["fingerprints"]
    assert joint == expected
    assert [manifest["shard"] for manifest in of_shards] == [0, 1, 2]
    for name in TRAINING:
        for key in ("lines", "tokens"):
            assert sum(manifest["datasets"][name][key] for manifest in of_shards) == expected["datasets"][name][key]
    for manifest in of_shards:
        assert manifest["datasets"]["en/valid"] == expected["datasets"]["en/valid"]
    pieces = [
        (entry["path"], entry["begin"], entry["end"])
        for manifest in of_shards
        for entry in manifest["files"]
        if entry["dataset"] == "en/train"
    ]
    assert [path for path, *_ in pieces] == ["train.en", "train.en", "more.en", "more.en"]
    assert [begin for _, begin, _ in pieces[1:]] == [pieces[0][2], 0, pieces[2][2]]


def test_only_what_is_missing_is_made(divided_corpus, sharded, fairseq_in_process):
    before = content(sharded)
    prepare(divided_corpus, sharded)
    assert fairseq_in_process == [] and content(sharded) == before
    (sharded / "1" / "en" / "train.bin").unlink()
    (sharded / "2" / "dict.txt").unlink()
    with pytest.raises(UserError, match="2 change|1 change"):
        verify(sharded)
    prepare(divided_corpus, sharded)
    assert fairseq_in_process == ["en"] and content(sharded) == before


@pytest.mark.parametrize("names", ["01", "10", "21"])
def test_copied_and_exchanged_shards_are_refused(sharded, tmp_path, names):
    """Each shard by itself is whole."""
    one, other = (sharded / name for name in names)
    one.rename(tmp_path / "one")
    shutil.copytree(other, one) if names == "01" else other.rename(one)
    if names != "01":
        (tmp_path / "one").rename(other)
    for read in (verify, data_folders, lambda data: data_folders(f"{data}/0:{data}/{names[0]}")):
        with pytest.raises(UserError, match=f"{sharded}/[{names}] is not the shard that {sharded}/manifest.json"):
            read(sharded)


@pytest.mark.parametrize("after", [False, True])
def test_interrupted_anywhere_and_continued(
    divided_corpus, prepared_corpus, tmp_path, fairseq_in_process, interrupted, after
):
    """The run is killed again and again; no shard is made twice."""
    interruptions = interrupted(divided_corpus, tmp_path / "data-bin", 5, 5, after)
    assert interruptions >= 8
    assert len(fairseq_in_process) <= 3 * SHARDS + interruptions  # at most the folder in work is made again
    assert content(tmp_path / "data-bin") == content(prepared_corpus / "data-bin")


def test_other_numbers_of_shards(divided_corpus, prepared_corpus, sharded, tmp_path):
    before = change(divided_corpus, shards=2).read_bytes()
    prepare(divided_corpus, tmp_path / "two")
    for number, expected in ((2, tmp_path / "two"), (SHARDS, prepared_corpus / "data-bin")):
        change(divided_corpus, shards=number)
        prepare(divided_corpus, sharded)
        assert content(sharded) == content(expected)
        assert sorted(path.name for path in sharded.glob("[0-9]*")) == [str(shard) for shard in range(number)]
    description = yaml.safe_load(before)
    del description["shards"]
    tiny_corpus.describe(divided_corpus.parent, description)
    with pytest.raises(UserError, match="is divided into shards, and the description has no `shards`: remove the"):
        prepare(divided_corpus, sharded)


def test_more_training_text_makes_new_shards(divided_corpus, sharded):
    before = content(sharded)
    write(divided_corpus.parent / "more.en", documents("en", 40, random.Random(9)))
    prepare(divided_corpus, sharded, vocabulary_from=sharded)
    changed = {name for name, text in content(sharded).items() if text != before[name]}
    assert {f"{shard}/en/train.bin" for shard in range(3)} < changed
    assert not any("/fr/" in name and name.endswith("bin") for name in changed)
    verify(sharded)


def test_cleaned_text_is_divided(divided_corpus, tmp_path, fairseq_in_process):
    change(divided_corpus, clean={"language": False})
    prepare(divided_corpus, tmp_path / "data-bin")
    whole = without_shards(divided_corpus, tmp_path / "whole")
    for name in TRAINING:
        parts = [(tmp_path / "data-bin" / str(shard) / f"{name}.bin").read_bytes() for shard in range(SHARDS)]
        assert b"".join(parts) == (whole / f"{name}.bin").read_bytes()


def test_too_many_shards_are_one_message(divided_corpus, tmp_path, capsys):
    change(divided_corpus, shards=25)
    assert main([str(divided_corpus), "--check-only"]) == 1
    bitext = "bitext en-de: `shards: 25` needs at least 25 documents, the training text has 20 (documents are separated"
    assert f"1 problem(s) in the description and its files:\n  - {bitext}" in (said := capsys.readouterr().err)
    assert said.endswith("by empty lines); use at most shards: 20\n")
    change(divided_corpus, shards=1000)
    assert main([str(divided_corpus), str(tmp_path / "data-bin")]) == 1
    assert "monolingual fr: `shards: 1000` needs at least 1000 lines, the training" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "two", "1.5", ""])
def test_shards_is_a_number(divided_corpus, tmp_path, capsys, value):
    change(divided_corpus, shards=value)
    assert main([str(divided_corpus), str(tmp_path / "data-bin")]) == 1
    assert f"shards: expected a number from 1 to 100000, found {value!r}" in capsys.readouterr().err


def test_chunks_of_text_make_the_same_files(divided_corpus, prepared_corpus, tmp_path, fairseq_in_process, monkeypatch):
    """fairseq-preprocess gets few lines at a time, and the joined files are those of one call."""
    most, run = [], binarize.run_fairseq

    def counting(options, cwd, log):
        for path in (cwd / "en").glob("train*"):
            most.append(path.read_bytes().count(b"\n"))
        run(options, cwd, log)

    monkeypatch.setattr(binarize, "run_fairseq", counting)
    monkeypatch.setattr(binarize, "CHUNK_LINES", 10)
    monkeypatch.setattr(joined, "CHUNK", 3)
    prepare(divided_corpus, tmp_path / "data-bin")
    assert content(tmp_path / "data-bin") == content(prepared_corpus / "data-bin")
    assert len(most) > 3 * SHARDS and max(most) == 10
    assert not list((tmp_path / "data-bin").rglob("*.sizes"))


def test_a_compressed_file_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % number for number in range(100))))
    opened, text_of = [], files.text_of
    monkeypatch.setattr(files, "text_of", lambda file: opened.append(file) or text_of(file))
    with files.Sections() as sections:
        parts = [b"".join(sections.blocks(path, *part)) for part in ((0, 20), (20, 50), (80, None))]
        assert parts[0] == b"".join(b"%d\n" % number for number in range(10))
        assert parts[1] == b"".join(b"%d\n" % number for number in range(10, 20))
        assert parts[2].startswith(b"30\n") and parts[2].endswith(b"99\n") and len(opened) == 1
        assert b"".join(sections.blocks(path, 20, 23)) == b"10\n" and len(opened) == 2


def test_a_killed_command_is_continued(divided_corpus, prepared_corpus, tmp_path, fairseq_in_process):
    """It is killed when shard 0 is complete; all its processes end, and shard 0 is not made again."""
    data_bin = tmp_path / "data-bin"
    command = [python(), "-m", "fairseq_xl", "data", "prepare", str(divided_corpus), str(data_bin), "--jobs", "2"]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True)
    while run.poll() is None and not (data_bin / "0" / "manifest.json").exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.stderr.read()  # to its end, when no process is left that could write there
    assert run.wait() == -signal.SIGKILL and not (data_bin / "manifest.json").exists()
    before = (data_bin / "0" / "en" / "train.bin").stat().st_ino
    prepare(divided_corpus, data_bin)
    assert 1 <= len(fairseq_in_process) <= 6  # folders of shards 1 and 2
    assert (data_bin / "0" / "en" / "train.bin").stat().st_ino == before
    assert content(data_bin) == content(prepared_corpus / "data-bin")


def test_parts_together_are_what_one_run_makes(divided_corpus, tmp_path, fairseq_in_process, caplog):
    """In any order, and each folder once; the last part completes the data folder. Other counts need no new run."""
    change(divided_corpus, clean={"language": False})
    whole, data_bin = tmp_path / "whole", tmp_path / "data-bin"
    prepare(divided_corpus, whole)
    made = len(fairseq_in_process)
    caplog.set_level("INFO")
    for index in (2, 1):
        assert not (data_bin / "manifest.json").exists()
        prepare(divided_corpus, data_bin, part=(index, 2))
    assert content(data_bin) == content(whole) and len(fairseq_in_process) == 2 * made
    assert "part 2/2 is made; shard 0, 2 not: the part that makes the last shard" in caplog.text
    for options in ({"part": (1, 3)}, {}):
        prepare(divided_corpus, data_bin, **options)
    assert content(data_bin) == content(whole) and len(fairseq_in_process) == 2 * made
    write(divided_corpus.parent / "more.en", documents("en", 40, random.Random(9)))
    for folder, options in ((whole, [{}]), (data_bin, [{"part": (2, 2)}, {"part": (1, 2)}])):
        for option in options:
            prepare(divided_corpus, folder, **option)
    assert content(data_bin) == content(whole)


@pytest.mark.parametrize("after", [False, True])
def test_parts_interrupted_anywhere_and_continued(
    divided_corpus, prepared_corpus, tmp_path, fairseq_in_process, interrupted, after
):
    for index in (2, 1):
        assert interrupted(divided_corpus, tmp_path / "data-bin", 5, 5, after, part=(index, 2)) >= 4
    assert content(tmp_path / "data-bin") == content(prepared_corpus / "data-bin")


def test_parts_at_the_same_time_one_of_them_killed(divided_corpus, prepared_corpus, tmp_path):
    """Three commands; one is killed when its shard is encoded. Its repetition completes the folder."""
    data_bin = tmp_path / "data-bin"
    command = [python(), "-m", "fairseq_xl", "data", "prepare", str(divided_corpus), str(data_bin), "--part"]
    runs = {
        part: subprocess.Popen([*command, part], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for part in ("1/3", "2/3", "3/3")
    }
    while runs["2/3"].poll() is None and not (data_bin / ".stages/encoded/1/fr/train").exists():
        time.sleep(0.01)
    runs["2/3"].kill()
    said = {part: run.communicate()[1] for part, run in runs.items()}
    assert [run.returncode for run in runs.values()] == [0, -signal.SIGKILL, 0], said
    assert not (data_bin / "manifest.json").exists()
    done = subprocess.run([*command, "2/3"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert content(data_bin) == content(prepared_corpus / "data-bin")


def test_runs_that_a_part_does_not_belong_to_are_refused(divided_corpus, tmp_path, fairseq_in_process, capsys):
    data_bin, stages = tmp_path / "data-bin", Stages(tmp_path / "data-bin")
    with locked(stages, name="part-1-of-2.lock"):
        for options in ([], ["--part", "1/2"], ["--part", "2/3"]):
            assert main([str(divided_corpus), str(data_bin), *options]) == 1
            assert capsys.readouterr().err == f"{data_bin}: another run is writing there\n"
        assert main([str(divided_corpus), str(data_bin), "--part", "2/2"]) == 0
    assert main([str(divided_corpus), str(data_bin), "--part", "1/4"]) == 1
    expected = "--part 1/4: a part makes one or more shards, and there is `shards: 3`"
    assert expected in capsys.readouterr().err
    for wrong in ("0/2", "3/2", "2", "a/b"):
        with pytest.raises(SystemExit):
            main([str(divided_corpus), str(data_bin), "--part", wrong])
        assert f"expected I/N with I from 1 to N, found '{wrong}'" in capsys.readouterr().err
