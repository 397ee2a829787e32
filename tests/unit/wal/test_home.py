"""A home: one identity for ever, one owner at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.errors import BadName, Fenced, NotFound, Unsupported, WalDamaged
from lamina.format.home_file import decode_home
from lamina.format.home_names import DriverSegment, segment_path
from lamina.testing import ManualClock
from lamina.wal import DriverLog, claim_home, read_driver_log, read_home
from lamina.wal.home import is_home
from lamina.wal.scan import read_tail
from lamina.wal.standalone import CoreWalWriter
from tests.support.wal_logs import OTHER_HOME, FailingDisk, everything_below


def claim(tmp_path: Path, seed: int = 0):  # noqa: ANN201
    return claim_home(LocalDisk(tmp_path / "home"), ManualClock(seed))


def test_a_new_home_gets_an_identity_that_stays(tmp_path: Path) -> None:
    first = claim(tmp_path)
    first.release()
    again = claim(tmp_path, seed=7)
    assert len(first.identity) == 16
    assert again.identity == first.identity
    assert read_home(again.disk).identity == first.identity
    assert first.name == first.identity.hex()
    assert json.loads((tmp_path / "home/home.json").read_bytes())["id"] == first.name
    again.release()


def test_two_homes_are_two(tmp_path: Path) -> None:
    one = claim_home(LocalDisk(tmp_path / "one"), ManualClock(1))
    two = claim_home(LocalDisk(tmp_path / "two"), ManualClock(2))
    assert one.identity != two.identity


def test_a_home_has_one_owner_until_it_lets_go(tmp_path: Path) -> None:
    first = claim(tmp_path)
    with pytest.raises(Fenced, match="lock of this home"):
        claim(tmp_path)
    first.release()
    claim(tmp_path).release()


def test_looking_needs_no_lock_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"home\.json"):
        read_home(LocalDisk(tmp_path))
    assert everything_below(tmp_path) == {}
    owner = claim(tmp_path)
    seen = read_home(owner.disk)
    assert (seen.identity, seen.lock) == (owner.identity, None)
    seen.release()
    owner.release()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"id":"zz"}', b'{"id":"00","version":1}', bytes(80)]
)
def test_a_damaged_identity_is_damage_and_no_new_home(tmp_path: Path, data: bytes) -> None:
    claim(tmp_path).release()
    (tmp_path / "home/home.json").write_bytes(data)
    before = everything_below(tmp_path)
    with pytest.raises(WalDamaged) as caught:
        claim(tmp_path)
    assert "home.json" in caught.value.where
    with pytest.raises(WalDamaged):
        read_home(LocalDisk(tmp_path / "home"))
    assert everything_below(tmp_path) == before
    lock = LocalDisk(tmp_path / "home").try_lock("lock")
    assert lock is not None, "who could not claim keeps no lock"
    lock.release()


def test_a_home_of_a_newer_lamina_is_unsupported(tmp_path: Path) -> None:
    claim(tmp_path).release()
    path = tmp_path / "home/home.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": 4}))
    with pytest.raises(Unsupported, match="version 4"):
        claim(tmp_path)


def test_every_flipped_byte_of_an_identity_is_found(tmp_path: Path) -> None:
    """Without a checksum a flipped digit of the id was another home, and its log a stranger's."""
    claim(tmp_path).release()
    data = (tmp_path / "home/home.json").read_bytes()
    for at in range(len(data)):
        for flip in (0x01, 0x02, 0x03, 0x20, 0xFF):
            broken = bytearray(data)
            broken[at] ^= flip
            with pytest.raises((WalDamaged, Unsupported)):
                decode_home(bytes(broken), "home.json")


def test_an_identity_without_a_checksum_is_one_of_version_1(tmp_path: Path) -> None:
    old = b'{"created_ms":1,"id":"000102030405060708090a0b0c0d0e0f","version":1}'
    (tmp_path / "home").mkdir()
    (tmp_path / "home/home.json").write_bytes(old)
    assert claim(tmp_path).name == "000102030405060708090a0b0c0d0e0f"
    assert (tmp_path / "home/home.json").read_bytes() == old


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder"])
def test_an_identity_is_there_or_not(tmp_path: Path, operation: str) -> None:
    """Whatever fails while it is written, the next process finds a whole one or none."""
    failing = FailingDisk(LocalDisk(tmp_path / "home"))
    failing.fail[operation] = 0
    failing.written = 10
    with pytest.raises(Exception, match="the disk is gone"):
        claim_home(failing, ManualClock(0))
    claim(tmp_path, seed=3).release()


def test_the_identity_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    failing = FailingDisk(LocalDisk(tmp_path / "home"))
    claim_home(failing, ManualClock(0)).release()
    assert failing.calls == ["create", "append", "sync", "sync_folder"]


def test_a_segment_of_another_home_is_found_by_its_header(tmp_path: Path) -> None:
    home = claim(tmp_path)
    with CoreWalWriter(0, home.disk, home=OTHER_HOME) as writer:
        foreign = writer.segment
    with pytest.raises(WalDamaged, match="belongs to the home"):
        read_tail(home.disk, foreign, home.identity)
    with pytest.raises(WalDamaged, match="belongs to the home"):
        CoreWalWriter(0, home.disk, home=home.identity)


def test_a_driver_segment_of_another_home_or_generation_is_damage(tmp_path: Path) -> None:
    home = claim(tmp_path)
    other = claim_home(LocalDisk(tmp_path / "other"), ManualClock(9))
    DriverLog(other, 1).close()
    data = (tmp_path / "other" / segment_path(DriverSegment(1))).read_bytes()
    (tmp_path / "home" / segment_path(DriverSegment(1))).write_bytes(data)
    with pytest.raises(WalDamaged, match="belongs to the home"):
        read_driver_log(home.disk, home.identity)
    (tmp_path / "other" / segment_path(DriverSegment(5))).write_bytes(data)
    with pytest.raises(WalDamaged, match=r"generation 1, its name says \d+ and 5"):
        read_driver_log(other.disk, other.identity)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", ".."])
def test_a_path_out_of_the_home_was_only_asserted(path: str, tmp_path: Path) -> None:
    """Under python -O it was opened."""
    disk = LocalDisk(tmp_path / "home")
    disk.make_folder("")
    (tmp_path / "x").write_bytes(b"not ours")
    for call in (disk.read, lambda p, *_: disk.open(p), lambda p, *_: disk.unlink(p)):
        with pytest.raises(BadName, match="inside the home"):
            call(path, 0, 1)
    assert (tmp_path / "x").read_bytes() == b"not ours"


def test_a_home_that_was_made_between_two_looks_was_taken_for_one_without_identity(
    tmp_path: Path,
) -> None:
    class Overtaken(LocalDisk):
        """Another process makes the home after the first look at its identity."""

        looked = False

        def read(self, path: str, offset: int, size: int) -> bytes:
            try:
                return super().read(path, offset, size)
            finally:
                if not self.looked:
                    self.looked = True
                    home = claim(tmp_path)
                    DriverLog(home, 1, partitions=1).close()
                    home.release()

    assert is_home(Overtaken(tmp_path / "home"))
