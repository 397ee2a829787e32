"""One epoch in the history of a pipeline, and the line that keeps it (FORMAT.md section 12).

The history is for people: no rule looks at it. A line that was torn or damaged is noticed and left
out. Fields may be added without a new version; a reader leaves out those that it does not know.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum

from google_crc32c import value as crc32c

from lamina.errors import Corrupt, Unsupported
from lamina.format import canonical
from lamina.format.canonical import Json

VERSION = 1
LINES_MAX_BYTES = 64 * 1024 * 1024
_CHECK = b',"check":"'


@dataclass(frozen=True, slots=True)
class EpochRow:
    """What one epoch did, how long that took, and how things stood when it was over."""

    epoch: int
    generation: int = 0
    time_ms: int = 0  # when it was over, Unix milliseconds
    took_us: int = 0
    waited_us: int = 0  # since the epoch before it was over, in the same process
    phases_us: Mapping[str, int] = field(default_factory=dict)  # plan, run, decide, ...
    streams_us: Mapping[str, int] = field(default_factory=dict)  # parts of `run`
    rows: Mapping[str, int] = field(default_factory=dict)  # read, by source
    rows_out: Mapping[str, int] = field(default_factory=dict)  # by sink
    late: int = 0
    bad: int = 0  # put aside, because they could not be read
    without_time: int = 0
    ahead: int = 0
    watermark: int | None = None  # microseconds
    watermarks: Mapping[str, int] = field(default_factory=dict)  # by source
    keys: int = 0  # rows of the runs of all state: at least its keys
    state_runs: int = 0
    state_bytes: int = 0
    wal_bytes: int = 0  # runs and small output that it has added to the log
    saved_epoch: int = 0  # that of the last checkpoint
    saved_id: str = ""
    sinks: Mapping[str, int] = field(default_factory=dict)  # the last epoch that each has
    sink_errors: Mapping[str, str] = field(default_factory=dict)  # why one is behind
    held: str = ""  # why the pipeline was held before this epoch
    why: str = ""  # what did not work at its end, and was tried again


class Form(Enum):
    """What a field holds."""

    INTEGER = "integer"
    OPTIONAL = "integer or null"
    TEXT = "text"
    COUNTS = "name -> integer"
    TEXTS = "name -> text"


_FORMS = {
    "int": Form.INTEGER,
    "int | None": Form.OPTIONAL,
    "str": Form.TEXT,
    "Mapping[str, int]": Form.COUNTS,
    "Mapping[str, str]": Form.TEXTS,
}
_TYPES = {
    Form.INTEGER: (int,),
    Form.OPTIONAL: (int, type(None)),
    Form.TEXT: (str,),
    Form.COUNTS: (dict,),
    Form.TEXTS: (dict,),
}
FORMS: Mapping[str, Form] = {each.name: _FORMS[str(each.type)] for each in fields(EpochRow)}


def shape(row: EpochRow) -> dict[str, Json]:
    """As JSON has it; also the answer of `lamina history --json`."""
    return {name: getattr(row, name) for name in FORMS}


def encode_line(row: EpochRow) -> bytes:
    """Canonical JSON with one field more at its end: the CRC-32C of what is before it."""
    data = canonical.encode({"version": VERSION, **shape(row)})[:-1]
    return data + _CHECK + b'%08x"}\n' % crc32c(data)


def decode_line(line: bytes, where: str) -> EpochRow:
    """The row of a line without its line feed; Corrupt if it is not whole, Unsupported if newer."""
    data, _, check = line.rpartition(_CHECK)
    if check != b'%08x"}' % crc32c(data):
        raise Corrupt("a line of the history is torn or damaged", where=where)
    try:
        value = json.loads(line)  # these are our own bytes, so nothing in them is ambiguous
    except ValueError:
        raise Corrupt("a line of the history is not JSON", where=where) from None
    if not isinstance(value, dict):
        raise Corrupt("a line of the history is not a JSON object", where=where)
    return row_of(value, where)


def pack(lines: bytes) -> bytes:
    """Many lines, compressed: the same lines give the same bytes."""
    return gzip.compress(lines, mtime=0)


def unpack(data: bytes, where: str) -> bytes:
    """What was compressed; Corrupt if it is damaged, cut, or larger than anybody writes."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        lines = unpacker.decompress(data, LINES_MAX_BYTES)
    except zlib.error as error:
        raise Corrupt(f"a file of the history is damaged: {error}", where=where) from None
    if not unpacker.eof:
        raise Corrupt("a file of the history is cut, or too large", where=where)
    return lines


def row_of(value: Mapping[str, object], where: str) -> EpochRow:
    """A row of its fields; those that are missing have their defaults."""
    version = value.get("version", VERSION)
    if version != VERSION:
        raise Unsupported(
            f"a history of version {version!r}; this release reads {VERSION}", where=where
        )
    known = {name: value[name] for name in FORMS if name in value}
    for name, found in known.items():
        if type(found) not in _TYPES[FORMS[name]]:
            raise Corrupt(f"the field {name!r} of an epoch is not {FORMS[name].value}", where=where)
    if "epoch" not in known:
        raise Corrupt("a line of the history names no epoch", where=where)
    return EpochRow(**known)  # type: ignore[arg-type]  # just checked
