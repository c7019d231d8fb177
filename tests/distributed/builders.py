"""Data and runs of several processes."""

import shutil

import pytest
from tiny_data import write_items

from fairseq_xl.models.encoder import XLVecoModel
from fairseq_xl.objectives import OBJECTIVES
from tests.builders import several, write_others, write_task
from tests.command_line import cli
from tests.commands import (
    classification,
    dan,
    denoising,
    generation,
    pretraining,
    run_train,
    translation,
    unlabelled,
    unsupervised,
)
from tests.distributed.headed import Headed
from tests.tasks.conftest import write_encoded
from tests.tasks.titles import write_titles

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
