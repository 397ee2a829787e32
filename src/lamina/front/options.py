"""The options of `lamina.run` and of `lamina run`, and the settings they become."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TextIO, TypedDict

from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import UsageError
from lamina.front.defaults import PARTITIONS, REMOTE_INTERVAL_S
from lamina.front.places import PipelinePlace
from lamina.recovery import RecoveryConfig
from lamina.running.loop import Until
from lamina.running.observing import HOST, Watching
from lamina.running.settings import RunSettings
from lamina.state.vnodes import VNODE_COUNT


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `lamina.run`; each is an option of `lamina run` (docs/cli.md)."""

    partitions: int  # number of key partitions, a power of two; may change at any restart
    once: bool  # end after one epoch
    available_now: bool  # end when everything available has been read
    drain: bool  # the same, and close every window: nothing more is to come
    until_epoch: int | None  # end when this epoch is committed
    interval_s: float | None  # minimum time between epoch starts; default: 0, or REMOTE_INTERVAL_S
    max_rows: int | None  # of a source, in one epoch
    max_files: int | None
    max_ahead_s: float | None  # a row further ahead does not move the watermark
    checkpoint_epochs: int  # checkpoint every N epochs; 0 turns this trigger off
    checkpoint_interval_s: float | None  # checkpoint when the last one is this old
    lose_after: int | None  # give up every epoch after this one, for ever
    take_over_home: bool  # the home that owns the pipeline is lost
    take_over: bool  # of a home in an object store: the machine that had it is gone
    start_fresh: bool  # give up everything
    same_pipeline: bool  # it is the one that home, store and sinks belong to
    sinks_from_now: Collection[str]  # sinks that need not get the epochs they lack
    reuse_state: Collection[str]  # streams whose state still means the same
    drop_state: Collection[str]  # streams that are gone, and whose state may go
    skip_lost: Collection[str]  # sources that may go on behind rows that are gone
    metrics_port: int | None  # serve metrics and probes on this port; 0: any that is free
    metrics_host: str | None  # by this address of the machine; default: loopback
    events: str | os.PathLike[str] | TextIO | None  # a line of JSON for each epoch
    out: TextIO | None  # where console sinks write; default: standard output


def settings_of(place: PipelinePlace, file: str, options: RunOptions) -> RunSettings:
    """UsageError if an option is wrong, or contradicts another one."""
    unknown = sorted(set(options) - set(RunOptions.__annotations__))
    if unknown:
        raise UsageError(f"there is no option {unknown[0]!r}")
    _check(options)
    take_over = options.get("take_over", False)
    if take_over and not place.remote:
        raise UsageError(
            "--take-over is for a home in an object store, and this home is a folder",
            where=str(place.home),
            advice="If the home that owns the pipeline is lost, use --take-over-home",
        )
    if place.remote and "://" not in place.store:
        raise UsageError(
            "the home is in an object store, and the store is a folder of this machine",
            where=place.store,
            advice="Leave --store out: checkpoints are then kept below the home",
        )
    interval_s = options.get("interval_s")
    if interval_s is None:
        interval_s = REMOTE_INTERVAL_S if place.remote else 0.0
    looks_ahead = bool(place.remote) and not interval_s and not options.get("once")
    return RunSettings(
        home=place.home,
        store=place.store,
        remote=place.remote,
        take_over=take_over,
        name=place.name,
        folder=place.folder,
        file=file,
        until=_until(options),
        interval_s=interval_s,
        engine=replace(_engine(options), looks_ahead=looks_ahead),
        recovery=RecoveryConfig(
            lose_after=options.get("lose_after"),
            take_over_home=options.get("take_over_home", False),
            start_fresh=options.get("start_fresh", False),
            same_pipeline=options.get("same_pipeline", False),
            sinks_from_now=frozenset(options.get("sinks_from_now", ())),
        ),
        skip_lost=frozenset(options.get("skip_lost", ())),
        watching=_watching(options),
        out=options.get("out"),
    )


def _check(options: Mapping[str, Any]) -> None:
    partitions = options.get("partitions", PARTITIONS)
    if not 1 <= partitions <= VNODE_COUNT or partitions & (partitions - 1):
        limits = f"from 1 to {VNODE_COUNT}"
        raise UsageError(f"{partitions} partitions: the number must be a power of two {limits}")
    for name in ("interval_s", "max_ahead_s", "checkpoint_interval_s", "checkpoint_epochs"):
        if (options.get(name) or 0) < 0:
            raise UsageError(f"{name} is {options[name]}: it must not be negative")
    for name in ("max_rows", "max_files"):
        if (given := options.get(name)) is not None and given < 1:
            raise UsageError(f"{name} is {given}: it must be at least 1")
    if options.get("drain") and (options.get("once") or options.get("until_epoch") is not None):
        raise UsageError("--drain reads everything: it contradicts --once and --until-epoch")
    if options.get("start_fresh") and options.get("lose_after") is not None:
        raise UsageError("--start-fresh gives up everything: --lose-after has no meaning with it")


def _watching(options: RunOptions) -> Watching:
    port = options.get("metrics_port")
    if port is not None and not 0 <= port <= 65535:
        raise UsageError(f"metrics_port is {port}: it must be from 0 to 65535")
    host = options.get("metrics_host")
    if host is not None and port is None:
        raise UsageError(
            "metrics_host says where metrics are served, and no metrics_port is given",
            advice="Give --metrics-port, too (in Python: metrics_port=...)",
        )
    return Watching(port, host or HOST, options.get("events"))


def _until(options: RunOptions) -> Until:
    everything = options.get("available_now", False) or options.get("drain", False)
    return Until(options.get("once", False), everything, options.get("until_epoch"))


def _engine(options: RunOptions) -> EngineSettings:
    ahead_s = options.get("max_ahead_s")
    return EngineSettings(
        partitions=options.get("partitions", PARTITIONS),
        limits=Limits(options.get("max_rows"), options.get("max_files")),
        max_ahead_us=None if ahead_s is None else round(ahead_s * 1_000_000),
        checkpoint_epochs=options.get("checkpoint_epochs", EngineSettings().checkpoint_epochs),
        checkpoint_s=options.get("checkpoint_interval_s"),
        drain=options.get("drain", False),
        reuse_state=frozenset(options.get("reuse_state", ())),
        drop_state=frozenset(options.get("drop_state", ())),
    )
