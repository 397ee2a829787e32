"""Whatever happens to a partition, it is a dict: applied, deleted, expired, merged in any order."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.state import run_file, scanning
from lamina.state.changes import changes, key_columns, slots_of_keys
from lamina.state.merge import Merge
from lamina.state.partition import Applied, StatePartition
from lamina.state.run import TimeRange, run_of_batch
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange
from tests.support.examples import examples
from tests.support.states import Rows, in_files, rows_batch, scanned

Key = tuple[Any, ...]
Values = tuple[int | None, int | None, int | None]  # total, n, t
Op = tuple[Any, ...]

UTC = dt.UTC
SHORT = st.text("aé\U0001f600", max_size=2)
FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5, -2.25])
MOMENTS = st.integers(-2, 2).map(lambda n: dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(n))
PAIR = pa.struct([("a", pa.float64()), ("b", pa.string())])

KINDS: dict[str, list[tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    "int": [(pa.int64(), st.integers(-20, 20))],
    "text and int": [(pa.string(), SHORT), (pa.int32(), st.integers(0, 2))],
    "floats": [(pa.float64(), FLOATS), (pa.float32(), FLOATS)],
    "decimals": [
        (pa.decimal128(9, 2), st.integers(-3, 3).map(lambda n: Decimal(n) / 4)),
        (pa.decimal128(38, 4), st.sampled_from([Decimal(0), Decimal(10) ** 33, Decimal("-1.5")])),
    ],
    "moments": [(pa.timestamp("us", "UTC"), MOMENTS), (pa.date32(), MOMENTS.map(dt.datetime.date))],
    "struct": [(PAIR, st.fixed_dictionaries({"a": FLOATS, "b": st.none() | SHORT}))],
    "lists": [(pa.list_(pa.string()), st.lists(st.none() | SHORT, max_size=2))],
    "float lists": [(pa.list_(pa.float64()), st.lists(FLOATS, max_size=2))],
    "bytes and flag": [(pa.binary(), st.binary(max_size=1)), (pa.bool_(), st.booleans())],
}


def name(value: Any) -> Any:
    """What a key is called in the model: two keys are one if and only if their names are."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
    if isinstance(value, dict):
        return tuple(name(value[each]) for each in sorted(value))
    if isinstance(value, (list, tuple)):
        return tuple(name(each) for each in value)
    return value


@dataclass
class Shape:
    """Which columns and rules a state has."""

    kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]]
    time: str | None  # "key", "value" or None
    merged: bool
    shared_slots: int | None  # that many slots for all keys

    @property
    def schema(self) -> StateSchema:
        key = [(f"k{i}", kind) for i, (kind, _) in enumerate(self.kinds)]
        value = [("total", pa.int64()), ("n", pa.int64())]
        (key if self.time == "key" else value).append(("t", pa.int64()))
        return StateSchema(pa.schema(key), pa.schema(value), "t" if self.time else None)

    @property
    def merges(self) -> list[Merge]:
        if not self.merged:
            return []
        made = [Merge("sum", ("total",)), Merge("count", ("n",))]
        return made if self.time == "key" else [*made, Merge("max", ("t",))]


@dataclass
class Machine:
    """A partition and the dict that it should be."""

    shape: Shape
    universe: list[Key]
    folder: Path
    model: dict[Any, tuple[Key, Values]] = field(default_factory=dict)
    floor: int | None = None

    def __post_init__(self) -> None:
        self.schema = self.shape.schema
        self.state = StatePartition(self.schema, merges=self.shape.merges)
        self.write = in_files(self.folder, self.schema)
        asked = self._keys(self.universe)
        hashed = slots_of_keys(key_columns(self.schema, asked)).tolist()
        if self.shape.shared_slots is not None:
            hashed = [(n % self.shape.shared_slots) << 58 for n in range(len(self.universe))]
        self.slots = {name(key): slot for key, slot in zip(self.universe, hashed, strict=True)}

    # operations

    def apply(self, changed: Sequence[tuple[int, bool, Values]], looked: bool) -> None:
        """Puts and deletes of some keys; late ones are left out, as the caller must."""
        rows: dict[Any, tuple[Key, bool, Values]] = {}
        for index, gone, values in changed:
            key = self.universe[index % len(self.universe)]
            if not self._late(key, values, gone):
                rows[name(key)] = (key, gone, values)
        done = self.state.apply(self._batch(list(rows.values())), old_values=looked)
        if looked or self.shape.merged:
            self._check_applied(done, rows)
        for known, (key, gone, values) in rows.items():
            if gone:
                self.model.pop(known, None)
            else:
                self.model[known] = (key, self._merged(known, values))
        self.state = self.state.with_run(run_of_batch(done.run))

    def expire(self, before: int) -> None:
        if self.shape.time is None:
            return
        gone, run = self.state.expire(before)
        expected = {k for k, (key, v) in self.model.items() if self._before(key, v, before)}
        found = [self._name_of(row) for row in scanned(gone)]
        assert Counter(found) == Counter(expected)
        for known in expected:
            del self.model[known]
        self.floor = before if self.floor is None else max(self.floor, before)
        self.state = self.state.with_run(run_of_batch(run))

    def merge(self, first: int, last: int) -> None:
        if self.state.runs:
            first, last = sorted((first % len(self.state.runs), last % len(self.state.runs)))
            self.state = self.state.compact(range(first, last + 1), self.write)

    def merge_as_planned(self) -> None:
        while (chosen := self.state.plan_compaction(fan_out=3, runs_max=3)) is not None:
            self.state = self.state.compact(chosen, self.write)

    def reopen(self) -> None:
        """What another process knows: the runs."""
        self.state = StatePartition(self.schema, self.state.runs, merges=self.shape.merges)

    # checks

    def check_get(self) -> None:
        """Every key there is or could be: through `get`, or with shared slots through `apply`."""
        if self.shape.shared_slots is None:
            asked = [*self.universe, *self.universe]
            looked, keys = self.state.get(self._keys(asked)), [name(key) for key in asked]
        else:
            deletes = [
                (k, True, (None,) * 3) for k in self.universe if not self._late(k, None, True)
            ]
            done = self.state.apply(self._batch(deletes))
            looked, keys = done.old, [self._name_of(row) for row in done.keys.to_pylist()]
        for known, found, row in zip(
            keys, looked.found.tolist(), looked.values.to_pylist(), strict=True
        ):
            assert found == (known in self.model), known
            assert self._values(row) == self._expected(known)

    def check_scan(self, first: int, last: int) -> None:
        slots = sorted({0, 2**64 - 1, *self.slots.values()})
        low, high = sorted((slots[first % len(slots)], slots[last % len(slots)]))
        rows = scanned(self.state.scan(SlotRange(low, high)))
        found = [self._name_of(row) for row in rows]
        places = [self.slots[known] for known in found]
        assert places == sorted(places)
        expected = {known for known in self.model if low <= self.slots[known] <= high}
        assert len(found) == len(set(found))
        assert set(found) == expected
        for known, row in zip(found, rows, strict=True):
            assert self._values(row) == self._expected(known)

    def check_times(self, since: int, before: int) -> None:
        if self.shape.time is not None:
            rows = scanned(self.state.scan(times=TimeRange(since, before)))
            expected = {
                known
                for known, (key, values) in self.model.items()
                if self._before(key, values, before) and not self._before(key, values, since)
            }
            assert {self._name_of(row) for row in rows} == expected

    # steps

    def _keys(self, keys: Sequence[Key]) -> pa.RecordBatch:
        names = self.schema.key.names
        return rows_batch(self.schema, [dict(zip(names, key, strict=True)) for key in keys])

    def _batch(self, rows: Sequence[tuple[Key, bool, Values]]) -> pa.RecordBatch:
        names = [*self.schema.key.names, "total", "n"]
        if self.shape.time != "key":
            names.append("t")
        given_rows: Rows = [
            dict(zip(names, (*key, *values), strict=False)) for key, _, values in rows
        ]
        slots = None
        if self.shape.shared_slots is not None:
            slots = np.array([self.slots[name(key)] for key, _, _ in rows], np.uint64)
        deletes = np.array([gone for _, gone, _ in rows], np.bool_)
        return changes(
            self.schema, rows_batch(self.schema, given_rows), deletes=deletes, slots=slots
        )

    def _check_applied(self, done: Applied, rows: dict[Any, tuple[Key, bool, Values]]) -> None:
        keys = [self._name_of(row) for row in done.keys.to_pylist()]
        assert Counter(keys) == Counter(rows.keys())
        olds, news = done.old.values.to_pylist(), done.new.values.to_pylist()
        for i, known in enumerate(keys):
            _, gone, values = rows[known]
            assert bool(done.old.found[i]) == (known in self.model)
            assert self._values(olds[i]) == self._expected(known)
            assert bool(done.new.found[i]) != gone
            new = (None, None, None) if gone else self._merged(known, values)
            assert self._values(news[i]) == self._shown(new)

    def _merged(self, known: Any, new: Values) -> Values:
        if not self.shape.merged:
            return new
        old: Values = self.model[known][1] if known in self.model else (None, None, None)
        totals = [each for each in (old[0], new[0]) if each is not None]
        times = [each for each in (old[2], new[2]) if each is not None]
        return (
            sum(totals) if totals else None,
            (old[1] or 0) + (new[1] or 0),
            max(times, default=None),
        )

    def _late(self, key: Key, values: Values | None, gone: bool) -> bool:
        if self.floor is None or (gone and self.shape.time == "value"):
            return False
        return self._before(key, values or (None, None, None), self.floor)

    def _before(self, key: Key, values: Values, time: int) -> bool:
        own = key[-1] if self.shape.time == "key" else values[2]
        return own is not None and own < time

    def _name_of(self, row: dict[str, Any]) -> Any:
        return name(tuple(row[column] for column in self.schema.key.names))

    def _values(self, row: dict[str, Any]) -> tuple[int | None, ...]:
        return tuple(row[column] for column in self.schema.value.names)

    def _shown(self, values: Values) -> tuple[int | None, ...]:
        return values[:2] if self.shape.time == "key" else values

    def _expected(self, known: Any) -> tuple[int | None, ...]:
        return self._shown(self.model[known][1] if known in self.model else (None, None, None))


TIMES = st.none() | st.integers(0, 30)
NUMBERS = st.none() | st.integers(-100, 100)
VALUES = st.tuples(NUMBERS, NUMBERS, TIMES)
PLACES = st.integers(0, 40)
CHANGES = st.lists(st.tuples(PLACES, st.booleans(), VALUES), max_size=12)
OPS: st.SearchStrategy[Op] = st.one_of(
    st.tuples(st.just("apply"), CHANGES, st.booleans()),
    st.tuples(st.just("apply"), CHANGES, st.booleans()),
    st.tuples(st.just("expire"), st.integers(0, 30)),
    st.tuples(st.just("merge"), PLACES, PLACES),
    st.tuples(st.just("merge_as_planned")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("check_get")),
    st.tuples(st.just("check_scan"), PLACES, PLACES),
    st.tuples(st.just("check_times"), st.integers(0, 30), st.integers(0, 30)),
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    return Shape(
        KINDS[draw(st.sampled_from(sorted(KINDS)))],
        draw(st.sampled_from([None, "key", "value"])),
        draw(st.booleans()),
        draw(st.sampled_from([None, None, 1, 3])),
    )


@st.composite
def universes(draw: st.DrawFn, shape: Shape) -> list[Key]:
    columns = [st.none() | values for _, values in shape.kinds]
    if shape.time == "key":
        columns.append(TIMES)
    found: list[Key] = draw(st.lists(st.tuples(*columns), min_size=1, max_size=16, unique_by=name))
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return (tmp_path_factory.mktemp("runs") for _ in iter(int, 1))


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data(), block_rows=st.sampled_from([1, 3, 7]), ops=st.lists(OPS, max_size=25))
def test_a_partition_is_a_dict(
    folders: Iterator[Path], data: st.DataObject, block_rows: int, ops: list[Op]
) -> None:
    shape = data.draw(shapes())
    machine = Machine(shape, data.draw(universes(shape)), next(folders))
    with pytest.MonkeyPatch.context() as patch:
        for module in (run_file, scanning):
            patch.setattr(module, "BLOCK_ROWS", block_rows)
        for operation, *arguments in ops:
            getattr(machine, operation)(*arguments)
        machine.check_get()
        machine.check_scan(0, -1)
        for since in (0, 10, 20):
            machine.check_times(since, since + 10)
        machine.merge(0, -1)
        machine.reopen()
        machine.check_get()
        machine.check_scan(0, -1)
        assert len(machine.state.runs) <= 1
        assert sum(run.rows for run in machine.state.runs) == len(machine.model), "no deletes left"
