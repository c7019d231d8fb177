"""--best-by-language against the best of all checkpoints for each language, and pooled heads in a whole run."""

import itertools

import pytest
import sacrebleu

from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.bleu import read_generated
from fairseq_xl.io.checkpoints import load_plain
from tests.builders import validation_losses, write_task
from tests.command_line import cli
from tests.commands import (
    classification,
    equal_parameters,
    evaluated,
    generation,
    load,
    run_generate,
    run_train,
    run_validate,
)
from tests.tasks.tiny_text import write

CODES, EPOCHS = ("en", "de", "fr"), 6


def check_best(folder, values):
    """Compares checkpoint_best_NAME.pt with the best of `values`, [{name: value} of each epoch]; of equals the last."""
    best = {name: max(range(EPOCHS), key=lambda index: (values[index][name], index)) for name in values[0]}
    assert len(set(best.values())) > 1, values
    for name, index in best.items():
        path = folder / f"checkpoint_best_{name}.pt"
        assert equal_parameters(load(path), load(folder / f"checkpoint{index + 1}.pt"))
        assert load_plain(path)["extra_state"]["best_by_language"][name] == pytest.approx(values[index][name], abs=0.01)


def test_the_best_checkpoint_of_each_language(data_bin, tmp_path):
    """The run is stopped and resumed. Of equal checkpoints the last one is best, as for --best-checkpoint-metric."""
    select = cli(best_checkpoint_metric="accuracy", maximize_best_checkpoint_metric=True, best_by_language=True)
    more = [*select, *cli(eval_langs=",".join(CODES), pooling="max", lr=0.01)]
    line = classification(data_bin, write_task(tmp_path / "files", 1), tmp_path / "run", *more)
    for last in (3, EPOCHS):
        run_train([*line, "--max-epoch", last])
    values = []  # of all checkpoints
    for epoch in range(1, EPOCHS + 1):
        options = cli(task="xl_classification", path=tmp_path / f"run/checkpoint{epoch}.pt", user_dir="fairseq_xl")
        (measured,) = validation_losses(run_validate([data_bin, *options, "--batch-size", 8]))
        values.append({code: float(measured[f"accuracy_{code}"]) for code in CODES})
    check_best(tmp_path / "run", values)


def test_the_best_checkpoints_of_english_and_of_zero_shot_generation(data_bin, tmp_path):
    """By BLEU of the outputs of all checkpoints. German and French are English words with longer targets."""
    files = tmp_path / "files"
    files.mkdir()
    words = {"en": ("the", "house", "garden"), "de": ("the",), "fr": ("the", "garden")}
    lengths = {"en": {}, "de": {"the": 9}, "fr": {"the": 9, "garden": 6}}
    for split, code in itertools.product(("train", "valid"), CODES):
        lines = [words[code][number % len(words[code])] for number in range(24)]
        write(files / f"{split}.{code}.src", [f"{word} {word}" for word in lines])
        write(files / f"{split}.{code}.tgt", [" ".join([word] * lengths[code].get(word, 5)) for word in lines])
    select = cli(eval_bleu=True, best_checkpoint_metric="bleu", maximize_best_checkpoint_metric=True)
    options = cli(train_langs="en", eval_langs=",".join(CODES), best_by_language=True, max_epoch=EPOCHS, lr=0.01)
    options += cli(language_embeddings="none", embed_dim=32, ffn_dim=64)
    options += cli(dropout=0, attention_dropout=0, activation_dropout=0)
    run_train(generation(data_bin, files, tmp_path / "run", *select, *options))
    values = []
    greedy = cli(gen_subset="valid", beam=1, max_len_a=1.3, max_len_b=4, remove_bpe="sentencepiece", task_files=files)
    for epoch in range(1, EPOCHS + 1):
        bleu = {}
        for code in CODES:
            output = cli(eval_langs=code, results_path=tmp_path / f"{epoch}-{code}")
            path = tmp_path / f"run/checkpoint{epoch}.pt"
            run_generate(evaluated(data_bin, "generation", path, *greedy, *output))
            hypotheses = read_generated(tmp_path / f"{epoch}-{code}/generate-valid.txt")[0]
            references = (files / f"valid.{code}.tgt").read_text(encoding="utf-8").splitlines()
            bleu[code] = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True).score
        values.append(bleu | {"zero-shot": (bleu["de"] + bleu["fr"]) / 2})
    check_best(tmp_path / "run", values)


def test_a_metric_without_languages_is_refused(data_bin, tmp_path):
    line = classification(data_bin, write_task(tmp_path / "files", 1), tmp_path / "run", "--best-by-language")
    with pytest.raises(UserError, match="--best-checkpoint-metric loss has no values by language"):
        run_train([*line, "--max-update", 1])
