"""The functions of fairseq that this package replaces, in one table; `README.md` says why.

Registering the package (`fairseq_xl.tasks`) installs them; importing a module of the package changes nothing.
"""

import functools
import inspect
import os
import sys
import warnings
from pkgutil import resolve_name

import fairseq
from hydra.core.hydra_config import HydraConfig

from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting

VERSION = "0.12.3.1"  # of fairseq-fixed
#: (function of fairseq, its parameters, what replaces it)
TABLE = (
    ("fairseq.distributed.utils:call_main", "cfg main kwargs", "fairseq_xl.patches.command_line:call_main"),
    (
        "fairseq.options:parse_args_and_arch",
        "parser input_args parse_known suppress_defaults modify_parser",
        "fairseq_xl.patches.command_line:parse_args_and_arch",
    ),
    (
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        "path arg_overrides load_on_all_ranks",
        "fairseq_xl.engine.loading:load_checkpoint_to_cpu",
    ),
    (
        "fairseq.checkpoint_utils:load_model_ensemble_and_task",
        "filenames arg_overrides task strict suffix num_shards state",
        "fairseq_xl.engine.loading:load_model_ensemble_and_task",
    ),
    ("fairseq.distributed.utils:all_gather_list", "data group max_size", "fairseq_xl.io.ranks:all_gather_list"),
    ("fairseq.data.fasta_dataset:FastaDataset._build_index", "self path", "fairseq_xl.io.options:refuse_fasta"),
    (
        "fairseq.logging.progress_bar:BaseProgressBar._format_stats",
        "self stats",
        "fairseq_xl.patches.command_line:format_stats",
    ),
    ("fairseq_cli.interactive:buffered_read", "input buffer_size", "fairseq_xl.io.lines:buffered_read"),
)
#: warnings in every command, since fairseq calls hydra's old interface
HYDRA_WARNINGS = r"(?s).*\bhydra\b"


@functools.cache
def install() -> None:
    """Replaces the functions of `TABLE` and hides `HYDRA_WARNINGS`, once; `UserError` for another fairseq."""
    if fairseq.__version__ != VERSION:
        raise UserError(f"fairseq {fairseq.__version__} is not supported: expected fairseq-fixed {VERSION}")
    warnings.filterwarnings("ignore", HYDRA_WARNINGS, UserWarning)
    if HydraConfig.initialized():  # the process is fairseq-hydra-train, which imports the plugin when it runs
        error_reporting.install()  # as `parse_args_and_arch` does in other commands
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # hydra raises errors instead of showing them in its way
    for name, parameters, replacement in TABLE:
        replace(name, parameters, resolve_name(replacement))


def replace(name: str, parameters: str, replacement: object) -> None:
    """Replaces a function of fairseq, also in a command run by ``python -m``; `UserError` for other parameters."""
    module, _, path = name.partition(":")
    if module.startswith("fairseq_cli."):
        running = [candidate for candidate in ("__main__", module) if hasattr(sys.modules.get(candidate), path)]
        if not running:
            return
        module = running[0]
    owner, _, attribute = path.rpartition(".")
    holder = resolve_name(f"{module}:{owner}")
    actual = " ".join(inspect.signature(getattr(holder, attribute)).parameters)
    if actual != parameters:
        raise UserError(f"{name} has the parameters {actual!r}, not {parameters!r}: install fairseq-fixed {VERSION}")
    setattr(holder, attribute, replacement)
