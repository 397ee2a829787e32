"""The log that a Parquet sink keeps beside its rows; FORMAT.md section 9 is the specification.

<path>/epoch-<epoch>/part-<5 digits>.parquet    the rows of one epoch; no folder if it has none
<path>/epoch-<epoch>/_lamina.json               which epoch this is
<path>/epoch-<epoch>-<rewind>/                  one that was taken back, and is shown again
<path>/.taken-back-<rewind>-<epoch>/            one that is not shown since a rewind
<path>/.epoch-<epoch>-<generation>-<tag>/       the same before it is decided, and until it is shown
<path>/_lamina/log/<number>.json                fences and publications: the highest one counts
<path>/_lamina/99999999999999999999.json        says to older releases that they cannot read this

What older releases wrote: an entry for each epoch, and fences beside them.

<path>/_lamina/<epoch>.json
<path>/_lamina/fences/<generation>.json, and at first <path>/_lamina/fence-<generation>.json
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

FOLDER = "_lamina"
LOG = "_lamina/log"
OLD_FENCES = "_lamina/fences"
MARKER = "_lamina.json"
VERSION = 2
VERSION_MAX = 3
"""Of a log in which rows were taken back: an older release does not know what such a sink shows."""
BARRIER = f"{10**20 - 1}.json"
"""Among the entries of older releases it is the highest, and has nothing that they look for."""

_NUMBER = re.compile(r"([0-9]{20})\.json")
_OLD_FENCE = re.compile(r"fence-([0-9]{20})\.json")
_VISIBLE = re.compile(r"epoch-([0-9]{20})(?:-([0-9]{20}))?")
_HIDDEN = re.compile(r"\.taken-back-([0-9]{20})-([0-9]{20})")
_PREPARED = re.compile(r"\.epoch-[0-9]{20}-([0-9]{20})(?:-[0-9a-f]+)?")


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """Where a sink stands after this entry; *prepared* is what becomes the epoch's folder."""

    pipeline: Owner
    generation: int
    point: Point | None
    prepared: str = ""
    taken_back: tuple[TakenBack, ...] = ()  # the rewinds that took rows back, oldest first


@dataclass(frozen=True, slots=True)
class EpochFolder:
    """The folder of an epoch by its name; *rewind* has given it that name, or 0 none has."""

    epoch: int
    rewind: int
    is_visible: bool

    @property
    def name(self) -> str:
        if not self.is_visible:
            return f".taken-back-{self.rewind:020d}-{self.epoch:020d}"
        return visible(self.epoch) + (f"-{self.rewind:020d}" if self.rewind else "")


def numbered(number: int) -> str:
    return f"{number:020d}.json"


def parse_numbered(name: str) -> int | None:
    """The number of a log entry, an old entry or an old fence; None of any other name."""
    found = _NUMBER.fullmatch(name)
    return int(found[1]) if found and name != BARRIER else None


def parse_old_fence(name: str) -> int | None:
    found = _OLD_FENCE.fullmatch(name)
    return int(found[1]) if found else None


def visible(epoch: int) -> str:
    return f"epoch-{epoch:020d}"


def parse_epoch_folder(name: str) -> EpochFolder | None:
    """None of any other name."""
    if (shown := _VISIBLE.fullmatch(name)) is not None:
        return EpochFolder(int(shown[1]), int(shown[2] or 0), True)
    if (hidden := _HIDDEN.fullmatch(name)) is not None:
        return EpochFolder(int(hidden[2]), int(hidden[1]), False)
    return None


def prepared(epoch: int, generation: int, tag: str) -> str:
    return f".epoch-{epoch:020d}-{generation:020d}-{tag}"


def parse_prepared(name: str) -> int | None:
    """The generation that made a folder which is not visible yet."""
    found = _PREPARED.fullmatch(name)
    return int(found[1]) if found else None


def part(number: int) -> str:
    return f"part-{number:05d}.parquet"


def encode_barrier() -> bytes:
    return canonical.encode_checked({"version": VERSION})


def encode_entry(entry: SinkEntry) -> bytes:
    value: dict[str, Json] = {
        "version": VERSION_MAX if entry.taken_back else VERSION,
        "pipeline": entry.pipeline.name,
        "generation": entry.generation,
        "point": None
        if entry.point is None
        else {"epoch": entry.point.epoch, "digest": entry.point.digest},
        "prepared": entry.prepared,
        **encode_taken_back(entry.taken_back),
    }
    if entry.pipeline.id:
        value["pipeline_id"] = entry.pipeline.id
    return canonical.encode_checked(value)


def decode_entry(data: bytes, where: str) -> SinkEntry:
    """Corrupt unless every byte is as it was written."""
    fields = Fields(canonical.decode(data, where), where, error=Corrupt)
    version = fields.integer("version", least=1)
    if version > VERSION_MAX:
        message = f"the log of a sink of version {version}; this Lamina knows {VERSION_MAX}"
        raise Unsupported(message, where=where)
    canonical.decode_checked(data, where)
    at = fields.optional_object("point")
    return SinkEntry(
        Owner(fields.text("pipeline_id", ""), fields.text("pipeline")),
        fields.integer("generation"),
        None if at is None else Point(at.integer("epoch"), at.text("digest")),
        fields.text("prepared"),
        decode_taken_back(fields),
    )


def encode_marker(name: str, point: Point, rows: int) -> bytes:
    """As older releases wrote it, there also as the entry of the epoch; *name* is for people."""
    return canonical.encode(
        {
            "version": 1,
            "pipeline": name,
            "epoch": point.epoch,
            "commit_digest": point.digest,
            "rows": rows,
        }
    )


def marker_rows(data: bytes, where: str) -> int:
    """How many rows the folder of a marker has."""
    fields = Fields(canonical.decode(data, where), where, error=Corrupt)
    rows: int = fields.integer("rows")
    return rows


def decode_old_entry(data: bytes, where: str) -> tuple[str, Point]:
    fields = Fields(canonical.decode(data, where), where, error=Corrupt)
    return fields.text("pipeline"), Point(fields.integer("epoch"), fields.text("commit_digest"))
