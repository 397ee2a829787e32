"""A terminal as a sink: the rows of each epoch as text, at least once.

A terminal cannot say what it has shown. So the sink keeps its position beside the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from lamina.connectors.kinds import DeclaredOption, OptionType, SinkContext, SinkKind
from lamina.connectors.positions import NotedPosition, NotedSink
from lamina.engine.ports import Change, Publication
from lamina.os_errors import typed_errors


@dataclass(frozen=True, slots=True)
class ConsoleSink(NotedSink):
    """Shows up to *rows_max* rows of an epoch on *out*, and says how many more there are."""

    out: TextIO
    rows_max: int = 20

    @property
    def delivery(self) -> str:
        return CONSOLE.delivery

    @property
    def takes(self) -> frozenset[Change]:
        """Every version of a row is shown as it comes, and so is every change."""
        return frozenset(Change)

    def deliver(self, publication: Publication) -> None:
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
    return ConsoleSink(name, positions, context.out, context.given.number("rows"))


CONSOLE = SinkKind(
    "console",
    "Text on standard output",
    open=_open,
    delivery="at least once: after a kill the last epoch may be shown again",
    options=(DeclaredOption("rows", "Rows shown of each epoch", OptionType.NUMBER, 20),),
)
