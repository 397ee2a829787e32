"""A home: the folder of a pipeline's write-ahead log, with an identity and one owner at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lamina.clock import Clock, new_writer_id
from lamina.disk.base import Disk, Lock
from lamina.errors import Fenced, NotFound, Refused, WalDamaged
from lamina.format.home_file import ADVICE, HOME_BYTES_MAX, HomeFile, decode_home, encode_home
from lamina.format.home_names import DRIVER, HOME_LOCK, IDENTITY
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.wal.departure import departure


@dataclass(frozen=True, slots=True)
class Home:
    """Where the log is, and which one it is; *lock* is None for those who only look, or
    whose caller has it."""

    disk: Disk
    identity: bytes
    lock: Lock | None = None
    pipeline: Owner = NOBODY  # nobody: none that has an id was started here yet

    @property
    def name(self) -> str:
        """How TAKEOVER entries name it."""
        return self.identity.hex()

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()


def claim_home(
    disk: Disk,
    clock: Clock,
    held: Lock | None = None,
    *,
    has_arrived: Callable[[HomeFile], bool] = lambda _: False,
) -> Home:
    """Take the lock of the home for life; make the home if it is new. Fenced if it is taken.

    *held* is the lock of a caller who has it already; it stays the caller's. *has_arrived* is asked
    about a home that is being moved here. Refused if it has not, or has moved away.
    """
    disk.make_folder("")
    disk.make_folder(DRIVER)
    lock = None if held is not None else take_lock(disk)
    try:
        file = _read(disk) or _create(disk, clock)
        if file.arrival and has_arrived(file):
            file = settle(disk, file)
        _check_is_here(disk, file)
        disk.sync_folder("")  # its maker may have been killed before the name was durable
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return Home(disk, file.identity, lock, file.pipeline)


def take_lock(disk: Disk) -> Lock:
    lock = disk.try_lock(HOME_LOCK)
    if lock is None:
        raise Fenced(
            "another process has the lock of this home",
            where=disk.root,
            advice="Two processes must not run one pipeline; stop the other one first",
        )
    return lock


def read_home(disk: Disk) -> Home:
    """Look at a home without claiming it. NotFound if there is none."""
    file = _read(disk)
    if file is None:
        raise NotFound("this folder is not a home: it has no home.json", where=disk.root)
    return Home(disk, file.identity, None, file.pipeline)


def is_home(disk: Disk) -> bool:
    """Whether there is one: reading only. WalDamaged if it has lost its identity."""
    if _read(disk) is not None:
        return True
    if not _has_segments(disk):
        return False
    if _read(disk) is None:  # a home has its identity before its first segment
        raise _without_identity(disk)
    return True  # somebody has made it meanwhile


def give_home(home: Home, pipeline: Owner) -> Home:
    """Let the home belong to *pipeline*, for ever; under its lock. Once given, nothing happens."""
    if home.pipeline.id == pipeline.id:
        return home
    if home.pipeline.id:
        raise Refused(f"the home belongs to the pipeline {home.pipeline}", where=home.disk.root)
    file = _read(home.disk)
    assert file is not None, "whoever has the lock has read it"
    _write(home.disk, replace(file, pipeline=pipeline), pipeline.id)
    home.disk.sync_folder("")
    return replace(home, pipeline=pipeline)


def settle(disk: Disk, file: HomeFile) -> HomeFile:
    """The home has arrived: from here on it is one like any other."""
    settled = replace(file, arrival="", arrives_from="")
    _write(disk, settled, file.arrival)
    disk.sync_folder("")
    return settled


def read_identity(disk: Disk) -> HomeFile | None:
    """What home.json says; None if there is none."""
    return _read(disk)


def check_not_moved(disk: Disk) -> None:
    gone = departure(disk)
    if gone is not None:
        raise Refused(
            f"this home has moved to {gone.to}",
            where=disk.root,
            advice=f"Start with --home {gone.to}",
        )


def _check_is_here(disk: Disk, file: HomeFile) -> None:
    if file.arrival:
        raise Refused(
            f"this home has not arrived: it is still at {file.arrives_from}",
            where=disk.root,
            advice="Run `lamina move` again, or start the pipeline where it is",
        )
    check_not_moved(disk)


def _read(disk: Disk) -> HomeFile | None:
    try:
        data = disk.read(IDENTITY, 0, HOME_BYTES_MAX)
    except NotFound:
        return None
    return decode_home(data, f"{disk.root}/{IDENTITY}")


def _create(disk: Disk, clock: Clock) -> HomeFile:
    _check_new(disk)
    identity = new_writer_id(clock)
    file = HomeFile(bytes.fromhex(identity), clock.now_ms())
    _write(disk, file, identity)
    return file


def _check_new(disk: Disk) -> None:
    """A home that has lost its identity does not get another: its log would be a stranger's."""
    if _has_segments(disk):
        raise _without_identity(disk)


def _has_segments(disk: Disk) -> bool:
    return any(name.endswith(".wal") for name in disk.list(DRIVER))


def _without_identity(disk: Disk) -> WalDamaged:
    return WalDamaged(
        "home.json is missing, and there are segments",
        where=f"{disk.root}/{IDENTITY}",
        advice=ADVICE,
    )


def _write(disk: Disk, content: HomeFile, tag: str) -> None:
    """Under the lock: written aside, then renamed; the caller makes the name durable."""
    aside = f"{IDENTITY}.{tag}"
    if aside in disk.list(""):
        disk.unlink(aside)  # whoever wrote it was killed before it had its name
    file = disk.create(aside)
    try:
        file.append([encode_home(content)])
        file.sync()
    finally:
        file.close()
    disk.rename(aside, IDENTITY)
