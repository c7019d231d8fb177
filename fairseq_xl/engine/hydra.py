"""Registers the package in fairseq-hydra-train before it looks for its training loop."""

from typing import Any

from hydra.experimental.callback import Callback

import fairseq_xl


class Registering(Callback):
    """A callback of hydra, named in a YAML file: ``hydra.callbacks.fairseq_xl._target_``."""

    def on_job_start(self, config: Any, **kwargs: Any) -> None:
        fairseq_xl.register()
