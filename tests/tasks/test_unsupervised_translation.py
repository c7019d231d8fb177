"""Unsupervised translation through fairseq's commands: scores, schedules, initial weights, mistakes (X11)."""

import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import torch
import yaml
from fairseq import checkpoint_utils, options as parsers, tasks

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.objectives import back_translation, translation_scores
from fairseq_xl.objectives.back_translation import BackTranslation
from fairseq_xl.objectives.sequence import SequenceObjective
from fairseq_xl.tasks import unsupervised_translation
from fairseq_xl.tasks.pretraining import add_defaults
from tests.command_line import cli
from tests.commands import (
    UNSUPERVISED,
    configuration,
    denoising,
    evaluated,
    load,
    run_generate,
    run_train,
    run_validate,
    unsupervised,
)
from tests.tasks.initial_weights import check_all_trained, initial

ROOT = Path(__file__).resolve().parents[2]
EPOCH = 4
UNTRAINED = cli(langs="en,de", updates_per_epoch=1, max_update=1, lr=0, init_std=0.5)


def line(data, folder, *more):
    return unsupervised(data, folder, "--langs", "en,de", "--updates-per-epoch", EPOCH, *more)


@pytest.fixture(scope="module")
def whole(data_bin, tmp_path_factory):
    """Folder and output of a run of two epochs of 4 updates, with a schedule of the weight of denoising."""
    folder = tmp_path_factory.mktemp("whole")
    more = cli(max_update=2 * EPOCH, objective_options=f"{UNSUPERVISED} xdae.weight=0:1,16:0.1")
    return folder, run_train(line(data_bin, folder, *more))


@pytest.fixture(scope="module")
def untrained(data_bin, tmp_path_factory):
    """Folder and output of a run that leaves the random weights as they are: it writes words of all languages."""
    folder = tmp_path_factory.mktemp("untrained")
    return folder, run_train(unsupervised(data_bin, folder, *UNTRAINED))


@pytest.fixture(scope="module")
def bpe(data_bin, tmp_path_factory):
    """A copy of the data-bin whose pieces are spelled as BPE's: every third one continues in the next piece."""
    data = shutil.copytree(data_bin, tmp_path_factory.mktemp("bpe") / "data-bin")
    (data / "manifest.json").unlink()  # which names the dictionary
    lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines()
    pieces = [line.split() for line in lines if not line.startswith(("<", "["))]
    spelled = [  # with a number, since without ▁ some would be equal
        f"{piece.replace('▁', '')}{number}{'' if number % 3 else '@@'} {count}"
        for number, (piece, count) in enumerate(pieces)
    ]
    for path in data.rglob("dict*.txt"):
        path.write_text("\n".join([*spelled, *lines[len(pieces) :]]) + "\n", encoding="utf-8")
    return data


@pytest.fixture(scope="module")
def without_bitext(data_bin, tmp_path_factory):
    """A copy of the data-bin with monolingual text alone."""
    folder = tmp_path_factory.mktemp("monolingual") / "data-bin"
    shutil.copytree(data_bin, folder)
    for pair in ("en-de", "en-fr"):
        shutil.rmtree(folder / pair)
    return folder


def test_objectives_alternate_and_parallel_text_is_read_in_validation_only(whole):
    batches = [sample for (sample,) in whole[1].samples.values()]
    assert [batch["objective"] for batch in batches] == ["xdae", "back_translation"] * 4
    assert {batch["corpus"] for batch in batches} == {"en", "de"}
    for batch in batches:
        if batch["objective"] == "back_translation":
            assert (batch["batch"]["languages"] + batch["batch"]["other_languages"] == 1).all()
    assert whole[1].statistics("translation_en-de_ppl") and not whole[1].statistics("translation_en-fr_ppl")


def test_every_parameter_is_trained(whole):
    check_all_trained(*(load(whole[0] / f"checkpoint{name}.pt") for name in ("1", "_last")))


@pytest.mark.parametrize("run", ["whole", "untrained"])
def test_bleu_is_that_of_the_validation_text(data_bin, request, run):
    """Sentences translated one by one, and sacreBLEU's score of all of them; there and back, too.

    Shares of wrong languages and ratios of lengths are recomputed from the same translations.
    """
    folder, output = request.getfixturevalue(run)
    path = str(folder / "checkpoint_last.pt")
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([path], {"data": str(data_bin)})
    back, dictionary, codes = task.objectives["back_translation"], task.dictionary, ("en", "de")

    def translated(sentence, source, target):
        ids = {code: torch.tensor([[dictionary.language_id(code)]]) for code in codes}
        batch = back.as_source(sentence, ids[source]) | {"other_languages": ids[target]}
        return back.translated(model.eval(), batch)["tokens"][:, 1:]

    def text(sentence):
        return dictionary.string(sentence, "sentencepiece")

    logs = {}  # of the shares of each piece in the training text of a language, with one added
    for code in codes:
        text_of_code = open_text(data_bin / code / "train", code)
        tokens = np.concatenate([text_of_code[line] for line in range(len(text_of_code))])
        counts = np.bincount(tokens, minlength=len(dictionary)) + 1
        logs[code] = np.log(counts / counts.sum())
    pairs = SentencePairs(data_bin / "en-de" / "valid.en-de", *codes)
    directions = {"en-de": (0, 1), "de-en": (1, 0)}
    for direction, (source, target) in directions.items():
        sides = list(zip(*(pairs.texts(pairs.filled, None))))
        names = codes[source], codes[target]
        mono = Sentences(data_bin / names[0] / "valid", names[0])
        sentences = [each.astype("int64") for (each,) in mono.texts(mono.all_examples(99)[0], 99)]
        sources = [torch.from_numpy(each)[None] for each in (*sentences, *sides[source])]
        translations = [translated(each, *names) for each in sources]
        there = translations[: len(sentences)]
        hypotheses = [text(each[0]) for each in translations[len(sentences) :]]
        score = sacrebleu.corpus_bleu(hypotheses, [[text(torch.from_numpy(each)) for each in sides[target]]])
        assert float(output.statistics(f"bleu_{direction}")[-1]) == pytest.approx(score.score, abs=0.006)
        pieces, of_source = (
            [each[0][torch.from_numpy(dictionary.is_piece)[each[0]]] for each in rows]
            for rows in (translations, sources)
        )
        logged = [
            float(output.statistics(f"{key}_{direction}", "valid")[-1]) for key in ("wrong_language", "length_ratio")
        ]
        likelier = [logs[names[0]][row].sum() > logs[names[1]][row].sum() for row in pieces]
        assert logged[0] == pytest.approx(100 * np.mean(likelier), abs=0.051)
        assert logged[1] == pytest.approx(sum(map(len, pieces)) / sum(map(len, of_source)), abs=0.0051)
        returned = [text(translated(each, *names[::-1])[0]) for each in there]
        score = sacrebleu.corpus_bleu(returned, [[text(torch.from_numpy(each)) for each in sentences]])
        assert float(output.statistics(f"round_trip_bleu_{direction}")[-1]) == pytest.approx(score.score, abs=0.006)
    means = [float(output.statistics(name)[-1]) for name in ("bleu", "bleu_en-de", "bleu_de-en")]
    assert means[0] == pytest.approx(sum(means[1:]) / 2, abs=0.006)


def test_a_direction_without_validation_text_is_no_metric(data_bin, tmp_path):
    """en-de and en-fr have parallel text; German has no monolingual validation text."""
    data = shutil.copytree(data_bin, tmp_path / "data-bin")
    for path in (data / "de").glob("valid.*"):
        path.unlink()
    for metric in ("bleu_de-fr", "round_trip_bleu_de-en"):
        select = cli(best_checkpoint_metric=metric, maximize_best_checkpoint_metric=True, langs="en,de,fr")
        with pytest.raises(UserError, match=f"--best-checkpoint-metric {metric}: choose one of .*bleu_fr-en.*_en-fr"):
            run_train(unsupervised(data, tmp_path / "run", *select, *cli(max_update=1, updates_per_epoch=1)))


def test_amp_translates_in_16_bits_too(data_bin, monkeypatch):
    """In the context in which the loss is computed (`fairseq_xl.optimizers.precision.Optimizer.autocast`)."""
    task, recorded = unsupervised_translation.XLUnsupervisedTranslationTask, []

    @contextlib.contextmanager
    def autocast():
        recorded.append("begin")
        yield
        recorded.append("end")

    def criterion(model, sample):
        objective = made.objectives[sample["objective"]]
        model(compute=objective.loss, batch={"other_languages": None})
        return 0, 1, {}

    class Model:
        set_num_updates = staticmethod(lambda number: None)

        def __call__(self, compute, batch):
            compute(self, batch)

    made = task.setup_task(configuration(parsers.get_training_parser(), line(data_bin, data_bin)).task)
    monkeypatch.setattr(BackTranslation, "translated", lambda *_: recorded.append("translated") or {})
    monkeypatch.setattr(back_translation, "sequence_terms", lambda *_: [None])
    made.objectives["back_translation"].scorer = None
    optimizer = SimpleNamespace(autocast=autocast, backward=lambda loss: recorded.append("backward"))
    made.train_step({"objective": "back_translation"}, Model(), criterion, optimizer, 0)
    assert recorded == ["begin", "translated", "end", "backward"]


def test_training_logs_that_translations_are_copies(data_bin, tmp_path, monkeypatch):
    """Copies have the length of their source, and nearly all are in the wrong language."""

    def translated(self, model, batch):
        return batch | self.as_source(batch["target"], batch["other_languages"])

    monkeypatch.setattr(BackTranslation, "translated", translated)
    output = run_train(line(data_bin, tmp_path, "--max-update", 2 * EPOCH, "--disable-validation"))
    for direction in ("en-de", "de-en"):
        assert set(output.statistics(f"length_ratio_{direction}", "train")) == {"1"}
        assert min(map(float, output.statistics(f"wrong_language_{direction}", "train"))) > 90
    assert not output.statistics("bleu") and not output.statistics("round_trip_bleu")


def test_bleu_of_bpe_is_that_of_its_words(bpe, tmp_path, monkeypatch):
    """Each translation is the reference without its first piece; --remove-bpe of fairseq joins pieces for sacreBLEU."""

    monkeypatch.setattr(SequenceObjective, "translations", lambda self, model, batch: batch["target"][:, 1:])
    output = run_train(unsupervised(bpe, tmp_path / "run", *UNTRAINED))
    dictionary = XLDictionary.load(bpe / "dict.txt")
    pairs = SentencePairs(bpe / "en-de" / "valid.en-de", "en", "de")
    for side, direction in enumerate(("de-en", "en-de")):
        rows = [torch.from_numpy(pair[side].astype("int64")) for pair in pairs.texts(pairs.filled, None)]
        texts = [[dictionary.string(row[first:], "subword_nmt") for row in rows] for first in (1, 0)]
        score = sacrebleu.corpus_bleu(texts[0], [texts[1]]).score
        assert float(output.statistics(f"bleu_{direction}")[-1]) == pytest.approx(score, abs=0.006)
        pieces = [[" ".join(dictionary[piece] for piece in row[first:-1]) for row in rows] for first in (1, 0)]
        assert abs(sacrebleu.corpus_bleu(pieces[0], [pieces[1]]).score - score) > 1


def test_a_dictionary_that_marks_no_words_is_refused(bpe, tmp_path):
    data = shutil.copytree(bpe, tmp_path / "data-bin")
    for path in data.rglob("dict*.txt"):
        path.write_text(path.read_text(encoding="utf-8").replace("@@", "+"), encoding="utf-8")
    with pytest.raises(UserError, match="data-bin/dict.txt: no piece of the dictionary begins with ▁, .* or ends wit"):
        run_train(line(data, tmp_path / "run", "--max-update", 1))


ROUND_TRIP = cli(best_checkpoint_metric="round_trip_bleu", maximize_best_checkpoint_metric=True)


def test_bleu_without_parallel_text_is_refused_before_text_is_read(without_bitext, tmp_path, monkeypatch):
    task = unsupervised_translation.XLUnsupervisedTranslationTask
    monkeypatch.setattr(task, "load_dataset", lambda *_, **__: pytest.fail("text was read"))
    message = "has no parallel validation text of en,de; use --best-checkpoint-metric round_trip_bleu"
    with pytest.raises(UserError, match=message):
        run_train(line(without_bitext, tmp_path, *cli(max_update=1, best_checkpoint_metric="bleu", langs="en,de")))


def test_a_higher_bleu_of_round_trips_is_better(without_bitext, tmp_path, monkeypatch):
    """Validations score 3, 7 and 5: the second is the best, and the third ends training with --patience 1."""
    task, validations = unsupervised_translation.XLUnsupervisedTranslationTask, []
    monkeypatch.setattr(task, "begin_valid_epoch", lambda self, epoch, model: validations.append(epoch))
    monkeypatch.setitem(translation_scores.SCORES, "bleu", lambda sums: (3.0, 7.0, 5.0)[len(validations) - 1])
    output = run_train(line(without_bitext, tmp_path, "--max-update", 20, "--patience", 1, *ROUND_TRIP))
    assert not output.statistics("bleu") and not output.statistics("translation_ppl")  # no parallel text
    assert output.statistics("round_trip_bleu") == ["3", "7", "5"] and len(output.updates) == 3 * EPOCH
    best = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint_best.pt"))
    assert best["extra_state"]["best"] == 7 and best["optimizer_history"][-1]["num_updates"] == 2 * EPOCH


def test_weights_follow_their_schedule(data_bin, tmp_path):
    """At weight 0 an objective takes no more updates, from the next epoch on."""
    options = f"{UNSUPERVISED} xdae.weight=0:1,4:0"
    more = cli(disable_validation=True, lr=0, no_save=True)
    output = run_train(line(data_bin, tmp_path, *more, *cli(objective_options=options, max_update=6)))
    names = [sample["objective"] for (sample,) in output.samples.values()]
    assert names == ["xdae", "back_translation"] * 2 + ["back_translation"] * 2
    options = f"{UNSUPERVISED} xdae.weight=1"
    plain = run_train(line(data_bin, tmp_path, *more, *cli(objective_options=options, max_update=4)))
    ratios = [
        float.fromhex(output.updates[number][0]) / float.fromhex(plain.updates[number][0]) for number in range(1, 5)
    ]
    assert ratios == pytest.approx([1, 1, 0.5, 1])  # linear from 1 at update 0 to 0 at update 4


def test_generation_with_the_task_of_training_names_the_right_one(data_bin, whole):
    line = [data_bin, "--task", "xl_unsupervised_translation", "--path", whole[0] / "checkpoint_last.pt"]
    message = "no monolingual text for the split 'test'.*fairseq-generate translates with --task xl_translation"
    with pytest.raises(UserError, match=message):
        lengths = "xdae.length=40 back_translation.length=40"
        run_generate([*line, *cli(user_dir="fairseq_xl", max_tokens=512, objective_options=lengths)])


def test_embeddings_start_from_word_vectors(data_bin, tmp_path):
    """Of encoder and decoder (EMB), at the size of the model's own; everything else is random."""
    symbols = XLDictionary.load(data_bin / "dict.txt").symbols
    vectors = torch.randn(10, 16, generator=torch.Generator().manual_seed(0))
    rows = [f"{symbol} {' '.join(map(str, row.tolist()))}" for symbol, row in zip(symbols[10:], vectors)]
    (tmp_path / "fasttext.vec").write_text("\n".join(["10 16", *rows]) + "\n", encoding="utf-8")
    state, log = initial(line(data_bin, tmp_path, *cli(init_embeddings_from=tmp_path / "fasttext.vec")))
    for stack in ("encoder", "decoder"):
        table = state[f"{stack}.token_embeddings.table.weight"]
        size = table[10:20].square().mean().sqrt()
        torch.testing.assert_close(table[10:20], vectors * size / vectors.square().mean().sqrt())
        assert size == pytest.approx(table[20:].square().mean().sqrt().item(), rel=0.2)
    assert f"vectors of 10 of {len(symbols)} symbols" in log
    with pytest.raises(UserError, match="holds word vectors: give it as --init-embeddings-from"):
        run_train(line(data_bin, tmp_path / "x", *cli(init_encoder_from=tmp_path / "fasttext.vec", max_update=1)))
    (tmp_path / "model.bin").write_bytes(b"\xba\x16\x4f\x2f\x0c\0\0\0")
    with pytest.raises(UserError, match="model.bin is a binary file of fastText or word2vec"):
        run_train(line(data_bin, tmp_path / "x", *cli(init_embeddings_from=tmp_path / "model.bin", max_update=1)))


def test_pairs_for_training_and_pairs_for_validation_may_differ(data_bin, tmp_path):
    """Without parallel text for validation, `bleu` cannot select checkpoints."""
    data = shutil.copytree(data_bin, tmp_path / "data-bin")
    for path in [*data.glob("en-fr/train.*"), *data.glob("en-de/valid.*")]:
        path.unlink()
    options = cli(objectives="xdae,back_translation,translation", langs="en,de,fr", max_update=3)
    output = run_train(line(data, tmp_path / "a", *options))
    assert [sample["objective"] for (sample,) in output.samples.values()][2] == "translation"
    assert output.statistics("translation_en-fr_ppl") and output.statistics("bleu_en-fr")
    assert not output.statistics("bleu_en-de")
    with pytest.raises(UserError, match="no parallel validation text of .*; use --best-checkpoint-metric round_"):
        run_train(line(data, tmp_path / "b", *cli(max_update=1, best_checkpoint_metric="bleu")))


def test_directions_that_the_mean_bleu_leaves_out_are_named(data_bin, tmp_path, caplog):
    """en-de and en-fr have parallel validation text, German has no validation text of its own."""
    data = shutil.copytree(data_bin, tmp_path / "data-bin")

    def warnings():
        caplog.clear()
        task_of(line(data, tmp_path, "--langs", "en,de,fr")).load_dataset("valid")
        return [message for message in caplog.messages if "has no text for" in message]

    assert warnings() == ["the split 'valid' has no text for bleu of de-fr, fr-de"]
    for path in data.glob("de/valid.*"):
        path.unlink()
    bleu = "the split 'valid' has no text for bleu of de-fr, fr-de"
    assert warnings() == [f"{bleu} and round_trip_bleu of de-en, de-fr"]
    for path in data.glob("*-*/valid.*"):
        path.unlink()
    assert warnings() == ["the split 'valid' has no text for round_trip_bleu of de-en, de-fr"]


def task_of(command):
    """The task of a command line of a run that does not begin."""
    return tasks.setup_task(configuration(parsers.get_training_parser(), command).task)


def settings(data, folder, *options):
    """The settings of xdae in a run that does not begin, with the given --objective-options."""
    command = [part for part in line(data, folder, "--max-update", 1) if part != UNSUPERVISED]
    command.remove("--objective-options")
    task = task_of([*command, *options])
    return vars(task.objectives["xdae"].cfg), task


def test_the_noise_of_the_released_command_is_the_default(data_bin, tmp_path):
    """The values of recipes/xlm/config/unsupervised.yaml (X11, X16); an option replaces its own default alone."""
    recipe = yaml.safe_load((ROOT / "recipes/xlm/config/unsupervised.yaml").read_text(encoding="utf-8"))
    assert (recipe["batches-per-update"], recipe["max-tokens"]) == (8, 2000)
    expected, _ = settings(data_bin, tmp_path, "--objective-options", recipe["objective-options"])
    found, task = settings(data_bin, tmp_path)
    assert found == expected
    assert (found["noise"], found["shuffle_distance"], found["sample_break_mode"]) == ("shuffle+drop+mask", 3, "eos")
    assert (found["drop_prob"], found["word_mask_prob"], found["length"], found["alpha"]) == (0.1, 0.1, 100, 0)
    assert found["weight"] == "0:1,400000:0.1,1200000:0"
    changed, other = settings(data_bin, tmp_path, "--objective-options", "xdae.noise=drop xdae.weight=1")
    assert changed == expected | {"noise": "drop", "weight": "1"}
    assert other.cfg.objective_options.split().count("xdae.noise=drop") == 1
    again = add_defaults(other.cfg.objective_options, task.default_objective_options)
    assert again == other.cfg.objective_options == other.identity()["objective_options"]


def test_other_tasks_have_the_defaults_of_the_objectives(data_bin, tmp_path):
    task = task_of(denoising(data_bin, tmp_path, "--max-update", 1))
    assert task.cfg.objective_options == "xdae.length=32" and task.objectives["xdae"].cfg.noise == "infill"


def test_cycles_count_the_objectives_that_are_trained(data_bin, tmp_path):
    more = cli(schedule="cycle", update_freq=2, max_update=2, disable_validation=True)
    output = run_train(line(data_bin, tmp_path, *more))
    for samples in output.samples.values():
        assert [sample["objective"] for sample in samples] == ["xdae", "back_translation"]


def test_the_loss_of_validation_does_not_depend_on_the_update(data_bin, whole):
    """fairseq-validate computes the loss of training's last validation, whatever the schedule of weights."""
    folder, output = whole
    limits = cli(max_tokens=256, valid_subset="valid")
    line = evaluated(data_bin, "unsupervised_translation", folder / "checkpoint_last.pt", *limits)
    validated = run_validate(line)
    losses = [record.getMessage() for record in output.records if record.name == "valid"]
    assert f" | loss {validated.statistics('loss')[-1]} | " in losses[-1]
    assert validated.statistics("bleu")[-1] == output.statistics("bleu")[-1]


@pytest.mark.parametrize(
    "options, message",
    [
        (cli(objective_options=f"{UNSUPERVISED} xdae.weight=0 back_translation.weight=0"), "weights of all .* are 0"),
        (cli(langs="en"), "unsupervised translation needs text of two languages or more; --langs names en"),
        (cli(arch="xl_mt_tiny"), "--arch xl_mt_tiny: .* needs an encoder-decoder .* such as xl_unmt_tiny$"),
        (cli(init_from="x.pt", init_encoder_from="y.pt"), "--init-from initializes encoder, decoder and embeddings"),
    ],
)
def test_mistakes(data_bin, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        run_train(line(data_bin, tmp_path, "--max-update", 1, *options))
