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

from lamina.connectors.changes.folding import IS_NEW, SEQUENCE
from lamina.connectors.postgres_cdc.lsn import SeenTransactions, lsn_text
from lamina.connectors.postgres_cdc.messages import (
    NEW,
    OLD,
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
    end: int = 0  # of the last whole transaction; 0: there was none
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
                self._meet(read_relation(messages.message(start)))
            self._check_truncated(messages, kinds, counted, range(start, end))
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

    def _meet(self, relation: Relation) -> None:
        """A table that later rows are of: ours, as it was when they were written."""
        is_named = (relation.schema, relation.name) == (self.table.schema, self.table.name)
        if relation.oid != self.table.oid:
            if is_named:
                raise self._refused("the table was dropped, and another one has its name", ANEW)
            return
        if relation.identity != "f":
            how = f"ALTER TABLE {self.table.quoted} REPLICA IDENTITY FULL"
            message = "rows were changed without REPLICA IDENTITY FULL: their old values are lost"
            raise self._refused(message, f"{how}. {ANEW}")
        self.table.check_columns(relation)
        self._relation = relation

    def _check_truncated(
        self, messages: Messages, kinds: npt.NDArray[np.uint8], counted: Flags, numbers: range
    ) -> None:
        part = slice(numbers.start, numbers.stop)
        for number in np.flatnonzero((kinds[part] == ord("T")) & counted[part]) + numbers.start:
            if self.table.oid in truncated(messages.message(int(number))):
                message = (
                    "the table was truncated: the log does not say which rows were in it, so they "
                    "cannot be taken back"
                )
                raise self._refused(message, f"Use DELETE FROM instead of TRUNCATE. {ANEW}")

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
        at = messages.starts[rows] + 5
        has_old, has_new = kinds != ord("I"), kinds != ord("D")
        self._check_old(messages.data[at[has_old]])
        width = len(self._relation.columns)
        old, behind = tuples(messages, at[has_old] + 1, width)
        at[has_old] = behind
        assert (messages.data[at[has_new]] == NEW).all(), "a new row follows the old one"
        new, _ = tuples(messages, at[has_new] + 1, width)
        updated_old, updated_new = has_new[has_old], has_old[has_new]
        sequence = (rows + self._messages) * 2
        columns = [
            column.read(
                texts(
                    messages,
                    [old[number], _filled(new[number], old[number], updated_new, updated_old)],
                ),
                self.table.where,
            )
            for column, number in zip(self.columns, self._places(), strict=True)
        ]
        numbers = np.concatenate([sequence[has_old], sequence[has_new] + 1])
        is_new = np.concatenate(
            [np.zeros(has_old.sum(), np.bool_), np.ones(has_new.sum(), np.bool_)]
        )
        names = [*(column.name for column in self.columns), SEQUENCE, IS_NEW]
        return pa.table([*columns, pa.array(numbers), pa.array(is_new)], names)

    def _check_old(self, tags: npt.NDArray[np.uint8]) -> None:
        if (tags != OLD).any():
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


def _filled(new: Values, old: Values, updated_new: Flags, updated_old: Flags) -> Values:
    """New values; those that an update left alone and that are long are only in its old row."""
    whole = Values(new.kinds.copy(), new.starts.copy(), new.sizes.copy())
    known = new.only(updated_new).or_unchanged(old.only(updated_old))
    whole.kinds[updated_new] = known.kinds
    whole.starts[updated_new] = known.starts
    whole.sizes[updated_new] = known.sizes
    return whole


def _cut(places: Places, end: int) -> list[tuple[int, int]]:
    """The parts of a batch between these places, and before the first."""
    bounds = sorted({0, *places.tolist(), end})
    return list(pairwise(bounds)) if end else []
