"""Segments that can be walked as a whole, and cut: what is cut is kept."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.disk.base import Disk
from lamina.errors import Refused
from lamina.format.home_names import CoreSegment, core_folder, parse_cut, parse_segment
from lamina.format.wal import HEADER_SIZE
from lamina.wal.chain import SegmentChain
from lamina.wal.keep import keep_aside
from lamina.wal.reader import SegmentReader
from lamina.wal.scan import End, Tail, read_tail, segments_of
from lamina.wal.segment import SegmentWriter


class CuttableChain(SegmentChain):
    """The segments of a core whose log decides on its own."""

    def __init__(
        self,
        disk: Disk,
        core: int,
        *,
        home: bytes,
        generation: int | None,
        partitions: int,
        tag: str,
        segment_bytes: int,
        judge: bool,
        to_cut: bool,
    ) -> None:
        """With *judge* every segment is walked, and damage anywhere stops; else only the ends are.

        With *to_cut* the newest segment is opened however it ends: `truncate` comes next. Without
        a *generation* the newest one continues.
        """
        self._judge = judge
        self._to_cut = to_cut
        self._newest_generation = generation is None
        self.tails: tuple[Tail, ...] = ()
        super().__init__(
            disk,
            core,
            home=home,
            generation=generation or 1,
            partitions=partitions,
            tag=tag,
            segment_bytes=segment_bytes,
        )

    @property
    def cut_sequence(self) -> int:
        """Every entry that was ever cut off has a lower number."""
        folder = core_folder(self._core)
        cuts = (parse_cut(f"{folder}/{name}") for name in self._disk.list(folder))
        return max((cut.sequence or 0 for cut in cuts if cut is not None), default=0)

    def truncate(self, position: int, sequence: int) -> str | None:
        """Cut the open segment at a record boundary; returns where the cut bytes are kept.

        Their name has *sequence*, the next number: what was cut off used those below it.
        """
        self._open.sync()
        self._check_boundary(position)
        if position == self.position:
            return None
        kept = keep_aside(
            self._disk, self.path, position, self.position - position, sequence=sequence
        )
        self._open.truncate(position)
        self._disk.sync_folder(core_folder(self._core))
        return kept

    def read_tails(self) -> tuple[Tail, ...]:
        """Every segment, walked; damage is raised."""
        paths = segments_of(self._disk, self._core)
        return tuple(read_tail(self._disk, path, self._home) for path in paths)

    def _read_ends(self) -> Sequence[End]:
        if self._newest_generation:
            names = map(parse_segment, segments_of(self._disk, self._core))
            found = [name.generation for name in names if isinstance(name, CoreSegment)]
            self.generation = max(found, default=1)
        self.tails = self.read_tails() if self._judge else ()
        return self.tails if self._judge else super()._read_ends()

    def _continue(self) -> SegmentWriter | None:
        return self._open_to_cut() if self._to_cut else super()._continue()

    def _open_to_cut(self) -> SegmentWriter | None:
        newest = self._newest_shared()
        if self._lock is None:
            raise Refused(f"another process has the lock of core {self._core}: only it cuts here")
        if newest is None:
            return None
        segment = self._reopen(newest) if self._is_ours(newest) else None
        if segment is None:
            raise Refused(
                f"the newest segment is not one of generation {self.generation} with P = "
                f"{self._partitions}: nobody else goes on in it",
                where=newest.path,
            )
        return segment

    def _check_boundary(self, position: int) -> None:
        if position > self.position:
            raise Refused(f"position {position} is beyond the end, {self.position}")
        reader = SegmentReader(self._disk, self.path)
        ends = {HEADER_SIZE, *(record.end for record in reader.records(payloads=False))}
        last = read_tail(self._disk, self.path, self._home, judge=False).end.end
        if position not in ends or position > last:
            raise Refused(f"no record begins at position {position} of {self.path}")
