"""A user's own keyed step: `fn(keys, rows, state)` gives new state and output, over Arrow columns.

It is called once for each partition and epoch, for all keys that have rows or whose timer is due.
Rows are given with those of a key together, in the order of event time. Keys cannot be changed, so
none can get to another partition (R8). What the function gives is checked before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.code import line_of_error
from lamina.engine.steps import Stepped, Stepping
from lamina.engine.user_columns import Columns, KeyedResult, Keys, Rows, columns_of, flags_of
from lamina.errors import LaminaError, Refused
from lamina.state.merge import Merge
from lamina.state.run import by_key_and_time, by_number
from lamina.state.schema import null_where, time_values
from lamina.state.vnodes import Mask

EXPIRES = "_expires"
"""The column of state with a ttl: when it is forgotten."""
TIME = pa.timestamp("us", "UTC")
_LAST = np.iinfo(np.int64).max - 1
SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class UserStep:
    """A keyed step that is a function of the user's; it is sent to the tasks."""

    stream: str
    function: Callable[[Keys, Rows, Columns], Any]
    state: bytes  # Arrow schemas of the columns that the user has declared
    output: bytes
    time: str | None = None  # the column of rows that is their event time, if they have one
    has_timers: bool = False
    ttl_us: int | None = None
    initial: pa.RecordBatch | None = None  # one row: the state of a key that has none

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        """The version of the function is part of what the stream means."""
        return of

    def __str__(self) -> str:
        return f"the function of the stream {self.stream!r}"

    def step(self, given: Stepping) -> Stepped:
        if self.ttl_us is None:
            made = self._called(_Call.of(given, self.time))
            return Stepped(made.state, made.gone, made.output, made.timers)
        return self._with_ttl(given)

    def _with_ttl(self, given: Stepping) -> Stepped:
        """Keys that are due have expired: they start again with rows, or are gone."""
        assert self.ttl_us is not None
        assert self.time is not None
        count = given.keys.num_rows
        has_rows = np.zeros(count, np.bool_)
        has_rows[given.key_of] = True
        found = given.found & ~given.due
        latest = np.full(count, np.iinfo(np.int64).min, np.int64)
        np.maximum.at(latest, given.key_of, time_values(given.rows.column(self.time)))
        expires = np.minimum(latest, _LAST - self.ttl_us) + self.ttl_us
        before = time_values(given.old.column(EXPIRES))
        expires = np.where(found, np.maximum(expires, before), expires)
        live = np.flatnonzero(has_rows)
        old = given.old.drop_columns([EXPIRES])
        known = pa.RecordBatch.from_arrays(null_where(old.columns, ~found), schema=old.schema)
        own = replace(given, old=known, found=found, due=np.zeros(count, np.bool_))
        made = self._called(_Call.of(own, self.time).only(live))
        gone = np.ones(count, np.bool_)
        gone[live] = False if made.gone is None else made.gone
        place = np.full(count, -1, np.int64)
        place[live] = np.arange(len(live))
        taken = pa.array(place, mask=place < 0)
        stamps = pa.array(expires, mask=gone).cast(TIME)
        columns = [*(column.take(taken) for column in made.state.columns), stamps]
        names = [*made.state.schema.names, EXPIRES]
        values = pa.RecordBatch.from_arrays(columns, names=names)
        return Stepped(values, gone, made.output, pa.array(expires, mask=gone).cast(TIME))

    def _called(self, call: _Call) -> _Made:
        """What the function gives for these keys; an error names the first that it fails for."""
        if not call.count:
            nothing = pa.RecordBatch.from_pylist([], _schema(self.state))
            return _Made(nothing, pa.RecordBatch.from_pylist([], _schema(self.output)), None, None)
        try:
            given = self._call(call)
        except LaminaError:
            raise
        except Exception as error:
            first = call.part(self._first_bad(call), 1).keys.batch.to_pylist()[0]
            said = ", ".join(f"{name} {value!r}" for name, value in first.items())
            cause = f"{type(error).__name__}: {error} ({line_of_error(error)})"
            message = f"{self} failed for the key {said[:SHOWN_MAX]}: {cause}"
            raise Refused(" ".join(message.split())) from error
        return self._checked(given, call.count)

    def _call(self, call: _Call) -> Any:
        state = call.old
        if self.initial is not None:
            found = pa.array(call.found)
            state = pa.RecordBatch.from_arrays(
                [
                    pc.if_else(found, mine, theirs[0])
                    for mine, theirs in zip(state.columns, self.initial.columns, strict=True)
                ],
                schema=state.schema,
            )
        return self.function(call.keys, call.rows, Columns(state))

    def _first_bad(self, call: _Call) -> int:
        """The last one of the fewest first keys that it fails with."""
        good, bad = 0, call.count
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._call(call.part(0, middle))
                good = middle
            except Exception:  # noqa: BLE001  whatever it was
                bad = middle
        return good

    def _checked(self, given: Any, keys: int) -> _Made:
        if isinstance(given, tuple) and len(given) == 2:
            given = KeyedResult(*given)
        if not isinstance(given, KeyedResult):
            said = f"{self} has given a {type(given).__name__}"
            raise Refused(said, advice="It returns (state, output) or a lamina.KeyedResult")
        state = columns_of(given.state, _schema(self.state), f"{self}, its state", rows=keys)
        output = columns_of(given.output, _schema(self.output), f"{self}, its output")
        if given.timers is not None and not self.has_timers:
            raise Refused(
                f"{self} has given timers, and none are declared",
                advice="Write timers=True, without a ttl",
            )
        timers = None
        if given.timers is not None:
            field = pa.schema([("timers", TIME)])
            named = {"timers": given.timers}
            timers = columns_of(named, field, f"{self}, its timers", rows=keys).column(0)
        gone = None if given.gone is None else flags_of(given.gone, f"{self}, what is gone", keys)
        return _Made(state, output, gone, timers)


@dataclass(frozen=True, slots=True)
class _Made:
    """What a function has given, checked."""

    state: pa.RecordBatch
    output: pa.RecordBatch
    gone: Mask | None
    timers: pa.Array | None


@dataclass(frozen=True, slots=True)
class _Call:
    """What a function is called with; rows are sorted by the number of their key."""

    keys: Keys
    rows: Rows
    old: pa.RecordBatch
    found: Mask

    @classmethod
    def of(cls, given: Stepping, time: str | None) -> _Call:
        watermark = None if given.floor is None else np.datetime64(given.floor - 1, "us")
        keys = Keys(given.keys, ~given.found, given.due, watermark)
        order = by_number(given.key_of)
        if time is not None:
            order = by_key_and_time(given.key_of, time_values(given.rows.column(time)))
        rows = Rows(given.rows.take(pa.array(order)), given.key_of[order], given.keys.num_rows)
        return cls(keys, rows, given.old, given.found)

    @property
    def count(self) -> int:
        return len(self.keys)

    def only(self, which: npt.NDArray[np.int64]) -> _Call:
        """For these keys, of which all others have no rows."""
        number = np.full(self.count, -1, np.int64)
        number[which] = np.arange(len(which))
        rows = Rows(self.rows.batch, number[self.rows.key_of], len(which))
        taken = pa.array(which)
        return _Call(self.keys.take(which), rows, self.old.take(taken), self.found[which])

    def part(self, first: int, count: int) -> _Call:
        """For so many keys, from the *first* on."""
        starts = self.rows.starts
        begin, end = int(starts[first]), int(starts[first + count])
        rows = Rows(
            self.rows.batch.slice(begin, end - begin), self.rows.key_of[begin:end] - first, count
        )
        which = np.arange(first, first + count)
        return _Call(self.keys.take(which), rows, self.old.slice(first, count), self.found[which])


def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def initial_of(values: Sequence[tuple[str, Any]], schema: pa.Schema) -> pa.RecordBatch | None:
    """The state of a key that has none; what is not named is null. None if nothing is."""
    if not values:
        return None
    given = dict(values)
    columns = [pa.array([given.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
