"""Every name in a home, the folder of a pipeline's write-ahead log; built and parsed here.

<home>/home.json                                 identity
<home>/lock                                      held for life by the process that owns the home
<home>/driver/<generation>-<number>.wal          20 digits each; who claimed the home, in parts
<home>/core-<p>/lock                             held while a task appends
<home>/core-<p>/<generation>-<epoch>-<tag>.wal   20 digits each; the tag tells twins apart, and
                                                 ends in .own if its writer had no lock
<home>/core-<p>/<segment>.cut-<offset>           what a repair cut off
<home>/core-<p>/<segment>.cut-<offset>-<next>    what a truncate cut off, of sequences below <next>
<home>/preflight-<id>                            for a moment: do executors see this folder?
<home>/staged/<epoch>/of-<stream>-<p>-<tag>.parquet   20 and 5 digits; output of one task
<home>/state/<process>/                          run files of the process that has the home
<home>/sinks/<sink>.json                         position of a sink that cannot remember it
<home>/sources/<source>.json                     what a source has made outside, or is about to
<home>/journals/<source>/                        rows of the epoch that is being run, for its tasks
<home>/status.json                               what the process says of itself
<home>/requests/<what>                           what a person asks of it
<home>/history/<epoch>-<generation>.jsonl        20 digits each; the newest epochs, for people
<home>/history/<epoch>-<generation>.jsonl.gz     older ones; the name has the first of them
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lamina.format.names import escape, unescape

IDENTITY = "home.json"
HOME_LOCK = "lock"
DRIVER = "driver"
OWN = ".own"
STAGED, STATE, SINKS = "staged", "state", "sinks"
SOURCES, JOURNALS = "sources", "journals"
STATUS, REQUESTS = "status.json", "requests"
HISTORY, LINES, PACKED = "history", "jsonl", "jsonl.gz"
_EPOCH = re.compile(r"(?:[0-9]{20}-)?([0-9]{20})")
_CORE = re.compile(r"core-(0|[1-9][0-9]{0,8})")
_DRIVER_SEGMENT = re.compile(r"driver/([0-9]{20})-([0-9]{20})\.wal")
_CORE_SEGMENT = re.compile(r"core-(0|[1-9][0-9]{0,8})/([0-9]{20})-([0-9]{20})-([^/]+)\.wal")

_HISTORY = re.compile(rf"([0-9]{{20}})-([0-9]{{20}})\.({re.escape(LINES)}|{re.escape(PACKED)})")
_CUT = re.compile(r"(.+\.wal)\.cut-[0-9]+(?:-([0-9]{1,20}))?\+*")


@dataclass(frozen=True, slots=True)
class DriverSegment:
    generation: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class CoreSegment:
    """*epoch* is the one it was created in; *tag* names run and task attempt."""

    core: int
    generation: int
    epoch: int
    tag: str

    @property
    def own(self) -> bool:
        """Its writer had no lock and may still append: nobody else ever does."""
        return self.tag.endswith(OWN)


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that were cut off *segment*; every entry of theirs has a number below *sequence*."""

    segment: str
    sequence: int | None  # a repair does not say


@dataclass(frozen=True, slots=True, order=True)
class HistoryFile:
    """Some epochs from *first* on, written by the process of a generation."""

    first: int
    generation: int
    kind: str = LINES  # or PACKED

    @property
    def path(self) -> str:
        return f"{HISTORY}/{self.first:020d}-{self.generation:020d}.{self.kind}"


def core_folder(core: int) -> str:
    return f"core-{core}"


def core_lock(core: int) -> str:
    return f"core-{core}/lock"


def parse_core_folder(name: str) -> int | None:
    found = _CORE.fullmatch(name)
    return int(found[1]) if found else None


def segment_path(segment: DriverSegment | CoreSegment) -> str:
    match segment:
        case DriverSegment(generation, number):
            return f"{DRIVER}/{generation:020d}-{number:020d}.wal"
        case CoreSegment(core, generation, epoch, tag):
            return f"core-{core}/{generation:020d}-{epoch:020d}-{escape(tag)}.wal"


def parse_segment(path: str) -> DriverSegment | CoreSegment | None:
    """What a path stands for, or None if it is not a segment."""
    if found := _DRIVER_SEGMENT.fullmatch(path):
        return DriverSegment(int(found[1]), int(found[2]))
    if found := _CORE_SEGMENT.fullmatch(path):
        tag = unescape(found[4])
        if tag is not None:
            return CoreSegment(int(found[1]), int(found[2]), int(found[3]), tag)
    return None


def cut_path(segment: str, offset: int, sequence: int | None = None) -> str:
    """Where the bytes go that somebody cut off a segment at *offset*."""
    return f"{segment}.cut-{offset}" + ("" if sequence is None else f"-{sequence}")


def parse_cut(path: str) -> Cut | None:
    """What was cut off a segment, or None if this is not that."""
    found = _CUT.fullmatch(path)
    if found is None or parse_segment(found[1]) is None:
        return None
    return Cut(found[1], int(found[2]) if found[2] else None)


def preflight_path(nonce: str) -> str:
    """The file by which executors show that they see the driver's home; it holds its own id."""
    return f"preflight-{nonce}"


def staged_folder(epoch: int) -> str:
    """Where the output of an epoch is until every sink has it."""
    return f"{STAGED}/{epoch:020d}"


def staged_path(epoch: int, stream: str, partition: int, tag: str) -> str:
    """A file of output; *tag* names run and task attempt.

    It does not begin with the stream's name: Spark passes over files that begin with `_`.
    """
    return f"{staged_folder(epoch)}/of-{escape(stream)}-{partition:05d}-{escape(tag)}.parquet"


def output_path(segment: str, offset: int) -> str:
    """A file of output that is a record of the log."""
    return f"{segment}:{offset}"


def parse_output_path(path: str) -> tuple[str, int] | None:
    """The segment and the offset of the record, or None if the file is one of its own."""
    segment, _, offset = path.rpartition(":")
    return (segment, int(offset)) if parse_segment(segment) and offset.isdecimal() else None


def parse_staged_folder(name: str) -> int | None:
    """The epoch of a folder below `staged`; of a home that was remote it has a generation, too."""
    found = _EPOCH.fullmatch(name)
    return int(found[1]) if found else None


def state_folder(process: str) -> str:
    return f"{STATE}/{process}"


def sink_position_path(sink: str) -> str:
    return f"{SINKS}/{escape(sink)}.json"


def source_note_path(source: str) -> str:
    return f"{SOURCES}/{escape(source)}.json"


def journal_folder(source: str) -> str:
    """Of the process that has the home; what another one has left there means nothing."""
    return f"{JOURNALS}/{escape(source)}"


def parse_sink_position(name: str) -> str | None:
    """The sink that a file in the folder of positions is about; None of any other name."""
    return unescape(name.removesuffix(".json")) if name.endswith(".json") else None


def request_path(what: str) -> str:
    return f"{REQUESTS}/{what}"


def parse_history_file(name: str) -> HistoryFile | None:
    """What a file in the folder of the history stands for; None of any other name."""
    found = _HISTORY.fullmatch(name)
    return HistoryFile(int(found[1]), int(found[2]), found[3]) if found else None
