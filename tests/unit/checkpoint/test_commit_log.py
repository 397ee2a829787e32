"""R3: one dense log, whoever writes it and whatever the store answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lamina.checkpoint import CommitLog
from lamina.errors import (
    AlreadyExists,
    Fenced,
    LaminaError,
    LogDamaged,
    NotFound,
    Refused,
    StillNeeded,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
)
from lamina.format.canonical import sha256_hex
from lamina.format.log import (
    STATE_EVERY,
    Begin,
    Forget,
    Hint,
    Pin,
    Rewind,
    Takeover,
    Unpin,
    decode_entry,
    encode_entry,
    encode_hint,
)
from lamina.format.names import CheckpointPaths
from lamina.protocol.history import History
from lamina.store import MemoryStore, ReadOnlyStore, RetryingStore, RetryPolicy, Store
from lamina.testing import Fault, FaultKind, FaultyStore, Killed, ManualClock
from tests.support.checkpoints import HOME, WatchedStore, cid, copy_of, keys, snapshot_of

PATHS = CheckpointPaths("p")


def open_log(store: Store, seed: int = 0) -> CommitLog:
    return CommitLog(store, PATHS, ManualClock(seed))


def add_checkpoint(log: CommitLog, number: int, epoch: int | None = None) -> History:
    after = log.read().lineage_seq
    begin = Begin(cid(number), log.generation, log.read().base, after, "w", 0)
    return log.checkpoint(
        begin,
        epoch=number if epoch is None else epoch,
        manifest_sha256="c" * 64,
        manifest_size=1,
        total_size=1,
    )


def long_log(store: Store, length: int) -> CommitLog:
    """A log of *length* entries with checkpoints, pins and unpins."""
    log = open_log(store)
    log.take_over(HOME)
    number = 0
    while log.read().seq < length:
        number += 1
        if number % 3 == 1:
            add_checkpoint(log, number)
        elif number % 3 == 2:
            log.pin(f"s{number}", log.read().checkpoints[-1].id)
        else:
            log.unpin(f"s{number - 1}")
    return log


def bodies(store: Store) -> list[object]:
    return [entry.body for entry, _ in open_log(store, 77).entries()]


# dense


def test_an_empty_store_is_an_empty_log() -> None:
    log = open_log(MemoryStore())
    assert log.read() == History()
    assert list(log.entries()) == []


def test_every_change_is_one_entry_and_each_names_its_predecessor() -> None:
    store = MemoryStore()
    log = open_log(store)
    log.take_over(HOME)
    add_checkpoint(log, 1)
    add_checkpoint(log, 2)
    log.pin("monday", cid(1))
    log.unpin("monday")
    log.forget(lambda _: (cid(1),))
    log.rewind(cid(2), epoch=9)
    kinds = [type(body) for body in bodies(store)]
    assert kinds[0] is Takeover
    assert kinds[3:] == [Pin, Unpin, Forget, Rewind]
    previous = None
    for seq in range(1, 8):
        data = store.get(PATHS.log_entry(seq))
        entry = decode_entry(data, "")
        assert (entry.seq, entry.previous) == (seq, previous)
        previous = sha256_hex(data)


def test_every_entry_has_a_writer_id_of_its_own() -> None:
    store = MemoryStore()
    long_log(store, 20)
    writers = [entry.writer for entry, _ in open_log(store).entries()]
    assert len(set(writers)) == len(writers) == 20


def test_what_changes_nothing_writes_nothing() -> None:
    store = MemoryStore()
    log = open_log(store)
    log.take_over(HOME)
    begun_after = log.read().lineage_seq
    begin = Begin(cid(1), 1, None, begun_after, "w", 0)
    same = {"epoch": 1, "manifest_sha256": "c" * 64, "manifest_size": 1, "total_size": 1}
    first = log.checkpoint(begin, **same)  # type: ignore[arg-type]
    assert log.checkpoint(begin, **same) == first  # type: ignore[arg-type]
    pinned = log.pin("x", cid(1))
    assert log.pin("x", cid(1)) == pinned
    assert log.forget(lambda _: ()) == pinned
    assert pinned.seq == 3


def test_a_second_checkpoint_under_the_same_id_is_refused() -> None:
    log = long_log(MemoryStore(), 2)
    with pytest.raises(AlreadyExists):
        add_checkpoint(log, 1, epoch=5)


# damage


@pytest.mark.parametrize("hole", [1, 7, 19])
@pytest.mark.parametrize("hint", ["none", "old", "head"])
def test_a_hole_in_the_log_is_damage_and_nothing_is_written(hole: int, hint: str) -> None:
    store = MemoryStore()
    long_log(store, 5)
    old_hint = store.get(PATHS.latest_pointer())
    long_log_again = open_log(store)
    while long_log_again.read().seq < 20:
        long_log_again.pin(f"more-{long_log_again.read().seq}", cid(1))
    if hint == "none":
        store.delete(PATHS.latest_pointer())
    elif hint == "old":
        store.put(PATHS.latest_pointer(), old_hint)
    store.delete(PATHS.log_entry(hole))
    before = snapshot_of(store)
    attempts: list[Callable[[CommitLog], object]] = [
        CommitLog.read,
        lambda log: log.take_over(HOME),
        lambda log: log.pin("x", cid(1)),
        lambda log: log.forget(lambda _: (cid(1),)),
    ]
    for attempt in attempts:
        with pytest.raises(LogDamaged, match=f"entry {hole} is missing"):
            attempt(open_log(store))
    assert snapshot_of(store) == before


def test_a_hole_below_the_last_state_is_found_by_whoever_has_to_list_the_log() -> None:
    store = MemoryStore()
    expected = long_log(store, 40).read()
    store.delete(PATHS.log_entry(5))
    # with a good hint nobody needs what came before the state in entry 32; verify looks at it
    assert open_log(store).read() == expected
    store.delete(PATHS.latest_pointer())
    with pytest.raises(LogDamaged, match="entry 5 is missing"):
        open_log(store).pin("x", cid(1))


def test_a_hole_at_the_end_of_a_cached_log_is_not_written_into() -> None:
    """The head is lost while a writer has it cached: its next entry would stand behind a hole."""
    store = MemoryStore()
    log = long_log(store, 7)
    store.delete(PATHS.log_entry(7))
    before = snapshot_of(store)
    for attempt in (
        lambda: log.pin("x", cid(1)),
        lambda: log.take_over(HOME),
    ):
        with pytest.raises(LogDamaged, match="entry 7"):
            attempt()
    assert snapshot_of(store) == before


def test_a_log_that_was_rolled_back_and_went_on_differently_stops_the_old_writer() -> None:
    store = MemoryStore()
    log = long_log(store, 7)
    store.delete(PATHS.log_entry(7))
    store.delete(PATHS.latest_pointer())
    open_log(store, seed=9).pin("other", cid(1))
    before = snapshot_of(store)
    with pytest.raises(LogDamaged, match="entry 7"):
        log.pin("x", cid(1))
    assert snapshot_of(store) == before


def test_an_entry_under_the_name_of_another_is_damage() -> None:
    store = MemoryStore()
    long_log(store, STATE_EVERY)
    entry = decode_entry(store.get(PATHS.log_entry(STATE_EVERY)), "")
    store.put(PATHS.log_entry(STATE_EVERY), encode_entry(replace(entry, seq=STATE_EVERY + 4)))
    store.delete(PATHS.latest_pointer())
    with pytest.raises(LogDamaged, match="36"):
        open_log(store).read()


def test_a_changed_entry_in_the_middle_breaks_the_chain() -> None:
    store = MemoryStore()
    long_log(store, 10)
    key = PATHS.log_entry(4)
    entry = decode_entry(store.get(key), "")
    store.put(key, encode_entry(replace(entry, timestamp_ms=entry.timestamp_ms + 1)))
    with pytest.raises(LogDamaged, match="entry 5 does not follow"):
        open_log(store).read()


def test_an_entry_of_a_newer_lamina_stops_reader_and_writer() -> None:
    store = MemoryStore()
    log = long_log(store, 3)
    store.put(PATHS.log_entry(4), b'{"version":2}')
    for reading in (log, open_log(store)):
        with pytest.raises(Unsupported):
            reading.pin("x", cid(1))


def test_foreign_files_in_the_folder_of_the_log_are_not_taken_for_entries() -> None:
    store = MemoryStore()
    long_log(store, 3)
    store.put("p/log/README.txt", b"hands off")
    store.put("p/log/4.json", b"{}")
    store.delete(PATHS.latest_pointer())
    assert open_log(store).read().seq == 3


# the hint is never trusted


def _stale(store: MemoryStore) -> bytes:
    return encode_hint(Hint(2, sha256_hex(store.get(PATHS.log_entry(2))), None))


@pytest.mark.parametrize(
    "hint",
    [
        lambda _: None,
        lambda _: b"",
        lambda _: b"garbage",
        lambda _: b"\xff" * 70_000,
        lambda _: b'{"version":9}',
        _stale,
        lambda _: encode_hint(Hint(400, "a" * 64, cid(1))).replace(b"400", b"401"),
        lambda store: encode_hint(Hint(41, sha256_hex(store.get(PATHS.log_entry(41))), cid(99))),
    ],
    ids=[
        "missing",
        "empty",
        "garbage",
        "huge",
        "newer",
        "stale",
        "flipped",
        "wrong-checkpoint",
    ],
)
def test_the_history_is_the_same_whatever_the_hint_says(
    hint: Callable[[MemoryStore], bytes | None],
) -> None:
    store = MemoryStore()
    expected = long_log(store, 41).read()
    data = hint(store)
    store.delete(PATHS.latest_pointer())
    if data is not None:
        store.put(PATHS.latest_pointer(), data)
    assert open_log(store).read() == expected
    assert open_log(store, seed=5).pin("x", cid(1)).seq == 42


@pytest.mark.parametrize("hint", [Hint(400, "a" * 64, cid(1)), Hint(41, "a" * 64, cid(1))])
def test_a_whole_hint_to_an_entry_that_is_not_there_proves_that_the_log_is_damaged(
    hint: Hint,
) -> None:
    store = MemoryStore()
    long_log(store, 41)
    store.put(PATHS.latest_pointer(), encode_hint(hint))
    before = snapshot_of(store)
    for act in (lambda: open_log(store).read(), lambda: open_log(store, seed=5).unpin("x")):
        with pytest.raises(LogDamaged, match="the hint names log entry"):
            act()
    assert snapshot_of(store) == before


def test_the_newest_entry_was_lost_and_written_again() -> None:
    store = MemoryStore()
    long_log(store, 41)
    store.delete(PATHS.log_entry(41))
    with pytest.raises(LogDamaged, match="entry 41, which is missing"):
        open_log(store).pin("x", cid(1))


def test_a_log_that_is_gone_was_taken_for_a_new_pipeline() -> None:
    store = MemoryStore()
    long_log(store, 3)
    for seq in (1, 2, 3):
        store.delete(PATHS.log_entry(seq))
    with pytest.raises(LogDamaged):
        open_log(store).take_over("home")


def test_a_hint_that_cannot_be_written_does_no_harm_and_is_remembered() -> None:
    inner = MemoryStore()
    log = open_log(FaultyStore(inner, faults=[Fault("put", FaultKind.UNAVAILABLE, call=1)]))
    log.take_over(HOME)
    assert isinstance(log.hint_error, StoreUnavailable)
    assert keys(inner) == [PATHS.log_entry(1)]
    add_checkpoint(log, 1)
    assert log.hint_error is None
    assert PATHS.latest_pointer() in keys(inner)


def test_a_read_only_store_can_be_read_and_says_why_it_cannot_be_written() -> None:
    store = MemoryStore()
    expected = long_log(store, 5).read()
    log = open_log(ReadOnlyStore(store))
    assert log.read() == expected
    with pytest.raises(StoreReadOnly):
        log.pin("x", cid(1))


# cost


@pytest.mark.parametrize("length", [40, 63, 64, 95, 130])
def test_a_long_log_is_opened_from_its_last_state_with_a_bounded_number_of_gets(
    length: int,
) -> None:
    store = MemoryStore()
    expected = long_log(store, length).read()
    counted = FaultyStore(store)
    assert open_log(counted).read() == expected
    # the hint, the entry it names, at most 32 entries, the look beyond the end
    assert counted.calls["get"] <= STATE_EVERY + 3
    assert counted.calls["list"] == 1
    entries_listed = len(list(store.list(PATHS.log_dir(), after=PATHS.log_entry(length))))
    assert entries_listed == 0


def test_reading_again_costs_one_get() -> None:
    store = MemoryStore()
    long_log(store, 40)
    counted = FaultyStore(store)
    log = open_log(counted)
    log.read()
    opened = counted.calls["get"]
    log.read()
    assert counted.calls["get"] == opened + 1


# two writers


def test_two_writers_interleaved_make_one_dense_log() -> None:
    store = MemoryStore()
    owner, tool = open_log(store, 1), open_log(store, 2)
    owner.take_over(HOME)
    add_checkpoint(owner, 1)
    for number in range(2, 40):
        tool.pin(f"s{number}", tool.read().checkpoints[-1].id)
        add_checkpoint(owner, number)
        owner.pin(f"o{number}", cid(number))
    assert owner.read() == tool.read() == open_log(store, 3).read()
    assert owner.read().seq == 2 + 38 * 3


def test_a_slot_that_somebody_else_takes_is_read_and_the_next_one_used() -> None:
    """The rival writes between our look and our put, again and again."""
    store = MemoryStore()
    long_log(store, 2)
    rival = open_log(store, 9)
    rounds = iter(range(3))

    def interfere(operation: str, key: str) -> None:
        if operation == "put_if_absent" and (number := next(rounds, None)) is not None:
            rival.pin(f"rival-{number}", cid(1))

    log = open_log(WatchedStore(store, interfere), 5)
    assert log.pin("mine", cid(1)).seq == 6
    assert set(log.read().pins) == {"rival-0", "rival-1", "rival-2", "mine"}


def test_what_is_chosen_to_be_forgotten_is_chosen_again_when_the_log_has_moved() -> None:
    store = MemoryStore()
    log = long_log(store, 1)
    for number in (1, 2, 3):
        add_checkpoint(log, number)
    rival = open_log(store, 9)
    once = iter([1])

    def pin_meanwhile(operation: str, key: str) -> None:
        if operation == "put_if_absent" and next(once, None):
            rival.pin("saved", cid(1))

    tool = open_log(WatchedStore(store, pin_meanwhile), 5)
    tool.forget(lambda now: tuple(id for id in (cid(1), cid(2)) if not now.pinned(id)))
    assert [c.id for c in tool.read().checkpoints] == [cid(1), cid(3)]


def test_a_forget_that_somebody_has_pinned_against_meanwhile_is_refused() -> None:
    store = MemoryStore()
    log = long_log(store, 1)
    for number in (1, 2):
        add_checkpoint(log, number)
    rival = open_log(store, 9)
    once = iter([1])

    def pin_meanwhile(operation: str, key: str) -> None:
        if operation == "put_if_absent" and next(once, None):
            rival.pin("saved", cid(1))

    with pytest.raises(StillNeeded, match="saved"):
        open_log(WatchedStore(store, pin_meanwhile), 5).forget(lambda _: (cid(1),))


def test_a_writer_that_was_fenced_between_look_and_put_stops() -> None:
    store = MemoryStore()
    long_log(store, 2)
    once = iter([1])
    rival = open_log(store, 9)

    def take_over(operation: str, key: str) -> None:
        if operation == "put_if_absent" and key.startswith("p/log/") and next(once, None):
            rival.take_over(HOME)

    log = open_log(WatchedStore(store, take_over), 5)
    log.generation = 1
    with pytest.raises((Fenced, Refused)):
        add_checkpoint(log, 5)
    assert [c.id for c in rival.read().checkpoints] == [cid(1)]


def test_a_fenced_writer_can_neither_checkpoint_nor_rewind() -> None:
    store = MemoryStore()
    old = long_log(store, 2)
    new = open_log(store, 9)
    new.take_over("home-b")
    before = snapshot_of(store)
    for attempt in (
        lambda: add_checkpoint(old, 5),
        lambda: old.rewind(cid(1), epoch=9),
    ):
        with pytest.raises(Fenced):
            attempt()
    assert snapshot_of(store) == before
    old.pin("still allowed", cid(1))  # anybody may pin


def test_a_driver_that_names_its_generation_is_fenced_by_who_reached_it_first() -> None:
    store = MemoryStore()
    first, second = open_log(store, 1), open_log(store, 2)
    first.take_over(HOME, generation=5)
    with pytest.raises(Fenced):
        second.take_over(HOME, generation=5)
    assert second.take_over(HOME, generation=6).generation == 6


def test_two_tools_that_take_over_at_once_get_two_generations() -> None:
    store = MemoryStore()
    rival = open_log(store, 9)
    once = iter([1])

    def take_over(operation: str, key: str) -> None:
        if operation == "put_if_absent" and next(once, None):
            rival.take_over("home-b")

    log = open_log(WatchedStore(store, take_over), 5)
    log.take_over(HOME)
    assert (rival.generation, log.generation) == (1, 2)


def test_a_rewind_to_what_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFound):
        long_log(MemoryStore(), 2).rewind(cid(77), epoch=9)


# unclear answers: every kind, at every call, for every verb

CHANGES: dict[str, Callable[[CommitLog], object]] = {
    "take over": lambda log: log.take_over(HOME),
    "take over as 2": lambda log: log.take_over(HOME, generation=2),
    "checkpoint": lambda log: add_checkpoint(log, 50),
    "rewind": lambda log: log.rewind(cid(1), epoch=60),
    "pin": lambda log: log.pin("new", cid(1)),
    "unpin": lambda log: log.unpin("old"),
    "forget": lambda log: log.forget(lambda now: (cid(1),) if now.find(cid(1)) else ()),
}
TROUBLE = [
    FaultKind.TIMEOUT_BEFORE,
    FaultKind.TIMEOUT_AFTER,
    FaultKind.SERVER_ERROR,
    FaultKind.EXISTS_AFTER,
]


def prepared() -> dict[str, bytes]:
    store = MemoryStore()
    log = open_log(store)
    log.take_over(HOME)
    for number in (1, 2, 3):
        add_checkpoint(log, number)
    log.pin("old", cid(2))
    return snapshot_of(store)


PREPARED = prepared()


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_the_store_answers_there_is_exactly_one_entry(change: str) -> None:
    operations = ("get", "get_range", "head", "list", "put", "put_if_absent")
    for operation in operations:
        for kind in TROUBLE:
            if kind is FaultKind.EXISTS_AFTER and operation != "put_if_absent":
                continue
            for call in range(1, 12):
                inner = copy_of(PREPARED)
                faulty = FaultyStore(inner, faults=[Fault(operation, kind, call=call)])
                clock = ManualClock(call)
                log = open_log(RetryingStore(faulty, RetryPolicy(), clock), call)
                log.generation = 1
                CHANGES[change](log)
                assert len(bodies(inner)) == 6, (operation, kind, call)
                assert open_log(inner, 8).read() == log.read()
                if faulty.calls[operation] < call:
                    break


@pytest.mark.parametrize("change", CHANGES)
def test_also_a_store_that_denies_our_own_write_gets_no_second_entry(change: str) -> None:
    """No retrying store in between: the log itself looks whose entry stands in the slot."""
    inner = copy_of(PREPARED)
    log = open_log(FaultyStore(inner, faults=[Fault("put_if_absent", FaultKind.EXISTS_AFTER, 1)]))
    log.generation = 1
    CHANGES[change](log)
    assert len(bodies(inner)) == 6


@pytest.mark.parametrize("change", CHANGES)
def test_killed_before_or_after_the_entry_the_log_is_whole(change: str) -> None:
    for operation in ("get", "put", "put_if_absent"):
        for kind in (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER):
            for call in range(1, 20):
                inner = copy_of(PREPARED)
                faulty = FaultyStore(inner, faults=[Fault(operation, kind, call=call)])
                log = open_log(faulty)
                log.generation = 1
                try:
                    CHANGES[change](log)
                except Killed:
                    pass
                else:
                    break
                assert len(bodies(inner)) in (5, 6)
                open_log(inner, 3).pin("later", cid(3))  # the next one can go on


def test_without_a_retrying_store_an_unclear_answer_is_told_and_a_second_call_settles_it() -> None:
    for change in ("checkpoint", "pin", "forget"):
        inner = copy_of(PREPARED)
        fault = Fault("put_if_absent", FaultKind.TIMEOUT_AFTER, call=1)
        log = open_log(FaultyStore(inner, faults=[fault]))
        log.generation = 1
        begin = Begin(cid(50), 1, cid(3), log.read().lineage_seq, "w", 0)
        again: dict[str, Callable[[], object]] = {
            "checkpoint": lambda log=log, begin=begin: log.checkpoint(
                begin, epoch=9, manifest_sha256="c" * 64, manifest_size=1, total_size=1
            ),
            "pin": lambda log=log: CHANGES["pin"](log),
            "forget": lambda log=log: CHANGES["forget"](log),
        }
        with pytest.raises(StoreUnavailable):
            again[change]()
        again[change]()
        assert len(bodies(inner)) == 6


def test_errors_of_the_log_are_of_one_tree() -> None:
    log = long_log(MemoryStore(), 3)
    for attempt in (
        lambda: log.pin("", cid(1)),
        lambda: log.pin("x", cid(8)),
        lambda: log.unpin("nobody"),
        lambda: log.rewind(cid(1), epoch=0),
        lambda: log.pin("\ud800", cid(1)),
    ):
        with pytest.raises(LaminaError):
            attempt()
