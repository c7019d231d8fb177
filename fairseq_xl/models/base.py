"""The base class of all Transformers."""

from typing import Dict

from fairseq.models import BaseFairseqModel
from torch import Tensor

from fairseq_xl.checkpoints.keys import upgrade_keys


class XLTransformer(BaseFairseqModel):
    """Base of the Transformers; reads checkpoints of earlier versions."""

    #: the kind of network: weights of another kind cannot be transferred
    backbone = "a Transformer"

    def upgrade_state_dict(self, state_dict: Dict[str, Tensor]) -> None:
        """fairseq hook: renames, in place, the parameters of a checkpoint of an earlier version."""
        renamed = upgrade_keys(state_dict)
        state_dict.clear()
        state_dict.update(renamed)
