"""The mark of a sink: the last record of a compacted topic with one partition.

key     {"topic": ...}: the topic that the sink writes to
value   {"version", "topic", "sink", "pipeline", "pipeline_id", "generation", "epoch",
        "commit_digest", "rows", "before", "claim"}, canonical JSON; epoch 0: nothing published
        yet; before: the end of each partition of the topic when the epoch began; claim: the
        transaction of this mark has no rows, a process has taken the sink at that epoch

It is written in the transaction of the rows, under a transactional id that follows from the topic.
So whoever writes to the topic, of whichever pipeline, takes turns at the mark, and the newest
committed record says all. Topics have marks of their own: in a shared one, a transaction that
somebody else left open would hide all marks behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamina.errors import Corrupt, Refused, Unsupported
from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.fields import Fields
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.ids import fold
from lamina.protocol.sinks import SinkPosition

VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """Who writes to a topic, and how far it is."""

    topic: str
    sink: str
    pipeline: Owner
    generation: int
    point: Point | None
    rows: int = 0
    before: Mapping[int, int] = field(default_factory=dict)
    is_claim: bool = False  # its transaction has no rows

    @property
    def position(self) -> SinkPosition:
        return SinkPosition(self.pipeline, self.generation, self.point)


def position_of(mark: Mark | None) -> SinkPosition:
    return SinkPosition(NOBODY, 0, None) if mark is None else mark.position


def check_sink(mark: Mark | None, sink: str, where: str) -> None:
    """Refused if another sink has written the mark: the position would be of other rows."""
    if mark is not None and fold(mark.sink) != fold(sink):
        raise Refused(
            f"the topic {mark.topic!r} is written by the sink {mark.sink!r} of the pipeline "
            f"{mark.pipeline}, not by {sink!r}",
            where=where,
            advice="Give each sink a topic of its own; a sink that was renamed keeps its old name",
        )


def transactional_id(topic: str) -> str:
    """One for each topic: those who write to it fence one another, before they read the mark."""
    return f"lamina-{topic}"


def encode_key(topic: str) -> bytes:
    return canonical.encode({"topic": topic})


def encode_mark(mark: Mark) -> bytes:
    point = mark.point or Point(0, "")
    return canonical.encode(
        {
            "version": VERSION,
            "topic": mark.topic,
            "sink": mark.sink,
            "pipeline": mark.pipeline.name,
            "pipeline_id": mark.pipeline.id,
            "generation": mark.generation,
            "epoch": point.epoch,
            "commit_digest": point.digest,
            "rows": mark.rows,
            "before": {str(number): offset for number, offset in mark.before.items()},
            "claim": mark.is_claim,
        }
    )


def decode_mark(data: bytes, where: str) -> Mark:
    """Kafka's own checksums say that these are the bytes that were written."""
    fields = Fields(canonical.decode(data, where), where, error=Corrupt)
    version = fields.integer("version", least=1)
    if version > VERSION:
        message = f"the mark of a sink of version {version}; this Lamina knows {VERSION}"
        raise Unsupported(message, where=where)
    point = Point(fields.integer("epoch"), fields.text("commit_digest"))
    return Mark(
        topic=fields.text("topic"),
        sink=fields.text("sink"),
        pipeline=Owner(fields.text("pipeline_id"), fields.text("pipeline")),
        generation=fields.integer("generation"),
        point=point if point.epoch else None,
        rows=fields.integer("rows"),
        before={int(number): end for number, end in fields.integer_map("before").items()},
        is_claim=fields.flag("claim", False),
    )
