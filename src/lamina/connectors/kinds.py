"""What a connector is: a `SourceKind`, a `SinkKind` or a `TableKind`, in a file of its own.

The declaration is all there is: `lamina check`, the errors for options and the tables in the docs
come from it. `check` looks at what the pipeline says and at nothing else; `open` comes when the
pipeline is compiled. A row in registry.py makes a kind known, or an entry point of the group
`lamina.connectors` in another package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lamina.connectors.spark_source import DriverFiles, MakeStep, SparkSource
    from lamina.engine.ports import Output, Sink, Table
    from lamina.pipeline.model import DeclaredSink, DeclaredSource, DeclaredTable
    from lamina.workspace.base import Notes

BAD_ROWS_PATH = "bad_rows_path"
"""The option of sources that keep rows that cannot be read: they have `bad_rows`."""

Value = str | int | bool | Path | tuple[str, ...]


class OptionType(Enum):
    """What the text of an option means."""

    TEXT = "text"
    NUMBER = "whole number"
    SWITCH = "true or false"
    COLUMNS = "columns"  # names, separated by commas
    INTERVAL = "interval"  # '10 minutes', in microseconds
    SECRET = "secret"  # noqa: S105  from the environment: people share files
    INPUT = "folder to read"  # relative ones are below the folder of the pipeline
    OUTPUT = "folder to write"  # no other sink may write there


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """An option that a kind knows."""

    name: str
    doc: str
    type: OptionType = OptionType.TEXT
    default: Value | None = None  # None: without it there is no value
    required: bool = False
    least: int = 1  # of a number
    choices: tuple[str, ...] = ()  # of a text, in lower case; none: any text will do
    remote: bool = False  # of a folder: the address of an object store will do, too


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one source or sink: declared ones with their types, others as text."""

    file: str  # of the pipeline
    declared: Mapping[str, Value] = field(repr=False)  # some are secrets
    further: Mapping[str, str] = field(default_factory=dict, repr=False)  # by names in lower case
    base: Path = Path()  # the folder of the pipeline

    def text(self, name: str) -> str:
        """An empty one if it is not there."""
        return str(self.declared.get(name, ""))

    def number(self, name: str) -> int:
        value = self.declared[name]
        assert isinstance(value, int), name
        return value

    def folder(self, name: str) -> Path:
        value = self.declared[name]
        assert isinstance(value, Path), name
        return value

    def place(self, name: str) -> Path | str:
        """A folder, or the address of an object store."""
        value = self.declared[name]
        assert isinstance(value, Path | str), name
        return value

    def switch(self, name: str) -> bool:
        value = self.declared.get(name, False)
        assert isinstance(value, bool), name
        return value

    def columns(self, name: str) -> tuple[str, ...]:
        """No names if it is not there."""
        value = self.declared.get(name, ())
        assert isinstance(value, tuple), name
        return value

    def microseconds(self, name: str) -> int | None:
        """An interval; None if it is not there."""
        return self.number(name) if name in self.declared else None


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source is checked and opened with."""

    source: DeclaredSource
    given: Given
    pipeline: str = "pipeline"  # its name
    skip_lost: bool = False  # a person has said: go on behind rows that are gone
    go_back: frozenset[str] = frozenset()  # TOPIC/N@OFFSET that a person has named: go on there
    make_step: MakeStep | None = None  # for sources whose tasks read; lamina.spark has one
    files: DriverFiles | None = None  # how tasks read what is in *scratch*; None: as files
    notes: Notes | None = None  # of the pipeline's workspace, for what a source makes outside
    scratch: Path | None = None  # a folder of the driver's; what is in it need not survive

    @property
    def of(self) -> DeclaredSource:
        return self.source


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink is opened with."""

    sink: DeclaredSink
    given: Given
    notes: Notes  # of the pipeline's workspace, for what the sink itself cannot remember
    out: TextIO  # for people
    output: Output | None = None  # None: it is only asked where it stands


@dataclass(frozen=True, slots=True)
class TableContext:
    """What a table is checked and opened with."""

    table: DeclaredTable
    given: Given
    scratch: Path | None = None  # a folder of its own, of the driver's; it need not survive
    spark: SparkSession | None = None  # for tables that Spark reads
    columns: pa.Schema | None = None  # as declared, for tables that the driver reads

    @property
    def of(self) -> DeclaredTable:
        return self.table


@dataclass(frozen=True, slots=True)
class Extra:
    """What a kind needs beside Lamina itself: `pip install 'lamina[NAME]'`."""

    name: str
    modules: tuple[str, ...]  # as they are imported


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A way to read rows."""

    name: str
    doc: str
    open: Callable[[SourceContext], SparkSource]
    options: tuple[DeclaredOption, ...] = ()
    check: Callable[[SourceContext], object] = lambda _: None  # beyond names and types of options
    refused: Mapping[str, str] = field(default_factory=dict)  # option -> what to do instead
    further: str = ""  # whose options are passed on, if any are
    further_prefix: str = ""  # of their names, in lower case; other options are refused
    extra: Extra | None = None
    metadata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What METADATA FROM may name, and the types that such a column may have, in lower case."""
    bad_rows: str = "file STRING, text STRING"  # what is kept of a row that cannot be read
    changes: bool = False
    """Its rows are changes: frames have the column CHANGE, the option `keys` tells rows apart."""
    by_key: Callable[[Given], bool] = lambda _: False
    """Its rows are versions of rows by key, as engine/last_versions.py has them: the pipeline makes
    changes of them, and the option `keys` tells rows apart."""
    has_parts: bool = False  # with idle_after each of them holds the watermark for itself
    skips_lost: bool = False  # it can go on behind rows that are gone (--skip-lost)
    jars: Callable[[Given], tuple[str, ...]] = lambda _: ()  # of Spark's project, by artifact


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A way to publish rows."""

    name: str
    doc: str
    open: Callable[[SinkContext], Sink]
    delivery: str  # what it promises, for people
    options: tuple[DeclaredOption, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    further: str = ""
    further_prefix: str = ""
    check: Callable[[DeclaredSink, Given], object] = lambda *_: None
    extra: Extra | None = None


@dataclass(frozen=True, slots=True)
class Peeked:
    """What can be told of a table without reading it."""

    version: str  # for people
    size: int | None = None  # bytes, as they are stored


@dataclass(frozen=True, slots=True)
class TableKind:
    """A way to read reference data, version by version."""

    name: str
    doc: str
    open: Callable[[TableContext], Table]
    options: tuple[DeclaredOption, ...] = ()
    check: Callable[[TableContext], object] = lambda _: None
    refused: Mapping[str, str] = field(default_factory=dict)
    further: str = ""
    further_prefix: str = ""
    extra: Extra | None = None
    peek: Callable[[TableContext], Peeked | None] = lambda _: None
    """For `lamina check`: None if the table is not there, or cannot be asked in a moment."""
