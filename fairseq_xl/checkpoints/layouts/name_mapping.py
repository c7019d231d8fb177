"""Tables of parameter names: our names and those of another program, applied in both directions.

Pure functions on state dicts. Shapes do not depend on the number of attention heads.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairseq_xl.checkpoints.layouts.weight_checks import check_values
from fairseq_xl.errors import UserError

State = dict[str, Tensor]
#: our name -> names in the file, whose rows are joined in this order. ``{n}`` is the number of a layer, and ``.*`` at
#: the end stands for ``.weight`` and ``.bias``
Names = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    """The names of a layout."""

    names: Names  # of the parameters of every model
    optional: tuple[Names, ...] = ()  # groups, such as the output layer; a model has all of a group or none
    #: {name in the file: name in the file of which it is a copy}; both directions check or write the copy
    ties: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()  # patterns of names in the file without counterpart that change no output

    def to_ours(self, weights: State) -> State:
        """Converts a file's state dict to our names; `UserError` for names, shapes and values that do not fit."""
        weights = {
            name: tensor
            for name, tensor in weights.items()
            if not any(re.fullmatch(pattern, name) for pattern in self.ignored)
        }
        check_values(weights)
        for copy, original in self.ties.items():
            if original not in weights and copy in weights:  # programs write one of them
                weights[original] = weights.pop(copy)
            elif copy in weights and not same(weights.pop(copy), weights[original]):
                raise UserError(f"{copy} differs from {original}; only models that tie them can be converted")
        rows = self._rows(weights.keys(), lambda key, file_names: file_names)
        used = {name for file_names in rows.values() for name in file_names}
        _check_names(used, weights.keys())
        state = {}
        for key, file_names in rows.items():
            first, *rest = parts = [weights[name] for name in file_names]
            if any(part.shape[1:] != first.shape[1:] for part in rest):
                shapes = ", ".join(f"{name} {tuple(part.shape)}" for name, part in zip(file_names, parts))
                raise UserError(f"the shapes of these weights do not fit each other: {shapes}")
            state[key] = torch.cat(parts) if rest else first
        return state

    def to_theirs(self, state: State) -> State:
        """Converts our state dict to the names of the layout, with second names of tied parameters.

        Tensors that share memory are copied. Raises `UserError` for parameters that are missing or left over.
        """
        rows = self._rows(state.keys(), lambda key, file_names: (key,))
        _check_names(set(rows), state.keys())
        weights: State = {}
        used: set[int] = set()  # addresses
        for key, file_names in rows.items():
            for name, part in zip(file_names, state[key].chunk(len(file_names))):
                shared = part.data_ptr() in used or part.untyped_storage().nbytes() > part.nbytes
                weights[name] = part.clone() if shared and not part.is_meta else part
                used.add(weights[name].data_ptr())
        return weights | {copy: weights[original] for copy, original in self.ties.items() if original in weights}

    def _rows(self, present: Iterable[str], side: Callable) -> dict[str, tuple[str, ...]]:
        """{our parameter: names in the file} of the layers and groups that have `present` names, in a row's `side`."""
        present, rows = list(present), dict(_expanded(self.names))
        for group in map(_expanded, self.optional):
            patterns = [_pattern(name) for key, file_names in group.items() for name in side(key, file_names)]
            if any(pattern.fullmatch(name) for pattern in patterns for name in present):
                rows |= group
        depths: dict[str, int] = {}  # by stack
        for key, file_names in rows.items():
            if "{n}" in key:
                patterns = [_pattern(name) for name in side(key, file_names)]
                matches = [pattern.fullmatch(name) for name in present for pattern in patterns]
                indices = [int(match[1]) for match in matches if match]
                stack = key.partition(".")[0]
                depths[stack] = max([*indices, 0, depths.get(stack, 0)])  # so that a gap shows as missing names
        expanded: dict[str, tuple[str, ...]] = {}
        for key, file_names in rows.items():
            count = depths[key.partition(".")[0]] + 1 if "{n}" in key else 1
            for index in range(count):
                filled = tuple(name.replace("{n}", str(index)) for name in file_names)
                expanded[key.replace("{n}", str(index))] = filled
        return expanded


def same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same values; on the meta device, whether they have the same shape."""
    return first.shape == second.shape if first.is_meta else torch.equal(first, second)


def prefixed(names: Names, our_prefix: str, their_prefix: str) -> Names:
    """`names` with a prefix on each side."""
    return {
        our_prefix + name: tuple(their_prefix + part for part in ([entry] if isinstance(entry, str) else entry))
        for name, entry in names.items()
    }


def _expanded(names: Names) -> dict[str, tuple[str, ...]]:
    """Names with ``.weight`` and ``.bias`` in place of ``.*``."""
    expanded = {}
    for key, file_names in names.items():
        file_names = (file_names,) if isinstance(file_names, str) else file_names
        for kind in ("weight", "bias") if key.endswith(".*") else ("",):
            expanded[key.removesuffix("*") + kind] = tuple(name.removesuffix("*") + kind for name in file_names)
    return expanded


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{n\}", r"(\d+)"))


def _check_names(expected: set[str], names: Iterable[str]) -> None:
    names = set(names)
    problems = []
    for differing in (sorted(expected - names), sorted(names - expected)):
        more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
        problems.append((", ".join(differing[:5]) or "nothing") + more)
    if expected != names:
        raise UserError("the weights are not of this kind of model: {} missing, {} unexpected".format(*problems))
