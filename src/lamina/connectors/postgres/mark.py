"""The mark of a sink: one row of the table `lamina_sinks`, beside the table it is about.

It is locked first and changed last in every transaction that writes. So of two processes one waits
for the other, and then sees what that has done.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lamina.connectors.postgres.kind import MARKS
from lamina.connectors.postgres.names import quoted
from lamina.connectors.postgres.session import Session
from lamina.errors import NotFound, Refused
from lamina.format.commit import Point
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.ids import fold
from lamina.protocol.sinks import SinkPosition

NOWHERE = SinkPosition(NOBODY, 0, None)

# Not to_regclass: that may answer from a cache which an advisory lock does not bring up to date.
_EXIST = """
SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = $1 AND c.relname = $2) AS there
"""
_COLUMNS = "sink, pipeline_id, pipeline, generation, epoch, digest"
_CREATE = """
CREATE TABLE {marks} (
    table_name  text PRIMARY KEY,
    sink        text NOT NULL,
    pipeline_id text NOT NULL,
    pipeline    text NOT NULL,
    generation  bigint NOT NULL,
    epoch       bigint,
    digest      text,
    rows        bigint,
    changed     timestamptz NOT NULL DEFAULT now()
)
"""


@dataclass(frozen=True, slots=True)
class Marks:
    """The mark of one target table, for the sink *sink*."""

    session: Session
    schema: str
    table: str
    sink: str

    @property
    def _marks(self) -> str:
        return f"{quoted(self.schema)}.{quoted(MARKS)}"

    def exist(self) -> bool:
        """Whether anybody has claimed a table of this schema."""
        (found,) = self.session.look("look for the marks", _EXIST, self.schema, MARKS)
        return bool(found["there"])

    def load(self) -> SinkPosition:
        """As it is committed."""
        sql = f"SELECT {_COLUMNS} FROM {self._marks} WHERE table_name = $1"
        return self._position(self.session.look("read the mark", sql, self.table))

    def lock(self) -> SinkPosition:
        """In a transaction: from now on nobody else claims or publishes."""
        sql = f"SELECT {_COLUMNS} FROM {self._marks} WHERE table_name = $1 FOR UPDATE"
        return self._position(self.session.query("lock the mark", sql, self.table))

    def make(self) -> None:
        """In a transaction: a mark of nobody, unless there is one; the table of marks, too."""
        name = f"{self.schema}.{MARKS}".encode()
        number = int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)
        self.session.query("wait for its turn", "SELECT pg_advisory_xact_lock($1)::text", number)
        (found,) = self.session.query("look for the marks", _EXIST, self.schema, MARKS)
        if not found["there"]:
            self.session.run(f"create the table {MARKS}", _CREATE.format(marks=self._marks))
        sql = (
            f"INSERT INTO {self._marks} (table_name, sink, pipeline_id, pipeline, generation) "
            "VALUES ($1, $2, '', '', 0) ON CONFLICT DO NOTHING"
        )
        self.session.run("insert the mark", sql, self.table, self.sink)

    def claim(self, generation: int, pipeline: Owner) -> None:
        sql = (
            f"UPDATE {self._marks} SET sink = $1, pipeline_id = $2, pipeline = $3, "
            "generation = $4, changed = now() WHERE table_name = $5"
        )
        values = (self.sink, pipeline.id, pipeline.name, generation, self.table)
        self.session.run("claim the mark", sql, *values)

    def move(self, position: SinkPosition, rows: int) -> None:
        """With the rows of an epoch."""
        point, pipeline = position.point, position.pipeline
        assert point is not None, "an epoch is published"
        sql = (
            f"UPDATE {self._marks} SET sink = $1, pipeline_id = $2, pipeline = $3, "
            "generation = $4, epoch = $5, digest = $6, rows = $7, changed = now() "
            "WHERE table_name = $8"
        )
        values = (self.sink, pipeline.id, pipeline.name, position.generation)
        self.session.run("move the mark", sql, *values, point.epoch, point.digest, rows, self.table)

    def _position(self, rows: list[dict[str, object]]) -> SinkPosition:
        if not rows:
            return NOWHERE
        (row,) = rows
        owner = Owner(str(row["pipeline_id"]), str(row["pipeline"]))
        epoch, digest = row["epoch"], row["digest"]
        point = Point(int(str(epoch)), str(digest)) if epoch is not None else None
        if owner and fold(str(row["sink"])) != fold(self.sink):
            raise Refused(
                f"the table belongs to the sink {row['sink']!r} of the pipeline {owner}",
                where=self.session.where,
                advice="Give each sink a table of its own. If this is the same sink under a new "
                f"name, correct the column sink in {self.schema}.{MARKS}",
            )
        return SinkPosition(owner, int(str(row["generation"])), point)

    def missing(self) -> NotFound:
        return NotFound(
            f"the mark of the table is gone from {self.schema}.{MARKS}",
            where=self.session.where,
            advice="Restore it with the table, from the same backup: it says which epochs are in",
        )
