"""Verifying a pipeline: whatever a start would read is found if it is damaged, and nothing else.

LAMINA_FAULTS=long flips every byte; without it every 61st.
"""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.disk import LocalDisk
from lamina.engine.ports import Publication, Sink
from lamina.errors import Corrupt, LaminaError, NotFound, StoreUnavailable
from lamina.format.findings import Severity
from lamina.inspect import HomeReport, verify_pipeline
from lamina.protocol.sinks import SinkPosition
from lamina.wal import read_driver_log, read_home
from tests.engine.pipelines import ORDERS, TRADES, World, kill, run_out
from tests.support.memory_sink import MemorySink, MemoryTable

STEP = 1 if os.environ.get("LAMINA_FAULTS") == "long" else 61


class SlowSink(MemorySink):
    """Takes nothing: whatever comes stays staged."""

    def publish(self, publication: Publication) -> None:
        raise StoreUnavailable("the sink is down")


class RottenSink(MemorySink):
    def position(self) -> SinkPosition:
        raise Corrupt("the position is damaged", where="its place")


@dataclass
class Verified(World):
    slow: bool = False

    def sinks(self) -> dict[str, Sink]:
        kind = SlowSink if self.slow else MemorySink
        return {name: kind(name, self.tables[name]) for name in self.plan.sinks}

    def look(self, *, sinks: bool = True) -> HomeReport:
        known = list(self.sinks().values()) if sinks else None
        found = verify_pipeline(LocalDisk(self.home), Checkpointer(self.store), sinks=known)
        assert found.store is not None
        assert found.store.ok
        assert found.home is not None
        return found.home

    def files(self) -> list[str]:
        paths = (path for path in self.home.rglob("*") if path.is_file())
        return sorted(str(p.relative_to(self.home)) for p in paths if p.stat().st_size)


def small_world(root: Path, *, slow: bool) -> Verified:
    """Three epochs, the last ones not saved; with a slow sink they are not published either."""
    world = Verified(root, data={"trades": TRADES[:20], "orders": ORDERS[:20]}, slow=slow)
    world.settings = replace(world.settings, partitions=1, checkpoint_epochs=0)
    return world


@pytest.fixture
def world(tmp_path: Path) -> Verified:
    """Killed, with pending publications and without a checkpoint: everything is needed."""
    made = small_world(tmp_path, slow=True)
    engine = made.open()
    run_out(engine)
    kill(engine)
    return made


def named(world: Verified) -> set[str]:
    """The staged files that a COMMIT names; others were read within their epoch."""
    disk = LocalDisk(world.home)
    segments = read_driver_log(disk, read_home(disk).identity)
    commits = (commit for segment in segments for commit in segment.known().values())
    return {file.path for commit in commits for file in commit.staged}


def worst(found: HomeReport, path: str) -> Severity | None:
    severities = [t.severity for t in found.troubles if t.path == path]
    order = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    return next((each for each in order if each in severities), None)


def test_a_whole_home_has_no_findings(world: Verified) -> None:
    found = world.look()
    assert found.troubles == ()
    assert found.start_epoch == 3
    assert found.staged_files
    assert len(found.segments) == 2


def test_every_flipped_byte_is_found_or_not_read_by_a_start(world: Verified) -> None:
    before = world.files()
    staged = {path for path in before if path.startswith("staged/")}
    unread = staged - named(world)
    files = [path for path in world.files() if path not in unread]
    assert unread, "the pipeline has a stream that only another stream reads"
    assert {path.partition("/")[0] for path in files} == {"core-0", "driver", "home.json", "staged"}
    for path in files:
        file = world.home / path
        data = file.read_bytes()
        for at in {*range(0, len(data), STEP), len(data) - 1}:
            broken = bytearray(data)
            broken[at] ^= 0x55
            file.write_bytes(broken)
            found = world.look()
            assert not found.ok, f"byte {at} of {path}"
            assert worst(found, path) is Severity.ERROR, f"byte {at} of {path}"
            assert all(t.advice for t in found.troubles if t.severity is Severity.ERROR)
        file.write_bytes(data)
    for path in unread:
        (world.home / path).unlink()
    assert world.look().troubles == ()
    world.slow = False
    world.finish()
    assert sum(len(epochs) for epochs in world.outcome().values()) > 3


def test_every_lost_file_is_found_or_not_needed_by_a_start(world: Verified) -> None:
    needed = {path for path in world.files() if not path.startswith("staged/")} | named(world)
    for path in world.files():
        file = world.home / path
        aside = world.root / "aside"
        shutil.move(file, aside)
        found = world.look()
        shutil.move(aside, file)
        assert found.ok == (path not in needed), path
    assert world.look().ok


def test_a_flipped_byte_of_a_run_file_is_a_warning_for_the_process_that_reads_it(
    tmp_path: Path,
) -> None:
    world = small_world(tmp_path, slow=False)
    world.settings = replace(world.settings, checkpoint_epochs=1)
    engine = world.open()
    run_out(engine)
    try:
        [path, *_] = [path for path in world.files() if path.startswith("state/")]
        file = world.home / path
        data = file.read_bytes()
        for at in {*range(0, len(data), STEP), len(data) - 1}:
            broken = bytearray(data)
            broken[at] ^= 0x55
            file.write_bytes(broken)
            found = world.look()
            assert found.ok
            assert worst(found, path) is Severity.WARNING, f"byte {at} of {path}"
        file.write_bytes(data)
    finally:
        kill(engine)


def test_what_two_looks_do_not_agree_on_is_no_finding(world: Verified) -> None:
    """A pipeline that runs drops a file between the listing and the look."""

    class Flickering(LocalDisk):
        looks = 0

        def read(self, path: str, offset: int, size: int) -> bytes:
            data = super().read(path, offset, size)
            if path == "home.json":
                self.looks += 1
                return b"{}" if self.looks == 1 else data
            return data

    found = verify_pipeline(Flickering(world.home), Checkpointer(world.store))
    assert found.home is not None
    assert found.home.troubles == ()


def test_a_running_pipeline_is_never_taken_for_a_damaged_one(tmp_path: Path) -> None:
    """Commits, checkpoints, gc and dropped segments go on beside the looks."""
    world = Verified(tmp_path)
    world.settings = replace(world.settings, checkpoint_epochs=1)
    engine = world.open()
    over = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_out(engine)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=work)
    thread.start()
    looks = 0
    while not over.is_set() or not looks:
        found = world.look()
        assert [t for t in found.troubles if t.severity is not Severity.NOTE] == []
        looks += 1
    thread.join()
    assert failures == []
    kill(engine)


def test_a_sink_that_cannot_say_where_it_stands_is_a_finding(world: Verified) -> None:
    rotten = RottenSink("totals", MemoryTable())
    found = verify_pipeline(LocalDisk(world.home), Checkpointer(world.store), sinks=[rotten]).home
    assert found is not None
    assert [(t.path, t.severity) for t in found.troubles] == [("sink totals", Severity.ERROR)]


def test_without_sinks_a_damaged_staged_file_counts_as_needed(world: Verified) -> None:
    path = next(path for path in sorted(named(world)) if path.startswith("staged/"))
    (world.home / path).write_bytes(b"")
    assert worst(world.look(sinks=False), path) is Severity.ERROR


def test_a_published_file_that_is_damaged_is_only_a_warning(world: Verified) -> None:
    paths = named(world)
    world.slow = False
    engine = world.open()
    engine.drain()
    kill(engine)
    path = min(paths)
    (world.home / path).write_bytes(b"")
    found = world.look()
    assert found.ok
    assert worst(found, path) is Severity.WARNING


def test_a_lost_driver_segment_of_the_last_process_is_said(world: Verified) -> None:
    kill(world.open())
    newest = max((world.home / "driver").glob("*.wal"))
    newest.unlink()
    found = world.look()
    assert [(t.severity, t.path) for t in found.troubles] == [(Severity.WARNING, "driver")]


def test_a_home_that_would_not_start_says_why(world: Verified) -> None:
    """The store of another pipeline: a start refuses, and so the pipeline is not verified."""
    other = Verified(world.root / "other")
    other.finish()
    world.store = other.store
    found = world.look()
    assert found.start_epoch is None
    assert [t.severity for t in found.troubles] == [Severity.WARNING]
    assert "home" in found.troubles[0].message


def test_a_folder_without_a_home_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"home\.json"):
        verify_pipeline(LocalDisk(tmp_path))


def test_where_the_log_is_reported_damaged_a_start_stops_too(world: Verified) -> None:
    """No cry of wolf."""
    for path in world.files():
        if path.startswith("staged/"):
            continue  # a start goes on, and the sink stops at it
        copied = Verified(world.root / path.replace("/", "-"), world.store, slow=True)
        shutil.copytree(world.home, copied.home)
        file = copied.home / path
        broken = bytearray(file.read_bytes())
        broken[len(broken) // 2] ^= 0x55
        file.write_bytes(broken)
        copied.tables = world.tables
        assert not copied.look().ok, path
        with pytest.raises(LaminaError):
            copied.open()
