"""A forked child has a copy of everything its parent has open, and must not use it."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import lamina
from lamina.clock import SystemClock
from lamina.disk import LocalDisk
from lamina.errors import Fenced, Refused
from lamina.wal import claim_home
from tests.support.embedded_stores import KEY, VALUE, as_dict, rows


def in_child(work: Callable[[], None]) -> str:
    """What *work* raises in a forked child, by name; empty if nothing."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking with threads is what this is about
        child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  told to the parent
            os.write(write, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read()


@pytest.fixture
def store(tmp_path: Path) -> lamina.EmbeddedStore:
    opened = lamina.open(tmp_path)
    opened.table("t", KEY, VALUE).write(rows({1: 1}))
    opened.commit()
    opened.checkpoint()
    return opened


def test_a_child_that_commits_is_refused_and_the_parents_log_stays_whole(
    store: lamina.EmbeddedStore, tmp_path: Path
) -> None:
    """Both wrote to one file: the parent's log was damaged."""

    def commit() -> None:
        store.table("t").write(rows({2: 2}))
        store.commit()

    assert in_child(commit) == "Refused"
    store.table("t").write(rows({3: 3}))
    store.commit()
    store.close()
    with lamina.open(tmp_path) as again:
        assert as_dict(again.table("t")) == {1: 1, 3: 3}


@pytest.mark.parametrize("what", ["checkpoint", "rewind", "savepoint", "driver", "log", "begin"])
def test_a_child_writes_nothing(store: lamina.EmbeddedStore, what: str) -> None:
    store.commit()
    checkpointer = store._checkpointer
    calls: dict[str, Callable[[], object]] = {
        "checkpoint": store.checkpoint,
        "rewind": lambda: store.rewind(1),
        "savepoint": lambda: store.savepoint("s"),
        "driver": store._driver._segment.sync,
        "log": lambda: checkpointer.log.rewind(checkpointer.list_checkpoints()[0].id, epoch=9),
        "begin": checkpointer.begin,
    }
    before = checkpointer.history()
    assert in_child(lambda: str(calls[what]()) and None) == "Refused"
    assert checkpointer.history() == before
    store.close()


def test_a_child_reads_what_its_parent_had(store: lamina.EmbeddedStore) -> None:
    def read() -> None:
        assert as_dict(store.table("t")) == {1: 1}

    assert in_child(read) == ""
    store.close()


def test_a_child_that_closes_does_not_free_its_parents_lock(
    store: lamina.EmbeddedStore, tmp_path: Path
) -> None:
    assert in_child(store.close) == ""
    with pytest.raises(Fenced):
        lamina.open(tmp_path)
    store.commit()
    store.close()
    lamina.open(tmp_path).close()


def test_a_child_that_goes_away_with_a_copy_does_not_free_the_lock(tmp_path: Path) -> None:
    home = claim_home(LocalDisk(tmp_path), SystemClock())
    assert home.lock is not None
    assert in_child(home.release) == ""
    assert LocalDisk(tmp_path).try_lock("lock") is None
    home.release()
    home.release()
    lock = LocalDisk(tmp_path).try_lock("lock")
    assert lock is not None
    lock.release()


def test_the_parents_release_counts_although_a_child_has_the_descriptor(tmp_path: Path) -> None:
    home = claim_home(LocalDisk(tmp_path), SystemClock())
    ready, go = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    home.release()
    lock = LocalDisk(tmp_path).try_lock("lock")
    assert lock is not None
    lock.release()
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for fd in (*ready, *go):
        os.close(fd)


def test_a_store_that_nobody_closed_does_not_keep_its_lock(tmp_path: Path) -> None:
    lamina.open(tmp_path).commit()
    gc.collect()
    with lamina.open(tmp_path) as store:
        assert store.epoch == 1


def test_what_a_child_opens_itself_it_may_write(tmp_path: Path) -> None:
    def write() -> None:
        with lamina.open(tmp_path) as store:
            store.put(b"a", b"1")
            store.commit()

    assert in_child(write) == ""
    with lamina.open(tmp_path) as store:
        assert store.get(b"a") == b"1"


def test_the_refusal_says_what_to_do(store: lamina.EmbeddedStore) -> None:
    store._owner._pid -= 1
    with pytest.raises(Refused, match="forked from process") as refused:
        store.commit()
    assert "open it in the child only" in str(refused.value)
    store._owner._pid += 1
    store.close()
