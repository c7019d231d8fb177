"""Several translation directions in one model: temperature, resuming, directions without training pairs."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from fairseq import checkpoint_utils
from tiny_data import write_data_bin, write_items

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.token_stream import piece_counts
from fairseq_xl.data.plan import passes
from fairseq_xl.data.store.back_translated import back_translated_prefix, note_path
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from fairseq_xl.io.files import write_json
from fairseq_xl.io.fingerprints import Inputs
from fairseq_xl.objectives.data_folder import DataFolder
from fairseq_xl.objectives.translation import DirectedTranslation, TranslationConfig
from fairseq_xl.objectives.translation_scores import TranslationScorer
from tests.command_line import cli
from tests.commands import (
    denoising,
    equal_parameters,
    load,
    pretraining,
    run_generate,
    run_interactive,
    run_train,
    run_validate,
    translation,
)
from tests.tasks.resuming import LAST, WITH_WORKERS

MANY, FEW = 60, 15  # pairs of de-en and of en-fr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = write_data_bin(tmp_path_factory.mktemp("directions") / "data-bin")
    for language in ("en", "fr"):
        text = open_text(data / f"en-fr/train.en-fr.{language}", language)
        lines = [line for line in range(len(text)) if len(text[line]) > 1][:FEW]
        items = [text[line].tolist() for line in lines]
        del text
        write_items(data / f"en-fr/train.en-fr.{language}", items)
    return data


def train(data, folder, *more):
    return translation(
        data,
        folder,
        *cli(lang_pairs="en-de,en-fr", max_tokens=100, disable_validation=True, no_epoch_checkpoints=True),
        *more,
    )


def drawn(output, data, updates):
    """The examples of some updates, by the code of their target language."""
    codes, found = XLDictionary.load(data / "dict.txt").languages, {}
    for update in updates:
        (sample,) = output.samples[update]
        targets = sample["batch"]["other_languages"][:, 0].tolist()
        for target, number in zip(targets, sample["id"].tolist()):
            found.setdefault(codes[target], []).append(number)
    return found


def test_among_objectives_directions_are_trained_as_by_the_task(data, tmp_path):
    """One pass of the same model over the same pairs: equal losses, which `xl_translation` sums over tokens."""
    more = cli(max_epoch=1, arch="xl_unmt_tiny", max_tokens=100, no_epoch_checkpoints=True, log_format="json")
    directed = cli(lang_pairs="en-de,en-fr", sampling_temperature=2, label_smoothing=0.1)
    alone = run_train(translation(data, tmp_path / "task", *directed, *more))
    options = "directions=en-de,en-fr sampling_temperature=2 label_smoothing=0.1 length=39"
    settings = " ".join(f"translation.{option}" for option in options.split())
    line = denoising(data, tmp_path / "list", *cli(updates_per_epoch="auto"), objectives="translation")
    beside = run_train([*line, *cli(objective_options=settings), *more])
    sizes = [samples[0]["ntokens"] for samples in alone.samples.values()]
    sums = [float.fromhex(loss) for loss in alone.losses]
    expected = [total / size for total, size in zip(sums, sizes, strict=True)]
    assert [float.fromhex(loss) for loss in beside.losses] == pytest.approx(expected, rel=1e-5) and len(sums) > 5
    assert beside.statistics("translation_mixed_ppl", "train") == alone.statistics("ppl_mixed", "train")
    for name in ("en-de", "en-fr"):
        (value,), (other,) = beside.statistics(f"translation_{name}_ppl"), alone.statistics(f"ppl_{name}")
        assert float(value) == pytest.approx(float(other), rel=1e-3)
    checkpoint = tmp_path / "list" / LAST
    texts = [generated(data, checkpoint, direction) for direction in ("en-de", "en-fr")]
    assert all(len(text.lines("H")) > 5 for text in texts) and "zero-shot" not in texts[0].log + texts[1].log
    with pytest.raises(UserError, match="was trained for en-de, en-fr, not for fr-en"):
        generated(data, checkpoint, "fr-en")


def generated(data, checkpoint, direction):
    """fairseq-generate with a checkpoint in a direction."""
    source, target = direction.split("-")
    return run_generate(
        [data, *cli(task="xl_translation", s=source, t=target, path=checkpoint, beam=1, gen_subset="valid")]
    )


def test_directions_that_do_not_fit(data, tmp_path):
    line = denoising(data, tmp_path, *cli(max_update=1), objectives="translation")
    for options, more, error in (
        ("directions=en-de leave_out=en-fr", [], "translation.leave_out=en-fr excludes directions"),
        ("sampling_temperature=5.0", [], "translation.sampling_temperature=5.0 needs directions"),
        ("directions=en-de", ["--pairs", "en-fr"], "--pairs en-fr: leave it out"),
        ("directions=en-xx", [], "language 'xx'"),
    ):
        settings = " ".join(f"translation.{option}" for option in options.split())
        with pytest.raises(UserError, match=error):
            run_train([*line, "--arch", "xl_unmt_tiny", "--objective-options", settings, *more])
    options = "translation.directions=en-de,en-fr translation.length=39 translation.sampling_temperature=5"
    output = run_train([*line, *cli(arch="xl_unmt_tiny", objective_options=options)])
    assert "translation.sampling_temperature=5.0 (it is for --updates-per-epoch auto" in output.log
    command = cli(path=tmp_path / "checkpoint_last.pt", task="xl_pretraining", user_dir="fairseq_xl", max_tokens=256)
    with pytest.raises(UserError, match="was trained for en-de, en-fr, not for de-en: no direction is from de"):
        run_validate([data, *command, "--objective-options", "translation.directions=de-en"])


def test_a_direction_that_is_not_trained_may_have_no_text(data):
    dictionary = XLDictionary.load(data / "dict.txt")
    folder = DataFolder(data, dictionary, Inputs(), str(data), None, None, ("train",))
    trained, logged = (
        DirectedTranslation(TranslationConfig(directions="en-de,de-fr", weight=weight), dictionary, None)
        for weight in "10"
    )
    assert list(logged.open(folder, "valid", trains=False)) == ["en-de"]
    with pytest.raises(UserError, match="no bitext de-fr or fr-de for the split 'valid'"):
        trained.open(folder, "valid", trains=False)


def test_back_translated_pairs_belong_to_their_direction(data, tmp_path):
    """en-de has 2 x 60 real and 15 generated pairs, de-en 2 x 60 and 615: sqrt(135) : sqrt(735) = 3 : 7 of 870."""
    data = shutil.copytree(data, tmp_path / "data-bin")
    digest = XLDictionary.load(data / "dict.txt").digest()
    for (source, target), count in ((("en", "de"), 15), (("de", "en"), 615)):
        prefix = back_translated_prefix(data, source, target)
        for language in (source, target):
            write_items(Path(f"{prefix}.{language}"), [[10 + number % 5, 2] for number in range(count)])
        write_json(note_path(prefix), {"format": 1, "made_with": {"dictionary": digest}, "fingerprints": {}})
    more = cli(lang_pairs="en-de,de-en", back_translated=True, upsample_primary=2, sampling_temperature=2, max_epoch=1)
    output = run_train(train(data, tmp_path / "run", *more))
    found = drawn(output, data, output.updates)
    assert {code: len(numbers) for code, numbers in found.items()} == {"de": 261, "en": 609}


def test_an_epoch_in_chunks(data, tmp_path, monkeypatch):
    """A temperature of 2 draws sqrt(60) : sqrt(15) of 75 pairs; a run that is stopped resumes, with workers too."""
    monkeypatch.setattr(passes, "CHUNK", 20)

    def line(folder, last):
        more = cli(sampling_temperature=2, save_interval_updates=1, max_update=last)
        return train(data, tmp_path / folder, *more)

    whole = run_train(line("whole", 30))
    counts = [sum(map(len, drawn(whole, data, range(1, number + 1)).values())) for number in range(1, 31)]
    end = counts.index(MANY + FEW) + 1
    first, second = (drawn(whole, data, updates) for updates in (range(1, end + 1), range(end + 1, 2 * end + 1)))
    assert {code: len(numbers) for code, numbers in first.items()} == {"de": 50, "fr": 25}
    assert len(set(first["de"])) == 50 and set(first["de"]) != set(second["de"])
    assert set(Counter(first["fr"]).values()) == {1, 2} and len(set(first["fr"])) == FEW
    parts = [run_train(line("parts", last), WITH_WORKERS) for last in (end + 3, 30)]
    assert parts[0].losses + parts[1].losses == whole.losses
    assert equal_parameters(*(load(tmp_path / name / LAST) for name in ("whole", "parts")))


def test_a_direction_without_training_pairs_may_be_tried(data, tmp_path):
    """German is a source and French a target of other directions (Johnson et al. 2017: zero-shot)."""
    run_train(train(data, tmp_path, *cli(lang_pairs="de-en,en-fr", max_update=1)))
    more = cli(task="xl_translation", user_dir="fairseq_xl", path=tmp_path / LAST, max_len_b=5)
    output = run_interactive([data, *more, "-s", "de", "-t", "fr"], ["▁das ▁Haus"])
    assert len(output.lines("H")) == 1
    with pytest.raises(UserError, match="was trained for de-en, en-fr, not for fr-de"):
        run_interactive([data, *more, "-s", "fr", "-t", "de"], ["▁le"])


def test_mistakes(data, tmp_path):
    with pytest.raises(UserError, match="--sampling-temperature 0.5: 1 or more"):
        run_train(train(data, tmp_path, *cli(sampling_temperature=0.5)))
    with pytest.raises(
        UserError, match="no bitext en-de or de-en for the split 'dev' .the folder has test, train, valid"
    ):
        run_train(translation(data, tmp_path, *cli(lang_pairs="en-de", max_tokens=100, valid_subset="dev")))
    with pytest.raises(UserError, match="--freeze .*: no parameter is left to train"):
        run_train(pretraining(data, tmp_path, *cli(max_update=1, freeze="*")))
    output = run_train(train(data, tmp_path, *cli(max_update=1, s="en", t="de")))
    assert "-s en -t de (--lang-pairs names the directions" in output.log


def test_wrong_languages_without_training_text_are_not_logged(data, tmp_path):
    """The guess needs a training text of each language: monolingual, or else a side of a bitext."""
    folder = shutil.copytree(data, tmp_path / "data-bin")
    dictionary = XLDictionary.load(folder / "dict.txt")

    def guess():
        return TranslationScorer(dictionary, folder, ["en-de", "de-en"])

    whole = guess().guess.log_shares
    counts = piece_counts(folder / "de/train", "de", len(dictionary)) + 1
    assert whole[0] == pytest.approx(np.log(counts / counts.sum()))
    for path in (folder / "de").glob("train*"):
        path.unlink()
    counts = piece_counts(folder / "de-en/train.de-en.de", "de", len(dictionary)) + 1
    assert guess().guess.log_shares[0] == pytest.approx(np.log(counts / counts.sum()))
    for path in folder.glob("*-*/train*.de.*"):
        path.unlink()
    scorer = guess()
    assert scorer.guess is None and scorer.reference_free == ["length_ratio"]
    tokens = torch.tensor([[4, 5, 2]])
    counted = scorer.count([("en", "de")], tokens, tokens)["en-de"]
    assert (counted.sentences, counted.wrong_language, counted.pieces) == (1, 0, 2)


def test_pieces_are_counted_from_the_beginning(data):
    """Of the first three tokens, or of all."""
    text = open_text(data / "de/train", "de")
    first = text[0].tolist()
    counts = piece_counts(data / "de/train", "de", 100, tokens=3)
    assert counts.sum() == 3 and all(counts[token] for token in first[:3])
    assert piece_counts(data / "de/train", "de", 100).sum() == sum(len(text[line]) for line in range(len(text)))


def test_validation_bleu_selects_the_checkpoint(data, tmp_path):
    """Sentences translated one by one, and sacreBLEU's score of all of them."""
    select = cli(eval_bleu=True, best_checkpoint_metric="bleu", maximize_best_checkpoint_metric=True)
    more = cli(lang_pairs="en-de,de-en", max_tokens=200, max_epoch=15, validate_interval=5, lr=0.01)
    output = run_train(translation(data, tmp_path, *more, *select, "--no-epoch-checkpoints"))
    scores = [float(value) for value in output.statistics("bleu", "valid")]
    assert len(scores) == 3 and max(scores) > 1
    assert load_plain(tmp_path / "checkpoint_best.pt")["extra_state"]["best"] == max(scores)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "checkpoint_last.pt")], {"data": str(data)}
    )
    dictionary, codes = task.dictionary, ("de", "en")
    pairs = SentencePairs(data / "de-en" / "valid.de-en", *codes)
    sides = [list(map(torch.from_numpy, side)) for side in zip(*pairs.texts(pairs.filled, None))]
    for source, target in ((0, 1), (1, 0)):
        direction = f"{codes[source]}-{codes[target]}"
        hypotheses = []
        for sentence in sides[source]:
            batch = {
                "tokens": torch.cat((torch.tensor([dictionary.bos()]), sentence))[None],
                "padding_mask": None,
                "languages": torch.tensor([[dictionary.language_id(codes[source])]]),
            }
            start = torch.tensor([[dictionary.language_symbol(codes[target])]])
            (written,) = model.translate(batch, start, torch.from_numpy(dictionary.is_output))
            hypotheses.append(dictionary.string(written, "sentencepiece"))
        score = sacrebleu.corpus_bleu(
            hypotheses, [[dictionary.string(each, "sentencepiece") for each in sides[target]]]
        )
        assert float(output.statistics(f"bleu_{direction}", "valid")[-1]) == pytest.approx(score.score, abs=0.006)
        assert output.statistics(f"wrong_language_{direction}", "valid")
