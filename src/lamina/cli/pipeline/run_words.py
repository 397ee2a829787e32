"""Recoveries, epochs and event times as people and scripts read them."""

from __future__ import annotations

from collections.abc import Iterator

from lamina.cli.support.shapes import Shape
from lamina.cli.support.words import counted, size, utc
from lamina.engine.planning import DRAINED
from lamina.engine.plans import EpochReport
from lamina.recovery import RecoveryReport
from lamina.running.control import Status

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def watermark(micros: int | None) -> str:
    if micros in DRAINED:
        return "the end"
    return "-" if micros is None else utc(micros // 1000)


def lag(micros: int | None, now_ms: int) -> str:
    """How far the watermark is behind the clock; for people."""
    if micros is None or micros in DRAINED:
        return "-"
    return duration((now_ms - micros // 1000) / 1000)


def duration(seconds: float) -> str:
    for unit, name in _UNITS:
        if abs(seconds) >= unit * 2:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.1f} s"


def recovery_lines(report: RecoveryReport) -> Iterator[str]:
    """One line, and more for what has changed or was not simply taken up again."""
    if not report.head_epoch and not report.given_up:
        yield "recovered: nothing yet, starting with epoch 1"
    else:
        start = (
            f"checkpoint of epoch {report.checkpoint_epoch}" if report.checkpoint else "no state"
        )
        yield (
            f"recovered: epoch {report.head_epoch} from {start} "
            f"({size(report.bytes_restored)}) and {counted(report.epochs_replayed, 'epoch')} of "
            f"the log ({size(report.bytes_replayed)}), in {report.seconds:.1f} s"
        )
    if report.changes:
        said = ", ".join(map(str, report.changes))
        yield f"the pipeline has changed since epoch {report.head_epoch}: {said}"
    aside = ", ".join(_aside(report))
    if aside:
        yield f"left aside: {aside}"


def _aside(report: RecoveryReport) -> Iterator[str]:
    if report.torn_bytes:
        yield f"{counted(report.torn_bytes, 'torn byte')}"
    for skipped in report.skipped:
        yield f"checkpoint {skipped.id} of epoch {skipped.epoch}: {skipped.why}"
    if report.given_up:
        yield f"{counted(len(report.given_up), 'epoch')} that a person gave up"
    if report.given_up_home is not None:
        yield f"whatever the home {report.given_up_home} had after epoch {report.head_epoch}"


def recovery_shape(report: RecoveryReport) -> Shape:
    return {
        "epoch": report.head_epoch,
        "checkpoint": report.checkpoint,
        "checkpoint_epoch": report.checkpoint_epoch,
        "epochs_replayed": report.epochs_replayed,
        "entries_replayed": report.entries_replayed,
        "entries_dropped": report.entries_dropped,
        "bytes_restored": report.bytes_restored,
        "bytes_replayed": report.bytes_replayed,
        "torn_bytes": report.torn_bytes,
        "skipped": [str(each.id) for each in report.skipped],
        "given_up": [each.epoch for each in report.given_up],
        "changes": [
            {"part": each.part, "name": each.name, "change": each.what} for each in report.changes
        ],
        "seconds": round(report.seconds, 3),
    }


def listed(status: Status) -> str:
    """clicks: 3 full listings, 130 requests"""
    return "; ".join(
        f"{name}: {counted(asked.get('full', 0), 'full listing')}, "
        f"{counted(asked.get('requests', 0), 'request')}"
        for name, asked in sorted(status.listings.items())
    )


def late_sides(status: Status) -> str:
    """paid.join: 3 left, 0 right; only joins that have late rows"""
    return "; ".join(
        f"{name}: {sides.get('left', 0)} left, {sides.get('right', 0)} right"
        for name, sides in sorted(status.late_sides.items())
        if any(sides.values())
    )


def epoch_shape(report: EpochReport, status: Status | None) -> Shape:
    return {
        "epoch": report.epoch,
        "rows": dict(report.rows),
        "rows_out": dict(report.rows_out),
        "late": report.late,
        "late_sides": {name: dict(sides) for name, sides in report.late_sides.items()},
        "without_time": report.without_time,
        "ahead": report.ahead,
        "gaps_us": dict(report.gaps_us),
        "keys": report.keys,
        "watermark": report.watermark,
        "sinks_behind": report.sinks_behind,
        "saved_epoch": status.saved_epoch if status else 0,
        "listings": {name: dict(each) for name, each in status.listings.items()} if status else {},
        "seconds": round(report.seconds, 3),
    }


def live_facts(status: Status, report: EpochReport | None, now_ms: int) -> dict[str, str]:
    """What a process says of itself, by name."""
    took = f" in {report.seconds:.2f} s" if report else ""
    facts = {
        "state": f"{status.phase} {status.why}".strip(),
        "epoch": f"{status.epoch}{took}",
        "rows": f"{status.rows} ({status.rows_per_s} rows/s, {status.late} late{_ahead(status)})",
        "watermark": f"{watermark(status.watermark)} (lag {lag(status.watermark, now_ms)})",
        "keys": f"about {status.keys} in state",
        "checkpoint": f"epoch {status.saved_epoch}" if status.saved_epoch else "-",
        "sinks": ", ".join(_sink(status, name) for name in status.sinks),
    }
    if status.listings:
        facts["listings"] = listed(status)
    return facts


def _sink(status: Status, name: str) -> str:
    return f"{name} at epoch {status.sinks[name]}, {counted(status.rows_out.get(name, 0), 'row')}"


def _ahead(status: Status) -> str:
    return f", {status.ahead} ahead" if status.ahead else ""
