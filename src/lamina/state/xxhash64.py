"""XXH64 as Spark's xxhash64() computes it, over many rows at once.

Byte strings follow the published function; an int or a long is hashed as a string of 4 or 8 bytes.
Hashes and seeds are uint64 arrays; every row has its own seed, the hash of the columns before.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamina.state.byte_rows import FEW_ROWS, longest_first, words_at

Hashes: TypeAlias = NDArray[np.uint64]
Octets: TypeAlias = NDArray[np.uint8]
Places: TypeAlias = NDArray[np.int64]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_P1_AND_P2: Final = np.uint64((int(_P1) + int(_P2)) & 0xFFFF_FFFF_FFFF_FFFF)
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF

STRIPE: Final = 32
"""Rows of at least so many bytes are read in stripes of four words, one for each lane."""


def hash_words(values: NDArray[Any], seeds: Hashes) -> Hashes:
    """Hash one word a row: uint32 as Spark's int, uint64 as its long."""
    hashes = seeds + _P5
    hashes += np.uint64(values.dtype.itemsize)
    if values.dtype == np.uint32:
        return _finish(_mix_int(hashes, values))
    return _finish(_mix_long(hashes, values))


def hash_bytes(data: Octets, starts: Places, lengths: Places, seeds: Hashes) -> Hashes:
    """Hash data[starts[i] : starts[i] + lengths[i]] for every row i."""
    hashes = seeds + _P5
    long_rows = np.flatnonzero(lengths >= STRIPE)
    if len(long_rows):
        rows = starts[long_rows], lengths[long_rows] // STRIPE, seeds[long_rows]
        hashes[long_rows] = _stripes(data, *rows)
    hashes += lengths.astype(np.uint64)
    _mix_rest(hashes, data, starts + (lengths & -STRIPE), lengths & (STRIPE - 1))
    return _finish(hashes)


def chain_words(values: NDArray[Any], seed: int) -> int:
    """Hash words one after another, each with the hash before it as its seed."""
    is_int = values.dtype == np.uint32
    mixed = values.astype(np.uint64) * _P1 if is_int else _round(np.uint64(0), values)
    turn, prime, extra = (23, _P2, _P3) if is_int else (27, _P1, _P4)
    first, factor, added = int(_P5) + values.dtype.itemsize, int(prime), int(extra)
    for word in mixed.tolist():
        seed = ((seed + first) & _MASK) ^ word
        seed = (((seed << turn) | (seed >> (64 - turn))) * factor + added) & _MASK
        seed = ((seed ^ (seed >> 33)) * 0xC2B2AE3D27D4EB4F) & _MASK
        seed = ((seed ^ (seed >> 29)) * 0x165667B19E3779F9) & _MASK
        seed ^= seed >> 32
    return seed


def _mix_rest(hashes: Hashes, data: Octets, places: Places, left: Places) -> None:
    """Mix what is left behind the stripes: up to three longs, one int, three bytes."""
    for word in range(3):
        rows = np.flatnonzero(left >= 8 * (word + 1))
        if len(rows):
            words = words_at(data, places[rows] + 8 * word, np.uint64)
            hashes[rows] = _mix_long(hashes[rows], words)
    rows = np.flatnonzero(left & 4)
    if len(rows):
        words = words_at(data, (places + (left & -8))[rows], np.uint32)
        hashes[rows] = _mix_int(hashes[rows], words)
    for behind in range(3):
        rows = np.flatnonzero((left & 3) > behind)
        if len(rows):
            octets = data[(places + (left & -4))[rows] + behind]
            hashes[rows] = _mix_byte(hashes[rows], octets)


def _stripes(data: Octets, starts: Places, counts: Places, seeds: Hashes) -> Hashes:
    """The four lanes over all stripes of each row, merged into one hash."""
    walk = longest_first(counts)
    begins, seeds = starts[walk.order], seeds[walk.order]
    lanes = np.stack([seeds + _P1_AND_P2, seeds + _P2, seeds, seeds - _P1])
    for stripe, active in enumerate(walk.actives):
        if active < FEW_ROWS:
            ends = begins + walk.counts * STRIPE
            for row in range(active):
                rest = data[begins[row] + stripe * STRIPE : ends[row]]
                lanes[:, row] = _lanes_of_one(lanes[:, row].tolist(), rest)
            break
        for lane in range(4):
            words = words_at(data, begins[:active] + (stripe * STRIPE + lane * 8), np.uint64)
            lanes[lane, :active] = _round(lanes[lane, :active], words)
    merged = np.empty_like(seeds)
    merged[walk.order] = _merged(lanes)
    return merged


def _lanes_of_one(lanes: list[int], octets: Octets) -> list[int]:
    """Run one long row through its lanes: only the chains themselves are left to Python."""
    products = np.frombuffer(octets.tobytes(), "<u8") * _P2
    prime = int(_P1)
    for lane in range(4):
        state = lanes[lane]
        for product in products[lane::4].tolist():
            state = (state + product) & _MASK
            state = (((state << 31) | (state >> 33)) * prime) & _MASK
        lanes[lane] = state
    return lanes


def _merged(lanes: Hashes) -> Hashes:
    hashes = _rotated(lanes[0], 1)
    for lane, bits in ((1, 7), (2, 12), (3, 18)):
        hashes += _rotated(lanes[lane], bits)
    for lane in lanes:
        hashes ^= _round(np.uint64(0), lane)
        hashes *= _P1
        hashes += _P4
    return hashes


def _round(lane: Hashes | np.uint64, words: Hashes) -> Hashes:
    mixed = words * _P2
    mixed += lane
    mixed = _rotated(mixed, 31)
    mixed *= _P1
    return mixed


def _mix_long(hashes: Hashes, words: Hashes) -> Hashes:
    hashes ^= _round(np.uint64(0), words)
    hashes = _rotated(hashes, 27)
    hashes *= _P1
    hashes += _P4
    return hashes


def _mix_int(hashes: Hashes, words: NDArray[np.uint32]) -> Hashes:
    hashes ^= words.astype(np.uint64) * _P1
    hashes = _rotated(hashes, 23)
    hashes *= _P2
    hashes += _P3
    return hashes


def _mix_byte(hashes: Hashes, octets: Octets) -> Hashes:
    hashes ^= octets.astype(np.uint64) * _P5
    hashes = _rotated(hashes, 11)
    hashes *= _P1
    return hashes


def _finish(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _rotated(words: Hashes, bits: int) -> Hashes:
    turned = words << np.uint64(bits)
    turned |= words >> np.uint64(64 - bits)
    return turned
