"""Parquet files in an object store as a sink: an epoch becomes visible with one small object.

    prepare   the files of an epoch, under names that no reader goes by
    decide    the next entry of the sink's log, create-only: it names the files; readers go by it

There is no step after the decision. Killed before it, the files are garbage that the next claim
deletes; after it, everything is there. A process that was paused finds the next number taken by a
newer fence. All names are in lamina.format.object_log.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO

from lamina.clock import Clock, SystemClock
from lamina.connectors.object_log import ObjectLog
from lamina.connectors.staged import RESTORE, prove
from lamina.engine.ports import Beyond, Change, Publication
from lamina.errors import Corrupt, NotFound
from lamina.format import object_log as names
from lamina.format.commit import Point
from lamina.format.object_log import ObjectEntry, ObjectFile
from lamina.format.pipeline_record import Owner
from lamina.format.taken_back import TakenBack
from lamina.os_errors import typed_errors
from lamina.protocol.rewinds import is_shown
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner
from lamina.store.base import Data, Store
from lamina.store.probe import probe_store
from lamina.workspace.model import Staged


class ObjectParquetSink:
    """A prefix of a bucket or container."""

    delivery = "exactly once; an epoch becomes visible in one create-only put"
    takes = frozenset({Change.APPEND, Change.UPSERT})  # of a row every version, by epoch

    def __init__(self, name: str, store: Store, clock: Clock | None = None) -> None:
        """*store* is below the sink's path; it is asked nothing yet."""
        self.name = name
        self._store = store
        self._clock = clock or SystemClock()
        self._log = ObjectLog(store)

    def position(self) -> SinkPosition:
        return _position(self._log.last()[1])

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        """An entry of this generation on top of all others: from now on nobody older decides."""
        before = self.position()
        check_owner(before, pipeline)
        check_fence(before, generation)
        probe_store(self._store, self._clock)
        while True:
            number, last = self._log.last()
            check_owner(_position(last), pipeline)  # it may have become another's meanwhile
            check_fence(_position(last), generation)
            fence = replace(
                last, pipeline=pipeline or last.pipeline, generation=generation, files=()
            )
            is_mine = (last.pipeline, last.generation) == (fence.pipeline, generation)
            if (number and is_mine) or self._log.append(number + 1, fence):
                break
        self._sweep(last, generation)
        return _position(fence)

    def publish(self, publication: Publication) -> None:
        number, last = self._log.last()
        if publication.judge(_position(last)) is Publish.DONE:
            return
        self._log.fold(number)
        files = tuple(self._put(publication, file, at) for at, file in enumerate(publication.files))
        self._decide(number, last, publication, files)

    def beyond(self, to: Point) -> Beyond:
        number, last = self._log.last()
        after = TakenBack((last.point or to).epoch + 1, to.epoch)
        now = {file.path: file for file in shown_files(self._log.files(number), last.taken_back)}
        then = shown_files(self._log.files(number), (*last.taken_back, after))
        kept = {file.path for file in then}
        hides = [file for path, file in now.items() if path not in kept]
        return Beyond(
            len(set(map(_epoch, hides))),
            sum(file.rows for file in hides),
            sum(file.size for file in hides),
            len({_epoch(file) for file in then if file.path not in now}),
        )

    def truncate(self, publication: Publication, to: Point) -> None:
        """One entry: readers go by what it says of rewinds, and no file is touched."""
        number, last = self._log.last()
        if publication.judge(_position(last)) is Publish.NOW:
            self._decide(number, last, publication, to=to)

    def close(self) -> None:
        """Nothing is held open."""

    # steps

    def _decide(
        self,
        number: int,
        last: ObjectEntry,
        publication: Publication,
        files: tuple[ObjectFile, ...] = (),
        *,
        to: Point | None = None,
    ) -> None:
        """Take the number after the last entry, unless a twin has decided the same epoch."""
        point, generation = publication.point, publication.generation
        added = () if to is None else (TakenBack(point.epoch, to.epoch),)
        while True:
            rewinds = (*last.taken_back, *added)
            entry = ObjectEntry(publication.pipeline, generation, point, files, rewinds)
            if self._log.append(number + 1, entry):
                return
            number, last = self._log.last()
            if publication.judge(_position(last)) is Publish.DONE:
                return

    def _put(self, publication: Publication, file: Staged, at: int) -> ObjectFile:
        """One file, proven before it leaves; put again it is the same."""
        epoch, generation = publication.point.epoch, publication.generation
        key = names.data_key(epoch, generation, file.sha256, at)
        with _proven(publication, file) as data:
            self._store.put(key, data)
        return ObjectFile(key, file.size, file.sha256, file.rows)

    def _sweep(self, last: ObjectEntry, generation: int) -> None:
        """Files of older processes that were never decided: those are dead, or fenced now.

        Epochs are decided in their order. So what was prepared and not decided is of a later epoch
        than the last one: everything up to there need not be listed.
        """
        decided = last.point.epoch if last.point else 0
        after = f"{names.DATA}/{max(decided - (decided % 10 == 0), 0):020d}"
        for info in self._store.list(names.DATA, after=after):
            found = names.parse_data_key(info.key)
            if found is not None and found[0] > decided and found[1] < generation:
                self._store.delete(info.key)


@contextmanager
def _proven(publication: Publication, file: Staged) -> Iterator[Data]:
    """The bytes of a staged file. Corrupt if they are not those that were committed."""
    where = publication.staged.where(file)
    path = publication.staged.local_path(file)
    with typed_errors(where):
        if path is None:
            with publication.staged.open(file) as opened:
                data = opened.read()
            prove(BytesIO(data), file, where)
            yield data
            return
        try:
            opened_file = path.open("rb")
        except FileNotFoundError:
            message = "a staged file is missing"
            raise NotFound(message, where=where, advice=RESTORE) from None
        with opened_file as opened:
            prove(opened, file, where)
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped


def shown_files(files: Iterable[ObjectFile], rewinds: tuple[TakenBack, ...]) -> list[ObjectFile]:
    """Those that readers go by, of all that entries name: the last entry has the *rewinds*."""
    return [file for file in files if is_shown(_epoch(file), rewinds)]


def _epoch(file: ObjectFile) -> int:
    named = names.parse_data_key(file.path)
    if named is None:
        raise Corrupt("an entry of a sink's log names a file that no epoch has", where=file.path)
    return named[0]


def _position(entry: ObjectEntry) -> SinkPosition:
    return SinkPosition(entry.pipeline, entry.generation, entry.point)
