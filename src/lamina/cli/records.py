"""`lamina wal dump`: what the log holds, record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import click

from lamina.cli import shapes
from lamina.cli.examination import batch_of
from lamina.cli.homes import HomeTarget, Shape, all_segments, find_segment, home_option, place
from lamina.cli.rows import row_shapes, row_texts, schema_shape, schema_text
from lamina.cli.screen import Answered, Screen, json_option
from lamina.cli.segments import core_of, end_shape, end_text
from lamina.cli.words import counted
from lamina.disk.base import Disk
from lamina.errors import Corrupt, LaminaError, NotFound, Unsupported, UsageError, WalDamaged
from lamina.format import canonical
from lamina.format.wal import HEADER_SIZE, Kind, binding_of, decode_record_header
from lamina.wal.reader import Clean, Record, SegmentReader, Torn
from lamina.wal.scan import check_home

HEAD = "    OFFSET  KIND        EPOCH  SEQUENCE   COUNT      SIZE  CRC       DURABLE  WHAT"


@dataclass
class Dump:
    """One segment as far as it was read: then its end, or what stopped the reading."""

    path: str
    reader: SegmentReader | None = None
    end: Clean | Torn | LaminaError | None = None  # None: --limit was reached


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
    help="The byte at which the first record begins; needs a SEGMENT.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="How many records at most.")
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
    """Print the records of a segment, by default of all, one line each.

    What stands before damage is printed all the same; then the command fails.
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

    def record(self, record: Record, where: str, *, values: bool) -> None:
        said = record_shape(record, where, values=False)
        self._screen.line(_line(record, said))
        if values and record.kind is Kind.RUN:
            for row in row_texts(batch_of(record, where)):
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

    def record(self, record: Record, where: str, *, values: bool) -> None:
        self._segments[-1]["records"].append(record_shape(record, where, values=values))

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
        shown = 0
        for record, where in _records(disk, home, found, wanted.first, printer):
            printer.record(record, where, values=wanted.values)
            shown += 1
            if shown == left:
                break
        if found.reader is not None or found.end is not None:
            printer.end(found)
        if isinstance(found.end, LaminaError):
            return found.end
        left = None if left is None else left - shown
        if left == 0:
            return None
    return None


def _records(
    disk: Disk, home: bytes, found: Dump, first: int, printer: _TextPrinter | _JsonPrinter
) -> Iterator[tuple[Record, str]]:
    """The records of one segment, each proven; afterwards *found* says how it ended."""
    try:
        found.reader = reader = SegmentReader(disk, found.path)
        printer.segment(found)
        check_home(reader, home)
        for record in reader.records(first):
            where = reader.where(record.offset)
            record_shape(record, where, values=False)  # what cannot be read is damage, not output
            yield record, where
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


def record_shape(record: Record, where: str, *, values: bool) -> Shape:
    """A record with what it says: its JSON, or the schema and rows of a RUN."""
    header = record.header
    shape: Shape = {
        "offset": record.offset,
        "kind": record.kind.name,
        "epoch": record.epoch,
        "sequence": header.first_sequence,
        "count": header.count,
        "size_bytes": header.size,
        "crc": header.payload_crc,
        "durable": header.durable,
        "payload": None,
        "schema": None,
        "rows": None,
    }
    assert record.payload is not None
    if record.kind is Kind.RUN:
        batch = batch_of(record, where)
        shape["schema"] = schema_shape(batch.schema)
        shape["rows"] = list(row_shapes(batch)) if values else None
    elif record.kind is not Kind.BARRIER:
        shape["payload"] = _payload(record.payload.to_pybytes(), where)
    return shape


def _payload(data: bytes, where: str) -> canonical.Json:
    try:
        return canonical.decode(data, where)
    except Corrupt as error:
        raise WalDamaged(error.message, where=where) from error


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


def _line(record: Record, said: Shape) -> str:
    return (
        f"{record.offset:>10}  {said['kind']:<10}  {record.epoch:>5}  {said['sequence']:>8}  "
        f"{said['count']:>6}  {said['size_bytes']:>8}  {said['crc']:08x}  {said['durable']:>7}  "
        f"{_says(record, said)}"
    ).rstrip()


def _says(record: Record, said: Shape) -> str:
    if record.kind is Kind.RUN:
        assert record.payload is not None
        rows = counted(record.header.count, "row")
        return f"{rows} of {schema_text(batch_of(record, '').schema)}"
    payload = said["payload"]
    return "" if payload is None else json.dumps(payload, separators=(",", ":"), sort_keys=True)
