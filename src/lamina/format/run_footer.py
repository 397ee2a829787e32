"""The footer of a run file; the layout is docs/FORMAT.md section 8.

schema message | one record batch per block | end of stream | footer | tail of 24 bytes

Tail, little-endian:
offset  size  field
0       8     size of the footer in bytes
8       4     CRC32C of the footer
12      4     zero
16      8     magic "LAMRUN01"

The footer is canonical JSON: what the run holds, where its blocks lie and what proves them, the
first and last slot of each (so that the order can be checked), how many rows each vnode has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import google_crc32c

from lamina.errors import Corrupt, RunDamaged, Unsupported
from lamina.format.canonical import Json, decode, encode, sha256_hex
from lamina.format.fields import Fields

RUN_VERSION: Final = 1
MAGIC: Final = b"LAMRUN01"
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"  # Arrow's; no checksum covers it
FOOTER_BYTES_MAX: Final = 64 * 1024 * 1024
_TAIL = struct.Struct("<QI4s8s")
TAIL_SIZE: Final = 24
assert _TAIL.size == TAIL_SIZE, "FORMAT.md says a tail is twenty-four bytes"
_BLOCK_FIELDS: Final = 8


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block is, what proves it, and what is in it."""

    offset: int
    size: int
    crc: int
    rows: int
    first_slot: int
    last_slot: int
    time_min: int | None = None
    time_max: int | None = None

    @property
    def end(self) -> int:
        return self.offset + self.size

    def to_json(self) -> list[Json]:
        return [
            self.offset,
            self.size,
            self.crc,
            self.rows,
            self.first_slot,
            self.last_slot,
            self.time_min,
            self.time_max,
        ]


@dataclass(frozen=True, slots=True)
class Footer:
    """What a run file says about itself."""

    first_epoch: int
    last_epoch: int
    rows: int
    deletes: int
    schema_size: int
    schema_crc: int
    blocks: tuple[Block, ...]
    vnodes: tuple[tuple[int, int], ...]  # (vnode, rows), in the order of the file
    compression: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of everything else here: two runs with one digest hold the same blocks."""
        return sha256_hex(encode(self._content()))

    def _content(self) -> dict[str, Json]:
        return {
            "version": RUN_VERSION,
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
            "rows": self.rows,
            "deletes": self.deletes,
            "schema_size": self.schema_size,
            "schema_crc": self.schema_crc,
            "blocks": [block.to_json() for block in self.blocks],
            "vnodes": [list(pair) for pair in self.vnodes],
            "compression": self.compression,
        }

    def encode(self) -> bytes:
        """Footer and tail: what follows the end of the stream."""
        data = encode({**self._content(), "digest": self.digest})
        return data + _TAIL.pack(len(data), google_crc32c.value(data), b"\0" * 4, MAGIC)


def footer_size(tail: bytes, file_size: int, where: str) -> int:
    """How many bytes the footer has, by the last 24 of the file."""
    if len(tail) != TAIL_SIZE:
        raise RunDamaged(f"too short for a run, which has at least {TAIL_SIZE} bytes", where=where)
    size, _, zero, magic = _TAIL.unpack(tail)
    if magic[:6] == MAGIC[:6] and magic != MAGIC:
        raise Unsupported(f"a run of version {magic[6:]!r}", where=where)
    if magic != MAGIC or zero != b"\0" * 4:
        raise RunDamaged("the file has no run footer at its end", where=where)
    if size > min(FOOTER_BYTES_MAX, file_size - TAIL_SIZE):
        raise RunDamaged(f"the footer cannot have {size} bytes", where=where)
    return int(size)


def decode_footer(data: bytes, tail: bytes, where: str) -> Footer:
    """The footer, proven by its checksum and its digest."""
    _, crc, _, _ = _TAIL.unpack(tail)
    if google_crc32c.value(data) != crc:
        raise RunDamaged("the footer does not match its checksum", where=where)
    try:
        document = decode(data, where)
    except Corrupt as error:
        raise RunDamaged(f"the footer cannot be read: {error.message}", where=where) from error
    footer, digest = _read(Fields(document, where, error=RunDamaged), where)
    if footer.digest != digest:
        raise RunDamaged("the footer does not match its digest", where=where)
    _check(footer, where)
    return footer


def _read(f: Fields, where: str) -> tuple[Footer, str]:
    version = f.integer("version")
    if version > RUN_VERSION:
        raise Unsupported(f"a run of version {version}", where=where)
    footer = Footer(
        first_epoch=f.integer("first_epoch"),
        last_epoch=f.integer("last_epoch"),
        rows=f.integer("rows"),
        deletes=f.integer("deletes"),
        schema_size=f.integer("schema_size"),
        schema_crc=f.integer("schema_crc"),
        blocks=tuple(_block(f, each) for each in _lists(f, "blocks", _BLOCK_FIELDS)),
        vnodes=tuple(_vnode(f, each) for each in _lists(f, "vnodes", 2)),
        compression=f.text("compression", None),
    )
    return footer, f.text("digest")


def _lists(f: Fields, name: str, width: int) -> list[list[int]]:
    found = f.raw(name, None)
    if not isinstance(found, list):
        raise f.bad(f"{name} is not a list")
    for each in found:
        if not isinstance(each, list) or len(each) != width:
            raise f.bad(f"{name} holds {str(each)[:80]}")
    return found


def _block(f: Fields, values: list[int]) -> Block:
    required, times = values[:6], values[6:]
    if not all(type(v) is int and v >= 0 for v in required):
        raise f.bad(f"a block is {str(values)[:80]}")
    if not all(v is None or type(v) is int for v in times):
        raise f.bad(f"a block has the times {str(times)[:80]}")
    return Block(*values)


def _vnode(f: Fields, values: list[int]) -> tuple[int, int]:
    vnode, rows = values
    if type(vnode) is not int or type(rows) is not int or not 0 <= vnode < 256 or rows < 1:
        raise f.bad(f"a vnode has {str(values)[:80]}")
    return vnode, rows


def _check(footer: Footer, where: str) -> None:
    """The parts fit together: rows add up, blocks follow each other, slots rise."""
    rows = sum(block.rows for block in footer.blocks)
    if rows != footer.rows or sum(n for _, n in footer.vnodes) != rows:
        raise RunDamaged(f"the footer says {footer.rows} rows, its blocks {rows}", where=where)
    for before, after in pairwise(footer.blocks):
        if before.end != after.offset or before.last_slot > after.first_slot:
            raise RunDamaged("the blocks do not follow each other", where=where)
    if footer.blocks and footer.blocks[0].offset != footer.schema_size:
        raise RunDamaged("the first block does not follow the schema", where=where)
