"""R3: the commit log as one history, and what may be written next.

An entry is judged against everything before it, by its writer before the create-only put and by
every reader again. So the order of the log decides all races: a PIN that comes after a FORGET of
the same checkpoint is against the rules, and the other way round.

*Lineage* is the last TAKEOVER, CHECKPOINT or REWIND. A checkpoint is begun after one of them and
may be committed only while that one is still the last: so one checkpoint is in flight at a time,
a fenced or abandoned attempt can never come back, and "in flight" needs no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from lamina.errors import (
    AlreadyExists,
    Fenced,
    LaminaError,
    LogDamaged,
    NotFound,
    Refused,
    StillNeeded,
)
from lamina.format.log import (
    STATE_EVERY,
    Begin,
    Body,
    Checkpoint,
    Committed,
    Entry,
    Forget,
    LogState,
    Pin,
    Rewind,
    Takeover,
    Unpin,
    kind_of,
)
from lamina.format.pipeline_record import PipelineRecord
from lamina.ids import CheckpointId

COPY_HOME = "copy:"
"""A home that starts like this is nobody's: the checkpoints were copied here from elsewhere."""

GC_HOME = "copy:gc"
"""While a gc of such a base deletes: a copy uses ids again, so the two must not meet."""


@dataclass(frozen=True)
class History:
    """What the log says up to and including entry *seq*; *digest* is that entry's."""

    seq: int = 0
    digest: str | None = None
    generation: int = 0
    home: str = ""
    home_since: int = 0  # first generation of that home since it last took over from another
    lineage_seq: int = 0
    lineage_kind: str = ""
    base: CheckpointId | None = None  # what the next checkpoint stands on; None: not known
    epoch_max: int = 0
    checkpoints: tuple[Committed, ...] = ()  # those that exist, in the order of the log
    pins: Mapping[str, CheckpointId] = field(default_factory=dict)
    pipeline: PipelineRecord | None = None  # as it was last started; None: nobody said
    tip: str | None = None  # the newest that counts, or empty; None: nobody said

    def find(self, id: CheckpointId) -> Committed | None:
        return self._by_id.get(id)

    @cached_property
    def _by_id(self) -> dict[CheckpointId, Committed]:
        return {committed.id: committed for committed in self.checkpoints}

    @cached_property
    def newest(self) -> Committed | None:
        """The newest of the line that counts: not one that a person gave up, or rewound from."""
        if self.tip is None:  # the log does not say
            return self.highest
        return self.find(CheckpointId.parse(self.tip)) if self.tip else None

    @cached_property
    def highest(self) -> Committed | None:
        """The checkpoint with the highest epoch of any line; the later entry of two equal ones."""
        return max(self.checkpoints, key=lambda c: (c.epoch, c.seq), default=None)

    def pinned(self, id: CheckpointId) -> tuple[str, ...]:
        return tuple(sorted(name for name, pinned in self.pins.items() if pinned == id))


EMPTY = History()


def follow(history: History, entry: Entry, digest: str, where: str) -> History:
    """The history with one more entry; LogDamaged if that entry cannot stand there."""
    if entry.seq != history.seq + 1:
        raise LogDamaged(f"entry {entry.seq} where {history.seq + 1} should be", where=where)
    if entry.previous != history.digest:
        raise LogDamaged(f"entry {entry.seq} does not follow its predecessor", where=where)
    try:
        judge(history, entry.body, entry.generation)
    except LaminaError as error:
        message = f"entry {entry.seq} is against the rules: {error.message}"
        raise LogDamaged(message, where=where) from error
    after = _effect(history, entry, digest)
    if due_for_state(entry.seq) != (entry.state is not None):
        must = "should" if entry.state is None else "should not"
        raise LogDamaged(f"entry {entry.seq} {must} carry the state of the log", where=where)
    if entry.state is None:
        return after
    # A release that did not know these two leaves them out: from there on nobody has said.
    if entry.state.pipeline is None:
        after = replace(after, pipeline=None)
    if entry.state.tip is None:
        after = replace(after, tip=None)
    if entry.state != state_of(after):
        raise LogDamaged(f"entry {entry.seq} carries a wrong state of the log", where=where)
    return after


def judge(history: History, body: Body, generation: int) -> None:
    """Say whether a writer of *generation* may write *body* next; raise why not."""
    match body:
        case Takeover():
            _judge_takeover(history, body, generation)
        case Checkpoint():
            _judge_owner(history, generation, body)
            _judge_checkpoint(history, body)
        case Rewind():
            _judge_owner(history, generation, body)
            _judge_rewind(history, body)
        case Pin(name, id):
            _judge_pin(history, name, id)
        case Unpin(name):
            if name not in history.pins:
                raise NotFound(f"no savepoint is called {name!r}")
        case Forget(ids):
            if not ids:
                raise Refused("a FORGET names at least one checkpoint")
            for id in ids:
                judge_forget(history, id)


def in_flight(history: History, begin: Begin) -> bool:
    """Whether an unfinished checkpoint may still be committed. Once False, False for ever."""
    return begin.after == history.lineage_seq and begin.generation == history.generation


def judge_forget(history: History, id: CheckpointId) -> None:
    """Raise why a checkpoint must stay: it is pinned, the newest, or stood upon (R11)."""
    if history.find(id) is None:
        raise NotFound(f"no checkpoint {id}")
    if names := history.pinned(id):
        raise StillNeeded(
            f"checkpoint {id} is the savepoint {', '.join(names)}",
            advice="Drop the savepoint first: lamina savepoint drop NAME",
        )
    highest = history.highest
    assert highest is not None
    if id == highest.id:
        raise StillNeeded(f"checkpoint {id} is the newest", advice="The newest is always kept")
    if id == history.base:
        raise StillNeeded(f"the pipeline continues from checkpoint {id}")
    if history.lineage_kind != "CHECKPOINT" and not history.home.startswith(COPY_HOME):
        # A REWIND, too: until its COMMIT is durable, recovery lands on the line it has left.
        has = "taken over" if history.lineage_kind == "TAKEOVER" else "begun a rewind"
        raise StillNeeded(
            f"generation {history.generation} has {has} and may be recovering from {id}",
            advice="Nothing can be forgotten until that process has made its next checkpoint",
        )


def due_for_state(seq: int) -> bool:
    return seq % STATE_EVERY == 0


def state_of(history: History) -> LogState:
    """The history as the value that every so-manieth entry carries."""
    return LogState(
        generation=history.generation,
        home=history.home,
        home_since=history.home_since,
        lineage_seq=history.lineage_seq,
        lineage_kind=history.lineage_kind,
        base=history.base,
        epoch_max=history.epoch_max,
        checkpoints=history.checkpoints,
        pins=tuple(sorted(history.pins.items())),
        pipeline=history.pipeline,
        tip=history.tip,
    )


def resume(entry: Entry, digest: str, where: str) -> History:
    """The history at an entry that carries its state, without reading what came before."""
    if entry.state is None:
        raise LogDamaged(f"entry {entry.seq} should carry the state of the log", where=where)
    state = entry.state
    return History(
        seq=entry.seq,
        digest=digest,
        generation=state.generation,
        home=state.home,
        home_since=state.home_since,
        lineage_seq=state.lineage_seq,
        lineage_kind=state.lineage_kind,
        base=state.base,
        epoch_max=state.epoch_max,
        checkpoints=state.checkpoints,
        pins=dict(state.pins),
        pipeline=state.pipeline,
        tip=state.tip,
    )


def preview(history: History, entry: Entry) -> History:
    """The history an entry would lead to, for the state it is going to carry."""
    return _effect(history, entry, "")


def _judge_owner(history: History, generation: int, body: Body) -> None:
    if generation < history.generation:
        raise Fenced(
            f"generation {history.generation} has taken over from generation {generation}: "
            f"no {kind_of(body)} of the older one is accepted"
        )
    if generation > history.generation:
        raise Refused(f"generation {generation} has not taken the pipeline over yet")


def _judge_takeover(history: History, body: Takeover, generation: int) -> None:
    if body.generation != generation:
        raise Refused(f"a TAKEOVER of generation {body.generation} written by {generation}")
    if generation <= history.generation:
        raise Fenced(f"generation {history.generation} has already taken over")
    if not body.home:
        raise Refused("a TAKEOVER names the home of the WAL")


def _judge_checkpoint(history: History, body: Checkpoint) -> None:
    if body.after != history.lineage_seq:
        raise Refused(
            f"checkpoint {body.id} was begun after log entry {body.after}, and entry "
            f"{history.lineage_seq} ({history.lineage_kind}) has come since"
        )
    if history.find(body.id) is not None:
        raise AlreadyExists(f"checkpoint {body.id} is already in the log")
    if history.lineage_kind == "REWIND" and body.epoch < history.epoch_max:
        raise Refused(
            f"epoch {body.epoch} of {body.id} is from before the rewind, which is epoch "
            f"{history.epoch_max}"
        )
    if body.parent is not None:
        if history.base is not None and body.parent != history.base:
            raise Refused(f"checkpoint {body.id} builds on {body.parent}, not on {history.base}")
        parent = history.find(body.parent)
        if parent is None:
            raise NotFound(f"the parent {body.parent} of checkpoint {body.id} does not exist")
        if body.epoch < parent.epoch:
            raise Refused(f"epoch {body.epoch} of {body.id} is below its parent's {parent.epoch}")


def _judge_rewind(history: History, body: Rewind) -> None:
    target = history.find(body.to)
    if target is None:
        raise NotFound(f"no checkpoint {body.to} to rewind to")
    if target.epoch != body.to_epoch:
        raise Refused(f"checkpoint {body.to} holds epoch {target.epoch}, not {body.to_epoch}")
    if body.epoch <= history.epoch_max:
        raise Refused(f"epoch {body.epoch} is not above {history.epoch_max}: epochs only rise")


def _judge_pin(history: History, name: str, id: CheckpointId) -> None:
    if history.find(id) is None:
        raise NotFound(f"no checkpoint {id} to pin", advice="It may have been deleted meanwhile")
    if name in history.pins:
        raise AlreadyExists(
            f"the savepoint {name!r} exists and is checkpoint {history.pins[name]}",
            advice="Choose another name, or drop that savepoint first",
        )
    if not name:
        raise Refused("a savepoint needs a name")


def _effect(history: History, entry: Entry, digest: str) -> History:
    at = replace(history, seq=entry.seq, digest=digest)
    match entry.body:
        case Takeover() as body:
            return _lineage(_taken_over(at, body), entry)
        case Checkpoint() as body:
            committed = Committed(entry.seq, entry.generation, body)
            at = replace(
                at,
                checkpoints=(*at.checkpoints, committed),
                base=body.id,
                epoch_max=max(at.epoch_max, body.epoch),
                # Copies come in any order: of those the highest epoch is the newest.
                tip=None if at.home.startswith(COPY_HOME) else str(body.id),
            )
            return _lineage(at, entry)
        case Rewind(epoch, to, _):
            epoch_max = max(at.epoch_max, epoch)
            return _lineage(replace(at, base=to, tip=str(to), epoch_max=epoch_max), entry)
        case Pin(name, id):
            return replace(at, pins={**at.pins, name: id})
        case Unpin(name):
            return replace(at, pins={n: id for n, id in at.pins.items() if n != name})
        case Forget(ids):
            kept = tuple(c for c in at.checkpoints if c.id not in ids)
            return replace(at, checkpoints=kept)


def _taken_over(history: History, body: Takeover) -> History:
    """A copy belongs to nobody; a release that names no pipeline has not changed which it is."""
    at = replace(history, generation=body.generation, home=body.home, base=None)
    at = replace(at, home_since=at.home_since if body.home == history.home else body.generation)
    if body.home.startswith(COPY_HOME):
        return replace(at, pipeline=None, tip=None)
    return replace(
        at,
        pipeline=body.pipeline or at.pipeline,
        tip=at.tip if body.tip is None else body.tip,
    )


def _lineage(history: History, entry: Entry) -> History:
    return replace(history, lineage_seq=entry.seq, lineage_kind=kind_of(entry.body))
