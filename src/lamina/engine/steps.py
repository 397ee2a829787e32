"""What makes new values of old ones and of an epoch's rows.

Merges         old and new values become one, column by column: aggregates
a KeyedStep    a function over the keys of a partition that have rows or whose timer is due
a Join         rows of two streams are kept until their partners have come (engine/joins.py)
a ChangeJoin   rows of two streams that may be taken back are kept until they are (engine/joins.py)
a TemporalJoin rows of one stream meet the rows that another one has now (engine/joins.py)
an Asof        rows of one stream wait for the version of their time (engine/asof.py)
Timers         the state beside that of a keyed step: which keys are to be called, and when
Pending        the state beside that of merges: which rows wait to come out (engine/pending.py)

All of them give whole new values (R10): what they come to is logged, and nothing is ever computed
again from the log. So a step may be any function, as long as the same keys, old values and rows
give the same: a task may be tried again. The rows of a key come in no stated order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamina.engine.asof import Asof
from lamina.engine.joins import ChangeJoin, Join, TemporalJoin
from lamina.errors import UsageError
from lamina.format.canonical import encode, sha256_hex
from lamina.state.merge import Merge
from lamina.state.vnodes import Mask


@dataclass(frozen=True, slots=True)
class Stepping:
    """What a keyed step is given; it must not keep or change any of it."""

    keys: pa.RecordBatch  # each key once
    old: pa.RecordBatch  # the values of each key; null where it is not found
    found: Mask
    rows: pa.RecordBatch  # the epoch's rows of these keys
    key_of: npt.NDArray[np.int64]  # of each row: which of the keys it has
    due: Mask
    """Keys whose timer is at the watermark or before: they are called, with rows or without."""
    floor: int | None = None
    """What is before it is due, in microseconds: the watermark, and one. None: none is known."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a keyed step gives, for all the keys that it was given, in their order."""

    values: pa.RecordBatch  # whole new values; those of keys that are gone do not count
    gone: Mask | None = None  # keys that are no longer in the state
    output: pa.RecordBatch | None = None
    """Rows that come out, as `OperatorPlan.output_schema` has them. A plan without one puts out the
    keys and new values of what is not gone."""
    timers: pa.Array | None = None
    """When each key is to be called next, as a timestamp; null: not by a timer. It replaces the
    timer that the key had. One that is due already fires when the watermark next moves."""
    same: Mask | None = None
    """Of a step without timers: keys that stay as they are, so that nothing is written of them."""


class KeyedStep(Protocol):
    """A step over whole keys; it is sent to the tasks."""

    @property
    def merges(self) -> tuple[Merge, ...]:
        """None: its values take the place of the old ones."""
        ...

    def definition(self, of: str | None) -> str | None:
        """A digest of what the state means, from that of the rows: another one is refused."""
        ...

    def step(self, given: Stepping) -> Stepped: ...


@dataclass(frozen=True, slots=True)
class Merges:
    """Old and new values become one, column by column (lamina.state.merge)."""

    merges: tuple[Merge, ...]

    def definition(self, of: str | None) -> str | None:
        return of


@dataclass(frozen=True, slots=True)
class Timers:
    """Times at which keys are to be called: an operator with the key (time, the keys), no values.

    It lies in the order of time where those keys are, and expires by the floor: what is due is
    found without a look at the rest, and costs no delete. A timer that no longer matters fires
    too, and the state of its key says so.
    """

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:  # noqa: ARG002  it means the same always
        return None


@dataclass(frozen=True, slots=True)
class Pending:
    """Rows that have changed and wait to come out: an operator with the keys of another one."""

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:  # noqa: ARG002  it means the same always
        return None


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of a module, called with `Stepping`.

    *version* is part of what the state means: another one is refused on old state, until a person
    accepts it.
    """

    module: str
    name: str
    version: str

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        return sha256_hex(encode([of, self.module, self.name, self.version]))

    def __str__(self) -> str:
        return f"the step {self.module}.{self.name}"

    def step(self, given: Stepping) -> Stepped:
        return self._function()(given)

    def _function(self) -> StepFunction:
        try:
            found = getattr(import_module(self.module), self.name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"{self} cannot be imported: {error}",
                advice="It must be importable wherever tasks run",
            ) from error
        function: StepFunction = found
        return function


StepFunction = Callable[[Stepping], Stepped]

Step = Merges | Timers | Pending | Join | ChangeJoin | TemporalJoin | Asof | KeyedStep


def is_keyed(step: Step) -> bool:
    """Whether its columns are known by their names: no other may take the place of one."""
    return not isinstance(step, (Merges, Timers))


def is_beside(step: Step) -> bool:
    """Whether it belongs to another operator of its stream: no rows of the epoch come to it."""
    return isinstance(step, (Timers, Pending))
