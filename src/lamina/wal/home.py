"""A home: the folder of a pipeline's write-ahead log, with an identity and one owner at a time."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.clock import Clock, new_writer_id
from lamina.disk.base import Disk, Lock
from lamina.errors import Fenced, NotFound
from lamina.format.home_file import HOME_BYTES_MAX, HomeFile, decode_home, encode_home
from lamina.format.home_names import DRIVER, HOME_LOCK, IDENTITY


@dataclass(frozen=True, slots=True)
class Home:
    """Where the log is, and which one it is; *lock* is None for those who only look, or
    whose caller has it."""

    disk: Disk
    identity: bytes
    lock: Lock | None = None

    @property
    def name(self) -> str:
        """How TAKEOVER entries name it."""
        return self.identity.hex()

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()


def claim_home(disk: Disk, clock: Clock, held: Lock | None = None) -> Home:
    """Take the lock of the home for life; make the home if it is new. Fenced if it is taken.

    *held* is the lock of a caller who has it already; it stays the caller's.
    """
    disk.make_folder("")
    disk.make_folder(DRIVER)
    lock = None if held is not None else _take_lock(disk)
    try:
        identity = _identity(disk) or _create(disk, clock)
        disk.sync_folder("")  # its maker may have been killed before the name was durable
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return Home(disk, identity, lock)


def _take_lock(disk: Disk) -> Lock:
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
    identity = _identity(disk)
    if identity is None:
        raise NotFound("this folder is no home: it has no home.json", where=disk.root)
    return Home(disk, identity)


def _identity(disk: Disk) -> bytes | None:
    try:
        data = disk.read(IDENTITY, 0, HOME_BYTES_MAX)
    except NotFound:
        return None
    return decode_home(data, f"{disk.root}/{IDENTITY}").identity


def _create(disk: Disk, clock: Clock) -> bytes:
    """Under the lock: written aside, then renamed; the caller makes the name durable."""
    identity = new_writer_id(clock)
    aside = f"{IDENTITY}.{identity}"
    file = disk.create(aside)
    content = HomeFile(bytes.fromhex(identity), clock.now_ms())
    try:
        file.append([encode_home(content)])
        file.sync()
    finally:
        file.close()
    disk.rename(aside, IDENTITY)
    return content.identity
