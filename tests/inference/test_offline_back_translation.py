"""Offline back-translation: pairs as fairseq-generate makes them, training on them, resuming, mistakes (X13)."""

import json
import shutil

import numpy as np
import pytest
import torch
from tiny_data import write_items

from fairseq_xl import commands
from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.inference import offline_back_translation
from fairseq_xl.io.files import read_json
from fairseq_xl.io.folders import locked
from preprocess.verification import verify
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, run_generate, run_train, translation, unsupervised

EOS = 2


@pytest.fixture(scope="module")
def place(data_bin, tmp_path_factory):
    """A data-bin with the German side of the test pairs, without its empty line, as the split `few`; a de-en model."""
    root = tmp_path_factory.mktemp("place")
    data = shutil.copytree(data_bin, root / "data-bin")
    side = open_text(data / "en-de/test.en-de.de", "de")
    items = [side[line].tolist() for line in range(len(side))]
    write_items(data / "de/few", [item for item in items if len(item) > 1])
    run_train(translation(data, root / "de-en", *cli(s="de", t="en", max_update=60, lr=0.01, disable_validation=True)))
    return data, root / "de-en/checkpoint_last.pt"


@pytest.fixture
def data(place, tmp_path):
    return shutil.copytree(place[0], tmp_path / "data-bin")


def run(checkpoint, data, capsys, *more):
    commands.main(
        ["back-translate", *map(str, (checkpoint, data, *cli(s="en", t="de", max_tokens=512, split="few"), *more))]
    )
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def sources(data):
    pairs = SentencePairs(data / "en-de/back-de.en-de", "en", "de")
    return [pairs.sides[0][line].tolist() for line in range(len(pairs.sizes))]


@pytest.mark.parametrize("beam", [1, 3])
def test_the_sources_are_those_of_fairseq_generate(place, data, capsys, beam):
    statistics = run(place[1], data, capsys, "--beam", beam)
    output = run_generate(
        [
            data,
            *cli(task="xl_translation", s="de", t="en", path=place[1], beam=beam, max_len_a=1.3, max_len_b=4),
            *cli(user_dir="fairseq_xl", max_tokens=512),
        ]
    )
    pairs = SentencePairs(data / "en-de/back-de.en-de", "en", "de")
    text = open_text(data / "en-de/test.en-de.de", "de")
    lines = [line for line in range(len(text)) if len(text[line]) > 1]
    names = XLDictionary.load(data / "dict.txt").symbols
    assert len(pairs.sizes) == len(lines) == statistics["pairs"]
    for number, line in enumerate(lines):
        assert pairs.sides[1][number].tolist() == text[line].tolist()
        (best, *_) = output.lines("H")[line]
        found = [names[token] for token in pairs.sides[0][number].tolist()]
        assert " ".join(found[:-1]) == best.split("\t")[1] and found[-1] == "</s>"
    assert statistics["mean_length"]["de"] == pytest.approx(np.mean([len(text[line]) - 1 for line in lines]), abs=0.01)


def test_sampling_depends_on_the_seed_alone(place, data, capsys):
    """From the most probable symbol it is greedy search."""
    made = []
    for more in ("--seed 1", "--seed 2", "--seed 1", "--sampling-topk 1"):
        run(place[1], data, capsys, *f"--sampling --sampling-topk 5 {more}".split())
        made.append(sources(data))
    assert made[0] == made[2] != made[1]
    run(place[1], data, capsys, "--beam", 1)
    assert sources(data) == made[3]


def test_16_bits(place, data, capsys):
    """The model computes with 16 bits; sources are almost those of 32 bits; the pairs are generated again."""
    run(place[1], data, capsys, "--beam", 1)
    whole, note = sources(data), data / "en-de/back-de.en-de.json"
    assert "fp16" not in note.read_text()
    run(place[1], data, capsys, "--beam", 1, "--fp16")
    assert '"fp16": true' in note.read_text()
    translator = offline_back_translation.Translator(
        str(place[1]), str(data), "de", "en", {"beam": 1}, False, fp16=True
    )
    assert next(translator.model.parameters()).dtype == torch.float16
    assert sum(one == other for one, other in zip(whole, sources(data), strict=True)) >= len(whole) // 2


def test_sources_have_only_pieces_of_their_language(place, data, capsys):
    """At a high temperature sampling writes pieces of all languages; the pairs depend on the option."""
    text = [open_text(path.with_suffix(""), "en") for path in (data / "en/train.idx", *data.glob("*-*/train.*.en.idx"))]
    pieces = {int(piece) for side in text for line in range(len(side)) for piece in side[line]}
    found = []
    for more in ([], ["--target-pieces-only"]):
        run(place[1], data, capsys, "--sampling", "--temperature", 50, *more)
        found.append({piece for source in sources(data) for piece in source})
    assert not found[0] <= pieces and found[1] <= pieces


def test_a_second_run_at_the_same_time_is_refused(place, data, capsys):
    """The lock of a run that is over, or was killed, is no obstacle."""
    path = data / "en-de/back-de.en-de.lock"
    with locked(path, ""), pytest.raises(UserError, match="back-de.en-de: another `fairseq-xl back-translate` is writ"):
        run(place[1], data, capsys)
    assert not (data / "en-de/back-de.en-de.json").exists() and path.exists()
    run(place[1], data, capsys)
    assert len(sources(data)) == 12


def test_a_stopped_run_continues(place, data, capsys, monkeypatch):
    run(place[1], data, capsys)
    whole = sources(data)
    for end in ("en.bin", "en.idx", "de.bin", "de.idx", "json"):
        (data / f"en-de/back-de.en-de.{end}").unlink()
    monkeypatch.setattr(offline_back_translation, "CHUNK", 5)
    translate, calls = offline_back_translation.Translator.__call__, []

    def interrupted(self, sentences, max_tokens):
        calls.append(len(sentences))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return translate(self, sentences, max_tokens)

    monkeypatch.setattr(offline_back_translation.Translator, "__call__", interrupted)
    with pytest.raises(SystemExit):
        run(place[1], data, capsys)
    assert not (data / "en-de/back-de.en-de.en.idx").exists()
    run(place[1], data, capsys)
    assert calls == [5, 5, 5, 2] and sources(data) == whole
    assert not (data / "en-de/back-de.en-de.part").exists()
    run(place[1], data, capsys)
    assert len(calls) == 4  # nothing to do


def test_another_text_is_translated_anew(place, data, capsys, caplog):
    """As many sentences as before."""
    run(place[1], data, capsys)
    assert "replaced" not in caplog.text
    before, text = sources(data), open_text(data / "de/few", "de")
    items = [text[line].tolist() for line in range(len(text))]
    del text
    write_items(data / "de/few", items[::-1])
    run(place[1], data, capsys)
    assert sources(data) == before[::-1] != before
    assert "back-de.en-de: the pairs of other settings or text are replaced (text: then '" in caplog.text


def test_pairs_beside_an_unfinished_run_are_named(place, data, tmp_path, capsys, monkeypatch):
    """A run with sampling is stopped; training reads the pairs before it."""
    run(place[1], data, capsys)
    assert "interrupted" not in train_on_pairs(data, tmp_path / "run").log
    with monkeypatch.context() as context, pytest.raises(SystemExit):
        context.setattr(
            offline_back_translation.Translator, "__call__", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        run(place[1], data, capsys, "--sampling")
    message = (
        "training reads the pairs of an earlier back-translation, since a later one was interrupted; finish it with "
        "`fairseq-xl back-translate"
    )
    assert message in train_on_pairs(data, tmp_path / "other").log


def train_on_pairs(data, folder):
    more = cli(s="en", t="de", back_translated=True, max_update=1, disable_validation=True)
    return run_train(translation(data, folder, *more))


def test_pairs_whose_sides_are_of_two_texts_are_refused(place, data, tmp_path, capsys, monkeypatch):
    """The text changes; the run is killed when the new sources are written and the new targets are not."""
    run(place[1], data, capsys)
    text = open_text(data / "de/few", "de")
    items = [text[line].tolist() for line in range(len(text))]
    del text
    write_items(data / "de/few", items[::-1])
    write = offline_back_translation.write_items

    def interrupted(prefix, *arguments):
        if prefix.endswith(".de"):
            raise KeyboardInterrupt
        return write(prefix, *arguments)

    with monkeypatch.context() as context, pytest.raises(SystemExit):
        context.setattr(offline_back_translation, "write_items", interrupted)
        run(place[1], data, capsys)
    message = "en-de/back-de.en-de is not complete, back-de.en-de.json is missing; run `fairseq-xl back-translate"
    with pytest.raises(UserError, match=message):
        train_on_pairs(data, tmp_path / "run")
    run(place[1], data, capsys)
    assert len(sources(data)) == 12 and train_on_pairs(data, tmp_path / "run").updates


def test_pairs_of_another_dictionary_are_refused(place, data, tmp_path, capsys):
    """Two pieces change places: the ids are valid, but of other words."""
    run(place[1], data, capsys)
    (data / "manifest.json").unlink()  # as if all other text had been binarized with the new dictionary
    first, second, *rest = (data / "dict.txt").read_text(encoding="utf-8").splitlines()
    for path in data.rglob("dict*.txt"):
        path.write_text("\n".join([second, first, *rest]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="back-de.en-de was written with another dictionary than .*dict.txt; run `fair"):
        train_on_pairs(data, tmp_path / "run")


@pytest.mark.parametrize("kind", ["zeros", "copy", "bit", "missing"])
def test_changed_pairs_are_refused_and_written_again(place, data, tmp_path, capsys, kind):
    run(place[1], data, capsys)
    whole, folder = sources(data), data / "en-de"
    path, other = (folder / f"back-de.en-de.{code}.bin" for code in ("en", "de"))
    content = bytearray(path.read_bytes())
    if kind == "zeros":
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    elif kind == "bit":
        content[0] ^= 1
    path.write_bytes(other.read_bytes() if kind == "copy" else content)
    if kind == "copy":
        shutil.copyfile(other.with_suffix(".idx"), path.with_suffix(".idx"))
    if kind == "missing":  # the note alone shows nothing
        for part in folder.glob("back-*.??.*"):
            part.unlink()
    named = folder / "back-de.en-de" if kind == "missing" else path.with_suffix("")
    for read in (lambda: train_on_pairs(data, tmp_path / "run"), lambda: verify(data)):
        with pytest.raises(UserError, match=str(named)):
            read()
    run(place[1], data, capsys)
    for path in (data / "de").glob("few.*"):  # text that preprocess did not write
        path.unlink()
    assert sources(data) == whole and verify(data)


@pytest.fixture(scope="module")
def with_pairs(place, tmp_path_factory):
    """A data-bin with 12 back-translated pairs of en-de beside the 90 real ones."""
    data = shutil.copytree(place[0], tmp_path_factory.mktemp("pairs") / "data-bin")
    commands.main(["back-translate", *map(str, (place[1], data, *cli(s="en", t="de", max_tokens=512, split="few")))])
    return data


def examples(output):
    """Sources of the first epoch, as tuples of ids without padding."""
    found = []
    for (sample,) in output.samples.values():
        found += [tuple(row[row != 1].tolist()) for row in sample["batch"]["tokens"]]
    return found


@pytest.mark.parametrize("tagged", [False, True])
def test_training_reads_real_and_generated_pairs(with_pairs, tmp_path, tagged):
    more = cli(s="en", t="de", back_translated=True, upsample_primary=2, max_epoch=1, disable_validation=True)
    output = run_train(translation(with_pairs, tmp_path, *more, *(["--tagged-back-translation"] if tagged else [])))
    pairs = SentencePairs(with_pairs / "en-de/train.en-de", "en", "de")
    mask = XLDictionary.load(with_pairs / "dict.txt").mask_index
    real = [(0, *pairs.sides[0][line].tolist()) for line in pairs.filled]
    generated = [(0, *([mask] if tagged else []), *source) for source in sources(with_pairs)]
    targets = SentencePairs(with_pairs / "en-de/back-de.en-de", "en", "de").sizes[:, 1]
    fitting = [source for source, size in zip(generated, targets) if max(len(source), size) <= MAX_POSITIONS]
    assert len(fitting) == 11  # without the sentence of 60 words
    assert sorted(examples(output)) == sorted(2 * real + fitting)
    if tagged:
        assert not any(mask in source for source in real)


def test_a_part_of_the_real_pairs_is_read(with_pairs, tmp_path):
    """Half of the 90 in each epoch, another half in the next, and 1.5 times as many with 1.5."""

    def epochs(folder, upsampling):
        more = cli(s="en", t="de", back_translated=True, upsample_primary=upsampling, max_epoch=2)
        output = run_train(translation(with_pairs, tmp_path / folder, *more, "--disable-validation"))
        generated = {(0, *source) for source in sources(with_pairs)}
        found, whole = [], [row for row in examples(output) if row not in generated]
        assert len(whole) % 2 == 0
        for part in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            found.append(sorted(part))
        return found, output.log

    halves, log = epochs("half", 0.5)
    assert [len(half) for half in halves] == [45, 45] and halves[0] != halves[1]
    assert log.count(" and 12 back-translated pairs") == 1
    assert "en-de: 90 parallel and 12 back-translated pairs; each epoch reads 45 and 12 of them, a ratio of 3.75" in log
    more, log = epochs("more", 1.5)
    assert [len(part) for part in more] == [135, 135] and "each epoch reads 135 and 12 of them, a ratio of 11.2" in log


def test_pairs_for_the_other_direction_are_not_mistaken(with_pairs, tmp_path):
    with pytest.raises(UserError, match="no .*back-en.de-en.de; `fairseq-xl back-translate CHECKPOINT .* -s de -t en`"):
        run_train(translation(with_pairs, tmp_path, *cli(s="de", t="en", back_translated=True, max_update=1)))


def test_a_model_of_unsupervised_translation_may_generate(place, data, tmp_path, capsys):
    more = cli(langs="en,de", updates_per_epoch=2, max_update=2, disable_validation=True)
    run_train(unsupervised(data, tmp_path / "un", *more))
    statistics = run(tmp_path / "un/checkpoint_last.pt", data, capsys)
    assert statistics["pairs"] == 12
    note = read_json(data / "en-de/back-de.en-de.json")
    assert note.pop("fingerprints") and note.pop("format") == 1 and note == statistics


def test_mistakes(place, data, capsys):
    with pytest.raises(UserError, match=f"^{data}:{data}: back-translate one data folder at a time$"):
        run(place[1], f"{data}:{data}", capsys)
    for more, message in (
        ("-s fr", "was trained for de-en, not for de-fr"),
        ("-s de", "-s de -t de: name two languages"),
        ("-s xx", "language 'xx' has no symbol"),
        ("--split test", "no binarized text of language 'de'"),
        ("--beam 0", "--beam 0: 1 or more is needed"),
        ("--sampling-topk 3", "--sampling-topk needs --sampling"),
        ("--sampling --sampling-topk 0", "--sampling-topk 0: 1 or more is needed"),
        ("--sampling --sampling-topk -1", "--sampling-topk -1: 1 or more is needed"),
        ("--sampling --sampling-topk 9999", "--sampling-topk 9999: expected at most .*, the number of symbols"),
        ("--sampling --beam 5", "--beam 5: --sampling draws one source for each sentence, leave out --beam"),
        ("--max-tokens 3", "de/few: a sentence has 40 tokens, more than --max-tokens 3: raise it$"),
        ("--seed -1", "--seed -1: 0 or more is needed"),
        (f"--seed {10**20}", "--seed 1(0){20}: a number below 4294967296 is needed"),
        ("--temperature 0", "--temperature 0.0: more than 0 is needed"),
        ("--temperature nan", "--temperature nan: more than 0 is needed"),
        ("--temperature inf", "--temperature inf: a number below"),
        ("--length 2", "every sentence has more than 2 tokens"),
    ):
        with pytest.raises((UserError, SystemExit), match=message):
            run(place[1], data, capsys, *more.split())


def test_options_of_back_translated_pairs(data_bin, tmp_path):
    line = translation(data_bin, tmp_path, *cli(s="en", t="de", max_update=1))
    for option in ("--tagged-back-translation", "--upsample-primary 2", "--upsample-primary 0.5"):
        with pytest.raises(UserError, match=f"^{option} needs --back-translated$"):
            run_train([*line, *option.split()])
    for upsampling in (0, -1):
        with pytest.raises(UserError, match=f"--upsample-primary {upsampling}.0: more than 0 is needed"):
            run_train([*line, "--back-translated", "--upsample-primary", upsampling])
