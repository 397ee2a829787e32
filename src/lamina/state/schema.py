"""What the state of an operator looks like: key columns, value columns, and a column of time.

As Arrow, a run has these columns, in this order:

_slot   uint64   where the row stands (vnodes.py)
_op     uint8    0: these are the key's values; 1: the key is gone
...              the key columns
...              the value columns, null where the key is gone

The schema's metadata says how many of them are the key: `lamina.keys`; which is the time, if one
is: `lamina.time`; how new values are merged with old ones: `lamina.merges`; which definition they
were computed by: `lamina.definition`; what each column holds: `lamina.meanings`; whether slots are
in the order of time, or by the first columns of the key: `lamina.slots`; and below which time
everything is gone: `lamina.floor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import Corrupt, StateChanged, UsageError
from lamina.format.canonical import decode, encode
from lamina.state.hashing import check_key_type
from lamina.state.merge import Merge
from lamina.state.stored_types import stored_schema
from lamina.state.vnodes import Mask, Rows

SLOT, OP = "_slot", "_op"
PUT, DELETE = 0, 1
SYSTEM_COLUMNS = 2
KEYS_META, TIME_META, FLOOR_META = b"lamina.keys", b"lamina.time", b"lamina.floor"
MERGES_META, DEFINITION_META = b"lamina.merges", b"lamina.definition"
MEANINGS_META, SLOTS_META = b"lamina.meanings", b"lamina.slots"
BY_TIME = b"time"
BY_GROUP = b"first "


@dataclass(frozen=True)
class StateSchema:
    """The columns of one operator's state, in the one spelling that state has of each type."""

    key: pa.Schema
    value: pa.Schema
    time: str | None = None  # rows are expired by it
    merges: tuple[Merge, ...] = ()  # without any, a new value takes the place of the old one
    definition: str | None = None  # a digest of what computes the values, if anybody says
    meanings: tuple[str, ...] = ()  # what each column holds, keys first, if anybody says
    by_time: bool = False
    """Rows live where all keys but the time say, and stand there in the order of time: timers."""
    group: int = 0
    """Rows are found by this many columns, the first of the key; 0: by all of them."""

    def __post_init__(self) -> None:
        for name in ("key", "value"):
            object.__setattr__(self, name, stored_schema(getattr(self, name)))
        names = [*self.key.names, *self.value.names]
        if not self.key.names:
            raise UsageError("state has at least one key column")
        for name in names:
            if names.count(name) > 1 or name in (SLOT, OP):
                raise UsageError(f"the column name {name!r} is taken")
        if self.meanings and len(self.meanings) != len(names):
            raise UsageError(f"{len(names)} columns have {len(self.meanings)} meanings")
        for field in self.key:
            check_key_type(field.type, field.name)
        for field in self.value:
            if _has_dictionary(field.type):
                raise UsageError(f"the value column {field.name!r} is dictionary-encoded")
        if self.time is not None:
            self._check_time(self.time)
        if self.by_time and (self.time not in self.key.names or len(self.key) < 2):
            raise UsageError("state in the order of time has the time and another column as keys")
        if self.group and (self.by_time or not 0 < self.group < len(self.key)):
            raise UsageError(f"rows cannot be found by {self.group} of {len(self.key)} key columns")

    @cached_property
    def run(self) -> pa.Schema:
        """The schema of a run, without a floor."""
        return self.run_with(None)

    def run_with(self, floor: int | None) -> pa.Schema:
        """The schema of a run that says that everything before *floor* is gone."""
        meta = {KEYS_META: str(len(self.key)).encode()}
        if self.time is not None:
            meta[TIME_META] = self.time.encode()
        if self.merges:
            meta[MERGES_META] = encode([merge.to_json() for merge in self.merges])
        if self.definition is not None:
            meta[DEFINITION_META] = self.definition.encode()
        if self.meanings:
            meta[MEANINGS_META] = encode(list(self.meanings))
        if self.by_time:
            meta[SLOTS_META] = BY_TIME
        if self.group:
            meta[SLOTS_META] = BY_GROUP + str(self.group).encode()
        if floor is not None:
            meta[FLOOR_META] = str(floor).encode()
        return pa.schema(
            [
                pa.field(SLOT, pa.uint64(), nullable=False),
                pa.field(OP, pa.uint8(), nullable=False),
                *(field.remove_metadata() for field in self.key),
                *(pa.field(field.name, field.type) for field in self.value),
            ],
            meta,
        )

    def called(self, name: str) -> str:
        """What a column holds, if that is known, or its name: for people."""
        place = [*self.key.names, *self.value.names].index(name)
        return self.meanings[place] if self.meanings else name

    @cached_property
    def row(self) -> pa.Schema:
        """Key and value columns: what people see."""
        return pa.schema([*self.key, *self.value])

    def keys_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a run's batch."""
        columns: list[pa.Array] = batch.columns[SYSTEM_COLUMNS : SYSTEM_COLUMNS + len(self.key)]
        return columns

    def values_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The value columns of a run's batch; any may be null, where its key is gone."""
        columns = batch.columns[SYSTEM_COLUMNS + len(self.key) :]
        nullable = pa.schema([field.with_nullable(True) for field in self.value])
        return _batch(columns, nullable, batch.num_rows)

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Key and value columns of a run's batch."""
        return _batch(batch.columns[SYSTEM_COLUMNS:], self.row, batch.num_rows)

    def times_of(self, batch: pa.RecordBatch) -> Rows:
        """The time column of a run's batch as integers of its own unit; nulls never expire."""
        assert self.time is not None
        return time_values(batch.column(self.time))

    def adapt(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of an older, narrower schema as one of this schema."""
        if batch.schema.equals(self.run):
            return batch
        columns = [
            _widened(batch, field) if field.name in batch.schema.names else _nulls(batch, field)
            for field in self.run
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.run)

    def _check_time(self, name: str) -> None:
        if name not in self.row.names:
            raise UsageError(f"there is no column {name!r} to expire rows by")
        kind = self.row.field(name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or kind == pa.int64()):
            raise UsageError(f"rows cannot be expired by {name!r}: {kind} is not a time")


def schema_of_run(schema: pa.Schema, where: str = "") -> StateSchema:
    """What a run's own schema says; Corrupt if it is none of a run."""
    meta = schema.metadata or {}
    keys = meta.get(KEYS_META, b"")
    if not keys.isdigit() or schema.names[:SYSTEM_COLUMNS] != [SLOT, OP]:
        raise Corrupt("this Arrow stream is not a run of keyed state", where=where)
    end = SYSTEM_COLUMNS + int(keys)
    time = meta[TIME_META].decode() if TIME_META in meta else None
    fields = list(schema)
    return StateSchema(
        pa.schema(fields[SYSTEM_COLUMNS:end]),
        pa.schema(fields[end:]),
        time,
        _merges(meta, where),
        meta[DEFINITION_META].decode() if DEFINITION_META in meta else None,
        _meanings(meta, len(fields) - SYSTEM_COLUMNS, where),
        *_slots(meta, int(keys), where),
    )


def _merges(meta: Mapping[bytes, bytes], where: str) -> tuple[Merge, ...]:
    if MERGES_META not in meta:
        return ()
    listed = decode(meta[MERGES_META], where)
    if not isinstance(listed, list):
        raise Corrupt("the merges of a run are not a list", where=where)
    return tuple(Merge.from_json(each, where) for each in listed)


def _meanings(meta: Mapping[bytes, bytes], columns: int, where: str) -> tuple[str, ...]:
    if MEANINGS_META not in meta:
        return ()
    listed = decode(meta[MEANINGS_META], where)
    if not isinstance(listed, list) or len(listed) != columns:
        raise Corrupt("the meanings of a run are not a list with one for each column", where=where)
    return tuple(str(each) for each in listed)


def _slots(meta: Mapping[bytes, bytes], keys: int, where: str) -> tuple[bool, int]:
    """Whether slots are in the order of time; by how many columns rows are found, if not by all."""
    said = meta.get(SLOTS_META, b"")
    if said in (b"", BY_TIME):
        return said == BY_TIME, 0
    number = said.removeprefix(BY_GROUP)
    if number == said or not number.isdigit() or not 0 < int(number) < keys:
        raise Corrupt(f"the slots of a run are in an unknown order: {said!r}", where=where)
    return False, int(number)


def check_merges_kept(stored: StateSchema, new: StateSchema, what: str) -> None:
    """R9: other merge functions give old values another meaning; new columns need new ones."""
    merges = new.merges
    added = [merge for merge in merges if merge not in stored.merges]
    fresh = all(column not in stored.value.names for each in added for column in each.columns)
    if fresh and all(merge in merges for merge in stored.merges):
        return
    was, now = (_merges_text(schema) for schema in (stored, new))
    raise StateChanged(
        f"{what}: its values are merged by {now}, and by {was} in its state",
        advice="Use the merges it was written with, or start new state",
    )


def _merges_text(schema: StateSchema) -> str:
    if schema.meanings:
        return ", ".join(schema.called(merge.columns[0]) for merge in schema.merges)
    return ", ".join(f"{m.function}({', '.join(m.columns)})" for m in schema.merges) or "none"


def check_definition_kept(stored: StateSchema, definition: str | None, what: str) -> None:
    """State of the same columns may still mean another thing: a person decides."""
    if None not in (stored.definition, definition) and stored.definition != definition:
        raise StateChanged(
            f"{what}: its SELECT, or what it reads, has changed since its state was computed",
            advice="If the state still means the same, --reuse-state NAME keeps it. Otherwise give "
            "the stream another name: it starts empty, and the old state is kept aside",
        )


def floor_of_run(schema: pa.Schema) -> int | None:
    """The time before which a run says that everything is gone."""
    floor = (schema.metadata or {}).get(FLOOR_META)
    return None if floor is None else int(floor)


def check_successor(old: StateSchema, new: StateSchema, what: str) -> None:
    """R9: whether state of *old* can be read as *new*; the error names the column."""
    if old == new:
        return
    _check_keys(old, new, what)
    if old.group != new.group:
        raise StateChanged(f"{what}: rows are found by {new.group} columns, not by {old.group}")
    if old.time != new.time or old.by_time != new.by_time:
        raise StateChanged(f"{what}: rows expire by {new.time!r}, and by {old.time!r} in its state")
    for field in old.value:
        if field.name not in new.value.names:
            raise StateChanged(f"{what}: its state has a value column {old.called(field.name)!r}")
        kind = new.value.field(field.name).type
        if not _widens(field.type, kind):
            raise StateChanged(
                f"{what}: the value column {old.called(field.name)!r} is {kind}, and {field.type} "
                "in its state",
                advice="A wider type of the same family is taken; anything else needs new state",
            )
    for field in new.value:
        if field.name not in old.value.names and not field.nullable:
            name = new.called(field.name)
            raise StateChanged(f"{what}: the new value column {name!r} cannot be null")


def _check_keys(old: StateSchema, new: StateSchema, what: str) -> None:
    if old.key.names != new.key.names:
        was, now = (", ".join(map(each.called, each.key.names)) for each in (old, new))
        raise StateChanged(f"{what}: the key is ({now}), and ({was}) in its state")
    for before, after in zip(old.key, new.key, strict=True):
        if before.type != after.type:
            raise StateChanged(
                f"{what}: the key column {new.called(after.name)!r} is {after.type}, and "
                f"{before.type} in its state",
                advice="A key type cannot change: its hash decides where keys are stored. Give "
                "the column its old type, or start new state",
            )


def time_values(column: pa.Array) -> Rows:
    """A time column as integers of its own unit; null becomes the far future."""
    far = np.iinfo(np.int64).max
    integers = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    filled = integers.cast(pa.int64()).fill_null(far)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def null_where(columns: Sequence[pa.Array], mask: Mask) -> list[pa.Array]:
    """The columns with nulls where the mask is true: values of keys that are gone."""
    chosen = pa.array(mask)
    return [pc.if_else(chosen, pa.scalar(None, column.type), column) for column in columns]


def _has_dictionary(kind: pa.DataType) -> bool:
    """Also in a struct or list: its blocks could not be read one by one."""
    if pa.types.is_nested(kind):
        return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_dictionary(kind))


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of *old* is a value of *new*, and means the same."""
    if old == new:
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    families: Sequence[Sequence[pa.DataType]] = (
        (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
    )
    return any(
        old in family and new in family and family.index(old) < family.index(new)
        for family in families
    )


def _widened(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _nulls(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    return pa.nulls(batch.num_rows, field.type)


def _batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
