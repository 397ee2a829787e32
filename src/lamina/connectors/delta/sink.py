"""A Delta Lake table as a sink: an epoch is one version of the table, and carries the mark.

    look      the newest version; on a file system its log entry is made durable first
    judge     by the mark of exactly this version
    files     the rows of the epoch below the table, durable, named by no version yet
    commit    the next version: files and mark. Whoever was first has it; the other looks again

A claim is a version without files. A process that was paused holds an older version, and its commit
asks for a number that is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.connectors.delta.errors import TableErrors
from lamina.connectors.delta.kind import DELIVERY
from lamina.connectors.delta.mark import check_sink
from lamina.connectors.delta.place import Hook, LocalPlace, Place, RemotePlace
from lamina.connectors.delta.rows import NewFiles, null_refused, replace_rows
from lamina.connectors.delta.schema import TableColumns, Wanted, partition_columns, table_schema
from lamina.connectors.delta.small import merge_small
from lamina.connectors.delta.stats import StatsWanted
from lamina.connectors.delta.table import SeenTable
from lamina.connectors.keyed import WriteMode, last_of_each_key, writing_of
from lamina.connectors.kinds import SinkContext
from lamina.connectors.options import bad_option
from lamina.connectors.staged import staged_rows, without_stream
from lamina.connectors.store_options import store_options
from lamina.engine.ports import Change, Publication, Sink
from lamina.errors import StoreUnavailable
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner

TRIES = 100


class DeltaSink:
    """One table. Without *wanted* it can be claimed and moved, and gets no rows."""

    delivery = DELIVERY
    takes = frozenset(Change)

    def __init__(
        self,
        name: str,
        place: Place,
        wanted: Wanted | None,
        *,
        hook: Hook = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._place = place
        self._wanted = wanted
        self._clock = clock or SystemClock()
        self._tag = new_writer_id(self._clock)[:12]
        self._table = SeenTable(place, hook)
        self._errors = TableErrors(place.where, place.remote)
        self._claimed = False  # this process has seen the table, or made it
        self._attempts = 0

    def position(self) -> SinkPosition:
        seen = self._table.look()
        if seen is not None and self._wanted is not None:
            self._wanted.check(seen, self._place.where)
        return self._table.position()

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        for _ in range(TRIES):
            seen = self._table.look()
            position = self._table.position()
            check_sink(self._table.sink, self.name, self._place.where)
            check_owner(position, pipeline)
            check_fence(position, generation)
            claim = SinkPosition(pipeline, generation, position.point)
            is_ours = position == claim and self._table.sink == self.name
            if seen is not None and is_ours and not self._missing(seen):
                self._claimed = True
                return position
            self._place.prepare()
            self._claim(seen, position, claim)
        raise self._crowded()

    def publish(self, publication: Publication) -> None:
        for _ in range(TRIES):
            seen = self._table.look()
            position = self._table.position()
            check_sink(self._table.sink, self.name, self._place.where)
            if publication.judge(position) is Publish.DONE:
                return
            if seen is None and self._claimed:
                raise self._table.gone()
            if seen is None or position.pipeline != publication.pipeline:
                self.fence(publication.generation, publication.pipeline)
            elif self._publish(seen, publication):
                self._compact(publication.point)
                self._table.keep_short()
                return
        raise self._crowded()

    def close(self) -> None:
        """Nothing is held open."""

    # claim: one missing thing after the other, each a version of the table

    def _claim(self, seen: DeltaTable | None, position: SinkPosition, claim: SinkPosition) -> None:
        is_known = seen is not None and position.pipeline == claim.pipeline
        if self._wanted is None and is_known and self._table.sink == self.name:
            self._table.commit((), claim)
            return
        wanted = self._writer()
        if seen is None:
            made = self._table.create(wanted.schema, wanted.partition_by, claim, sink=self.name)
        elif position.pipeline != claim.pipeline or self._table.sink != self.name:
            wanted.check(seen, self._place.where)
            made = self._table.own(claim, sink=self.name)
        elif missing := self._missing(seen):
            columns = pa.schema([wanted.schema.field(name) for name in missing])
            made = self._table.add_columns(columns, claim)
        else:
            made = self._table.commit((), claim)
        self._claimed = self._claimed or made

    def _missing(self, seen: DeltaTable) -> list[str]:
        if self._wanted is None:
            return []
        return self._wanted.missing(self._wanted.check(seen, self._place.where))

    # publish

    def _publish(self, seen: DeltaTable, publication: Publication) -> bool:
        """False if somebody else made a version meanwhile: then everything is looked at again."""
        if self._wanted is None and not publication.rows:
            return self._table.commit((), publication.position)
        wanted = self._writer()
        columns = wanted.check(seen, self._place.where)
        wanted.check_none_missing(columns, self._place.where)
        if wanted.writing.mode is WriteMode.APPEND and not columns.partition_by:
            return self._table.commit(self._staged(publication, columns), publication.position)
        files = self._new_files(publication.point, columns)
        rows = staged_rows(publication)
        removed: list[RemoveAction] = []
        with self._errors.typed(), files:
            if wanted.writing.mode is WriteMode.APPEND:
                files.write(rows)
            elif rows.num_rows:
                kept = last_of_each_key(rows, wanted.writing)
                removed = replace_rows(seen, kept, wanted.writing.keys, files)
        return self._table.commit([*removed, *files.adds], publication.position)

    def _staged(self, publication: Publication, columns: TableColumns) -> Sequence[AddAction]:
        """Staged files as they are, under names that follow from what they hold."""
        adds = []
        required = tuple(field.name for field in columns.schema if not field.nullable)
        ours = self._writer().schema.names
        absent = tuple(name for name in columns.schema.names if name not in ours)
        wanted = StatsWanted(absent, required)
        for number, file in enumerate(publication.files):
            name = f"{_stem(publication.point)}-{number:05d}.parquet"
            stats = self._place.put_staged(name, publication, file, wanted=wanted)
            for column, nulls in stats.nulls.items():
                if nulls and column in required:
                    raise null_refused(column, self._place.where)
            now = self._clock.now_ms()
            adds.append(AddAction(name, file.size, {}, now, True, stats.text))
        if adds:
            self._place.settle()
        return adds

    def _new_files(
        self, point: Point, columns: TableColumns, *, data_change: bool = True
    ) -> NewFiles:
        """Names of their own for each attempt: what is in them depends on what was seen."""
        self._attempts += 1
        stem = f"{_stem(point)}-{self._tag}-{self._attempts}"
        name = f"{stem}-{{:05d}}.parquet".format
        return NewFiles(self._place, columns, self._clock, name, data_change)

    def _compact(self, point: Point) -> None:
        """Small files into fewer ones, if it is time; if somebody else writes, the next time."""
        wanted = self._wanted
        if wanted is None or not wanted.compact_every or point.epoch % wanted.compact_every:
            return
        seen = self._table.seen
        files = self._new_files(point, wanted.check(seen, self._place.where), data_change=False)
        with self._errors.typed(), files:
            removed = merge_small(seen, files)
        if removed:
            self._table.commit([*removed, *files.adds], self._table.position())

    def _writer(self) -> Wanted:
        if self._wanted is None:
            raise without_stream(self.name)
        return self._wanted

    def _crowded(self) -> StoreUnavailable:
        message = f"other writers were faster {TRIES} times"
        advice = "Let them write less often, or less at a time"
        return StoreUnavailable(message, where=self._place.where, advice=advice)


def _stem(point: Point) -> str:
    return f"epoch-{point.epoch:020d}-{point.digest[:16]}"


def open_delta(context: SinkContext, hook: Hook = lambda _: None) -> Sink:
    given, at = context.given, context.given.place("path")
    place: Place
    if isinstance(at, Path):
        place = LocalPlace(at, hook)
    else:
        place = RemotePlace(at, hook, store_options(given))
    return DeltaSink(context.sink.name, place, _wanted(context), hook=hook)


def _wanted(context: SinkContext) -> Wanted | None:
    output, given = context.output, context.given
    if output is None:
        return None
    schema = table_schema(context, output)
    writing = writing_of(context, output)
    for key in writing.keys:
        kind = schema.field(key).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            message = f"has the key {key!r}, which is {kind}"
            advice = "Use keys that are texts, numbers without a fraction, dates or times"
            raise bad_option(context.sink, message, given.file, advice)
    every = given.number("compact") if "compact" in given.declared else 0
    partition_by = partition_columns(context, schema)
    return Wanted(schema, partition_by, writing, given.switch("merge_schema"), every)
