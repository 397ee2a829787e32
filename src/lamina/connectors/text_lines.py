"""Bytes into lines, as Spark cuts them: at \\n, \\r\\n and \\r, or at a separator of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

LINE_BYTES_MAX = 512 << 20
_MARK = b"\xef\xbb\xbf"


def lines_of(pieces: Iterable[bytes], separator: bytes = b"") -> Iterator[pa.Array]:
    """Lines, many at a time; none behind the last separator. ValueError if one is far too long.

    Bytes that are not UTF-8 stay as they are: what they mean is for the parser to say.
    """
    rest, is_first = b"", True
    for piece in pieces:
        data = rest + (piece.removeprefix(_MARK) if is_first else piece)
        is_first = False
        data, held = (data, b"") if separator else _with_new_lines(data)
        whole, cut, rest = data.rpartition(separator or b"\n")
        if cut:
            yield _split(whole, separator or b"\n")
        rest += held
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line is longer than {LINE_BYTES_MAX >> 20} MiB")
    if rest:
        yield _split(rest if separator else rest.removesuffix(b"\r"), separator or b"\n")


def _with_new_lines(data: bytes) -> tuple[bytes, bytes]:
    """\\n for every end of a line; a \\r at the end is held back: a \\n may follow."""
    if b"\r" not in data:
        return data, b""
    held = data[-1:] if data.endswith(b"\r") else b""
    body = data[:-1] if held else data
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), held


def _split(data: bytes, separator: bytes) -> pa.Array:
    whole = pa.array([data], pa.large_binary())
    split = pc.split_pattern(whole, pattern=separator.decode()).flatten()
    return split.cast(pa.binary()).view(pa.string())
