"""--best-by-language against the best of all checkpoints for each language, and pooled heads in a whole run."""

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.checkpoints import load_plain
from tests.builders import validation_losses, write_task
from tests.command_line import cli
from tests.commands import classification, equal_parameters, load, run_train, run_validate

CODES, EPOCHS = ("en", "de", "fr"), 6


@pytest.mark.parametrize("pooling, rate", [("mean", 0.002), ("max", 0.01)])
def test_the_best_checkpoint_of_each_language(data_bin, tmp_path, pooling, rate):
    """The run is stopped and resumed. Of equal checkpoints the last one is best, as for --best-checkpoint-metric."""
    select = cli(best_checkpoint_metric="accuracy", maximize_best_checkpoint_metric=True, best_by_language=True)
    more = [*select, *cli(eval_langs=",".join(CODES), pooling=pooling, lr=rate)]
    line = classification(data_bin, write_task(tmp_path / "files", 1), tmp_path / "run", *more)
    for last in (3, EPOCHS):
        run_train([*line, "--max-epoch", last])
    values = []  # of all checkpoints
    for epoch in range(1, EPOCHS + 1):
        options = cli(task="xl_classification", path=tmp_path / f"run/checkpoint{epoch}.pt", user_dir="fairseq_xl")
        (measured,) = validation_losses(run_validate([data_bin, *options, "--batch-size", 8]))
        values.append({code: float(measured[f"accuracy_{code}"]) for code in CODES})
    best = {code: max(range(EPOCHS), key=lambda index: (values[index][code], index)) for code in CODES}
    assert len(set(best.values())) > 1, values
    for code, index in best.items():
        path = tmp_path / f"run/checkpoint_best_{code}.pt"
        assert equal_parameters(load(path), load(tmp_path / f"run/checkpoint{index + 1}.pt"))
        assert load_plain(path)["extra_state"]["best_by_language"][code] == pytest.approx(values[index][code], abs=0.01)


def test_a_metric_without_languages_is_refused(data_bin, tmp_path):
    line = classification(data_bin, write_task(tmp_path / "files", 1), tmp_path / "run", "--best-by-language")
    with pytest.raises(UserError, match="--best-checkpoint-metric loss has no values by language"):
        run_train([*line, "--max-update", 1])
