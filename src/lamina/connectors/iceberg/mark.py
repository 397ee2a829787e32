"""The mark of an Iceberg sink: table properties that change in the commit of the rows (R6).

The same words stand in the summary of each snapshot, for people who read the history of a table.
Snapshots expire; properties stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamina.errors import Corrupt, Refused
from lamina.format.commit import Point
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.protocol.sinks import SinkPosition

PIPELINE_ID = "lamina.pipeline-id"
PIPELINE = "lamina.pipeline"
SINK = "lamina.sink"
GENERATION = "lamina.generation"
EPOCH = "lamina.epoch"
DIGEST = "lamina.digest"

NOWHERE = SinkPosition(NOBODY, 0, None)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a table stands, and the sink that has brought it there."""

    sink: str
    position: SinkPosition


def encode_mark(mark: Mark) -> dict[str, str]:
    at = mark.position
    words = {
        PIPELINE_ID: at.pipeline.id,
        PIPELINE: at.pipeline.name,
        SINK: mark.sink,
        GENERATION: str(at.generation),
    }
    if at.point is not None:
        words |= {EPOCH: str(at.point.epoch), DIGEST: at.point.digest}
    return words


def decode_mark(properties: Mapping[str, str], where: str) -> Mark:
    """Corrupt if somebody has changed it into what nobody writes."""
    if GENERATION not in properties:
        return Mark("", NOWHERE)
    owner = Owner(properties.get(PIPELINE_ID, ""), properties.get(PIPELINE, ""))
    point = None
    if EPOCH in properties:
        point = Point(_number(properties, EPOCH, where), properties.get(DIGEST, ""))
    generation = _number(properties, GENERATION, where)
    return Mark(properties.get(SINK, ""), SinkPosition(owner, generation, point))


def check_sink(mark: Mark, sink: str, where: str) -> None:
    """A table takes the rows of one sink: two would move one mark."""
    if mark.sink not in ("", sink):
        raise Refused(
            f"the table belongs to the sink {mark.sink!r}, not to {sink!r}",
            where=where,
            advice=f"Give each sink a table of its own. If {mark.sink!r} was renamed, set the table"
            f" property {SINK} to {sink!r}",
        )


def _number(properties: Mapping[str, str], name: str, where: str) -> int:
    text = properties[name]
    if not (text.isascii() and text.isdecimal()):
        message = f"the table property {name} is {text!r}, which is not a number"
        raise Corrupt(message, where=where, advice="Set it to what it was before it was changed")
    return int(text)
