"""The embedded store: keyed state in a Python program, without Spark. `lamina.open`.

opening    recovery first, then the store
store      commit, checkpoint, rewind
table      one table: write, delete, get, scan, expire; byte_table: the one of bytes
snapshot   reading a checkpoint beside a running writer
"""

from lamina.embedded.opening import open_store as open_state
from lamina.embedded.snapshot import Snapshot, open_snapshot
from lamina.embedded.store import EmbeddedStore
from lamina.embedded.table import Table

__all__ = ["EmbeddedStore", "Snapshot", "Table", "open_snapshot", "open_state"]
