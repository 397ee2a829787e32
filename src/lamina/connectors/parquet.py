"""Parquet files as a sink: the output of an epoch becomes visible in one step.

<path>/epoch-<20 digits>/part-<5 digits>.parquet    the rows of one epoch; no folder if it has none
<path>/_lamina/<20 digits>.json                      what was published, one entry per epoch
<path>/_lamina/fences/<20 digits>.json               which generations have claimed the sink
<path>/_lamina/fence-<20 digits>.json                the same, as it was written at first

An epoch's folder is filled under a hidden name and renamed: a reader of `<path>/*/*.parquet` sees
all of an epoch or nothing. Then comes the entry. Killed in between, the folder is found again.

Staged files are proven by size and SHA-256 before they are shown: a link to a damaged file would
publish the damage. Who has claimed the sink knows where it stands; of others it sees the fences.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from lamina.connectors.durable import make_folder, sync, write, write_once
from lamina.connectors.staged import RESTORE, prove
from lamina.engine.model import Staged
from lamina.engine.ports import Change, Publication
from lamina.errors import Corrupt, Diverged, Fenced, NotFound
from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.fields import Fields
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import SinkPosition, check_fence

LOG = "_lamina"
FENCES = "fences"
_ENTRY = re.compile(r"([0-9]{20})\.json")
_OLD_FENCE = re.compile(r"fence-([0-9]{20})\.json")
MARKER = "_lamina.json"


class ParquetSink:
    """A folder on a file system."""

    delivery = "exactly once; an epoch becomes visible in one rename"
    takes = frozenset({Change.APPEND, Change.UPSERT})  # of a row every version, by epoch

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder.absolute()
        self._log = self._folder / LOG
        self._claimed: SinkPosition | None = None  # as this process left it

    def position(self) -> SinkPosition:
        """The last entry, and the highest generation that has claimed the sink.

        Who publishes has claimed the sink before: as long as there is no newer fence, the sink
        stands where this process has left it, and the entries need not be listed.
        """
        if self._claimed is None:
            return self._look()
        generation = max(self._claimed.generation, self._fences())
        return SinkPosition(self._claimed.pipeline, generation, self._claimed.point)

    def fence(self, generation: int) -> SinkPosition:
        check_fence(self._look(), generation)
        with typed_errors(self._log):
            make_folder(self._log / FENCES)
            # As entries are written: a file system that cannot do it is refused here, not later.
            write_once(self._log / FENCES / f"{generation:020d}.json", b"{}")
            for left in self._folder.glob(".epoch-*"):
                shutil.rmtree(left, ignore_errors=True)  # who was at it is fenced, or dead
        found = self._look()  # after the fence: from now on nobody else publishes
        check_fence(found, generation)
        self._claimed = found
        return found

    def publish(self, publication: Publication) -> None:
        before, self._claimed = self.position(), None  # if this fails, the entries say how far
        if before.generation > publication.generation:
            raise Fenced(f"a newer process has claimed the sink {self.name!r}")
        target = self._folder / f"epoch-{publication.point.epoch:020d}"
        entry = _entry(publication)
        with typed_errors(target):
            if publication.files:
                self._show(target, publication, entry)
            write_once(self._log / f"{publication.point.epoch:020d}.json", entry)
        self._claimed = SinkPosition(
            publication.pipeline, publication.generation, publication.point
        )

    def _show(self, target: Path, publication: Publication, entry: bytes) -> None:
        """The files under the name of their epoch, all at once."""
        if target.exists():
            if (target / MARKER).read_bytes() != entry:
                raise Diverged(f"{target} holds another epoch {publication.point.epoch}")
            return
        hidden = self._folder / f".{target.name}-{publication.generation:020d}"
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
        for number, file in enumerate(publication.files):
            part = hidden / f"part-{number:05d}.parquet"
            _copy(publication, file, part)
            with part.open("rb") as opened:
                prove(opened, file, publication.staged.where(file))
        write(hidden / MARKER, entry)
        hidden.rename(target)
        sync(self._folder)

    # looking

    def _look(self) -> SinkPosition:
        """What the folder itself says."""
        with typed_errors(self._log):
            names = [entry.name for entry in os.scandir(self._log)] if self._log.is_dir() else []
        old = [int(found[1]) for name in names if (found := _OLD_FENCE.fullmatch(name))]
        entries = [name for name in names if _ENTRY.fullmatch(name)]
        generation = max(self._fences(), *old, 0)
        if not entries:
            return SinkPosition("", generation, None)
        pipeline, point = _read_entry(self._log / max(entries))
        return SinkPosition(pipeline, generation, point)

    def _fences(self) -> int:
        """The highest generation that has claimed the sink: few names, one for each start."""
        folder = self._log / FENCES
        with typed_errors(folder):
            names = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
        found = (_ENTRY.fullmatch(name) for name in names)
        return max((int(each[1]) for each in found if each), default=0)


def _entry(publication: Publication) -> bytes:
    point = publication.point
    return canonical.encode(
        {
            "version": 1,
            "pipeline": publication.pipeline,
            "epoch": point.epoch,
            "commit_digest": point.digest,
            "rows": sum(file.rows for file in publication.files),
        }
    )


def _read_entry(path: Path) -> tuple[str, Point]:
    with typed_errors(path):
        data = path.read_bytes()
    fields = Fields(canonical.decode(data, str(path)), str(path), error=Corrupt)
    return fields.text("pipeline"), Point(fields.integer("epoch"), fields.text("commit_digest"))


def _copy(publication: Publication, file: Staged, target: Path) -> None:
    """A hard link if that can be, else a copy; synced either way."""
    source = publication.staged.local_path(file)
    try:
        if source is not None and _link(source, target):
            return
        with publication.staged.open(file) as opened, target.open("xb") as copy:
            shutil.copyfileobj(opened, copy)
    except NotFound as error:
        raise NotFound("a staged file is gone", where=error.where, advice=RESTORE) from None
    sync(target)


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError:
        return False
    return True
