"""Objects of a bucket as a source: each is read once, whole, in the order of their times.

An object is known by its name below the address, its size and its tag. Everything is listed at the
first look and then every `list_every`; in between only what the store lists after the highest name
is asked for, which is one request. A new name that sorts before it is found by the next full
listing: nothing is missed, and how late it may come is the price of fewer requests. If nobody says
how often, full listings are at most one request a second on average, and at most every 30 seconds.

 full listing     one request for each 1000 objects that are there; counted, and shown to people
 other looks      one request, and one more for each 1000 new objects
 confirm          one request for each object of the epoch, or a full listing, if that is less
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from lamina.clock import Clock, SystemClock
from lamina.connectors.folder import is_ignored
from lamina.connectors.read_objects import MEMORY, ReadObjects, learned
from lamina.connectors.silent import SilentFor
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Backlog, Limits, Listings, SourceMemory
from lamina.errors import NotFound, Refused
from lamina.state.schema import StateSchema
from lamina.store.bucket import PAGE_OBJECTS, Bucket, FoundObject

OBJECTS = "objects"
LIST_EVERY_S = 30.0
HEADS_AT_ONCE = 8
HEADS_MAX = 100


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """The objects of one epoch, and the address they are below."""

    url: str
    objects: tuple[FoundObject, ...] = ()


class ObjectsSource:
    """What the driver does: listing, planning, looking again. Reading rows is the tasks'."""

    def __init__(
        self,
        name: str,
        url: str,
        options: Mapping[str, Any],
        *,
        list_every_us: int | None = None,
        idle_after_us: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """*options* are those of lamina.store, and may hold secrets."""
        self.name = name
        self.bucket = Bucket(url, options)
        self._list_every_s = None if list_every_us is None else list_every_us / 1_000_000
        self._clock = clock or SystemClock()
        self._silent = SilentFor(idle_after_us, self._clock)
        self._memory: SourceMemory | None = None
        self._full_listings = 0
        self._forget()

    @property
    def memory(self) -> StateSchema | None:
        return MEMORY

    @property
    def listings(self) -> Listings:
        return Listings(self._full_listings, self.bucket.requests)

    @property
    def backlog(self) -> Backlog:
        return Backlog(files=len(self._queue))

    def reach(self) -> None:
        """Raise what is wrong with address, credentials or rights; one request."""
        next(self.bucket.pages(), None)

    def initial(self) -> Offset:
        return {OBJECTS: "0"}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        """New objects, oldest first; one that was read and has changed since stops here."""
        assert memory is not None
        self._look(self._catch_up(start, memory))
        objects = tuple(self._take(limits.files))
        end = {OBJECTS: str(int(start[OBJECTS]) + len(objects))}
        data = ObjectRange(self.bucket.url, objects)
        change = learned(objects) if objects else None
        holding = self._silent.holding(has_more=bool(objects))
        self._planned = SourceRange(self.name, start, end, data, change, holding=holding)
        return self._planned

    def confirm(self, planned: SourceRange) -> None:
        """Each object is still there, and still what it was."""
        data: ObjectRange = planned.data or ObjectRange(self.bucket.url)
        for before, now in zip(data.objects, self._again(data.objects), strict=True):
            where = self.bucket.where(before.path)
            if now is None:
                raise NotFound(
                    f"an object of the source {self.name!r} disappeared while it was read",
                    where=where,
                    advice="Put it back: what was read of it is not committed",
                )
            if before.identity != now.identity:
                raise Refused(
                    f"an object of the source {self.name!r} changed while it was read",
                    where=where,
                    advice="Put new rows into new objects: each is read once",
                )

    def acknowledge(self, offset: Offset) -> None:
        """Objects belong to whoever has put them there."""

    # steps

    def _forget(self) -> None:
        self._waiting: dict[str, FoundObject] = {}
        self._queue: list[tuple[int, str]] = []  # a heap of what is waiting, oldest first
        self._taken: list[tuple[int, str]] = []  # off the heap for the last plan
        self._planned = SourceRange(self.name, {}, {})
        self._highest = ""
        self._listed_at: float | None = None  # all of it
        self._list_again_s = 0.0

    def _catch_up(self, start: Offset, memory: SourceMemory) -> ReadObjects:
        """What was read, with the last plan if it was committed."""
        if memory is not self._memory or start not in (self._planned.start, self._planned.end):
            self._forget()
            self._read = ReadObjects(self.name, memory)
            self._memory = memory
        elif start == self._planned.start:  # not committed, or there was nothing to commit
            for each in self._taken:
                heappush(self._queue, each)
        else:
            self._read.add(self._planned.data.objects)
            for _, path in self._taken:
                self._waiting.pop(path, None)
        self._taken = []
        self._planned = SourceRange(self.name, start, start)
        return self._read

    def _look(self, read: ReadObjects) -> None:
        now = self._clock.monotonic()
        is_full = self._listed_at is None or now - self._listed_at >= self._list_again_s
        seen, highest, pages = set[str](), self._highest, 0
        self._full_listings += is_full
        for page in self.bucket.pages("" if is_full else highest):
            pages += 1
            for found in page:
                highest = max(highest, found.path)
                if found.size and not is_ignored(found.path):
                    self._note(found, read)
                    seen.add(found.path)
        self._highest = highest  # only when all has been listed
        if is_full:
            self._listed_at = now
            self._list_again_s = self._list_every_s or max(LIST_EVERY_S, float(pages))
            for path in self._waiting.keys() - seen:
                del self._waiting[path]

    def _note(self, found: FoundObject, read: ReadObjects) -> None:
        if found.path in read:
            read.check(found, self.bucket.where(found.path))
            return
        before = self._waiting.get(found.path)
        if before != found:
            self._waiting[found.path] = found
            if before is None or before.changed_us != found.changed_us:
                heappush(self._queue, (found.changed_us, found.path))

    def _take(self, limit: int | None) -> Iterator[FoundObject]:
        """The oldest that are waiting, as they were listed last."""
        taken = set[str]()
        while self._queue and (limit is None or len(taken) < limit):
            changed_us, path = heappop(self._queue)
            found = self._waiting.get(path)
            if found is None or found.changed_us != changed_us or path in taken:
                continue  # gone, or replaced, before it was read
            taken.add(path)
            self._taken.append((changed_us, path))
            yield found

    def _again(self, objects: tuple[FoundObject, ...]) -> list[FoundObject | None]:
        listing = len(self._read) // PAGE_OBJECTS + 1 if self._memory is not None else 0
        if len(objects) <= max(HEADS_MAX, listing):
            with ThreadPoolExecutor(HEADS_AT_ONCE) as pool:
                return list(pool.map(self.bucket.head, [found.path for found in objects]))
        wanted = {found.path for found in objects}
        self._full_listings += 1
        now = {f.path: f for page in self.bucket.pages() for f in page if f.path in wanted}
        return [now.get(found.path) for found in objects]
