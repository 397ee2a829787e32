"""The store with faults on order does exactly what was ordered."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lamina.errors import AlreadyExists, SizeMismatch, StoreUnavailable, UsageError
from lamina.store import MemoryStore, Store
from lamina.testing import Fault, FaultKind, FaultyStore, Killed, ManualClock


def keys(store: Store) -> list[str]:
    return [info.key for info in store.list()]


def test_without_faults_it_is_the_store_behind_it_and_counts() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner)
    store.put("a/k", b"1")
    store.put_if_absent("l", b"2")
    store.copy("l", "m")
    store.delete("l")
    assert store.get("a/k") == b"1"
    assert store.get_range("m", 0, 1) == b"2"
    assert store.head("m").size == 1
    assert store.list_folder().folders == ("a",)
    assert keys(store) == keys(inner) == ["a/k", "m"]
    assert set(store.calls.values()) == {1}
    assert len(store.calls) == 9


@pytest.mark.parametrize(
    ("kind", "error", "happened"),
    [
        (FaultKind.TOO_MANY_REQUESTS, StoreUnavailable, False),
        (FaultKind.SERVER_ERROR, StoreUnavailable, False),
        (FaultKind.UNAVAILABLE, StoreUnavailable, False),
        (FaultKind.TIMEOUT_BEFORE, StoreUnavailable, False),
        (FaultKind.TIMEOUT_AFTER, StoreUnavailable, True),
        (FaultKind.EXISTS_AFTER, AlreadyExists, True),
        (FaultKind.KILL_BEFORE, Killed, False),
        (FaultKind.KILL_AFTER, Killed, True),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.put("new", b"x"),
        lambda store: store.put_if_absent("new", b"x"),
        lambda store: store.copy("old", "new"),
        lambda store: store.delete("old"),
    ],
    ids=["put", "put_if_absent", "copy", "delete"],
)
def test_the_error_comes_before_or_after_the_effect(
    kind: FaultKind,
    error: type[BaseException],
    happened: bool,
    change: Callable[[Store], None],
) -> None:
    inner, plain = MemoryStore(), MemoryStore()
    for store in (inner, plain):
        store.put("old", b"1")
    before = keys(inner)
    faults = [Fault(op, kind, call=1) for op in ("put", "put_if_absent", "copy", "delete")]
    with pytest.raises(error):
        change(FaultyStore(inner, faults=faults))
    change(plain)
    assert keys(inner) == (keys(plain) if happened else before)


def test_a_kill_is_no_exception_that_a_handler_could_eat() -> None:
    assert not issubclass(Killed, Exception)


def test_short_and_wrong_reads() -> None:
    inner = MemoryStore()
    inner.put("k", b"0123456789")
    short = FaultyStore(inner, faults=[Fault("get", FaultKind.SHORT_READ, call=2)])
    assert [len(short.get("k")) for _ in range(3)] == [10, 5, 10]
    wrong = FaultyStore(
        inner,
        faults=[Fault(op, FaultKind.WRONG_BYTES, call=1) for op in ("get", "get_range")],
    )
    for data in (wrong.get("k"), wrong.get_range("k", 0, 10)):
        assert len(data) == 10
        assert data != b"0123456789"
    cut = FaultyStore(inner, faults=[Fault("get_range", FaultKind.SHORT_READ, call=1)])
    with pytest.raises(SizeMismatch):
        cut.get_range("k", 0, 10)


def test_a_stale_list_is_the_list_of_some_operations_ago() -> None:
    faults = [
        Fault("list", FaultKind.STALE_LIST, call=2, operations_ago=2),
        Fault("list_folder", FaultKind.STALE_LIST, call=1, operations_ago=6),
    ]
    store = FaultyStore(MemoryStore(), faults=faults)
    store.put("f/1", b"")  # 1
    store.put("f/2", b"")  # 2
    assert keys(store) == ["f/1", "f/2"]  # 3
    store.put("f/3", b"longer")  # 4
    store.delete("f/1")  # 5
    assert keys(store) == ["f/1", "f/2"]  # 6, as before 4
    assert keys(store) == ["f/2", "f/3"]  # 7
    assert [i.key for i in store.list_folder("f").objects] == ["f/1"]  # 8, as before 2


def test_latency_passes_on_the_given_clock() -> None:
    clock = ManualClock()
    fault = Fault("put", FaultKind.LATENCY, probability=1, latency_ms=250)
    store = FaultyStore(MemoryStore(), faults=[fault], clock=clock)
    store.put("a", b"")
    store.put("b", b"")
    assert clock.monotonic() == 0.5


def outcomes(seed: int, *, threads: int = 1) -> list[int]:
    fault = Fault("put", FaultKind.UNAVAILABLE, probability=0.3)
    store = FaultyStore(MemoryStore(), seed, [fault])

    def failed(number: int) -> bool:
        try:
            store.put(f"{number}", b"")
        except StoreUnavailable:
            return True
        return False

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(failed, range(200)))
    return [number for number, each in enumerate(results) if each]


def test_a_seed_repeats_and_another_differs() -> None:
    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert 30 < len(outcomes(1)) < 90


def test_threads_do_not_change_how_often_a_seed_strikes() -> None:
    assert len(outcomes(1, threads=4)) == len(outcomes(1))


def test_an_operation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="putt"):
        Fault("putt", FaultKind.UNAVAILABLE)


def test_the_manual_clock_repeats_its_chance_and_moves_only_by_waiting() -> None:
    first, second, other = ManualClock(1), ManualClock(1), ManualClock(2)
    drawn = [first.random_bits(74) for _ in range(5)]
    assert drawn == [second.random_bits(74) for _ in range(5)]
    assert drawn != [other.random_bits(74) for _ in range(5)]
    assert len(set(drawn)) == 5
    assert max(drawn) < 2**74
    start = first.now_ms()
    assert first.wait(1.5) is False
    assert (first.monotonic(), first.now_ms() - start) == (1.5, 1500)
