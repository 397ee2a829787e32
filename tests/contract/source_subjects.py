"""Every kind of source with something to read, and a memory that is no engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.opening import open_source
from lamina.connectors.spark_source import SparkSource
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Held, Limits
from lamina.pipeline.model import Column, DeclaredSource, Option
from lamina.state.partition import Looked
from lamina.state.schema import StateSchema
from lamina.workspace.notes import LocalNotes
from tests.contract.cdc_rig import CdcRig
from tests.contract.mysql_rig import MySqlRig
from tests.servers.kafka_topics import Topics
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer

EVERYTHING = Limits()
SMALL = Limits(rows=4, files=1)


@dataclass
class Remembered:
    """What a source remembers, as of the last commit."""

    schema: StateSchema
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def commit(self, planned: SourceRange) -> None:
        if planned.learned is None:
            return
        if planned.learned.gone is not None:
            for key in self._keys(planned.learned.gone):
                self.rows.pop(key, None)
        rows = planned.learned.rows
        self.rows.update(zip(self._keys(rows), rows.to_pylist(), strict=True))

    def find(self, keys: pa.RecordBatch) -> Looked:
        found = [self.rows.get(key) for key in self._keys(keys)]
        values = pa.RecordBatch.from_pylist([row or {} for row in found], self.schema.value)
        return Looked(np.array([row is not None for row in found], np.bool_), values)

    def scan(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(list(self.rows.values()), self.schema.row)

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        columns = [batch.column(name).to_pylist() for name in self.schema.key.names]
        return list(zip(*columns, strict=True))


@dataclass
class Subject:
    """A source that has something to read: opened as often as wanted, and committed."""

    definition: DeclaredSource
    folder: Path
    grow: Callable[[Subject], None]  # there is more to read
    spoil: Callable[[Subject, SourceRange], None] | None = None  # None: nothing can change
    offset: Offset | None = None
    remembered: Remembered | None = None
    drop: Callable[[], None] = lambda: None  # what is outside
    opened: SparkSource | None = None

    def open(self) -> SparkSource:
        """As another process does: what the one before has held, it holds no more."""
        if isinstance(self.opened, Held):
            self.opened.close()
        source = self.opened = open_source(
            self.definition, self.folder, notes=LocalNotes(self.folder), scratch=self.folder
        )
        if self.offset is None:
            self.offset = source.initial()
        if self.remembered is None and source.memory is not None:
            self.remembered = Remembered(source.memory)
        return source

    def plan(self, source: SparkSource, limits: Limits = EVERYTHING) -> SourceRange:
        assert self.offset is not None
        return source.plan(self.offset, limits, self.remembered)

    def commit(self, planned: SourceRange) -> None:
        assert planned.start == self.offset
        self.offset = planned.end
        if self.remembered is not None:
            self.remembered.commit(planned)

    def read_all(self, source: SparkSource, limits: Limits = SMALL) -> list[SourceRange]:
        """Epoch after epoch, each committed, until there is nothing more."""
        ranges = []
        while (planned := self.plan(source, limits)).start != planned.end:
            source.confirm(planned)
            self.commit(planned)
            ranges.append(planned)
            assert len(ranges) < 100, "it does not come to an end"
        return ranges


AnyServer = Topics | PostgresServer | MariaServer | None
"""What a subject that is on a server is made with."""


def subject(kind: str, folder: Path, server: AnyServer = None) -> Subject:
    match server:
        case Topics():
            made = _kafka(folder, server)
        case PostgresServer():
            made = _cdc(CdcRig(server, server.new_schema(), folder, {"a": "BIGINT"}, "a"))
        case MariaServer():
            made = _cdc(MySqlRig(server, server.new_database(), folder, {"a": "BIGINT"}, "a"))
        case None:
            made = SUBJECTS[kind](folder)
    return replace(made, definition=replace(made.definition, format=kind))


def _source(columns: Mapping[str, str], **options: object) -> DeclaredSource:
    listed = tuple(Column(name, type_) for name, type_ in columns.items())
    return DeclaredSource("s", listed, "", {n: Option.plain(str(v)) for n, v in options.items()})


def _files(folder: Path, write: Callable[[Path, int], None]) -> Subject:
    (folder / "in" / "deep").mkdir(parents=True)

    def grow(subject: Subject) -> None:
        number = sum(1 for each in (folder / "in").rglob("*") if each.is_file())
        for at, below in enumerate(("", "deep/")):
            write(folder / "in" / f"{below}{number + at:04d}", number + at)

    def spoil(subject: Subject, planned: SourceRange) -> None:
        with planned.data.paths[-1].open("ab") as file:
            file.write(b"\n")

    made = Subject(_source({"a": "BIGINT"}, path="in"), folder, grow, spoil)
    grow(made)
    grow(made)
    return made


def _write_json(path: Path, number: int) -> None:
    path.write_text("".join(f'{{"a": {number * 10 + at}}}\n' for at in range(3)))


def _write_csv(path: Path, number: int) -> None:
    path.write_text("".join(f"{number * 10 + at}\n" for at in range(3)))


def _write_parquet(path: Path, number: int) -> None:
    pq.write_table(pa.table({"a": [number * 10 + at for at in range(3)]}), path)


def _numbered(
    option: str, columns: Mapping[str, str], **options: object
) -> Callable[[Path], Subject]:
    """Of sources that make their rows up there are more when the pipeline says so."""

    def grow(subject: Subject) -> None:
        more = Option.plain(str(int(subject.definition.options[option].value) + 10))
        changed = {**subject.definition.options, option: more}
        subject.definition = replace(subject.definition, options=changed)

    return lambda folder: Subject(_source(columns, **{option: 10}, **options), folder, grow)


def _toy(folder: Path) -> Subject:
    (folder / "in").mkdir()

    def grow(subject: Subject) -> None:
        with (folder / "in" / "lines").open("a") as file:
            file.write("".join(f"line {at}\n" for at in range(5)))

    def spoil(subject: Subject, planned: SourceRange) -> None:
        (folder / "in" / "lines").write_text("")

    made = Subject(_source({"line": "STRING"}, path="in"), folder, grow, spoil)
    grow(made)
    return made


def _kafka(folder: Path, topics: Topics) -> Subject:
    """Two partitions; a twin reads the same topic, for its id is part of every offset."""
    name = f"contract-{sha256(str(folder).removesuffix('/twin').encode()).hexdigest()[:16]}"

    def grow(subject: Subject) -> None:
        for partition in range(2):
            topics.put(name, [{"a": at} for at in range(5)], partition=partition)

    def spoil(subject: Subject, planned: SourceRange) -> None:
        cut = planned.data[-1]
        topics.cut(name, cut.end, partition=cut.partition)

    options = {"kafka.bootstrap.servers": topics.server.bootstrap, "subscribe": name}
    made = Subject(_source({"a": "BIGINT"}, **options), folder, grow, spoil)
    if folder.name != "twin":
        topics.new(2, name=name)
        grow(made)
    return made


def _cdc(rig: CdcRig) -> Subject:
    """Behind the snapshot, which no two processes have in common."""
    rig.create("a bigint PRIMARY KEY")
    rig.epoch(rig.open())

    def grow(subject: Subject) -> None:
        numbers = range(len(rig.there()), len(rig.there()) + 9)
        for first in numbers[::3]:
            rig.run(f"INSERT INTO TABLE_ VALUES ({first}), ({first + 1}), ({first + 2})")

    def spoil(subject: Subject, planned: SourceRange) -> None:
        Path(planned.data.path).unlink()

    def drop() -> None:
        if isinstance(made.opened, Held):
            made.opened.close()
        rig.drop()

    made = Subject(rig.declared(), rig.home, grow, spoil, rig.offset, drop=drop)
    made.opened = rig.opened[0]
    grow(made)
    return made


def _server_missing(folder: Path) -> Subject:
    raise AssertionError(f"a server is needed for the subject in {folder}")


SUBJECTS: Mapping[str, Callable[[Path], Subject]] = {
    "json": lambda folder: _files(folder, _write_json),
    "csv": lambda folder: _files(folder, _write_csv),
    "parquet": lambda folder: _files(folder, _write_parquet),
    "trades": _numbered("rows", {"symbol": "STRING", "volume": "BIGINT"}),
    "nexmark": _numbered("events", {"price": "BIGINT"}, kind="bid"),
    "toy": _toy,
    "kafka": _server_missing,
    "postgres_cdc": _server_missing,
    "mysql_cdc": _server_missing,
}
"""One for each row of the registry, and for the toy."""
