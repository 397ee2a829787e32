"""A Structured Streaming checkpoint folder, read once: what is there, and what is damaged.

Every file is read in full and compared with the checksums beside it; of the logs and of zips, what
they say is kept.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lamina.checkpoint.parallel import run_bounded
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.errors import Corrupt, DigestMismatch, NotFound, Unsupported
from lamina.format.spark_files import (
    StateFile,
    check_hadoop,
    check_lz4,
    check_spark,
    guarded_by,
    hadoop_sidecar,
    is_temporary,
    parse_state_file,
    spark_sidecar,
)
from lamina.format.spark_log import (
    SparkCommit,
    SparkKeys,
    SparkOffsets,
    SparkOperator,
    check_found_files,
    decode_commit,
    decode_keys,
    decode_offsets,
    decode_operator,
    decode_query_id,
)
from lamina.store.base import Store

PARALLEL = 8  # files of state are read whole: up to 64 MiB each
METADATA, OFFSETS, COMMITS, SOURCES, STATE = "metadata", "offsets", "commits", "sources", "state"

Tables: TypeAlias = tuple[tuple[str, int], ...]
Said: TypeAlias = "str | SparkOffsets | SparkCommit | SparkOperator | SparkKeys | Tables | None"


@dataclass(frozen=True, slots=True)
class SparkFolder:
    """What one look has read."""

    sizes: Mapping[str, int]
    damaged: Mapping[str, str]  # file -> what is wrong with it
    altered: frozenset[str] = frozenset()  # of these: Spark can read them, and they were changed
    query: str = ""
    offsets: Mapping[int, SparkOffsets] = field(default_factory=dict)
    commits: Mapping[int, SparkCommit] = field(default_factory=dict)
    operators: Mapping[int, SparkOperator] = field(default_factory=dict)
    without_keys: frozenset[int] = frozenset()  # operators whose state is in partition 0 alone
    tables: Mapping[str, Tables] = field(default_factory=dict)  # zip -> files of RocksDB
    state: tuple[StateFile, ...] = ()
    bytes_read: int = 0

    def numbered(self, folder: str) -> list[int]:
        """The batches that have a file in offsets/ or commits/, whole or not."""
        names = (key.split("/") for key in self.sizes if key.startswith(f"{folder}/"))
        return sorted(int(name[1]) for name in names if len(name) == 2 and name[1].isdecimal())

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Files that a crash has left, and checksums of files that are gone."""
        return tuple(
            key
            for key in sorted(self.sizes)
            if is_temporary(key) or (guarded_by(key) and guarded_by(key) not in self.sizes)
        )


def read_folder(store: Store, sizes: Mapping[str, int], *, report: Report = silent) -> SparkFolder:
    """Read all of the checkpoint whose files have these *sizes*."""
    names = [key for key in sorted(sizes) if not guarded_by(key) and not is_temporary(key)]
    total, done, damaged, said = sum(sizes[key] for key in names), 0, dict[str, str](), {}
    gone, altered = set[str](), set[str]()
    with run_bounded(names, lambda key: _read(store, key, sizes), limit=PARALLEL) as jobs:
        for job in jobs:
            done += sizes[job.item]
            report(Progress(done, total, "bytes", job.item))
            if isinstance(job.error, NotFound):
                gone.add(job.item)  # of a query that runs: it deletes what it no longer needs
            elif isinstance(job.error, Corrupt | Unsupported):
                damaged[job.item] = job.error.message
                altered.update({job.item} if isinstance(job.error, DigestMismatch) else ())
            elif job.error is not None:
                raise job.error
            else:
                said[job.item] = job.result
    left = {key: size for key, size in sizes.items() if key not in gone}
    return replace(_sorted(left, damaged, said, done), altered=frozenset(altered))


def _sorted(
    sizes: Mapping[str, int], damaged: Mapping[str, str], said: Mapping[str, Said], read: int
) -> SparkFolder:
    files = (parse_state_file(key) for key in sorted(sizes))
    operators = [each for each in said.values() if isinstance(each, SparkOperator)]
    return SparkFolder(
        sizes,
        damaged,
        query=str(said.get(METADATA) or ""),
        offsets={_number(k): v for k, v in said.items() if isinstance(v, SparkOffsets)},
        commits={_number(k): v for k, v in said.items() if isinstance(v, SparkCommit)},
        operators={each.id: each for each in operators},
        without_keys=_without_keys(sizes, said),
        tables={key: value for key, value in said.items() if isinstance(value, tuple)},
        state=tuple(each for each in files if each is not None),
        bytes_read=read,
    )


def _without_keys(sizes: Mapping[str, int], said: Mapping[str, Said]) -> frozenset[int]:
    """By their schema; where that is gone, those that have files in partition 0 alone."""
    columns = {
        int(key.split("/")[1]): value.columns
        for key, value in said.items()
        if isinstance(value, SparkKeys)
    }
    state = [each for each in map(parse_state_file, sizes) if each is not None]
    wide = {each.operator for each in state if each.partition}
    return frozenset(
        each.operator
        for each in state
        if (not columns[each.operator] if each.operator in columns else each.operator not in wide)
    )


def _number(key: str) -> int:
    return int(key.rpartition("/")[2])


def _read(store: Store, key: str, sizes: Mapping[str, int]) -> Said:
    """What a file says; Corrupt if it is not as it was written."""
    data = store.get(key)
    if (own := spark_sidecar(key)) in sizes:
        check_spark(data, store.get(own), key)
    said = _decode(key, data)
    if (sidecar := hadoop_sidecar(key)) in sizes:
        check_hadoop(data, store.get(sidecar), key)  # last: Spark does not ask for it
    return said


def _decode(key: str, data: bytes) -> Said:
    """What the log or the piece of state of this name says; None if that need not be kept."""
    state = parse_state_file(key)
    if state is not None and state.kind != ".zip":
        check_lz4(data, key)
        return None
    if _is_source_log(key, data):
        check_found_files(data, key)
        return None
    decode = next((each for pattern, each in _DECODERS if pattern.fullmatch(key)), None)
    return decode(data, key) if decode else None


def _is_source_log(key: str, data: bytes) -> bool:
    """Whether a file source has written it, or begun to; others keep there what they like."""
    is_list = data.startswith(_LIST) or _LIST.startswith(data)
    return is_list and _SOURCE_LOG.fullmatch(key) is not None


def _zip_tables(data: bytes, key: str) -> Tables:
    """Which files of RocksDB a snapshot needs beside itself, with their sizes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            bad = opened.testzip()
            if bad is not None:
                raise Corrupt(f"{bad!r} in it does not match its checksum", where=key)
            _, _, text = opened.read("metadata").decode().partition("\n")
        files = json.loads(text).get("sstFiles", [])
        return tuple((str(f["dfsSstFileName"]), int(f["sizeBytes"])) for f in files)
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError) as error:
        raise Corrupt(f"not a snapshot of RocksDB: {error}", where=key) from None


_LIST = b"v1\n{"
_SOURCE_LOG = re.compile(r"sources/\d+/\d+(\.compact)?")
_DECODERS: tuple[tuple[re.Pattern[str], Callable[[bytes, str], Said]], ...] = (
    (re.compile(METADATA), decode_query_id),
    (re.compile(rf"{OFFSETS}/\d+"), decode_offsets),
    (re.compile(rf"{COMMITS}/\d+"), decode_commit),
    (re.compile(rf"{STATE}/\d+/_metadata/metadata"), decode_operator),
    (re.compile(rf"{STATE}/\d+/\d+/(?:[^/]+/)?_metadata/schema"), decode_keys),
    (re.compile(rf"{STATE}/.+\.zip"), _zip_tables),
)
