"""Which pipeline this is, decided before anything is claimed or fenced (decision 0018).

An id, made at the first start, is in the home, in the store's log and in every sink. A pipeline
file says nothing of it: so what the file defines is compared with what was last started here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lamina.errors import Refused
from lamina.format.pipeline_record import NOBODY, Owner, PipelineRecord
from lamina.ids import fold
from lamina.protocol.history import COPY_HOME, History

SAME = "--same-pipeline (same_pipeline=True in Python)"


@dataclass(frozen=True, slots=True)
class Belongings:
    """What a look has found of home, store and sinks; nothing was claimed for it."""

    home: Owner = NOBODY
    store: Owner = NOBODY
    sinks: Mapping[str, Owner] = field(default_factory=dict)
    record: PipelineRecord | None = None  # what was last started here; of old releases, what ran
    is_used: bool = False  # somebody has run here, perhaps before pipelines had ids
    is_copy: bool = False  # the store holds copies: whoever starts there is a pipeline of its own


@dataclass(frozen=True, slots=True)
class PartChange:
    """One source, stream or sink that is not what it was."""

    part: str
    name: str
    what: str  # "added", "removed" or "changed"

    def __str__(self) -> str:
        return f"{self.part} {self.name!r} {self.what}"


def identify(today: PipelineRecord, found: Belongings, *, same_pipeline: bool) -> str:
    """The id of this pipeline; empty if it is a new one. Refused if something is another's.

    With *same_pipeline* a person has said that it is the pipeline that home, store and sinks
    belong to. Two different ids are never one pipeline.
    """
    if found.home.id and found.store.id not in ("", found.home.id):
        raise Refused(
            f"the home belongs to the pipeline {found.home}, the store to {found.store}",
            advice="Name the home and the store of one pipeline: --home and --store",
        )
    known = found.home.id or ("" if found.is_copy else found.store.id)
    if not known and same_pipeline:
        known = _adopted(found)
    if not same_pipeline:
        _check_definition(today, found)
    _check_sinks(today, found, known, same_pipeline=same_pipeline)
    return known


def check_claim(history: History, home: str, *, other_home: bool) -> None:
    """R2: another home takes a pipeline over only by a person's flag."""
    owner = history.home
    if owner in ("", home) or owner.startswith(COPY_HOME) or other_home:
        return
    whose = f"the pipeline {history.pipeline.owner}" if history.pipeline else "a pipeline"
    raise Refused(
        f"the store belongs to {whose} whose WAL is in the home {owner}, not in {home}",
        advice="Start it there. If that home is lost for ever, --take-over-home (in Python "
        "take_over_home=True) gives up every epoch after the newest checkpoint",
    )


def check_no_pipeline(home: Owner, store: PipelineRecord | None) -> None:
    """State of `lamina.open` has no id: what belongs to a pipeline is not its to write."""
    owner = home or (NOBODY if store is None else store.owner)
    if owner:
        raise Refused(
            f"home and store belong to the pipeline {owner}",
            advice="`lamina run` continues it; lamina.snapshot and `lamina state` read its state",
        )


def check_still_ours(now: PipelineRecord | None, pipeline: PipelineRecord | None) -> None:
    """Asked again when TAKEOVER is written: another process may have been faster."""
    there = "" if now is None else now.owner.id
    if now is not None and there not in ("", "" if pipeline is None else pipeline.owner.id):
        raise Refused(
            f"meanwhile the pipeline {now.owner} has taken the store over",
            advice="Give each pipeline a store of its own",
        )


def changes(before: PipelineRecord, after: PipelineRecord) -> tuple[PartChange, ...]:
    """What has changed, for people. A name in another case is the same name.

    An old release wrote down neither definitions nor streams: of those only names are compared.
    """
    found = [*_changed("source", before.sources, after.sources)]
    if before.hash:
        found += _changed("stream", before.streams, after.streams)
    return (*found, *_changed("sink", before.sinks, after.sinks))


def _changed(
    part: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[PartChange]:
    old, new = ({fold(name): (name, d) for name, d in each.items()} for each in (before, after))
    for key in sorted({*old, *new}):
        if key not in old:
            yield PartChange(part, new[key][0], "added")
        elif key not in new:
            yield PartChange(part, old[key][0], "removed")
        elif old[key][1] and new[key][1] and old[key][1] != new[key][1]:
            yield PartChange(part, new[key][0], "changed")


def _adopted(found: Belongings) -> str:
    """A person says that it is the pipeline of these sinks, or of this copy."""
    ids = {owner.id: owner for owner in found.sinks.values() if owner.id}
    if len(ids) > 1:
        raise Refused(
            f"the sinks belong to different pipelines: {', '.join(sorted(map(str, ids.values())))}",
            advice="Give this pipeline only sinks that are its own",
        )
    return next(iter(ids), found.store.id)


def _check_definition(today: PipelineRecord, found: Belongings) -> None:
    """A pipeline may be renamed or changed from one start to the next, not both at once."""
    before = found.record
    if before is None or (before.hash and before.hash == today.hash):
        return
    if not _names(before) & _names(today):
        raise Refused(
            f"home and store belong to {_described(before)}; this pipeline has {_parts(today)}: "
            "nothing in common",
            advice="Give each pipeline a home and a store of its own (--home, --store, LAMINA_HOME "
            f"and LAMINA_STORE). If it is the same pipeline with everything renamed: {SAME}",
        )
    name = before.owner.name
    if name and name != today.owner.name and not found.is_copy:
        raise Refused(
            f"home and store belong to {_described(before)}; this one is called "
            f"{today.owner.name!r} and is not the same",
            advice="Give each pipeline a home and a store of its own (--home, --store, LAMINA_HOME "
            f"and LAMINA_STORE). If it was renamed and changed: {SAME}",
        )


def _check_sinks(
    today: PipelineRecord, found: Belongings, known: str, *, same_pipeline: bool
) -> None:
    names = {each.name for each in (found.home, found.store) if each.name} or {today.owner.name}
    for sink, owner in sorted(found.sinks.items()):
        if not owner or (owner.id and owner.id == known):
            continue
        if not owner.id and (same_pipeline or (found.is_used and owner.name in names)):
            continue  # of an old release, which knew pipelines by their names
        if known or found.is_used:
            advice = "Give the sink a place of its own, or empty the one it has"
        else:
            lost = "its home is" if found.is_copy else "its home and its store are"
            advice = (
                "This pipeline is new. Give the sink another place, or empty the one it has. If "
                f"this is that pipeline, and {lost} lost for ever: {SAME}"
                + ("" if found.is_copy else " with --start-fresh")
            )
        raise Refused(f"the sink {sink!r} belongs to the pipeline {owner}", advice=advice)


def _names(record: PipelineRecord) -> set[str]:
    return {fold(name) for name in (*record.sources, *record.sinks)}


def _described(record: PipelineRecord) -> str:
    who = f"the pipeline {record.owner}" if record.owner else "another pipeline"
    return f"{who} with {_parts(record)}"


def _parts(record: PipelineRecord) -> str:
    sources, sinks = (", ".join(sorted(each)) for each in (record.sources, record.sinks))
    return f"the sources {sources or '(none)'} and the sinks {sinks or '(none)'}"
