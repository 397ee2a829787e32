"""Reads manifest version 3; the fields are FORMAT.md section 4.

What has the wrong type, form or place is refused here; what contradicts itself is left to
validation. A file that was upgraded from LaminarDB says so in `origin`, and is read more freely.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lamina.errors import Corrupt
from lamina.format import names
from lamina.format.canonical import INTEGER_MIN, Json
from lamina.format.fields import Fields
from lamina.format.manifest_model import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Failed,
    KeyedState,
    OperatorCheckpoint,
    OperatorRuns,
    Origin,
    OutputFile,
    Pending,
    RunEntry,
    Sidecar,
    SinkCommitStatus,
    SinkCommitted,
    StateColumn,
)
from lamina.format.pipeline_record import PipelineRecord, decode_record

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_LEGACY_VERSIONS = (1, 2)
# Empty is written as empty: one of these missing means that something was lost.
_ALWAYS = (
    "source_offsets",
    "table_offsets",
    "sink_epochs",
    "sink_commit_statuses",
    "operators",
    "operator_states",
    "output",
    "source_watermarks",
    "source_names",
    "sink_names",
    "features",
)


def read(document: Json, where: str) -> CheckpointManifest:
    """The manifest in *document*, whose version and features the caller has looked at."""
    f = Fields(document, where)
    f.integer("version")
    f.require(*_ALWAYS)
    origin = _origin(f)
    return _Reader(strict=origin is None).manifest(f, origin)


def _origin(outer: Fields) -> Origin | None:
    f = outer.optional_object("origin")
    if f is None:
        return None
    version = f.integer("version")
    if version not in _LEGACY_VERSIONS:
        raise f.bad(f"no manifest is upgraded from version {version}")
    return Origin(version, f.text("checkpoint_id"), f.rest())


def _pipeline(outer: Fields) -> PipelineRecord | None:
    f = outer.optional_object("pipeline")
    return None if f is None else decode_record(f)


class _Reader:
    """Reads the JSON value back; *strict* is off for what LaminarDB wrote.

    Its files have no digests, or texts that are none, and paths of their own: they are kept as
    they are, and validation says what that means.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict

    def manifest(self, f: Fields, origin: Origin | None) -> CheckpointManifest:
        total = f.integer("total_size_bytes")
        manifest = CheckpointManifest(
            checkpoint_id=f.checkpoint_id("checkpoint_id"),
            epoch=f.integer("epoch"),
            timestamp_ms=f.integer("timestamp_ms"),
            generation=f.integer("generation"),
            parent_id=f.checkpoint_id("parent_id", None),
            parent_epoch=f.integer("parent_epoch", None),
            commit_digest=self._digest(f, "commit_digest", optional=True),
            parent_commit_digest=self._digest(f, "parent_commit_digest", optional=True),
            pipeline_id=f.text("pipeline_id", None),
            pipeline_hash=self._digest(f, "pipeline_hash", optional=True),
            pipeline=_pipeline(f),
            source_offsets=f.map_of("source_offsets", _connector),
            table_offsets=f.map_of("table_offsets", _connector),
            sink_epochs=f.integer_map("sink_epochs", least=0),
            sink_commit_statuses=read_statuses(f),
            operators=f.map_of("operators", self.operator),
            operator_states=f.map_of("operator_states", self.state),
            sidecar=self.sidecar(f),
            output=self.output(f),
            table_store_path=self._table_store(f),
            watermark=f.integer("watermark", None, least=INTEGER_MIN),
            source_watermarks=f.integer_map("source_watermarks"),
            settings=f.text_map("settings"),
            source_names=f.texts("source_names"),
            sink_names=f.texts("sink_names"),
            vnode_count=f.integer("vnode_count"),
            features=f.texts("features"),
            origin=origin,
            extra=f.rest(),
        )
        if manifest.total_size_bytes != total:
            raise f.bad(f"total_size_bytes is {total}, the files have {manifest.total_size_bytes}")
        return manifest

    def operator(self, f: Fields) -> OperatorRuns:
        lists = f.object("partitions")
        partitions: dict[int, tuple[RunEntry, ...]] = {}
        for number in list(lists.rest()):
            if not _PARTITION.fullmatch(number):
                raise lists.bad(f"{number[:40]!r} is not a partition number")
            partitions[int(number)] = lists.list_of(number, self.run)
        total = f.integer("total_bytes")
        keyed = f.optional_object("keyed")
        frozen = None if keyed is None else _keyed(keyed)
        operator = OperatorRuns(partitions, f.rest(), frozen)
        if operator.total_bytes != total:
            raise f.bad(f"total_bytes is {total}, the runs have {operator.total_bytes}")
        return operator

    def run(self, f: Fields) -> RunEntry:
        kind, path = f.text("kind"), f.text("path", None)
        if kind not in ("snap", "delta"):
            raise f.bad(f"a run is a snap or a delta, not {kind[:40]!r}")
        if self._strict and path is not None and type(names.parse(path)) is not names.RunName:
            raise f.bad(f"{path[:200]!r} is not the path of a run below the base")
        run = RunEntry(
            kind=kind,
            first_epoch=f.integer("first_epoch"),
            last_epoch=f.integer("last_epoch"),
            size=f.integer("size"),
            rows=f.integer("rows", None),
            sha256=self._digest(f, "sha256"),
            path=path,
            state_b64=f.text("state_b64", None),
            ranks=_ranks(f),
            extra=f.rest(),
        )
        check_inline(f, run)
        return run

    def state(self, f: Fields) -> OperatorCheckpoint:
        value = OperatorCheckpoint(
            state_b64=f.text("state_b64", None),
            external=f.flag("external", False),
            external_offset=f.integer("external_offset", 0),
            external_length=f.integer("external_length", 0),
            sha256=self._digest(f, "sha256"),
            extra=f.rest(),
        )
        check_inline(f, value)
        return value

    def sidecar(self, outer: Fields) -> Sidecar | None:
        f = outer.optional_object("sidecar")
        if f is None:
            return None
        path = f.text("path")
        if self._strict and not isinstance(names.parse(path), names.SidecarName):
            raise f.bad(f"{path[:200]!r} is not the path of a sidecar below the base")
        size = f.integer("size") if self._strict else f.integer("size", None)
        return Sidecar(path, size, self._digest(f, "sha256"), f.rest())

    def output(self, outer: Fields) -> dict[str, tuple[OutputFile, ...]]:
        sinks = outer.object("output")
        return {sink: sinks.list_of(sink, self.output_file) for sink in list(sinks.rest())}

    def output_file(self, f: Fields) -> OutputFile:
        path = f.text("path")
        if not isinstance(names.parse(path), names.OutputName):
            raise f.bad(f"{path[:200]!r} is not the path of an output file below the base")
        return OutputFile(
            epoch=f.integer("epoch"),
            path=path,
            size=f.integer("size"),
            sha256=_sha256(f, "sha256", f.text("sha256")),
            rows=f.integer("rows"),
            extra=f.rest(),
        )

    def _table_store(self, f: Fields) -> str | None:
        path: str | None = f.text("table_store_path", None)
        if self._strict and path is not None and (problem := names.path_problem(path)):
            raise f.bad(f"table_store_path {path[:200]!r} {problem}")
        return path

    def _digest(self, f: Fields, name: str, *, optional: bool = False) -> Any:
        if not self._strict:
            return f.text(name, None)
        return _sha256(f, name, f.text(name, None) if optional else f.text(name))


def _keyed(f: Fields) -> KeyedState:
    f.require("key", "value")
    keyed = KeyedState(
        partitions=f.integer("partitions", least=1),
        hash=f.text("hash"),
        key=f.list_of("key", _column),
        value=f.list_of("value", _column),
        time=f.text("time", None),
        meanings=f.texts("meanings"),
        extra=f.rest(),
    )
    columns = len(keyed.key) + len(keyed.value)
    if keyed.meanings and len(keyed.meanings) != columns:
        raise f.bad(f"{len(keyed.meanings)} meanings of {columns} columns")
    return keyed


def _ranks(f: Fields) -> tuple[int, int] | None:
    match f.raw("ranks", None):
        case None:
            return None
        case [int(first), int(last)] if 0 <= first <= last:
            return first, last
        case other:
            raise f.bad(f"ranks are two integers, the lower one first, not {str(other)[:80]}")


def _column(f: Fields) -> StateColumn:
    return StateColumn(f.text("name"), f.text("type"), f.flag("nullable"))


def _sha256(f: Fields, name: str, value: Any) -> Any:
    if value is not None and not _SHA256.fullmatch(value):
        raise f.bad(f"{name} {value[:80]!r} is not a SHA-256 in lower-case hex")
    return value


def _connector(f: Fields) -> ConnectorCheckpoint:
    f.require("offsets", "metadata")
    return read_connector(f)


def read_connector(f: Fields) -> ConnectorCheckpoint:
    f.require("offsets")  # without them the source would start from the beginning
    return ConnectorCheckpoint(
        f.text_map("offsets"), f.integer("epoch"), f.text_map("metadata"), f.rest()
    )


def read_statuses(f: Fields) -> dict[str, SinkCommitStatus]:
    """Statuses in the form that serde gave them: "Pending", "Committed", {"Failed": "why"}."""
    statuses = f.raw("sink_commit_statuses", {})
    if not isinstance(statuses, Mapping):
        raise f.bad("sink_commit_statuses is not an object")
    return {sink: _status(f, sink, value) for sink, value in statuses.items()}


def _status(f: Fields, sink: str, value: Json) -> SinkCommitStatus:
    match value:
        case "Pending":
            return Pending()
        case "Committed":
            return SinkCommitted()
        case {"Failed": str(reason), **others} if not others:
            return Failed(reason)
        case _:
            raise f.bad(
                f"sink_commit_statuses[{sink!r}] is {str(value)[:60]!r}, which is not a status"
            )


def check_inline(f: Fields, value: RunEntry | OperatorCheckpoint) -> None:
    """Damage in inline state stops the reading; it is never taken for "no state"."""
    try:
        value.decode_inline()
    except Corrupt as error:
        raise f.bad(error.message) from error
