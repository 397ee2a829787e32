"""A pipeline at a glance: what it does, how far it is, and whether anybody has to look. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lamina.console.reading.look import Look
from lamina.errors import Fenced, NotFound, StoreError, all_errors
from lamina.format.epoch_row import EpochRow
from lamina.running.control import Status

BEHIND_MAX = 10
UNSAVED_FACTOR = 5
UNSAVED_MIN = 200
_CODES = {kind.code: kind for kind in all_errors()}


class Health(StrEnum):
    """From good to bad; the words are classes of the style sheet."""

    GOOD = "good"
    IDLE = "idle"  # it ended as it should
    WARN = "warn"
    BAD = "bad"


_ORDER = list(Health)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know, and what to do."""

    health: Health
    text: str
    where: str = ""
    advice: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class SinkAt:
    name: str
    epoch: int
    behind: int
    rows_out: int | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    key: str
    name: str
    phase: (
        str  # running, waiting, held, starting, ended, failed, killed, elsewhere, stored, unknown
    )
    health: Health
    who: str
    epoch: int
    watermark: int | None
    lag_s: float | None
    saved_epoch: int
    unsaved: int
    checkpoint_id: str
    checkpoint_ms: int | None
    checkpoints: int
    state_bytes: int | None
    rows_per_s: int | None
    rows: int | None
    late: int | None
    sinks: tuple[SinkAt, ...]
    notices: tuple[Notice, ...]
    said_ms: int | None
    at_ms: int

    @property
    def is_running(self) -> bool:
        return self.phase in ("running", "waiting", "held", "starting", "in use")


def glance_of(look: Look, last: EpochRow | None = None) -> Glance:
    """What a look says, in the fields of a card; *last* is what the history knows best."""
    said, own = look.said, look.own_status
    newest = look.history.newest if look.history else None
    epoch = epoch_of(look)
    watermark = _watermark(look)
    notices = tuple(sorted(_notices(look, epoch), key=lambda n: -_ORDER.index(n.health)))
    phase = phase_of(look)
    worst = max((n.health for n in notices), key=_ORDER.index, default=Health.GOOD)
    is_over = phase in ("ended", "stored") and worst is Health.GOOD
    saved = max(newest.epoch if newest else 0, own.saved_epoch if own else 0)
    return Glance(
        key=look.subject.key,
        name=look.subject.name,
        phase=phase,
        health=Health.IDLE if is_over else worst,
        who=_who(look),
        epoch=epoch,
        watermark=watermark,
        lag_s=_lag(look, watermark, last),
        saved_epoch=saved,
        unsaved=max(epoch - saved, 0),
        checkpoint_id=str(newest.id) if newest else "",
        checkpoint_ms=newest.id.milliseconds if newest else None,
        checkpoints=len(look.history.checkpoints) if look.history else 0,
        state_bytes=newest.entry.total_size if newest else None,
        rows_per_s=own.rows_per_s if own else None,
        rows=said.rows if said else None,
        late=said.late if said else None,
        sinks=_sinks(look, epoch),
        notices=notices,
        said_ms=said.updated_ms if said else None,
        at_ms=look.at_ms,
    )


def phase_of(look: Look) -> str:
    """In one word: what a process does now, or how the last one ended."""
    own, said = look.own_status, look.said
    if look.holder is not None:
        return own.phase if own is not None else "in use"
    if look.had_by is not None and not look.had_by.has_ended:
        return "elsewhere"
    if said is not None:
        if said.is_over:
            return said.phase
        return "killed" if said.process.is_here else "elsewhere"
    if not look.subject.home:
        return "stored"
    return "unknown" if look.rehearsal is None else "not running"


def epoch_of(look: Look) -> int:
    """The last committed one that anything knows of."""
    head = look.rehearsal.state.head if look.rehearsal else None
    newest = look.history.newest if look.history else None
    own = look.own_status
    known = (head.epoch if head else 0, newest.epoch if newest else 0, own.epoch if own else 0)
    return max(known)


def _who(look: Look) -> str:
    if look.holder is not None:
        return f"pid {look.holder.pid} on {look.holder.host}"
    if look.had_by is not None:
        return f"on {look.had_by.host}"
    if look.said is not None and not look.said.process.is_here:
        return f"last seen on {look.said.host}"
    return ""


def _watermark(look: Look) -> int | None:
    own = look.own_status
    if own is not None and own.watermark is not None:
        return own.watermark
    return look.rehearsal.state.watermark if look.rehearsal else None


def _lag(look: Look, watermark: int | None, last: EpochRow | None) -> float | None:
    """How far the watermark is behind the clock: now, or when it was last heard of."""
    if watermark is None:
        return None
    if look.holder is not None:
        at_ms: int | None = look.at_ms
    elif last is not None:
        at_ms = last.time_ms
    else:
        at_ms = look.said.updated_ms if look.said else None
    return None if at_ms is None else max(at_ms / 1000 - watermark / 1e6, 0.0)


def _sinks(look: Look, epoch: int) -> tuple[SinkAt, ...]:
    said = look.said
    known = dict(said.sinks) if said else {}
    manifest = look.rehearsal.state.manifest if look.rehearsal else None
    if not known and manifest is not None:
        known = dict(manifest.sink_epochs)
    rows = said.rows_out if said else {}
    return tuple(
        SinkAt(name, at, max(epoch - at, 0), rows.get(name)) for name, at in sorted(known.items())
    )


def _notices(look: Look, epoch: int) -> Iterator[Notice]:
    for trouble in look.troubles:
        yield Notice(
            _health_of(trouble.code), trouble.message, trouble.where, trouble.advice, trouble.code
        )
    yield from _of_process(look, epoch)
    if look.rehearsal is None:
        return
    for skipped in look.rehearsal.state.plan.skipped:
        text = f"the checkpoint of epoch {skipped.epoch} is damaged: {skipped.why}"
        advice = "A start uses an older one; verify it, and restore its files from a copy"
        yield Notice(Health.BAD, text, str(skipped.id), advice)
    if look.rehearsal.takes_over_from is not None:
        text = f"another home owns this pipeline: {look.rehearsal.takes_over_from}"
        yield Notice(Health.WARN, text, look.subject.home)


def _of_process(look: Look, epoch: int) -> Iterator[Notice]:
    phase, said = phase_of(look), look.said
    if phase == "killed":
        advice = "Start it again: it continues where it was, and loses nothing"
        yield Notice(Health.WARN, "its process is gone without a word", advice=advice)
    if said is None:
        return
    if phase == "failed":
        yield Notice(Health.BAD, said.why or "it has failed", advice="Mend the cause, start again")
    if phase == "held":
        yield Notice(Health.WARN, f"held: {said.why}")
    elif phase in ("running", "waiting") and said.why:
        yield Notice(Health.WARN, said.why)
    if said.refused:
        yield Notice(Health.WARN, f"the last checkpoint that was asked for failed: {said.refused}")
    yield from _too_far_behind(look, epoch, said)


def _too_far_behind(look: Look, epoch: int, said: Status) -> Iterator[Notice]:
    for sink in _sinks(look, epoch):
        if sink.behind > BEHIND_MAX and look.holder is not None:
            yield Notice(Health.WARN, f"the sink {sink.name} is {sink.behind} epochs behind")
    newest = look.history.newest if look.history else None
    unsaved = epoch - max(newest.epoch if newest else 0, said.saved_epoch)
    if look.holder is not None and unsaved > UNSAVED_MIN * UNSAVED_FACTOR:
        yield Notice(Health.WARN, f"{unsaved} epochs since the last checkpoint")


def _health_of(code: str) -> Health:
    """What is damaged is bad; what merely is not there, or does not answer now, is a warning."""
    kind = _CODES.get(code)
    mild = kind is not None and issubclass(kind, (NotFound, Fenced, StoreError))
    return Health.WARN if mild else Health.BAD
