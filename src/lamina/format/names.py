"""Every name in a pipeline's folder, built and parsed here and nowhere else.

<base>/_latest
<base>/origin.json
<base>/log/<seq, 20 digits>.json
<base>/<checkpoint id>/begin.json
<base>/<checkpoint id>/manifest.json
<base>/<checkpoint id>/state.bin
<base>/<checkpoint id>/operators/<operator>/partition-<n>-<first>-<last epoch>.snap|.delta
<base>/<checkpoint id>/output/<sink>/<epoch>/<file>

Operator, sink and file names may be any text: what is not safe in a path is escaped, byte by byte,
as `!` and two hex digits. FORMAT.md section 2 is the specification.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from lamina.errors import BadName
from lamina.ids import CheckpointId

SEGMENT_BYTES_MAX = 200
BASE_BYTES_MAX = 400
_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LOG_NAME = re.compile(r"([0-9]{20})\.json")
_DIGITS = r"(0|[1-9][0-9]{0,19})"  # as many as 64 bits need; int() refuses thousands of them
_RUN_NAME = re.compile(rf"partition-{_DIGITS}-{_DIGITS}-{_DIGITS}\.(snap|delta)")
_NUMBER = re.compile(_DIGITS)
_NUMBER_END = 10**20
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"(?:[A-Za-z0-9._-]|![0-9A-F]{2})+")

RunKind = Literal["snap", "delta"]


@dataclass(frozen=True, slots=True)
class LatestName:
    """The hint."""


@dataclass(frozen=True, slots=True)
class OriginName:
    """Where the files are that this base names and does not have: it is a fork."""


@dataclass(frozen=True, slots=True)
class LogName:
    seq: int


@dataclass(frozen=True, slots=True)
class BeginName:
    id: CheckpointId


@dataclass(frozen=True, slots=True)
class ManifestName:
    id: CheckpointId


@dataclass(frozen=True, slots=True)
class SidecarName:
    """Where operator states too large for the manifest are, one after the other."""

    id: CheckpointId


@dataclass(frozen=True, slots=True)
class RunName:
    """Where the state of one operator partition over a range of epochs is."""

    id: CheckpointId
    operator: str
    partition: int
    first_epoch: int
    last_epoch: int
    kind: RunKind


@dataclass(frozen=True, slots=True)
class OutputName:
    """Where output that a sink has not yet published is."""

    id: CheckpointId
    sink: str
    epoch: int
    file: str


FileName = SidecarName | RunName | OutputName
"""Of what manifests name."""
Name = LatestName | OriginName | LogName | BeginName | ManifestName | FileName

_FILE_OF: dict[type[BeginName | ManifestName | SidecarName], str] = {
    BeginName: "begin.json",
    ManifestName: "manifest.json",
    SidecarName: "state.bin",
}
_KIND_OF = {file: kind for kind, file in _FILE_OF.items()}


class CheckpointPaths:
    """Builds and parses the keys below one base; computes only, never performs I/O."""

    def __init__(self, base: str = "") -> None:
        self.base = normalise_base(base)

    def latest_pointer(self) -> str:
        return self.absolute("_latest")

    def origin(self) -> str:
        return self.absolute("origin.json")

    def log_dir(self) -> str:
        return self.absolute("log")

    def log_entry(self, seq: int) -> str:
        return self.absolute(relative(LogName(seq)))

    def checkpoint_dir(self, id: CheckpointId) -> str:
        return self.absolute(str(id))

    def begin(self, id: CheckpointId) -> str:
        return self.absolute(relative(BeginName(id)))

    def manifest(self, id: CheckpointId) -> str:
        return self.absolute(relative(ManifestName(id)))

    def sidecar(self, id: CheckpointId) -> str:
        return self.absolute(relative(SidecarName(id)))

    def snapshot(
        self, id: CheckpointId, operator: str, partition: int, *, first: int, last: int
    ) -> str:
        return self.absolute(relative(RunName(id, operator, partition, first, last, "snap")))

    def delta(
        self, id: CheckpointId, operator: str, partition: int, *, first: int, last: int
    ) -> str:
        return self.absolute(relative(RunName(id, operator, partition, first, last, "delta")))

    def output(self, id: CheckpointId, sink: str, *, epoch: int, file: str) -> str:
        return self.absolute(relative(OutputName(id, sink, epoch, file)))

    def absolute(self, relative_path: str) -> str:
        """The key in the store of a path relative to the base, as manifests hold it."""
        return f"{self.base}/{relative_path}" if self.base else relative_path

    def relative(self, key: str) -> str | None:
        """The path relative to the base, or None for a key outside it."""
        if not self.base:
            return key
        return key.removeprefix(self.base + "/") if key.startswith(self.base + "/") else None

    def parse(self, key: str) -> Name | None:
        """What a key stands for, or None if it is not one of ours."""
        path = self.relative(key)
        return None if path is None else parse(path)

    def __repr__(self) -> str:
        return f"CheckpointPaths({self.base!r})"


def relative(name: Name) -> str:
    """The path of a name relative to the base; `parse` is its inverse."""
    match name:
        case LatestName():
            return "_latest"
        case OriginName():
            return "origin.json"
        case LogName(seq):
            _check_number(seq)
            return f"log/{seq:020d}.json"
        case BeginName(id) | ManifestName(id) | SidecarName(id):
            return f"{id}/{_FILE_OF[type(name)]}"
        case RunName(id, operator, partition, first, last, kind):
            for number in (partition, first, last):
                _check_number(number)
            if first > last:
                raise BadName(f"a run cannot begin with epoch {first} and end with epoch {last}")
            file = f"partition-{partition}-{first}-{last}.{kind}"
            return f"{id}/operators/{escape(operator)}/{file}"
        case OutputName(id, sink, epoch, file):
            _check_number(epoch)
            return f"{id}/output/{escape(sink)}/{epoch}/{escape(file)}"


def _check_number(number: int) -> None:
    if not 0 <= number < _NUMBER_END:
        raise BadName(f"{number} cannot be part of a name", advice="Numbers in names are 0 to 2^64")


def parse(path: str) -> Name | None:
    """What a path relative to the base stands for, or None if it is not one of ours."""
    match path.split("/"):
        case ["_latest"]:
            return LatestName()
        case ["origin.json"]:
            return OriginName()
        case ["log", file] if found := _LOG_NAME.fullmatch(file):
            return LogName(int(found[1]))
        case [folder, *rest] if id := parse_id(folder):
            return _parse_in_checkpoint(id, rest)
        case _:
            return None


def _parse_in_checkpoint(id: CheckpointId, rest: list[str]) -> Name | None:
    match rest:
        case [file] if kind := _KIND_OF.get(file):
            return kind(id)
        case ["operators", escaped, file] if found := _RUN_NAME.fullmatch(file):
            operator = unescape(escaped)
            partition, first, last = int(found[1]), int(found[2]), int(found[3])
            if operator is None or first > last:
                return None
            return RunName(id, operator, partition, first, last, _kind(found[4]))
        case ["output", escaped, epoch, file] if _NUMBER.fullmatch(epoch):
            sink, name = unescape(escaped), unescape(file)
            return None if sink is None or name is None else OutputName(id, sink, int(epoch), name)
        case _:
            return None


def base_of_file(key: str) -> str | None:
    """The base of a file that manifests name, whatever that base is; None for any other key."""
    parts = key.split("/")
    for at in range(len(parts) - 1, 0, -1):
        name = parse("/".join(parts[at - 1 :]))
        if isinstance(name, FileName):
            return "/".join(parts[: at - 1])
    return None


@lru_cache(maxsize=1024)  # a manifest names few folders, thousands of times
def parse_id(folder: str) -> CheckpointId | None:
    """The checkpoint a folder belongs to, or None for a folder that is not one."""
    try:
        return CheckpointId.parse(folder)
    except Exception:  # noqa: BLE001  a folder of somebody else is not an error
        return None


def escape(name: str) -> str:
    """A path segment for any text; `unescape` is its inverse."""
    try:
        raw = name.encode("utf-8")
    except UnicodeEncodeError:
        raise BadName(f"a name holds a lone surrogate: {name[:80]!r}") from None
    escaped = "".join(chr(b) if b in _SAFE else f"!{b:02X}" for b in raw)
    if escaped.startswith("."):
        escaped = "!2E" + escaped[1:]  # no `.`, no `..`, no hidden file
    if not escaped:
        raise BadName("a name is empty")
    if len(escaped) > SEGMENT_BYTES_MAX:
        raise BadName(
            f"a name takes {len(escaped)} bytes in a path, {SEGMENT_BYTES_MAX} at most: "
            f"{name[:40]!r}..."
        )
    return escaped


def check_name(name: str, *, room: int = 0) -> None:
    """Raise BadName unless *name* can be a path segment, with *room* bytes for what is added."""
    size = len(escape(name))
    if size + room > SEGMENT_BYTES_MAX:
        raise BadName(
            f"a name takes {size} bytes in a path, {SEGMENT_BYTES_MAX - room} at most: "
            f"{name[:40]!r}..."
        )


@lru_cache(maxsize=1024)
def unescape(segment: str) -> str | None:
    """The text that `escape` made this segment of, or None if it made none."""
    if not _ESCAPED.fullmatch(segment):
        return None
    raw = re.sub(r"!([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), segment)
    try:
        name = raw.encode("latin-1").decode("utf-8")
        return name if escape(name) == segment else None
    except (UnicodeDecodeError, BadName):
        return None


def normalise_base(base: str) -> str:
    """A base as a key prefix: no slash at either end, none doubled, no scheme, no bucket."""
    path = base
    if url := _URL.fullmatch(base):
        path = url[1]
        if "?" in path or "#" in path:
            raise BadName(f"the base {base[:80]!r} holds a query or a fragment")
    segments = [part for part in path.split("/") if part]
    if problem := path_problem("/".join(segments)) if segments else "":
        raise BadName(f"the base {base[:80]!r} {problem}")
    normalised = "/".join(segments)
    if len(normalised.encode("utf-8")) > BASE_BYTES_MAX:
        raise BadName(f"the base is longer than {BASE_BYTES_MAX} bytes: {base[:80]!r}...")
    return normalised


def path_problem(path: str) -> str:
    """Why *path* is not a portable path inside a store; empty if it is one."""
    if path.startswith("/") or _URL.match(path):
        return "is absolute"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"holds the segment {part!r}"
        if any(ord(c) < 0x20 or c == "\\" or 0xD800 <= ord(c) < 0xE000 for c in part):
            return f"holds a forbidden character in {part[:40]!r}"
    return ""


def _kind(text: str) -> RunKind:
    return "snap" if text == "snap" else "delta"
