"""`lamina run` as a person starts it: from the start over SIGTERM and kill -9 to the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.victims import Nursery, children, wait_until_gone

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

LAMINA = Path(sys.executable).parent / "lamina"
PATIENCE_S = 180
ROWS = 12_000
SQL = f"""
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '{ROWS}', symbols '5', every_us '100000')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM vwap AS
  SELECT symbol, window.start AS minute, sum(price * volume) AS turnover, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE SINK vwap_out FROM vwap USING parquet OPTIONS (path 'out/vwap');
"""
RUN = ("--max-rows", "2000", "--checkpoint-epochs", "0", "--master", "local[2]", "--json")


@pytest.fixture(autouse=True)
def _quick_starts(processes: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in processes.environment().items():
        monkeypatch.setenv(name, value)


def ask(*arguments: str | Path, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, LAMINA, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def answer(*arguments: str | Path) -> Any:
    return json.loads(ask(*arguments, "--json").stdout)


@contextmanager
def started(file: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], Iterator[Any]]]:
    """A run, and its events as they come."""
    with subprocess.Popen(
        [LAMINA, "run", file, *RUN, *more],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, (json.loads(line) for line in process.stdout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def until_epoch(events: Iterator[Any], epoch: int) -> list[Any]:
    found = []
    for event in events:
        found.append(event)
        if event.get("event") == "epoch" and event["epoch"] >= epoch:
            break
    return found


def everybody(pid: int) -> list[int]:
    """A process and all below it: what a service manager signals."""
    return [pid, *(each for child in children(pid) for each in everybody(child))]


def test_a_pipeline_is_stopped_killed_and_resumed_and_its_output_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "trades.sql"
    file.write_text(SQL)

    # SIGTERM: the epoch ends, a checkpoint is made, and it ends with 0.
    with started(file, "--interval", "4") as (process, events):  # it is not to come to the end
        begun = until_epoch(events, 1)
        assert begun[0]["event"] == "recovered"
        assert answer("status", file)["process"]["pid"] == process.pid
        second = ask("run", file)  # while the first one runs
        assert (second.returncode, "Fenced" in second.stderr or "pid" in second.stderr) == (5, True)
        process.send_signal(signal.SIGTERM)
        ended = list(events)[-1]
        assert process.wait() == 0
    assert (ended["event"], ended["phase"]) == ("ended", "ended")
    assert ended["saved_epoch"] == ended["epoch"]
    status = answer("status", file)
    assert (status["running"], status["epoch"]) == (False, ended["epoch"])
    assert status["checkpoint"]["epoch"] == ended["epoch"]

    # kill -9 of the driver alone: what was committed is there, and its JVM goes by itself.
    with started(file) as (process, events):
        seen = until_epoch(events, ended["epoch"] + 1)
        assert (seen[0]["epoch"], seen[0]["checkpoint_epoch"]) == (ended["epoch"],) * 2
        below = everybody(process.pid)[1:]
        assert below, "a JVM"
        assert os.getpgid(below[0]) != os.getpgid(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for pid in below:
            wait_until_gone(pid)
    status = answer("status", file)
    assert status["state"] == "not running: it was killed"
    assert status["epoch"] >= seen[-1]["epoch"]
    assert status["unsaved_epochs"] >= 1

    # The rest, with another number of partitions, where the host's name cannot be resolved.
    last = ask("run", file, *RUN, "--available-now", "--partitions", "4", before=without_a_name())
    assert last.returncode == 0, last.stderr
    assert "WARNING" not in last.stderr, "nor does the JVM say anything"
    recovered = json.loads(last.stdout.splitlines()[0])
    assert recovered["epoch"] == status["epoch"]
    assert rows_are_whole(tmp_path / "out" / "vwap")


def without_a_name() -> list[str]:
    """Before a command: its host has a name that nobody can resolve, which stopped the start.

    Nothing where that cannot be had, which needs root.
    """
    own_name = ["unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"]
    tried = subprocess.run([*own_name, "true"], capture_output=True, check=False)
    return [] if tried.returncode else own_name


def rows_are_whole(out: Path) -> bool:
    """Trades come one each 100 ms: 600 in a whole minute, each window once."""
    rows = [row for file in out.glob("*/*.parquet") for row in pq.read_table(file).to_pylist()]
    keys = [(row["symbol"], row["minute"]) for row in rows]
    assert len(keys) == len(set(keys))
    minutes = sorted({minute for _, minute in keys})
    counts = [sum(row["trades"] for row in rows if row["minute"] == each) for each in minutes]
    assert len(minutes) == 20  # of 20 minutes of data, begun in the middle of one, less the delay
    assert counts[1:] == [600] * (len(minutes) - 1)
    return True


def test_check_explains_state_and_types_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "trades.sql"
    file.write_text(SQL)
    plan = ask("check", file)
    assert plan.returncode == 0, plan.stderr
    assert "  state      window_end timestamp (key)" in plan.stdout
    assert "  state      sum(price * volume) decimal(38,2) (sum)" in plan.stdout
    assert "turnover decimal(38,2), trades bigint" in plan.stdout
    assert not (tmp_path / ".lamina").exists()


def test_sigterm_for_all_processes_in_mid_epoch_ended_the_jvm_first(tmp_path: Path) -> None:
    """As from systemd: the JVM ended at once, and the run with an error."""
    file = tmp_path / "trades.sql"
    file.write_text(SQL.replace(f"rows '{ROWS}'", "rows '100000000'"))
    with started(file, "--max-rows", "50000") as (process, events):
        until_epoch(events, 1)  # and the next one has begun
        for pid in everybody(process.pid):
            os.kill(pid, signal.SIGTERM)
        ended = list(events)[-1]
        assert process.wait() == 0
    assert (ended["event"], ended["phase"], ended["why"]) == ("ended", "ended", "")
    assert ended["saved_epoch"] == ended["epoch"] >= 1
