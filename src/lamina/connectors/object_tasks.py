"""What Spark's tasks do with objects: fetch them, prove that they are the planned ones, and give
their lines as text, or their rows.

A task gets the number of its group of objects. Credentials travel inside of the pickled function:
not in a plan, a name, a log or on Spark's page.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.parquet_calendar import check_calendar, has_old_calendar
from lamina.connectors.parquet_columns import fitted
from lamina.connectors.text_lines import lines_of
from lamina.errors import LaminaError, Refused
from lamina.store.bucket import Bucket, FoundObject, ObjectReader

PIECE_BYTES = 8 << 20
AHEAD = 4  # objects that are fetched while one is read
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
UNREAD = (".deflate", ".lz4", ".snappy")
"""What Spark would decompress, by codecs of Hadoop's own."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An object, and the values of the columns that are in its path."""

    found: FoundObject
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Groups of objects, one for each task."""

    url: str
    groups: tuple[tuple[Placed, ...], ...]
    options: Mapping[str, Any] = field(repr=False)

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Placed, str, ObjectReader]]:
        """The objects of the groups whose numbers come, each with its address."""
        bucket = Bucket(self.url, self.options)
        placed = [
            p for batch in batches for n in batch.column(0).to_pylist() for p in self.groups[n]
        ]
        with ThreadPoolExecutor(AHEAD) as pool:
            ahead: deque[Future[bytes]] = deque()
            for number, each in enumerate(placed):
                for later in placed[number + len(ahead) : number + AHEAD]:
                    ahead.append(pool.submit(bucket.read, later.found, 0, PIECE_BYTES))
                start = ahead.popleft().result()
                yield each, bucket.where(each.found.path), ObjectReader(bucket, each.found, start)


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a CSV file: dropped, and compared if it has to be what is declared."""

    names: tuple[str, ...]  # of the columns in the file; none: whatever stands there
    separator: str = ","
    quote: str = '"'
    comment: str = ""

    def after(self, batches: Iterator[pa.Array], where: str) -> Iterator[pa.Array]:
        """All lines behind it."""
        for lines in batches:
            for number, line in enumerate(lines):
                text = line.as_buffer().to_pybytes().decode("utf-8", "replace").strip()
                if text and not (self.comment and text.startswith(self.comment)):
                    self._check(text, where)
                    yield lines.slice(number + 1)
                    yield from batches
                    return

    def _check(self, line: str, where: str) -> None:
        quoting: dict[str, Any] = (
            {"quotechar": self.quote} if self.quote else {"quoting": csv.QUOTE_NONE}
        )
        is_plain = len(self.separator) != 1
        found = (
            line.split(self.separator)
            if is_plain
            else next(csv.reader([line], delimiter=self.separator, **quoting))
        )
        same = [name.strip().lower() for name in found] == [name.lower() for name in self.names]
        if self.names and not same:
            raise Refused(
                f"the header of a CSV file has the columns {', '.join(found)[:200]}, and the "
                f"pipeline {', '.join(self.names)[:200]}",
                where=where,
                advice="With OPTIONS (enforceSchema 'true') columns are taken by position",
            )


@dataclass(frozen=True, slots=True)
class ReadLines:
    """For `mapInArrow`: `value`, the address of its object, and columns of its path as text."""

    fetch: Fetch
    columns: tuple[str, ...]  # of the result
    separator: bytes = b""
    whole: bool = False  # an object is one value
    header: Header | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for placed, where, reader in self.fetch.of(batches):
            with _errors(where):
                for lines in self._lines(placed, where, reader):
                    if len(lines):
                        beside = (where, *placed.values)
                        yield _beside([lines], beside, self.columns, len(lines))

    def _lines(self, placed: Placed, where: str, reader: ObjectReader) -> Iterator[pa.Array]:
        pieces = _pieces(placed.found.path, where, reader)
        if self.whole:
            data = b"".join(pieces).removeprefix(b"\xef\xbb\xbf")
            yield pa.array([data], pa.binary()).view(pa.string())
            return
        lines = lines_of(pieces, self.separator)
        yield from lines if self.header is None else self.header.after(lines, where)


@dataclass(frozen=True, slots=True)
class ReadParquet:
    """For `mapInArrow`: the columns of a source that are in the files, and those of their paths."""

    fetch: Fetch
    columns: tuple[str, ...]  # of the result: those of the files first
    schema: bytes  # of the columns in the files, as the pipeline has them

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for placed, where, reader in self.fetch.of(batches):
            with _errors(where):
                opened = pq.ParquetFile(
                    BufferedReader(reader, 1 << 20), coerce_int96_timestamp_unit="us"
                )
                names = opened.schema_arrow.names
                known = {field.name.lower() for field in wanted}
                columns = [name for name in names if name.lower() in known]
                is_old = has_old_calendar(opened.metadata.metadata)
                for batch in opened.iter_batches(columns=columns):
                    if is_old:
                        check_calendar(batch.columns, where)
                    arrays = fitted(batch, wanted, where)
                    yield _beside(arrays, placed.values, self.columns, batch.num_rows)


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """What is wrong with an object, with its address."""
    try:
        yield
    except LaminaError:
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        raise Refused(
            f"an object cannot be read: {error}",
            where=where,
            advice="Replace it with a complete one, or delete it",
        ) from error


def _pieces(path: str, where: str, reader: ObjectReader) -> Iterator[bytes]:
    """The bytes of an object, decompressed as its name says."""
    buffered = BufferedReader(reader, PIECE_BYTES)
    ending = path[path.rfind(".") :].lower() if "." in path else ""
    if ending in UNREAD:
        message = f"an object is compressed in a way that is not known: {ending}"
        raise Refused(message, where=where, advice="Use .gz, .bz2 or .zst")
    stream: Any = buffered
    if ending in COMPRESSED:
        stream = pa.CompressedInputStream(pa.PythonFile(buffered, mode="r"), COMPRESSED[ending])
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _beside(
    arrays: list[pa.Array], values: tuple[str | None, ...], names: tuple[str, ...], rows: int
) -> pa.RecordBatch:
    texts = [pa.repeat(pa.scalar(value, pa.string()), rows) for value in values]
    return pa.RecordBatch.from_arrays([*arrays, *texts], names=list(names))
