"""Trying again, by cause: timeouts, resets, 429 and 5xx; never what a second try cannot fix.

Waits grow exponentially and are drawn at random from zero to their limit (full jitter), so that
many clients that failed together do not come back together. One budget of seconds bounds it all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from lamina.clock import Clock
from lamina.errors import AlreadyExists, Cancelled, NotFound, StoreUnavailable
from lamina.store.base import Data, Folder, ObjectInfo, Store
from lamina.store.counts import StoreCounts
from lamina.store.readback import same_bytes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to keep trying, and how long to wait in between."""

    budget_seconds: float = 60.0
    first_wait_ms: int = 100
    factor: float = 2.0
    longest_wait_ms: int = 10_000

    def wait_seconds(self, tries: int, clock: Clock) -> float:
        """The wait after the *tries*-th failure."""
        grown = self.first_wait_ms * self.factor ** min(tries - 1, 64)
        return min(grown, self.longest_wait_ms) / 1000 * clock.random_bits(32) / 2**32


class RetryingStore:
    """A store that reads what an unclear answer left, and waits out short failures."""

    def __init__(
        self,
        inner: Store,
        policy: RetryPolicy,
        clock: Clock,
        cancel: threading.Event | None = None,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._clock = clock
        self._cancel = cancel
        self.counts = StoreCounts()

    @property
    def url(self) -> str:
        return self._inner.url

    def get(self, key: str) -> bytes:
        return self._retried("get", lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._retried("get_range", lambda: self._inner.get_range(key, start, length))

    def put(self, key: str, data: Data) -> None:
        self._retried("put", lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: Data) -> None:
        self._retried("put_if_absent", lambda: self._create(key, data))

    def head(self, key: str) -> ObjectInfo:
        return self._retried("head", lambda: self._inner.head(key))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """A listing that breaks continues after the last key it gave."""
        attempts = self._attempts()
        while True:
            self.counts.requests["list"] += 1
            try:
                for info in self._inner.list(prefix, after=after):
                    self._stop_if_cancelled()
                    yield info
                    after, attempts = info.key, self._attempts()
            except StoreUnavailable as error:
                attempts.failed(error)
                self.counts.retries += 1
            else:
                return

    def list_folder(self, prefix: str = "") -> Folder:
        return self._retried("list_folder", lambda: self._inner.list_folder(prefix))

    def delete(self, key: str) -> None:
        self._retried("delete", lambda: self._inner.delete(key))

    def copy(self, source: str, target: str) -> None:
        self._retried("copy", lambda: self._inner.copy(source, target))

    def _create(self, key: str, data: Data) -> None:
        """After any failure that leaves open who wrote, look: our bytes are our success."""
        try:
            self._inner.put_if_absent(key, data)
        except (AlreadyExists, StoreUnavailable) as error:
            try:
                if same_bytes(self._inner, key, data):
                    return
            except NotFound:
                raise StoreUnavailable(
                    f"a create-only put failed and left nothing: {error.message}", where=error.where
                ) from error
            raise AlreadyExists("the key holds other bytes", where=error.where) from error

    def _retried(self, operation: str, call: Callable[[], T]) -> T:
        attempts = self._attempts()
        while True:
            self._stop_if_cancelled()
            self.counts.requests[operation] += 1
            try:
                return call()
            except StoreUnavailable as error:
                attempts.failed(error)
                self.counts.retries += 1

    def _attempts(self) -> _Attempts:
        return _Attempts(self._policy, self._clock, self._cancel)

    def _stop_if_cancelled(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise Cancelled("the caller asked to stop", where=self.url)


class _Attempts:
    """The tries of one operation, from its start until its budget is spent."""

    def __init__(self, policy: RetryPolicy, clock: Clock, cancel: threading.Event | None) -> None:
        self._policy = policy
        self._clock = clock
        self._cancel = cancel
        self._started = clock.monotonic()
        self._tries = 0

    def failed(self, error: StoreUnavailable) -> None:
        """Wait before the next try, or raise if there is none."""
        self._tries += 1
        wait = self._policy.wait_seconds(self._tries, self._clock)
        spent = self._clock.monotonic() - self._started
        if spent + wait >= self._policy.budget_seconds:
            raise StoreUnavailable(
                f"{error.message}; tried {self._tries} times in {spent:.1f} seconds",
                where=error.where,
                advice=error.advice,
            ) from error
        if self._clock.wait(wait, self._cancel):
            raise Cancelled("the caller asked to stop", where=error.where) from error
