"""The logs of a Structured Streaming checkpoint, as Spark writes them: lines of text.

metadata        {"id":"<uuid>"}
offsets/<n>     v1 | v2, {watermark, time, conf}, then one line for each source:
                v1 in their order, `-` where a source has no offset; v2 as `name:offset`
commits/<n>     v1 | v2 | v3, {nextBatchWatermarkMs}; from v2 on with stateUniqueIds
sources/<s>/<n> v1, then one line for each file that was found, or other text of a source
state/<op>/_metadata/metadata     v1 | v2 and later, the operator, its stores and partitions
state/<op>/0/.../_metadata/schema  Java's writeUTF: `v2`, then the key columns as JSON in chunks

Spark checks none of these when it starts (spark.sql.streaming, 4.3): a torn file stops it with an
exception, a changed digit is taken as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lamina.errors import Corrupt, Unsupported

OFFSETS_KNOWN, COMMITS_KNOWN = 2, 3
NO_OFFSET = "-"
_VERSION = re.compile(r"v([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class SparkOffsets:
    """Up to where a batch reads its sources, and with which settings and watermark it runs."""

    watermark_ms: int
    conf: Mapping[str, str]
    sources: tuple[tuple[str, str | None], ...]
    """Name and offset as text; in version 1 the name is the number of the source."""

    @property
    def partitions(self) -> int | None:
        """`spark.sql.shuffle.partitions` as the query has fixed it in its first batch."""
        said = self.conf.get("spark.sql.shuffle.partitions", "")
        return int(said) if said.isdecimal() else None


@dataclass(frozen=True, slots=True)
class SparkCommit:
    """What a batch left behind when it was done."""

    next_watermark_ms: int
    state_ids: Mapping[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Of state format 2: for each operator, partition and store the id of its version."""


@dataclass(frozen=True, slots=True)
class SparkOperator:
    """A stateful operator, as its metadata has it."""

    id: int
    name: str
    stores: Mapping[str, int]  # name -> partitions


@dataclass(frozen=True, slots=True)
class SparkKeys:
    """The key columns of a store; without any its state is in partition 0 alone."""

    columns: tuple[str, ...]


def decode_query_id(data: bytes, where: str) -> str:
    """The id of the query, from `metadata`."""
    value = _object(_text(data, where), where)
    found = value.get("id")
    if not isinstance(found, str) or not found:
        raise Corrupt("it has no id of a query", where=where)
    return found


def decode_offsets(data: bytes, where: str) -> SparkOffsets:
    """One file of offsets/; Corrupt if it is torn or was not written by Spark."""
    version, lines = _versioned(data, where, OFFSETS_KNOWN)
    if len(lines) < 2:
        raise Corrupt("it ends before the offsets of the sources", where=where)
    said = _object(lines[0], where)
    return SparkOffsets(
        _number(said, "batchWatermarkMs", where),
        {str(name): str(value) for name, value in _map(said, "conf", where).items()},
        tuple(
            _source(line, number, version, where)
            for number, line in enumerate(lines[1:])
            if line or version == 1
        ),
    )


def decode_commit(data: bytes, where: str) -> SparkCommit:
    """One file of commits/; Corrupt if it is torn or was not written by Spark."""
    _, lines = _versioned(data, where, COMMITS_KNOWN)
    if not lines:
        raise Corrupt("it ends after its version", where=where)
    said = _object(lines[0], where)
    ids = _map(said, "stateUniqueIds", where)
    if not all(name.isdecimal() and _is_ids(value) for name, value in ids.items()):
        raise Corrupt("stateUniqueIds are not lists of ids by operator", where=where)
    return SparkCommit(
        _number(said, "nextBatchWatermarkMs", where),
        {int(name): tuple(map(tuple, value)) for name, value in ids.items()},
    )


def check_found_files(data: bytes, where: str) -> None:
    """Corrupt if it is a torn file of the log of a file source: JSON, line by line.

    Another source may keep there what it likes: what its JSON says is not looked at.
    """
    _, lines = _versioned(data, where, 1)
    if not [_object(line, where) for line in lines if line]:
        raise Corrupt("it ends before the first file that was found", where=where)


def decode_operator(data: bytes, where: str) -> SparkOperator:
    """The metadata of a stateful operator."""
    _, lines = _versioned(data, where, 99)
    said = _object(lines[0] if lines else "", where)
    info, stores = _map(said, "operatorInfo", where), said.get("stateStoreInfo")
    try:
        partitions = {str(s["storeName"]): int(s["numPartitions"]) for s in stores or ()}
        return SparkOperator(int(info["operatorId"]), str(info["operatorName"]), partitions)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"it does not describe an operator: {error!r}", where=where) from None


def decode_keys(data: bytes, where: str) -> SparkKeys | None:
    """The schema of a store; None if a newer Spark has written it in another way."""
    version, at = _utf(data, 0, where)
    if version != "v2":
        return None
    chunks, at, text = int.from_bytes(data[at : at + 4], "big"), at + 4, ""
    for _ in range(chunks):
        part, at = _utf(data, at, where)
        text += part
    columns = _object(text, where).get("fields")
    if not isinstance(columns, list):
        raise Corrupt("its key columns are not a list", where=where)
    return SparkKeys(tuple(str(each.get("name")) for each in columns if isinstance(each, dict)))


def offset_number(offset: str | None) -> int | None:
    """The number of a file source's offset, {"logOffset":3}; None if it is another's."""
    try:
        value = json.loads(offset or "")
    except ValueError:
        return None
    number = value.get("logOffset") if isinstance(value, dict) else None
    return number if isinstance(number, int) else None


def _versioned(data: bytes, where: str, known: int) -> tuple[int, list[str]]:
    first, *lines = _text(data, where).split("\n")
    matched = _VERSION.fullmatch(first)
    if matched is None:
        raise Corrupt("it does not begin with a version" if data else "it is empty", where=where)
    if int(matched[1]) > known:
        advice = "Use a newer Lamina, or look with the Spark that wrote it"
        message = f"version {matched[1]}; this Lamina knows {known}"
        raise Unsupported(message, where=where, advice=advice)
    return int(matched[1]), lines


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"not valid UTF-8 (at byte {error.start})", where=where) from None


def _utf(data: bytes, at: int, where: str) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data) or end == at + 2:
        raise Corrupt(f"it ends inside the text at byte {at}", where=where)
    return _text(data[at + 2 : end], where), end


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Corrupt(f"not JSON: {text[:40]!r}", where=where) from None
    if not isinstance(value, dict):
        raise Corrupt(f"not a JSON object: {text[:40]!r}", where=where)
    return value


def _map(said: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = said.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Corrupt(f"{name} is not an object", where=where)
    return value


def _number(said: Mapping[str, Any], name: str, where: str) -> int:
    value = said.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Corrupt(f"{name} is {value!r}, not a number", where=where)
    return value


def _source(line: str, number: int, version: int, where: str) -> tuple[str, str | None]:
    name, offset = str(number), line
    if version > 1:
        name, colon, offset = line.partition(":")
        if not colon:
            raise Corrupt(f"not an offset with its source: {line[:40]!r}", where=where)
    if offset == NO_OFFSET:
        return name, None
    try:
        json.loads(offset)
    except (ValueError, RecursionError):
        message = f"the offset of source {name} is not JSON: {offset[:40]!r}"
        raise Corrupt(message, where=where) from None
    return name, offset


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and all(isinstance(id, str) for id in each) for each in value
    )
