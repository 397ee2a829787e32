"""Debezium's envelopes in JSON: `before`, `after` and `op`, with or without `schema` and `payload`.

A value is read as its text where several encodings are possible, and converted if the text can be
nothing else; what is not is named, never guessed:

    DATE         days since 1970 (io.debezium.time.Date), or 2024-02-29
    TIMESTAMP    2024-02-29T12:30:00.123456Z (ZonedTimestamp)
    DECIMAL      12.34 with a point (decimal.handling.mode string or double); base64 has none
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.connectors.json_text import JsonText
from lamina.connectors.kafka.values import CORRUPT, VALUE, Plain, bare_type
from lamina.pipeline.model import Column as Definition

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium puts for a long value that an update left alone, and that is not in the log."""
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_ZONED = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6}0*)?(Z|[+-]\d{2}:\d{2})$"
Problem = tuple[Column, Column]
"""What may be wrong with an envelope, and what is said then."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One change: the operation, and the row before and after it in the declared types."""

    op: Column
    before: Column
    after: Column
    problems: tuple[Problem, ...] = ()  # of how it is written; the first that is true counts


class DebeziumJson(Plain):
    """One envelope each, as Kafka Connect's JsonConverter writes it."""

    def __init__(self, columns: Sequence[Definition], mark: str) -> None:
        self._columns = columns
        self._json = JsonText({}, mark, CORRUPT)

    def row(self) -> Column:
        """As it is parsed: values that need a second look are texts."""
        side = f"STRUCT<{', '.join(f'`{c.name}`: {_read_as(c)}' for c in self._columns)}>"
        parts = f"before: {side}, after: {side}, op: STRING"
        schema = f"before {side}, after {side}, op STRING, payload STRUCT<{parts}>"
        options = {**self._json.parsing, "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(_text(), f"{schema}, `{CORRUPT}` STRING", options)

    def is_bad(self, row: Column) -> Column:
        well = F.is_valid_utf8(_text()) & self._json.is_one_value(_text())
        return row.isNull() | row[CORRUPT].isNotNull() | ~F.coalesce(well, F.lit(False))

    def envelope(self, row: Column) -> Envelope:
        inner = row["payload"]
        op, before, after = (F.coalesce(inner[n], row[n]) for n in ("op", "before", "after"))
        other = F.lit("it is not JSON in which the declared columns have values of their types")
        problems: list[Problem] = [(F.coalesce(self.is_bad(row), F.lit(True)), other)]
        for side in (before, after):
            problems += [self._unread(side, column) for column in self._columns]
        return Envelope(op, self._typed(before), self._typed(after), tuple(problems))

    def _typed(self, side: Column) -> Column:
        values = [_converted(c)(side[c.name]).alias(c.name) for c in self._columns]
        return F.when(side.isNotNull(), F.struct(*values))

    def _unread(self, side: Column, column: Definition) -> Problem:
        raw = side[column.name]
        is_unread = raw.isNotNull() & _converted(column)(raw).isNull()
        what = f"the column {column.name!r} cannot be read as {bare_type(column)}"
        return is_unread, F.concat(
            F.lit(f"{what}{_ADVICE.get(_kind(column), '')}: "), raw.cast("string")
        )


_ADVICE = {
    "decimal": " (set decimal.handling.mode to string in Debezium)",
    "timestamp": " (only texts with a zone are read: declare a number BIGINT)",
}


def _kind(column: Definition) -> str:
    name = re.split(r"[\s(]", bare_type(column).lower())[0]
    return {"numeric": "decimal", "dec": "decimal", "timestamp_ltz": "timestamp"}.get(name, name)


def _read_as(column: Definition) -> str:
    is_text = _kind(column) in ("date", "timestamp", "decimal")
    return "STRING" if is_text else bare_type(column)


def _converted(column: Definition) -> Callable[[Column], Column]:
    """A value in the declared type; null where the text does not say exactly that."""
    type_ = bare_type(column)
    match _kind(column):
        case "date":
            return lambda text: (
                F.when(text.rlike(r"^-?\d{1,7}$"), F.date_from_unix_date(text.try_cast("int")))
                .when(text.rlike(_DATE), text.try_cast("date"))
            )  # fmt: skip
        case "timestamp":
            return lambda text: F.when(text.rlike(_ZONED), text.try_cast("timestamp"))
        case "decimal":
            found = re.search(r",\s*(\d+)", type_)
            digits = found[1] if found else "0"
            exact = rf"^-?\d+\.\d{{1,{digits}}}0*$"
            return lambda text: F.when(text.rlike(exact), text.try_cast(type_))
        case _:
            return lambda value: value


def _text() -> Column:
    return F.col(VALUE).cast("string")
