"""Where a Delta table is: a folder of this machine, or an object store.

deltalake writes the log; data files are written here, so that they are durable before a version
of the table names them. On a file system deltalake does not sync what it writes: that is done here,
before anybody is told that it is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from lamina.clock import SystemClock
from lamina.connectors.delta.mark import GENERATION
from lamina.connectors.delta.stats import FileStats, StatsWanted, read_stats
from lamina.connectors.staged import open_proven, prove
from lamina.disk.files import Files, LocalFiles, create_once, make_folder
from lamina.engine.ports import Publication
from lamina.errors import Corrupt, NotFound
from lamina.os_errors import typed_errors
from lamina.store.probe import probe_store
from lamina.store.remote import RemoteStore
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.workspace.model import Staged

LOG = "_delta_log"
_ASIDE = ".epoch-"  # copies that are not whole yet
LAST_CHECKPOINT = "_last_checkpoint"
Hook = Callable[[str], None]
"""Told before and after every call to the outside; in tests it may raise."""


def _entry_name(version: int) -> str:
    return f"{version:020d}.json"


def _checkpoint_version(data: bytes) -> int:
    """By `_last_checkpoint`; 0 if a power cut has left nothing useful of it."""
    try:
        return int(json.loads(data)["version"])
    except (ValueError, KeyError, TypeError):
        return 0


class Place(Protocol):
    """Data files of one table, and what makes its log durable."""

    where: str  # for people
    uri: str  # for deltalake
    options: dict[str, str]  # of the object store, for deltalake
    remote: bool

    def prepare(self) -> None:
        """Before the first change: a place to write to that keeps its word."""
        ...

    def put_staged(
        self, name: str, publication: Publication, file: Staged, *, wanted: StatsWanted
    ) -> FileStats:
        """A staged file, proven, under *name* in the table; the same one twice is not an error."""
        ...

    def put(self, name: str, data: pa.Buffer) -> None:
        """A new file in the table."""
        ...

    def settle(self) -> None:
        """After the files, before the version that names them: their names are durable, too."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Files that no version names."""
        ...

    def entry(self, version: int) -> bytes | None:
        """What the log says of a version; None if there is no such entry."""
        ...

    def sync_log(self, versions: Iterable[int]) -> None:
        """Make versions of the table durable, up to one that a sink wrote or one that is gone."""
        ...

    def last_checkpoint(self) -> int:
        """The newest version with a checkpoint of the log, by the file that says so; or 0."""
        ...

    def sync_checkpoint(self, version: int) -> None: ...


class LocalPlace:
    """A folder. Staged files are linked where that can be: nothing is copied or synced twice."""

    remote = False

    def __init__(self, folder: Path, hook: Hook, files: Files | None = None) -> None:
        self._folder = folder.absolute()
        self._log = self._folder / LOG
        self._files = files or LocalFiles()
        self._hook = hook
        self.where = str(self._folder)
        self.uri = self._folder.as_uri()
        self.options: dict[str, str] = {}

    def prepare(self) -> None:
        with typed_errors(self._folder):
            self._hook("folder")
            make_folder(self._files, self._log)
            for name in self._files.names(self._folder):
                if name.startswith(_ASIDE) and not name.endswith(self._files.tag):
                    self._files.unlink(self._folder / name)  # of a process that is gone or fenced

    def put_staged(
        self, name: str, publication: Publication, file: Staged, *, wanted: StatsWanted
    ) -> FileStats:
        """The name follows from the bytes: what is there is the same file, or damaged."""
        path = self._folder / name
        with typed_errors(publication.staged.where(file)):
            self._hook("put")
            if not self._files.exists(path):
                self._link_or_copy(path, publication, file)
            try:
                with self._files.open(path) as opened:
                    prove(opened, file, publication.staged.where(file))
                    opened.seek(0)
                    return read_stats(opened, wanted)
            except Corrupt:
                self._files.unlink(path)
                raise

    def _link_or_copy(self, path: Path, publication: Publication, file: Staged) -> None:
        source = publication.staged.local_path(file)
        if source is not None:
            try:
                self._files.link(source, path)
                os.utime(path)  # vacuum takes old files that no version names for garbage
            except OSError:
                pass  # another device, for one; a copy tells what is wrong, if anything is
            else:
                return
        with open_proven(publication, file) as opened:
            create_once(self._files, path, opened)

    def put(self, name: str, data: pa.Buffer) -> None:
        with typed_errors(self._folder / name):
            self._hook("put")
            self._files.create(self._folder / name, BytesIO(data))

    def settle(self) -> None:
        with typed_errors(self._folder):
            self._hook("sync")
            self._files.sync(self._folder)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with typed_errors(self._folder / name):
                self._files.unlink(self._folder / name)

    def entry(self, version: int) -> bytes | None:
        with typed_errors(self._log):
            try:
                return (self._log / _entry_name(version)).read_bytes()
            except FileNotFoundError:
                return None

    def sync_log(self, versions: Iterable[int]) -> None:
        with typed_errors(self._log):
            self._hook("sync log")
            for version in versions:
                written = self._sync_file(self._log / _entry_name(version))
                if written is None or f'"{GENERATION}"'.encode() in written:
                    break
            self._files.sync(self._log)
            self._hook("log synced")

    def last_checkpoint(self) -> int:
        with typed_errors(self._log):
            try:
                return _checkpoint_version((self._log / LAST_CHECKPOINT).read_bytes())
            except FileNotFoundError:
                return 0

    def sync_checkpoint(self, version: int) -> None:
        with typed_errors(self._log):
            self._sync_file(self._log / f"{version:020d}.checkpoint.parquet")
            self._sync_file(self._log / LAST_CHECKPOINT)
            self._files.sync(self._log)

    @staticmethod
    def _sync_file(path: Path) -> bytes | None:
        """Its bytes, on disk now; None if it is not there."""
        try:
            with path.open("rb") as opened:
                os.fsync(opened.fileno())
                return opened.read()
        except FileNotFoundError:
            return None


class RemotePlace:
    """An object store: what it has answered is durable."""

    remote = True

    def __init__(self, url: str, hook: Hook, given: Mapping[str, Any]) -> None:
        """*given* are options as lamina.store takes them."""
        self.where = self.uri = url
        self.options = _delta_options(url, given)
        self._given = given
        self._hook = hook
        self._store: RetryingStore | None = None
        self._probed = False

    def prepare(self) -> None:
        if not self._probed:
            self._hook("probe")
            probe_store(self._opened(), SystemClock())
            self._probed = True

    def put_staged(
        self, name: str, publication: Publication, file: Staged, *, wanted: StatsWanted
    ) -> FileStats:
        with (
            typed_errors(publication.staged.where(file)),
            open_proven(publication, file) as opened,
        ):
            stats = read_stats(opened, wanted)
            opened.seek(0)
            path = publication.staged.local_path(file)
            self._hook("put")
            self._opened().put(name, opened.read() if path is None else path)
            self._hook("put done")
        return stats

    def put(self, name: str, data: pa.Buffer) -> None:
        self._hook("put")
        self._opened().put(name, memoryview(data))
        self._hook("put done")

    def settle(self) -> None:
        """Each put is durable by itself."""

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._opened().delete(name)

    def entry(self, version: int) -> bytes | None:
        try:
            return self._opened().get(f"{LOG}/{_entry_name(version)}")
        except NotFound:
            return None

    def sync_log(self, versions: Iterable[int]) -> None:
        """What can be read from an object store is durable."""

    def last_checkpoint(self) -> int:
        try:
            return _checkpoint_version(self._opened().get(f"{LOG}/{LAST_CHECKPOINT}"))
        except NotFound:
            return 0

    def sync_checkpoint(self, version: int) -> None:
        """The same."""

    def _opened(self) -> RetryingStore:
        if self._store is None:
            inner = RemoteStore(self.uri, **_store_options(self._given))
            policy = RetryPolicy(budget_seconds=PATIENCE_S)
            self._store = RetryingStore(inner, policy, SystemClock())
        return self._store


PATIENCE_S = 10
"""How long a call waits for a store by itself; the engine comes back, with longer breaks."""


_PREFIXES = {"s3": "aws_", "gs": "google_"}


def _delta_options(url: str, given: Mapping[str, Any]) -> dict[str, str]:
    """As deltalake wants them. What is not given it takes from the environment."""
    scheme = url.partition("://")[0]
    prefix = _PREFIXES.get(scheme, "azure_storage_")
    options = {f"{prefix}{k}": str(v) for k, v in given.items() if k != "client_options"}
    options |= {"max_retries": "3", "retry_timeout": f"{PATIENCE_S}s", "connect_timeout": "5s"}
    if _is_plain_http(given):
        options["allow_http"] = "true"
    if scheme != "s3":
        return options
    if "endpoint" in given:
        options["aws_virtual_hosted_style_request"] = "false"
    # Two writers of one version: the store lets one of them win.
    return options | {"aws_conditional_put": "etag"}


def _store_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for our own client."""
    client = {"connect_timeout": "5s"} | ({"allow_http": True} if _is_plain_http(given) else {})
    return {**given, "client_options": client}


def _is_plain_http(given: Mapping[str, Any]) -> bool:
    named = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
    return str(named).lower().startswith("http://")
