"""A store that fails on request, as networks and servers do; a seed repeats the failures.

A fault strikes the k-th call of an operation (`Fault("put", KILL_AFTER, call=3)`) or every call
with a probability. Whether it does depends on the seed, the operation and the number of the call
only, so a failing seed fails again, also with threads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TypeVar

from lamina.clock import Clock
from lamina.errors import AlreadyExists, NotFound, SizeMismatch, StoreUnavailable, UsageError
from lamina.store import Data, Folder, ObjectInfo, Store
from lamina.store.folders import check_prefix, level_of
from lamina.testing.clock import ManualClock, chance_bits

T = TypeVar("T")

OPERATIONS = (
    "get get_range put put_if_absent head list list_folder delete copy".split()  # noqa: SIM905
)


class Killed(BaseException):
    """The process died here. No Exception: no handler may eat it, as none eats a kill -9."""


class FaultKind(Enum):
    """What goes wrong. AFTER: the effect has happened, only the answer is lost."""

    LATENCY = "latency"
    TOO_MANY_REQUESTS = "429"
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    TIMEOUT_BEFORE = "timeout before the effect"
    TIMEOUT_AFTER = "timeout after the effect"
    EXISTS_AFTER = "already exists, for the own write"
    SHORT_READ = "short read"
    WRONG_BYTES = "wrong bytes"
    STALE_LIST = "stale list"
    KILL_BEFORE = "killed before the effect"
    KILL_AFTER = "killed after the effect"


_BEFORE = (
    FaultKind.TOO_MANY_REQUESTS,
    FaultKind.SERVER_ERROR,
    FaultKind.UNAVAILABLE,
    FaultKind.TIMEOUT_BEFORE,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of trouble for one operation: at call number *call* (from 1), or by chance."""

    operation: str
    kind: FaultKind
    call: int | None = None
    probability: float = 0.0
    latency_ms: int = 0
    operations_ago: int = 1

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise UsageError(f"a store has no operation {self.operation!r}")

    def strikes(self, seed: int, call: int, place: int) -> bool:
        if self.call is not None:
            return call == self.call
        drawn = chance_bits(f"{seed}:{self.operation}:{call}:{place}", 32)
        return drawn < self.probability * 2**32


@dataclass(frozen=True, slots=True)
class _Change:
    """What a key held before a call changed it: for listings of the past."""

    number: int
    key: str
    before: ObjectInfo | None


class FaultyStore:
    """*inner* with faults. `calls` counts what was asked of it, by operation."""

    def __init__(
        self,
        inner: Store,
        seed: int = 0,
        faults: Iterable[Fault] = (),
        *,
        clock: Clock | None = None,
    ) -> None:
        self._inner = inner
        self._seed = seed
        self._faults = tuple(faults)
        self._clock = clock or ManualClock(seed)
        self._lock = threading.Lock()
        self._changes: list[_Change] = []
        self._keeps_past = any(fault.kind is FaultKind.STALE_LIST for fault in self._faults)
        self.calls: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str) -> bytes:
        with_faults = self._call("get", key)
        data = with_faults.run(lambda: self._inner.get(key))
        if with_faults.has(FaultKind.SHORT_READ):
            return data[: len(data) // 2]
        return _flipped(data) if with_faults.has(FaultKind.WRONG_BYTES) else data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """A short read of a range is what the promise of the protocol makes of it."""
        with_faults = self._call("get_range", key)
        data = with_faults.run(lambda: self._inner.get_range(key, start, length))
        if with_faults.has(FaultKind.SHORT_READ):
            raise SizeMismatch(f"{length // 2} of {length} bytes came", where=key)
        return _flipped(data) if with_faults.has(FaultKind.WRONG_BYTES) else data

    def put(self, key: str, data: Data) -> None:
        self._call("put", key).run(lambda: self._change(key, lambda: self._inner.put(key, data)))

    def put_if_absent(self, key: str, data: Data) -> None:
        def effect() -> None:
            self._change(key, lambda: self._inner.put_if_absent(key, data))

        self._call("put_if_absent", key).run(effect)

    def head(self, key: str) -> ObjectInfo:
        return self._call("head", key).run(lambda: self._inner.head(key))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """With a fault "after the effect" the first half of the listing comes, then the fault."""
        call = self._call("list", prefix)
        call.before()
        found = [info for info in self._seen(call, prefix) if info.key > after]
        if call.breaks_after:
            yield from islice(found, len(found) // 2)
            call.after()
        yield from found

    def list_folder(self, prefix: str = "") -> Folder:
        call = self._call("list_folder", prefix)
        if call.has(FaultKind.STALE_LIST):
            return call.run(lambda: level_of(self._seen(call, prefix), check_prefix(prefix)))
        return call.run(lambda: self._inner.list_folder(prefix))

    def delete(self, key: str) -> None:
        self._call("delete", key).run(lambda: self._change(key, lambda: self._inner.delete(key)))

    def copy(self, source: str, target: str) -> None:
        def effect() -> None:
            self._change(target, lambda: self._inner.copy(source, target))

        self._call("copy", source).run(effect)

    def _call(self, operation: str, key: str) -> _Call:
        with self._lock:
            self.calls[operation] += 1
            number = self.calls[operation]
        struck = tuple(
            fault
            for place, fault in enumerate(self._faults)
            if fault.operation == operation and fault.strikes(self._seed, number, place)
        )
        return _Call(struck, self._clock, f"{operation} {number} of {key}")

    def _change(self, key: str, effect: Callable[[], None]) -> None:
        if not self._keeps_past:
            return effect()
        before = self._info(key)
        effect()
        with self._lock:
            self._changes.append(_Change(self.calls.total(), key, before))
        return None

    def _info(self, key: str) -> ObjectInfo | None:
        try:
            return self._inner.head(key)
        except NotFound:
            return None

    def _seen(self, call: _Call, prefix: str) -> Iterable[ObjectInfo]:
        """What is below *prefix* now, or some operations ago: the changes since are undone."""
        ago = call.operations_ago
        if not ago:
            return self._inner.list(prefix)
        seen: dict[str, ObjectInfo | None] = {i.key: i for i in self._inner.list(prefix)}
        with self._lock:
            since = [c for c in self._changes if c.number >= self.calls.total() - ago]
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        seen |= {c.key: c.before for c in reversed(since) if c.key.startswith(start)}
        return [info for _, info in sorted(seen.items()) if info is not None]


@dataclass(frozen=True, slots=True)
class _Call:
    """One call and the faults that strike it."""

    faults: tuple[Fault, ...]
    clock: Clock
    what: str

    def has(self, kind: FaultKind) -> bool:
        return any(fault.kind is kind for fault in self.faults)

    @property
    def breaks_after(self) -> bool:
        return self.has(FaultKind.TIMEOUT_AFTER) or self.has(FaultKind.KILL_AFTER)

    @property
    def operations_ago(self) -> int:
        stale = [f.operations_ago for f in self.faults if f.kind is FaultKind.STALE_LIST]
        return max(stale, default=0)

    def run(self, effect: Callable[[], T]) -> T:
        self.before()
        result = effect()
        self.after()
        return result

    def before(self) -> None:
        for fault in self.faults:
            if fault.kind is FaultKind.LATENCY:
                self.clock.wait(fault.latency_ms / 1000)
            elif fault.kind is FaultKind.KILL_BEFORE:
                raise Killed(self.what)
            elif fault.kind in _BEFORE:
                raise StoreUnavailable(f"injected: {fault.kind.value}", where=self.what)

    def after(self) -> None:
        for fault in self.faults:
            if fault.kind is FaultKind.KILL_AFTER:
                raise Killed(self.what)
            if fault.kind is FaultKind.TIMEOUT_AFTER:
                raise StoreUnavailable(f"injected: {fault.kind.value}", where=self.what)
            if fault.kind is FaultKind.EXISTS_AFTER:
                raise AlreadyExists(f"injected: {fault.kind.value}", where=self.what)


def _flipped(data: bytes) -> bytes:
    """The same length, one bit of the middle byte wrong."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else data
