"""The end of a training by SIGTERM or Ctrl-C: after the current update, with a checkpoint."""

import logging
import signal
from types import FrameType

from fairseq_xl.io.ranks import any_rank

logger = logging.getLogger(__name__)


class Stopping:
    """Ends a training after its current update, on all ranks together.

    Nothing is validated then. A second Ctrl-C stops at once.

    Attributes:
        signal: the name of the signal that this process received, if any.
        agreed: whether all ranks stop after this update because of a signal.
        is_over: whether they stop because of --stop-time-hours.
    """

    def __init__(self) -> None:
        self.signal: str | None = None
        self.agreed = self.is_over = False

    @property
    def requested(self) -> bool:
        """Whether a signal came, perhaps after the last update."""
        return self.agreed or self.signal is not None

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        """Notes a signal; a second SIGINT ends the process. Nothing is logged: it may interrupt another record."""
        self.signal = signal.Signals(signal_number).name
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def agree(self, is_over: bool = False) -> None:
        """Sets `agreed` and `is_over` on all ranks if one of them stops; all call this after each update."""
        name = self.signal  # read once: a signal may come at any time
        if name:
            logger.warning("%s: saving after this update, then stopping", name)
        stops, self.is_over = any_rank([name is not None, is_over])
        self.agreed |= stops
