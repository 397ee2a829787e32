"""The kind of sink that writes to an Iceberg table, through pyiceberg."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamina.connectors.keyed import writing_of
from lamina.connectors.keyed_options import KEYS, MODE, ORDER_BY
from lamina.connectors.kinds import DeclaredOption, Extra, Given, OptionType, SinkContext, SinkKind
from lamina.connectors.options import Declared, bad_option, check_secret, option_of
from lamina.engine.ports import Sink

if TYPE_CHECKING:
    from lamina.connectors.iceberg.catalog import TableAddress

PREFIX = "catalog."
URI, WAREHOUSE = "catalog.uri", "catalog.warehouse"
_SQLITE = "sqlite:///"
_TABLES = ("ssl.", "auth.")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SECRET = re.compile(
    r"token|credential|secret|password|session|(?:access|account|sas)[-_]key|api-key"
)
_PASSWORD = re.compile(r"://[^/@]*:(?P<password>[^/@]+)@")
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_IN_PATHS = frozenset("/\\?#")  # a table's name is part of the addresses of its files


def table_name(sink: Declared, given: Given) -> tuple[str, ...]:
    """Namespace and name. BadPipeline if there are no such two."""
    text = given.text("table")
    parts = [(quoted.replace("``", "`") or plain).strip() for quoted, plain in _PART.findall(text)]
    spelled = _PART.sub("x", text)
    is_name = re.fullmatch(r"x(\.x)+", spelled.replace(" ", ""))
    if not is_name or any(
        not part or _IN_PATHS & set(part) or part in ("..", ".") for part in parts
    ):
        message = f"has the table {text!r}"
        advice = "Write OPTIONS (table 'namespace.name'); a part with a dot stands in backquotes"
        raise bad_option(sink, message, given.file, advice)
    return tuple(parts)


def address_of(sink: Declared, given: Given) -> TableAddress:
    from lamina.connectors.iceberg.catalog import TableAddress  # noqa: PLC0415  an extra

    properties = _properties(given)
    uri = properties.get("uri", "")
    return TableAddress(
        given.text("catalog"),
        given.text("catalog_name"),
        _nested(properties),
        table_name(sink, given),
        sqlite=Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None,
        secrets=tuple(_secrets(properties)),
    )


def _properties(given: Given) -> dict[str, str]:
    """pyiceberg's own; paths of this machine are below the folder of the pipeline."""
    properties = {name.removeprefix(PREFIX): value for name, value in given.further.items()}
    if given.text("catalog") != "sql":
        return properties
    warehouse = properties["warehouse"].removeprefix("file://")
    if not _SCHEME.match(warehouse):
        folder = (given.base / warehouse).absolute()
        properties.setdefault("uri", f"{_SQLITE}{folder / 'catalog.db'}")
        properties["warehouse"] = f"file://{folder}"
    if properties["uri"].startswith(_SQLITE):
        file = given.base / properties["uri"].removeprefix(_SQLITE)
        properties["uri"] = f"{_SQLITE}{file.absolute()}"
    return properties


def _nested(properties: Mapping[str, str]) -> dict[str, Any]:
    """`ssl.client.cert` and the like, which pyiceberg wants as tables in tables."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        first, *others = name.split(".") if name.startswith(_TABLES) else [name]
        table = found
        for part in others:
            table = table.setdefault(first, {})
            first = part
        table[first] = value
    return found


def _secrets(properties: Mapping[str, str]) -> list[str]:
    found = [value for name, value in properties.items() if value and _SECRET.search(name)]
    found += [part for value in found for part in value.split(":", 1)[1:] if part]
    password = _PASSWORD.search(properties.get("uri", ""))
    return [*found, password["password"]] if password else found


def check_catalog(sink: Declared, given: Given) -> None:
    table_name(sink, given)
    for name in given.further:
        option = option_of(sink, name)
        assert option is not None
        if _SECRET.search(name) or (name == URI and _PASSWORD.search(option.written)):
            check_secret(sink, name, option, given.file)
    (_check_sql if given.text("catalog") == "sql" else _check_rest)(sink, given)


def _check_rest(sink: Declared, given: Given) -> None:
    if not re.match(r"https?://.", given.further.get(URI, "")):
        advice = f"Write OPTIONS ({URI} 'https://...'), the address of the REST catalog"
        raise bad_option(sink, f"has no {URI} of a REST catalog", given.file, advice)


def _check_sql(sink: Declared, given: Given) -> None:
    warehouse, uri = given.further.get(WAREHOUSE, ""), given.further.get(URI, "")
    if not warehouse:
        advice = f"Write OPTIONS ({WAREHOUSE} 'a/folder'), or 's3://bucket/prefix'"
        raise bad_option(sink, f"has no {WAREHOUSE}", given.file, advice)
    if not uri and _SCHEME.match(warehouse.removeprefix("file://")):
        advice = f"Write OPTIONS ({URI} '...'), the database of the catalog as SQLAlchemy has it"
        raise bad_option(sink, f"has no {URI}", given.file, advice)
    if uri.startswith("sqlite") and (not uri.startswith(_SQLITE) or "memory" in uri):
        advice = f"Write OPTIONS ({URI} 'sqlite:///a/file.db')"
        raise bad_option(sink, f"has the {URI} {uri!r}, which is not a file", given.file, advice)


def _open(context: SinkContext) -> Sink:
    from lamina.connectors.iceberg.catalog import TableCatalog  # noqa: PLC0415  an extra
    from lamina.connectors.iceberg.sink import IcebergSink, Layout  # noqa: PLC0415  an extra

    given, output = context.given, context.output
    return IcebergSink(
        context.sink.name,
        TableCatalog(address_of(context.sink, given)),
        output=output,
        writing=writing_of(context, output) if output is not None else None,
        layout=Layout(given.columns("partition_by"), given.switch("merge_schema")),
    )


ICEBERG = SinkKind(
    "iceberg",
    "An Iceberg table, in an SQL or REST catalog",
    open=_open,
    delivery="exactly once; an epoch becomes visible in one commit of the table",
    options=(
        DeclaredOption(
            "table",
            "The table, `namespace.name`; it is created if it is missing",
            required=True,
        ),
        DeclaredOption(
            "catalog", "Kind of catalog: `sql` or `rest`", default="sql", choices=("sql", "rest")
        ),
        DeclaredOption(
            "catalog_name",
            "Name of the catalog: a database can hold several SQL catalogs",
            default="default",
        ),
        MODE,
        KEYS,
        ORDER_BY,
        DeclaredOption(
            "partition_by",
            "Columns that a new table is partitioned by; an existing table keeps its partitions",
            OptionType.COLUMNS,
        ),
        DeclaredOption(
            "merge_schema",
            "Add columns that the table lacks, when the pipeline starts",
            OptionType.SWITCH,
            default=False,
        ),
    ),
    refused={
        "catalog.type": "Write catalog 'sql' or catalog 'rest'",
        "catalog.name": "Write catalog_name '...'",
        "catalog.py-io-impl": "Files are always opened by pyarrow, and synced on local disks",
        "catalog.py-catalog-impl": "Write catalog 'sql' or catalog 'rest'",
        "catalog.init_catalog_tables": "The tables of a catalog are created when they are missing",
        "catalog.snapshot-loading-mode": "The table is always loaded whole",
    },
    further="`catalog.*`: properties of pyiceberg's catalog and file system, as `catalog.uri`",
    further_prefix=PREFIX,
    check=check_catalog,
    extra=Extra("iceberg", ("pyiceberg", "sqlalchemy", "requests")),
)
