"""What makes new values of old ones and of an epoch's rows: merge functions, or a Python function.

Both give whole new values of every key that has rows (R10): what they come to is logged, and
nothing is ever computed again from the log. So a step may be any function, as long as the same
keys, old values and rows give the same values: a task may be tried again. The rows of a key come in
no stated order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamina.errors import Refused, UsageError
from lamina.format.canonical import encode, sha256_hex
from lamina.state.changes import changes, key_columns
from lamina.state.keys import canonical
from lamina.state.merge import Merge
from lamina.state.partition import StatePartition
from lamina.state.run import sort_order
from lamina.state.schema import StateSchema
from lamina.state.vnodes import Mask, Slots


@dataclass(frozen=True, slots=True)
class Merges:
    """Old and new values become one, column by column (lamina.state.merge)."""

    merges: tuple[Merge, ...]

    def definition(self, of: str | None) -> str | None:
        return of


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of a module, called with `Stepping` for the keys of a partition that have rows.

    It returns the value columns of all these keys, in their order. *version* is part of what the
    state means: another one is refused on old state, until a person accepts it.
    """

    module: str
    name: str
    version: str

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        return sha256_hex(encode([of, self.module, self.name, self.version]))

    def function(self) -> StepFunction:
        try:
            found = getattr(import_module(self.module), self.name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the step {self.module}.{self.name} cannot be imported: {error}",
                advice="It must be importable wherever tasks run",
            ) from error
        function: StepFunction = found
        return function


Step = Merges | PythonStep


@dataclass(frozen=True, slots=True)
class Stepping:
    """What a step is given."""

    keys: pa.RecordBatch  # each key once
    old: pa.RecordBatch  # the values of each key; null where it is not found
    found: Mask
    rows: pa.RecordBatch  # the epoch's rows of these keys
    key_of: npt.NDArray[np.int64]  # of each row: which of the keys it has


StepFunction = Callable[[Stepping], pa.RecordBatch]


def stepped(
    step: PythonStep, partition: StatePartition, rows: pa.RecordBatch, slots: Slots
) -> pa.RecordBatch:
    """The whole new values of all keys that have *rows*, as sorted changes."""
    schema = partition.schema
    first, key_of = _grouped(schema, rows, slots)
    keys = [column.take(pa.array(first)) for column in key_columns(schema, rows)]
    looked = partition.look(slots[first], keys)
    batch = pa.RecordBatch.from_arrays(keys, schema=schema.key)
    values = step.function()(Stepping(batch, looked.values, looked.found, rows, key_of))
    _check(step, schema, values, len(first))
    named = [values.column(field.name) for field in schema.value]
    return changes(
        schema, pa.RecordBatch.from_arrays([*keys, *named], schema=schema.row), slots=slots[first]
    )


def _grouped(
    schema: StateSchema, rows: pa.RecordBatch, slots: Slots
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A row of each key, in the order of a run; and of each row the number of its key there."""
    names = canonical(key_columns(schema, rows)).dictionary_encode()
    codes = np.asarray(names.indices.to_numpy(zero_copy_only=False), np.int64)
    _, first = np.unique(codes, return_index=True)
    keys = [column.take(pa.array(first)) for column in key_columns(schema, rows)]
    order = sort_order(slots[first], keys)
    if order is None:
        order = np.arange(len(first))
    place = np.empty(len(first), np.int64)
    place[order] = np.arange(len(first))
    return first[order], place[codes]


def _check(step: PythonStep, schema: StateSchema, values: pa.RecordBatch, keys: int) -> None:
    wanted = pa.schema([pa.field(field.name, field.type) for field in schema.value])
    given = pa.schema([pa.field(field.name, field.type) for field in values.schema])
    if given != wanted or values.num_rows != keys:
        raise Refused(
            f"the step {step.module}.{step.name} has given {values.num_rows} rows of "
            f"{_said(given)} for {keys} keys, and the state has {_said(wanted)}",
            advice="It returns the value columns of the state, a row for each key",
        )


def _said(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"
