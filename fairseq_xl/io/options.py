"""Options: fields of dataclasses, names on a command line, the run's configuration, and text as literals.

Literals replace fairseq's evaluation of text as Python.
"""

import argparse
import ast
import contextlib
import functools
from collections.abc import Iterable
from dataclasses import field
from typing import Any, NoReturn

from omegaconf import OmegaConf

from fairseq_xl.errors import UserError, quoted

AUTO = "auto"  # --updates-per-epoch: as many as one pass over the data needs
#: metadata of an option of a model: the first part of a model whose weights mean something else if the option differs;
#: the value that describes models without the option; the task's option that accepts weights of another value; whether
#: the option concerns the language module alone; whether weights without it are converted to weights with it
TRANSFER, ABSENT, ACCEPTED_BY, IN_MODULE, ADDED = "transfer", "absent", "accepted_by", "in_module", "added"
#: options of a run that name the weights that it starts from
INITIAL = ("init_from", "init_encoder_from", "init_decoder_from", "init_embeddings_from")
UPDATES = 1000  # of an epoch of pre-training, by default
#: a task of fairseq that evaluates the lines of its data
EVALUATING_TASK = "speech_unit_modeling"
MAX_LENGTH = 1000  # characters of the text
MAX_VALUES = 10_000  # of a list that is repeated
#: options whose text fairseq evaluates when it builds something
EVALUATED = frozenset(
    "adafactor_eps adam_betas adamax_betas adaptive_input_cutoff adaptive_softmax_cutoff character_filters "
    "conv_aggregator_layers conv_feature_layers decoder_attention decoder_layers downsample encoder_attention "
    "encoder_layers feature_encoder_spec gated_attention lamb_betas left_pad_source left_pad_target model_overrides "
    "pipeline_balance pipeline_decoder_balance pipeline_decoder_devices pipeline_devices pipeline_encoder_balance "
    "pipeline_encoder_devices pretrained project_input self_attention wer_args xformers_att_config "
    "encoder_xformers_att_config decoder_xformers_att_config".split()
)


def option(default: Any, help_text: str, **metadata: Any) -> Any:
    """A field of a dataclass with its sentence in ``--help`` and further metadata, such as `range`."""
    return field(default=default, metadata={"help": help_text, **metadata})


def option_name(name: str) -> str:
    """The name of a field on a command line: --max-tokens for max_tokens."""
    return f"--{name.replace('_', '-')}"


def changed(options: Any, dataclass: type) -> Iterable[str]:
    """The names of the options that are not at their default."""
    fields = dataclass.__dataclass_fields__  # type: ignore[attr-defined]
    for name, option_field in fields.items():
        default = option_field.default
        if not (isinstance(default, str) and default.startswith("${")) and getattr(options, name, default) != default:
            yield name


def number_of_updates(value: Any) -> Any:
    """The value of --updates-per-epoch: a number, "auto", or None for the default; raises `UserError` for others."""
    if value in (None, AUTO):
        return value
    with contextlib.suppress(ValueError):
        if (count := int(str(value))) > 0:
            return count
    raise UserError(f"--updates-per-epoch {value}: auto, or a whole number that is 1 or more, is needed")


def check_literals(options: dict[str, Any]) -> None:
    """Raises `UserError` for `EVALUATING_TASK`, and for an option, in a section or not, whose text is not a literal."""
    for name, value in options.items():
        if name in ("task", "_name") and value == EVALUATING_TASK:
            raise UserError(f"--task {value} is not supported: it runs lines of its data as Python")
        section = vars(value) if isinstance(value, argparse.Namespace) else value
        if isinstance(section, dict):
            check_literals(section)
        elif name in EVALUATED and isinstance(value, str):
            try:
                literal(value)
            except UserError as error:
                raise UserError(f"--{name.replace('_', '-')} {error}") from None


def literal_type(convert: Any) -> Any:
    """Restricts an argument type that evaluates Python to literals; other types are returned as they are."""
    names = {getattr(convert, "__name__", ""), *getattr(getattr(convert, "__code__", None), "co_names", ())}
    if not names & {"eval", "eval_bool", "eval_str_dict", "eval_str_list"}:
        return convert

    @functools.wraps(convert)
    def checked(text: str) -> Any:
        """Converts a literal."""
        literal(text)
        return convert(text)

    return checked


def refuse_fasta(self: Any, path: str) -> NoReturn:
    """Refuses a FASTA file, in place of `fairseq.data.FastaDataset._build_index`, which passes its name to a shell."""
    raise UserError(f"{path}.fasta: FASTA files are not read, since fairseq passes their names to a shell")


def literal(text: str) -> Any:
    """``(0.9, 0.98)`` -> (0.9, 0.98), ``[(512, 3)] * 2`` -> two pairs. Raises `UserError` for other expressions."""
    try:
        if len(text) > MAX_LENGTH:
            raise ValueError
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UserError(f"{quoted(text)}: expected numbers, strings, lists or dicts") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (list, tuple)):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, (list, tuple)) and type(right) is int:
            if len(left) * right <= MAX_VALUES:
                return left * right
        raise ValueError
    return ast.literal_eval(node)


def run_config(cfg: Any) -> Any:
    """The run's configuration, whose section `task` is `cfg`; None for a task created without a command."""
    return cfg._get_parent() if OmegaConf.is_config(cfg) else None


def run_option(cfg: Any, name: str, default: Any) -> Any:
    """An option of the run's configuration, such as ``criterion.label_smoothing``; the default without a run."""
    run = run_config(cfg)
    return default if run is None else OmegaConf.select(run, name, default=default)
