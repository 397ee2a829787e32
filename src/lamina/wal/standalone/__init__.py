"""A core's log used on its own, as a library (seed 003): no pipeline of Lamina's writes like this.

writer   puts, deletes, batches, barriers and commits of one core; cut and reset by explicit calls
logset   the writers of several cores, and what all of them hold
replay   reading a log that decides on its own
"""

from lamina.wal.standalone.logset import LogSet, LogStatistics, read_up_to, statistics
from lamina.wal.standalone.replay import CoreReplay, replay_core
from lamina.wal.standalone.writer import CoreWalWriter

__all__ = [
    "CoreReplay",
    "CoreWalWriter",
    "LogSet",
    "LogStatistics",
    "read_up_to",
    "replay_core",
    "statistics",
]
