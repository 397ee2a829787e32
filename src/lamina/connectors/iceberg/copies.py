"""Staged files as data files of an Iceberg table: copied, with the ids of its columns."""

from __future__ import annotations

from io import BufferedIOBase
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from lamina.connectors.iceberg.columns import is_as_in_table
from lamina.connectors.iceberg.data import data_file
from lamina.connectors.iceberg.footers import UnknownFooter, with_ids
from lamina.connectors.staged import open_proven
from lamina.engine.ports import Publication
from lamina.errors import LaminaError

SMALL_FILE_BYTES = 256 << 10
"""Staged files that are smaller than this, on average, become one instead."""
_CHUNK = 1 << 20


def can_be_copied(table: Table, publication: Publication) -> bool:
    """Whether the staged files can be data files of the table, and should."""
    files = publication.files
    if len(files) > 1 and sum(file.size for file in files) < SMALL_FILE_BYTES * len(files):
        return False
    if not table.spec().is_unpartitioned():
        return False
    if not is_as_in_table(publication.output.schema, table):
        return False
    try:
        for file in files:
            with publication.staged.open(file) as opened:
                with_ids(opened, file.size, table.schema().fields)
    except (UnknownFooter, LaminaError):
        return False  # whoever reads the rows says what is wrong with the file, if anything is
    return True


def copied(table: Table, publication: Publication, name: str) -> list[DataFile]:
    """Proven copies of all staged files; their names begin with *name*."""
    return [_copied(table, publication, name, number) for number in range(len(publication.files))]


def _copied(table: Table, publication: Publication, name: str, number: int) -> DataFile:
    file = publication.files[number]
    location = table.location_provider().new_data_location(f"{name}-{number:05d}.parquet")
    with open_proven(publication, file) as opened:
        footer = with_ids(opened, file.size, table.schema().fields)
        opened.seek(0)
        with table.io.new_output(location).create() as target:
            _copy(opened, target, footer.start)
            target.write(footer.tail)
    written = table.io.new_input(location)
    with written.open() as opened:
        return data_file(table, written, pq.read_metadata(opened), None)


def _copy(source: BufferedIOBase, target: Any, size: int) -> None:
    while size:
        data = source.read(min(size, _CHUNK))
        assert data, "its size was proven"
        target.write(data)
        size -= len(data)
