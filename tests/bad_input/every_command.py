"""Every command that reads a data-bin or a checkpoint, and the sentence that it ends with after an error."""

import contextlib
import dataclasses
import io
import multiprocessing
import os
import resource
import shutil
import sys
from pathlib import Path

from fairseq_xl.commands import (
    back_translate as back_translate_command,
    model_average as average_command,
    search_pairs as retrieve_command,
)
from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting
from tests.command_line import cli
from tests.commands import (
    classification,
    evaluated,
    generation,
    pretraining,
    run_eval_lm,
    run_generate,
    run_interactive,
    run_train,
    run_validate,
    translation,
)

SHORT = ["--max-update", 1, "--no-save"]


@dataclasses.dataclass(frozen=True)
class Place:
    """The files that commands read."""

    data: Path
    files: Path  # of classification
    titles: Path  # files of generation
    pairs: Path  # prefix of raw bitext
    pretraining: Path  # checkpoints
    translation: Path
    classification: Path
    generation: Path

    def but(self, **changed):
        """Another place that differs in some paths."""
        return dataclasses.replace(self, **changed)

    def copy_of_data(self, folder):
        """A place whose data-bin may be damaged."""
        shutil.copytree(self.data, folder / "data-bin", ignore=shutil.ignore_patterns(".stages"))
        return self.but(data=folder / "data-bin")

    def copy_of_checkpoints(self, folder):
        """A place whose checkpoints may be damaged."""
        folder.mkdir()
        copies = {task: folder / f"{task}.pt" for task in TASKS}
        for task, path in copies.items():
            shutil.copy(getattr(self, task), path)
        return self.but(**copies)


TASKS = ("pretraining", "translation", "classification", "generation")


def line_of(task, place, folder, *more):
    """The command line of a training."""
    if task == "pretraining":
        return pretraining(place.data, folder, *more, objectives="clm,mlm,tlm")
    if task == "translation":
        return translation(place.data, folder, "-s", "en", "-t", "de", *more)
    if task == "generation":
        return generation(place.data, place.titles, folder, *more)
    return classification(place.data, place.files, folder, *more)


def from_encoder(place, folder):
    line = line_of("translation", place, folder, "--init-encoder-from", place.pretraining)
    run_train([*line, *SHORT, "--disable-validation"])


def write(place, folder):
    options = dict(eval_langs="de", task_files=place.titles, beam=1, max_len_b=4, results_path=folder)
    return run_generate(evaluated(place.data, "generation", place.generation, **options))


def generate(place, folder):
    options = dict(s="en", t="de", beam=1, results_path=folder)
    return run_generate(evaluated(place.data, "translation", place.translation, **options))


def back_translate(place, folder):
    """Writes into the data-bin, unless it fails."""
    line = [*map(str, [place.translation, place.data, *cli(s="de", t="en", beam=1)])]
    with contextlib.redirect_stdout(io.StringIO()):
        back_translate_command.main(line)


def interactive(place, folder, lines=("the house",), *more):
    model = place.data / "sentencepiece.model"
    options = dict(s="en", t="de", beam=1, bpe="sentencepiece", sentencepiece_model=model)
    return run_interactive(evaluated(place.data, "translation", place.translation, *more, **options), lines)


def validate(task):
    def run(place, folder):
        options = dict(eval_langs="en,de", task_files=place.files, predictions_to=folder / "predictions")
        options = options if task == "classification" else {}
        return run_validate(evaluated(place.data, task, getattr(place, task), batch_size=8, **options))

    return run


def perplexity(place, folder):
    options = dict(gen_subset="valid", objectives="clm", objective_options="clm.length=32", max_tokens=256)
    return run_eval_lm(evaluated(place.data, "pretraining", place.pretraining, **options))


def retrieve(place, folder):
    with contextlib.redirect_stdout(io.StringIO()):
        retrieve_command.main(
            [str(place.pretraining), str(place.data), *cli(layer="1", pooling="mean", test=f"en-de={place.pairs}")]
        )


def average(place, folder):
    average_command.main(["--inputs", str(place.pretraining), "--output", str(folder / "average.pt")])


#: name -> function of a `Place` and a folder to write in
COMMANDS = {
    **{
        f"train {task}": lambda place, folder, task=task: run_train([*line_of(task, place, folder / "run"), *SHORT])
        for task in TASKS
    },
    "train from an encoder": from_encoder,
    "generate": generate,
    "generate generation": write,
    "back-translate": back_translate,
    "interactive": interactive,
    **{f"validate {task}": validate(task) for task in ("classification", "translation")},
    "eval-lm": perplexity,
    "retrieval": retrieve,
    "average": average,
}
WITH_MODEL = [name for name in COMMANDS if name not in [f"train {task}" for task in TASKS]]
WITH_DATA = [name for name in COMMANDS if name != "average"]
RAW = ("class", "generation", "interactive", "retrieval")
WITH_RAW_TEXT = [name for name in COMMANDS if any(part in name for part in RAW)]


def sentence_of(call):
    """The sentence that a command ends with, or "" if it succeeds; raises the error if it is a defect."""
    try:
        call()
    except UserError as error:
        return str(error)
    except Exception as error:
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            error_reporting.showing_messages(_a_defect)(type(error), error, error.__traceback__)
        return shown.getvalue().removeprefix("fairseq_xl: error: ").removesuffix("\n")
    return ""


def _a_defect(kind, error, trace):
    raise error


def fails(call, *parts):
    """Asserts that `call` fails with one sentence that has all of `parts`."""
    sentence = sentence_of(call)
    assert sentence and "\n" not in sentence and len(sentence) < 600, sentence
    for part in parts:
        assert str(part) in sentence, sentence


def with_small_files(call, most):
    """Runs `call` in a process of its own that can write files of at most `most` bytes: a disk that gets full.

    Returns: its exit status, as the interpreter would end with, and what it shows of an error.
    """
    reading, writing = os.pipe()

    def limited():
        os.dup2(writing, 2)
        sys.stderr = os.fdopen(2, "w", 1, closefd=False)  # a line at a time
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        try:
            call()
        except Exception as error:
            error_reporting.showing_messages(sys.__excepthook__)(type(error), error, error.__traceback__)
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=limited)
    process.start()
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:  # to its end
        shown = stream.read()
    process.join()
    return process.exitcode, shown
