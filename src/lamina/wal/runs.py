"""The payload of a RUN: one Arrow batch with its schema, as an IPC stream."""

from __future__ import annotations

import pyarrow as pa

ENTRY_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), ("value", pa.binary())])
"""What put and delete write: a null value is a delete."""

_COPY_BYTES_MAX = 256 * 1024
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def serialize(batch: pa.RecordBatch) -> list[bytes | pa.Buffer]:
    """The parts of the stream, in order; a large batch's own buffers are among them, not copied."""
    if _is_small(batch) and all(map(_flat, batch.schema.types)):
        return [batch.schema.serialize(), batch.serialize(), _END_OF_STREAM]
    captured = _Capture()
    with pa.ipc.new_stream(pa.PythonFile(captured, "w"), batch.schema) as stream:
        stream.write_batch(batch)
    return captured.joined()


def _is_small(batch: pa.RecordBatch) -> bool:
    """By its buffers, which costs nothing to ask; only a slice is smaller than those."""
    small: bool = batch.get_total_buffer_size() <= _COPY_BYTES_MAX
    return small or bool(batch.nbytes <= _COPY_BYTES_MAX)


def _flat(kind: pa.DataType) -> bool:
    """Not a dictionary, and nothing that could have one inside: those are records of their own."""
    inside = kind.num_fields or isinstance(kind, pa.BaseExtensionType)
    return not inside and not pa.types.is_dictionary(kind)


class _Capture:
    """A file that keeps what it is given: Arrow hands its buffers over as they are."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes | pa.Buffer] = []

    def write(self, part: bytes | pa.Buffer) -> int:
        self._parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The parts are still wanted."""

    def joined(self) -> list[bytes | pa.Buffer]:
        """Neighbouring scraps of metadata and padding as one part."""
        parts: list[bytes | pa.Buffer] = []
        scraps: list[bytes] = []
        for part in self._parts:
            if isinstance(part, bytes):
                scraps.append(part)
                continue
            parts += [b"".join(scraps)] if scraps else []
            scraps.clear()
            parts.append(part)
        return [*parts, b"".join(scraps)] if scraps else parts
