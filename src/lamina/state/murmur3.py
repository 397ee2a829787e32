"""Murmur3_x86_32 as Spark's hash() computes it, over many rows at once.

Spark differs from the published function in one place: after the last whole word of a byte string
each byte left over is mixed as a word of its own, sign-extended.

Hashes and seeds are uint32 arrays; every row has its own seed, the hash of the columns before.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamina.state.byte_rows import FEW_ROWS, longest_first, words_at

Hashes: TypeAlias = NDArray[np.uint32]

_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_FIVE: Final = np.uint32(5)
_N: Final = np.uint32(0xE6546B64)
_F1: Final = np.uint32(0x85EBCA6B)
_F2: Final = np.uint32(0xC2B2AE35)
_MASK: Final = 0xFFFF_FFFF


def hash_words(values: NDArray[Any], seeds: Hashes) -> Hashes:
    """Hash one word a row: uint32 as Spark's int, uint64 as its long."""
    hashes = seeds.copy()
    if values.dtype == np.uint32:
        _mix(hashes, _scramble(values))
        return _finish(hashes, np.uint32(4))
    _mix(hashes, _scramble(values.astype(np.uint32)))
    _mix(hashes, _scramble((values >> np.uint64(32)).astype(np.uint32)))
    return _finish(hashes, np.uint32(8))


def hash_bytes(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seeds: Hashes,
) -> Hashes:
    """Hash data[starts[i] : starts[i] + lengths[i]] for every row i."""
    hashes = seeds.copy()
    _mix_whole_words(hashes, data, starts, lengths)
    tails, ends = lengths & 3, starts + lengths
    for behind in range(3):
        rows = np.flatnonzero(tails > behind)
        if len(rows):
            octets = data[(ends - tails)[rows] + behind]
            hashes[rows] = _mixed(hashes[rows], octets.view(np.int8).astype(np.int32))
    return _finish(hashes, lengths.astype(np.uint32))


def chain_words(values: NDArray[Any], seed: int) -> int:
    """Hash words one after another, each with the hash before it as its seed."""
    size = values.dtype.itemsize
    halves = _scramble(values.view(np.uint32)).reshape(len(values), size // 4)
    for words in halves.tolist():
        for word in words:
            seed ^= word
            seed = (((seed << 13) | (seed >> 19)) * 5 + 0xE6546B64) & _MASK
        seed ^= size
        seed = ((seed ^ (seed >> 16)) * 0x85EBCA6B) & _MASK
        seed = ((seed ^ (seed >> 13)) * 0xC2B2AE35) & _MASK
        seed ^= seed >> 16
    return seed


def _mix_whole_words(
    hashes: Hashes,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    walk = longest_first(lengths >> 2)
    begins, mixed = starts[walk.order], hashes[walk.order]
    for word, active in enumerate(walk.actives):
        if active < FEW_ROWS:
            ends = begins + walk.counts * 4
            for row in range(active):
                mixed[row] = _mix_one(int(mixed[row]), data[begins[row] + word * 4 : ends[row]])
            break
        words = words_at(data, begins[:active] + word * 4, np.uint32)
        _mix(mixed[:active], _scramble(words))
    hashes[walk.order] = mixed


def _mix_one(state: int, octets: NDArray[np.uint8]) -> int:
    """Mix one long row: only the chain itself is left to Python."""
    words = _scramble(np.frombuffer(octets.tobytes(), "<u4"))
    for word in words.tolist():
        state ^= word
        state = (((state << 13) | (state >> 19)) * 5 + 0xE6546B64) & _MASK
    return state


def _mixed(hashes: Hashes, values: NDArray[np.int32]) -> Hashes:
    _mix(hashes, _scramble(values.view(np.uint32)))
    return hashes


def _scramble(words: Hashes) -> Hashes:
    scrambled = words * _C1
    scrambled = _rotated(scrambled, 15)
    scrambled *= _C2
    return scrambled


def _mix(hashes: Hashes, scrambled: Hashes) -> None:
    hashes ^= scrambled
    turned = _rotated(hashes, 13)
    np.multiply(turned, _FIVE, out=hashes)
    hashes += _N


def _finish(hashes: Hashes, lengths: Hashes | np.uint32) -> Hashes:
    hashes ^= lengths
    hashes ^= hashes >> np.uint32(16)
    hashes *= _F1
    hashes ^= hashes >> np.uint32(13)
    hashes *= _F2
    hashes ^= hashes >> np.uint32(16)
    return hashes


def _rotated(words: Hashes, bits: int) -> Hashes:
    turned = words << np.uint32(bits)
    turned |= words >> np.uint32(32 - bits)
    return turned
