"""The tables of options in docs/pipelines.md are what connectors declare, row by row."""

from __future__ import annotations

from pathlib import Path

from lamina.connectors.kinds import DeclaredOption, SinkKind, SourceKind, TableKind
from lamina.connectors.registry import (
    SINKS,
    SOURCES,
    TABLES,
    sink_kind,
    source_kind,
    table_kind,
)

DOCS = Path(__file__).parents[3] / "docs" / "pipelines.md"
HEADING = "| format | option | value | meaning |"


def rows_of(kind: SourceKind | SinkKind | TableKind | None) -> list[str]:
    assert kind is not None
    rows = [f"| `{kind.name}` | `{o.name}` | {value_of(o)} | {o.doc} |" for o in kind.options]
    return [*rows, f"| `{kind.name}` | others | | {kind.further} |"] if kind.further else rows


def value_of(option: DeclaredOption) -> str:
    if option.required:
        return f"{option.type.value}, required"
    return (
        option.type.value if option.default is None else f"{option.type.value} ({option.default})"
    )


def tables(text: str) -> list[list[str]]:
    """The rows of every table of options."""
    parts = text.split(f"{HEADING}\n|---|---|---|---|\n")[1:]
    return [part.split("\n\n")[0].splitlines() for part in parts]


def test_every_option_that_is_declared_is_in_the_table_and_no_other() -> None:
    sources = [row for name in SOURCES for row in rows_of(source_kind(name))]
    read = [row for name in TABLES for row in rows_of(table_kind(name))]
    sinks = [row for name in SINKS for row in rows_of(sink_kind(name))]
    expected = [sources, read, sinks]
    assert tables(DOCS.read_text()) == expected, "\n".join(
        [HEADING, *sources, "", *read, "", *sinks]
    )


def test_every_kind_has_a_row_that_says_what_it_is() -> None:
    text = DOCS.read_text()
    for kind in (*map(source_kind, SOURCES), *map(table_kind, TABLES), *map(sink_kind, SINKS)):
        assert kind is not None
        assert f"| `{kind.name}` | {kind.doc}" in text
