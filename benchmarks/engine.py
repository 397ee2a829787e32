"""How fast pipelines run on Spark, as ratios to Structured Streaming and to the bare Spark job.

python benchmarks/engine.py            the numbers of docs/benchmarks.md
python benchmarks/engine.py --quick    the same shape with smaller sizes
python benchmarks/engine.py --json     the last line of stdout is one JSON object
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles

from engine_contenders import NATIVE, Contender, Limit, Native, Ours, close_all
from engine_input import Files
from engine_profile import JOB, Profile
from engine_session import BOTH_CORES, configured, say, session
from pyspark.sql import SparkSession
from report import Number, run

Seconds = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Scale:
    keys: int
    rows: int  # of an epoch
    rounds: int
    small_keys: int
    small_rows: int
    small_rounds: int
    many_keys: int  # of the growing state
    few_keys: int
    growth_rounds: int
    fill: int  # keys that one epoch fills in
    warm: int  # epochs that do not count
    memory: str  # of the JVM


SCALES = {
    "full": Scale(
        keys=1_000_000,
        rows=500_000,
        rounds=18,
        small_keys=10_000,
        small_rows=100,
        small_rounds=100,
        many_keys=10_000_000,
        few_keys=100_000,
        growth_rounds=18,
        fill=2_000_000,
        warm=4,
        memory="6g",
    ),
    "quick": Scale(
        keys=1_000_000,
        rows=500_000,
        rounds=8,
        small_keys=10_000,
        small_rows=100,
        small_rounds=40,
        many_keys=2_000_000,
        few_keys=50_000,
        growth_rounds=12,
        fill=1_000_000,
        warm=4,
        memory="6g",
    ),
    "tiny": Scale(
        keys=2_000,
        rows=1_000,
        rounds=1,
        small_keys=500,
        small_rows=20,
        small_rounds=1,
        many_keys=5_000,
        few_keys=500,
        growth_rounds=1,
        fill=5_000,
        warm=0,
        memory="1g",
    ),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(scale: Scale, folder: Path) -> Iterator[Number]:
    files = Files(folder / "input")
    with session(folder / "spark", scale.memory) as spark:
        with configured(spark, BOTH_CORES):
            yield from _aggregation(scale, spark, files, folder / "aggregation")
        yield from _small(scale, spark, files, folder / "small")
        with configured(spark, BOTH_CORES):
            yield from _growth(scale, spark, files, folder / "growth")


# the aggregation


def _aggregation(scale: Scale, spark: SparkSession, files: Files, folder: Path) -> Iterator[Number]:
    """Sum and count by key: every key has state before the first epoch that counts."""
    ours = Ours(spark, folder / "lamina")
    contenders: dict[str, Contender] = {"lamina": ours}
    for name, conf in NATIVE.items():
        contenders[name] = Native(spark, folder / name, conf)
    for plan in ("partials", "rows"):
        contenders[f"limit_{plan}"] = Limit(ours, folder / f"limit-{plan}", of_rows=plan == "rows")
    say(f"aggregation: {scale.keys} keys into {', '.join(contenders)}")
    warm = _filling(files, scale.keys, scale.fill)
    warm += [files.uniform(scale.rows, scale.keys) for _ in range(scale.warm)]
    timed = [files.uniform(scale.rows, scale.keys) for _ in range(scale.rounds)]
    seconds, profile = _in_turns(contenders, warm, timed, Profile(ours))
    _check_and_close(contenders)
    told = ", ".join(f"{name} {_ms(each)}" for name, each in seconds.items())
    middle = {name: median(each) for name, each in seconds.items()}
    rocksdb = _faster(middle, "rocksdb_filecontext", "rocksdb_filesystem")
    default = _faster(middle, "default_filecontext", "default_filesystem")
    limit = _faster(middle, "limit_partials", "limit_rows")
    yield _ratio("agg_vs_rocksdb", seconds, rocksdb, "lamina", at_least=6)
    yield _ratio("agg_vs_default", seconds, default, "lamina", at_least=2.5)
    yield _ratio("agg_vs_limit", seconds, limit, "lamina", at_least=0.85)
    for name in NATIVE:
        yield _ratio(f"agg_vs_{name}", seconds, name, "lamina")
    details = f"median (mean) of an epoch of {scale.rows} rows: {told}"
    yield Number("agg_epoch_ms", middle["lamina"] * 1000, details)
    yield Number("agg_job_ms", profile.median_ms()["job"], f"medians: {profile.describe()}")
    yield from _parts("agg", profile)


def _parts(what: str, profile: Profile) -> Iterator[Number]:
    """For the picture: where the milliseconds of an epoch go, in the order in which they pass."""
    for part, ms in profile.median_ms().items():
        if part != JOB:
            yield Number(f"{what}_part_{part}_ms", ms, "of the driver")
    for part, ms in profile.job_ms().items():
        yield Number(f"{what}_part_{part}_ms", ms, "of the job, in its slowest task")


# small epochs


def _small(scale: Scale, spark: SparkSession, files: Files, folder: Path) -> Iterator[Number]:
    """A few rows an epoch: what an epoch costs however little there is to do."""
    ours = Ours(spark, folder / "lamina")
    contenders: dict[str, Contender] = {"lamina": ours}
    for name, conf in NATIVE.items():
        contenders[name] = Native(spark, folder / name, conf)
    contenders["noop"] = Native(spark, folder / "noop", NATIVE["default_filesystem"], noop=True)
    say(f"small epochs: {', '.join(contenders)}")
    warm = [files.every(0, scale.small_keys)]
    warm += [files.uniform(scale.small_rows, scale.small_keys) for _ in range(3 * scale.warm)]
    timed = [files.uniform(scale.small_rows, scale.small_keys) for _ in range(scale.small_rounds)]
    seconds, profile = _in_turns(contenders, warm, timed, Profile(ours))
    _check_and_close(contenders)
    middle = {name: median(each) for name, each in seconds.items()}
    default = _faster(middle, "default_filecontext", "default_filesystem")
    rocksdb = _faster(middle, "rocksdb_filecontext", "rocksdb_filesystem")
    told = ", ".join(
        f"{name} {middle[name] * 1000:.0f} ({_p99(each) * 1000:.0f})"
        for name, each in seconds.items()
    )
    yield _ratio("small_epoch_ratio", seconds, "lamina", default, at_most=0.8)
    yield _ratio("small_epoch_vs_rocksdb", seconds, "lamina", rocksdb)
    yield _ratio("small_epoch_vs_noop", seconds, "lamina", "noop")
    yield Number("small_epoch_p50_ms", middle["lamina"] * 1000, f"p50 (p99): {told} ms")
    yield Number("small_epoch_p99_ms", _p99(seconds["lamina"]) * 1000, "")
    yield Number("small_job_ms", profile.median_ms()["job"], f"medians: {profile.describe()}")
    yield from _parts("small", profile)


# growth


def _growth(scale: Scale, spark: SparkSession, files: Files, folder: Path) -> Iterator[Number]:
    """The same rows into a large state and into a small one; both have all keys that come."""
    many, few = Ours(spark, folder / "many"), Ours(spark, folder / "few")
    for each, keys in ((many, scale.many_keys), (few, scale.few_keys)):
        say(f"growth: {keys} keys")
        for file in _filling(files, keys, scale.fill):
            each.epoch(file)
        each.checkpoint()
    warm = [files.uniform(scale.rows, scale.few_keys) for _ in range(scale.warm)]
    timed = [files.uniform(scale.rows, scale.few_keys) for _ in range(scale.growth_rounds)]
    contenders: dict[str, Contender] = {"many": many, "few": few}
    seconds, profile = _in_turns(contenders, warm, timed, Profile(many))
    _check_and_close(contenders)
    yield _ratio("epoch_growth", seconds, "many", "few", at_most=1.5)
    told = ", ".join(f"{name} {_ms(each)}" for name, each in seconds.items())
    details = f"median (mean) of an epoch: {told}; many: {profile.describe()}"
    yield Number("growth_epoch_ms", median(seconds["many"]) * 1000, details)


def _filling(files: Files, keys: int, at_once: int) -> list[Path]:
    return [files.every(first, min(first + at_once, keys)) for first in range(0, keys, at_once)]


# in turns


def _in_turns(
    contenders: Mapping[str, Contender],
    warm: Sequence[Path],
    timed: Sequence[Path],
    profile: Profile,
) -> tuple[Seconds, Profile]:
    """Every file to everyone, one after the other; another of them is first in every round.

    Before each turn the disk has nothing left to write. *profile* is of the first one.
    """
    seconds: Seconds = {name: [] for name in contenders}
    names = list(contenders)
    for turn, file in enumerate([*warm, *timed]):
        first = turn % len(names)
        counts = turn >= len(warm)
        for name in names[first:] + names[:first]:
            os.sync()
            with profile.epoch() if counts and name == names[0] else nullcontext():
                spent = contenders[name].epoch(file)
            if counts:
                seconds[name].append(spent)
            say(f"{file.name} {name}: {spent * 1000:.0f} ms{'' if counts else ' (warming up)'}")
    return seconds, profile


def _check_and_close(contenders: Mapping[str, Contender]) -> None:
    close_all(contenders.values())
    for each in contenders.values():
        each.check()


def _ratio(
    key: str,
    seconds: Seconds,
    over: str,
    under: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Number:
    """Of medians; that of the means, with merges and checkpoints as often as they come, is told."""
    value = median(seconds[over]) / median(seconds[under])
    means = fmean(seconds[over]) / fmean(seconds[under])
    rounds = [a / b for a, b in zip(seconds[over], seconds[under], strict=True)]
    details = (
        f"{over} / {under}; of means {means:.2f}, rounds {min(rounds):.2f} to {max(rounds):.2f}"
    )
    return Number(key, value, details, at_least=at_least, at_most=at_most)


def _faster(middle: Mapping[str, float], *names: str) -> str:
    return min(names, key=lambda name: middle[name])


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]


def _ms(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1000:.0f} ({fmean(seconds) * 1000:.0f}) ms"


if __name__ == "__main__":
    main()
