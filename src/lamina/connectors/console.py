"""A terminal as a sink: the rows of each epoch as text, at least once.

A terminal cannot say what it has shown. So the sink keeps its position beside the pipeline, written
when the rows are out: killed in between, they are shown again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.connectors.kinds import DeclaredOption, OptionType, SinkContext, SinkKind
from lamina.connectors.positions import NotedPosition
from lamina.connectors.staged import open_proven
from lamina.engine.ports import Change, Positions, Publication
from lamina.format.pipeline_record import Owner
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner, judge_publish

WIDTH_MAX = 40


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Shows up to *rows_max* rows of an epoch on *out*, and says how many more there are."""

    name: str
    out: TextIO
    positions: Positions
    rows_max: int = 20

    @property
    def delivery(self) -> str:
        return CONSOLE.delivery

    @property
    def takes(self) -> frozenset[Change]:
        """Every version of a row is shown as it comes."""
        return frozenset({Change.APPEND, Change.UPSERT})

    def position(self) -> SinkPosition:
        return self.positions.load()

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        before = self.position()
        check_owner(before, pipeline)
        check_fence(before, generation)
        after = SinkPosition(pipeline or before.pipeline, generation, before.point)
        self.positions.save(after)
        return after

    def publish(self, publication: Publication) -> None:
        pipeline, generation = publication.pipeline, publication.generation
        verdict = judge_publish(
            self.position(), publication.point, pipeline=pipeline, generation=generation
        )
        if verdict is Publish.DONE:
            return
        if publication.files:
            self._show(publication)
        self.positions.save(SinkPosition(pipeline, generation, publication.point))

    def _show(self, publication: Publication) -> None:
        left, shown = self.rows_max, list[pa.Table]()
        for file in publication.files:
            with (
                typed_errors(publication.staged.where(file)),
                open_proven(publication, file) as opened,
            ):
                shown.append(pq.read_table(opened).slice(0, left))
            left -= shown[-1].num_rows
        total = publication.rows
        title = f"{self.name}, epoch {publication.point.epoch}: {total} rows"
        lines = [title, *text_rows(pa.concat_tables(shown))]
        if total > self.rows_max:
            lines.append(f"... and {total - self.rows_max} more")
        text = "\n".join([*lines, "", ""])
        known = self.out.encoding or "utf-8"
        with typed_errors(f"the output of {self.name}"):
            self.out.write(text.encode(known, "replace").decode(known))
            self.out.flush()


def text_rows(table: pa.Table) -> Iterable[str]:
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


def _open(context: SinkContext) -> ConsoleSink:
    name = context.sink.name
    positions = NotedPosition(context.notes, name)
    return ConsoleSink(name, context.out, positions, context.given.number("rows"))


CONSOLE = SinkKind(
    "console",
    "Text on standard output",
    open=_open,
    delivery="at least once: after a kill the last epoch may be shown again",
    options=(DeclaredOption("rows", "Rows shown of each epoch", OptionType.NUMBER, 20),),
)
