"""Two processes train as one process with twice the accumulation does, whatever the data and the objectives."""

import contextlib
import re
import shutil

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from tiny_data import write_items

from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.objectives import OBJECTIVES
from tests.command_line import cli
from tests.commands import (
    classification,
    dan,
    denoising,
    equal_parameters,
    generation,
    load,
    pretraining,
    run_train,
    translation,
    unlabelled,
    unsupervised,
)
from tests.distributed.headed import Headed
from tests.distributed.two_processes import pair, run_jobs, train
from tests.distributed.worker import overflow, scores_of
from tests.tasks.conftest import write_encoded
from tests.tasks.test_classification import write_task
from tests.tasks.test_labelled_objectives import several, write_others
from tests.tasks.test_same_language_generation import write_titles

NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0]
EPOCH = 4  # updates of an epoch of pre-training
DDP = {"legacy": ["--ddp-backend", "legacy_ddp"], "pytorch": ["--ddp-backend", "pytorch_ddp"]}
ALL = unlabelled(XLVecoModel)
CROSS = ["--arch", "xl_veco_tiny"]  # which all these objectives can train
UNEVEN = "mlm.length=32 mlm.batch_tokens=600 tlm.length=10 tlm.batch_sentences=1"


def with_a_single_sentence(data_bin, root):
    """A copy of the data-bin in which fr has one sentence in training and validation, and en-fr one pair."""
    shutil.copytree(data_bin, root)
    sentence = [4, 5, 6, 7, 2]
    for split in ("train", "valid"):
        write_items(root / "fr" / split, [sentence])
        for language in ("en", "fr"):
            write_items(root / "en-fr" / f"{split}.en-fr.{language}", [sentence])
    return root


def without_a_language(data_bin, root):
    """A copy of the data-bin: fr has no text for validation, and de no sentence to train on, an empty line only."""
    shutil.copytree(data_bin, root)
    for end in ("bin", "idx"):
        (root / "fr" / f"valid.{end}").unlink()
    write_items(root / "de" / "train", [[2]])
    return root


def runs(data, single, empty, labeled, body):
    """{name: (command line except for --save-dir, --update-freq of two processes, {name: options of DDP})}."""

    def pretrain(*more, objectives="mlm,tlm", data=data, updates=6):
        return pretraining(
            data,
            "unused",
            *cli(updates_per_epoch=EPOCH),
            *NO_DROPOUT,
            *more,
            *cli(max_update=updates),
            objectives=objectives,
        )

    def translate(*more, data=data):
        return translation(data, "unused", *NO_DROPOUT, *more)

    return {
        "mlm-tlm": (pretrain(), 1, DDP),
        "translation": (translate("--lang-pairs", "en-de,de-en", "--max-update", 5), 1, {"pytorch": DDP["pytorch"]}),
        # 7 batches an epoch for two processes: one of them has none in the last update, nor in validation
        "odd": (translate("-s", "de", "-t", "en", "--max-tokens", 84, "--max-epoch", 2), 1, {"legacy": DDP["legacy"]}),
        "all-alternate": (pretrain(*CROSS, objectives=",".join(ALL), updates=2 * len(ALL)), 1, DDP),
        "all-cycle": (pretrain(*CROSS, "--schedule", "cycle", objectives=",".join(ALL), updates=3), len(ALL), DDP),
        "headed-alternate": (pretrain(objectives="headed,tlm"), 1, DDP),
        "headed-cycle": (pretrain("--schedule", "cycle", objectives="headed,tlm"), 2, DDP),
        "similarity": (
            dan(data, "unused", "--updates-per-epoch", EPOCH, "--dropout", 0, "--max-update", 6),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "denoising": (
            denoising(data, "unused", "--updates-per-epoch", EPOCH, *NO_DROPOUT, "--max-update", 6),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "future": (
            denoising(
                data,
                "unused",
                *cli(arch="xl_xfnp_tiny", updates_per_epoch=EPOCH),
                *NO_DROPOUT,
                *cli(activation_dropout=0, max_update=6),
                objectives="xfnp",
            ),
            1,
            {"pytorch": DDP["pytorch"]},
        ),
        "unsupervised": (
            unsupervised(
                data, "unused", "--langs", "de,en", "--updates-per-epoch", EPOCH, *NO_DROPOUT, "--max-update", 6
            ),
            1,
            DDP,
        ),
        # random weights that stay: they write words of both languages, the same ones in one process and in two
        "translations": (
            unsupervised(
                data,
                "unused",
                *cli(langs="de,en", updates_per_epoch=3, max_update=3, max_tokens=64, lr=0, init_std=0.5),
                *NO_DROPOUT,
            ),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "supervised": (
            translate(
                *cli(lang_pairs="en-de,de-en", max_epoch=1, max_tokens=64, lr=0, init_std=0.5, eval_bleu=True),
            ),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "next-sentence": (
            pretrain("--arch", "xl_monotrans_tiny", objectives="nsp,mlm"),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "language-module": (
            pretrain(
                *cli(arch="xl_monotrans_tiny", init_from=body, new_language_module=True, train_only="language-module"),
                objectives="nsp",
            ),
            1,
            DDP,
        ),
        "single": (pretrain("--langs", "fr", "--pairs", "en-fr", data=single), 1, {"legacy": DDP["legacy"]}),
        "single-among-others": (pretrain(data=single), 1, {"legacy": DDP["legacy"]}),
        "single-pair": (
            translate("-s", "en", "-t", "fr", "--max-epoch", 3, data=single),
            1,
            {"pytorch": DDP["pytorch"]},
        ),
        "none-in-validation": (pretrain("--langs", "en,fr", data=empty), 1, {"legacy": DDP["legacy"]}),
        # 15 batches for two processes
        "classification": (
            classification(
                f"{labeled}/data-bin", f"{labeled}/tasks", "unused", *NO_DROPOUT, "--head-dropout", 0, "--max-epoch", 1
            ),
            1,
            {"pytorch": DDP["pytorch"]},
        ),
        # batches of either objective
        "labelled": (
            several(
                f"{labeled}/data-bin",
                {"nc": f"{labeled}/tasks", "ner": f"{labeled}/ner"},
                "unused",
                *NO_DROPOUT,
                *cli(max_epoch=1),
                options="nc.head_dropout=0 ner.head_dropout=0",
            ),
            1,
            DDP,
        ),
        "frozen-language-module": (
            classification(
                f"{labeled}/data-bin",
                f"{labeled}/tasks",
                "unused",
                *NO_DROPOUT,
                *cli(arch="xl_monotrans_tiny", freeze="language-module", head_dropout=0, max_epoch=1),
            ),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "generation": (
            generation(f"{labeled}/data-bin", f"{labeled}/titles", "unused", *NO_DROPOUT, "--max-epoch", 1),
            1,
            {"legacy": DDP["legacy"]},
        ),
        "overflow": (pretrain("--fp16", "--optimizer", "xl_adam", "--clip-norm", 0.1, updates=5), 1, DDP),
        "cost": (pretrain("--schedule", "random", "--objective-options", UNEVEN), 1, {"legacy": DDP["legacy"]}),
    }


LAST, STOPS = 7, (3, EPOCH)  # updates of the whole runs, and where others stop: within an epoch, and at its end


def resumed(data, root):
    """Jobs that train to `LAST` at once, and stop on the way and go on; dropout is on."""
    copied = shutil.copytree(data, root / "data-bin")  # tables are written beside its text
    lines = {
        "chunks": lambda folder: translation(copied, folder, "--lang-pairs", "en-de,de-en", "--max-tokens", 320),
        "pretraining": lambda folder: pretraining(data, folder, "--updates-per-epoch", EPOCH),
        "translation": lambda folder: translation(data, folder, "--lang-pairs", "en-de,de-en", "--max-tokens", 320),
        "unsupervised": lambda folder: unsupervised(data, folder, "--updates-per-epoch", EPOCH),
    }
    jobs = {}
    for name, line in lines.items():
        every = ["--save-interval-updates", 1, "--no-epoch-checkpoints", "--disable-validation"]
        jobs[f"{name}-whole"] = [*line(root / f"{name}-whole"), *every, "--max-update", LAST]
        for end in (*STOPS, LAST):
            jobs[f"{name}-{end}"] = [*line(root / f"{name}-parts"), *every, "--max-update", end]
    return jobs


def watched(data):
    """Jobs whose updates are watched for what would wait for a GPU; one of two objectives leaves a head unused."""
    short = [*cli(optimizer="xl_adam", clip_norm=0.1, update_freq=2, max_update=2), "--disable-validation", "--no-save"]
    pretrain = [*pretraining(data, "unused", *short, objectives="headed,tlm"), "--updates-per-epoch", 2]
    return {
        "sync-legacy": [*pretrain, *DDP["legacy"], "--bf16"],
        "sync-fp16": [*pretrain, *DDP["legacy"], "--fp16"],
        "sync-pytorch": [*pretrain, *DDP["pytorch"]],
        "sync-translation": [*translation(data, "unused", "--lang-pairs", "en-de,de-en", *short), *DDP["legacy"]],
    }


@pytest.fixture(scope="module")
def headed():
    """The objective `headed` is known in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OBJECTIVES, Headed.name, Headed)
        yield


@pytest.fixture(scope="module")
def folders(data_bin, tmp_path_factory):
    """The arguments of `runs`."""
    root = tmp_path_factory.mktemp("folders")
    (root / "labeled").mkdir()
    write_encoded(root / "labeled")
    write_task(root / "labeled" / "tasks", sides=1)
    write_others(root / "labeled")
    write_titles(root / "labeled" / "titles")
    single = with_a_single_sentence(data_bin, root / "single")
    body = pretraining(data_bin, root / "body", "--arch", "xl_monotrans_tiny", "--max-update", 1, objectives="nsp")
    run_train(body)
    checkpoint = root / "body/checkpoint_last.pt"
    return data_bin, single, without_a_language(data_bin, root / "empty"), root / "labeled", checkpoint


@pytest.fixture(scope="module")
def two(data_bin, folders, tmp_path_factory):
    """{name: both ranks' results} of all runs with two processes; and, as "folder", where checkpoints are."""
    root = tmp_path_factory.mktemp("two")
    jobs = {}
    for name, (line, frequency, backends) in runs(*folders).items():
        for backend, options in backends.items():
            folder = ["--save-dir", root / f"{name}-{backend}", "--no-epoch-checkpoints"]
            jobs[f"{name}-{backend}"] = [*line, *options, *folder, "--update-freq", frequency]
    return run_jobs(root / "results", jobs | resumed(data_bin, root) | watched(data_bin)) | {"folder": root}


@pytest.fixture(scope="module")
def one(folders, headed, tmp_path_factory):
    """A function: name of a run -> (its output in one process with twice the accumulation, its last checkpoint)."""
    made = {}

    def run(name):
        if name not in made:
            line, frequency, _ = runs(*folders)[name]
            folder = tmp_path_factory.mktemp(name)
            more = ["--update-freq", 2 * frequency, "--save-dir", folder, "--no-epoch-checkpoints"]
            with overflow() if name == "overflow" else contextlib.nullcontext():
                output = run_train([*line, *more])
            made[name] = output, checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))
        return made[name]

    return run


def test_distributed_language_without_a_sentence_ends_all_ranks(folders, tmp_path):
    line = pretraining(folders[2], tmp_path / "run", *NO_DROPOUT, "--max-update", 2, "--cpu", "--num-workers", 0)
    with pair(tmp_path / "logs", train(line)) as launch:
        assert launch.statuses() == [1, 1], launch.text
    assert launch.text.count("de/train: the text of language 'de' has no sentence") == 2
    assert "Traceback" not in launch.text


def floats(losses):
    """{update: losses of its micro-steps, in increasing order} of float.hex."""
    return {int(update): sorted(map(float.fromhex, values)) for update, values in losses.items()}


def of_both(ranks):
    """The micro-steps' losses of both ranks together."""
    updates = ranks[0]["losses"].keys() | ranks[1]["losses"].keys()
    return floats({key: sum((rank["losses"].get(key, []) for rank in ranks), []) for key in updates})


CASES = [(name, backend) for name, (_, _, backends) in runs(*[None] * 5).items() for backend in backends]


@pytest.mark.parametrize("name, backend", CASES)
def test_distributed_losses_are_those_of_one_process(two, one, name, backend):
    ranks, (output, _) = two[f"{name}-{backend}"], one(name)
    expected, found = floats(output.updates), of_both(ranks)
    assert found.keys() == expected.keys() and len(expected) >= 3
    for update, losses in expected.items():
        assert found[update] == pytest.approx(losses, rel=1e-5), update
    # what is logged is reduced over ranks, validation included
    assert len(ranks[0]["loss"]) == len(output.statistics("loss"))
    np.testing.assert_allclose(
        *(np.array(log, float) for log in (ranks[0]["loss"], output.statistics("loss"))), atol=2e-3
    )


@pytest.mark.parametrize("name", ["translations", "supervised"])
def test_distributed_scores_of_translations_are_those_of_one_process(two, one, name):
    """Each process translates a part of the validation text."""
    ranks, (output, _) = two[f"{name}-legacy"], one(name)
    expected = scores_of(output)
    assert ranks[0]["scores"] == expected
    kinds = ["bleu", "wrong_language", "length_ratio", *(["round_trip_bleu"] if name == "translations" else [])]
    for kind in kinds:  # not all are 0 or 100
        assert any(
            0 < float(value) < 100 for direction in ("de-en", "en-de") for value in expected[f"{kind}_{direction}"]
        )


@pytest.mark.parametrize("backend", list(DDP))
def test_distributed_metrics_are_those_of_one_process(two, one, backend):
    """F1 of spans that depend on the sentence before is in the score: each process needs the predictions of all."""
    output, _ = one("labelled")
    expected = output.statistics("score")
    found = two[f"labelled-{backend}"][0]["scores"]["score"]  # the first rank logs
    assert found == expected and float(expected[0]) > 10


def test_distributed_ranks_draw_different_batches(two):
    ranks = two["mlm-tlm-legacy"]
    for update, losses in ranks[0]["losses"].items():
        assert losses != ranks[1]["losses"][update]


def test_distributed_run_with_nothing_left_for_a_rank(two):
    """The runs odd and single have the batches that their names describe."""
    counts = [len(rank["losses"]) for rank in two["odd-legacy"]]
    assert counts[0] == counts[1] + 2  # once in each of two epochs
    assert [len(rank["losses"]) for rank in two["single-pair-pytorch"]] == [3, 0]


@pytest.mark.parametrize("backend", list(DDP))
def test_distributed_body_stays_bit_by_bit(two, folders, backend):
    """The second step of M1 changes the language module alone: the tokens and the bias of the output."""
    body, learned = load(folders[-1]), load(two["folder"] / f"language-module-{backend}/checkpoint_last.pt")
    moved = {name for name in body if not torch.equal(body[name], learned[name])}
    assert moved == {"encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"}


@pytest.mark.parametrize("backend", list(DDP))
@pytest.mark.parametrize("schedule", ["alternate", "cycle"])
def test_distributed_parameters_without_gradient_do_not_move(two, one, schedule, backend):
    """The parameters of headed are used in every second update; Adam would change them in the others too."""
    parameters = load(two["folder"] / f"headed-{schedule}-{backend}" / "checkpoint_last.pt")
    expected = one(f"headed-{schedule}")[1]["model"]
    for key in ("heads.headed.weight", "heads.headed.bias"):
        assert parameters[key].numpy() == pytest.approx(expected[key].numpy(), abs=1e-5)
    path = two["folder"] / f"headed-{schedule}-{backend}" / "checkpoint_last.pt"
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["last_optimizer_state"]["state"]
    steps = sorted({int(of["step"]) for of in state.values()})
    assert steps == ([3, 6] if schedule == "alternate" else [6])


@pytest.mark.parametrize("backend", list(DDP))
def test_distributed_overflow_on_one_rank_skips_the_update_on_both(two, one, backend):
    """The loss scale and the counts of updates are those of one process."""
    path = two["folder"] / f"overflow-{backend}" / "checkpoint_last.pt"
    found = checkpoint_utils.load_checkpoint_to_cpu(str(path))["last_optimizer_state"]
    expected = one("overflow")[1]["last_optimizer_state"]
    assert found["loss_scaler"] == expected["loss_scaler"] and found["loss_scaler"]["loss_scale"] == 64
    steps = [{state["step"] for state in each["state"].values()} for each in (found, expected)]
    assert steps == [{5}, {5}]  # the skipped one does not count


#: most reads of torch's DDP in the backward passes of the job "sync-pytorch", by update: whether each of the 20
#: parameters is used, from a tensor on the host; the second update, which leaves two unused, reads three times more
READS_OF_DDP = [20, 20 + 3]


@pytest.mark.parametrize("name", ["legacy", "fp16", "pytorch", "translation"])
def test_distributed_update_has_no_other_sync(two, name):
    """Also where a parameter is unused. torch's DDP may read in its backward pass what `READS_OF_DDP` says."""
    packed = "torch.diff(self.offsets).tolist()"  # attention of packed sequences, on CPU only
    checked = "if wrong.any()"  # language symbols, which training checks on CPU only
    norm = "norms = [float(norm)]"  # the one read of an update
    others = [packed, checked, norm, "tests/commands.py"]
    updates = [found for rank in two[f"sync-{name}"] for found in rank["waits"]]
    assert len(updates) == 4 and all(any(norm in each for each in found) for found in updates)
    assert any(packed in each or checked in each for found in updates for each in found)
    left = [{each: found[each] for each in found if not any(other in each for other in others)} for found in updates]
    if name == "pytorch":
        for found, most in zip(left, READS_OF_DDP * 2):
            reads = [each for each in found if re.fullmatch(r"_local_scalar_dense at .* loss\.backward\(\)", each)]
            assert sum(found.pop(each) for each in reads) <= most
    assert left == [{}] * 4


@pytest.mark.parametrize("name", ["chunks", "pretraining", "translation", "unsupervised"])
def test_distributed_resume_is_exact(two, name):
    for rank in range(2):
        whole, *parts = (two[f"{name}-{end}"][rank]["losses"] for end in ("whole", *STOPS, LAST))
        assert [*whole] == [str(update + 1) for update in range(LAST)]
        assert [len(part) for part in parts] == [3, EPOCH - 3, LAST - EPOCH]
        assert parts[0] | parts[1] | parts[2] == whole
    ends = [load(two["folder"] / f"{name}-{run}" / "checkpoint_last.pt") for run in ("whole", "parts")]
    assert equal_parameters(*ends)
