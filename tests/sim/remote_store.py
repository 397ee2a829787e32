"""The bucket of a remote home: outages, requests that arrive late, listings page by page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from lamina.errors import AlreadyExists, StoreUnavailable
from lamina.store.base import Data, ObjectInfo
from tests.sim.scheduler import Scheduler
from tests.sim.store import SimStore

PAGE = 3


class BucketStore(SimStore):
    """Knows how old each object is, as a lifecycle rule does."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.born: dict[str, int] = {}
        self.down_until = 0
        self.late = 0  # requests that took effect after their sender had given them up

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Page by page: objects come and go in between."""
        while True:
            self._before(f"list {prefix} after {after}")
            page = [info for info, _ in zip(self.inner.list(prefix, after=after), range(PAGE))]  # noqa: B905
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].key

    def put(self, key: str, data: Data) -> None:
        self._maybe_late(f"put {key}", key, data)
        super().put(key, data)
        self.born[key] = self._scheduler.steps

    def put_if_absent(self, key: str, data: Data) -> None:
        self._maybe_late(f"create {key}", key, data, create=True)
        super().put_if_absent(key, data)

    def create(self, key: str, data: Data) -> None:
        super().create(key, data)
        self.born[key] = self._scheduler.steps

    def expire(self, prefix: str, age: int) -> list[str]:
        """A lifecycle rule: what is older than *age* goes, whatever it is."""
        born = {key: step for key, step in self.born.items() if key.startswith(prefix)}
        old = [key for key, step in born.items() if self._scheduler.steps - step >= age]
        for key in old:
            del self.born[key]
            self.inner.delete(key)
        return old

    def lose_one(self, prefix: str) -> list[str]:
        """Any object but the newest: that one nobody could miss."""
        keys = [info.key for info in self.inner.list(prefix)][:-1]
        lost = self._scheduler.random.sample(keys, min(1, len(keys)))
        for key in lost:
            self.inner.delete(key)
        return lost

    def _before(self, what: str) -> None:
        super()._before(what)
        if self._scheduler.steps < self.down_until and not self._scheduler.calm:
            raise StoreUnavailable("503", where=what)

    def _maybe_late(self, what: str, key: str, data: Data, *, create: bool = False) -> None:
        """The sender times out; the request is still on its way, and arrives when it likes."""
        if not self._scheduler.chance(0.01):
            return
        arrive = (lambda: self.create(key, data)) if create else (lambda: self._arrive(key, data))

        def body() -> None:
            self.late += 1
            with suppress(AlreadyExists):
                arrive()

        actor = self._scheduler.spawn(f"late {what}", "", body)
        actor.held = self._scheduler.random.randrange(200)
        raise StoreUnavailable("timeout; the request may still arrive", where=what)

    def _arrive(self, key: str, data: Data) -> None:
        self.inner.put(key, data)
        self.born[key] = self._scheduler.steps
