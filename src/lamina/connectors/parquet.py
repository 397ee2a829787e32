"""Parquet files as a sink: the output of an epoch becomes visible in one step.

    prepare   the files of an epoch in a folder that readers pass over, all of it durable
    decide    the next entry of the sink's log: taken by this publication, or by a newer fence
    show      the folder gets the name of its epoch: readers of `epoch-*/*.parquet` see it all

Killed before the decision, nothing happened; after it, whoever claims the sink next shows what was
decided. A process that was paused can only do what its own entry says, or nothing.

Staged files are proven by size and SHA-256 before they are shown: a link to a damaged file would
publish the damage. All names are in lamina.format.sink_log.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from lamina.clock import SystemClock
from lamina.connectors.kinds import DeclaredOption, Given, OptionType, SinkContext, SinkKind
from lamina.connectors.parquet_folders import arrange, compare
from lamina.connectors.sink_log import SinkLog
from lamina.connectors.staged import RESTORE, prove
from lamina.connectors.store_options import STORE_OPTIONS, check_store_options, store_options
from lamina.disk.files import Files, LocalFiles
from lamina.engine.ports import Beyond, Change, Publication, Sink
from lamina.errors import Diverged, LaminaError, NotFound
from lamina.format import sink_log as names
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.format.sink_log import SinkEntry
from lamina.format.taken_back import TakenBack
from lamina.os_errors import typed_errors
from lamina.pipeline.model import DeclaredSink
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.workspace.model import Staged

PATH = "path"
PATIENCE = RetryPolicy(budget_seconds=5.0)
"""Of one call: a store that fails for longer is the engine's to come back to."""
IN_THE_WAY = "Move it out of the sink's folder: readers would take it for output of this pipeline"


class ParquetSink:
    """A folder on a file system."""

    delivery = "exactly once; an epoch becomes visible in one rename"
    takes = frozenset({Change.APPEND, Change.UPSERT})  # of a row every version, by epoch

    def __init__(self, name: str, folder: Path, files: Files | None = None) -> None:
        self.name = name
        self._folder = folder.absolute()
        self._files = files or LocalFiles()
        self._log = SinkLog(self._files, self._folder)
        self._claimed = 0  # the generation under which this process has fenced or published
        self._unshown = False  # what it decided last may not be visible and durable yet

    def position(self) -> SinkPosition:
        """Where the log's last entry says; what this process has decided is shown first."""
        with typed_errors(self._folder):
            _, last = self._log.last()
            if self._unshown and last.generation == self._claimed:
                self._show_again(last)
                self._unshown = False
            return _position(last)

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        with typed_errors(self._folder):
            before = _position(self._log.last()[1])
            check_owner(before, pipeline)
            check_fence(before, generation)
            self._log.begin(generation)
            number, last = self._claim(generation, pipeline)
            self._show_again(last)
            self._unshown = False
            self._sweep(number, generation)
        return _position(last)

    def publish(self, publication: Publication) -> None:
        with typed_errors(self._folder):
            number, last = self._log.last()
            verdict = publication.judge(_position(last))
            if self._claimed != publication.generation:
                self._log.begin(publication.generation)
            if self._claimed != publication.generation or self._unshown or verdict is Publish.DONE:
                self._show_again(last)
            if verdict is Publish.NOW:
                self._publish(number, last, publication)
            self._unshown = False

    def beyond(self, to: Point) -> Beyond:
        with typed_errors(self._folder):
            last = self._log.last()[1]
            after = TakenBack((last.point or to).epoch + 1, to.epoch)
            return compare(self._files, self._folder, (*last.taken_back, after))

    def truncate(self, publication: Publication, to: Point) -> None:
        """Decided by an entry, like any epoch; then folders are hidden, newest first."""
        with typed_errors(self._folder):
            number, last = self._log.last()
            verdict = publication.judge(_position(last))
            self._log.begin(publication.generation)
            self._show_again(last)
            if verdict is Publish.NOW:
                self._show(self._decide(number, last, publication, to=to))
            self._unshown = False

    def close(self) -> None:
        """Nothing is held open."""

    # claim

    def _claim(self, generation: int, pipeline: Owner) -> tuple[int, SinkEntry]:
        """An entry of this generation on top of all others: from now on nobody older decides."""
        while True:
            number, last = self._log.last()
            check_owner(_position(last), pipeline)  # it may have become another's meanwhile
            check_fence(_position(last), generation)
            fence = replace(last, pipeline=pipeline or last.pipeline, generation=generation)
            if number and last == fence:
                break
            if self._log.append(number + 1, fence):
                number, last = number + 1, fence
                break
        self._claimed = generation
        return number, last

    def _sweep(self, number: int, generation: int) -> None:
        """Folders of older processes that were never decided: those are dead, or fenced now."""
        for name in self._files.names(self._folder):
            made_by = names.parse_prepared(name)
            if made_by is not None and made_by < generation:
                self._files.remove(self._folder / name)
        self._log.sweep(number)

    # publish

    def _publish(self, number: int, last: SinkEntry, publication: Publication) -> None:
        try:
            prepared = self._prepare(publication)
        except (LaminaError, OSError):
            # If a newer process sweeps, that is the reason.
            publication.judge(_position(self._log.last()[1]))
            raise
        entry = self._decide(number, last, publication, prepared)
        self._show(entry)
        self._check_shown(entry, publication)
        self._log.drop(number + 1)

    def _decide(
        self,
        number: int,
        last: SinkEntry,
        publication: Publication,
        prepared: str = "",
        *,
        to: Point | None = None,
    ) -> SinkEntry:
        """Take the number after the last entry; what was decided, by this process or a twin."""
        point, generation = publication.point, publication.generation
        added = () if to is None else (TakenBack(point.epoch, to.epoch),)
        self._claimed, self._unshown = generation, True
        while True:
            rewinds = (*last.taken_back, *added)
            entry = SinkEntry(publication.pipeline, generation, point, prepared, rewinds)
            if self._log.append(number + 1, entry):
                return entry
            number, last = self._log.last()
            if publication.judge(_position(last)) is Publish.DONE:
                return last
            self._show_again(last)

    def _prepare(self, publication: Publication) -> str:
        """The folder of an epoch, durable under another name; none if there is nothing to show."""
        if not publication.files:
            return ""
        point = publication.point
        marker = names.encode_marker(publication.pipeline.name, point, publication.rows)
        target = self._folder / names.visible(point.epoch)
        if self._files.exists(target):
            self._check_ours(target, point)  # an older release showed it before its entry
            self._files.sync(self._folder)
            return ""
        folder = self._folder / names.prepared(point.epoch, publication.generation, self._files.tag)
        try:
            self._files.remove(folder)  # of a try before this one
            self._files.mkdir(folder)
            for number, file in enumerate(publication.files):
                self._copy(publication, file, folder / names.part(number))
            self._files.create(folder / names.MARKER, BytesIO(marker))
            self._files.sync(folder)
            self._files.sync(self._folder)
        except (LaminaError, OSError):
            self._files.remove(folder)  # the disk may be full
            raise
        return folder.name

    def _copy(self, publication: Publication, file: Staged, part: Path) -> None:
        """A hard link if that can be, else a copy; proven where it is."""
        source, where = publication.staged.local_path(file), publication.staged.where(file)
        try:
            if source is None or not self._linked(source, part):
                with publication.staged.open(file) as opened:
                    self._files.create(part, opened)
        except NotFound:
            raise NotFound("a staged file is missing", where=where, advice=RESTORE) from None
        with self._files.open(part) as opened:
            prove(opened, file, where)

    def _linked(self, source: Path, target: Path) -> bool:
        """Not on another device, for one; then a copy tells what is wrong, if anything is."""
        try:
            self._files.link(source, target)
        except OSError:
            self._files.unlink(target)  # it may have been made, and only the answer lost
            return False
        return True

    def _check_ours(self, target: Path, point: Point) -> None:
        """By the COMMIT: the pipeline may have had another name then."""
        path = target / names.MARKER
        try:
            with self._files.open(path) as opened:
                if names.decode_old_entry(opened.read(), str(path))[1] == point:
                    return
        except (FileNotFoundError, NotADirectoryError):
            message = "another folder is where the output of an epoch should appear"
            raise Diverged(message, where=str(target), advice=IN_THE_WAY) from None
        raise Diverged("the sink holds another history of this epoch", where=str(target))

    # show

    def _show_again(self, entry: SinkEntry) -> None:
        """What *entry* decided, whoever did, and durable: its process may have died anywhere."""
        self._log.sync()
        self._show(entry)

    def _show(self, entry: SinkEntry) -> None:
        """Give the folder its name, unless it has it; after a rewind, hide what it took back."""
        if entry.point is None:
            return
        if entry.taken_back and entry.taken_back[-1].epoch == entry.point.epoch:
            arrange(self._files, self._folder, entry.taken_back, self._rename)
        if not entry.prepared:
            return
        prepared = self._folder / entry.prepared
        if self._files.exists(prepared):  # else it has its name, or had: old ones may be moved away
            self._rename(prepared, self._folder / names.visible(entry.point.epoch))
        self._files.sync(self._folder)

    def _rename(self, prepared: Path, target: Path) -> None:
        try:
            self._files.rename(prepared, target)
        except FileNotFoundError:
            return  # a newer process was faster
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            message = "another folder is where the output of an epoch should appear"
            raise Diverged(message, where=str(target), advice=IN_THE_WAY) from None

    def _check_shown(self, entry: SinkEntry, publication: Publication) -> None:
        """What was prepared a moment ago is there; if not, a newer process has dealt with it."""
        target = self._folder / names.visible(publication.point.epoch)
        if not entry.prepared or self._files.exists(target):
            return
        publication.judge(_position(self._log.last()[1]))
        raise NotFound(
            "the prepared output of an epoch is gone",
            where=str(self._folder / entry.prepared),
            advice="Nothing but Lamina may remove folders whose names begin with a dot here",
        )


def _position(entry: SinkEntry) -> SinkPosition:
    return SinkPosition(entry.pipeline, entry.generation, entry.point)


def _open(context: SinkContext) -> Sink:
    place = context.given.place(PATH)
    if isinstance(place, Path):
        return ParquetSink(context.sink.name, place)
    from lamina.connectors.object_parquet import ObjectParquetSink  # noqa: PLC0415  slow to import
    from lamina.store.remote import RemoteStore  # noqa: PLC0415  slow to import

    clock = SystemClock()
    store = RetryingStore(RemoteStore(place, **store_options(context.given)), PATIENCE, clock)
    return ObjectParquetSink(context.sink.name, store, clock)


def _check(sink: DeclaredSink, given: Given) -> None:
    check_store_options(sink, given, PATH)


PARQUET = SinkKind(
    "parquet",
    "Parquet files, a set for each epoch",
    open=_open,
    check=_check,
    delivery="exactly once; an epoch becomes visible in one step",
    options=(
        DeclaredOption(
            PATH,
            "Folder for the output, or an address of an object store",
            OptionType.OUTPUT,
            required=True,
            remote=True,
        ),
        *STORE_OPTIONS,
    ),
)
