"""Staged files are what their tasks have written: proven before a sink shows them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from io import BufferedIOBase
from typing import TYPE_CHECKING

from lamina.engine.ports import Publication
from lamina.errors import DigestMismatch, Refused, SizeMismatch
from lamina.os_errors import typed_errors
from lamina.workspace.model import Staged

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536
RESTORE = "Restore it from a copy of the home: the epoch is committed, and the sink lacks it"


def without_stream(sink: str) -> Refused:
    """Of a sink that was opened without its stream, and would have to know its columns."""
    return Refused(
        f"the sink {sink!r} has to know the columns of its stream for this: only `lamina run` does",
        advice="Let it give the sink what it lacks: `lamina run PIPELINE --until-epoch N`, where N "
        "is the last committed epoch (`lamina status` shows it)",
    )


def open_proven(publication: Publication, file: Staged) -> BufferedIOBase:
    """A staged file, at its start. Corrupt if its bytes are not those that were committed."""
    opened = publication.staged.open(file)
    try:
        prove(opened, file, publication.staged.where(file))
        opened.seek(0)
    except BaseException:
        opened.close()
        raise
    return opened


def staged_batches(publication: Publication) -> Iterator[pa.RecordBatch]:
    """All rows of a publication, file by file: each is proven before its first row comes."""
    import pyarrow.parquet as pq  # noqa: PLC0415  slow to import, and `lamina check` reads no rows

    for file in publication.files:
        with (
            typed_errors(publication.staged.where(file)),
            open_proven(publication, file) as opened,
        ):
            yield from pq.ParquetFile(opened).iter_batches(batch_size=BATCH_ROWS)


def staged_rows(publication: Publication) -> pa.Table:
    """All rows of a publication, in memory: an epoch is as large as its limits let it be."""
    import pyarrow as pa  # noqa: PLC0415  slow to import

    batches = list(staged_batches(publication))
    return pa.Table.from_batches(batches, None if batches else publication.output.schema)


def prove(opened: BufferedIOBase, file: Staged, where: str) -> None:
    """Corrupt if the bytes of *opened*, the staged file or a copy, are not those of *file*."""
    size = opened.seek(0, os.SEEK_END)
    if size != file.size:
        message = f"a staged file has {size} bytes, and its COMMIT says {file.size}"
        raise SizeMismatch(message, where=where, advice=RESTORE)
    opened.seek(0)
    digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != file.sha256:
        message = f"a staged file has the SHA-256 {digest[:12]}, not {file.sha256[:12]}"
        raise DigestMismatch(message, where=where, advice=RESTORE)
