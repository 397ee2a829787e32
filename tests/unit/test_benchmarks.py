"""The benchmarks run and say what they promise; how fast they are on this machine is no test.

Those that start Spark or servers several times are only asked for their options, unless
LAMINA_BENCHMARKS=all: they take minutes, and `make bench` runs them.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import kafka_missing, postgres_missing
from tests.spark.java import JAVA_OPTIONS

FOLDER = Path(__file__).parents[2] / "benchmarks"
KEYS = {
    "checkpoint": {
        "save_local_ratio",
        "save_memory_ratio",
        "verify_ratio",
        "list_requests_growth",
        "peak_memory_mib",
    },
    "wal": {
        "batch_ratio",
        "put_speedup",
        "put_ns",
        "replay_ratio",
        "recovery_ratio",
        "commit_fdatasyncs",
    },
    "state": {
        "upsert_vs_rocksdict",
        "upsert_vs_duckdb",
        "upsert_growth",
        "get_vs_rocksdict",
        "delta_bytes_ratio",
        "write_amplification",
        "restore_ratio",
        "rescale_ratio",
        "epoch_memory_growth",
    },
    "engine": {
        "agg_vs_rocksdb",
        "agg_vs_default",
        "agg_vs_limit",
        "small_epoch_ratio",
        "small_epoch_p50_ms",
        "epoch_growth",
    },
    "console": {
        "page_ms_first",
        "page_ms_p50",
        "page_ms_p95",
        "cli_metadata_s",
        "cli_help_cpu_s",
        "fork_ms",
    },
    "cold": {"first_epoch_ratio", "cold_ten_epochs_s"},
    "connectors": {
        "kafka_sink_ratio",
        "postgres_sink_ratio",
        "delta_sink_ratio",
        "iceberg_sink_ratio",
        "kafka_source_ratio",
        "small_epoch_kafka_ratio",
    },
    "sql": {
        "nexmark_correct",
        "nexmark_vs_native",
        "topn_growth",
        "distinct_vs_native",
        "session_vs_native",
        "python_step_vs_tws",
        "compile_ms",
    },
    "joins": {
        "interval_vs_native",
        "left_vs_native",
        "join_growth",
        "cdc_rows_per_s",
        "cdc_vs_recvlogical",
        "cdc_remembered_ratio",
        "table_join_ratio",
        "table_by_key_small",
        "table_by_key_large",
    },
    "remote": {
        "remote_epoch_ratio",
        "remote_epoch_p99_ratio",
        "remote_epoch_ms",
        "puts_per_epoch",
        "gets_per_epoch",
        "remote_vs_local",
        "failover_s",
        "restore_s",
        "restore_mib_per_s",
    },
}
NEEDS = dict.fromkeys(("engine", "cold", "connectors", "sql", "joins", "remote"), "pyspark")
LONG = () if os.environ.get("LAMINA_BENCHMARKS") == "all" else tuple(NEEDS)
EXACT = {"list_requests_growth": 1.0, "commit_fdatasyncs": 1.0}


@pytest.mark.parametrize("name", LONG)
def test_a_long_benchmark_has_the_options_of_the_others(name: str) -> None:
    pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed: lamina[spark]")
    script = [sys.executable, str(FOLDER / f"{name}.py"), "--help"]
    run = subprocess.run(script, capture_output=True, text=True, check=True)
    assert all(option in run.stdout for option in ("--quick", "--json", "--save", "--folder"))


@pytest.mark.parametrize("name", [name for name in KEYS if name not in LONG])
def test_a_benchmark_ends_with_one_line_of_json(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed: lamina[spark]")
    if name == "connectors" and (reason := kafka_missing() or postgres_missing()):
        pytest.skip(reason)
    if name == "joins" and (reason := postgres_missing()):
        pytest.skip(reason)
    arguments = ["--scale", "tiny", "--json", "--folder", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        check=False,
    )
    assert not run.returncode, run.stderr[-2000:]
    numbers = json.loads(run.stdout.splitlines()[-1])
    assert numbers.keys() >= KEYS[name]
    assert all(numbers[key] > 0 for key in KEYS[name])
    assert all(numbers[key] == value for key, value in EXACT.items() if key in KEYS[name])
    assert all(f"\n{key} " in run.stdout for key in KEYS[name])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "scale"), [([], "full"), (["--quick"], "quick"), (["--scale", "tiny"], "tiny")]
)
def test_without_arguments_everything_is_measured(arguments: list[str], scale: str) -> None:
    parse = runpy.run_path(str(FOLDER / "report.py"))["parse"]
    scales = {"full": 1, "quick": 2, "tiny": 3}
    assert parse(arguments, "", scales).scale == scale
    assert parse([*arguments, "--json"], "", scales).json
