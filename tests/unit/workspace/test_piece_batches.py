"""A home that was started thousands of times has as many claims, and each start reads them."""

from __future__ import annotations

from lamina.workspace.remote.log import _READ_AT_ONCE, PIECE_BYTES_MAX, _batches


def test_small_pieces_are_read_many_at_once_and_large_ones_few() -> None:
    claims = [(n, 700) for n in range(1, 10_001)]
    batches = list(_batches(claims))
    assert [each for batch in batches for each in batch] == [n for n, _ in claims]
    assert len(batches) == -(-10_000 // _READ_AT_ONCE)
    large = list(_batches([(n, PIECE_BYTES_MAX) for n in range(1, 21)]))
    assert [len(batch) for batch in large] == [8, 8, 4]
    assert list(_batches([])) == []
    assert list(_batches([(1, 1 << 40)])) == [[1]]
