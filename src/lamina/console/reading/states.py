"""Keyed state at any point, page by page. What was opened stays open: files are fetched once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.console.subjects import Subject
from lamina.errors import LaminaError
from lamina.inspect import Archive, OperatorInfo, View, open_archive, parse_key
from lamina.inspect.paging import Cursor, Page, page
from lamina.inspect.where import Where

VIEWS_MAX = 4
FETCH_BYTES_MAX = 64 << 20
"""What is larger is fetched only if a person says so."""


class States:
    """The states of one pipeline; one thread at a time."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._lock = threading.Lock()
        self._archive: Archive | None = None
        self._views: OrderedDict[Hashable, View] = OrderedDict()

    @contextmanager
    def view(self, at: str, seen: Hashable) -> Iterator[View]:
        """The state at a checkpoint (id, savepoint, epoch, `latest`), or at an epoch of the log.

        As long as *seen*, what the logs say, is the same, *at* means the same.
        """
        with self._lock:
            try:
                yield self._view(at, seen)
            except LaminaError:
                self._close()  # a store that was restored is looked at anew
                raise

    def page(
        self,
        view: View,
        operator: str,
        keys: Mapping[str, str | None],
        *,
        after: Cursor | None,
        rows_max: int,
    ) -> Page | None:
        lists = view.lists(operator)
        where: Where = parse_key(lists.columns, keys) if lists is not None and keys else None
        return page(view, operator, where, after=after, rows_max=rows_max)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _view(self, at: str, seen: Hashable) -> View:
        key = (at, seen)
        known = self._views.get(key)
        if known is not None:
            self._views.move_to_end(key)
            return known
        self._open()
        assert self._archive is not None
        view = self._views[key] = self._archive.view(at or None)
        while len(self._views) > VIEWS_MAX:
            self._views.popitem(last=False)
        return view

    def _open(self) -> None:
        """A home in an object store is copied as it is now."""
        if self._archive is not None and not self._subject.remote:
            return
        self._close()
        store = self._subject.open_store()
        checkpointer = Checkpointer(store, self._subject.paths, vnode_count=None)
        self._archive = open_archive(checkpointer, home=self._subject.home or None)

    def _close(self) -> None:
        self._views.clear()
        if self._archive is not None:
            self._archive.close()
            self._archive = None


def place_of_view(view: View) -> str:
    """What leads to the same state again, whatever happens meanwhile."""
    if view.commits or view.checkpoint is None:
        return str(view.epoch)
    return str(view.checkpoint)


def is_large(info: OperatorInfo) -> bool:
    return info.size > FETCH_BYTES_MAX
