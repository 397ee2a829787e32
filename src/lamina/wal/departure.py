"""Whether a home has moved away: a MOVED record behind the TAKEOVER of who has moved it.

Whoever claims such a home finds it and stops before an ADOPT. So it is in one of the segments after
the newest ADOPT, and right behind a TAKEOVER: a look at a few record headers.
"""

from __future__ import annotations

from lamina.disk.base import Disk
from lamina.errors import Unsupported, WalDamaged
from lamina.format.commit import MovedRecord, decode_moved
from lamina.format.wal import Kind
from lamina.wal.reader import SegmentReader
from lamina.wal.scan import segments_of


def departure(disk: Disk) -> MovedRecord | None:
    """Where the home has gone; None if it is still here.

    Also if the log cannot be read that far: who recovers reads all of it, and says what is wrong.
    """
    for path in reversed(segments_of(disk, None)):
        try:
            reader = SegmentReader(disk, path)
            for record in reader.records(payloads=False):
                if record.kind is Kind.MOVED:
                    return _decoded(reader, record.offset)
                if record.kind is not Kind.TAKEOVER:
                    return None
        except (WalDamaged, Unsupported):
            return None
    return None


def _decoded(reader: SegmentReader, offset: int) -> MovedRecord | None:
    """None if it never became whole: then nothing was decided."""
    record = next(reader.records(offset), None)
    if record is None or record.payload is None:
        return None
    return decode_moved(bytes(record.payload), reader.where(offset))
