"""The log of a Parquet sink in an object store; FORMAT.md section 10 is the specification.

<path>/data/<epoch>/<generation>-<tag>-<5 digits>.parquet   rows of an epoch, if an entry names them
<path>/_lamina/log/<number>.json                            entries, from 1 on, without a hole
<path>/_lamina/folds/<width>/<number>.json                  the files of that many entries

Numbers have twenty digits. An entry is never changed and never deleted, so the highest one says
where the sink stands, and all of them together what a reader sees. A fold says nothing new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lamina.errors import Corrupt, Unsupported
from lamina.format import canonical
from lamina.format.canonical import Json
from lamina.format.commit import Point
from lamina.format.fields import Fields
from lamina.format.pipeline_record import Owner
from lamina.format.taken_back import TakenBack, decode_taken_back, encode_taken_back

VERSION = 1
VERSION_MAX = 2
"""Of an entry after rows were taken back: an older reader would show them."""
DATA = "data"
TAG_DIGITS = 16
WIDTHS = (10_000, 100)
"""Of folds, widest first: a reader of a million epochs asks for 300 objects."""

_DATA = re.compile(r"data/([0-9]{20})/([0-9]{20})-[0-9a-f]+-[0-9]{5}\.parquet")


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """A file that readers read."""

    path: str  # below the sink's own
    size: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """Where a sink stands after this entry, and the files that it adds; a fence adds none."""

    pipeline: Owner
    generation: int
    point: Point | None
    files: tuple[ObjectFile, ...] = ()
    taken_back: tuple[TakenBack, ...] = ()  # the rewinds that took rows back, oldest first


def entry_key(number: int) -> str:
    return f"_lamina/log/{number:020d}.json"


def fold_key(width: int, first: int) -> str:
    """Of the entries from *first* on; *first* - 1 is a multiple of *width*."""
    return f"_lamina/folds/{width}/{first:020d}.json"


def data_key(epoch: int, generation: int, sha256: str, number: int) -> str:
    """The same bytes have the same name, so that a file can be put twice."""
    return f"{DATA}/{epoch:020d}/{generation:020d}-{sha256[:TAG_DIGITS]}-{number:05d}.parquet"


def parse_data_key(key: str) -> tuple[int, int] | None:
    """The epoch of a file and the generation that put it; None of any other key."""
    found = _DATA.fullmatch(key)
    return (int(found[1]), int(found[2])) if found else None


def encode_entry(entry: ObjectEntry) -> bytes:
    value: dict[str, Json] = {
        "version": VERSION_MAX if entry.taken_back else VERSION,
        "pipeline": entry.pipeline.name,
        "pipeline_id": entry.pipeline.id,
        "generation": entry.generation,
        "point": None
        if entry.point is None
        else {"epoch": entry.point.epoch, "digest": entry.point.digest},
        "files": _files(entry.files),
        **encode_taken_back(entry.taken_back),
    }
    return canonical.encode_checked(value)


def decode_entry(data: bytes, where: str) -> ObjectEntry:
    """Corrupt unless every byte is as it was written."""
    fields = _open(data, where)
    at = fields.optional_object("point")
    return ObjectEntry(
        Owner(fields.text("pipeline_id"), fields.text("pipeline")),
        fields.integer("generation"),
        None if at is None else Point(at.integer("epoch"), at.text("digest")),
        fields.list_of("files", _file),
        decode_taken_back(fields),
    )


def encode_fold(first: int, last: int, files: tuple[ObjectFile, ...]) -> bytes:
    return canonical.encode_checked(
        {"version": VERSION, "first": first, "last": last, "files": _files(files)}
    )


def decode_fold(data: bytes, where: str) -> tuple[ObjectFile, ...]:
    return _open(data, where).list_of("files", _file)


def _open(data: bytes, where: str) -> Fields:
    fields = Fields(canonical.decode(data, where), where, error=Corrupt)
    version = fields.integer("version", least=1)
    if version > VERSION_MAX:
        message = f"the log of a sink of version {version}; this Lamina knows {VERSION_MAX}"
        raise Unsupported(message, where=where)
    canonical.decode_checked(data, where)
    return fields


def _files(files: tuple[ObjectFile, ...]) -> list[Json]:
    return [
        {"path": file.path, "size": file.size, "sha256": file.sha256, "rows": file.rows}
        for file in files
    ]


def _file(fields: Fields) -> ObjectFile:
    return ObjectFile(
        fields.text("path"), fields.integer("size"), fields.text("sha256"), fields.integer("rows")
    )
