"""A terminal as a sink: the rows of each epoch as text, at least once.

A terminal cannot say what it has shown. So the sink keeps its position in a file of the pipeline's
home, written when the rows are out: killed in between, they are shown again.

<home>/sinks/<name>.json    the last epoch that was shown, and the generation that did
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.durable import make_folder, write
from lamina.connectors.staged import prove
from lamina.engine.ports import Publication
from lamina.errors import Corrupt, Fenced
from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.fields import Fields
from lamina.format.names import escape
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import SinkPosition, check_fence

FOLDER = "sinks"
WIDTH_MAX = 40


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Shows up to *rows_max* rows of an epoch on *out*, and says how many more there are."""

    name: str
    out: TextIO
    home: Path
    rows_max: int = 20

    @property
    def delivery(self) -> str:
        return "at least once: after a kill the last epoch may be shown again"

    @property
    def _memory(self) -> Path:
        return self.home.absolute() / FOLDER / f"{escape(self.name)}.json"

    def position(self) -> SinkPosition:
        path = self._memory
        with typed_errors(path):
            if not path.exists():
                return SinkPosition("", 0, None)
            data = path.read_bytes()
        fields = Fields(canonical.decode(data, str(path)), str(path), error=Corrupt)
        point = Point(fields.integer("epoch"), fields.text("commit_digest"))
        at = point if point.epoch else None
        return SinkPosition(fields.text("pipeline"), fields.integer("generation"), at)

    def fence(self, generation: int) -> SinkPosition:
        before = self.position()
        check_fence(before, generation)
        after = SinkPosition(before.pipeline, generation, before.point)
        self._remember(after)
        return after

    def publish(self, publication: Publication) -> None:
        if self.position().generation > publication.generation:
            raise Fenced(f"a newer process has claimed the sink {self.name!r}")
        if publication.files:
            self._show(publication)
        self._remember(
            SinkPosition(publication.pipeline, publication.generation, publication.point)
        )

    def _show(self, publication: Publication) -> None:
        left, shown = self.rows_max, list[pa.Table]()
        for file in publication.files:
            path = publication.home / file.path
            with typed_errors(path):
                prove(path, file, publication.home)
                shown.append(pq.read_table(path).slice(0, left))
            left -= shown[-1].num_rows
        total = sum(file.rows for file in publication.files)
        title = f"{self.name}, epoch {publication.point.epoch}: {total} rows"
        lines = [title, *_lines(pa.concat_tables(shown))]
        if total > self.rows_max:
            lines.append(f"... and {total - self.rows_max} more")
        text = "\n".join([*lines, "", ""])
        known = self.out.encoding or "utf-8"
        with typed_errors(f"the output of {self.name}"):
            self.out.write(text.encode(known, "replace").decode(known))
            self.out.flush()

    def _remember(self, position: SinkPosition) -> None:
        point = position.point or Point(0, "")
        value = canonical.encode(
            {
                "version": 1,
                "pipeline": position.pipeline,
                "generation": position.generation,
                "epoch": point.epoch,
                "commit_digest": point.digest,
            }
        )
        with typed_errors(self._memory):
            make_folder(self._memory.parent)
            write(self._memory, value)


def _lines(table: pa.Table) -> Iterable[str]:
    """Columns under their names, each as wide as its widest value."""
    columns = [[_text(_value(each)) for each in column] for column in table.columns]
    rows = [table.column_names, *map(list, zip(*columns, strict=True))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.column_names))]
    for row in rows:
        yield "  " + _row(row, widths)


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip()


def _value(scalar: pa.Scalar) -> object:
    """As Python has it; Spark's years go further than Python's."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        number = getattr(scalar, "value", None)
        return "out of Python's range" if number is None else f"{number} {scalar.type}"


def _text(value: object) -> str:
    """One line, nothing that moves a cursor, and not too long."""
    text = "NULL" if value is None else str(value)
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 3]}..."
