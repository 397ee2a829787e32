"""Parquet sinks in object stores, and functions as sinks, behind the one face of all sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa

from lamina.connectors.function import FunctionSink
from lamina.connectors.object_log import ObjectLog
from lamina.connectors.object_parquet import ObjectParquetSink, shown_files
from lamina.engine.ports import Sink
from lamina.errors import StoreFull, StoreUnavailable
from lamina.format.object_log import parse_data_key
from lamina.protocol.sinks import SinkPosition
from lamina.store import MemoryStore, Store
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.testing.clock import ManualClock
from tests.contract.sinks import Hook, KeptPosition, Shown, nothing, rows_in

CALLS = ("get", "get_range", "put", "put_if_absent", "head", "list_folder", "delete", "copy")


class ToldStore:
    """A store that says what it is asked, before and after; while it is down, *dead* is asked."""

    def __init__(self, world: ObjectParquetWorld, hook: Hook) -> None:
        self._world, self._hook = world, hook

    @property
    def url(self) -> str:
        return self._world.store.url

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Any]:
        yield from self._told("list", lambda store: list(store.list(prefix, after=after)))

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            raise AttributeError(name)
        return lambda *args: self._told(name, lambda store: getattr(store, name)(*args))

    def _told(self, name: str, call: Callable[[Store], Any]) -> Any:
        if self._world.is_down:
            return call(self._world.dead)
        self._hook(name)
        result = call(self._world.store)
        self._hook(f"{name} done")
        return result


class Dead:
    """A store that does not answer."""

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable("the store cannot be reached", where="memory://")


@dataclass
class ObjectParquetWorld:
    """Any store; what a reader sees is what the log names."""

    store: Store = field(default_factory=MemoryStore)
    dead: Any = field(default_factory=Dead)
    exactly_once: bool = True
    is_down: bool = False
    opened: int = 0

    def open(self, hook: Hook = nothing) -> Sink:
        self.opened += 1
        told: Any = ToldStore(self, hook)
        clock = ManualClock(self.opened)
        patient = RetryingStore(told, RetryPolicy(budget_seconds=1.0), clock)
        return ObjectParquetSink("out", patient, clock)

    @contextmanager
    def down(self) -> Iterator[None]:
        self.is_down = True
        try:
            yield
        finally:
            self.is_down = False

    def shown(self) -> Shown:
        log = ObjectLog(self.store)
        shown: Shown = {}
        number, last = log.last()
        for file in shown_files(log.files(number), last.taken_back):
            parsed = parse_data_key(file.path)
            assert parsed is not None
            data = self.store.get(file.path)
            assert len(data) == file.size
            shown.setdefault(parsed[0], []).extend(rows_in(BytesIO(data)))
        return shown


@dataclass
class FunctionWorld:
    """A function that replaces what it has under an epoch."""

    epochs: Shown = field(default_factory=dict)
    kept: list[SinkPosition] = field(default_factory=list)
    exactly_once: bool = False

    def open(self, hook: Hook = nothing) -> Sink:
        def function(table: pa.Table, epoch: int) -> None:
            try:
                hook("call")
                self.epochs = {**self.epochs, epoch: table["v"].to_pylist()}
                hook("called")
            except OSError as error:
                raise StoreFull(str(error)) from error

        return FunctionSink("out", KeptPosition(self.kept, hook), function, "here:function")

    def shown(self) -> Shown:
        return dict(self.epochs)
