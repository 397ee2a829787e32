"""A home in an object store: what an epoch costs there, and how soon another machine goes on.

python benchmarks/remote.py            the numbers of docs/benchmarks.md
python benchmarks/remote.py --quick    the same shape with smaller sizes
python benchmarks/remote.py --json     the last line of stdout is one JSON object

The store is SeaweedFS on loopback; every request waits 30 ms longer than it takes. Tasks do not
use the driver's disk, as on a cluster: what they need of the home they ask the store for, through a
cache of their own. Requests are those of driver and tasks together, of the home alone; checkpoints
of small epochs are in a folder, and so are all sources and sinks.

Structured Streaming writes its checkpoint to a local folder: what each batch adds there is counted,
and what has to be written one after the other (the source's log, offsets, one delta of the state,
commits) is priced at the same 30 ms. So its side is computed: lists, renames and reads that it
would need beside these are not priced.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))  # the servers of the tests

import numpy as np
from engine_input import Files
from engine_session import BOTH_CORES, configured, say, session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from report import Number, run
from slow_store import COUNTS, LATENCY_S, SlowPlace, requests
from sql_contenders import Contender, Native, Stream, in_turns

from lamina.workspace.remote import RemoteWorkspace
from tests.servers import S3Server, seaweedfs
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY

SOURCE, QUERY = (
    "src (k BIGINT, v BIGINT)",
    "SELECT k, sum(v) AS total, count(*) AS n FROM src GROUP BY k",
)
SEQUENTIAL = ("sources", "offsets", "state", "commits")
"""Folders of a checkpoint of Structured Streaming, each written when the one before is."""


@dataclass(frozen=True, slots=True)
class Sizes:
    small_rows: int
    small_keys: int
    small_rounds: int
    rows: int
    keys: int
    rounds: int
    warm: int
    wide_keys: int
    memory: str


SCALES = {
    "full": Sizes(100, 10_000, 60, 500_000, 1_000_000, 9, 3, 1_000_000, "6g"),
    "quick": Sizes(100, 10_000, 20, 200_000, 400_000, 5, 3, 100_000, "4g"),
    "tiny": Sizes(20, 200, 1, 500, 200, 1, 1, 400, "1g"),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(sizes: Sizes, folder: Path) -> Iterator[Number]:
    servers = folder / "seaweedfs"
    servers.mkdir()
    with seaweedfs(servers) as server:
        os.environ |= _environment(server) | {COUNTS: str(folder / "requests")}
        with session(folder / "spark", sizes.memory) as spark:
            yield from _both(spark, folder, server, sizes)


def _both(spark: SparkSession, folder: Path, server: S3Server, sizes: Sizes) -> Iterator[Number]:
    yield from _small(spark, folder / "small", server, sizes)
    with configured(spark, BOTH_CORES):
        yield from _large(spark, folder / "large", server, sizes)
        yield from _restored(spark, folder / "wide", server, sizes)


def _environment(server: S3Server) -> dict[str, str]:
    """Credentials, for this process and for Spark's workers."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ALLOW_HTTP": "true",
    }


def _home(server: S3Server, prefix: str, scratch: Path, *, saved: str = "") -> RemoteWorkspace:
    """*saved* is where its checkpoints are, if they are in the store, too."""
    return RemoteWorkspace(
        SlowPlace(server.url(prefix)),
        scratch,
        saved=SlowPlace(saved) if saved else None,
        take_over=True,
        tasks_here=False,
    )


def _calls(server: S3Server, prefix: str) -> Counter[str]:
    """What was asked of the store so far."""
    return requests(server.url(prefix))


# small epochs


def _small(spark: SparkSession, folder: Path, server: S3Server, sizes: Sizes) -> Iterator[Number]:
    files, home = Files(folder / "input"), _home(server, "small", folder / "scratch")
    ours = Stream(spark, folder / "lamina", SOURCE, QUERY, space=home)
    local = Stream(spark, folder / "local", SOURCE, QUERY)
    native = Native(spark, folder / "native", "k BIGINT, v BIGINT", _summed, mode="update")
    contenders: dict[str, Contender] = {"remote": ours, "local": local, "native": native}
    say(f"small epochs: {', '.join(contenders)}")
    warm = [files.every(0, sizes.small_keys)]
    warm += [files.uniform(sizes.small_rows, sizes.small_keys) for _ in range(3 * sizes.warm)]
    timed = [files.uniform(sizes.small_rows, sizes.small_keys) for _ in range(sizes.small_rounds)]
    in_turns(contenders, warm, [])
    before, written = _calls(server, "small"), _written(folder / "native" / "checkpoint")
    epochs_before = ours.engine.epoch
    seconds = in_turns(contenders, [], timed)
    calls, epochs = _calls(server, "small") - before, ours.engine.epoch - epochs_before
    added = _written(folder / "native" / "checkpoint") - written
    for each in (ours, local, native):
        each.close()
    writes = sum(1 for part in SEQUENTIAL if added[part])
    priced = [each + writes * LATENCY_S for each in seconds["native"]]
    p50, p99 = median(seconds["remote"]), float(np.quantile(seconds["remote"], 0.99))
    against = median(priced)
    details = (
        f"{p50 * 1000:.0f} ms over {against * 1000:.0f}: {median(seconds['native']) * 1000:.0f} "
        f"measured and {writes} writes at 30 ms; local home {median(seconds['local']) * 1000:.0f}"
    )
    yield Number("remote_epoch_ratio", p50 / against, details, at_most=1.0)
    yield Number("remote_epoch_p99_ratio", p99 / float(np.quantile(priced, 0.99)), "", at_most=1.0)
    yield Number("remote_epoch_ms", p50 * 1000, f"p50; p99 {p99 * 1000:.0f}")
    told = f"{dict(calls)} in {epochs} epochs, checkpoints included"
    yield Number("puts_per_epoch", calls["put_if_absent"] / epochs, told)
    yield Number("gets_per_epoch", (calls["get"] + calls["get_range"]) / epochs, "")


def _summed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.sum("v").alias("total"), F.count(F.lit(1)).alias("n"))


def _written(checkpoint: Path) -> Counter[str]:
    """How many files are in each part of a checkpoint."""
    found = (file.relative_to(checkpoint).parts[0] for file in checkpoint.rglob("*"))
    return Counter(found)


# large epochs, and another machine


def _large(spark: SparkSession, folder: Path, server: S3Server, sizes: Sizes) -> Iterator[Number]:
    files, saved = Files(folder / "input"), server.url("large/store")
    home = _home(server, "large", folder / "scratch", saved=saved)
    ours = Stream(spark, folder / "lamina", SOURCE, QUERY, space=home, store=saved)
    local = Stream(spark, folder / "local", SOURCE, QUERY)
    contenders: Mapping[str, Contender] = {"remote": ours, "local": local}
    say(f"large epochs: {sizes.rows} rows, {sizes.keys} keys")
    warm = [files.every(0, sizes.keys)]
    warm += [files.uniform(sizes.rows, sizes.keys) for _ in range(sizes.warm)]
    timed = [files.uniform(sizes.rows, sizes.keys) for _ in range(sizes.rounds)]
    seconds = in_turns(contenders, warm, timed)
    value = median(seconds["local"]) / median(seconds["remote"])
    middle = {name: f"{median(each) * 1000:.0f} ms" for name, each in seconds.items()}
    yield Number("remote_vs_local", value, f"{middle}", at_least=0.8)
    local.close()
    yield _failover(spark, folder, server, files.uniform(sizes.small_rows, sizes.keys))
    ours.close()


def _failover(spark: SparkSession, folder: Path, server: S3Server, file: Path) -> Number:
    """Another machine, which has nothing but the store, claims the pipeline and commits an epoch.

    The first one is still there: nobody waits until it has gone.
    """
    before, start = _calls(server, "large"), time.perf_counter()
    saved = server.url("large/store")
    home = _home(server, "large", folder / "another machine", saved=saved)
    other = Stream(spark, folder / "lamina", SOURCE, QUERY, space=home, store=saved)
    recovered = time.perf_counter() - start
    other.epoch(file)
    spent = time.perf_counter() - start
    other.close()
    asked = dict(_calls(server, "large") - before)
    return Number("failover_s", spent, f"recovered after {recovered:.1f} s; requests {asked}")


# a large state on another machine


WIDE = (
    "SELECT k, max(repeat(sha2(CAST(k AS STRING), 512), 8)) AS pad, count(*) AS n "
    "FROM src GROUP BY k"
)
"""About 1 KiB of state for each key."""


def _restored(
    spark: SparkSession, folder: Path, server: S3Server, sizes: Sizes
) -> Iterator[Number]:
    """Its checkpoint, too, is in the store: a machine that has neither goes on."""
    say(f"restore: {sizes.wide_keys} keys of 1 KiB")
    files = Files(folder / "input")

    def opened(machine: str) -> Stream:
        store = server.url("wide/store")
        home = _home(server, "wide", folder / machine, saved=store)
        return Stream(spark, folder / "lamina", SOURCE, WIDE, space=home, store=store)

    first = opened("one")
    step = sizes.wide_keys // 4
    for part in range(4):
        first.epoch(files.every(part * step, (part + 1) * step))
    first.engine.checkpoint()
    first.close()
    os.sync()
    start = time.perf_counter()
    other = opened("another")
    recovered = time.perf_counter() - start
    other.epoch(files.uniform(sizes.small_rows, sizes.wide_keys))
    spent = time.perf_counter() - start
    size = other.engine.report.bytes_restored
    other.close()
    details = f"{size / 2**20:.0f} MiB; the first epoch after {spent:.1f} s"
    yield Number("restore_s", recovered, details)
    yield Number("restore_mib_per_s", size / 2**20 / recovered, "read, proven and opened")


if __name__ == "__main__":
    main()
