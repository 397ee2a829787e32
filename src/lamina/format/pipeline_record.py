"""Which pipeline something belongs to, and what that pipeline was when it was started.

An id is made once, at the first start of a pipeline, and never changes. Names of files do: they are
for people, and for what was written before pipelines had ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamina.format.canonical import Json
from lamina.format.fields import Fields


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline by its id, and the name it had then; what is older than ids has only the name."""

    id: str = ""
    name: str = ""

    def __str__(self) -> str:
        """For messages: 'orders' (id 3f0c...)."""
        if not self.id:
            return repr(self.name)
        return f"{self.name!r} (id {self.id})" if self.name else f"with the id {self.id}"

    def __bool__(self) -> bool:
        return bool(self.id or self.name)


NOBODY = Owner()
"""Of what no pipeline has claimed yet."""


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """What a process wrote down of its pipeline when it took over.

    *sources*, *streams* and *sinks* are names, each with a digest of its definition; an empty
    digest says nothing about the definition.
    """

    owner: Owner
    hash: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)  # of a newer release, kept as found


def encode_owner(owner: Owner) -> dict[str, Json]:
    return {"id": owner.id, "name": owner.name}


def decode_owner(fields: Fields) -> Owner:
    return Owner(fields.text("id"), fields.text("name"))


def encode_record(record: PipelineRecord) -> dict[str, Json]:
    return {
        **encode_owner(record.owner),
        "hash": record.hash,
        "sources": dict(record.sources),
        "streams": dict(record.streams),
        "sinks": dict(record.sinks),
    } | dict(record.extra)


def decode_record(fields: Fields) -> PipelineRecord:
    return PipelineRecord(
        owner=decode_owner(fields),
        hash=fields.text("hash"),
        sources=fields.text_map("sources"),
        streams=fields.text_map("streams"),
        sinks=fields.text_map("sinks"),
        extra=fields.rest(),
    )
