"""Rewinding a pipeline that does not run: a new epoch whose parent is an old one (R4).

    claim, recover    as a start does; then the sinks get what they lack
    prove             the state to go back to is read, before anything changes
    REWIND            in the store's log: from here on nobody deletes what it stands on
    COMMIT            THE decision: killed before it, the pipeline is on the line it was on
    publish           each sink gets the rewind: as an epoch without rows, or takes rows back
    save              a checkpoint of the rewind

Killed after the decision, the next start does the rest, as it does with any epoch. Nothing of this
needs the pipeline's SELECTs, so nothing needs Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.fetching import fetch, run_files
from lamina.checkpoint.saving import PipelineFacts, Saver
from lamina.clock import Clock
from lamina.disk.base import Lock
from lamina.engine.opening import Restored, open_states
from lamina.engine.plans import EnginePlan, EngineSettings, FailPoint
from lamina.engine.ports import Output, Sink, Truncating
from lamina.engine.publishing import Publisher
from lamina.engine.states import States
from lamina.engine.surveying import OnSink, Survey, check_nothing_missing
from lamina.errors import Refused, StoreError
from lamina.format.commit import CheckpointRecord, CommitRecord
from lamina.format.manifest_model import CheckpointManifest
from lamina.ids import CheckpointId
from lamina.os_errors import typed_errors
from lamina.protocol.identity import changes
from lamina.recovery.config import RecoveryConfig
from lamina.recovery.manager import Recovered, RecoveryManager
from lamina.recovery.operators import found_states
from lamina.recovery.rehearsal import look
from lamina.recovery.targets import find_target
from lamina.state.operator import OperatorState
from lamina.workspace.base import Workspace
from lamina.workspace.runs import ranges_of


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind has done; what is not done yet the next start does."""

    epoch: int  # its own number
    checkpoint: CheckpointId | None  # of it; None: not made
    behind: Mapping[str, str]  # sinks that have not got it, and why
    unsaved: str = ""  # why there is no checkpoint


def rewind(
    survey: Survey,
    choices: Mapping[str, OnSink],
    *,
    space: Workspace,
    checkpointer: Checkpointer,
    sinks: Mapping[str, Sink],
    clock: Clock,
    lock: Lock | None = None,
    fail_point: FailPoint = lambda _: None,
) -> Rewound:
    """Go back to what was surveyed. Refused, with nothing changed, if that is not so any more.

    *choices* says for each sink what becomes of what it has since; *lock* is the home's, of a
    caller who has it already and keeps it.
    """
    try:
        recovered = RecoveryManager(
            space,
            checkpointer,
            sinks=list(sinks.values()),
            pipeline=survey.record,
            config=RecoveryConfig(partitions=survey.partitions),
            clock=clock,
            lock=lock,
        ).run()
        try:
            return _Rewinding(
                survey=survey,
                choices=choices,
                recovered=recovered,
                space=space,
                checkpointer=checkpointer,
                sinks=sinks,
                publisher=_publisher(recovered, space, sinks, clock),
                fail_point=fail_point,
            ).run()
        finally:
            recovered.close()
            space.leave()
    finally:
        space.discard()


def check_continues(
    survey: Survey,
    plan: EnginePlan,
    sources: Collection[str],
    *,
    space: Workspace,
    checkpointer: Checkpointer,
    reuse_state: frozenset[str] = frozenset(),
) -> None:
    """Raise what a start would, if today's *plan* could not go on with the state of the target."""
    folder = space.run_files.path
    with typed_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    manifest = checkpointer.load_manifest(survey.target.checkpoint.id)
    files = fetch(checkpointer, run_files(manifest), folder)
    changed = changes(survey.record, plan.record(sources))
    state = Restored(manifest, files, survey.target.commits, space.ranges(), changed)
    settings = EngineSettings(partitions=survey.partitions, reuse_state=reuse_state)
    open_states(plan, {}, state, space, settings)


@dataclass(frozen=True, slots=True)
class _State:
    """What the pipeline goes back to, proven."""

    manifest: CheckpointManifest
    operators: Mapping[str, OperatorState]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewinding:
    """One rewind of a pipeline that is claimed and recovered."""

    survey: Survey
    choices: Mapping[str, OnSink]
    recovered: Recovered
    space: Workspace
    checkpointer: Checkpointer
    sinks: Mapping[str, Sink]
    publisher: Publisher
    fail_point: FailPoint

    def run(self) -> Rewound:
        self.fail_point("recovered")
        self._check_unchanged()
        self._drain()
        state = self._restore()
        epoch, target = self.recovered.state.next_epoch, self.survey.target
        self.fail_point("before REWIND")
        self.checkpointer.log.rewind(target.checkpoint.id, epoch=epoch)
        self.fail_point("after REWIND")
        commit = self._commit(epoch, state)
        self.recovered.driver.commit(commit)  # THE decision
        self.fail_point("after COMMIT")
        self._publish(commit)
        return self._saved(commit, state)

    # before the decision

    def _check_unchanged(self) -> None:
        """Another process may have come in between the look and the claim."""
        survey, head = self.survey, self.recovered.state.head
        if head is not None and head == survey.head:
            scan = look(self.recovered.home, self.checkpointer)
            if find_target(self.checkpointer, scan, head, survey.what) == survey.target:
                return
        raise Refused(
            "the pipeline has gone on since this rewind was planned",
            advice="Give the same command again, and look at what it says",
        )

    def _drain(self) -> None:
        """Every sink is to be where the pipeline is: what it has since the target is then known."""
        state = self.recovered.state
        known = {commit.digest: commit for commit in self.recovered.commits}
        for name, commits in state.plan.publish.items():
            for commit in commits:
                self.publisher.add(name, known[commit.point.digest])
        self.publisher.drive(now=True)
        self.publisher.check_drained()
        for name, sink in self.sinks.items():
            if isinstance(sink, Truncating) and self.choices.get(name) is not OnSink.TRUNCATE:
                check_nothing_missing(name, sink.beyond(self.survey.target.point))

    def _restore(self) -> _State:
        """Fetched and proven, as a start would."""
        target, space = self.survey.target, self.space
        manifest = self.checkpointer.load_manifest(target.checkpoint.id)
        files = fetch(self.checkpointer, run_files(manifest), space.run_files.path)
        wal = space.ranges()
        found = found_states(manifest, files, ranges_of(target.commits), wal)
        wal.sync(target.commits)
        states = States(space, self.survey.partitions)
        for name, each in found.items():
            states.keep_aside(name, each)
        return _State(manifest, states.operators)

    # the decision, and what follows

    def _commit(self, epoch: int, state: _State) -> CommitRecord:
        """State, offsets, watermarks and memories are the target's; no row is new."""
        target = self.survey.target
        at = target.commits[-1] if target.commits else state.manifest
        back = [name for name, choice in self.choices.items() if choice is OnSink.TRUNCATE]
        return CommitRecord(
            epoch=epoch,
            generation=self.recovered.driver.generation,
            parent=target.point,
            follows=self.recovered.driver.head,
            partitions=self.survey.partitions,
            source_offsets=at.source_offsets,
            table_offsets=at.table_offsets,
            watermark=at.watermark,
            source_watermarks=at.source_watermarks,
            sinks=tuple(sorted(self.sinks)),
            takes_back=dict.fromkeys(sorted(back), target.point),
        )

    def _publish(self, commit: CommitRecord) -> None:
        for name in self.sinks:
            self.publisher.add(name, commit)
        self.publisher.drive(now=True)
        self.fail_point("after publish")

    def _saved(self, commit: CommitRecord, state: _State) -> Rewound:
        """A checkpoint, if every sink has the rewind (decision 0014); the next start makes it."""
        behind = self.publisher.errors()
        if behind:
            return Rewound(commit.epoch, None, behind, "a sink has not got the rewind yet")
        facts = PipelineFacts(
            self.recovered.pipeline,
            state.manifest.settings,
            self.publisher.epochs(),
            self.publisher.statuses(),
        )
        saver = Saver(self.checkpointer, self.space.run_files)
        saving = saver.begin(commit, state.operators, base=state.manifest, pipeline=facts)
        try:
            entry = saving.wait().checkpoint.entry
        except StoreError as error:
            return Rewound(commit.epoch, None, {}, str(error))
        self.fail_point("before note")
        self.recovered.driver.note_checkpoint(
            CheckpointRecord(entry.id, entry.epoch, entry.manifest_sha256)
        )
        self.fail_point("after note")
        return Rewound(commit.epoch, entry.id, {})


def _publisher(
    recovered: Recovered, space: Workspace, sinks: Mapping[str, Sink], clock: Clock
) -> Publisher:
    """Sinks as recovery found them; the columns of their streams are not known."""
    assert recovered.pipeline is not None, "sinks are a pipeline's"
    return Publisher(
        sinks,
        pipeline=recovered.pipeline.owner,
        generation=recovered.driver.generation,
        staged=space.staged,
        outputs=dict.fromkeys(sinks, Output()),
        accepted=recovered.driver.sinks,
        clock=clock,
    )
