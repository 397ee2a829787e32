"""A terminal as a sink: the rows of each epoch as text, at least once.

A terminal cannot say what it has shown. So the sink keeps its position beside the pipeline, written
when the rows are out: killed in between, they are shown again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from lamina.connectors.kinds import DeclaredOption, OptionType, SinkContext, SinkKind
from lamina.connectors.positions import NotedPosition
from lamina.engine.ports import Change, Positions, Publication
from lamina.format.pipeline_record import Owner
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner, judge_publish


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

    def close(self) -> None:
        """Nothing is held open."""

    def _show(self, publication: Publication) -> None:
        from lamina.connectors.console_rows import epoch_rows  # noqa: PLC0415  slow to import

        total = publication.rows
        title = f"{self.name}, epoch {publication.point.epoch}: {total} rows"
        lines = [title, *epoch_rows(publication, self.rows_max)]
        if total > self.rows_max:
            lines.append(f"... and {total - self.rows_max} more")
        text = "\n".join([*lines, "", ""])
        known = self.out.encoding or "utf-8"
        with typed_errors(f"the output of {self.name}"):
            self.out.write(text.encode(known, "replace").decode(known))
            self.out.flush()


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
