"""What tests/commands.py does in place of fairseq and hydra, compared with them."""

import unittest.mock

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests import commands
from tests.command_line import cli

PRETRAINING = [
    *commands.pretraining("data", "it's here/run", objectives="mlm,tlm,paraphrase"),
    *cli(
        adam_betas="(0.9, 0.98)",
        lr="0.1,0.02",
        update_freq="3,1",
        lr_scheduler="polynomial_decay",
        total_num_update=7,
        init_from="C:\\a = b, {c}: [d] $e",
        fp16=True,
        best_checkpoint_metric="ppl",
        langs="",
    ),
]
TRANSLATION = [
    *commands.translation("one:two", "run", "--lang-pairs", "en-de,de-en"),
    *cli(optimizer="xl_lamb", lr_scheduler="inverse_sqrt", warmup_updates=5, label_smoothing=0.1, max_epoch=3),
]
GENERATE = [
    "data",
    *cli(
        user_dir="fairseq_xl",
        task="xl_translation",
        s="en",
        t="de",
        path="x.pt:y.pt",
        beam=3,
        lenpen=0.5,
        remove_bpe="sentencepiece",
        model_overrides="{'data': \"it's\", 'a': 1}",
        bpe="sentencepiece",
        sentencepiece_model="a model",
        results_path="run",
        nbest=2,
    ),
]


@pytest.mark.parametrize(
    "parser, line",
    [
        (options.get_training_parser, PRETRAINING),
        (options.get_training_parser, TRANSLATION),
        (commands.generate_parser, GENERATE),
    ],
)
def test_configurations_are_those_of_hydra(parser, line):
    parsed = options.parse_args_and_arch(parser(), [str(argument) for argument in line])
    with unittest.mock.patch.object(commands, "COMPOSE", wraps=commands.COMPOSE) as composed:
        found = commands.converted(parsed)
    assert not [call for call in composed.call_args_list if any("." in text for text in call.kwargs["overrides"])]
    expected = convert_namespace_to_omegaconf(parsed)
    assert repr(found) == repr(expected)  # 1, 1.0 and True are equal, and not the same
    assert found == expected and found.task.data == line[0]


def test_a_configuration_has_nothing_of_the_one_before():
    for more in (
        ["--seed", 7, "--langs", "de,en", "--lr", "0.1,0.2"],
        [],
        ["--save-dir", "other", "--update-freq", "1"],
    ):
        line = [str(argument) for argument in [*PRETRAINING, *more]]
        parsed = options.parse_args_and_arch(options.get_training_parser(), line)
        assert repr(commands.converted(parsed)) == repr(convert_namespace_to_omegaconf(parsed))
