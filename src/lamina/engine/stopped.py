"""A checkpoint of a pipeline that does not run: recovered, saved as it is, and left again.

No row is read or computed, so neither Spark nor a compiled pipeline is needed: like state that is
kept aside, every operator is saved under the schema that its own runs have. It claims the pipeline
as a start does (R5), so a process that is still alive somewhere is fenced.

Sinks are asked where they stand, and not fenced: whoever has all epochs gets nothing from anybody.
A sink that lacks an epoch needs its stream's output, which only a run can give it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.saving import PipelineFacts, Saver
from lamina.clock import Clock
from lamina.engine.opening import with_files
from lamina.engine.states import States
from lamina.errors import Refused
from lamina.format.commit import CheckpointRecord
from lamina.format.log import Committed
from lamina.format.manifest_model import SinkCommitted
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.ids import fold
from lamina.protocol.recovery import Plan
from lamina.protocol.sinks import SinkPosition, check_fence, check_owner
from lamina.recovery.config import RecoveryConfig
from lamina.recovery.identity import record_of
from lamina.recovery.manager import Recovered, RecoveryManager
from lamina.recovery.operators import found_states
from lamina.recovery.rehearsal import look, plan_start
from lamina.recovery.scan import RecoverableSink
from lamina.wal.home import Home
from lamina.workspace.base import Workspace
from lamina.workspace.runs import ranges_of

ADVICE = "Start the pipeline once (`lamina run --once`), or name the newest checkpoint: `latest`"


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What a pipeline that does not run has committed, and the newest usable checkpoint lacks."""

    epoch: int  # the last that is committed; 0 before the first
    checkpoint: Committed | None
    epochs: int
    bytes: int  # of the log
    record: PipelineRecord | None
    partitions: int


def unsaved(home: Home, checkpointer: Checkpointer, sinks: Sequence[RecoverableSink]) -> Unsaved:
    """What a checkpoint made now would add. Refused if it cannot be made without a run.

    Reading only; *sinks* are all that the pipeline has.
    """
    scan = look(home, checkpointer, sinks)
    plan = plan_start(scan)
    replayed = tuple(scan.commits[commit.point.digest] for commit in plan.replay)
    if replayed:
        if plan.checkpoint is None:
            raise Refused(
                "the pipeline has never made a checkpoint, so nothing says which settings its "
                "results depend on",
                advice="Start it once (`lamina run --once`): it makes one when it ends",
            )
        _check_sinks(replayed[-1].sinks, sinks)
        _check_published(plan)
    manifest = None if plan.checkpoint is None else checkpointer.load_manifest(plan.checkpoint.id)
    return Unsaved(
        epoch=plan.head.epoch if plan.head else 0,
        checkpoint=plan.checkpoint,
        epochs=len(replayed),
        bytes=sum(place.size for commit in replayed for place in commit.ranges),
        record=record_of(scan.driver, manifest, replayed),
        partitions=replayed[-1].partitions if replayed else 1,
    )


def save_stopped(
    space: Workspace,
    checkpointer: Checkpointer,
    found: Unsaved,
    sinks: Sequence[RecoverableSink],
    *,
    clock: Clock,
) -> Committed | None:
    """Make the checkpoint of the last committed epoch, or find the one that has it already.

    Killed anywhere, the pipeline is as it was, or has one checkpoint more.
    """
    with ExitStack() as closing:
        closing.callback(space.discard)
        recovered = RecoveryManager(
            space,
            checkpointer,
            sinks=[_Asked(sink) for sink in sinks],
            pipeline=found.record,
            config=RecoveryConfig(partitions=found.partitions),
            clock=clock,
        ).run()
        closing.callback(space.leave)
        closing.callback(recovered.close)
        _check_published(recovered.state.plan)
        if not recovered.state.replayed:
            return recovered.state.plan.checkpoint
        return _save(recovered, space, checkpointer, sinks)


def _save(
    recovered: Recovered,
    space: Workspace,
    checkpointer: Checkpointer,
    sinks: Sequence[RecoverableSink],
) -> Committed:
    state = recovered.state
    last, base = state.replayed[-1], state.manifest
    assert base is not None, "`unsaved` has insisted on one"
    states = States(space, last.partitions)
    ranges = ranges_of(state.replayed)
    states.note_ranges(each.place for each in ranges)
    for name, found in found_states(base, state.files, ranges, state.wal).items():
        states.keep_aside(name, with_files(found, space.run_files))
    facts = PipelineFacts(
        recovered.pipeline,
        base.settings,
        sink_epochs={sink.name: last.epoch for sink in sinks},
        sink_statuses={sink.name: SinkCommitted() for sink in sinks},
    )
    saver = Saver(checkpointer, space.run_files)
    saved = saver.begin(last, dict(states.operators), base=base, pipeline=facts).wait()
    entry = saved.checkpoint.entry
    recovered.driver.note_checkpoint(CheckpointRecord(entry.id, entry.epoch, entry.manifest_sha256))
    return saved.checkpoint


@dataclass(frozen=True, slots=True)
class _Asked:
    """A sink that is only asked: it stays claimed by who has published last."""

    sink: RecoverableSink

    @property
    def name(self) -> str:
        return self.sink.name

    def position(self) -> SinkPosition:
        return self.sink.position()

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        found = self.sink.position()
        check_owner(found, pipeline)
        check_fence(found, generation)
        return found


def _check_sinks(known: Sequence[str], sinks: Sequence[RecoverableSink]) -> None:
    """Of a sink that the file no longer has, nobody can say whether it has everything."""
    names = {fold(sink.name) for sink in sinks}
    differ = sorted(names.symmetric_difference(map(fold, known)))
    if differ:
        raise Refused(
            f"the sinks have changed since the last epoch: {', '.join(differ)}", advice=ADVICE
        )


def _check_published(plan: Plan) -> None:
    behind: Mapping[str, int] = {name: len(due) for name, due in plan.publish.items() if due}
    if behind or plan.joins:
        listed = ", ".join(f"{name} lacks {count}" for name, count in sorted(behind.items()))
        raise Refused(
            "sinks have still to get epochs that are committed: "
            f"{listed or ', '.join(sorted(plan.joins))}",
            advice=ADVICE,
        )
