"""From a compiled pipeline to a running engine: claim, recover, open the state of every stream."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock, SystemClock
from lamina.disk.base import Lock
from lamina.engine.engine import Engine, EnginePlan, EngineSettings, FailPoint
from lamina.engine.left_waiting import with_waiting
from lamina.engine.plans import StreamPlan
from lamina.engine.ports import Change, Runner, Sink, Source, Table
from lamina.engine.publishing import check_taken
from lamina.engine.spelling import stored_name, with_stored_names
from lamina.engine.states import States
from lamina.errors import StateChanged
from lamina.format.commit import CommitRecord
from lamina.format.manifest_model import CheckpointManifest
from lamina.ids import fold
from lamina.os_errors import typed_errors
from lamina.pipeline.model import memory_name
from lamina.protocol.identity import PartChange
from lamina.protocol.retention import check_retain
from lamina.recovery.config import RecoveryConfig
from lamina.recovery.manager import Recovered, RecoveryManager
from lamina.recovery.operators import FoundState, found_states
from lamina.state.layers import PlacedRun
from lamina.state.local import RunFolder
from lamina.state.run_file import open_run
from lamina.store import Store
from lamina.workspace.base import Workspace
from lamina.workspace.ranges import RangeReader
from lamina.workspace.runs import ranges_of


def open_engine(
    plan: EnginePlan,
    *,
    space: Workspace,
    store: Store,
    runner: Runner,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    tables: Mapping[str, Table] | None = None,
    settings: EngineSettings | None = None,
    recovery: RecoveryConfig | None = None,
    clock: Clock | None = None,
    lock: Lock | None = None,
    fail_point: FailPoint = lambda _: None,
) -> Engine:
    """Claim the pipeline, recover it, and be ready for its next epoch.

    *lock* is the home's, of a caller who has it already and keeps it.
    """
    clock, settings = clock or SystemClock(), settings or EngineSettings()
    check_taken(sinks, plan.outputs)
    check_retain(settings.retain)
    config = replace(recovery or RecoveryConfig(), partitions=settings.partitions)
    checkpointer = Checkpointer(store, clock=clock)
    with ExitStack() as on_failure:
        on_failure.callback(space.discard)
        recovered = RecoveryManager(
            space,
            checkpointer,
            sinks=list(sinks.values()),
            pipeline=plan.record(sources),
            config=config,
            clock=clock,
            lock=lock,
        ).run()
        on_failure.callback(recovered.close)
        space.prepare(recovered.state.head.epoch if recovered.state.head else 0)
        plan, states = open_states(plan, sources, _restored(recovered), space, settings)
        engine = Engine(
            plan,
            runner=runner,
            sources=sources,
            sinks=sinks,
            recovered=recovered,
            checkpointer=checkpointer,
            states=states,
            space=space,
            clock=clock,
            settings=settings,
            tables=tables or {},
            fail_point=fail_point,
        )
        if settings.drop_state:
            engine.drop_state(settings.drop_state)
        on_failure.pop_all()
    return engine


@dataclass(frozen=True, slots=True)
class Restored:
    """A state of the pipeline, of now or of the past, as its parts."""

    manifest: CheckpointManifest | None
    files: Mapping[str, Path]  # where the artifacts of the checkpoint lie
    replayed: tuple[CommitRecord, ...]  # oldest first
    wal: RangeReader
    changes: tuple[PartChange, ...]  # what the pipeline was then, and is not today


def open_states(
    plan: EnginePlan,
    sources: Mapping[str, Source],
    state: Restored,
    space: Workspace,
    settings: EngineSettings,
) -> tuple[EnginePlan, States]:
    """Every stream's state as it was found; a stream that is gone keeps its state aside.

    Also the plan, in which state has the names that it is stored under.
    """
    ranges = ranges_of(state.replayed)
    found = found_states(state.manifest, state.files, ranges, state.wal)
    states = States(space, settings.partitions)
    states.note_ranges(each.place for each in ranges)
    operators = state.manifest.operators if state.manifest else {}
    if state.manifest is not None:
        _check_settings(state.manifest.settings, plan.settings)
    plan = with_waiting(with_stored_names(plan, found), found)
    added = (each for each in state.changes if each.what == "added")
    _check_begun(plan, {fold(each.name) for each in added if each.part in ("stream", "source")})
    reused = set(map(fold, settings.reuse_state))
    for stream in plan.streams:
        for name, operator in stream.operators.items():
            each = with_files(found.pop(name, FoundState()), space.run_files)
            states.open(
                name,
                operator,
                each,
                operators.get(name),
                reuse=fold(stream.block_of or stream.name) in reused,
            )
    for name, source in sources.items():
        if source.memory is not None:
            stored = stored_name(memory_name(name), found, "the memory")
            kept = found.pop(stored, FoundState())
            states.open_memory(name, source.memory, kept, name=stored)
    for name, each in found.items():
        states.keep_aside(name, each)
    return plan, states


def _restored(recovered: Recovered) -> Restored:
    found = recovered.state
    return Restored(found.manifest, found.files, found.replayed, found.wal, found.report.changes)


def _check_begun(plan: EnginePlan, added: Collection[str]) -> None:
    """A stream over changes has seen all of them, or it would take back what it never counted."""
    streams = {stream.name: stream for stream in plan.streams}
    for stream in plan.streams:
        takes_back = any(operator.takes_back for operator in stream.operators.values())
        if not takes_back or fold(stream.name) not in added:
            continue
        for read in _changing(stream, streams, plan.changing):
            if fold(read) not in added:
                raise StateChanged(
                    f"the stream {stream.name!r} begins now, and reads the changes of {read!r}, "
                    "which has rows already: it would take back what it has never counted",
                    advice=f"Give {read!r} a new name, too: then both begin with what comes now, "
                    "or with all rows of a table",
                )


def _changing(
    stream: StreamPlan, streams: Mapping[str, StreamPlan], sources: Collection[str]
) -> Iterator[str]:
    """The sources, and streams with state, whose changes it reads, through others or not."""
    yield from (name for name in stream.inputs if name in sources)
    for read in (streams[name] for name in stream.inputs if name in streams):
        if not read.operators:
            yield from _changing(read, streams, sources)
        elif read.output.change is Change.CHANGES:
            yield read.name


def _check_settings(stored: Mapping[str, str], today: Mapping[str, str]) -> None:
    """R9: what was computed by one rule is not gone on with by another."""
    changed = [name for name in stored if name in today and stored[name] != today[name]]
    if changed:
        listed = ", ".join(f"{n} was {stored[n]!r} and is {today[n]!r}" for n in sorted(changed))
        raise StateChanged(
            f"settings that results depend on have changed: {listed}",
            advice="Use the release of Lamina that made this state, or --start-fresh",
        )


def with_files(found: FoundState, folder: RunFolder) -> FoundState:
    """Runs that are inline in the manifest as files: tasks open files."""
    placed, stored = [], dict(found.stored)
    for each in found.placed:
        entry = stored.get(each.run.name)
        inline = entry.decode_inline() if entry is not None else None
        if entry is None or inline is None:
            placed.append(each)
            continue
        path = folder.path / f"inline-{entry.sha256}.run"
        if not path.exists():
            with typed_errors(path):
                path.write_bytes(inline)
        run = open_run(path)
        stored[run.name] = entry
        placed.append(PlacedRun(run, each.within))
    return FoundState(placed, stored)
