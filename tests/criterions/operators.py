"""Records the operators of torch that run, and names those for which a host waits for its device."""

from torch.utils._python_dispatch import TorchDispatchMode

#: reading a number, or a size that depends on numbers
SYNCS = {"_local_scalar_dense.default", "nonzero.default", "item.default", "is_nonzero.default", "equal.default"}


class Operators(TorchDispatchMode):
    """Records the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__)
        return function(*args, **kwargs or {})
