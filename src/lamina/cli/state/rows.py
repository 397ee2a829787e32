"""Rows of state as a person, a script or a spreadsheet wants them: table, JSON, CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import islice
from typing import Any

import click
import pyarrow as pa
from pyarrow import csv, types

from lamina.cli.support import shapes
from lamina.cli.support.rows import row_shapes
from lamina.cli.support.screen import Screen
from lamina.cli.support.session import Answered
from lamina.errors import LaminaError
from lamina.inspect.cells import cells_of, is_bytes, is_number

TABLE_ROWS = 20
Batches = Iterable[pa.RecordBatch]


def first_rows(batches: Batches, limit: int) -> tuple[list[tuple[str, ...]], int]:
    """The first rows as cells, and how many more there are."""
    rows: list[tuple[str, ...]] = []
    total = 0
    for batch in batches:
        total += batch.num_rows
        rows += islice(cells_of(batch), limit - len(rows))
    return rows, total - len(rows)


def print_table(
    screen: Screen, schema: pa.Schema, rows: Sequence[tuple[str, ...]], more: int
) -> None:
    """Numbers are aligned to the right."""
    heads = [f"{'>' if is_number(f.type) else ''}{f.name}" for f in schema]
    screen.table(heads, rows)
    if more:
        screen.line(f"... {more} more")


def print_json(head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """One document whose last field, `rows`, is written while it is read.

    What stands before damage is an answer; then the document ends with an error.
    """
    click.echo(json.dumps(head, indent=2)[:-2] + ',\n  "rows": [', nl=False)
    separator = "\n    "
    try:
        for row in rows:
            click.echo(f"{separator}{json.dumps(row)}", nl=False)
            separator = ",\n    "
    except LaminaError as error:
        click.echo(f'\n  ],\n  "error": {json.dumps(shapes.error(error))}\n}}')
        raise Answered(error) from error
    click.echo("\n  ]\n}" if separator.startswith(",") else "]\n}")


def json_rows(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in row_shapes(batch):
            yield dict(zip(batch.schema.names, row, strict=True))


def print_csv(schema: pa.Schema, batches: Batches) -> None:
    """With a head; bytes as hex, structs and lists as JSON."""
    options = csv.WriteOptions(include_header=False)
    click.echo(",".join(_quoted(name) for name in schema.names))
    for batch in batches:
        columns = [_writable(column) for column in batch.columns]
        out = BytesIO()
        csv.write_csv(pa.RecordBatch.from_arrays(columns, schema.names), out, options)
        click.echo(out.getvalue(), nl=False)


def _writable(column: pa.Array) -> pa.Array:
    """A column as CSV can have it."""
    if not (is_bytes(column.type) or types.is_nested(column.type)):
        return column
    shapes: Sequence[Any] = [row[0] for row in row_shapes(pa.record_batch({"": column}))]
    texts = [s if s is None or isinstance(s, str) else json.dumps(s) for s in shapes]
    return pa.array(texts, pa.string())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
