"""One segment by its headers: how much is in it, and how it ends.

Headers are walked, as a recovery does; payloads are read only where nobody has proven them synced.
`lamina.wal.examination` reads every byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.disk.base import Disk
from lamina.errors import LaminaError, Unsupported, WalDamaged
from lamina.format.wal import Kind, SegmentHeader
from lamina.wal.reader import Clean, Damaged, Record, SegmentReader, Torn
from lamina.wal.scan import read_tail

_OF_NO_EPOCH = (Kind.TAKEOVER, Kind.ADOPT)  # what a process says when it starts


@dataclass(frozen=True, slots=True)
class Survey:
    """What stands before the end of a segment, or before its first damage."""

    path: str
    header: SegmentHeader | None
    size: int
    records: int
    entries: int
    epochs: tuple[int, int] | None  # the lowest and the highest
    end: Clean | Torn | LaminaError


def survey(disk: Disk, path: str, home: bytes) -> Survey:
    """Walk one segment of the home with this identity; NotFound if it is gone.

    What is wrong with a segment is its `end`, and is not raised.
    """
    header: SegmentHeader | None = None
    seen: list[Record] = []
    end: Clean | Torn | LaminaError
    try:
        reader = SegmentReader(disk, path)
        header = reader.header
        for record in reader.records(payloads=False):
            seen.append(record)  # noqa: PERF402  what stands before damage is kept
        found = read_tail(disk, path, home).end
        assert not isinstance(found, Damaged), "it is raised where it is judged"
        end = found
    except (WalDamaged, Unsupported) as error:
        end = error
    stop = end.end if isinstance(end, Clean | Torn) else disk.size(path)
    whole = [record for record in seen if record.end <= stop]
    epochs = [record.epoch for record in whole if record.kind not in _OF_NO_EPOCH]
    return Survey(
        path=path,
        header=header,
        size=disk.size(path),
        records=len(whole),
        entries=sum(record.header.count for record in whole),
        epochs=(min(epochs), max(epochs)) if epochs else None,
        end=end,
    )
