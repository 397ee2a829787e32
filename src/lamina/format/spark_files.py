"""Names in a Structured Streaming checkpoint, and the checksums beside its files.

state/<operator>/<partition>/[<store>/]
    <v>.delta  <v>.snapshot                     HDFS-backed
    <v>[_<id>].zip  <v>[_<id>].changelog        RocksDB; from state format 2 on with an id
    SSTs/<name>.sst                             what the zips name

Version v is what batch v - 1 left behind. A change (.delta, .changelog) needs the version before.

.<name>.crc     of Hadoop on local disks: magic `crc` 0, bytes per chunk (4, big-endian), then the
                CRC32 of each chunk (4, big-endian)
<name>.crc      of Spark from 4.1 on, for state format 2: JSON with CRC32C and size
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass

import google_crc32c

from lamina.errors import Corrupt, DigestMismatch

DEFAULT_STORE = "default"
_STATE = re.compile(
    r"state/(?P<operator>\d+)/(?P<partition>\d+)/(?:(?P<store>[^/]+)/)?"
    r"(?P<version>\d+)(?:_(?P<id>[0-9A-Za-z-]+))?(?P<kind>\.delta|\.snapshot|\.zip|\.changelog)"
)
_TEMP = re.compile(r"(?:\..+\.[0-9a-f]{8}-[0-9a-f-]{27}\..*tmp|temp-.+|.+\.tmp)")
_WHOLE = (".snapshot", ".zip")
_MAGIC = b"crc\0"
_LZ4 = struct.Struct("<8sBIII")
_LZ4_MAGIC = b"LZ4Block"


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file with one version of one store, or with what that version has changed."""

    key: str
    operator: int
    partition: int
    store: str
    version: int
    id: str  # empty in state format 1
    kind: str

    @property
    def is_whole(self) -> bool:
        """Whether it needs no version before it."""
        return self.kind in _WHOLE


def parse_state_file(key: str) -> StateFile | None:
    """What the name of a file of state says; None if it is none."""
    found = _STATE.fullmatch(key)
    if found is None:
        return None
    return StateFile(
        key,
        int(found["operator"]),
        int(found["partition"]),
        found["store"] or DEFAULT_STORE,
        int(found["version"]),
        found["id"] or "",
        found["kind"],
    )


def is_temporary(key: str) -> bool:
    """Whether a crash has left it: Spark writes under such a name, and then renames."""
    return _TEMP.fullmatch(key.rpartition("/")[2].removesuffix(".crc")) is not None


def hadoop_sidecar(key: str) -> str:
    """Where Hadoop keeps the checksums of a file on a local disk."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def spark_sidecar(key: str) -> str:
    """Where Spark keeps the checksum of a file of state."""
    return f"{key}.crc"


def guarded_by(key: str) -> str:
    """The file that a sidecar is about; empty if this is no sidecar."""
    folder, slash, name = key.rpartition("/")
    if not name.endswith(".crc"):
        return ""
    name = name.removesuffix(".crc")
    return f"{folder}{slash}{name.removeprefix('.')}"


def check_hadoop(data: bytes, sidecar: bytes, where: str) -> None:
    """DigestMismatch unless *data* is what Hadoop's sidecar was written for."""
    chunk = int.from_bytes(sidecar[4:8], "big")
    if sidecar[:4] != _MAGIC or len(sidecar) % 4 or not chunk:
        raise Corrupt("its .crc is not one of Hadoop's", where=where)
    sums = [zlib.crc32(data[at : at + chunk]) for at in range(0, len(data), chunk)]
    if b"".join(each.to_bytes(4, "big") for each in sums) != sidecar[8:]:
        raise DigestMismatch("it does not match the checksum in its .crc", where=where)


def check_spark(data: bytes, sidecar: bytes, where: str) -> None:
    """Corrupt unless *data* is what Spark's sidecar was written for."""
    try:
        said = json.loads(sidecar)
        algorithm, value, size = said["algorithm"], said["value"], said["mainFileSize"]
    except (ValueError, KeyError, TypeError):
        raise Corrupt("its .crc is not one of Spark's", where=where) from None
    if algorithm != "CRC32C":
        raise Corrupt(f"its .crc names the algorithm {algorithm!r}", where=where)
    if size != len(data):
        raise Corrupt(f"{len(data)} bytes; its .crc says {size}", where=where)
    if google_crc32c.value(data) != value % (1 << 32):
        raise Corrupt("it does not match the checksum in its .crc", where=where)


def check_lz4(data: bytes, where: str) -> None:
    """Corrupt if a stream of LZ4 blocks, as Spark writes changes by default, ends too early.

    Other codecs have no frame that could be looked at.
    """
    at = 0
    if _LZ4_MAGIC.startswith(data):
        raise Corrupt("it ends before its first block", where=where)
    while data.startswith(_LZ4_MAGIC, at):
        if len(data) - at < _LZ4.size:
            raise Corrupt("it ends inside the header of a block", where=where)
        _, _, compressed, original, _ = _LZ4.unpack_from(data, at)
        at += _LZ4.size + compressed
        if not original:
            return
        if at >= len(data):
            raise Corrupt("it ends before its last block", where=where)
    if at:
        raise Corrupt(f"no block begins at byte {at}", where=where)
