"""Ids in the footers of Parquet files: all columns get theirs, and not a row changes."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import pyarrow_to_schema

from lamina.connectors.iceberg.columns import table_schema
from lamina.connectors.iceberg.footers import UnknownFooter, with_ids
from tests.support.examples import examples

FLAT = [pa.int64(), pa.string(), pa.decimal128(12, 3), pa.timestamp("us", "UTC"), pa.bool_()]
names = st.text(st.characters(exclude_characters=".", exclude_categories=("Cs", "Cc")), min_size=1)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.dictionaries(names, inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda each: pa.map_(pa.string(), each)),
        fields.map(lambda each: pa.struct(list(each.items()))),
    )


types = st.recursive(st.sampled_from(FLAT), nested, max_leaves=6)


def written(rows: pa.Table, **options: Any) -> bytes:
    file = BytesIO()
    pq.write_table(rows, file, **options)
    return file.getvalue()


def numbered(data: bytes, columns: pa.Schema) -> bytes:
    schema = table_schema(columns, "")
    footer = with_ids(BytesIO(data), len(data), reversed(schema.fields))
    return data[: footer.start] + footer.tail


@given(st.dictionaries(names, types, min_size=1, max_size=20))
@settings(max_examples=examples(60))
def test_every_column_gets_its_id_and_no_row_changes(columns: dict[str, pa.DataType]) -> None:
    schema = pa.schema(list(columns.items()))
    rows = pa.table([pa.nulls(3, kind) for kind in columns.values()], schema=schema)
    file = pq.ParquetFile(BytesIO(numbered(written(rows), schema)))
    wanted = table_schema(schema, "")
    assert pyarrow_to_schema(file.schema_arrow).as_struct() == wanted.as_struct()
    assert file.read().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("count", [1, 14, 15, 200])
def test_any_number_of_columns_and_everything_else_in_the_footer(count: int) -> None:
    rows = pa.table({f"column {n}": pa.array(range(n, n + 1000)) for n in range(count)})
    data = written(rows, row_group_size=300, write_page_index=True, store_decimal_as_integer=True)
    file = pq.ParquetFile(BytesIO(numbered(data, rows.schema)))
    assert file.read() == rows
    before = pq.ParquetFile(BytesIO(data)).metadata
    assert file.metadata.num_row_groups == before.num_row_groups == 4
    assert file.metadata.row_group(3).to_dict() == before.row_group(3).to_dict()
    assert file.schema_arrow.metadata == rows.schema.metadata


def test_what_is_not_a_footer_is_not_taken_for_one() -> None:
    rows = pa.table({"a": [1], "s": [{"x": [1]}]})
    data = written(rows)
    fields = table_schema(rows.schema, "").fields
    for cut in range(len(data)):
        with pytest.raises(UnknownFooter):
            with_ids(BytesIO(data[:cut]), cut, fields)
    with pytest.raises(UnknownFooter, match="'s'"):
        with_ids(BytesIO(data), len(data), fields[:1])
    start = with_ids(BytesIO(data), len(data), fields).start
    for at in range(start, len(data) - 8):
        for bit in (1, 8, 128):
            flipped = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            try:
                with_ids(BytesIO(flipped), len(data), fields)
            except UnknownFooter:
                continue  # or it is read as another one: staged files are proven before
