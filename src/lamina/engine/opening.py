"""From a compiled pipeline to a running engine: claim, recover, open the state of every stream."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.disk import LocalDisk
from lamina.disk.base import Lock
from lamina.engine.engine import Engine, EnginePlan, EngineSettings, FailPoint
from lamina.engine.ports import Runner, Sink, Source
from lamina.engine.publishing import check_taken
from lamina.engine.spelling import stored_name, with_stored_names
from lamina.engine.staging import drop_undecided
from lamina.engine.states import States
from lamina.errors import StateChanged
from lamina.format.commit import CommitRecord
from lamina.format.home_names import STAGED, state_folder
from lamina.ids import fold
from lamina.os_errors import typed_errors
from lamina.pipeline.model import memory_name
from lamina.protocol.retention import check_retain
from lamina.recovery.manager import Recovered, RecoveryConfig, RecoveryManager
from lamina.recovery.operators import EpochRange, FoundState, found_states
from lamina.state.layers import PlacedRun
from lamina.state.local import RunFolder
from lamina.state.run_file import open_run
from lamina.store import Store
from lamina.wal.leftovers import drop_leftovers


def open_engine(
    plan: EnginePlan,
    *,
    home: Path,
    store: Store,
    runner: Runner,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    settings: EngineSettings | None = None,
    recovery: RecoveryConfig | None = None,
    clock: Clock | None = None,
    lock: Lock | None = None,
    fail_point: FailPoint = lambda _: None,
) -> Engine:
    """Claim the pipeline, recover it, and be ready for its next epoch.

    *lock* is the home's, of a caller who has it already and keeps it.
    """
    clock, settings, home = clock or SystemClock(), settings or EngineSettings(), home.absolute()
    check_taken(sinks, plan.outputs)
    check_retain(settings.retain)
    config = replace(recovery or RecoveryConfig(), partitions=settings.partitions)
    folder = RunFolder(home / state_folder(new_writer_id(clock)))
    disk, checkpointer = LocalDisk(home), Checkpointer(store, clock=clock)
    with ExitStack() as on_failure:
        on_failure.callback(shutil.rmtree, folder.path, ignore_errors=True)
        recovered = RecoveryManager(
            disk,
            checkpointer,
            scratch=folder.path,
            sinks=list(sinks.values()),
            pipeline=plan.record(sources),
            config=config,
            clock=clock,
            lock=lock,
        ).run()
        on_failure.callback(recovered.close)
        _prepare(folder.path)
        _sweep(home, recovered)
        disk.make_folder(STAGED)  # durable before a task of the first epoch writes into it
        plan, states = _open_states(plan, sources, recovered, folder, settings)
        engine = Engine(
            plan,
            runner=runner,
            sources=sources,
            sinks=sinks,
            recovered=recovered,
            checkpointer=checkpointer,
            states=states,
            folder=folder,
            home=home,
            clock=clock,
            settings=settings,
            fail_point=fail_point,
        )
        if settings.drop_state:
            engine.drop_state(settings.drop_state)
        on_failure.pop_all()
    return engine


def _open_states(
    plan: EnginePlan,
    sources: Mapping[str, Source],
    recovered: Recovered,
    folder: RunFolder,
    settings: EngineSettings,
) -> tuple[EnginePlan, States]:
    """Every stream's state as recovery found it; a stream that is gone keeps its state aside.

    Also the plan, in which state has the names that it is stored under.
    """
    state, disk = recovered.state, recovered.home.disk
    ranges = [each for commit in state.replayed for each in _ranges(commit)]
    found = found_states(state.manifest, state.files, ranges, disk)
    states = States(disk, settings.partitions)
    states.note_ranges(each.place for each in ranges)
    operators = state.manifest.operators if state.manifest else {}
    if state.manifest is not None:
        _check_settings(state.manifest.settings, plan.settings)
    plan = with_stored_names(plan, found)
    reused = set(map(fold, settings.reuse_state))
    for stream in plan.streams:
        for name, operator in stream.operators.items():
            each = _with_files(found.pop(name, FoundState()), folder)
            states.open(
                name,
                operator,
                each,
                operators.get(name),
                reuse=fold(stream.name) in reused,
            )
    for name, source in sources.items():
        if source.memory is not None:
            stored = stored_name(memory_name(name), found, "the memory")
            kept = found.pop(stored, FoundState())
            states.open_memory(name, source.memory, kept, name=stored)
    for name, each in found.items():
        states.keep_aside(name, each)
    return plan, states


def _check_settings(stored: Mapping[str, str], today: Mapping[str, str]) -> None:
    """R9: what was computed by one rule is not gone on with by another."""
    changed = [name for name in stored if name in today and stored[name] != today[name]]
    if changed:
        listed = ", ".join(f"{n} was {stored[n]!r} and is {today[n]!r}" for n in sorted(changed))
        raise StateChanged(
            f"settings that results depend on have changed: {listed}",
            advice="Go on with the release of Lamina that made this state, or start new state",
        )


def _ranges(commit: CommitRecord) -> list[EpochRange]:
    return [EpochRange(place, commit.epoch, commit.partitions) for place in commit.ranges]


def _with_files(found: FoundState, folder: RunFolder) -> FoundState:
    """Runs that lie inline in the manifest as files: tasks open files."""
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


def _sweep(home: Path, recovered: Recovered) -> None:
    """What starts before this one wrote and never decided: each would leave as much again."""
    head = recovered.state.head.epoch if recovered.state.head else 0
    drop_undecided(home, head)
    drop_leftovers(recovered.home, head)


def _prepare(own: Path) -> None:
    """A folder for run files, and none of processes that are gone: this one has the home's lock."""
    with typed_errors(own.parent):
        own.mkdir(parents=True, exist_ok=True)
        for folder in own.parent.iterdir():
            if folder != own:
                shutil.rmtree(folder)
