"""`lamina rewind`: a pipeline that does not run, and what would become of it, under its lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock, SystemClock
from lamina.connectors.opening import close_sinks, jars_of, open_sinks
from lamina.engine.plans import EnginePlan
from lamina.engine.ports import Sink
from lamina.engine.rewinding import Rewound, check_continues, rewind
from lamina.engine.surveying import OnSink, Survey, survey
from lamina.errors import NotFound, Refused
from lamina.format.pipeline_record import PipelineRecord
from lamina.front.places import PipelinePlace, require_spark
from lamina.front.run import Launch, check_named, session_for
from lamina.pipeline.digests import record_of_text
from lamina.pipeline.model import Pipeline
from lamina.protocol.identity import PartChange, changes, identify
from lamina.recovery.identity import find_owners
from lamina.running.control import read_status
from lamina.running.holder import find_holder
from lamina.store import open_store
from lamina.wal.home import Home
from lamina.workspace.base import Workspace
from lamina.workspace.local import LocalWorkspace


@dataclass(frozen=True, slots=True)
class Rewind:
    """A rewind that was looked at; the home is locked as long as it is open."""

    survey: Survey
    changes: tuple[PartChange, ...]  # what the pipeline was there, and is not today
    _home: Home
    _space: Workspace
    _checkpointer: Checkpointer
    _sinks: Mapping[str, Sink]
    _clock: Clock

    def run(self, choices: Mapping[str, OnSink]) -> Rewound:
        """Do it; *choices* are those of `choose`."""
        return rewind(
            self.survey,
            choices,
            space=self._space,
            checkpointer=self._checkpointer,
            sinks=self._sinks,
            clock=self._clock,
            lock=self._home.lock,
        )


@contextmanager
def open_rewind(
    place: PipelinePlace,
    to: str,
    *,
    take_over: bool = False,
    read_only: bool = False,
    reuse_state: frozenset[str] = frozenset(),
) -> Iterator[Rewind]:
    """Look where a pipeline stands and what a rewind would do; nothing is claimed yet.

    Refused if it is running, or if its file has changed so that a start could not go on from there:
    to know that, Spark is started. With *take_over* a person has said that it does not run on
    another machine any more, with *reuse_state* that the state of changed streams still counts.
    """
    pipeline, clock, file = place.read(), SystemClock(), str(place.file)
    streams = {stream.name for stream in pipeline.streams.values() if not stream.block_of}
    check_named("--reuse-state", "stream", reuse_state, streams)
    check_not_running(place)
    space = _workspace(place, clock, take_over=take_over)
    if not space.exists():
        raise NotFound(
            "there is no home here",
            where=space.where,
            advice="Has it ever run? `lamina run` creates its home; --home says where it is",
        )
    home = space.claim(clock)
    try:
        sinks = open_sinks(pipeline, place.folder, notes=space.notes, file=file)
        try:
            checkpointer = Checkpointer(
                open_store(place.store, writable=not read_only), clock=clock
            )
            today = record_of_text(pipeline, place.name, file=file)
            owners = find_owners(home, checkpointer, list(sinks.values()))
            identify(today, owners, same_pipeline=False)
            found = survey(home, checkpointer, sinks, to)
            changed = tuple(changes(_comparable(found.record), today))
            if found.record.hash != today.hash and not all(c.part == "sink" for c in changed):
                plan = _compiled(place, pipeline)
                check_continues(
                    found,
                    plan,
                    pipeline.sources,
                    space=space,
                    checkpointer=checkpointer,
                    reuse_state=reuse_state,
                )
            yield Rewind(found, changed, home, space, checkpointer, sinks, clock)
        finally:
            close_sinks(sinks)
    finally:
        space.discard()
        home.release()


def _compiled(place: PipelinePlace, pipeline: Pipeline) -> EnginePlan:
    """The pipeline of today, on the session that is there, or on one of its own."""
    require_spark("comparing a changed pipeline with the state to go back to")
    from pyspark.sql import SparkSession  # noqa: PLC0415  an extra

    from lamina.spark.running import plan_of  # noqa: PLC0415  an extra

    file = str(place.file)
    launch = Launch(place.scratch, SparkSession.getActiveSession())
    with session_for(launch, place.name, jars_of(pipeline, place.folder, file=file)) as spark:
        return plan_of(pipeline, spark=spark, name=place.name, folder=place.folder, file=file)


def check_not_running(place: PipelinePlace) -> None:
    """A courtesy: it is the lock of the home that decides."""
    holder = find_holder(place.home, read_status(place.home))
    if holder is not None:
        raise Refused(
            f"the pipeline is running (pid {holder.pid} on {holder.host})",
            where=str(place.home),
            advice=f"Stop it first: lamina stop {place.file}",
        )


def _workspace(place: PipelinePlace, clock: Clock, *, take_over: bool) -> Workspace:
    if not place.remote:
        return LocalWorkspace(place.home, clock)
    from lamina.workspace.remote import remote_workspace  # noqa: PLC0415  slow to import

    return remote_workspace(place.remote, place.home, clock, store=place.store, take_over=take_over)


def _comparable(record: PipelineRecord) -> PipelineRecord:
    """Without what a start adds for itself, of which no text says anything."""

    def kept(part: Mapping[str, str]) -> dict[str, str]:
        return {name: digest for name, digest in part.items() if digest}

    return replace(
        record,
        sources=kept(record.sources),
        streams=kept(record.streams),
        sinks=kept(record.sinks),
    )
