"""Chunks that are made ahead: all of them, in order, few at a time, and errors in their place."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from lamina.connectors.kafka.ahead import made_ahead

WAIT_S = 10.0


class Items:
    """Numbers, and who has made how many of them."""

    def __init__(self, count: int, *, error_at: int | None = None) -> None:
        self.made, self.is_closed, self.threads = 0, False, set[int]()
        self._count, self._error_at = count, error_at
        self.reached = threading.Condition()

    def __iter__(self) -> Generator[int, None, None]:
        try:
            for number in range(self._count):
                if number == self._error_at:
                    raise OSError("the staged file has gone")
                with self.reached:
                    self.made += 1
                    self.threads.add(threading.get_ident())
                    self.reached.notify_all()
                yield number
        finally:
            self.is_closed = True

    def wait_for(self, made: int) -> bool:
        with self.reached:
            return self.reached.wait_for(lambda: self.made >= made, WAIT_S)


def test_all_items_come_in_order_and_are_made_elsewhere() -> None:
    items = Items(100)
    with made_ahead(iter(items), 4) as taken:
        assert list(taken) == list(range(100))
    assert items.threads.isdisjoint({threading.get_ident()})
    assert items.is_closed


def test_work_begins_before_the_first_is_asked_for_and_does_not_run_away() -> None:
    items = Items(100)
    with made_ahead(iter(items), 3) as taken:
        assert items.wait_for(3)
        assert next(taken) == 0
        assert items.wait_for(4)
        assert next(taken) == 1
        assert items.made <= 5
    assert items.made <= 5
    assert items.is_closed, "what was not taken is closed as well"


def test_an_error_comes_in_the_place_of_the_item_that_has_it() -> None:
    items = Items(10, error_at=2)
    taken: list[int] = []
    with made_ahead(iter(items), 4) as all_items, pytest.raises(OSError, match="gone"):
        taken.extend(all_items)
    assert taken == [0, 1]


def test_an_error_of_items_that_nobody_takes_is_nobodys() -> None:
    items = Items(10, error_at=0)
    with made_ahead(iter(items), 4):
        pass
    assert items.is_closed


def test_nothing_runs_any_more_when_the_work_on_them_fails() -> None:
    items, before = Items(100), threading.active_count()
    with pytest.raises(KeyError), made_ahead(iter(items), 4) as taken:
        {}[next(taken)]
    assert items.is_closed
    assert threading.active_count() == before
