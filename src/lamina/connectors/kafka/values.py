"""What the bytes of a record mean: JSON, CSV, Avro, or nothing but bytes.

Strict: a value is one whole JSON object, or one line of CSV; all columns are parsed, whoever asks
for how many. Every expression is made once: each would be many calls into the JVM, in every epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

from lamina.connectors.file_frames import ddl
from lamina.connectors.json_text import JsonText
from lamina.errors import LaminaError
from lamina.pipeline.model import Column as Definition

CORRUPT = "_lamina_corrupt"
VALUE = "value"
UNREADABLE = "lamina: unreadable record"
UNREADABLE_CHANGE = "lamina: unreadable change"
UNKNOWN_SCHEMA = "lamina: unknown Avro schema"
"""How errors of tasks begin, for whoever reads them on the driver."""


class Values(Protocol):
    """One way to read values, which are not null."""

    def row(self) -> Column:
        """A structure with the columns of the value."""
        ...

    def is_bad(self, row: Column) -> Column:
        """Whether the value cannot be read; *row* is what `row` has made of it."""
        ...

    def shown(self) -> Column:
        """The value for people, in part."""
        ...

    def probe(self, spark: SparkSession) -> None:
        """Raises what can be known to be wrong before the first row comes."""
        ...

    def learn(self, error: LaminaError) -> bool:
        """Whether rows that could not be read can be read now."""
        ...


class Plain:
    """What most formats need not do."""

    def probe(self, spark: SparkSession) -> None:
        """Everything is in the options, which were checked."""

    def learn(self, error: LaminaError) -> bool:
        del error
        return False

    def shown(self) -> Column:
        return F.substring(_text(), 1, 200)


class JsonValues(Plain):
    """One JSON object each."""

    def __init__(
        self, columns: Sequence[Definition], options: Mapping[str, str], mark: str
    ) -> None:
        self._columns = columns
        self._json = JsonText(options, mark, CORRUPT)

    def row(self) -> Column:
        options = {**self._json.parsing, "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(_text(), f"{ddl(self._columns)}, `{CORRUPT}` STRING", options)

    def is_bad(self, row: Column) -> Column:
        well = F.is_valid_utf8(_text()) & self._json.is_one_value(_text())
        has_other_types = row[CORRUPT].isNotNull()
        return row.isNull() | has_other_types | ~well


class CsvValues(Plain):
    """One line each; the line may have its end."""

    def __init__(self, columns: Sequence[Definition], options: Mapping[str, str]) -> None:
        self._columns, self._options = columns, options

    def row(self) -> Column:
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        schema = f"{ddl(self._columns)}, `{CORRUPT}` STRING"
        return F.from_csv(_text(), schema, {**self._options, **ours})

    def is_bad(self, row: Column) -> Column:
        text = F.regexp_replace(_text(), "\r?\n$", "")
        is_line = ~(text.contains("\n") | text.contains("\r")) & (F.length(text) > 0)
        return row.isNull() | row[CORRUPT].isNotNull() | ~(F.is_valid_utf8(_text()) & is_line)


class RawValues(Plain):
    """The bytes, or their text."""

    def __init__(self, columns: Sequence[Definition]) -> None:
        self._columns = columns

    def row(self) -> Column:
        return F.struct(*(F.col(VALUE).cast(bare_type(c)).alias(c.name) for c in self._columns))

    def is_bad(self, row: Column) -> Column:
        del row
        has_text = any(bare_type(column).upper() == "STRING" for column in self._columns)
        return ~F.is_valid_utf8(_text()) if has_text else F.lit(False)

    def shown(self) -> Column:
        return F.hex(F.substring(F.col(VALUE), 1, 50))


def _text() -> Column:
    return F.col(VALUE).cast("string")


def bare_type(column: Definition) -> str:
    """Without NOT NULL, and with the case of its fields: they are found by their names."""
    return re.sub(r"(?i)\s+not\s+null\s*$", "", column.type).strip()
