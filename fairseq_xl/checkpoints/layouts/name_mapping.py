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
    """The names of a layout.

    Attributes:
        names: parameters of every model of the layout.
        optional: further groups of parameters, such as the output layer; a model has all of a group or none.
        ties: {name in the file: name in the file of which it is a copy}. Both directions check or write the copy.
        ignored: regular expressions of names in the file without counterpart that change no output.
    """

    names: Names
    optional: tuple[Names, ...] = ()
    ties: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def to_ours(self, given: State) -> State:
        """Converts the state dict of a file to our names.

        Tensors that are not joined share their memory with the file's.

        Raises `UserError` for names that are missing or left over, values that are not finite floating-point numbers,
        tied parameters that differ, and shapes that cannot be joined.
        """
        given = {
            name: tensor
            for name, tensor in given.items()
            if not any(re.fullmatch(pattern, name) for pattern in self.ignored)
        }
        check_values(given)
        for copy, original in self.ties.items():
            if original not in given and copy in given:  # programs write one of them
                given[original] = given.pop(copy)
            elif copy in given and not same(given.pop(copy), given[original]):
                raise UserError(f"{copy} differs from {original}; only models that tie them can be converted")
        rows = self._rows(given.keys(), lambda ours, theirs: theirs)
        used = {name for theirs in rows.values() for name in theirs}
        _check_names(used, given.keys())
        return {ours: _joined({name: given[name] for name in theirs}) for ours, theirs in rows.items()}

    def to_theirs(self, state: State) -> State:
        """Converts our state dict to the names of the layout, with second names of tied parameters.

        A tensor is copied if it shares its memory with another one.

        Raises `UserError` for parameters that are missing or that the layout does not have.
        """
        rows = self._rows(state.keys(), lambda ours, theirs: (ours,))
        _check_names(set(rows), state.keys())
        found: State = {}
        used: set[int] = set()  # places of memory
        for ours, theirs in rows.items():
            for name, part in zip(theirs, state[ours].chunk(len(theirs))):
                found[name] = part.clone() if _shares_memory(part, used) else part
                used.add(found[name].data_ptr())
        return found | {copy: found[original] for copy, original in self.ties.items() if original in found}

    def _rows(self, present: Iterable[str], side: Callable) -> dict[str, tuple[str, ...]]:
        """{our parameter: names in the file} for the layers and groups that `present` names have.

        Args:
            side: function from a row's two sides to the names to look for in `present`.
        """
        present, rows = list(present), dict(_expanded(self.names))
        for group in map(_expanded, self.optional):
            patterns = [_pattern(name) for ours, theirs in group.items() for name in side(ours, theirs)]
            if any(pattern.fullmatch(name) for pattern in patterns for name in present):
                rows |= group
        depths: dict[str, int] = {}  # by stack
        for ours, theirs in rows.items():
            if "{n}" in ours:
                patterns = [_pattern(name) for name in side(ours, theirs)]
                matches = [each.fullmatch(name) for name in present for each in patterns]
                numbers = [int(match[1]) for match in matches if match]
                stack = ours.partition(".")[0]
                depths[stack] = max([*numbers, 0, depths.get(stack, 0)])  # so that a gap shows as missing names
        found: dict[str, tuple[str, ...]] = {}
        for ours, theirs in rows.items():
            count = depths[ours.partition(".")[0]] + 1 if "{n}" in ours else 1
            for number in range(count):
                filled = tuple(name.replace("{n}", str(number)) for name in theirs)
                found[ours.replace("{n}", str(number))] = filled
        return found


def _joined(parts: State) -> Tensor:
    """The rows of tensors {name: tensor} in one tensor; a single one as it is. `UserError` for shapes that differ."""
    one, *others = parts.values()
    if any(other.shape[1:] != one.shape[1:] for other in others):
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in parts.items())
        raise UserError(f"the shapes of these weights do not fit each other: {shapes}")
    return torch.cat((one, *others)) if others else one


def _shares_memory(part: Tensor, used: set[int]) -> bool:
    """Whether a tensor is part of a larger one, or begins at one of the `used` places of memory."""
    if part.is_meta:
        return False
    return part.untyped_storage().nbytes() > part.nbytes or part.data_ptr() in used


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same values; on the meta device, whether they have the same shape."""
    return one.shape == other.shape if one.is_meta else torch.equal(one, other)


def prefixed(names: Names, ours: str, theirs: str) -> Names:
    """`names` with a prefix on each side."""
    return {
        ours + name: tuple(theirs + each for each in ([found] if isinstance(found, str) else found))
        for name, found in names.items()
    }


def _expanded(names: Names) -> dict[str, tuple[str, ...]]:
    """Names with ``.weight`` and ``.bias`` in place of ``.*``."""
    found = {}
    for ours, theirs in names.items():
        theirs = (theirs,) if isinstance(theirs, str) else theirs
        for kind in ("weight", "bias") if ours.endswith(".*") else ("",):
            found[ours.removesuffix("*") + kind] = tuple(name.removesuffix("*") + kind for name in theirs)
    return found


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{n\}", r"(\d+)"))


def _check_names(wanted: set[str], found: Iterable[str]) -> None:
    found = set(found)
    missing, unexpected = sorted(wanted - found), sorted(found - wanted)
    if missing or unexpected:
        raise UserError(
            f"the weights are not of this kind of model: {listed(missing)} missing, {listed(unexpected)} unexpected"
        )


def listed(names: list[str], shown: int = 5) -> str:
    """The first names of a list, and the number of the others."""
    first = ", ".join(names[:shown]) or "nothing"
    return f"{first} and {len(names) - shown} more" if len(names) > shown else first
