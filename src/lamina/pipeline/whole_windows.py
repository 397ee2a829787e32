"""Groups and window functions over closed windows: which have all rows that they need at once.

    SELECT *, rank() OVER (PARTITION BY starts ORDER BY n DESC) AS place
    FROM (SELECT window.start AS starts, k, count(*) AS n FROM t GROUP BY window(ts, '1 minute'), k)

A window closes in one epoch, on all partitions. So if PARTITION BY or GROUP BY has the window,
every row of a partition or group comes in that epoch, and nothing has to be kept: Spark computes it
of the epoch's rows. A row_number() could be kept as state, too (ranks.py), and so could a group:
they are only if EMIT ON UPDATE or EMIT CHANGES asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamina.pipeline.aggregates import REFUSED
from lamina.pipeline.blocks import calls_aggregate, calls_any, keeps_state
from lamina.pipeline.expressions import Words
from lamina.pipeline.keys import SESSIONS, is_window, read_keys
from lamina.pipeline.model import DeclaredSource, Emit, Stream
from lamina.pipeline.nesting import START, Origin, item_of, origins, plain_column, time_of
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.windows import is_cumulative


def with_whole_windows(
    streams: Mapping[str, Stream], sources: Mapping[str, DeclaredSource], *, file: str
) -> dict[str, Stream]:
    """Streams as they are, but those that are over whole windows say so."""
    found = _Windows(streams, sources, file)
    return {name: found.stream(name) for name in streams}


@dataclass(slots=True)
class _Windows:
    """A graph of streams (nesting.py), looked at from the sources on."""

    streams: Mapping[str, Stream]
    sources: Mapping[str, DeclaredSource]
    file: str
    _named: dict[str, str] = field(init=False)
    _known: dict[str, Stream] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._named = {name.lower(): name for name in (*self.sources, *self.streams)}

    def stream(self, name: str) -> Stream:
        if name not in self._known:
            stream = self._known[name] = self.streams[name]  # should it read itself
            self._known[name] = self._looked_at(stream)
        return self._known[name]

    def _looked_at(self, stream: Stream) -> Stream:
        if not self._may_be_whole(stream):
            return stream
        select = read_select(stream, self.file)
        if not select.overs and not keeps_state(select):
            return stream
        if stream.emit not in (Emit.ON_UPDATE, Emit.CHANGES) and self._is_whole(select):
            return replace(stream, whole=True, emit=None, top=None)
        if stream.block_of and stream.emit is None and keeps_state(select) and not select.distinct:
            emit = Emit.CHANGES if self._feeds_groups(stream) else Emit.ON_UPDATE
            return replace(stream, emit=emit)
        return stream

    def _may_be_whole(self, stream: Stream) -> bool:
        """A stream over sources alone is read when it is checked: errors come then."""
        text = stream.select.lower()
        if "over" in text or stream.block_of:
            return True
        others = (name.lower() for name in self.streams if name != stream.name)
        return "group" in text and (text.count("select") > 1 or any(n in text for n in others))

    def _feeds_groups(self, block: Stream) -> bool:
        """Whether something that keeps state reads it: then it has to know what is taken back."""
        for each in self.streams.values():
            if not block.block_of or block.block_of not in (each.name, each.block_of):
                continue  # nothing else knows its name
            select = read_select(each, self.file)
            if block.name in select.reads and self._takes_changes(each, select):
                return True
        return False

    def _takes_changes(self, reader: Stream, select: Select) -> bool:
        joins_streams = reader.join is not None and not reader.join.is_table
        return joins_streams or keeps_state(select) or self._feeds_groups(reader)

    def _is_whole(self, select: Select) -> bool:
        names = [self._named.get(each.lower()) for each in select.reads]
        if len(names) != 1 or names[0] is None or select.distinct:
            return False
        if select.keys:
            return self._has_whole_groups(select, names[0])
        if select.having or calls_aggregate(select):
            return False
        return all(
            any(self._is_window(select, names[0], words) for words in over.partition)
            for over in select.overs
        )

    def _has_whole_groups(self, select: Select, name: str) -> bool:
        """Whether GROUP BY has a closed window, and Spark knows all that is computed of a group.

        With ROLLUP and the like some groups would be of several windows.
        """
        keys = read_keys(select, ())
        if select.overs or select.grouping.sets or any(key.is_window for key in keys):
            return False
        if calls_any(select, (*select.own, *REFUSED)):
            return False
        return any(self._is_window(select, name, key.words) for key in keys)

    def _is_window(self, select: Select, name: str, words: Words) -> bool:
        """Whether an expression over *name* says which closed window a row is of."""
        path, part = _part(words)
        for column in {plain_column(select, words), plain_column(select, path)}:
            found = set(origins(self, name, column)) if column else set()
            starts = part == START and column == plain_column(select, path)
            if len(found) == 1 and all(self._closes(each, starts=starts) for each in found):
                return True
        return False

    def _closes(self, origin: Origin, *, starts: bool) -> bool:
        """Whether a column is the start or the end of a window, and comes out when it closes.

        *starts*: it is a window, of which the start is taken. That does not tell apart windows that
        cumulate.
        """
        name, column = origin.name, origin.column
        select = self.select(name)
        if select is None or self._known[name].emit is not Emit.ON_WINDOW_CLOSE:
            return False
        words = item_of(select, column) if column else None
        if words is None:
            return False
        windows = [key.words for key in read_keys(select, ()) if key.is_window]
        starts = starts or time_of(words) == START or _part(words)[1] == START
        if not windows or (starts and is_cumulative(windows[0])):
            return False
        return _is_part_of_window(words)

    # the graph

    def select(self, name: str) -> Select | None:
        return read_select(self.stream(name), self.file) if name in self.streams else None

    def inputs(self, name: str) -> Sequence[str]:
        select = self.select(name)
        assert select is not None
        return [self._named.get(each.lower(), each) for each in select.reads]

    def columns(self, name: str) -> Sequence[str]:
        source = self.sources.get(name)
        return [column.name.lower() for column in source.columns] if source else []


def _is_part_of_window(words: Words) -> bool:
    """Whether an item is the window, its start, its end or a microsecond less.

    Not of sessions: those that begin together end at different times.
    """
    if words[0].upper in SESSIONS:
        return False
    first, _ = _part(words)
    is_one = is_window(first) or [word.upper for word in first] == ["WINDOW"]
    return is_one or time_of(words) is not None


def _part(words: Words) -> tuple[Words, str]:
    """What stands before `.start` or `.end`, and which of them; nothing if it is neither."""
    if len(words) > 2 and words[-2].upper == "." and words[-1].upper in ("START", "END"):
        return words[:-2], words[-1].text.lower()
    return words, ""
