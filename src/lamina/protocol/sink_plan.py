"""What a start gives to one sink, or why it stops there. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from lamina.errors import Diverged, WouldLose
from lamina.format.commit import Point, SinkAhead
from lamina.protocol.driver import Commit, publish_line
from lamina.protocol.sinks import Due, due_of, is_ahead, seen_as


def plan_sink(
    name: str,
    at: Point | None,
    head: Point | None,
    commits: Mapping[str, Commit],
    *,
    accepted: SinkAhead | None,
    lose_after: int | None,
    from_now: bool,
) -> Due:
    """What a sink has not got yet; one that is ahead stops, or a person has accepted it."""
    due = due_of(at, head, commits, accepted)
    missed = [c for c in due.commits if not c.is_for(name)] if due is not None else []
    if due is not None and not missed:
        return due
    if at is not None and is_ahead(at, head) and lose_after is not None:
        return Due((), SinkAhead(at, head))
    if at is not None and is_ahead(seen_as(at, accepted), head):
        raise WouldLose(
            f"the sink {name!r} holds epoch {at.epoch}, which neither the driver log nor a "
            f"checkpoint has",
            advice="Recover in the home that wrote it. "
            + advise_giving_up(head.epoch if head else 0),
        )
    known = publish_line(head, commits)
    before = missed[-1].point if missed else known[-1].follows if known else head
    if head is not None and before is not None and (at is None or at.epoch < before.epoch):
        if from_now:
            return Due((), joins=True)
        raise Diverged(
            f"the sink {name!r} is at {_show(at)} and the pipeline at epoch {head.epoch}: the "
            f"output up to epoch {before.epoch} is not kept, so it cannot get that",
            advice="Is it new, or is what it held gone? If it is to get only what comes from now "
            f"on, start with --sink-from-now {shlex.quote(name)}",
        )
    last = known[-1].epoch if known else head.epoch if head else 0
    raise Diverged(
        f"the sink {name!r} is at {_show(at)}, which is not in the history of epoch "
        f"{head.epoch if head else 0} (known back to epoch {last})"
    )


def advise_giving_up(epoch: int) -> str:
    after = f" after {epoch}" if epoch else ""
    return (
        f"To give up every epoch{after} for ever, start with --lose-after {epoch} "
        f"(lose_after={epoch} in Python); `lamina recover --dry-run --lose-after {epoch}` shows "
        f"what that does"
    )


def _show(point: Point | None) -> str:
    return "its start" if point is None else f"epoch {point.epoch}"
