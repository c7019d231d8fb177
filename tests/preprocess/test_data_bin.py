"""The data-bin as a whole: against fairseq's and SentencePiece's own readers, skipped stages, interrupted runs."""

import hashlib
import json
import logging
import os
from collections import Counter

import numpy as np
import pytest
import sentencepiece
from tiny_corpus import change, content, write_corpus

from fairseq_xl.data.store.back_translated import back_translated_prefix, note_path, parts_path
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json
from fairseq_xl.io.fingerprints import fingerprint
from fairseq_xl.io.indexed_text import SIZE, read_header
from fairseq_xl.io.step_records import begin_parts
from preprocess import binarize, files, stages
from preprocess.config import read_config
from preprocess.pipeline import prepare
from preprocess.stages import Stages, locked
from preprocess.verification import verify

pytestmark = pytest.mark.filterwarnings("ignore")


def check_against_sources(corpus, data_bin):
    """Every item is what SentencePiece and fairseq's Dictionary make of its line, and dict.txt has all frequencies."""
    from fairseq.data import Dictionary, data_utils

    model = sentencepiece.SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    boundaries, frequencies = 0, Counter()
    for folder, split, side in read_config(corpus)[0].sides():
        prefix = data_bin / folder.name / binarize.prefix(folder, split.name, side.language)
        dataset = data_utils.load_indexed_dataset(str(prefix), dictionary, "mmap")
        lines = sum(((corpus.parent / name).read_text(encoding="utf-8").split("\n")[:-1] for name in side.files), [])
        assert len(dataset) == len(lines)
        for item, line in zip(dataset, lines):
            pieces = model.encode(line, out_type=str)
            assert item.tolist() == [*(dictionary.index(piece) for piece in pieces), dictionary.eos()]
            boundaries += line == ""
            assert (len(item) == 1) == (line == "")
            frequencies.update(pieces if split.name == "train" else ())
    assert boundaries > 50
    pieces = [model.id_to_piece(index) for index in range(3, model.get_piece_size())]
    lines = (data_bin / "dict.txt").read_text(encoding="utf-8").split("\n")
    assert lines == [*(f"{piece} {frequencies[piece]}" for piece in pieces), "<mask> 0", "[en] 0", "[de] 0", ""]
    assert dictionary.symbols == ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>", "[en]", "[de]"]


def test_tokens_boundaries_and_dictionary(corpus, prepared):
    check_against_sources(corpus, prepared)
    for name in ("en/dict.txt", "en-de/dict.en.txt", "en-de/dict.de.txt"):
        assert (prepared / name).read_bytes() == (prepared / "dict.txt").read_bytes()


def test_layout(prepared):
    pair = [
        f"en-de/{split}.en-de.{side}.{suffix}"
        for split in ("train", "valid", "test", "test1")
        for side in ("en", "de")
        for suffix in ("bin", "idx")
    ]
    names = (
        "en-de/dict.en.txt en-de/dict.de.txt en/dict.txt en/train.bin en/train.idx en/valid.bin en/valid.idx dict.txt"
    )
    assert sorted(content(prepared)) == sorted([*pair, *names.split(), "manifest.json", "sentencepiece.model"])


def test_manifest(corpus, prepared):
    from fairseq.data import Dictionary, data_utils

    manifest = json.loads((prepared / "manifest.json").read_text(encoding="utf-8"))
    dictionary = Dictionary.load(str(prepared / "dict.txt"))
    assert manifest["dictionary"] == {
        "symbols": len(dictionary),
        "sha256": hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest(),
    }
    assert [entry["path"] for entry in manifest["files"]] == read_config(corpus)[0].files()
    for entry in manifest["files"]:
        text = (corpus.parent / entry["path"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(text).hexdigest()
        assert (entry["lines"], entry["blank"]) == (text.count(b"\n"), text.split(b"\n")[:-1].count(b""))
        assert entry["documents"] == entry["blank"] + 1
    dataset = data_utils.load_indexed_dataset(str(prepared / "en/train"), dictionary, "mmap")
    assert manifest["datasets"]["en/train"]["tokens"] == int(dataset.sizes.sum()) - len(dataset)
    english, german = (manifest["sampling"][name] for name in ("en", "de"))
    n_en, n_de = english["sentences"], german["sentences"]
    assert n_de == sum(1 for line in (corpus.parent / "train.en-de.de").read_text(encoding="utf-8").split("\n") if line)
    assert english["share"] == pytest.approx(n_en**0.5 / (n_en**0.5 + n_de**0.5), abs=1e-6)
    # the corpus is smaller than the sample: German gives all it has, English its part
    assert german["drawn"] == n_de and english["drawn"] == round((n_en + n_de) * english["share"]) < n_en
    assert set(manifest["versions"]) == {"python", "fairseq", "sentencepiece"}
    assert manifest["seed"] == 1
    assert str(corpus.parent) not in (prepared / "manifest.json").read_text(encoding="utf-8")


def test_nothing_changed_nothing_done(corpus, prepared, fairseq_in_process, caplog):
    def times():
        return {path: path.stat().st_mtime_ns for path in prepared.rglob("*") if path.is_file()}

    prepare(corpus, prepared)  # the corpus of the copied data-bin had other times
    before = times()
    with caplog.at_level(logging.INFO, logger="preprocess"):
        prepare(corpus, prepared)
    assert fairseq_in_process == []
    assert {path.name for path, time in times().items() if before.get(path) != time} <= {"lock"}
    assert "binarize en-de: up to date" in caplog.text and "manifest.json: up to date" in caplog.text


def test_only_what_depends_on_a_change_is_done_again(corpus, prepared, fairseq_in_process):
    before = content(prepared)
    path = corpus.parent / "valid.en"
    path.write_text(path.read_text(encoding="utf-8").replace("house", "stone"), encoding="utf-8")
    prepare(corpus, prepared)
    assert fairseq_in_process == ["en"]
    after = content(prepared)
    assert {name for name in before if before[name] != after[name]} == {"en/valid.bin", "manifest.json"} | (
        {"en/valid.idx"} if before["en/valid.idx"] != after["en/valid.idx"] else set()
    )
    check_against_sources(corpus, prepared)


def test_missing_and_cut_outputs_are_made_again(corpus, prepared, fairseq_in_process):
    before = content(prepared)
    (prepared / "en-de" / "train.en-de.de.bin").write_bytes(b"")
    (prepared / "sentencepiece.model").unlink()
    prepare(corpus, prepared)
    assert fairseq_in_process == ["en-de"]
    assert content(prepared) == before


def test_a_folder_that_is_no_longer_described_goes(corpus, prepared):
    change(corpus, monolingual={"de": {"train": "train.en-de.de"}})
    prepare(corpus, prepared)
    assert not (prepared / "en").exists() and (prepared / "de" / "train.bin").exists()
    assert "dict.txt" in content(prepared)


def back_translated(data_bin, digest):
    """Writes files with the names of back-translated pairs and of an unfinished run; returns their contents."""
    prefix = back_translated_prefix(data_bin, "en", "de")
    for language in ("en", "de"):
        for end in ("bin", "idx"):
            prefix.with_name(f"{prefix.name}.{language}.{end}").write_text(language + end)
    written = {path.name: fingerprint(path) for path in sorted(prefix.parent.glob("back-*"))}
    write_json(note_path(prefix), {"format": 1, "made_with": {"dictionary": digest}, "fingerprints": written})
    begin_parts(parts_path(prefix), {"dictionary": digest})
    return pairs_of(data_bin)


def pairs_of(data_bin):
    return {name: text for name, text in content(data_bin).items() if "/back-" in name}


def digest_of(data_bin):
    return json.loads((data_bin / "manifest.json").read_text(encoding="utf-8"))["dictionary"]["sha256"]


@pytest.mark.parametrize("described", [True, False])
def test_back_translated_pairs_stay_with_the_dictionary(corpus, prepared, fairseq_in_process, caplog, described):
    """The bitext changes, or is no longer described; the vocabulary is the same."""
    before = back_translated(prepared, digest_of(prepared))
    if described:
        (corpus.parent / "valid.en-de.en").write_text("another sentence .\n", encoding="utf-8")
        (corpus.parent / "valid.en-de.de").write_text("ein Satz .\n", encoding="utf-8")
    else:
        change(corpus, bitext={}, monolingual={"en": {"train": "train.en"}, "de": {"train": "train.en-de.de"}})
    prepare(corpus, prepared, vocabulary_from=prepared)
    assert pairs_of(prepared) == before and len(before) == 6 and "removed, since the dictionary" not in caplog.text
    others = {path.name for path in (prepared / "en-de").iterdir() if not path.name.startswith("back-")}
    assert ("train.en-de.en.bin" in others) if described else not others
    verify(prepared)


@pytest.mark.parametrize("described", [True, False])
def test_back_translated_pairs_of_another_dictionary_are_removed(corpus, prepared, caplog, described):
    back_translated(prepared, digest_of(prepared))
    path = corpus.parent / "train.en"
    path.write_text(path.read_text(encoding="utf-8").replace("house", "xyzzy"), encoding="utf-8")
    if not described:
        change(corpus, bitext={}, monolingual={"en": {"train": "train.en"}, "de": {"train": "train.en-de.de"}})
    with caplog.at_level(logging.WARNING, logger="preprocess"):
        prepare(corpus, prepared)
    assert not pairs_of(prepared) and (prepared / "en-de").exists() == described
    assert f"{prepared}/en-de/back-de.en-de: the back-translated pairs are removed, since the dictionary" in caplog.text


def killed_at(monkeypatch, path, run):
    """Runs a function that is killed when the path gets its name."""
    replace = os.replace

    def interrupting(source, target):
        if str(target) == str(path):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(files.os, "replace", interrupting)
        run()


def test_back_translated_pairs_outlive_an_interruption(corpus, prepared, fairseq_in_process, monkeypatch):
    """A run is killed while it replaces the folder."""
    before = back_translated(prepared, digest_of(prepared))
    for code in ("en", "de"):
        (corpus.parent / f"valid.en-de.{code}").write_text("one .\n", encoding="utf-8")
    killed_at(monkeypatch, prepared / "en-de", lambda: prepare(corpus, prepared))
    assert not pairs_of(prepared)
    prepare(corpus, prepared)
    assert pairs_of(prepared) == before
    check_against_sources(corpus, prepared)


def test_a_folder_of_other_languages_stays(corpus, prepared):
    before = content(prepared)
    change(corpus, languages=["fr"], monolingual={"fr": {"train": "train.en-de.de"}}, bitext={})
    with pytest.raises(UserError, match="data-bin is of .*, none of which is described: remove it or name"):
        prepare(corpus, prepared)
    assert content(prepared) == before


@pytest.mark.parametrize("first, after", [(1, False), (2, True), (3, False)])
def test_interrupted_anywhere_and_continued(corpus, whole, tmp_path, fairseq_in_process, interrupted, first, after):
    """The run is killed up to three times in a row, from three starts."""
    assert interrupted(corpus, tmp_path / "data-bin", first, 3, after) >= 8
    assert content(tmp_path / "data-bin") == content(whole)


def test_interrupted_update_leaves_no_mixture(corpus, prepared, monkeypatch):
    """A run that is killed while it replaces a folder leaves no manifest and no old files beside new ones."""
    (corpus.parent / "valid.en").write_text("another sentence .\n", encoding="utf-8")
    killed_at(monkeypatch, prepared / "en", lambda: prepare(corpus, prepared))
    assert not (prepared / "manifest.json").exists() and not (prepared / "en").exists()
    prepare(corpus, prepared)
    check_against_sources(corpus, prepared)


def test_a_change_that_is_taken_back_after_an_interruption(corpus, prepared, monkeypatch):
    """The folder is replaced but its stage not recorded: the old record must not be taken for the new files."""
    before = content(prepared)
    path = corpus.parent / "valid.en"
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n\n")[0].split("\n")
    assert lines[0] != lines[1]
    changed = "\n".join([lines[1], lines[0], *text.split("\n")[2:]])  # as many tokens: files of the same sizes

    def interrupting(path, record):
        if "binarize" in path.name:
            raise KeyboardInterrupt
        write_json(path, record)

    path.write_text(changed, encoding="utf-8")
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(stages, "write_json", interrupting)
        prepare(corpus, prepared)
    path.write_text(text, encoding="utf-8")
    prepare(corpus, prepared)
    assert content(prepared) == before


def test_workers_change_nothing(corpus, prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 200)
    prepare(corpus, tmp_path / "other", jobs=3)
    assert content(tmp_path / "other") == content(prepared)


def test_training_files_are_concatenated_with_a_boundary(corpus, tmp_path, fairseq_in_process):
    change(corpus, monolingual={"en": {"train": ["valid.en", "train.en"]}})
    prepare(corpus, tmp_path / "data-bin")
    index = tmp_path / "data-bin" / "en" / "train.idx"
    sizes = np.fromfile(index, np.int32, read_header(index).items, offset=SIZE)
    first = (corpus.parent / "valid.en").read_text(encoding="utf-8").count("\n")
    second = (corpus.parent / "train.en").read_text(encoding="utf-8").count("\n")
    assert len(sizes) == first + 1 + second
    # the documents at the seam are no neighbors
    assert sizes[first - 1] > 1 and sizes[first] == 1 and sizes[first + 1] > 1


def test_vocabulary_is_reused(corpus, prepared, tmp_path, fairseq_in_process):
    other = write_corpus(tmp_path / "more" / "corpus")
    change(other, languages=["de", "en"], monolingual={})
    prepare(other, tmp_path / "reusing", vocabulary_from=prepared)
    before, after = (
        json.loads((path / "manifest.json").read_text(encoding="utf-8")) for path in (prepared, tmp_path / "reusing")
    )
    assert before["dictionary"] == after["dictionary"] and after["sampling"] is None  # a digest of the symbols in order
    name = "en-de/train.en-de.de.bin"
    assert (tmp_path / "reusing" / name).read_bytes() == (prepared / name).read_bytes()
    change(other, tokenizer={"en": "moses"})
    with pytest.raises(UserError, match="tokenizer en: moses, but the text of .* has none"):
        prepare(other, tmp_path / "reusing", vocabulary_from=prepared)


def existing_model(folder, lines):
    """A SentencePiece model that was trained elsewhere, on other text and with another method."""
    with open(folder / "sentencepiece.bpe.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, model_type="bpe", vocab_size=45, minloglevel=2
        )
    return folder / "sentencepiece.bpe.model"


def test_an_existing_model_is_taken(corpus, tmp_path, fairseq_in_process):
    lines = (corpus.parent / "train.en").read_text(encoding="utf-8").split("\n")
    model = existing_model(corpus.parent, [*lines, *(corpus.parent / "train.en-de.de").read_text("utf-8").split("\n")])
    change(corpus, vocabulary={"sentencepiece": model.name})  # relative to the description
    data_bin = tmp_path / "data-bin"
    prepare(corpus, data_bin)
    assert (data_bin / "sentencepiece.model").read_bytes() == model.read_bytes()
    check_against_sources(corpus, data_bin)
    manifest = json.loads((data_bin / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"]["vocabulary"] == {"sentencepiece": model.name} and manifest["sampling"] is None
    assert manifest["vocabulary"]["sha256"] == {"sentencepiece.model": hashlib.sha256(model.read_bytes()).hexdigest()}
    fairseq_in_process.clear()
    prepare(corpus, data_bin)
    assert fairseq_in_process == []


def test_an_existing_model_is_checked(corpus, tmp_path):
    model = existing_model(corpus.parent, (corpus.parent / "train.en").read_text(encoding="utf-8").split("\n"))
    for name, reused, message in (
        ("missing.model", None, "vocabulary: sentencepiece: .*missing.model is not a SentencePiece model"),
        ("train.en", None, "vocabulary: sentencepiece: .*train.en is not a SentencePiece model"),
        (str(model), tmp_path, "vocabulary: the description names one, sentencepiece: leave out --vocabulary-from"),
    ):
        change(corpus, vocabulary={"sentencepiece": name})
        with pytest.raises(UserError, match=message):
            prepare(corpus, tmp_path / "data-bin", vocabulary_from=reused)


def test_lost_lines_are_reported(corpus, tmp_path, fairseq_in_process, monkeypatch):
    complete = binarize.run_fairseq

    def losing(options, cwd, log):
        path = cwd / "en" / "valid"
        path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
        complete(options, cwd, log)

    monkeypatch.setattr(binarize, "run_fairseq", losing)
    with pytest.raises(UserError, match=r"en/valid \(en\): \d+ lines of \d+ tokens went into fairseq-preprocess"):
        prepare(corpus, tmp_path / "data-bin")
    assert not (tmp_path / "data-bin" / "en").exists()


def test_two_runs_at_once_are_refused(corpus, prepared):
    with locked(Stages(prepared)), pytest.raises(UserError, match="is writing there"):
        prepare(corpus, prepared)
