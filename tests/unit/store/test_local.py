"""The local store: what is durable when, what a crash leaves, and what the disk may refuse."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lamina.errors import (
    AlreadyExists,
    BadName,
    LaminaError,
    NotFound,
    Refused,
    StoreError,
    StoreFull,
    StoreReadOnly,
    UsageError,
)
from lamina.os_errors import from_os_error
from lamina.store import LocalStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def temps(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".tmp").iterdir())


def keys(store: LocalStore) -> list[str]:
    return [info.key for info in store.list()]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Durability: the order of what reaches the disk


class Recorder:
    """The calls that matter for durability, in order, by the name of the file they touch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.events: list[str] = []
        self._root = root
        for name in ("fsync", "link", "rename", "unlink"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(what: object, *rest: object, **options: object) -> None:
            name_before = self._name(what)
            call(what, *rest, **options)
            self.events.append(f"{name} {name_before}")

        return recorded

    def _name(self, what: object) -> str:
        path = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else str(what)
        relative = os.path.relpath(path, self._root)
        return ".tmp/*" if relative.startswith(".tmp") else relative


@pytest.mark.parametrize(
    ("put", "publish", "unlinks"),
    [("put", "rename .tmp/*", []), ("put_if_absent", "link .tmp/*", ["unlink .tmp/*"])],
)
def test_the_bytes_are_synced_before_the_name_and_the_folders_after_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, put: str, publish: str, unlinks: list[str]
) -> None:
    store = LocalStore(root)
    recorder = Recorder(monkeypatch, root)
    getattr(store, put)("a/b/key", b"data")
    folders = ["fsync a/b", "fsync a", "fsync ."]
    assert recorder.events == ["fsync .tmp/*", publish, *folders, *unlinks]


def test_finding_the_same_bytes_makes_them_durable_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    (root / "a").mkdir()
    (root / "a" / "key").write_bytes(b"data")  # by a writer that died before it synced the folder
    recorder = Recorder(monkeypatch, root)
    store.put_if_absent("a/key", b"data")
    assert recorder.events[-2:] == ["fsync a", "fsync ."]


def test_a_known_folder_is_synced_without_the_way_to_it_until_it_is_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    store.put("a/b/1", b"")
    recorder = Recorder(monkeypatch, root)
    store.put("a/b/2", b"")
    assert [e for e in recorder.events if e.startswith("fsync")] == ["fsync .tmp/*", "fsync a/b"]
    shutil.rmtree(root / "a")
    (root / "a" / "b").mkdir(parents=True)  # by another process, that died before it synced
    recorder.events.clear()
    store.put("a/b/3", b"")
    synced = [e for e in recorder.events if e.startswith("fsync")]
    assert synced == ["fsync .tmp/*", "fsync a/b", "fsync a", "fsync ."]


def test_more_folders_than_are_remembered_stay_durable_and_leak_no_descriptor(root: Path) -> None:
    store = LocalStore(root)
    for number in range(70):
        store.put(f"f{number}/k", b"")
    before = open_files()
    for number in range(140):
        store.put(f"f{number}/k", b"")
    assert open_files() == before
    del store
    assert open_files() < before - 50


def test_a_delete_syncs_the_folder_that_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put("a/b/1", b"")
    store.put("a/2", b"")
    recorder = Recorder(monkeypatch, root)
    store.delete("a/b/1")
    assert recorder.events == ["unlink a/b/1", "fsync a"]
    assert not (root / "a" / "b").exists()


def test_a_new_root_is_synced_into_its_parent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch, root)
    LocalStore(root / "x" / "y")
    assert recorder.events == ["fsync ..", "fsync .", "fsync x"]


# Crashes

DIE_AT = """
import os, sys
from pathlib import Path
from lamina.store import LocalStore
root, put, die_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = LocalStore(root)
calls = 0
def counted(call):
    def run(*args, **options):
        global calls
        calls += 1
        if calls == die_at:
            os._exit(9)
        return call(*args, **options)
    return run
for name in ("open", "write", "fsync", "link", "rename", "unlink", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
getattr(store, put)("folder/key", b"new" * 1000)
os._exit(0)
"""


@pytest.mark.parametrize("put", ["put", "put_if_absent"])
def test_a_process_that_dies_at_any_call_leaves_the_old_or_the_new_object(
    tmp_path: Path, put: str
) -> None:
    seen = set()
    for die_at in range(1, 40):
        root = tmp_path / str(die_at)
        store = LocalStore(root)
        if put == "put":
            store.put("folder/key", b"old")
        command = [sys.executable, "-c", DIE_AT, str(root), put, str(die_at)]
        code = subprocess.run(command, check=False).returncode
        reopened = LocalStore(root)
        found = reopened.get("folder/key") if keys(reopened) else None
        assert found in (b"new" * 1000, b"old" if put == "put" else None)
        assert temps(root) == [], f"died at call {die_at}: a temp file was not swept"
        seen.add(found)
        if code == 0:
            break
    else:
        pytest.fail("the put never finished")
    assert len(seen) == 2, "both outcomes must have been met"


def test_a_crash_between_link_and_unlink_leaves_an_object_that_the_sweep_spares(
    root: Path,
) -> None:
    LocalStore(root).put_if_absent("k", b"data")
    os.link(root / "k", root / ".tmp" / "999-999-0")
    store = LocalStore(root)
    assert temps(root) == []
    assert store.get("k") == b"data"


def test_the_sweep_spares_a_living_writer(root: Path) -> None:
    LocalStore(root)
    dead, alive = root / ".tmp" / "1-1-0", root / ".tmp" / "1-1-1"
    dead.write_bytes(b"half")
    with alive.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        LocalStore(root)
        assert temps(root) == ["1-1-1"]
    LocalStore(root)
    assert temps(root) == []


def test_a_writer_whose_temp_was_swept_before_it_was_locked_begins_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    real, swept = fcntl.flock, []

    def sweep_first(fd: int, how: int) -> None:
        if not swept:
            swept.append(fd)
            LocalStore(root)  # finds the file unlocked, because this call is the lock
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    store.put("k", b"data")
    assert swept
    assert store.get("k") == b"data"
    assert temps(root) == []


def test_a_reader_never_sees_a_part(root: Path) -> None:
    store = LocalStore(root)
    values = [bytes([n]) * (200_000 + n) for n in range(4)]
    store.put("k", values[0])
    done = threading.Event()

    def write() -> None:
        for number in range(60):
            store.put("k", values[number % 4])
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not done.is_set() and not writing.done():
            assert store.get("k") in values
        writing.result()


def test_puts_and_deletes_in_one_folder_do_not_hurt_each_other(root: Path) -> None:
    store = LocalStore(root)

    def work(number: int) -> None:
        for _ in range(40):
            store.put(f"a/b/{number}", b"data")
            assert store.get(f"a/b/{number}") == b"data"
            store.delete(f"a/b/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert keys(store) == []
    assert not (root / "a").exists()


# What the disk refuses


def test_a_failed_sync_of_a_file_is_not_repeated_and_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    calls = []

    def fail(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, "injected")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match="EIO"):
            store.put_if_absent("k", b"data")
    assert len(calls) == 1
    assert keys(store) == temps(root) == []
    store.put_if_absent("k", b"data")  # a new file may be tried


def test_after_a_failed_sync_of_a_folder_the_store_takes_no_more_writes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    real = os.fsync

    def fail_for_folders(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").is_dir():
            raise OSError(errno.EIO, "injected")
        real(fd)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail_for_folders)
        with pytest.raises(StoreError, match="EIO"):
            store.put_if_absent("k", b"data")
    for change in (lambda: store.put_if_absent("k", b"data"), lambda: store.delete("k")):
        with pytest.raises(StoreError, match="earlier sync failed"):
            change()
    assert LocalStore(root).get("k") == b"data"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("put", ["put", "put_if_absent"])
def test_a_full_disk_is_store_full_and_harms_nothing(tiny_disk: Path, put: str) -> None:
    store = LocalStore(tiny_disk)
    store.put("small", b"kept")
    with pytest.raises(StoreFull, match="ENOSPC"):
        getattr(store, put)("large", bytes(1 << 20))
    assert keys(store) == ["small"]
    assert store.get("small") == b"kept"
    assert temps(tiny_disk) == []


def test_a_read_only_disk_is_store_read_only(tiny_disk: Path) -> None:
    store = LocalStore(tiny_disk)
    store.put("k", b"data")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    for change in (
        lambda: store.put("k", b""),
        lambda: store.put_if_absent("l", b""),
        lambda: store.delete("k"),
    ):
        with pytest.raises(StoreReadOnly):
            change()
    assert LocalStore(tiny_disk, create=False).get("k") == b"data"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, "LAM-2000"),
        (errno.EACCES, "LAM-5002"),
        (errno.EPERM, "LAM-5002"),
        (errno.EROFS, "LAM-5003"),
        (errno.ENOSPC, "LAM-5004"),
        (errno.EDQUOT, "LAM-5004"),
        (errno.ENAMETOOLONG, "LAM-1001"),
        (errno.EIO, "LAM-5000"),
    ],
)
def test_every_refusal_has_its_error(number: int, code: str) -> None:
    error = from_os_error(OSError(number, "x"), "/the/path")
    assert error.code == code
    assert errno.errorcode[number] in str(error)
    assert "/the/path" in str(error)


# Names, links, folders


def test_links_are_refused_wherever_they_lead(root: Path, tmp_path: Path) -> None:
    store = LocalStore(root)
    store.put("inside/k", b"1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s")
    (root / "out").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    calls: list[Callable[[], object]] = [
        lambda: store.get("out/secret"),
        lambda: store.get("file"),
        lambda: store.head("file"),
        lambda: store.put("out/new", b"x"),
        lambda: store.put_if_absent("out/new", b"x"),
        lambda: store.put("file", b"x"),
        lambda: store.delete("out/secret"),
        lambda: store.copy("file", "copy"),
        lambda: list(store.list()),
        store.list_folder,
        lambda: list(store.list("out")),
    ]
    for call in calls:
        with pytest.raises(Refused):
            call()
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_bytes() == b"s"


def test_a_link_in_the_place_of_the_temp_folder_is_refused(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / ".tmp").symlink_to(tmp_path)
    with pytest.raises(Refused):
        LocalStore(root)


def test_the_root_itself_may_be_reached_through_a_link(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    LocalStore(tmp_path / "link").put("k", b"1")
    assert LocalStore(root).get("k") == b"1"


def test_a_name_too_long_for_a_file_is_refused_before_any_effect(root: Path) -> None:
    store = LocalStore(root)
    for name in ("n" * 256, "new/" + "ü" * 128):
        with pytest.raises(BadName):
            store.put(name, b"")
    assert sorted(path.name for path in root.iterdir()) == [".tmp"]


def test_an_object_and_a_folder_cannot_have_one_name(root: Path) -> None:
    store = LocalStore(root)
    store.put("a", b"1")
    store.put("b/c", b"2")
    for put in (store.put, store.put_if_absent):
        for key in ("a/below", "b"):
            with pytest.raises(StoreError, match="cannot hold both") as raised:
                put(key, b"x")
            assert not isinstance(raised.value, AlreadyExists)
    store.delete("b")
    store.delete("a/below")
    assert keys(store) == ["a", "b/c"]
    assert temps(root) == []


def test_what_is_no_object_is_not_listed(root: Path) -> None:
    store = LocalStore(root)
    store.put("folder/k", b"1")
    (root / "empty" / "deep").mkdir(parents=True)
    (root / ".tmp" / "left").write_bytes(b"")
    os.mkfifo(root / "pipe")
    (root / "bad\\name").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"")
    assert keys(store) == ["folder/k"]
    assert store.list_folder().folders == ("folder",)
    assert store.list_folder().objects == ()
    with pytest.raises(NotFound):
        store.get("pipe")


def test_list_walks_as_it_is_asked(root: Path) -> None:
    store = LocalStore(root)
    store.put("a/1", b"")
    store.put("z/1", b"")
    listing = store.list()
    assert next(listing).key == "a/1"
    store.put("z/0", b"")
    assert [info.key for info in listing] == ["z/0", "z/1"]


# Opening


def test_opening_for_reading_creates_nothing(root: Path) -> None:
    with pytest.raises(NotFound):
        LocalStore(root, create=False)
    assert not root.exists()
    root.mkdir()
    store = LocalStore(root, create=False)
    assert keys(store) == list(root.iterdir()) == []
    with pytest.raises(StoreReadOnly):
        store.put("k", b"")


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for create in (True, False):
        with pytest.raises(UsageError):
            LocalStore(tmp_path / "file", create=create)


def test_a_root_that_vanished_is_not_made_again(root: Path) -> None:
    store = LocalStore(root)
    shutil.rmtree(root)
    with pytest.raises(LaminaError):
        store.put("a/b", b"")
    assert not root.exists()
