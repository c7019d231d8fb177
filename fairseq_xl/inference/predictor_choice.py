"""The predictor of a checkpoint, by the task that it was trained with."""

import argparse
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.inference.label_predictor import LabelPredictor
from fairseq_xl.inference.model_loading import load_model
from fairseq_xl.inference.predictor import BatchLimits, Predictor, on_best_device
from fairseq_xl.inference.text_predictor import TextPredictor, directions_of
from fairseq_xl.io.lines import STANDARD_INPUT
from fairseq_xl.io.options import option_name
from fairseq_xl.tasks.same_language_generation import XLGenerationTask
from fairseq_xl.tasks.training import TrainingTask


def choose(options: argparse.Namespace, generation: dict[str, Any]) -> Predictor:
    """Makes the predictor of the checkpoint of `fairseq-xl predict`; `UserError` for options of another model."""
    module = {"language_module": options.language_module, "lang": options.lang} if options.language_module else {}
    model, task = load_model(options.checkpoint, options.data, **module)
    model = on_best_device(model, options.fp16)
    common = model, task, BatchLimits(options.max_tokens, options.batch_size), options.input or STANDARD_INPUT
    writes = bool(directions_of(task)) or isinstance(task, XLGenerationTask)
    labelled = isinstance(task, TrainingTask) and bool(task.labelled)
    if not writes and not labelled and "writes" in task.identity():
        raise UserError(
            f"{options.checkpoint} was trained by xl_pretraining: text is written by `fairseq-interactive "
            f"{task.cfg.data} --user-dir fairseq_xl --task xl_generation --path {options.checkpoint} --eval-langs "
            "LANGUAGE`"
        )
    if not writes and not labelled:
        raise UserError(
            f"{options.checkpoint} was trained by {task.cfg._name}: expected a fine-tuned model, or one that "
            "translates or generates text"
        )
    writes = writes and not (labelled and options.objective)
    _check(options, generation, writes)
    if writes and directions_of(task):
        return TextPredictor(*common, _direction(options, task), generation)
    if options.source_lang or options.target_lang:
        raise UserError(f"--source-lang and --target-lang: {options.checkpoint} does not translate: use --lang")
    if labelled:
        return LabelPredictor(*common, _language(options, task), options.objective)
    return TextPredictor(*common, (_language(options, task),) * 2, generation)


def _check(options: argparse.Namespace, generation: dict[str, Any], writes: bool) -> None:
    """Raises `UserError` for options of text generation if the model predicts classes, and vice versa."""
    if writes:
        unexpected = ["--objective"] * bool(options.objective) + ["--probabilities"] * options.probabilities
        expected = "predicts classes"
    else:
        unexpected, expected = [option_name(name) for name in generation], "translates or generates text"
    if unexpected:
        raise UserError(f"{', '.join(unexpected)}: expected a model that {expected}, found {options.checkpoint}")


def _language(options: argparse.Namespace, task: Any) -> str:
    """The language of the text: --lang, or the only one of the dictionary."""
    languages: list[str] = task.dictionary.languages
    if not options.lang and len(languages) > 1:
        raise UserError(f"--lang is missing: name the language of the text, one of {', '.join(languages)}")
    return options.lang or languages[0]


def _direction(options: argparse.Namespace, task: Any) -> tuple[str, str]:
    """Source and target language: from the options, or from the only direction of the training."""
    trained = directions_of(task)
    if options.lang:
        raise UserError(
            f"--lang {options.lang}: {options.checkpoint} translates, it has --source-lang and --target-lang"
        )
    if options.source_lang and options.target_lang:
        return options.source_lang, options.target_lang
    if options.source_lang or options.target_lang or len(trained) > 1:
        raise UserError(f"give --source-lang and --target-lang; {options.checkpoint} has {', '.join(trained)}")
    source, target = trained[0].split("-")
    return source, target
