"""Runs as files: written block by block in bounded memory, read by mapping.

The file is an Arrow IPC stream that any Arrow library reads, then a footer (format/run_footer.py).
A file appears under its name when it is whole. It is not synced: whoever opens state after a crash
takes nothing from files of an earlier process that a digest does not prove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise
from os import getpid
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa

from lamina.errors import RunDamaged, UsageError
from lamina.format.run_footer import (
    END_OF_STREAM,
    TAIL_SIZE,
    Block,
    Footer,
    decode_footer,
    footer_size,
)
from lamina.os_errors import typed_errors
from lamina.state.run import Run, block_of, deletes_of_batch, slots_of_batch
from lamina.state.schema import StateSchema, floor_of_run, schema_of_run
from lamina.state.vnodes import vnodes_of_slots

BLOCK_ROWS = 128 * 1024
BLOCK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Epochs:
    first: int
    last: int


def write_run(
    path: Path,
    batches: Iterable[pa.RecordBatch],
    schema: StateSchema,
    *,
    epochs: Epochs,
    floor: int | None = None,
    compression: str | None = None,
) -> Footer:
    """Write sorted batches as one run file; it is there whole or not at all."""
    # Two processes may make one run, and forked ones have threads of the same number.
    temporary = path.with_name(f"{path.name}.{getpid()}.{get_ident()}.tmp")
    with typed_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                footer = _write(
                    file, batches, schema, epochs=epochs, floor=floor, compression=compression
                )
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return footer


def open_run(path: Path) -> Run:
    """Map a run file; its footer is proven now, each block when it is first touched."""
    where = str(path)
    with typed_errors(path):
        size = path.stat().st_size
        if not size:
            raise RunDamaged("the file is empty", where=where)
        data = pa.memory_map(where, "r").read_buffer()
    return replace(read_run(data, where), path=path)


def read_run(data: pa.Buffer, where: str) -> Run:
    """A run in the bytes of its file."""
    footer = footer_of(data, where)
    head = data[: footer.schema_size]
    if google_crc32c.value(head) != footer.schema_crc:
        raise RunDamaged("the schema does not match its checksum", where=where)
    arrow = pa.ipc.read_schema(head)
    schema = schema_of_run(arrow, where)
    return Run(
        name=where,
        schema=schema,
        floor=floor_of_run(arrow),
        first_epoch=footer.first_epoch,
        last_epoch=footer.last_epoch,
        rows=footer.rows,
        size=data.size,
        blocks=footer.blocks,
        compression=footer.compression,
        load=_loader(data, footer, arrow, where),
        deletes=footer.deletes,
    )


def with_compression(run: Run, path: Path, compression: str | None) -> Run:
    """The same rows in another file, with compressed buffers or, for looking keys up, without."""
    epochs = Epochs(run.first_epoch, run.last_epoch)
    write_run(
        path,
        run.slices(run.schema),
        run.schema,
        epochs=epochs,
        floor=run.floor,
        compression=compression,
    )
    return open_run(path)


def footer_of(data: pa.Buffer, where: str) -> Footer:
    """The footer of a run's bytes; RunDamaged if it is not one."""
    tail = data[max(0, data.size - TAIL_SIZE) :].to_pybytes()
    start = data.size - TAIL_SIZE - footer_size(tail, data.size, where)
    footer = decode_footer(data[start : data.size - TAIL_SIZE].to_pybytes(), tail, where)
    end = footer.blocks[-1].end if footer.blocks else footer.schema_size
    if end + len(END_OF_STREAM) != start or data[end:start].to_pybytes() != END_OF_STREAM:
        raise RunDamaged("the end of the stream is not where the footer says", where=where)
    return footer


def check_run(run: Run) -> None:
    """Read all of a run: every block's checksum, the order, the counts. For verification."""
    last, deletes = -1, 0
    for index, block in enumerate(run.blocks):
        batch = run.load(index)
        deletes += int(np.count_nonzero(deletes_of_batch(batch)))
        slots = slots_of_batch(batch)
        if int(slots[0]) < last or np.any(slots[1:] < slots[:-1]):
            raise RunDamaged(f"the rows of block {index} are not in order", where=run.name)
        if (batch.num_rows, int(slots[0]), int(slots[-1])) != (
            block.rows,
            block.first_slot,
            block.last_slot,
        ):
            raise RunDamaged(f"block {index} is not as the footer says", where=run.name)
        last = int(slots[-1])
    if run.deletes is not None and deletes != run.deletes:
        raise RunDamaged("there are not as many deletes as the footer says", where=run.name)


def _write(
    file: BinaryIO | BytesIO,
    batches: Iterable[pa.RecordBatch],
    schema: StateSchema,
    *,
    epochs: Epochs,
    floor: int | None,
    compression: str | None,
) -> Footer:
    arrow = schema.run_with(floor)
    out = _Counted(file, head_size=arrow.serialize().size)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    blocks = _Blocks(schema)
    with pa.ipc.new_stream(pa.PythonFile(out, "w"), arrow, options=options) as stream:
        for batch in _regrouped(batches):
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=arrow))
            blocks.add(batch, *out.taken())
    footer = Footer(
        first_epoch=epochs.first,
        last_epoch=epochs.last,
        rows=blocks.rows,
        deletes=blocks.deletes,
        schema_size=out.head_size,
        schema_crc=out.head_crc,
        blocks=tuple(blocks.listed),
        vnodes=blocks.by_vnode(),
        compression=compression,
    )
    file.write(footer.encode())
    return footer


class _Counted:
    """A file that Arrow writes to: what was written since the last look, and its checksum.

    The schema comes first, with the first block or at the end: it has a checksum of its own.
    """

    closed = False

    def __init__(self, file: BinaryIO | BytesIO, *, head_size: int) -> None:
        self._file = file
        self._start = self._position = self._crc = 0
        self.head_size = head_size
        self.head_crc = 0

    def write(self, part: bytes | pa.Buffer) -> int:
        self._file.write(part)
        self._crc = google_crc32c.extend(self._crc, part)
        self._position += len(part)
        if self._position == self.head_size:
            _, _, self.head_crc = self.taken()
        return len(part)

    def taken(self) -> tuple[int, int, int]:
        """Offset, size and checksum of what came since the last call."""
        start, crc = self._start, self._crc
        self._start, self._crc = self._position, 0
        return start, self._position - start, crc

    def flush(self) -> None:
        """The file is flushed when it is closed."""

    def close(self) -> None:
        """The footer still has to follow."""


class _Blocks:
    """What the footer will say, block by block; each is above the one before."""

    def __init__(self, schema: StateSchema) -> None:
        self._schema = schema
        self._vnodes: dict[int, int] = {}
        self.listed: list[Block] = []
        self.rows = self.deletes = 0

    def add(self, batch: pa.RecordBatch, offset: int, size: int, crc: int) -> None:
        slots = slots_of_batch(batch)
        last = self.listed[-1].last_slot if self.listed else 0
        if int(slots[0]) < last or np.any(slots[1:] < slots[:-1]):
            raise UsageError("the rows of a run are sorted by slot")
        self.listed.append(
            replace(block_of(batch, self._schema), offset=offset, size=size, crc=crc)
        )
        self.rows += batch.num_rows
        self.deletes += int(deletes_of_batch(batch).sum())
        vnodes = vnodes_of_slots(slots).astype(np.int16)
        edges = np.flatnonzero(np.diff(vnodes, prepend=-1, append=-1))
        for start, end in pairwise(edges.tolist()):
            vnode = int(vnodes[start])
            self._vnodes[vnode] = self._vnodes.get(vnode, 0) + end - start

    def by_vnode(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._vnodes.items())


def _regrouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in blocks of a good size: large ones are sliced, small ones joined."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        for part in _cut(batch):
            waiting.append(part)
            if _enough(waiting):
                yield _joined(waiting)
                waiting = []
    if waiting:
        yield _joined(waiting)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    width = max(1, batch.nbytes // batch.num_rows)
    rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // width))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _enough(waiting: list[pa.RecordBatch]) -> bool:
    rows = sum(batch.num_rows for batch in waiting)
    size = sum(batch.nbytes for batch in waiting)
    return bool(rows >= BLOCK_ROWS // 2 or size >= BLOCK_BYTES // 2)


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    return waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def _loader(
    data: pa.Buffer, footer: Footer, arrow: pa.Schema, where: str
) -> Callable[[int], pa.RecordBatch]:
    """Blocks by number; each is proven when it is first touched, and kept while it costs nothing.

    A block that is not compressed is a view of the map.
    """
    kept: dict[int, pa.RecordBatch] = {}

    def load(index: int) -> pa.RecordBatch:
        if index in kept:
            return kept[index]
        block = footer.blocks[index]
        message = data[block.offset : block.end]
        if google_crc32c.value(message) != block.crc:
            raise RunDamaged(
                f"block {index} (bytes {block.offset} to {block.end}) does not match its checksum",
                where=where,
            )
        batch = pa.ipc.read_record_batch(message, arrow)
        if batch.num_rows != block.rows:
            raise RunDamaged(f"block {index} is not as the footer says", where=where)
        if footer.compression is None:
            kept[index] = batch
        return batch

    return load
