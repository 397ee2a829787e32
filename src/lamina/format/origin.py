"""origin.json: a base that was forked, and where the files are that it names and does not have.

Written once, before the first checkpoint of the fork exists; removed when no checkpoint of it names
a file of the origin any more. FORMAT.md section 2 is the specification.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.errors import Corrupt, Unsupported
from lamina.format import canonical
from lamina.format.fields import Fields
from lamina.ids import CheckpointId

VERSION = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork comes from, and what keeps its files there."""

    store: str  # an address, or a path relative to the folder of the fork's own store
    base: str
    checkpoint: CheckpointId
    savepoint: str  # its name in the origin's log: while it stands, the files stay
    folders: tuple[CheckpointId, ...]  # of the origin, whose files the forked checkpoint names


def encode_origin(origin: Origin) -> bytes:
    return canonical.encode_checked(
        {
            "version": VERSION,
            "store": origin.store,
            "base": origin.base,
            "checkpoint": str(origin.checkpoint),
            "savepoint": origin.savepoint,
            "folders": [str(id) for id in origin.folders],
        }
    )


def decode_origin(data: bytes, where: str) -> Origin:
    """Corrupt unless every byte is as it was written."""
    fields = Fields(canonical.decode_checked(data, where), where, error=Corrupt)
    version = fields.integer("version", least=1)
    if version > VERSION:
        message = f"the origin of a fork, version {version}; this Lamina knows {VERSION}"
        raise Unsupported(message, where=where)
    return Origin(
        store=fields.text("store"),
        base=fields.text("base"),
        checkpoint=fields.checkpoint_id("checkpoint"),
        savepoint=fields.text("savepoint"),
        folders=tuple(
            fields.parsed("folders", folder, CheckpointId.parse)
            for folder in fields.texts("folders")
        ),
    )
