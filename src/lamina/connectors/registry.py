"""All kinds of sources, tables and sinks: the one list. Other packages add theirs by entry points.

A kind is imported when it is asked for: `lamina check` does not pay for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from lamina.connectors.kinds import SinkKind, SourceKind, TableKind
from lamina.errors import UsageError

GROUP = "lamina.connectors"
SOURCES = {
    "json": "lamina.connectors.file_kinds:JSON",
    "csv": "lamina.connectors.file_kinds:CSV",
    "parquet": "lamina.connectors.file_kinds:PARQUET",
    "kafka": "lamina.connectors.kafka.source_kind:KAFKA",
    "postgres_cdc": "lamina.connectors.postgres_cdc.kind:POSTGRES_CDC",
    "mysql_cdc": "lamina.connectors.mysql_cdc.kind:MYSQL_CDC",
    "trades": "lamina.connectors.trades:TRADES",
    "nexmark": "lamina.connectors.nexmark:NEXMARK",
}
UNLISTED = {  # made by Lamina itself; nobody writes it into a pipeline
    "structured_streaming_batches": "lamina.connectors.batches:KIND",
}
TABLES = {
    "parquet": "lamina.connectors.tables.file_kinds:PARQUET",
    "csv": "lamina.connectors.tables.file_kinds:CSV",
    "json": "lamina.connectors.tables.file_kinds:JSON",
    "delta": "lamina.connectors.tables.delta_kind:DELTA",
    "iceberg": "lamina.connectors.tables.iceberg_kind:ICEBERG",
    "postgres": "lamina.connectors.tables.postgres_kind:POSTGRES",
}
SINKS = {
    "parquet": "lamina.connectors.parquet:PARQUET",
    "console": "lamina.connectors.console:CONSOLE",
    "function": "lamina.connectors.function:KIND",
    "postgres": "lamina.connectors.postgres.kind:POSTGRES",
    "iceberg": "lamina.connectors.iceberg.kind:ICEBERG",
    "delta": "lamina.connectors.delta.kind:DELTA",
    "kafka": "lamina.connectors.kafka.sink_kind:KAFKA",
}

Kind = TypeVar("Kind", SourceKind, SinkKind, TableKind)


def source_kind(name: str) -> SourceKind | None:
    """The kind of this name; None if there is none."""
    return _find(SourceKind, SOURCES | UNLISTED, name)


def sink_kind(name: str) -> SinkKind | None:
    return _find(SinkKind, SINKS, name)


def table_kind(name: str) -> TableKind | None:
    return _find(TableKind, TABLES, name)


def table_names() -> list[str]:
    return [*TABLES, *_others(TableKind, TABLES)]


def source_names() -> list[str]:
    return [*SOURCES, *_others(SourceKind, SOURCES)]


def sink_names() -> list[str]:
    return [*SINKS, *_others(SinkKind, SINKS)]


def _find(wanted: type[Kind], ours: Mapping[str, str], name: str) -> Kind | None:
    if name not in ours:
        return _others(wanted, ours).get(name)
    kind = _load(EntryPoint(name, ours[name], GROUP))
    assert isinstance(kind, wanted), name
    return kind


def _others(wanted: type[Kind], ours: Mapping[str, str]) -> dict[str, Kind]:
    """Kinds of other packages; none takes the name of another one."""
    found: dict[str, Kind] = {}
    for entry in entry_points(group=GROUP):
        kind = _load(entry)
        if not isinstance(kind, wanted):
            continue
        if kind.name in found or kind.name in ours:
            raise UsageError(
                f"two connectors are called {kind.name!r}",
                where=_place(entry),
                advice="Uninstall one of the packages, or give its connector another name",
            )
        found[kind.name] = kind
    return found


def _load(entry: EntryPoint) -> SourceKind | SinkKind | TableKind:
    try:
        kind = entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"a connector cannot be loaded: {error}", where=_place(entry)) from error
    if not isinstance(kind, SourceKind | SinkKind | TableKind):
        what = type(kind).__name__
        message = f"a connector is a SourceKind, a SinkKind or a TableKind, and this is a {what}"
        raise UsageError(message, where=_place(entry))
    return kind


def _place(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist else "lamina"
    return f"{entry.value} of the package {package}"
