"""<home>/sinks/<name>.json: where a sink without a memory of its own stands. FORMAT.md section 7.

Version 1 had no checksum: a flipped digit was another epoch, or another generation.
"""

from __future__ import annotations

from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.fields import open_checked
from lamina.format.pipeline_record import Owner
from lamina.format.sink_log import SinkEntry

VERSION = 2


def encode_position(at: SinkEntry) -> bytes:
    point = at.point or Point(0, "")
    return canonical.encode_checked(
        {
            "version": VERSION,
            "pipeline": at.pipeline.name,
            "pipeline_id": at.pipeline.id,
            "generation": at.generation,
            "epoch": point.epoch,
            "commit_digest": point.digest,
        }
    )


def decode_position(data: bytes, where: str) -> SinkEntry:
    """Corrupt unless every byte is as it was written; a file of version 1 must make sense."""
    fields = open_checked(data, where, what="the position of a sink", known=VERSION)
    point = Point(fields.integer("epoch"), fields.text("commit_digest"))
    pipeline = Owner(fields.text("pipeline_id", ""), fields.text("pipeline"))
    return SinkEntry(pipeline, fields.integer("generation"), point if point.epoch else None)
