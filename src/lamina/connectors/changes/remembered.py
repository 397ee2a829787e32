"""The rows of a table as the source remembers them: by primary key, as of the last COMMIT.

With them the log need not say what a row was before: TRUNCATE takes back all of them, an UPDATE
may leave out what it did not change, and a log that is lost is made good by comparing the table
with them (decision 0041).

What is remembered comes before everything that an epoch reads: its SEQUENCE is below 0. A value
that the log leaves out is marked in a column of its own, `kept_name`, until the rows of its key are
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lamina.connectors.changes.folding import IS_NEW, SEQUENCE
from lamina.connectors.changes.journal import Journal
from lamina.engine.model import MemoryChange
from lamina.engine.ports import CHANGE, DELETE, NEW, SourceMemory
from lamina.errors import Refused
from lamina.state.keys import equal
from lamina.state.schema import StateSchema

_BEFORE = -(1 << 62)
LEARNED_BYTES_MAX = 1 << 30
"""Of what one epoch changes: it is in memory, and a record of the log for each partition."""


def kept_name(column: str) -> str:
    """Of the flags that say which values the log has left out because they did not change."""
    return f"_lamina_kept_{column}"


def memory_schema(schema: pa.Schema, keys: Sequence[str]) -> StateSchema:
    by_name = {field.name: field for field in schema}
    rest = [field for field in schema if field.name not in keys]
    return StateSchema(
        pa.schema([by_name[key].with_nullable(False) for key in keys]), pa.schema(rest)
    )


class RememberedRows:
    """The memory of a source with these columns."""

    def __init__(
        self, memory: SourceMemory, schema: pa.Schema, keys: Sequence[str], where: str
    ) -> None:
        self._memory = memory
        self._schema = schema
        self._keys = list(keys)
        self._where = where
        self._old, self._new = _BEFORE, 0  # the next numbers

    def scan(self) -> Iterator[pa.Table]:
        """All rows there are, as entries to be folded: each was there before the epoch."""
        for batch in self._memory.scan():
            yield self.entries(pa.table(batch), is_new=False)

    def before(self, entries: pa.Table) -> pa.Table:
        """*entries*, and before them the rows that their keys had; with no value left out."""
        keys = entries.select(self._keys).group_by(self._keys, use_threads=False).aggregate([])
        (asked,) = keys.combine_chunks().to_batches() or [None]
        if asked is None:
            return entries
        looked = self._memory.find(asked)
        found = pa.array(looked.found)
        rows = pa.table(
            [*asked.filter(found).columns, *looked.values.filter(found).columns],
            [*asked.schema.names, *looked.values.schema.names],
        )
        old = self.entries(rows, is_new=False)
        return self.filled(pa.concat_tables([old, entries]))

    def filled(self, entries: pa.Table) -> pa.Table:
        """With the values that the log has left out: those of the row of the same key before."""
        columns = [
            name
            for name in self._schema.names
            if name not in self._keys and pc.any(entries[kept_name(name)]).as_py()
        ]
        if not columns:
            return entries
        order = pc.sort_indices(entries, [(key, "ascending") for key in [*self._keys, SEQUENCE]])
        entries = entries.take(order).combine_chunks()
        begins = self._begins(entries)
        for name in columns:
            kept = entries[kept_name(name)].to_numpy()
            places = np.maximum.accumulate(np.where(kept, -1, np.arange(len(kept))))
            if (places < begins).any():
                raise Refused(
                    f"the log leaves out a value of the column {name!r} that did not change, and "
                    "no row with its key is remembered",
                    where=self._where,
                )
            at = entries.schema.get_field_index(name)
            entries = entries.set_column(at, name, entries[name].take(pa.array(places)))
        return entries

    def _begins(self, entries: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Of sorted entries: the place of the first one with the same key, row by row."""
        count = entries.num_rows
        keys = [entries[key].combine_chunks() for key in self._keys]
        keys = [key.chunk(0) if isinstance(key, pa.ChunkedArray) else key for key in keys]
        same = equal([key.slice(1) for key in keys], [key.slice(0, count - 1) for key in keys])
        firsts = np.concatenate([[True], ~same])
        return np.asarray(np.maximum.accumulate(np.where(firsts, np.arange(count), 0)), np.int64)

    def entries(self, rows: pa.Table, *, is_new: bool) -> pa.Table:
        """Whole rows as entries to be folded: old ones are before everything that is read."""
        count = rows.num_rows
        first = self._new if is_new else self._old
        if is_new:
            self._new += count
        else:
            self._old += count
        columns = {name: rows[name] for name in self._schema.names}
        columns[SEQUENCE] = pa.array(np.arange(first, first + count))
        columns[IS_NEW] = pa.repeat(pa.scalar(is_new), count)
        for name in self._schema.names:
            if name not in self._keys:
                columns[kept_name(name)] = pa.repeat(pa.scalar(value=False), count)
        return pa.table(columns)

    def learned(self, journal: Journal) -> MemoryChange | None:
        """What the changes of an epoch make of it."""
        if not journal.rows:
            return None
        changed = pq.read_table(journal.path)
        if changed.nbytes > LEARNED_BYTES_MAX:
            raise Refused(
                f"one epoch changes {changed.nbytes >> 20} MiB of the rows that are remembered, "
                f"and at most {LEARNED_BYTES_MAX >> 20} MiB go into one",
                where=self._where,
                advice="Such a table is too large for remember_rows: leave it out, and read the "
                'table anew (docs/connectors.md, "Reading anew")',
            )
        kinds = changed[CHANGE]
        there = changed.filter(pc.is_in(kinds, pa.array(NEW))).drop_columns([CHANGE])
        gone = changed.filter(pc.equal(kinds, DELETE)).select(self._keys)
        return MemoryChange(_batch(there), _batch(gone))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    return batch
