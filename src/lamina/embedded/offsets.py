"""Offsets as people give them, and as a COMMIT holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from lamina.format.manifest_model import ConnectorCheckpoint

Offsets: TypeAlias = Mapping[str, Mapping[str, str] | ConnectorCheckpoint]
"""By the name of the source: where it stands."""


def connectors(offsets: Offsets, epoch: int) -> dict[str, ConnectorCheckpoint]:
    return {
        name: value
        if isinstance(value, ConnectorCheckpoint)
        else ConnectorCheckpoint.with_offsets(epoch, value)
        for name, value in offsets.items()
    }
