"""The write-ahead log of a pipeline: a log per core, and the driver's log of decisions.

home         the folder, with an identity and one owner at a time
driver_log   COMMITs: what is acknowledged
core_log     what tasks append; chain and segment are the files below it
reader       records; scan: how segments end; dropping: those that nobody needs any more
survey       a segment by its headers; examination: every byte of it; repair: a person's verb
lost_segments, strangers   files that are missing, and files that nobody knows
standalone   a core's log without a driver, for programs that want only that
"""

from typing import TYPE_CHECKING

from lamina.lazy import exports
from lamina.wal.driver_log import (
    DriverLog,
    DriverSegmentContent,
    drop_driver_segments,
    read_driver_log,
)
from lamina.wal.dropping import drop_segments, droppable
from lamina.wal.home import Home, claim_home, read_home
from lamina.wal.reader import Clean, Record, SegmentReader, Torn
from lamina.wal.repair import Repair, SegmentCheck, check_segment, plan_repair, repair

if TYPE_CHECKING:
    from lamina.wal.core_log import CoreLog
else:  # it writes Arrow, which is slow to import; whoever reads decisions needs none
    __getattr__ = exports(__name__, {"lamina.wal.core_log": "CoreLog"})

__all__ = [
    "Clean",
    "CoreLog",
    "DriverLog",
    "DriverSegmentContent",
    "Home",
    "Record",
    "Repair",
    "SegmentCheck",
    "SegmentReader",
    "Torn",
    "check_segment",
    "claim_home",
    "drop_driver_segments",
    "drop_segments",
    "droppable",
    "plan_repair",
    "read_driver_log",
    "read_home",
    "repair",
]
