"""What a rewind would do, before it does anything: where to, and what each sink has since then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.engine.ports import Beyond, Sink, Truncating
from lamina.errors import NotFound, Refused, UsageError
from lamina.format.commit import CommitRecord, Point
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.ids import fold
from lamina.protocol.driver import publish_line
from lamina.recovery.identity import record_of
from lamina.recovery.rehearsal import look, plan_start
from lamina.recovery.scan import Scan
from lamina.recovery.targets import Target, find_target, known_commits
from lamina.wal.home import Home


class OnSink(Enum):
    """What becomes of the rows that a sink has since the place that a rewind goes back to."""

    KEEP = "keep"  # they stay, and come again
    TRUNCATE = "truncate"  # the sink shows again what it showed there


@dataclass(frozen=True, slots=True)
class SinkSurvey:
    """One sink: what it has since then, and what can be done about it."""

    name: str
    beyond: Beyond
    is_counted: bool  # no: it has at least that much, and the log does not know the rest
    can: tuple[OnSink, ...]
    lacks: int = 0  # epochs that it has still to get: it gets them before the rewind

    @property
    def has_more(self) -> bool:
        """Whether a person has to say what becomes of it."""
        found = self.beyond
        return not self.is_counted or bool(found.epochs or found.rows or found.missing)


@dataclass(frozen=True, slots=True)
class Survey:
    """A rewind as it would be now."""

    what: str  # as the person has called it
    head: Point
    target: Target
    sinks: tuple[SinkSurvey, ...]
    record: PipelineRecord  # what the pipeline was there, by the name it has today
    partitions: int


def survey(home: Home, checkpointer: Checkpointer, sinks: Mapping[str, Sink], what: str) -> Survey:
    """Look at home, store and sinks; nothing is claimed or changed."""
    scan = look(home, checkpointer, sinks.values())
    plan = plan_start(scan)
    if plan.head is None:
        raise NotFound("nothing is committed yet", where=home.disk.root)
    target = find_target(checkpointer, scan, plan.head, what)
    if target.point == plan.head:
        raise Refused(
            f"the pipeline is at epoch {plan.head.epoch}: there is nothing to rewind",
            advice="`lamina list` shows the checkpoints, `lamina wal list` the epochs of the log",
        )
    since, is_whole = _since(scan, plan.head, target.point)
    lacking = {name: len(commits) for name, commits in plan.publish.items()}
    last = scan.commits.get(plan.head.digest)
    return Survey(
        what,
        plan.head,
        target,
        tuple(
            _of_sink(sink, target.point, since, is_whole=is_whole, lacks=lacking.get(name, 0))
            for name, sink in sorted(sinks.items())
        ),
        _record(scan, checkpointer, target),
        last.partitions if last is not None else 1,
    )


def choose(
    found: Survey, default: OnSink | None, by_sink: Mapping[str, OnSink]
) -> dict[str, OnSink]:
    """What is done about each sink; Refused, with all that can be done, if somebody has to say."""
    known = {fold(sink.name): sink for sink in found.sinks}
    for name in by_sink:
        if fold(name) not in known:
            listed = ", ".join(sorted(sink.name for sink in found.sinks)) or "none"
            raise UsageError(f"the pipeline has no sink {name!r}", advice=f"It has {listed}")
    asked = {fold(name): choice for name, choice in by_sink.items()}
    chosen = {
        sink.name: asked.get(fold(sink.name), default) or OnSink.KEEP
        for sink in found.sinks
        if sink.has_more or fold(sink.name) in asked
    }
    undecided = [
        sink
        for sink in found.sinks
        if sink.has_more and default is None and fold(sink.name) not in asked
    ]
    if undecided:
        raise Refused(
            "say what becomes of what sinks have since then: " + "; ".join(map(_offer, undecided)),
            advice="--sinks truncate (or keep) for all, --sink NAME=truncate (or keep) for one",
        )
    for sink in found.sinks:
        if sink.name in chosen:
            _check(sink, chosen[sink.name])
    return {name: choice for name, choice in chosen.items() if known[fold(name)].has_more}


def _offer(sink: SinkSurvey) -> str:
    return f"{sink.name}: {' or '.join(choice.value for choice in sink.can)}"


def _check(sink: SinkSurvey, choice: OnSink) -> None:
    if choice in sink.can:
        return
    if choice is OnSink.TRUNCATE:
        raise Refused(
            f"the sink {sink.name!r} cannot take rows back",
            advice=f"Keep them, with --sink {sink.name}=keep: those since then come again. Delete "
            "them in the outside system if they must not be there twice",
        )
    check_nothing_missing(sink.name, sink.beyond)


def check_nothing_missing(sink: str, beyond: Beyond) -> None:
    """Refused if a sink that keeps what it has would lack rows of the place to go back to."""
    if beyond.missing:
        raise Refused(
            f"the sink {sink!r} has taken back {beyond.missing} epochs that were there at that "
            "place: they would be missing",
            advice=f"Let it show them again, with --sink {sink}=truncate",
        )


def _of_sink(
    sink: Sink, to: Point, since: tuple[CommitRecord, ...], *, is_whole: bool, lacks: int
) -> SinkSurvey:
    """A sink that can take rows back knows best what it has; of others the log has to do."""
    if isinstance(sink, Truncating):
        beyond = sink.beyond(to)
        waiting = _sum(sink.name, since[len(since) - lacks :]) if lacks else Beyond()
        beyond = replace(
            beyond,
            epochs=beyond.epochs + waiting.epochs,
            rows=beyond.rows + waiting.rows,
            bytes=beyond.bytes + waiting.bytes,
        )
        keeps = () if beyond.missing else (OnSink.KEEP,)
        return SinkSurvey(sink.name, beyond, True, (OnSink.TRUNCATE, *keeps), lacks)
    return SinkSurvey(sink.name, _sum(sink.name, since), is_whole, (OnSink.KEEP,), lacks)


def _sum(sink: str, commits: Iterable[CommitRecord]) -> Beyond:
    """The output of *commits* for one sink, as it was staged."""
    files = [
        (commit.epoch, file)
        for commit in commits
        for file in commit.staged
        if fold(file.sink) == fold(sink)
    ]
    return Beyond(
        len({epoch for epoch, _ in files}),
        sum(file.rows for _, file in files),
        sum(file.size for _, file in files),
    )


def _since(scan: Scan, head: Point, to: Point) -> tuple[tuple[CommitRecord, ...], bool]:
    """What sinks got after an epoch, oldest first, as far as it is known; whether that is all."""
    walked = publish_line(head, known_commits(scan))
    later = [commit for commit in walked if commit.epoch > to.epoch]
    before = later[-1].follows if later else head
    is_whole = before is None or before.epoch <= to.epoch
    return tuple(scan.commits[c.point.digest] for c in reversed(later)), is_whole


def _record(scan: Scan, checkpointer: Checkpointer, target: Target) -> PipelineRecord:
    """The definition that the state was made by: the next start compares itself with it."""
    manifest = checkpointer.load_manifest(target.checkpoint.id)
    found = record_of(scan.driver, manifest, target.commits)
    assert found is not None, "a checkpoint says at least its names"
    known = scan.found.history.pipeline
    name = known.owner.name if known is not None else found.owner.name
    return replace(found, owner=Owner(name=name))
