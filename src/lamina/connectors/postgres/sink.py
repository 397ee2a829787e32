"""A PostgreSQL table as a sink. One transaction for each epoch:

lock the mark     SELECT ... FOR UPDATE: whose the table is, and where it stands
judge             lamina.protocol.sinks: now, done already, fenced, or another history
lock the table    nobody alters it from here on; its columns are compared with the rows
stage and write   COPY into a temporary table, then INSERT, or INSERT ... ON CONFLICT and DELETE
move the mark     in the same transaction
commit            if the answer is lost, the mark says what happened
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lamina.connectors.keyed import WriteMode, Writing
from lamina.connectors.postgres.fitting import (
    Fit,
    check_kind,
    check_rights,
    check_surroundings,
    create_table,
    fit,
    missing_table,
)
from lamina.connectors.postgres.kind import DELIVERY
from lamina.connectors.postgres.mark import NOWHERE, Marks
from lamina.connectors.postgres.names import quoted
from lamina.connectors.postgres.session import Hook, Server, Session
from lamina.connectors.postgres.target import (
    Surroundings,
    Target,
    lock_target,
    look_around,
)
from lamina.connectors.postgres.writing import EpochWriter, peeked
from lamina.connectors.staged import staged_batches, staged_rows, without_stream
from lamina.engine.ports import CHANGE, Change, Output, Publication
from lamina.errors import StoreUnavailable
from lamina.format.pipeline_record import Owner
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner


@dataclass(frozen=True, slots=True)
class Place:
    """The table, and whether it may be made."""

    schema: str
    table: str
    create: bool = True

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"


class PostgresSink:
    """Without *output* it can be claimed and moved, and gets no rows."""

    delivery = DELIVERY
    takes = frozenset(Change)

    def __init__(
        self,
        name: str,
        server: Server,
        place: Place,
        *,
        output: Output | None = None,
        writing: Writing | None = None,
        hook: Hook | None = None,
    ) -> None:
        assert (output is None) == (writing is None), "how a stream is written depends on it"
        self.name = name
        self._place = place
        self._output = output
        self._writing = writing
        where = f"the table {place.quoted} in {server.url}"
        self._session = Session(server, application=f"lamina {name}", where=where, hook=hook)
        self._marks = Marks(self._session, place.schema, place.table, name)
        self._has_marks = False
        self._is_checked = False

    def position(self) -> SinkPosition:
        """What the mark says; the first time, also whether the stream could be written."""
        with typed_errors(self._session.where):
            position = self._loaded()
            if not self._is_checked and self._output is not None:
                self._check(self._output, position)
                self._is_checked = True
        return position

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        self.position()
        with typed_errors(self._session.where), self._session.transaction():
            before = self._marks.lock() if self._has_marks else NOWHERE
            if before == NOWHERE:
                self._marks.make()
                before = self._marks.lock()
            check_owner(before, pipeline)
            check_fence(before, generation)
            if before.point is None:
                self._make_table()
            after = SinkPosition(pipeline or before.pipeline, generation, before.point)
            self._marks.claim(generation, after.pipeline)
            self._commit(after)
        self._has_marks = True
        return after

    def publish(self, publication: Publication) -> None:
        with typed_errors(self._session.where), self._session.transaction():
            before = self._marks.lock()
            if before == NOWHERE:
                raise self._marks.missing()
            if publication.judge(before) is Publish.DONE:
                self._session.roll_back()
                return
            if publication.rows:
                self._write(publication)
            after = publication.position
            self._marks.move(after, publication.rows)
            self._commit(after)

    def close(self) -> None:
        self._session.close()

    # steps

    def _loaded(self) -> SinkPosition:
        self._has_marks = self._has_marks or self._marks.exist()
        return self._marks.load() if self._has_marks else NOWHERE

    def _check(self, output: Output, position: SinkPosition) -> None:
        """Whatever can be known before anything is claimed."""
        around = self._around(was_there=position.point is not None)
        if around.target is not None:
            self._fit(around, around.target, output.schema)

    def _around(self, *, was_there: bool) -> Surroundings:
        """With the table, or with the right to make it."""
        place, where = self._place, self._session.where
        around = look_around(self._session, place.schema, place.table)
        check_surroundings(around, where, place.schema)
        if around.target is None:
            refused = missing_table(
                around, where, schema=place.schema, create=place.create, was_there=was_there
            )
            if refused is not None:
                raise refused
        return around

    def _fit(self, around: Surroundings, target: Target, schema: pa.Schema) -> Fit:
        assert self._writing is not None, "it was opened to write"
        deletes = self._output is not None and self._output.change is Change.CHANGES
        check_rights(around, self._writing, deletes=deletes, where=self._session.where)
        return fit(schema, self._writing, target, self._session.where)

    def _make_table(self) -> None:
        """Only as long as no epoch was in it: a table that was dropped is not made again."""
        if self._output is None or self._writing is None:
            return
        around = self._around(was_there=False)
        if around.target is not None:
            self._fit(around, around.target, self._output.schema)
            return
        schema, name = self._output.schema, self._place.quoted
        sql = create_table(schema, self._writing, name, around.version)
        self._session.run("create the table", sql)

    def _write(self, publication: Publication) -> None:
        if self._writing is None:
            raise without_stream(self.name)
        lock_target(self._session, self._place.schema, self._place.table)
        self._session.begin_to_write()
        if self._writing.mode is WriteMode.APPEND:
            schema, batches = peeked(staged_batches(publication))
            fitting = self._fit_now(schema)
            self._writer(fitting).append(schema, batches)
        else:
            rows = staged_rows(publication)
            names = [name for name in rows.column_names if name != CHANGE]
            fitting = self._fit_now(rows.select(names).schema)
            self._writer(fitting).upsert(rows, self._writing)
        if fitting.is_partitioned:
            # The lock keeps nobody from attaching a partition; those with rows are locked by now.
            _, target = self._locked()
            check_kind(target, self._session.where)

    def _fit_now(self, schema: pa.Schema) -> Fit:
        """By the columns that come: an epoch may have been decided before the stream changed."""
        around, target = self._locked()
        return self._fit(around, target, schema)

    def _locked(self) -> tuple[Surroundings, Target]:
        around = look_around(self._session, self._place.schema, self._place.table)
        assert around.target is not None, "it is locked"
        return around, around.target

    def _writer(self, fitting: Fit) -> EpochWriter:
        return EpochWriter(self._session, self._place.quoted, fitting)

    def _commit(self, after: SinkPosition) -> None:
        try:
            self._session.commit()
        except StoreUnavailable:
            # The answer is lost, and perhaps only that. What is not there yet is tried again, and
            # then waits for the mark until the server has made up its mind.
            if self._marks.load() != after:
                raise
