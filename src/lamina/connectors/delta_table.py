"""A Delta table as one process sees it: loaded, compared, and changed only as it was seen.

Every change asks for exactly the version after the one that was seen. deltalake would try again by
itself and take a stale view for a good one (a file that somebody else has compacted meanwhile could
be removed twice, and its rows doubled), so its retries are off: whoever loses looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from lamina.connectors.delta_errors import TableErrors, is_missing
from lamina.connectors.delta_mark import properties, read_position
from lamina.connectors.delta_place import Hook, Place
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.protocol.sinks import SinkPosition

CHECKPOINT_EVERY = 100
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
        self._durable = -1  # the version up to which the log is known to be on disk

    def look(self) -> DeltaTable | None:
        """The newest version; None if there is no table. What it shows is durable."""
        with self._errors.typed():
            self._hook("look")
            seen, self._table = self._table, None
            if seen is None:
                seen = self._load()
            else:
                seen.update_incremental()
        if seen is None:
            self._durable = -1
            return None
        self._make_durable(seen.version())
        self._table = seen
        return seen

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._place.uri, storage_options=self._place.options or None)
        except TableNotFoundError as error:
            if is_missing(error):
                return None
            raise

    def _make_durable(self, version: int) -> None:
        """Who wrote the log may have died before it was on disk, and others never sync it."""
        if version != self._durable:
            self._place.sync_log(range(version, max(self._durable, -1), -1))
            self._durable = version

    def position(self) -> SinkPosition:
        seen = self._table
        if seen is None:
            return SinkPosition(NOBODY, 0, None)
        return read_position(seen.transaction_version, seen.metadata().configuration)

    # changes: each is one version, or False: somebody else was first

    def create(
        self,
        schema: pa.Schema,
        partition_by: Sequence[str],
        *,
        pipeline: Owner,
        says: Mapping[str, int],
    ) -> bool:
        def create() -> None:
            DeltaTable.create(
                self._place.uri,
                Schema.from_arrow(schema),
                mode="error",
                partition_by=list(partition_by),
                configuration=properties(pipeline),
                storage_options=self._place.options or None,
                commit_properties=_says(says),
                post_commithook_properties=_NO_HOOKS,
                raise_if_key_not_exists=False,
            )

        return self._changed("create", create)

    def own(self, pipeline: Owner, says: Mapping[str, int]) -> bool:
        seen = self.seen
        return self._changed(
            "own",
            lambda: seen.alter.set_table_properties(
                properties(pipeline),
                raise_if_not_exists=False,
                commit_properties=_says(says),
                post_commithook_properties=_NO_HOOKS,
            ),
        )

    def add_columns(self, columns: pa.Schema, says: Mapping[str, int]) -> bool:
        seen = self.seen
        fields: list[Field] = list(Schema.from_arrow(columns).fields)
        return self._changed(
            "add columns",
            lambda: seen.alter.add_columns(
                fields, commit_properties=_says(says), post_commithook_properties=_NO_HOOKS
            ),
        )

    def commit(self, actions: Sequence[Action], says: Mapping[str, int]) -> bool:
        seen = self.seen
        return self._changed(
            "commit",
            lambda: seen.create_write_transaction(
                list(actions),
                "append",
                seen.schema(),
                partition_by=seen.metadata().partition_columns,
                commit_properties=_says(says),
                post_commithook_properties=_NO_HOOKS,
            ),
        )

    @property
    def seen(self) -> DeltaTable:
        assert self._table is not None, "a table is changed as it was seen"
        return self._table

    def _changed(self, what: str, change: Callable[[], object]) -> bool:
        """Whether *change* became the next version, and that is durable now."""
        before = -1 if self._table is None else self._table.version()
        with self._errors.typed():
            self._hook(what)
        try:
            change()
        except (CommitFailedError, DeltaError) as error:
            after = self.look()
            if after is None or after.version() == before:
                raise self._errors.of(error) from None
            return False
        except OSError as error:
            self._table = None
            raise self._errors.of(error) from None
        with self._errors.typed():
            self._hook(f"{what} done")
        self.look()
        return True

    # care for the log

    def keep_short(self) -> None:
        """A checkpoint of the log now and then, durable before old entries may go."""
        seen = self.seen
        settings = seen.metadata().configuration
        every = int(settings.get("delta.checkpointInterval") or CHECKPOINT_EVERY)
        if seen.version() % every:
            return
        with self._errors.typed():
            self._hook("checkpoint")
            seen.create_checkpoint()
            self._place.sync_checkpoint(seen.version())
            if settings.get("delta.enableExpiredLogCleanup", "true").lower() == "true":
                seen.cleanup_metadata()


def _says(says: Mapping[str, int]) -> CommitProperties:
    """Application transactions, at exactly the next version."""
    mark = [Transaction(name, number) for name, number in says.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=mark)
