"""Work that is done one by one needs no threads: quicker here, and greenlets cannot cross them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from lamina.checkpoint.parallel import Done

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def run_inline(
    items: Iterable[T], work: Callable[[T], R], *, limit: int, stop_on_error: bool = False
) -> Iterator[Iterator[Done[T, R]]]:
    """`run_bounded` with a limit of one, in the caller's own thread."""
    assert limit == 1, "only what is asked to run one by one"
    yield _one_by_one(items, work, stop_on_error=stop_on_error)


def _one_by_one(
    items: Iterable[T], work: Callable[[T], R], *, stop_on_error: bool
) -> Iterator[Done[T, R]]:
    for item in items:
        try:
            done = Done(item, work(item), None)
        except Exception as error:  # noqa: BLE001  as in the original: the caller decides
            done = Done(item, None, error)
        yield done
        if done.error is not None and stop_on_error:
            return


def patch_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("checkpoint.checkpointer", "checkpoint.parallel"):  # run_all is in the latter
        monkeypatch.setattr(f"lamina.{module}.run_bounded", run_inline)
