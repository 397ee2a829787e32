"""A file of a source: what is remembered of it, and when it counts as the same file.

Size and modification time are compared always. If inode or change time differ as well, the file may
have been replaced, or only moved, copied, restored, linked or given other rights: then its two ends
are read and compared with what they were. Homes of older versions have no ends to compare with.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lamina.errors import Refused
from lamina.os_errors import from_os_error, typed_errors
from lamina.state.schema import StateSchema

END_SIZE = 64 << 10
MEMORY = StateSchema(
    pa.schema([pa.field("path", pa.string(), nullable=False)]),
    pa.schema(
        {
            "size": pa.int64(),
            "changed_us": pa.int64(),
            "inode": pa.uint64(),
            "status_us": pa.int64(),
            "ends": pa.binary(),
        }
    ),
)
"""`path` is below the folder of the source. (Older versions kept whole paths, size and time.)"""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file as it was found."""

    path: str  # below the folder of its source
    size: int
    changed_us: int
    inode: int | None = None
    status_us: int | None = None  # when anything about it has changed, its rights for example
    ends: bytes | None = None


def look(folder: Path, path: str) -> FileStatus | None:
    """A file as it is now, without its ends; None if it is gone, or is not a file."""
    where = f"{folder}/{path}"
    try:
        found = os.stat(where)  # noqa: PTH116  to make a Path would cost more than the call
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise from_os_error(error, where) from error
    if not stat.S_ISREG(found.st_mode):
        return None
    changed_us, status_us = found.st_mtime_ns // 1000, found.st_ctime_ns // 1000
    return FileStatus(path, found.st_size, changed_us, found.st_ino, status_us)


def with_ends(folder: Path, file: FileStatus) -> FileStatus:
    return replace(file, ends=_ends(folder / file.path, file.size))


def is_same(folder: Path, before: FileStatus, now: FileStatus) -> bool:
    """Whether *now* is the file that was *before*."""
    if (before.size, before.changed_us) != (now.size, now.changed_us):
        return False
    if before.ends is None or (before.inode, before.status_us) == (now.inode, now.status_us):
        return True
    return before.ends == _ends(folder / now.path, now.size)


def check_name(source: str, folder: Path, path: str) -> None:
    """Refuse a file that Spark, or the memory of files, could not call by its name."""
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            readable = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise _unnameable(source, f"{folder}/{readable}", "is not valid UTF-8") from None
    if ":" in path.rpartition("/")[2]:
        raise _unnameable(source, f"{folder}/{path}", "has a colon, which Spark cannot read")


def to_rows(files: Iterable[FileStatus]) -> pa.RecordBatch:
    rows = [tuple(getattr(file, name) for name in MEMORY.row.names) for file in files]
    columns = zip(*rows, strict=True) if rows else ((),) * len(MEMORY.row)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, MEMORY.row, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MEMORY.row)


def from_rows(batch: pa.RecordBatch) -> list[FileStatus]:
    columns = (batch.column(name).to_pylist() for name in MEMORY.row.names)
    return [FileStatus(*values) for values in zip(*columns, strict=True)]


def _ends(path: Path, size: int) -> bytes:
    """A digest of the first and the last bytes: of a short file that is all of it."""
    digest = hashlib.blake2b(digest_size=16)
    with typed_errors(path), path.open("rb") as file:
        digest.update(file.read(END_SIZE))
        file.seek(max(size - END_SIZE, 0))
        digest.update(file.read(END_SIZE))
    return digest.digest()


def _unnameable(source: str, where: str, why: str) -> Refused:
    return Refused(
        f"the name of a file of the source {source!r} {why}",
        where=where,
        advice="Rename it, or begin its name with _ : such files are ignored",
    )
