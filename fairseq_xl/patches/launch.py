"""The patch that sends trainings of this package's tasks to its own loop."""

from fairseq.distributed import utils as distributed_utils

from fairseq_xl.engine.launch import call_main_with_our_loop


def install() -> None:
    """Replaces the function that starts all commands of fairseq."""
    distributed_utils.call_main = call_main_with_our_loop(distributed_utils.call_main)
