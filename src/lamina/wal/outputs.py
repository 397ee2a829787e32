"""Staged output that is a record of the log: small files, which their tasks have sent along."""

from __future__ import annotations

from lamina.disk.base import Disk
from lamina.errors import NotFound
from lamina.format.home_names import parse_output_path
from lamina.format.wal import Kind
from lamina.wal.reader import SegmentReader


def segment_of(path: str) -> str | None:
    """The segment that a file of output is in; None if it is a file of its own."""
    place = parse_output_path(path)
    return None if place is None else place[0]


def read_output(disk: Disk, path: str) -> bytes:
    """The bytes of the file that is this record; NotFound if another one is there, or none."""
    place = parse_output_path(path)
    assert place is not None, path
    segment, offset = place
    record = next(iter(SegmentReader(disk, segment).records(offset)), None)
    if record is None or record.kind is not Kind.OUTPUT:
        raise NotFound("no output is at this place of the log", where=f"{disk.root}/{path}")
    assert record.payload is not None, "it has been read"
    return bytes(record.payload)
