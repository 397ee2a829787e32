"""The write-ahead log: per-core writers, readers, the driver's log of decisions."""

from lamina.wal.driver_log import (
    DriverLog,
    DriverSegmentContent,
    drop_driver_segments,
    read_driver_log,
)
from lamina.wal.home import Home, claim_home, read_home
from lamina.wal.logset import (
    LogSet,
    LogStatistics,
    drop_segments,
    droppable,
    read_up_to,
    statistics,
)
from lamina.wal.reader import Clean, Record, SegmentReader, Torn
from lamina.wal.repair import Repair, SegmentCheck, check_segment, plan_repair, repair
from lamina.wal.replay import CoreReplay, replay_core
from lamina.wal.writer import CoreWalWriter

__all__ = [
    "Clean",
    "CoreReplay",
    "CoreWalWriter",
    "DriverLog",
    "DriverSegmentContent",
    "Home",
    "LogSet",
    "LogStatistics",
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
    "read_up_to",
    "repair",
    "replay_core",
    "statistics",
]
