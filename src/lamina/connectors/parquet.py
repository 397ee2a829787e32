"""Parquet files as a sink: the output of an epoch becomes visible in one step.

<path>/epoch-<20 digits>/part-<5 digits>.parquet    the rows of one epoch; no folder if it has none
<path>/_lamina/<20 digits>.json                      what was published, one entry per epoch
<path>/_lamina/fence-<20 digits>.json                which generations have claimed the sink

An epoch's folder is filled under a hidden name and renamed: a reader of `<path>/*/*.parquet` sees
all of an epoch or nothing. Then comes the entry. Killed in between, the folder is found again.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from lamina.engine.ports import Publication
from lamina.errors import Corrupt, Diverged, Fenced
from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.fields import Fields
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import SinkPosition, check_fence

LOG = "_lamina"
_ENTRY = re.compile(r"([0-9]{20})\.json")
_FENCE = re.compile(r"fence-([0-9]{20})\.json")
MARKER = "_lamina.json"


class ParquetSink:
    """A folder on a file system."""

    delivery = "exactly once; an epoch becomes visible in one rename"

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder.absolute()
        self._log = self._folder / LOG

    def position(self) -> SinkPosition:
        """The last entry, and the highest generation that has claimed the sink."""
        with typed_errors(self._log):
            names = [entry.name for entry in os.scandir(self._log)] if self._log.is_dir() else []
        fences = [int(found[1]) for name in names if (found := _FENCE.fullmatch(name))]
        entries = [name for name in names if _ENTRY.fullmatch(name)]
        generation = max(fences, default=0)
        if not entries:
            return SinkPosition("", generation, None)
        pipeline, point = _read_entry(self._log / max(entries))
        return SinkPosition(pipeline, generation, point)

    def fence(self, generation: int) -> SinkPosition:
        check_fence(self.position(), generation)
        with typed_errors(self._log):
            _make_folder(self._log)
            _write(self._log / f"fence-{generation:020d}.json", b"{}")
            for left in self._folder.glob(".epoch-*"):
                shutil.rmtree(left, ignore_errors=True)  # who was at it is fenced, or dead
        return self.position()

    def publish(self, publication: Publication) -> None:
        if self.position().generation > publication.generation:
            raise Fenced(f"a newer process has claimed the sink {self.name!r}")
        target = self._folder / f"epoch-{publication.point.epoch:020d}"
        entry = _entry(publication)
        with typed_errors(target):
            if publication.files:
                self._show(target, publication, entry)
            _write_once(self._log / f"{publication.point.epoch:020d}.json", entry)

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
            _copy(publication.home / file.path, hidden / f"part-{number:05d}.parquet")
        _write(hidden / MARKER, entry)
        hidden.rename(target)
        _sync(self._folder)


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


def _copy(source: Path, target: Path) -> None:
    """A hard link if that can be, else a copy; synced either way."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        _sync(target)


def _write(path: Path, data: bytes) -> None:
    """Durable and whole, or not there; the same bytes twice are no error."""
    _write_aside(path, data).replace(path)
    _sync(path.parent)


def _write_once(path: Path, data: bytes) -> None:
    """The same, but never over other bytes: that is another history of the epoch."""
    temporary = _write_aside(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        if path.read_bytes() != data:
            raise Diverged("the sink has another history of this epoch", where=str(path)) from None
    finally:
        temporary.unlink()
    _sync(path.parent)


def _write_aside(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    _sync(temporary)
    return temporary


def _make_folder(folder: Path) -> None:
    """With its parents, and every name that is new on disk: what is published lies below it."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        _sync(each.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
