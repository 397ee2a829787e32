"""Everything that pages are made with: one of it for each `lamina ui`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.clock import Clock, new_writer_id
from lamina.console.jobs import Jobs
from lamina.console.reading.catalog import Catalog
from lamina.console.reading.epochs import Epochs
from lamina.console.reading.logs import Logs
from lamina.console.reading.look import Look, PipelineReader
from lamina.console.reading.states import States
from lamina.console.settings import Access
from lamina.console.subjects import Subject
from lamina.errors import NotFound


@dataclass(frozen=True, slots=True)
class Watched:
    """One pipeline and all that reads it."""

    subject: Subject
    reader: PipelineReader
    catalog: Catalog
    states: States
    logs: Logs
    epochs: Epochs

    def look(self) -> Look:
        return self.reader.look()


class Console:
    """The pipelines that are shown, by their keys."""

    def __init__(self, subjects: Sequence[Subject], access: Access, clock: Clock) -> None:
        self.access = access
        self.clock = clock
        self.jobs = Jobs(clock)
        self.form_token = new_writer_id(clock)
        """In every form of ours; no other site can read it."""
        self.pipelines: Mapping[str, Watched] = {
            each.key: _watched(each, clock) for each in subjects
        }

    def find(self, key: str) -> Watched:
        found = self.pipelines.get(key)
        if found is None:
            raise NotFound("this page shows no such pipeline", where=key[:80])
        return found

    def close(self) -> None:
        for each in self.pipelines.values():
            each.states.close()


def _watched(subject: Subject, clock: Clock) -> Watched:
    reader = PipelineReader(subject, clock)
    return Watched(
        subject, reader, Catalog(subject), States(subject), Logs(reader), Epochs(subject, clock)
    )
