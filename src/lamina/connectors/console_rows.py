"""The rows that a console sink shows, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.staged import open_proven
from lamina.engine.ports import CHANGE, Publication
from lamina.os_errors import typed_errors

WIDTH_MAX = 40


def epoch_rows(publication: Publication, rows_max: int) -> Iterable[str]:
    """The first rows of an epoch, each of its files proven before it is shown."""
    left, shown = rows_max, list[pa.Table]()
    for file in publication.files:
        with (
            typed_errors(publication.staged.where(file)),
            open_proven(publication, file) as opened,
        ):
            shown.append(pq.read_table(opened).slice(0, left))
        left -= shown[-1].num_rows
    return text_rows(_change_first(pa.concat_tables(shown)))


def _change_first(table: pa.Table) -> pa.Table:
    names = table.column_names
    return table.select(sorted(names, key=lambda name: name != CHANGE))


def text_rows(table: pa.Table) -> Iterable[str]:
    """Columns under their names, each as wide as its widest value."""
    columns = [[_text(_value(each)) for each in column] for column in table.columns]
    rows = [table.column_names, *map(list, zip(*columns, strict=True))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.column_names))]
    for row in rows:
        yield "  " + _row(row, widths)


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip()


def _value(scalar: pa.Scalar) -> object:
    """As Python has it; Spark's years go further than Python's."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        number = getattr(scalar, "value", None)
        return "out of Python's range" if number is None else f"{number} {scalar.type}"


def _text(value: object) -> str:
    """One line, nothing that moves a cursor, and not too long."""
    text = "NULL" if value is None else str(value)
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 3]}..."
