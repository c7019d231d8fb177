"""Corpora, framing, masking, text noise and the plan of an epoch; imports no other part of the plugin."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: token ids, numbers of examples, positions, sizes or keys
Numbers: TypeAlias = NDArray[np.integer[Any]]
