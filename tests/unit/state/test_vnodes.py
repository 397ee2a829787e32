"""Where keys live: vectors pinned for ever, owners, slices."""

from __future__ import annotations

import numpy as np
import pytest

from lamina.errors import UsageError
from lamina.state.vnodes import (
    EVERYTHING,
    REVERSED,
    SlotRange,
    check_partitions,
    slots_of,
    vnodes_of_slots,
)

POWERS = [1, 2, 4, 8, 16, 32, 64, 128, 256]

PINNED = [  # vnode, xxhash64, slot
    (0, 0, 0x00_00000000000000),
    (1, 0, 0x80_00000000000000),
    (2, 0, 0x40_00000000000000),
    (3, 0xFF, 0xC0_00000000000000),
    (128, 0x100, 0x01_00000000000001),
    (6, 0x0123456789ABCDEF, 0x60_0123456789ABCD),
    (255, -1, 0xFF_FFFFFFFFFFFFFF),
    (0, -(2**63), 0x00_80000000000000),
]


@pytest.mark.parametrize(("vnode", "hashed", "slot"), PINNED)
def test_slots_are_as_they_were_when_the_first_run_was_written(
    vnode: int, hashed: int, slot: int
) -> None:
    made = slots_of(np.array([vnode], np.uint8), np.array([hashed], np.int64))
    assert made.dtype == np.uint64
    assert made.tolist() == [slot]
    assert vnodes_of_slots(made).tolist() == [vnode]


def test_vnodes_come_in_any_integer_type_and_only_from_0_to_255() -> None:
    hashes = np.zeros(2, np.int64)
    for kind in (np.int16, np.int32, np.int64, np.uint8):
        assert slots_of(np.array([0, 255], kind), hashes).tolist() == [0, 0xFF << 56]
    for wrong in ([256, 0], [0, -1]):
        with pytest.raises(UsageError, match="a vnode is from 0 to 255"):
            slots_of(np.array(wrong, np.int32), hashes)
    assert slots_of(np.zeros(0, np.uint8), np.zeros(0, np.int64)).size == 0


def test_reversing_twice_gives_the_vnode_back() -> None:
    assert REVERSED[REVERSED].tolist() == list(range(256))


@pytest.mark.parametrize("partitions", POWERS)
def test_the_owner_is_the_vnode_modulo_p_and_owns_one_slice(partitions: int) -> None:
    vnodes = np.arange(256, dtype=np.uint8)
    slots = np.sort(
        np.r_[slots_of(vnodes, np.zeros(256, np.int64)), slots_of(vnodes, ~np.zeros(256, np.int64))]
    )
    seen: list[int] = []
    for partition in range(partitions):
        within = SlotRange.of_partition(partition, partitions)
        mine = vnodes_of_slots(slots[within.slice_of(slots)])
        assert set(mine.tolist()) == set(range(partition, 256, partitions))
        assert len(mine) == 512 // partitions
        seen += mine.tolist()
    assert sorted(seen) == sorted([*range(256), *range(256)])
    for vnode in range(256):
        owner = SlotRange.of_partition(vnode % partitions, partitions)
        own = SlotRange.of_vnode(vnode)
        assert owner.cut(own) == own


@pytest.mark.parametrize("partitions", [0, -1, 3, 6, 255, 257, 512])
def test_only_powers_of_two_up_to_256_are_a_p(partitions: int) -> None:
    with pytest.raises(UsageError, match="power of two"):
        check_partitions(partitions)
    with pytest.raises(UsageError, match="power of two"):
        SlotRange.of_partition(0, partitions)


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_beyond_p_has_no_range(partition: int) -> None:
    with pytest.raises(UsageError, match="of 4"):
        SlotRange.of_partition(partition, 4)


def test_a_slice_has_its_first_and_last_slot_with_all_their_rows() -> None:
    slots = np.array([1, 5, 5, 5, 9, 9, 2**64 - 1, 2**64 - 1], np.uint64)
    assert SlotRange(5, 9).slice_of(slots) == slice(1, 6)
    assert SlotRange(6, 8).slice_of(slots) == slice(4, 4)
    assert EVERYTHING.slice_of(slots) == slice(0, 8)
    assert SlotRange(10).slice_of(slots) == slice(6, 8)


def test_ranges_meet_at_a_single_slot() -> None:
    low, high = SlotRange(0, 5), SlotRange(5, 9)
    assert low.meets(high)
    assert high.meets(low)
    assert low.cut(high) == SlotRange(5, 5)
    assert not SlotRange(0, 4).meets(high)
