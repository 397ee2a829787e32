"""Offsets as people give them, and as a COMMIT holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from lamina.errors import UsageError
from lamina.format.manifest_model import ConnectorCheckpoint

Offsets: TypeAlias = Mapping[str, Mapping[str, str] | ConnectorCheckpoint]
"""By the name of the source: where it stands."""


class Standing(Protocol):
    """Where sources, tables and time stand: a COMMIT says it, a manifest, what was recovered."""

    @property
    def source_offsets(self) -> Mapping[str, ConnectorCheckpoint]: ...

    @property
    def table_offsets(self) -> Mapping[str, ConnectorCheckpoint]: ...

    @property
    def watermark(self) -> int | None: ...

    @property
    def source_watermarks(self) -> Mapping[str, int]: ...


def connectors(offsets: Offsets, epoch: int) -> dict[str, ConnectorCheckpoint]:
    return {name: _connector(name, value, epoch) for name, value in offsets.items()}


def _connector(
    name: str, value: Mapping[str, str] | ConnectorCheckpoint, epoch: int
) -> ConnectorCheckpoint:
    if isinstance(value, ConnectorCheckpoint):
        return value
    if not isinstance(value, Mapping):
        raise UsageError(
            f"the offset of {name!r} is {value!r}, not a map from text to text",
            advice='As in commit(offsets={"orders": {"position": "42"}})',
        )
    return ConnectorCheckpoint.with_offsets(epoch, value)
