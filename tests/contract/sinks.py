"""Every sink behind one face: opened as a process opens it, and seen as a reader sees it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from io import BufferedIOBase, BytesIO, StringIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.console import ConsoleSink
from lamina.connectors.parquet import ParquetSink
from lamina.engine.ports import Beyond, Publication, Sink
from lamina.engine.ports import Output as StreamOutput
from lamina.format.commit import Point
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.protocol.sinks import SinkPosition
from lamina.workspace.model import Staged
from lamina.workspace.staging import HomeStaged
from tests.contract.crash_files import CrashFiles, Platter
from tests.contract.toy_sink import ToyFile, ToySink
from tests.support.memory_sink import MemorySink, MemoryTable

Hook = Callable[[str], None]
Shown = dict[int, list[int]]
"""The rows of each epoch that a reader sees."""

ROOT = Path("/sink")


def nothing(_: str) -> None:
    """A hook that lets everything pass."""


class World(Protocol):
    """What a sink writes to, and how it is looked at."""

    exactly_once: bool

    def open(self, hook: Hook = nothing) -> Sink:
        """As a new process does; *hook* hears of every call to the outside, and may raise."""
        ...

    def shown(self) -> Shown: ...


@runtime_checkable
class ServerWorld(World, Protocol):
    """A world with a server that can go away."""

    def down(self) -> AbstractContextManager[None]:
        """It does not answer while the block runs; after that it is there again, as it was."""
        ...


ROWS = {1: [[1, 2], [3]], 2: [], 3: [[4]], 4: [[5, 6], [7]]}
"""What the suite publishes: the files of each epoch. Each number is there once."""
SHOWN = {1: [1, 2, 3], 3: [4], 4: [5, 6, 7]}


LATER = {6: [8], 9: [9], 12: [10, 11]}
"""Rows of epochs that come after a rewind."""


def by_epoch(values: Iterable[int]) -> Shown:
    """Rows of a table that does not say which epoch brought them."""
    every = (SHOWN | LATER).items()
    epochs = {value: epoch for epoch, rows in every for value in rows}
    found: Shown = {}
    for value in sorted(values):
        found.setdefault(epochs[value], []).append(value)
    return found


@dataclass
class ParquetWorld:
    """Parquet files on a file system that can be cut anywhere."""

    platter: Platter = field(default_factory=Platter)
    exactly_once: bool = True
    opened: int = 0

    def open(self, hook: Hook = nothing) -> Sink:
        self.opened += 1
        return ParquetSink("out", ROOT, CrashFiles(self.platter, f"{self.opened:012x}", hook))

    def shown(self) -> Shown:
        """What a reader of `*/*.parquet` gets; files in between are not looked at."""
        found: Shown = {}
        for path, data in self.platter.tree(ROOT).items():
            visible = re.fullmatch(r"epoch-([0-9]{20})(?:-[0-9]+)?/[^._][^/]*\.parquet", path)
            if visible:
                found.setdefault(int(visible[1]), []).extend(rows_in(BytesIO(data)))
        return found


@dataclass
class LocalParquetWorld:
    """Parquet files on the disk of this machine."""

    folder: Path
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        return ToldTruncating(ParquetSink("out", self.folder), hook)

    def shown(self) -> Shown:
        found: Shown = {}
        for path in sorted(self.folder.glob("epoch-*/*.parquet")):
            with path.open("rb") as opened:
                epoch = int(path.parent.name.split("-")[1])
                found.setdefault(epoch, []).extend(rows_in(opened))
        return found


@dataclass
class MemoryWorld:
    table: MemoryTable = field(default_factory=MemoryTable)
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        return ToldTruncating(MemorySink("out", self.table), hook)

    def shown(self) -> Shown:
        rows = {
            e: [r for t in tables for r in _values(t)]
            for e, tables in self.table.epochs.copy().items()
        }
        return {epoch: values for epoch, values in rows.items() if values}


@dataclass
class ConsoleWorld:
    """A terminal; its position is kept beside it."""

    screen: StringIO = field(default_factory=StringIO)
    kept: list[SinkPosition] = field(default_factory=list)
    exactly_once: bool = False

    def open(self, hook: Hook = nothing) -> Sink:
        return ConsoleSink("out", KeptPosition(self.kept, hook), ToldScreen(self.screen, hook))

    def shown(self) -> Shown:
        found: Shown = {}
        epoch = 0
        for line in self.screen.getvalue().splitlines():
            if title := re.fullmatch(r"out, epoch ([0-9]+): [0-9]+ rows", line):
                epoch = int(title[1])
                found[epoch] = []  # shown again: what counts is that it is whole
            elif (cells := line.split()) and all(cell.isdigit() for cell in cells):
                found[epoch].append(int(cells[0]))
        return found


@dataclass
class ToyWorld:
    """A sink of one file of code: what somebody else would write."""

    file: ToyFile = field(default_factory=ToyFile)
    exactly_once: bool = True

    def open(self, hook: Hook = nothing) -> Sink:
        return ToySink("out", self.file, hook)

    def shown(self) -> Shown:
        return {epoch: rows for epoch, rows in self.file.epochs.copy().items() if rows}


class Told:
    """A sink that makes one call: told before and after it."""

    def __init__(self, sink: Sink, hook: Hook) -> None:
        self._sink, self._hook = sink, hook
        self.name, self.delivery, self.takes = sink.name, sink.delivery, sink.takes

    def position(self) -> SinkPosition:
        return self._sink.position()

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        self._hook("fence")
        found = self._sink.fence(generation, pipeline)
        self._hook("fenced")
        return found

    def publish(self, publication: Publication) -> None:
        self._hook("publish")
        self._sink.publish(publication)
        self._hook("published")

    def close(self) -> None:
        self._sink.close()


class ToldTruncating(Told):
    """The same of one that can take rows back."""

    _sink: Any

    def beyond(self, to: Point) -> Beyond:
        found: Beyond = self._sink.beyond(to)
        return found

    def truncate(self, publication: Publication, to: Point) -> None:
        self._hook("truncate")
        self._sink.truncate(publication, to)
        self._hook("truncated")


class ToldScreen(StringIO):
    encoding = "utf-8"

    def __init__(self, screen: StringIO, hook: Hook) -> None:
        super().__init__()
        self._screen, self._hook = screen, hook

    def write(self, text: str) -> int:
        self._hook("write")
        return self._screen.write(text)

    def flush(self) -> None:
        self._hook("flush")


@dataclass
class KeptPosition:
    kept: list[SinkPosition]
    hook: Hook

    def load(self) -> SinkPosition:
        return self.kept[-1] if self.kept else SinkPosition(NOBODY, 0, None)

    def save(self, position: SinkPosition) -> None:
        self.hook("save")
        self.kept[:] = [position]
        self.hook("saved")


# what is published

APPENDED = StreamOutput(pa.schema([pa.field("v", pa.int64())]))
"""What the sinks of the suite are opened with."""
PIPELINE = Owner("p" * 32, "p")
ANOTHER = Owner("a" * 32, "another")


@dataclass(frozen=True)
class Output:
    """Staged files of a home, and publications of them."""

    home: Path

    def publication(
        self,
        epoch: int,
        rows: Sequence[Sequence[int]] = (),
        *,
        generation: int = 1,
        pipeline: Owner = PIPELINE,
        digest: str = "",
        also: str = "",
    ) -> Publication:
        """An epoch whose output is one file for each of *rows*; *also* is a column more."""
        files = [self._stage(epoch, number, each, also) for number, each in enumerate(rows)]
        point = Point(epoch, digest or f"{epoch:064x}")
        staged = HomeStaged(self.home)
        return Publication(pipeline, generation, point, files, staged, APPENDED)

    def _stage(self, epoch: int, number: int, rows: Sequence[int], also: str) -> Staged:
        path = self.home / f"{epoch}-{number}-{'-'.join(map(str, rows))}{also}.parquet"
        if not path.exists():
            self.home.mkdir(exist_ok=True)
            columns = {name: pa.array(rows, pa.int64()) for name in ("v", also) if name}
            pq.write_table(pa.table(columns), path)
        data = path.read_bytes()
        return Staged(path.name, len(data), hashlib.sha256(data).hexdigest(), len(rows))


def rows_in(opened: BufferedIOBase) -> list[int]:
    return _values(pq.read_table(opened))


def _values(table: pa.Table) -> list[int]:
    values: list[int] = table["v"].to_pylist()
    return values
