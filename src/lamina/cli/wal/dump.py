"""`lamina wal dump`: what the log holds, record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import click
import pyarrow as pa

from lamina.cli.support import shapes
from lamina.cli.support.homes import HomeTarget, find_segment, home_option, place
from lamina.cli.support.rows import row_shapes, row_texts, schema_shape, schema_text
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.session import Answered
from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted
from lamina.cli.wal.list import core_of, end_shape, end_text
from lamina.disk.base import Disk
from lamina.errors import Corrupt, LaminaError, NotFound, Unsupported, UsageError, WalDamaged
from lamina.format import canonical
from lamina.format.wal import HEADER_SIZE, Kind, binding_of, decode_record_header
from lamina.wal.examination import batch_of
from lamina.wal.reader import Clean, Record, SegmentReader, Torn
from lamina.wal.scan import all_segments, check_home

HEAD = "    OFFSET  KIND        EPOCH  SEQUENCE   COUNT      SIZE  CRC       DURABLE  WHAT"


@dataclass
class Dump:
    """One segment as far as it was read: then its end, or what stopped the reading."""

    path: str
    reader: SegmentReader | None = None
    end: Clean | Torn | LaminaError | None = None  # None: --limit was reached


@dataclass(frozen=True, slots=True)
class Shown:
    """One record that can be read: the batch of a RUN, or the JSON of what it says."""

    record: Record
    batch: pa.RecordBatch | None
    payload: canonical.Json


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a home is to be shown."""

    paths: tuple[str, ...]
    first: int
    limit: int | None
    values: bool


@click.command("dump")
@home_option
@click.argument("segment", metavar="[SEGMENT]", required=False)
@click.option(
    "--from",
    "first",
    metavar="OFFSET",
    type=click.IntRange(0, 1 << 62),
    help="Byte offset of the first record to print; needs a SEGMENT.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Maximum number of records.")
@click.option("--values", is_flag=True, help="Also show the rows of every RUN.")
@json_option
def wal_dump_command(
    *,
    home_target: HomeTarget,
    segment: str | None,
    first: int | None,
    limit: int | None,
    values: bool,
    screen: Screen,
) -> None:
    """Print the records of the log, one line each.

    Prints all segments unless one is named. Records before damage are still printed; then the
    command fails.
    """
    if first is not None and segment is None:
        raise click.UsageError("--from is an offset in one SEGMENT: name it")
    home = home_target.to_read()
    disk = home.disk
    paths = tuple(all_segments(disk)) if segment is None else (find_segment(disk, segment),)
    if first is not None:
        _check_start(disk, paths[0], first)
    wanted = Wanted(paths, max(first or 0, HEADER_SIZE), limit, values)
    printer = _JsonPrinter(screen, place(home)) if screen.as_json else _TextPrinter(screen)
    damage = dump(disk, home.identity, wanted, printer)
    printer.close(damage)
    if damage is not None:
        raise Answered(damage)


class _TextPrinter:
    """A line as soon as a record is read."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._segments = 0

    def segment(self, dump: Dump) -> None:
        if self._segments:
            self._screen.line()
        self._segments += 1
        self._screen.line(_title(dump))
        self._screen.line(HEAD)

    def record(self, shown: Shown, *, values: bool) -> None:
        self._screen.line(_line(shown))
        if values and shown.batch is not None:
            for row in row_texts(shown.batch):
                self._screen.line(f"            {row}")

    def end(self, dump: Dump) -> None:
        if isinstance(dump.end, Clean | Torn):
            self._screen.line(f"{dump.end.end:>10}  {end_text(dump.end)}")

    def close(self, damage: LaminaError | None) -> None:
        if not self._segments and damage is None:
            self._screen.line("no segments")


class _JsonPrinter:
    """One document, so everything is kept until the end: --limit bounds it."""

    def __init__(self, screen: Screen, where: Shape) -> None:
        self._screen = screen
        self._where = where
        self._segments: list[Shape] = []

    def segment(self, dump: Dump) -> None:
        self._segments.append(_header(dump) | {"records": [], "end": None})

    def record(self, shown: Shown, *, values: bool) -> None:
        self._segments[-1]["records"].append(record_shape(shown, values=values))

    def end(self, dump: Dump) -> None:
        self._segments[-1]["end"] = None if dump.end is None else end_shape(dump.end)

    def close(self, damage: LaminaError | None) -> None:
        failed = {"error": shapes.error(damage)} if damage else {}
        self._screen.json(self._where | {"segments": self._segments} | failed)


def dump(
    disk: Disk, home: bytes, wanted: Wanted, printer: _TextPrinter | _JsonPrinter
) -> LaminaError | None:
    """Show record by record; returns what stopped the reading before the end and the limit."""
    left = wanted.limit
    for path in wanted.paths:
        found = Dump(path)
        count = 0
        for shown in _records(disk, home, found, wanted.first, printer):
            printer.record(shown, values=wanted.values)
            count += 1
            if count == left:
                break
        if found.reader is not None or found.end is not None:
            printer.end(found)
        if isinstance(found.end, LaminaError):
            return found.end
        left = None if left is None else left - count
        if left == 0:
            return None
    return None


def _records(
    disk: Disk, home: bytes, found: Dump, first: int, printer: _TextPrinter | _JsonPrinter
) -> Iterator[Shown]:
    """The records of one segment, each proven; afterwards *found* says how it ended."""
    try:
        found.reader = reader = SegmentReader(disk, found.path)
        printer.segment(found)
        check_home(reader, home)
        for record in reader.records(first):
            yield _read(record, reader.where(record.offset))
        found.end = reader.end
    except NotFound:
        return  # a running pipeline has dropped it meanwhile
    except (WalDamaged, Unsupported) as error:
        if found.reader is None:
            printer.segment(found)
        found.end = error


def _check_start(disk: Disk, path: str, first: int) -> None:
    """A record begins at this place, also behind damage; or it is the end of the one before."""
    reader = SegmentReader(disk, path)
    data = disk.read(path, first, HEADER_SIZE)
    binding = binding_of(disk.read(path, 0, HEADER_SIZE))
    if first in (0, HEADER_SIZE) or decode_record_header(data, offset=first, binding=binding):
        return
    try:
        if first in (record.end for record in reader.records(payloads=False)):
            return
    except (WalDamaged, Unsupported):
        pass  # this damage is before the place that was asked for
    raise UsageError(
        f"no record begins at byte {first} of {path}",
        advice="`lamina wal dump` without --from shows where they begin",
    )


def _read(record: Record, where: str) -> Shown:
    """What a record says; WalDamaged if its checksums hold and it makes no sense."""
    assert record.payload is not None
    match record.kind:
        case Kind.RUN:
            return Shown(record, batch_of(record, where), None)
        case Kind.BARRIER | Kind.OUTPUT:
            return Shown(record, None, None)
    try:
        return Shown(record, None, canonical.decode(bytes(record.payload), where))
    except Corrupt as error:
        raise WalDamaged(error.message, where=where) from error


def record_shape(shown: Shown, *, values: bool) -> Shape:
    record, batch = shown.record, shown.batch
    return {
        "offset": record.offset,
        "kind": record.kind.name,
        "epoch": record.epoch,
        "sequence": record.header.first_sequence,
        "count": record.header.count,
        "size_bytes": record.header.size,
        "crc": record.header.payload_crc,
        "durable": record.header.durable,
        "payload": shown.payload,
        "schema": None if batch is None else schema_shape(batch.schema),
        "rows": list(row_shapes(batch)) if batch is not None and values else None,
    }


def _header(dump: Dump) -> Shape:
    header = dump.reader.header if dump.reader else None
    return {
        "path": dump.path,
        "core": core_of(dump.path),
        "generation": header.generation if header else None,
        "partitions": header.partitions if header else None,
        "first_sequence": header.first_sequence if header else None,
    }


def _title(dump: Dump) -> str:
    said = _header(dump)
    owner = "driver" if said["core"] is None else f"core {said['core']}"
    if said["generation"] is None:
        return f"{dump.path}: {owner}, no header"
    return (
        f"{dump.path}: {owner}, generation {said['generation']}, P {said['partitions']}, "
        f"from sequence {said['first_sequence']}"
    )


def _line(shown: Shown) -> str:
    record, header = shown.record, shown.record.header
    return (
        f"{record.offset:>10}  {record.kind.name:<10}  {record.epoch:>5}  "
        f"{header.first_sequence:>8}  {header.count:>6}  {header.size:>8}  "
        f"{header.payload_crc:08x}  {header.durable:>7}  {_says(shown)}"
    ).rstrip()


def _says(shown: Shown) -> str:
    if shown.batch is not None:
        return f"{counted(shown.batch.num_rows, 'row')} of {schema_text(shown.batch.schema)}"
    if shown.payload is None:
        return ""
    return json.dumps(shown.payload, separators=(",", ":"), sort_keys=True)
