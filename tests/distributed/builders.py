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


LEGACY, PYTORCH, BOTH = ["legacy"], ["pytorch"], list(DDP)


def pretrain(data, *more, objectives="mlm,tlm", updates=6):
    shared = [*cli(updates_per_epoch=EPOCH), *NO_DROPOUT]
    return pretraining(data, "unused", *shared, *more, *cli(max_update=updates), objectives=objectives)


def pretraining_runs(data, single, empty, body):
    """As `runs`; each objective of an encoder with either wrapper, either in an update of its own or with others."""
    module = cli(arch="xl_monotrans_tiny", init_from=body, new_language_module=True, train_only="language-module")
    every, cycle = {"objectives": ",".join(ALL)}, ["--schedule", "cycle"]
    return {
        "all-alternate": (pretrain(data, *CROSS, **every, updates=2 * len(ALL)), 1, LEGACY),
        "all-cycle": (pretrain(data, *CROSS, *cycle, **every, updates=3), len(ALL), PYTORCH),
        "headed-alternate": (pretrain(data, objectives="headed,tlm"), 1, BOTH),
        "headed-cycle": (pretrain(data, *cycle, objectives="headed,tlm"), 2, LEGACY),
        "similarity": (dan(data, "unused", *cli(updates_per_epoch=EPOCH, dropout=0, max_update=6)), 1, LEGACY),
        "next-sentence": (pretrain(data, "--arch", "xl_monotrans_tiny", objectives="nsp,mlm"), 1, LEGACY),
        "language-module": (pretrain(data, *module, objectives="nsp"), 1, PYTORCH),
        "single-among-others": (pretrain(single), 1, LEGACY),
        "none-in-validation": (pretrain(empty, "--langs", "en,fr"), 1, LEGACY),
        "overflow": (pretrain(data, "--fp16", "--optimizer", "xl_adam", "--clip-norm", 0.1, updates=5), 1, PYTORCH),
        "cost": (pretrain(data, "--schedule", "random", "--objective-options", UNEVEN), 1, LEGACY),
    }


def generating_runs(data, single):
    """As `runs`: training of encoder-decoders."""

    def translate(*more, data=data):
        return translation(data, "unused", *NO_DROPOUT, *more)

    short = [*cli(updates_per_epoch=EPOCH), *NO_DROPOUT, *cli(max_update=6)]
    future = [*cli(arch="xl_xfnp_tiny", activation_dropout=0), *short]
    # random weights that stay: they write words of both languages, the same ones in one process and in two
    fixed = cli(max_tokens=64, lr=0, init_std=0.5)
    return {
        # 7 batches an epoch for two processes: one of them has none in the last update, nor in validation
        "odd": (translate("-s", "de", "-t", "en", "--max-tokens", 84, "--max-epoch", 2), 1, LEGACY),
        "single-pair": (translate("-s", "en", "-t", "fr", "--max-epoch", 3, data=single), 1, PYTORCH),
        "denoising": (denoising(data, "unused", *short), 1, LEGACY),
        "future": (denoising(data, "unused", *future, objectives="xfnp"), 1, PYTORCH),
        "unsupervised": (unsupervised(data, "unused", "--langs", "de,en", *short), 1, PYTORCH),
        "translations": (
            unsupervised(data, "unused", *cli(langs="de,en", updates_per_epoch=3, max_update=3), *fixed, *NO_DROPOUT),
            1,
            LEGACY,
        ),
        "supervised": (translate(*cli(lang_pairs="en-de,de-en", max_epoch=1, eval_bleu=True), *fixed), 1, LEGACY),
    }


def labelled_runs(labeled):
    """As `runs`: an epoch of training on task files."""
    data, epoch = f"{labeled}/data-bin", [*NO_DROPOUT, "--max-epoch", 1]
    classify = [data, f"{labeled}/tasks", "unused", *epoch, "--head-dropout", 0]
    tasks = {"nc": f"{labeled}/tasks", "ner": f"{labeled}/ner"}
    no_dropout = "nc.head_dropout=0 ner.head_dropout=0"
    return {
        # 15 batches for two processes
        "classification": (classification(*classify), 1, PYTORCH),
        "frozen-language-module": (
            classification(*classify, *cli(arch="xl_monotrans_tiny", freeze="language-module")),
            1,
            LEGACY,
        ),
        # batches of either objective
        "labelled": (several(data, tasks, "unused", *epoch, options=no_dropout), 1, LEGACY),
        "generation": (generation(data, f"{labeled}/titles", "unused", *epoch), 1, LEGACY),
    }


def runs(data, single, empty, labeled, body):
    """{name: (command line except for --save-dir, --update-freq of two processes, names of wrappers in `DDP`)}."""
    return pretraining_runs(data, single, empty, body) | generating_runs(data, single) | labelled_runs(labeled)


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
