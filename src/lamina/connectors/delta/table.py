"""A Delta table as one process sees it: loaded, compared, and changed only as it was seen.

Every change asks for exactly the version after the one that was seen. deltalake would try again by
itself and take a stale view for a good one (a file that somebody else has compacted meanwhile could
be removed twice, and its rows doubled), so its retries are off: whoever loses looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from lamina.connectors.delta.active import check_entry, check_removes, log_paths, logged
from lamina.connectors.delta.errors import TableErrors, is_missing
from lamina.connectors.delta.mark import SINK, properties, read_position, transactions
from lamina.connectors.delta.place import Hook, Place
from lamina.errors import NotFound
from lamina.format.pipeline_record import NOBODY
from lamina.protocol.sinks import SinkPosition

CHECKPOINT_EVERY = 10
CLEANUP_EVERY = 10  # checkpoints: it lists the whole log
# What deltalake does after a commit by itself is not durable, and would make a commit look failed.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

Action = AddAction | RemoveAction


class SeenTable:
    """The last version that this process has looked at."""

    def __init__(self, place: Place, hook: Hook) -> None:
        self._place = place
        self._hook = hook
        self._errors = TableErrors(place.where, place.remote)
        self._table: DeltaTable | None = None
        self._entry: bytes | None = None  # of the log, for the version that was seen
        self._position: SinkPosition | None = None  # at that version, if it was asked for
        self._durable = -1  # the version up to which the log is known to be on disk
        self._checkpointed = 0  # the newest version with a checkpoint that is known of
        self._cleaned = 0  # the version at which old entries of the log went last

    @property
    def seen(self) -> DeltaTable:
        assert self._table is not None, "a table is changed as it was seen"
        return self._table

    def look(self) -> DeltaTable | None:
        """The newest version; None if there is no table. What it shows is durable."""
        before, self._table = self._table, None
        with self._errors.typed():
            self._hook("look")
            if before is not None and self._is_still_there(before):
                version = before.version()
                before.update_incremental()
                now: DeltaTable | None = before
            else:
                version, now = -1, self._load()
                self._checkpointed = self._cleaned = 0  # it may be another table
        if now is None:
            self._durable = -1
            return None
        if now.version() != version:
            self._position = None
            self._make_durable(now.version())
            self._entry = self._place.entry(now.version())
        self._table = now
        return now

    def _is_still_there(self, before: DeltaTable) -> bool:
        """Not if the table was dropped, or is another one now: deltalake would not notice."""
        return self._entry is not None and self._place.entry(before.version()) == self._entry

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._place.uri, storage_options=self._place.options or None)
        except TableNotFoundError as error:
            if is_missing(error):
                return None
            raise

    def _make_durable(self, version: int) -> None:
        """Who wrote the log may have died before it was on disk, and others never sync it."""
        self._place.sync_log(range(version, min(self._durable, version - 1), -1))
        self._durable = version

    def position(self) -> SinkPosition:
        """By the mark of the version that was seen; an object store is asked once for each."""
        if self._table is None:
            return SinkPosition(NOBODY, 0, None)
        if self._position is None:
            with self._errors.typed():
                settings = self._table.metadata().configuration
                self._position = read_position(self._table.transaction_version, settings)
        return self._position

    @property
    def sink(self) -> str:
        """Which sink the version that was seen belongs to; nothing if that is not said."""
        if self._table is None:
            return ""
        with self._errors.typed():
            return str(self._table.metadata().configuration.get(SINK) or "")

    # changes: each is one version and carries the mark, or False: somebody else was first

    def create(
        self,
        schema: pa.Schema,
        partition_by: Sequence[str],
        becomes: SinkPosition,
        *,
        sink: str,
    ) -> bool:
        def create() -> None:
            DeltaTable.create(
                self._place.uri,
                Schema.from_arrow(schema),
                mode="error",
                partition_by=list(partition_by),
                configuration=properties(becomes.pipeline, sink),
                storage_options=self._place.options or None,
                commit_properties=_says(becomes),
                post_commithook_properties=_NO_HOOKS,
                raise_if_key_not_exists=False,
            )

        return self._changed("create", create, becomes)

    def own(self, becomes: SinkPosition, *, sink: str) -> bool:
        seen = self.seen
        return self._changed(
            "own",
            lambda: seen.alter.set_table_properties(
                properties(becomes.pipeline, sink),
                raise_if_not_exists=False,
                commit_properties=_says(becomes),
                post_commithook_properties=_NO_HOOKS,
            ),
            becomes,
        )

    def add_columns(self, columns: pa.Schema, becomes: SinkPosition) -> bool:
        seen = self.seen
        fields: list[Field] = list(Schema.from_arrow(columns).fields)
        return self._changed(
            "add columns",
            lambda: seen.alter.add_columns(
                fields, commit_properties=_says(becomes), post_commithook_properties=_NO_HOOKS
            ),
            becomes,
        )

    def commit(self, actions: Sequence[Action], becomes: SinkPosition) -> bool:
        seen = self.seen
        version = seen.version()
        removed = [logged(each.path) for each in actions if isinstance(each, RemoveAction)]
        if removed:
            check_removes(removed, log_paths(seen), self._place.where)
        done = self._changed(
            "commit",
            lambda: seen.create_write_transaction(
                list(actions),
                "append",
                seen.schema(),
                partition_by=seen.metadata().partition_columns,
                commit_properties=_says(becomes),
                post_commithook_properties=_NO_HOOKS,
            ),
            becomes,
        )
        if done and removed:
            check_entry(self._place.entry(version + 1), removed, self._place.where)
        return done

    def _changed(self, what: str, change: Callable[[], object], becomes: SinkPosition) -> bool:
        """Whether *change* became the next version, and that is durable now."""
        before = -1 if self._table is None else self._table.version()
        with self._errors.typed():
            self._hook(what)
        try:
            change()
        except DeltaError as error:  # a conflict has several names
            after = self.look()
            if after is None or after.version() == before:
                raise self._errors.of(error) from None
            return False
        except OSError as error:
            self._table = None
            raise self._errors.of(error) from None
        with self._errors.typed():
            self._hook(f"{what} done")
        after = self.look()
        if after is None:
            raise self.gone()
        if after.version() == before + 1:
            self._position = becomes
        return True

    def gone(self) -> NotFound:
        advice = "Restore it from a copy, or start with a sink of another path"
        return NotFound("the table is gone", where=self._place.where, advice=advice)

    # care for the log

    def keep_short(self) -> None:
        """A checkpoint of the log now and then, durable before old entries may go."""
        settings, version = self.seen.metadata().configuration, self.seen.version()
        every = int(settings.get("delta.checkpointInterval") or CHECKPOINT_EVERY)
        if version - self._checkpointed < every:
            return
        self._checkpointed = self._place.last_checkpoint()  # others write some, too
        if version - self._checkpointed < every:
            return
        with self._errors.typed():
            self._hook("checkpoint")
            self.seen.create_checkpoint()
            self._place.sync_checkpoint(version)
            self._checkpointed = version
            may_go = settings.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
            if may_go and version - self._cleaned >= every * CLEANUP_EVERY:
                self.seen.cleanup_metadata()
                self._cleaned = version


def _says(becomes: SinkPosition) -> CommitProperties:
    """The whole mark, at exactly the next version."""
    mark = transactions(becomes.generation, becomes.point)
    listed = [Transaction(name, number) for name, number in mark.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=listed)
