"""Bytes into lines: the same lines however the bytes are cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.connectors import text_lines
from lamina.connectors.text_lines import lines_of

PARTS = st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\xc3\xa9", b"\xff", b" ", b"|"]))


def lines(pieces: Iterator[bytes] | list[bytes], separator: bytes = b"") -> list[bytes]:
    found = lines_of(pieces, separator)
    return [line.as_buffer().to_pybytes() for batch in found for line in batch]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(at)]


@given(PARTS, st.lists(st.integers(0, 100)))
def test_lines_end_at_any_new_line(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    wanted = re.split(rb"\r\n|\r|\n", data)
    if wanted[-1] == b"":
        wanted.pop()
    assert lines(cut(data, places)) == wanted


@given(PARTS, st.lists(st.integers(0, 100)))
def test_a_separator_of_ones_own_is_the_only_one(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    wanted = data.split(b"|")
    if wanted[-1] == b"":
        wanted.pop()
    assert lines(cut(data, places), b"|") == wanted


def test_a_byte_order_mark_is_not_text() -> None:
    assert lines([b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb"]) == [b"a", b"\xef\xbb\xbfb"]


def test_a_line_without_an_end_is_refused_before_memory_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_lines, "LINE_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="longer than"):
        lines([b"x" * 8, b"x" * 8])
