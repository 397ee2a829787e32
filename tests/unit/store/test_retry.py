"""Trying again: by cause, within the budget, and with open eyes about who wrote."""

from __future__ import annotations

import threading

import pytest

from lamina.errors import AlreadyExists, Cancelled, NotFound, StoreUnavailable
from lamina.store import MemoryStore, RetryingStore, RetryPolicy, Store
from lamina.testing import Fault, FaultKind, FaultyStore, ManualClock

POLICY = RetryPolicy()
UNAVAILABLE = [
    FaultKind.TOO_MANY_REQUESTS,
    FaultKind.SERVER_ERROR,
    FaultKind.UNAVAILABLE,
    FaultKind.TIMEOUT_BEFORE,
    FaultKind.TIMEOUT_AFTER,
]
CALLS = {
    "get": lambda store: store.get("a/k"),
    "get_range": lambda store: store.get_range("a/k", 1, 2),
    "put": lambda store: store.put("new", b"x"),
    "put_if_absent": lambda store: store.put_if_absent("new", b"x"),
    "head": lambda store: store.head("a/k"),
    "list": lambda store: list(store.list()),
    "list_folder": lambda store: store.list_folder(),
    "delete": lambda store: store.delete("a/l"),
    "copy": lambda store: store.copy("a/k", "new"),
}


def filled() -> MemoryStore:
    store = MemoryStore()
    for name in ("a/k", "a/l", "a/m", "b/k"):
        store.put(name, b"data")
    return store


def contents(store: Store) -> dict[str, bytes]:
    return {info.key: store.get(info.key) for info in store.list()}


def retrying(inner: Store, clock: ManualClock, **policy: float) -> RetryingStore:
    return RetryingStore(inner, RetryPolicy(**policy), clock)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("kind", UNAVAILABLE)
def test_every_operation_outlives_two_failures(operation: str, kind: FaultKind) -> None:
    inner, plain = filled(), filled()
    faults = [Fault(operation, kind, call=1), Fault(operation, kind, call=2)]
    faulty = FaultyStore(inner, faults=faults)
    result = CALLS[operation](RetryingStore(faulty, POLICY, ManualClock(1)))
    assert result == CALLS[operation](plain)
    assert contents(inner) == contents(plain)
    settled_by_a_look = operation == "put_if_absent" and kind is FaultKind.TIMEOUT_AFTER
    assert faulty.calls[operation] == (1 if settled_by_a_look else 3)


@pytest.mark.parametrize("kind", [FaultKind.EXISTS_AFTER, FaultKind.TIMEOUT_AFTER])
def test_a_winner_that_is_told_otherwise_looks_and_knows(kind: FaultKind) -> None:
    inner = MemoryStore()
    faulty = FaultyStore(inner, faults=[Fault("put_if_absent", kind, call=1)])
    RetryingStore(faulty, POLICY, ManualClock()).put_if_absent("log/1", b"mine")
    assert inner.get("log/1") == b"mine"
    assert faulty.calls["put_if_absent"] == 1


@pytest.mark.parametrize("kind", UNAVAILABLE)
@pytest.mark.parametrize("theirs", [b"them", b"longer than mine"])
def test_a_loser_with_an_unclear_answer_learns_that_it_lost(kind: FaultKind, theirs: bytes) -> None:
    inner = MemoryStore()
    inner.put("log/1", theirs)
    faulty = FaultyStore(inner, faults=[Fault("put_if_absent", kind, call=1)])
    with pytest.raises(AlreadyExists):
        RetryingStore(faulty, POLICY, ManualClock()).put_if_absent("log/1", b"mine")
    assert inner.get("log/1") == theirs


def test_the_look_itself_may_fail_and_is_repeated() -> None:
    inner = MemoryStore()
    faults = [
        Fault("put_if_absent", FaultKind.TIMEOUT_AFTER, call=1),
        Fault("head", FaultKind.UNAVAILABLE, call=1),
        Fault("put_if_absent", FaultKind.EXISTS_AFTER, call=2),
        Fault("get_range", FaultKind.UNAVAILABLE, call=1),
    ]
    RetryingStore(FaultyStore(inner, faults=faults), POLICY, ManualClock()).put_if_absent("k", b"v")
    assert inner.get("k") == b"v"


def test_a_key_that_is_taken_and_then_gone_is_tried_again() -> None:
    class Vanishing(MemoryStore):
        tries = 0

        def put_if_absent(self, key: str, data: object) -> None:
            self.tries += 1
            if self.tries == 1:
                raise AlreadyExists("by an object that is deleted at once")
            super().put_if_absent(key, data)  # type: ignore[arg-type]

    store = Vanishing()
    RetryingStore(store, POLICY, ManualClock()).put_if_absent("k", b"v")
    assert (store.tries, store.get("k")) == (2, b"v")


def test_an_error_that_a_second_try_cannot_mend_is_raised_at_once() -> None:
    faulty = FaultyStore(MemoryStore())
    clock = ManualClock()
    with pytest.raises(NotFound):
        RetryingStore(faulty, POLICY, clock).get("nothing")
    assert faulty.calls["get"] == 1
    assert clock.monotonic() == 0


def test_a_listing_that_breaks_goes_on_after_the_last_key() -> None:
    inner = MemoryStore()
    names = [f"k/{number:02d}" for number in range(20)]
    for name in names:
        inner.put(name, b"")
    faults = [Fault("list", FaultKind.TIMEOUT_AFTER, call=n) for n in (1, 2, 4)]
    faults.append(Fault("list", FaultKind.UNAVAILABLE, call=3))
    faulty = FaultyStore(inner, faults=faults)
    store = RetryingStore(faulty, POLICY, ManualClock())
    assert [info.key for info in store.list("k", after="k/03")] == names[4:]
    assert faulty.calls["list"] == 5


def test_progress_of_a_listing_renews_its_budget() -> None:
    inner = MemoryStore()
    for number in range(64):
        inner.put(f"{number:02d}", b"")
    faults = [Fault("list", FaultKind.LATENCY, probability=1, latency_ms=800)]
    faults += [Fault("list", FaultKind.TIMEOUT_AFTER, call=n) for n in range(1, 6)]
    clock = ManualClock()
    store = retrying(FaultyStore(inner, faults=faults, clock=clock), clock, budget_seconds=1)
    assert len(list(store.list())) == 64
    assert clock.monotonic() > 4


# The budget


def test_when_the_budget_is_spent_the_error_says_tries_and_seconds() -> None:
    faults = [Fault("get", FaultKind.UNAVAILABLE, probability=1)]
    faulty = FaultyStore(MemoryStore(), faults=faults)
    clock = ManualClock()
    with pytest.raises(StoreUnavailable) as raised:
        retrying(faulty, clock, budget_seconds=60).get("k")
    tries = faulty.calls["get"]
    assert f"503; tried {tries} times in {clock.monotonic():.1f} seconds" in str(raised.value)
    assert clock.monotonic() < 60
    assert tries > 8


def test_a_budget_of_nothing_is_one_try() -> None:
    faulty = FaultyStore(filled(), faults=[Fault("get", FaultKind.UNAVAILABLE, call=1)])
    with pytest.raises(StoreUnavailable, match="tried 1 times"):
        retrying(faulty, ManualClock(), budget_seconds=0).get("a/k")


def test_slow_answers_count_against_the_budget() -> None:
    clock = ManualClock()
    faults = [
        Fault("get", FaultKind.LATENCY, probability=1, latency_ms=30_000),
        Fault("get", FaultKind.TIMEOUT_BEFORE, probability=1),
    ]
    faulty = FaultyStore(MemoryStore(), faults=faults, clock=clock)
    with pytest.raises(StoreUnavailable):
        retrying(faulty, clock, budget_seconds=60).get("k")
    assert faulty.calls["get"] in (2, 3)


def test_waits_grow_to_the_limit_and_are_drawn_from_zero_to_it() -> None:
    policy = RetryPolicy(first_wait_ms=100, factor=2, longest_wait_ms=10_000)

    class Extreme(ManualClock):
        def __init__(self, bits: int) -> None:
            super().__init__()
            self.bits = bits

        def random_bits(self, count: int) -> int:
            return self.bits

    highest = [policy.wait_seconds(n, Extreme(2**32 - 1)) for n in range(1, 12)]
    assert highest == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10, 10])
    assert policy.wait_seconds(5, Extreme(0)) == 0
    assert policy.wait_seconds(100_000, Extreme(2**31)) == pytest.approx(5)


# Cancelling


def test_a_cancelled_operation_does_not_start() -> None:
    cancel = threading.Event()
    cancel.set()
    faulty = FaultyStore(filled())
    store = RetryingStore(faulty, POLICY, ManualClock(), cancel)
    for operation, call in CALLS.items():
        with pytest.raises(Cancelled):
            call(store)
        assert faulty.calls[operation] == (1 if operation == "list" else 0)


def test_cancelling_ends_a_wait() -> None:
    cancel = threading.Event()

    class CancelledWhileWaiting(ManualClock):
        def wait(self, seconds: float, cancel: threading.Event | None = None) -> bool:
            assert cancel is not None
            cancel.set()
            return True

    faulty = FaultyStore(filled(), faults=[Fault("get", FaultKind.UNAVAILABLE, call=1)])
    with pytest.raises(Cancelled):
        RetryingStore(faulty, POLICY, CancelledWhileWaiting(), cancel).get("a/k")
    assert faulty.calls["get"] == 1
