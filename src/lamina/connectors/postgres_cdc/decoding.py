"""From batches of pgoutput messages to versions of rows: of one table, of whole transactions.

A batch may end anywhere in a transaction. What is known across batches is small: the table as the
last Relation message has it, whether the transaction that goes on is one to pass over, and how far
whole transactions go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamina.connectors.changes.folding import IS_NEW, NEVER, SEQUENCE
from lamina.connectors.changes.remembered import kept_name
from lamina.connectors.postgres_cdc.lsn import SeenTransactions, lsn_text
from lamina.connectors.postgres_cdc.messages import (
    NEW,
    OLD,
    UNCHANGED,
    Messages,
    Places,
    Relation,
    Values,
    read_relation,
    texts,
    truncated,
    tuples,
)
from lamina.connectors.postgres_cdc.table import ReadTable
from lamina.connectors.postgres_cdc.values import ReadColumn
from lamina.errors import Refused

Flags = npt.NDArray[np.bool_]
ANEW = 'Read the table anew: docs/connectors.md, "Reading anew"'


@dataclass(slots=True)
class Decoder:
    """Of one peek at a slot, from *start* on."""

    table: ReadTable
    columns: Sequence[ReadColumn]
    start: int
    seen: SeenTransactions | None = None
    remembered: frozenset[str] = frozenset()
    """The table's primary key, if old rows are remembered: then the log need not have them."""
    end: int = 0  # of the last whole transaction; 0: there was none
    cleared_at: int = NEVER  # the place of the last TRUNCATE in the order of versions
    _relation: Relation | None = None
    _passes_over: bool = False
    _messages: int = 0
    _open_at: int = 0  # the commit of the transaction that is being read

    def versions(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """The rows that its messages take back and put there, each with its place in the order."""
        messages = Messages.of(batch.column(0))
        kinds = messages.kinds
        counted = self._counted(messages, kinds)
        self._commit(messages, kinds)
        for start, end in _cut(np.flatnonzero(kinds == ord("R")), len(kinds)):
            if start < end and kinds[start] == ord("R"):
                self._meet(read_relation(messages.message(start)), counts=bool(counted[start]))
            self._clear(messages, kinds, counted, range(start, end))
            rows = self._rows(messages, kinds, counted, start, end)
            if len(rows):
                yield self._read(messages, kinds[rows], rows)
        self._messages += len(kinds)

    # transactions

    def _counted(self, messages: Messages, kinds: npt.NDArray[np.uint8]) -> Flags:
        """Which messages are of transactions that were not read before."""
        begins = np.flatnonzero(kinds == ord("B"))
        at = messages.starts[begins]
        commits = messages.numbers(at + 1, 8)
        known = commits < self.start
        if self.seen is not None:
            known |= self.seen.visible(messages.numbers(at + 17, 4))
        flags = np.concatenate([[self._passes_over], known])
        if len(begins):
            self._passes_over, self._open_at = bool(known[-1]), int(commits[-1])
        return np.asarray(~flags[np.cumsum(kinds == ord("B"))], np.bool_)

    def _commit(self, messages: Messages, kinds: npt.NDArray[np.uint8]) -> None:
        commits = np.flatnonzero(kinds == ord("C"))
        if len(commits):
            self.end = int(messages.numbers(messages.starts[commits[-1:]] + 10, 8)[0])

    # tables

    def _meet(self, relation: Relation, *, counts: bool) -> None:
        """A table that later rows are of: ours, as it was when they were written."""
        is_named = (relation.schema, relation.name) == (self.table.schema, self.table.name)
        if relation.oid == self.table.oid:
            self._relation = relation
        elif is_named and counts:
            raise self._refused("the table was dropped, and another one has its name", ANEW)

    def _check_relation(self, relation: Relation) -> None:
        """Of rows that count: those that a snapshot has may be of a table that looked otherwise."""
        keys = {column.name for column in relation.columns if column.is_key}
        by_key = relation.identity == "d" and keys == self.remembered
        if relation.identity != "f" and not by_key:
            how = f"ALTER TABLE {self.table.quoted} REPLICA IDENTITY FULL"
            message = "rows were changed without REPLICA IDENTITY FULL: their old values are lost"
            raise self._refused(message, f"{how}. {ANEW}")
        self.table.check_columns(relation)

    def _clear(
        self, messages: Messages, kinds: npt.NDArray[np.uint8], counted: Flags, numbers: range
    ) -> None:
        """TRUNCATE: all rows are gone; which they were, only a memory of them can tell."""
        part = slice(numbers.start, numbers.stop)
        for number in np.flatnonzero((kinds[part] == ord("T")) & counted[part]) + numbers.start:
            if self.table.oid not in truncated(messages.message(int(number))):
                continue
            self.cleared_at = (int(number) + self._messages) * 2
            if not self.remembered:
                message = (
                    "the table was truncated: the log does not say which rows were in it, so they "
                    "cannot be taken back"
                )
                raise self._refused(
                    message,
                    "Use DELETE FROM instead of TRUNCATE, or let the source remember the rows: "
                    f"remember_rows 'true'. {ANEW}",
                )

    # rows

    def _rows(
        self,
        messages: Messages,
        kinds: npt.NDArray[np.uint8],
        counted: Flags,
        start: int,
        end: int,
    ) -> Places:
        """The messages from *start* to *end* that are about rows of the table."""
        part = kinds[start:end]
        is_row = (part == ord("I")) | (part == ord("U")) | (part == ord("D"))
        rows = np.flatnonzero(is_row & counted[start:end]) + start
        ours = messages.numbers(messages.starts[rows] + 1, 4) == self.table.oid
        return np.asarray(rows[ours], np.int64)

    def _read(self, messages: Messages, kinds: npt.NDArray[np.uint8], rows: Places) -> pa.Table:
        assert self._relation is not None, "pgoutput says what a table is before it has rows"
        self._check_relation(self._relation)
        at = messages.starts[rows] + 5
        tags = messages.data[at]
        has_old, has_new = tags != NEW, kinds != ord("D")
        self._check_old(tags[kinds != ord("I")])
        width = len(self._relation.columns)
        old, behind = tuples(messages, at[has_old] + 1, width)
        at[has_old] = behind
        assert (messages.data[at[has_new]] == NEW).all(), "a new row follows the old one"
        new, _ = tuples(messages, at[has_new] + 1, width)
        updates = _Updates(has_new[has_old], has_old[has_new], tags[has_old] == OLD)
        sequence = (rows + self._messages) * 2
        read: dict[str, pa.Array] = {}
        kept: dict[str, pa.Array] = {}
        for column, number in zip(self.columns, self._places(), strict=True):
            filled = updates.filled(new[number], old[number])
            read[column.name] = column.read(
                texts(messages, [old[number], filled]), self.table.where
            )
            if self.remembered and self.table.spelled[column.name] not in self.remembered:
                flags = _flags(len(old[number].kinds), self._kept(filled, updates))
                kept[kept_name(column.name)] = flags
        read[SEQUENCE] = pa.array(np.concatenate([sequence[has_old], sequence[has_new] + 1]))
        read[IS_NEW] = _flags(int(has_old.sum()), np.ones(int(has_new.sum()), np.bool_))
        return pa.table({**read, **kept})

    def _kept(self, filled: Values, updates: _Updates) -> Flags:
        """Which new values the log leaves out; of a row whose key has changed, none can be."""
        kept = np.asarray(filled.kinds == UNCHANGED, np.bool_)
        if kept[updates.new].any():
            raise self._refused(
                "the primary key of a row was changed, and a long value that it kept is not in "
                "the log",
                f"ALTER TABLE {self.table.quoted} REPLICA IDENTITY FULL. {ANEW}",
            )
        return kept

    def _check_old(self, tags: npt.NDArray[np.uint8]) -> None:
        if not self.remembered and (tags != OLD).any():
            how = f"ALTER TABLE {self.table.quoted} REPLICA IDENTITY FULL"
            message = "a row was changed or deleted, and its old values are not in the log"
            raise self._refused(message, f"{how}. {ANEW}")

    def _places(self) -> list[int]:
        """The number of each column that is read, among those of the table."""
        assert self._relation is not None
        names = [column.name for column in self._relation.columns]
        return [names.index(self.table.spelled[column.name]) for column in self.columns]

    def _refused(self, message: str, advice: str) -> Refused:
        at = lsn_text(self._open_at)
        return Refused(
            f"the source {self.table.source!r}: {message} (transaction at {at})",
            where=self.table.where,
            advice=advice,
        )


@dataclass(frozen=True, slots=True)
class _Updates:
    """The messages with an old row and a new one: among old rows, and among new ones."""

    old: Flags
    new: Flags
    is_whole: Flags  # of old rows: all columns are there, not only the key

    def filled(self, new: Values, old: Values) -> Values:
        """New values; those that an update left alone and that are long are only in its old row."""
        filled = Values(new.kinds.copy(), new.starts.copy(), new.sizes.copy())
        old_rows = self.old & self.is_whole
        new_rows = self.new.copy()
        new_rows[self.new] = self.is_whole[self.old]
        known = new.only(new_rows).or_unchanged(old.only(old_rows))
        filled.kinds[new_rows] = known.kinds
        filled.starts[new_rows] = known.starts
        filled.sizes[new_rows] = known.sizes
        return filled


def _flags(old: int, new: Flags) -> pa.Array:
    return pa.array(np.concatenate([np.zeros(old, np.bool_), new]))


def _cut(places: Places, end: int) -> list[tuple[int, int]]:
    """The parts of a batch between these places, and before the first."""
    bounds = sorted({0, *places.tolist(), end})
    return list(pairwise(bounds)) if end else []
