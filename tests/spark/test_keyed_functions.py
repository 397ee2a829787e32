"""Keyed steps in Python on Spark: what a plain Python model comes to, whatever happens between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.errors import BadPipeline, LaminaError, StateChanged
from lamina.pipeline import Emit, Pipeline, PipelineBuilder
from tests.spark.keyed_examples import ADDED, COLUMNS, MODELS, STREAMS, clicks, functions
from tests.spark.running import Place, Run, batch, comparable, job_count
from tests.spark.test_codegen import CALLS_MAX, EPOCHS, WARM, Calls, Compilations
from tests.spark.victims import Nursery


def source() -> PipelineBuilder:
    return PipelineBuilder().source(
        "clicks", COLUMNS, "json", {"path": "in"}, watermark=("ts", "10 seconds")
    )


def examples() -> Pipeline:
    found, pipeline = functions(), source()
    for add in ADDED:
        pipeline = found[add](pipeline)
    for stream in STREAMS:
        pipeline = pipeline.sink(f"{stream} out", stream, "parquet", {"path": stream})
    return pipeline.build()


def test_the_examples_come_to_what_plain_python_does(spark: Any, tmp_path: Path) -> None:
    """Half of it with four partitions, half of it with two; with late rows and nulls."""
    place, data = Place(tmp_path), clicks(12)
    for name, model in MODELS.items():
        assert len(list(model(data))) > 10, name
    place.put_json(data[:6])
    first = Run(spark, place, partitions=4)
    first.run(examples())
    place.put_json(data)
    second = Run(spark, place, partitions=2)
    second.run(examples())
    # The first run ends with an epoch that only lets timers fire, with the watermark of its rows.
    for name, model in MODELS.items():
        assert comparable(place.rows(name)) == comparable(model([*data[:6], [], *data[6:]])), name
    assert sum(report.late for report in (*first.reports, *second.reports)) > 0


def counted(keys: Any, rows: Any, state: Any) -> Any:
    n = state.numpy("n", 0) + rows.counts
    total = state.numpy("total", 0)
    np.add.at(total, rows.key_of, rows.numpy("v", 0))
    made = {"n": n, "total": total}
    return made, {"k": keys["k"], **made}


def keyed(
    function: Any, keys: Any = ("k",), columns: str = "k DOUBLE, v BIGINT", **more: Any
) -> Any:
    wanted = {
        "inputs": ["t"],
        "keys": keys,
        "state": "n BIGINT, total BIGINT",
        "output": "k DOUBLE, n BIGINT, total BIGINT",
        **more,
    }
    return (
        PipelineBuilder()
        .source("t", columns, "json", {"path": "in", "allowNonNumericNumbers": True})
        .keyed("s", function, **wanted)
        .sink("o", "s", "parquet", {"path": "out"})
        .build()
    )


def numbers(epochs: int) -> list[list[dict[str, Any]]]:
    keys = [None, 0.0, -0.0, 1.5, "NaN", -7.0, "Infinity"]
    return [
        [{"k": keys[(e * 5 + n * n) % 7], "v": [None, n, -e][n % 3]} for n in range(30)]
        for e in range(epochs)
    ]


def test_a_running_sum_is_that_of_spark_batch(spark: Any, tmp_path: Path) -> None:
    """Keys are null, NaN and zeros of both signs; one job an epoch, and no code compiled anew."""
    place = Place(tmp_path)
    place.put_json(numbers(EPOCHS))
    jobs: list[int] = []
    compilations = Compilations(spark)

    def count(point: str) -> None:
        compilations(point)
        if point == "after COMMIT":
            jobs.append(job_count(spark))

    Run(spark, place, fail_point=count).run(keyed(counted))
    assert [after - before for before, after in pairwise(jobs)] == [1] * (EPOCHS - 1)
    assert compilations.epochs[WARM:EPOCHS] == [0] * (EPOCHS - WARM)
    reader = spark.read.option("allowNonNumericNumbers", "true").schema("k DOUBLE, v BIGINT")
    reader.json(place.source).createOrReplaceTempView("t")
    wanted = batch(
        spark,
        "SELECT k, count(*) AS n, coalesce(sum(v), 0) AS total FROM t GROUP BY k",
    )
    assert comparable(place.latest(1)) == comparable(wanted)


def test_an_epoch_of_a_keyed_step_makes_few_calls_into_the_jvm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.put_json(numbers(EPOCHS))
    calls = Calls(spark, monkeypatch)
    Run(spark, place, fail_point=calls).run(keyed(counted))
    assert max(calls.epochs[WARM:EPOCHS]) <= CALLS_MAX


def fails(keys: Any, rows: Any, state: Any) -> Any:
    if 0.0 in keys["k"].to_pylist():
        raise KeyError("what")
    return counted(keys, rows, state)


def test_a_function_that_fails_stops_the_epoch_with_its_key(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json(numbers(2))
    with pytest.raises(LaminaError, match=r"of the stream 's' failed for the key k 0\.0: KeyError"):
        Run(spark, place).run(keyed(fails))
    assert not place.rows()


def test_a_changed_version_asks_before_old_state_is_used(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json(numbers(2))
    Run(spark, place).run(keyed(counted))
    for changed in ({"version": "2"}, {"initial": {"n": 1}}):
        with pytest.raises(StateChanged, match="--reuse-state"):
            Run(spark, place).run(keyed(counted, **changed))
    place.put_json(numbers(3))
    assert Run(spark, place).run(keyed(counted)) == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"keys": ["nope"]}, "there is no column 'nope' to be a key"),
        ({"state": "n SOUP"}, "the stream 's'"),
        ({"output": "n INT, N INT"}, "'N' is defined twice"),
        ({"initial": {"n": "x"}}, "initial does not fit the state"),
        ({"columns": "k MAP<INT, INT>, v BIGINT"}, "cannot be a key"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    spark: Any, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        Run(spark, Place(tmp_path)).run(keyed(counted, **changed))
    assert said in str(raised.value)


def test_a_ttl_needs_the_event_time_of_the_rows(spark: Any, tmp_path: Path) -> None:
    pipeline = (
        source()
        .stream("few", "SELECT user, ts + INTERVAL 1 HOUR AS later FROM clicks")
        .keyed(
            "s",
            counted,
            inputs=["few"],
            keys=["user"],
            state="n INT",
            output="n INT",
            ttl="1 hour",
        )
        .sink("o", "s", "parquet", {"path": "out"})
    )
    with pytest.raises(BadPipeline, match="without their event time"):
        Run(spark, Place(tmp_path)).run(pipeline.build())


def test_a_keyed_step_reads_streams_and_is_read(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json(numbers(3))
    pipeline = (
        PipelineBuilder()
        .source("t", "k STRING, v BIGINT", "json", {"path": "in"})
        .stream("odd", "SELECT k, v FROM t WHERE v % 2 = 1")
        .stream("even", "SELECT k, v FROM t WHERE v % 2 = 0")
        .keyed(
            "s",
            counted,
            inputs=["odd", "even"],
            keys=["k"],
            state="n BIGINT, total BIGINT",
            output="k STRING, n BIGINT, total BIGINT",
        )
        .stream("most", "SELECT max(n) AS n, count(*) AS c FROM s", emit=Emit.ON_UPDATE)
        .sink("o", "s", "parquet", {"path": "out"})
        .sink("p", "most", "parquet", {"path": "most"})
    )
    Run(spark, place).run(pipeline.build())
    spark.read.schema("k STRING, v BIGINT").json(place.source).createOrReplaceTempView("t")
    text = "SELECT k, count(*) AS n, sum(v) AS total FROM t WHERE v % 2 IN (0, 1) GROUP BY k"
    wanted = batch(spark, text)
    assert comparable(place.latest(1)) == comparable(wanted)
    assert place.rows("most")[-1]["n"] == max(row["n"] for row in wanted)
    assert place.rows("most")[-1]["c"] == len(place.rows())


SCRIPT = """
import sys
from pathlib import Path

import lamina
from tests.spark.keyed_examples import ADDED, COLUMNS, STREAMS, functions

pipeline = lamina.Pipeline().source(
    "clicks", COLUMNS, "json", {"path": "in"}, watermark=("ts", "10 seconds")
)
found = functions()
for add in ADDED:
    pipeline = found[add](pipeline)
pipeline = pipeline.function("loud", lambda user: user.upper(), "user STRING", "STRING")
pipeline = pipeline.stream("clean", lambda clicks: clicks.where("user > ''"), inputs=["clicks"])
pipeline = pipeline.stream("louder", "SELECT loud(user) AS user, ts FROM clean")
for stream in (*STREAMS, "louder"):
    pipeline = pipeline.sink(f"{stream} out", stream, "parquet", {"path": stream})
ended = lamina.run(
    pipeline, name="p", folder=sys.argv[1], available_now=True, max_files=1, master="local[2]",
    partitions=2, watcher=lamina.Watcher(epoch=lambda report: print(report.epoch, flush=True)),
)
print("ended", flush=True)
"""


def test_a_program_that_is_killed_goes_on_where_it_was(processes: Nursery, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")
    place, data = Place(tmp_path), clicks(6)
    place.put_json(data)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for kill_after in (3, None):
        _run_and_kill(script, tmp_path, kill_after, processes.environment())
    for name, model in MODELS.items():
        assert comparable(place.rows(name)) == comparable(model(data)), name
    users = [(row["user"].upper(), row["ts"]) for epoch in data for row in epoch if row["user"]]
    found = [(row["user"], row["ts"]) for row in place.rows("louder")]
    assert sorted(found) == sorted(users)


def _run_and_kill(
    script: Path, folder: Path, kill_after: int | None, environment: dict[str, str]
) -> None:
    """Run the program; SIGKILL while the epoch after so many is under way."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    command = [sys.executable, str(script), str(folder)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            seen += line.strip().isdecimal()
            if seen == kill_after:
                time.sleep(0.2)
                os.killpg(process.pid, signal.SIGKILL)
                break
        else:
            assert process.wait() == 0
