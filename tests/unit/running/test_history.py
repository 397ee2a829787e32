"""The history of epochs: whole after any end, bounded, and never a row that is not true."""

from __future__ import annotations

import errno
import gzip
import threading
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c

from lamina.clock import SystemClock
from lamina.errors import StoreUnavailable
from lamina.format.epoch_row import LINES_MAX_BYTES, EpochRow, encode_line, pack, row_of
from lamina.format.home_names import HISTORY, LINES, PACKED, HistoryFile, parse_history_file
from lamina.running import history as writing
from lamina.running.history import HistoryWriter
from lamina.running.loop import Loop, Until, Watcher
from lamina.running.presence import present
from lamina.running.recorder import recorded
from lamina.store import MemoryStore
from lamina.store.base import Data
from lamina.testing import FaultyStore, ManualClock
from lamina.workspace.history import HistoryPage, read_history
from lamina.workspace.notes import LocalNotes
from lamina.workspace.remote.notes import RemoteNotes
from tests.support.histories import row, write
from tests.support.running_engines import FakeEngine

MINUTE_S = 60.0


def read(home: Path, before: int | None = None, limit: int = 50) -> HistoryPage:
    return read_history([LocalNotes(home)], before=before, limit=limit)


def epochs(page: HistoryPage) -> list[int]:
    return [each.epoch for each in page.rows]


def files(home: Path, kind: str) -> list[Path]:
    """Of the history, oldest first."""
    return sorted((home / HISTORY).glob(f"*.{kind}"))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of ten epochs, three of them."""
    monkeypatch.setattr(writing, "FILE_ROWS", 10)
    monkeypatch.setattr(writing, "FILES_KEPT", 3)


# what a run leaves


def test_each_epoch_of_a_run_is_written_down_once_it_is_committed(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    engine = FakeEngine(input=3, on_step=lambda _: seen.append(epochs(read(tmp_path))))
    clock = ManualClock()
    with (
        present(tmp_path, "orders", clock=clock) as here,
        recorded(Watcher(), here, None, clock) as watcher,
    ):
        Loop(
            engine,
            here=here,
            clock=clock,
            stop=threading.Event(),
            watcher=watcher,
            until=Until(available_now=True),
        ).run()
    assert seen == [[], [1], [2, 1], [3, 2, 1]], "before a step there is nothing of its epoch"
    newest = read(tmp_path).rows[0]
    assert (newest.rows, newest.rows_out, newest.late) == ({"trades": 100}, {"out": 7}, 1)
    assert newest.took_us == 500_000
    assert newest.time_ms == clock.now_ms()


def test_why_it_was_held_before_an_epoch_is_written_down(tmp_path: Path) -> None:
    def let_go(engine: FakeEngine) -> None:
        engine.held = "out: no answer" if engine.calls.count("step") in (2, 3) else ""

    clock = ManualClock()
    with (
        present(tmp_path, "orders", clock=clock) as here,
        recorded(Watcher(), here, None, clock) as watcher,
    ):
        Loop(
            FakeEngine(input=3, on_step=let_go),
            here=here,
            clock=clock,
            stop=threading.Event(),
            watcher=watcher,
            until=Until(epoch=3),
        ).run()
    assert [each.held for each in read(tmp_path).rows] == ["", "out: no answer", ""]


# lines


@pytest.mark.parametrize("kept", [1, 20, -2])
def test_a_torn_line_is_left_out_and_the_next_run_goes_on_behind_it(
    kept: int, tmp_path: Path
) -> None:
    write(tmp_path, range(1, 4))
    [lines] = files(tmp_path, LINES)
    whole = lines.read_bytes()
    lines.write_bytes(whole + encode_line(row(4))[:kept])
    page = read(tmp_path)
    assert epochs(page) == [3, 2, 1]
    assert len(page.skipped) == 1, "and it is said"
    assert "line 4" in page.skipped[0]
    write(tmp_path, [5, 6], generation=2)
    assert epochs(read(tmp_path)) == [6, 5, 3, 2, 1]
    assert files(tmp_path, LINES) == [lines]


def test_a_flipped_bit_of_a_line_never_gives_another_row(tmp_path: Path) -> None:
    (tmp_path / HISTORY).mkdir()
    lines = tmp_path / HistoryFile(1, 1).path
    wholes = [row(1), row(2)]
    data = b"".join(map(encode_line, wholes))
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        lines.write_bytes(flipped)
        page = read(tmp_path)
        assert all(each in wholes for each in page.rows), at
        assert page.skipped, at


def test_a_line_of_a_newer_release_is_left_out_and_said(tmp_path: Path) -> None:
    write(tmp_path, [1])
    [lines] = files(tmp_path, LINES)
    data = b'{"epoch":2,"version":2'
    lines.write_bytes(lines.read_bytes() + data + b',"check":"%08x"}\n' % crc32c(data))
    page = read(tmp_path)
    assert epochs(page) == [1]
    assert "version 2" in page.skipped[0]


def test_fields_may_be_missing_or_unknown() -> None:
    """A row of an older release, and one of a newer release that has only added something."""
    assert row_of({"version": 1, "epoch": 7, "colour": "red"}, "x") == EpochRow(7)


# packed files


@pytest.mark.usefixtures("few")
def test_full_lines_are_packed_and_the_oldest_go(tmp_path: Path) -> None:
    write(tmp_path, range(1, 58))
    assert [parse_history_file(each.name) for each in files(tmp_path, PACKED)] == [
        HistoryFile(first, 1, PACKED) for first in (21, 31, 41)
    ]
    assert len(files(tmp_path, LINES)) == 1
    page = read(tmp_path, limit=100)
    assert epochs(page) == list(range(57, 20, -1))
    assert page.rows == tuple(row(epoch) for epoch in epochs(page)), "packed rows are whole"
    assert (page.skipped, page.older) == ((), None)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("limit", [1, 7, 10, 100])
def test_pages_go_on_where_the_last_one_ended(limit: int, tmp_path: Path) -> None:
    write(tmp_path, range(1, 38))
    found: list[int] = []
    before: int | None = None
    while True:
        page = read(tmp_path, before=before, limit=limit)
        assert len(page.rows) <= limit
        found += epochs(page)
        if page.older is None:
            break
        before = page.older
    assert found == list(range(37, 0, -1))


@pytest.mark.usefixtures("few")
def test_a_page_reads_no_more_files_than_it_needs(tmp_path: Path) -> None:
    write(tmp_path, range(1, 38))

    class Counted(LocalNotes):
        reads = 0

        def read(self, name: str) -> bytes | None:
            Counted.reads += 1
            return super().read(name)

    read_history([Counted(tmp_path)], limit=3)
    assert Counted.reads == 1
    read_history([Counted(tmp_path)], limit=3, before=20)
    assert Counted.reads == 2


@pytest.mark.usefixtures("few")
def test_killed_while_lines_are_packed_each_epoch_is_there_once(tmp_path: Path) -> None:
    write(tmp_path, range(1, 10))
    [lines] = files(tmp_path, LINES)
    whole = lines.read_bytes() + encode_line(row(10))
    write(tmp_path, [10])
    lines.write_bytes(whole)  # the packed file was written, and the lines not removed yet
    assert epochs(read(tmp_path)) == list(range(10, 0, -1))
    write(tmp_path, [11], generation=2)
    assert epochs(read(tmp_path)) == list(range(11, 0, -1))
    assert len(files(tmp_path, LINES)) == 1, "and the next process tidies up"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "text"])
def test_a_damaged_file_is_left_out_and_said_and_the_others_are_read(
    how: str, tmp_path: Path
) -> None:
    write(tmp_path, range(1, 36))
    damaged = files(tmp_path, PACKED)[1]
    data, middle = damaged.read_bytes(), 40
    made = {
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "cut": data[: len(data) // 2],
        "empty": b"",
        "text": b"not packed",
    }
    damaged.write_bytes(made[how])
    page = read(tmp_path, limit=100)
    assert epochs(page) == [*range(35, 20, -1), *range(10, 0, -1)]
    assert len(page.skipped) == 1
    assert str(damaged) in page.skipped[0]
    write(tmp_path, [36], generation=2)  # and it does not stop who writes


def test_a_flipped_bit_of_a_packed_file_never_gives_another_row(tmp_path: Path) -> None:
    (tmp_path / HISTORY).mkdir()
    packed = tmp_path / HistoryFile(1, 1, PACKED).path
    wholes = [row(epoch, saved=1) for epoch in (1, 2, 3)]
    data = pack(b"".join(map(encode_line, wholes)))
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        packed.write_bytes(flipped)
        assert all(each in wholes for each in read(tmp_path).rows), at


def test_what_unpacks_without_end_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [5])
    bomb = tmp_path / HistoryFile(1, 1, PACKED).path
    bomb.write_bytes(gzip.compress(bytes(LINES_MAX_BYTES + 1)))
    page = read(tmp_path)
    assert (epochs(page), len(page.skipped)) == ([5], 1)


def test_of_two_processes_that_ran_one_number_the_later_counts(tmp_path: Path) -> None:
    write(tmp_path, [1, 2], generation=1)
    other = tmp_path / HistoryFile(2, 3).path
    other.write_bytes(encode_line(row(2, generation=3)))
    assert [(e.epoch, e.generation) for e in read(tmp_path).rows] == [(2, 3), (1, 1)]


def test_strangers_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, [1])
    for name in ("README", "1-1.jsonl", f"{1:020d}-{1:020d}.csv"):
        (tmp_path / HISTORY / name).write_text("x")
    assert epochs(read(tmp_path)) == [1]


# what goes wrong


def test_a_full_disk_is_said_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    clock = ManualClock()
    append = HistoryWriter._append

    def full(self: HistoryWriter, line: bytes) -> None:
        if b'"epoch":2' in line or b'"epoch":3' in line:
            with writing.typed_errors(tmp_path):
                raise OSError(errno.ENOSPC, "No space left on device")
        append(self, line)

    monkeypatch.setattr(HistoryWriter, "_append", full)
    with (
        present(tmp_path, "orders", clock=clock) as here,
        recorded(Watcher(note=notes.append), here, None, clock) as watcher,
    ):
        loop = Loop(
            FakeEngine(input=4),
            here=here,
            clock=clock,
            stop=threading.Event(),
            watcher=watcher,
            until=Until(available_now=True),
        )
        assert loop.run().epoch == 4
    assert len(notes) == 1
    assert "history" in notes[0]
    assert epochs(read(tmp_path)) == [4, 1]


def test_a_line_that_was_written_in_part_does_not_spoil_the_next(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path, ManualClock())
    history.add(row(1))
    history._append(encode_line(row(2))[:30])  # as a disk does that is full
    history._close_file()
    history.add(row(3))
    history.close()
    assert epochs(read(tmp_path)) == [3, 1]


# a home in an object store


class Down(MemoryStore):
    """A store that can be away."""

    is_down = False

    def put(self, key: str, data: Data) -> Any:
        if self.is_down:
            raise StoreUnavailable("the store is down")
        return super().put(key, data)


def shared(home: Path, store: MemoryStore, clock: ManualClock) -> HistoryWriter:
    return HistoryWriter(home, clock, shared=RemoteNotes(store))


def test_an_epoch_asks_nothing_of_the_store_and_a_checkpoint_one_object_a_minute(
    tmp_path: Path,
) -> None:
    inner = MemoryStore()
    counted, clock = FaultyStore(inner), ManualClock()
    history = HistoryWriter(tmp_path, clock, shared=RemoteNotes(counted))
    history.add(row(1))
    counted.calls.clear()
    for epoch in range(2, 100):
        history.add(row(epoch))
    assert not counted.calls
    history.add(row(100, saved=90))
    history.close()
    assert counted.calls["put"] == 1
    history = HistoryWriter(tmp_path, clock, shared=RemoteNotes(counted))
    history.add(row(101, 2, saved=90))
    history._shared_at = clock.monotonic()
    counted.calls.clear()
    history.add(row(102, 2, saved=100))
    clock.wait(MINUTE_S)
    history.add(row(103, 2, saved=100))
    assert not counted.calls, "one a minute, and only with a checkpoint"
    history.add(row(104, 2, saved=103))
    history.close()
    assert counted.calls["put"] == 1


def test_another_machine_reads_it_and_goes_on_with_it(tmp_path: Path) -> None:
    store, clock = MemoryStore(), ManualClock()
    places = [RemoteNotes(store)]
    first = shared(tmp_path / "a", store, clock)
    for epoch in range(1, 6):
        first.add(row(epoch))
    first.finish()
    first.close()
    assert epochs(read_history(places)) == [5, 4, 3, 2, 1]
    second = shared(tmp_path / "b", store, clock)
    for epoch in range(6, 9):
        second.add(row(epoch, 2))
    second.finish()
    second.close()
    assert epochs(read_history(places)) == list(range(8, 0, -1))
    assert len(RemoteNotes(store).names(HISTORY)) == 1, "one object has replaced the other"


def test_what_was_not_shared_when_a_process_was_killed_is_shared_by_the_next_one_there(
    tmp_path: Path,
) -> None:
    store, clock = MemoryStore(), ManualClock()
    first = shared(tmp_path, store, clock)
    first.add(row(1))
    first.finish()
    first.add(row(2))
    first.close()  # killed
    here = [RemoteNotes(store), LocalNotes(tmp_path)]
    assert epochs(read_history(here)) == [2, 1], "on this machine it is seen at once"
    second = shared(tmp_path, store, clock)
    second.add(row(3, 2))
    second.finish()
    second.close()
    assert epochs(read_history([RemoteNotes(store)])) == [3, 2, 1]


@pytest.mark.usefixtures("few")
def test_of_a_shared_history_too_the_oldest_go(tmp_path: Path) -> None:
    store = MemoryStore()
    history = shared(tmp_path, store, ManualClock())
    for epoch in range(1, 58):
        history.add(row(epoch))
        if history._work is not None:
            history._work.join()
    history.finish()
    history.close()
    names = sorted(RemoteNotes(store).names(HISTORY))
    assert [parse_history_file(name) for name in names] == [
        HistoryFile(first, 1, PACKED) for first in (31, 41, 51)
    ]


def test_a_store_that_is_down_costs_a_note_and_no_row(tmp_path: Path) -> None:
    store, clock = Down(), ManualClock()
    store.is_down = True
    history = shared(tmp_path, store, clock)
    history.add(row(1))
    with pytest.raises(StoreUnavailable):  # noqa: PT012  at once, or with the next epoch
        history.add(row(2, saved=1))
        assert history._work is not None
        history._work.join()
        history.add(row(3, saved=1))
    history.add(row(4, saved=1))
    store.is_down = False
    history.finish()
    history.close()
    assert epochs(read_history([RemoteNotes(store)])) in ([4, 3, 2, 1], [4, 2, 1])


def test_it_costs_far_less_than_a_millisecond(tmp_path: Path) -> None:
    clock = SystemClock()
    history = HistoryWriter(tmp_path, clock)
    best = 1.0
    for start in range(1, 500, 50):
        began = clock.monotonic()
        for epoch in range(start, start + 50):
            history.add(row(epoch))
        best = min(best, (clock.monotonic() - began) / 50)
    history.close()
    assert best < 0.0005
