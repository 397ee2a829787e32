"""Debezium's envelopes of an epoch as versions of rows, for engine/last_versions.py.

c, r, u   the row is what `after` has; of an update that changes the key, the old key is gone
d         the row with the key that `before` has is gone
t         TRUNCATE: nobody says which rows were there; it stops the pipeline
null      a tombstone, for compaction: it says nothing that a delete before it has not said
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.clock import SystemClock, new_writer_id
from lamina.connectors.file_frames import ddl
from lamina.connectors.kafka.debezium_avro import DebeziumAvro
from lamina.connectors.kafka.debezium_kind import DEBEZIUM_JSON
from lamina.connectors.kafka.debezium_values import (
    UNAVAILABLE,
    DebeziumJson,
    Envelope,
    Problem,
)
from lamina.connectors.kafka.frames import PARSED, PLACES, KafkaFrames
from lamina.connectors.kafka.planning import Part, Slice
from lamina.connectors.kafka.schema_registry import SchemaRegistry
from lamina.connectors.kafka.security import REGISTRY, REGISTRY_LOGIN
from lamina.connectors.kafka.source_kind import FORMAT
from lamina.connectors.kafka.values import UNREADABLE_CHANGE, VALUE, bare_type
from lamina.connectors.keyed_options import KEYS
from lamina.engine.last_versions import AT, GONE, PLACE

_ENTRY = "_lamina_entry"
_FULL = "ALTER TABLE ... REPLICA IDENTITY FULL"


class DebeziumFrames(KafkaFrames):
    """The versions of rows in a source's topics."""

    def rows(
        self,
        spark: SparkSession,
        read: Sequence[Slice],
        numbers: Mapping[Part, int] | None = None,
    ) -> DataFrame:
        """The declared columns, AT, PLACE and GONE; of what is gone only the keys count."""
        del numbers
        if not read:
            more = f"{AT} BIGINT, {PLACE} STRING, {GONE} BOOLEAN"
            return spark.createDataFrame([], f"{ddl(self._context.source.columns)}, {more}")
        records = self._records(spark, read).where(F.col(VALUE).isNotNull())
        entries = records.where(self._good).select(*PLACES, self._entries.alias(_ENTRY))
        return entries.select(*PLACES, F.posexplode(_ENTRY).alias("n", _ENTRY)).select(
            *self._columns,
            (F.col("offset") * 2 + F.col("n")).alias(AT),
            F.concat_ws("/", "topic", "partition").alias(PLACE),
            F.col(_ENTRY)["gone"].alias(GONE),
        )

    @cached_property
    def _values(self) -> DebeziumJson | DebeziumAvro:
        given, columns = self._context.given, self._context.source.columns
        if given.text(FORMAT) == DEBEZIUM_JSON:
            return DebeziumJson(columns, new_writer_id(SystemClock()))
        registry = SchemaRegistry(given.text(REGISTRY), given.text(REGISTRY_LOGIN))
        return DebeziumAvro(self._context.source, columns, registry)

    @cached_property
    def _keys(self) -> list[str]:
        declared = {each.name.lower(): each.name for each in self._context.source.columns}
        return [declared[key.lower()] for key in self._context.given.columns(KEYS.name)]

    @cached_property
    def _envelope(self) -> Envelope:
        return self._values.envelope(F.col(PARSED))

    @cached_property
    def _entries(self) -> Column:
        """The versions of one envelope, in their order."""
        each = self._envelope
        old, new = _entry(each.before, gone=True), _entry(each.after, gone=False)
        moved = each.before.isNotNull() & ~_same(each, self._keys)
        updated = F.when(moved, F.array(old, new)).otherwise(F.array(new))
        return (
            F.when(each.op == "d", F.array(old))
            .when(each.op == "u", updated)
            .otherwise(F.array(new))
        )

    @cached_property
    def _good(self) -> Column:
        """True, or an error that names the record and what is wrong with it."""
        place = F.concat_ws(" ", F.lit(UNREADABLE_CHANGE), *map(F.col, PLACES))
        fine: Column | None = None
        for is_wrong, said in (*self._envelope.problems, *self._problems()):
            plain = F.regexp_replace(F.substring(said, 1, 400), r"\p{Cntrl}", " ")
            stop = F.raise_error(F.concat_ws(" ", place, plain)).cast("boolean")
            wrong = F.coalesce(is_wrong, F.lit(False))
            fine = F.when(wrong, stop) if fine is None else fine.when(wrong, stop)
        assert fine is not None
        return fine.otherwise(F.lit(True))

    def _problems(self) -> Iterator[Problem]:
        """What is wrong with a change, whichever way it is written."""
        op, before, after = self._envelope.op, self._envelope.before, self._envelope.after
        yield (
            op.isNull(),
            F.lit(
                "it has no `op`: it is not an envelope of Debezium. Does the connector take it "
                "apart (the transform ExtractNewRecordState)?"
            ),
        )
        yield (
            op == "t",
            F.lit(
                "the table was truncated, and nobody says which rows were in it. Use DELETE FROM, "
                "and take a new snapshot into a new topic"
            ),
        )
        yield ~op.isin("c", "r", "u", "d"), F.concat(F.lit("its `op` is not known: "), op)
        yield op.isin("c", "r", "u") & after.isNull(), F.lit("a change without `after`")
        yield (
            (op == "d") & before.isNull(),
            F.lit(f"a delete without `before`: the log does not say which row it was. {_FULL}"),
        )
        side = F.when(op == "d", before).otherwise(after)
        for key in self._keys:
            yield side[key].isNull(), F.lit(f"the key column {key!r} has no value")
        for column in self._context.source.columns:
            if bare_type(column).upper() in ("STRING", "BINARY"):
                yield (
                    after[column.name] == F.lit(UNAVAILABLE).cast(bare_type(column)),
                    F.lit(
                        f"the column {column.name!r} is long, was not changed, and is not in the "
                        f"event. {_FULL}, and take a new snapshot into a new topic"
                    ),
                )

    @cached_property
    def _columns(self) -> list[Column]:
        """What is gone has its keys only."""
        entry = F.col(_ENTRY)
        return [
            (
                entry["row"][each.name]
                if each.name in self._keys
                else F.when(~entry["gone"], entry["row"][each.name])
            ).alias(each.name)
            for each in self._context.source.columns
        ]


def _entry(row: Column, *, gone: bool) -> Column:
    return F.struct(row.alias("row"), F.lit(gone).alias("gone"))


def _same(each: Envelope, keys: Sequence[str]) -> Column:
    same = F.lit(True)
    for key in keys:
        same &= each.before[key].eqNullSafe(each.after[key])
    return same
