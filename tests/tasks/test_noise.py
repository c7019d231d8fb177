"""Noise differs between epochs, and is the same in validation. Resuming with workers: test_resume.py."""

import torch
from fairseq.tasks import FairseqTask

from tests.command_line import cli
from tests.commands import pretraining, run_train

EPOCHS, UPDATES = 3, 4


def masks_by_pair(samples):
    """{clean tokens of a framed pair: the sets of its masked positions}."""
    found = {}
    for sample in (sample for sample in samples if sample["objective"] == "tlm"):
        batch = sample["batch"]
        original, masked = batch["tokens"].clone(), torch.zeros(batch["tokens"].numel(), dtype=torch.bool)
        original.view(-1)[batch["predicted_positions"]] = batch["target"]
        masked[batch["predicted_positions"]] = True
        for tokens, places in zip(original.tolist(), masked.view_as(original).tolist()):
            key = tuple(token for token in tokens if token != 1)
            found.setdefault(key, []).append(tuple(places[: len(key)]))
    return found


def test_noise_differs_from_epoch_to_epoch(data_bin, tmp_path):
    more = cli(updates_per_epoch=UPDATES, max_epoch=EPOCHS, no_save=True, disable_validation=True, pairs="en-fr")
    output = run_train(pretraining(data_bin, tmp_path, *more, "--langs", "en"))
    samples = [sample for micro_steps in output.samples.values() for sample in micro_steps]
    assert len(samples) == EPOCHS * UPDATES
    repeated = {pair: masks for pair, masks in masks_by_pair(samples).items() if len(masks) > 1}
    assert len(repeated) > 5
    assert sum(len(set(masks)) > 1 for masks in repeated.values()) > 0.8 * len(repeated)


def test_noise_of_validation_is_the_same_whatever_the_seed(data_bin, tmp_path, monkeypatch):
    """Perplexities are comparable across seeds."""
    batches, original = [], FairseqTask.valid_step

    def recorded(self, sample, model, criterion):
        batches[-1].append(sample["batch"]["tokens"])
        return original(self, sample, model, criterion)

    monkeypatch.setattr(FairseqTask, "valid_step", recorded)
    for seed in (1, 2):
        batches.append([])
        run_train(pretraining(data_bin, tmp_path, *cli(updates_per_epoch=1, max_epoch=1, no_save=True, seed=seed)))
    assert len(batches[0]) > 5
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))
