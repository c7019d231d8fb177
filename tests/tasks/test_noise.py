"""Noise differs between epochs, and does not depend on the number of workers."""

import pytest
import torch
from fairseq.tasks import FairseqTask
from torch.utils._pytree import tree_flatten_with_path

from tests.command_line import cli
from tests.commands import CPU, pretraining, run_train
from tests.tasks.resuming import WITH_WORKERS

EPOCHS, UPDATES = 3, 4


@pytest.fixture(scope="module")
def batches(data_bin, tmp_path_factory):
    """{number of workers: the batches of every update}."""

    def seen(workers):
        folder = tmp_path_factory.mktemp("noise")
        line = pretraining(
            data_bin,
            folder,
            *cli(
                updates_per_epoch=UPDATES,
                max_epoch=EPOCHS,
                no_save=True,
                disable_validation=True,
                langs="en",
                pairs="en-fr",
            ),
        )
        output = run_train(line, workers)
        return [sample for micro_steps in output.samples.values() for sample in micro_steps]

    return {0: seen(CPU), 2: seen(WITH_WORKERS)}


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


@pytest.mark.parametrize("workers", [0, 2])
def test_noise_differs_from_epoch_to_epoch(batches, workers):
    samples = batches[workers]
    assert len(samples) == EPOCHS * UPDATES
    repeated = {pair: masks for pair, masks in masks_by_pair(samples).items() if len(masks) > 1}
    assert len(repeated) > 5
    assert sum(len(set(masks)) > 1 for masks in repeated.values()) > 0.8 * len(repeated)


def test_noise_is_the_same_with_0_and_with_2_workers(batches):
    for one, other in zip(batches[0], batches[2], strict=True):
        assert (one["objective"], one["corpus"], one["ntokens"]) == (
            other["objective"],
            other["corpus"],
            other["ntokens"],
        )
        flat, others = (dict(tree_flatten_with_path(each["batch"])[0]) for each in (one, other))
        assert flat.keys() == others.keys()
        for key, value in flat.items():
            assert value is others[key] is None or torch.equal(value, others[key]), key


def test_noise_of_validation_is_the_same_whatever_the_seed(data_bin, tmp_path, monkeypatch):
    """Perplexities are comparable across seeds."""
    batches = []
    original = FairseqTask.valid_step

    def recorded(self, sample, model, criterion):
        batches[-1].append(sample["batch"]["tokens"])
        return original(self, sample, model, criterion)

    monkeypatch.setattr(FairseqTask, "valid_step", recorded)
    for seed in (1, 2):
        batches.append([])
        run_train(
            pretraining(data_bin, tmp_path, "--updates-per-epoch", 1, "--max-epoch", 1, "--no-save", "--seed", seed)
        )
    assert len(batches[0]) > 5
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))
