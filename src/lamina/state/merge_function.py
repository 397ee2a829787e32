"""What every merge function is made of: a check of its columns, and a step over Arrow arrays.

A function sees both sides of a key as arrays of equal length. Where a key has no old row, its old
values are null: for every function null means "nothing yet", so no function asks which it was,
except those for which a null old row may win (`found`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import UsageError

Option: TypeAlias = "int | str | bool"
Mask: TypeAlias = "npt.NDArray[np.bool_]"
Longs: TypeAlias = "npt.NDArray[np.int64]"
Doubles: TypeAlias = "npt.NDArray[np.float64]"


class Combines(Protocol):
    """The code of a user's own aggregate; it is sent to the tasks."""

    def merge(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Two states of each group as one; none of them is null."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One merge of one batch: the columns of the function, in its order."""

    fields: tuple[pa.Field, ...]
    old: tuple[pa.Array, ...]  # null where there is no old row
    new: tuple[pa.Array, ...]
    found: pa.BooleanArray
    options: Mapping[str, Option]
    code: Combines | None = None  # of a user's own aggregate

    def option(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)


@dataclass(frozen=True, slots=True)
class Function:
    """A row of the table of merge functions."""

    apply: Callable[[Step], Sequence[pa.Array]]
    check: Callable[[Columns], None]
    options: Mapping[str, type]  # the options it knows and their types
    reads_old: bool = True


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns a function was given, while they are being checked."""

    function: str
    fields: tuple[pa.Field, ...]
    options: Mapping[str, Option]

    def count(self, least: int, most: int | None = None, *, what: str) -> None:
        """There must be at least *least* and at most *most* of them."""
        given = len(self.fields)
        if given < least or (most is not None and given > most):
            names = ", ".join(field.name for field in self.fields) or "none"
            raise UsageError(f"{self.function} takes {what}; it was given {given}: {names}")

    def each(self, index: int, fits: Callable[[pa.DataType], bool], *, what: str) -> None:
        """The type of the column at *index* must fit; *what* says which would."""
        field = self.fields[index]
        if not fits(field.type):
            raise UsageError(
                f"{self.function} cannot merge column {field.name!r} of type {field.type}; "
                f"it takes {what}"
            )


def choose(mask: pa.BooleanArray, yes: pa.Array, no: pa.Array) -> pa.Array:
    """*yes* where the mask is true, else *no*; the mask has no nulls."""
    return pc.if_else(mask, yes, no)


def only_found(array: pa.Array, found: pa.BooleanArray) -> pa.Array:
    """*array* with null wherever there is no old row, so that garbage there is never seen."""
    return pc.if_else(found, array, pa.scalar(None, array.type))
