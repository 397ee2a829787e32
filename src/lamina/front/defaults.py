"""What a run does that nobody has told otherwise; importing it costs nothing."""

from __future__ import annotations

PARTITIONS = 2
REMOTE_INTERVAL_S = 10.0
"""Of a home in an object store: there an epoch costs requests, whatever is in it."""
