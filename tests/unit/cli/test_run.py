"""`lamina run` before there is a Spark, and what it prints; a fake engine runs in its loop."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.pipeline.run_screen import JsonLines, Lines, LiveTable, RunScreen
from lamina.cli.pipeline.run_words import lag, recovery_lines, recovery_shape
from lamina.clock import Clock
from lamina.disk import LocalDisk
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits, Listings
from lamina.errors import UsageError
from lamina.format.commit import Point
from lamina.front.options import settings_of
from lamina.front.places import place_of
from lamina.front.run import Launch
from lamina.pipeline.model import Pipeline
from lamina.protocol.identity import PartChange
from lamina.recovery import RecoveryConfig
from lamina.running.control import Status
from lamina.running.loop import Loop, Until, Watcher
from lamina.running.presence import present
from lamina.running.settings import RunSettings
from lamina.testing import ManualClock
from tests.support.command_line import answer, lamina, without_rights
from tests.support.running_engines import NEW, FakeEngine, FakeListing

SQL = """CREATE SOURCE s (symbol STRING, ts TIMESTAMP) USING trades WATERMARK ts DELAY OF INTERVAL 1 DAY;
CREATE STREAM counts AS SELECT symbol, count(*) AS n FROM s GROUP BY symbol EMIT ON UPDATE;
CREATE SINK out FROM counts USING parquet OPTIONS (path 'out');
"""  # noqa: E501


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "orders.sql"
    file.write_text(SQL)
    return file


# what is wrong before Spark is started


def test_no_such_file(tmp_path: Path) -> None:
    result = lamina("run", tmp_path / "no.sql")
    assert result.exit_code == 3
    assert "there is no such pipeline file" in result.stderr
    assert "lamina init" in result.stderr


def test_a_stream_that_is_not_there_cannot_have_its_state_used_again(pipeline: Path) -> None:
    result = lamina("run", pipeline, "--reuse-state", "count")
    assert result.exit_code == 2
    assert "no stream of this name" in result.stderr
    assert "counts" in result.stderr


def test_a_folder_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert lamina("run", tmp_path).exit_code == 2
    (tmp_path / "x.sql").write_bytes(b"CREATE \xff")
    result = lamina("check", tmp_path / "x.sql", "--no-spark")
    assert result.exit_code == 2
    assert "byte 7" in result.stderr


def test_a_file_that_may_not_be_read(tmp_path: Path, pipeline: Path) -> None:
    pipeline.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    with without_rights():
        result = lamina("run", pipeline)
    assert result.exit_code == 6
    assert "LAM-5002" in result.stderr


def test_a_pipeline_that_would_not_work_is_refused_with_its_place(pipeline: Path) -> None:
    pipeline.write_text(SQL.replace("FROM s GROUP", "FROM nothing GROUP"))
    result = lamina("run", pipeline)
    assert result.exit_code == 2
    assert f"{pipeline}:2:59" in result.stderr


def test_without_pyspark_the_extra_is_named(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for command in ("run", "check"):
        result = lamina(command, pipeline)
        assert result.exit_code == 2
        assert "pip install 'lamina[spark,java]'" in result.stderr
    assert lamina("demo").exit_code == 2
    assert lamina("check", pipeline, "--no-spark").exit_code == 0


def test_the_command_imports_no_spark() -> None:
    code = "import sys, lamina.cli.main; print([m for m in sys.modules if 'pyspark' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_home_in_use_is_refused_before_spark_is_started(pipeline: Path) -> None:
    home = place_of(str(pipeline)).home
    disk = LocalDisk(home)
    disk.make_folder("")
    lock = disk.try_lock("lock")
    assert lock is not None
    result = lamina("run", pipeline, "--json")
    lock.release()
    assert result.exit_code == 5
    said = json.loads(result.stdout)
    assert said["event"] == "error"
    assert said["error"]["kind"] == "Fenced"
    assert "lamina stop" in said["error"]["advice"]


def test_flags_that_contradict_each_other(pipeline: Path) -> None:
    result = lamina("run", pipeline, "--start-fresh", "--lose-after", "3")
    assert result.exit_code == 2
    assert lamina("run", pipeline, "--partitions", "0").exit_code == 2
    assert "not a power of two" in lamina("run", pipeline, "--partitions", "3").stderr
    assert lamina("run", pipeline, "--interval", "-1").exit_code == 2


def test_a_python_of_another_version_is_named(tmp_path: Path) -> None:
    session = pytest.importorskip("lamina.spark.session")
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 2.7\n")
    other.chmod(0o755)
    with pytest.raises(UsageError, match=r"Python 2\.7"):
        session.check_worker_python(str(other))
    with pytest.raises(UsageError, match="does not run"):
        session.check_worker_python(str(tmp_path / "none"))
    session.check_worker_python(sys.executable)


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = pytest.importorskip("lamina.spark.java")
    monkeypatch.setattr(java, "java_home", lambda _, **__: None)
    with pytest.raises(UsageError, match="Java 17, 21, 25") as raised:
        java.prepare_java(tmp_path)
    assert "lamina[java]" in raised.value.advice


def test_a_wrapper_around_java_is_not_wrapped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second session of a process finds JAVA_HOME as the first one has set it."""
    java = pytest.importorskip("lamina.spark.java")
    real = tmp_path / "my $jdk" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\necho \'openjdk version "21.0.1"\' >&2\necho "$@"\n')
    real.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(real.parent.parent))
    for _ in range(2):
        home = java.java_home(tmp_path / "scratch")
        monkeypatch.setenv("JAVA_HOME", str(home))
    wrapper = home / "bin" / "java"
    assert wrapper.read_text().endswith(f"exec '{real}' \"$@\"\n")
    arguments = ["-x", "--add-modules=jdk.incubator.vector", "a b"]
    ran = subprocess.run([wrapper, *arguments], capture_output=True, check=True, text=True)
    assert ran.stdout == "-x a b\n"


def test_local_masters_get_retries_and_others_stay() -> None:
    session = pytest.importorskip("lamina.spark.session")
    assert session.with_retries("local[2]") == "local[2,4]"
    assert session.with_retries("local[*]") == "local[*,4]"
    for other in ("local", "local[2,1]", "spark://host:7077"):
        assert session.with_retries(other) == other


# where things are


def test_home_and_store_are_beside_the_file_unless_said(tmp_path: Path) -> None:
    place = place_of(str(tmp_path / "orders.sql"))
    assert place.name == "orders"
    assert place.home == tmp_path / ".lamina" / "orders" / "home"
    assert place.store == str(tmp_path / ".lamina" / "orders" / "store")
    given = place_of("orders.sql", "h", "s3://bucket/x")
    assert (given.home, given.store) == (Path("h"), "s3://bucket/x")


def test_a_home_in_an_object_store_has_a_folder_of_this_machine_beside_it(tmp_path: Path) -> None:
    file = str(tmp_path / "orders.sql")
    place, again = place_of(file, "s3://bucket/orders/"), place_of(file, "s3://bucket/orders")
    assert place == again
    assert (place.remote, place.given_home) == ("s3://bucket/orders",) * 2
    assert place.store == "s3://bucket/orders/store"
    assert place.home.parent == tmp_path / ".lamina" / "orders"
    assert place.home != place_of(file, "s3://bucket/other").home
    assert place_of(file, place.given_home, place.store) == place, "as `lamina run` passes it on"


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("hdfs://name/x", "no home has the scheme 'hdfs'"),
        ("file:///x", "no home has the scheme 'file'"),
        (Path("s3://bucket/x"), "neither a folder nor an address"),
    ],
)
def test_an_address_that_cannot_hold_a_home_is_not_taken_for_a_folder(home: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        place_of("orders.sql", home)


def test_epochs_of_a_home_in_an_object_store_are_ten_seconds_apart_unless_said() -> None:
    local, remote = place_of("orders.sql"), place_of("orders.sql", "s3://bucket/x")
    assert settings_of(local, "orders.sql", {}).interval_s == 0
    made = settings_of(remote, "orders.sql", {"interval_s": None})
    assert (made.interval_s, made.remote, made.take_over) == (10, "s3://bucket/x", False)
    assert not made.engine.looks_ahead, "what it read would wait for its turn"
    made = settings_of(remote, "orders.sql", {"interval_s": 0.0, "take_over": True})
    assert made.engine.looks_ahead
    assert (made.interval_s, made.take_over) == (0, True)
    with pytest.raises(UsageError, match="this home is a folder"):
        settings_of(local, "orders.sql", {"take_over": True})


def test_checkpoints_of_a_home_in_an_object_store_are_in_one_too(tmp_path: Path) -> None:
    place = place_of("orders.sql", "s3://bucket/x", str(tmp_path))
    with pytest.raises(UsageError, match="the store is a folder of this machine"):
        settings_of(place, "orders.sql", {})
    elsewhere = place_of("orders.sql", "s3://bucket/x", "gs://other/y")
    assert settings_of(elsewhere, "orders.sql", {}).store == "gs://other/y"


# what it prints


def run_on(
    kind: Callable[[Clock], RunScreen], home: Path, sources: dict[str, object] | None = None
) -> Status:
    clock = ManualClock()
    screen = kind(clock)
    watcher = Watcher(screen.recovered, screen.note, screen.epoch, screen.status, screen.rows)
    with screen, present(home, "orders", clock=clock, listener=watcher.status) as here:
        loop = Loop(
            FakeEngine(2, lambda _: clock.advance(0.5), sources=sources or {}),
            here=here,
            clock=clock,
            stop=threading.Event(),
            watcher=watcher,
            until=Until(available_now=True),
            peek="out",
        )
        status = loop.run()
        screen.ended(status)
    return status


def test_one_line_per_epoch_and_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_on(Lines, tmp_path)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert lines[0] == "starting Spark for orders"
    assert lines[1] == "recovered: nothing yet, starting with epoch 1"
    assert lines[2] == "Spark is warming up: the first epochs are slower"
    assert lines.pop(3).startswith("first new epoch 0.5 s after the start")
    assert lines[3].startswith(
        "epoch 1  100 rows  200 rows/s  out 7  watermark 2023-11-14T22:13:20"
    )
    assert "late 1" in lines[4]
    assert out == (
        "ended at epoch 2: 200 rows read in 1.5 s, 2 rows late; 14 rows to out; "
        "checkpoint of epoch 2\n"
    )


def test_json_is_one_object_per_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_on(JsonLines, tmp_path)
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["recovered", "epoch", "epoch", "ended"]
    assert events[1]["rows"] == {"trades": 100}
    assert events[3]["saved_epoch"] == 2
    assert err == ""


def test_full_listings_of_a_source_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources: dict[str, object] = {
        "clicks": FakeListing(Listings(full=3, requests=41)),
        "orders": FakeListing(Listings(full=1, requests=1)),
        "trades": object(),
    }
    run_on(Lines, tmp_path, sources)
    assert "  full listings 4  " in capsys.readouterr().err.splitlines()[4]
    run_on(LiveTable, tmp_path, sources)
    shown = capsys.readouterr().err
    assert "clicks: 3 full listings, 41 requests; orders: 1 full" in shown
    run_on(JsonLines, tmp_path, sources)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["listings"]["clicks"] for event in events[1:]] == 3 * [
        {"full": 3, "requests": 41}
    ]


def test_a_run_that_lists_nothing_says_nothing_of_listings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_on(Lines, tmp_path)
    run_on(LiveTable, tmp_path)
    assert "listings" not in capsys.readouterr().err


def test_a_terminal_gets_one_table_that_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_on(LiveTable, tmp_path)
    out, err = capsys.readouterr()
    assert "recovered: nothing yet" in err
    for cell in ("epoch", "rows/s", "watermark", "checkpoint", "out at epoch 2, 14 rows"):
        assert cell in err
    assert "rows of out, epoch 2:" in err, "a result, and not only counters"
    assert "symbol  trades" in err
    assert out.startswith("ended at epoch 2")


def test_a_recovery_is_one_line_and_a_second_for_what_is_left_aside() -> None:
    report = replace(NEW, checkpoint="x", checkpoint_epoch=4, head_epoch=6, epochs_replayed=2)
    assert list(recovery_lines(report)) == [
        "recovered: epoch 6 from checkpoint of epoch 4 (0 B) and 2 epochs of the log (0 B), "
        "in 0.1 s"
    ]
    torn = replace(report, given_up=(Point(7, "d"),), given_up_home="h")
    aside = list(recovery_lines(torn))[1]
    assert aside == (
        "left aside: 1 epoch that a person gave up, whatever the home h had after epoch 6"
    )


def test_what_has_changed_since_the_last_epoch_is_shown() -> None:
    changes = (PartChange("source", "clicks", "added"), PartChange("stream", "totals", "changed"))
    report = replace(NEW, head_epoch=6, changes=changes)
    assert list(recovery_lines(report))[1] == (
        "the pipeline has changed since epoch 6: source 'clicks' added, stream 'totals' changed"
    )
    assert recovery_shape(report)["changes"] == [
        {"part": "source", "name": "clicks", "change": "added"},
        {"part": "stream", "name": "totals", "change": "changed"},
    ]


def test_the_lag_is_in_words() -> None:
    assert lag(None, 0) == "-"
    assert lag(1_000_000, 3_500) == "2.5 s"
    assert lag(0, 600_000) == "10 min"
    assert lag(0, 3 * 86_400_000) == "3 d"


def test_an_answer_that_failed_is_one_line_too(pipeline: Path) -> None:
    result = lamina("run", pipeline.with_name("no.sql"), "--json")
    assert answer(result)["error"]["exit_code"] == 3
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize("given", ["spark.x", "x=1", "=1"])
def test_a_setting_of_spark_that_is_none_is_refused_before_anything_starts(given: str) -> None:
    refused = lamina("run", "p.sql", "--conf", given)
    assert (refused.exit_code, "spark.KEY=VALUE" in refused.output) == (2, True)


def test_every_option_reaches_the_run(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[RunSettings, Launch]] = []
    ended = Status("p", 1, "here", "ended", 0, 0)

    def fake(_: Pipeline, settings: RunSettings, launch: Launch, **__: object) -> Status:
        got.append((settings, launch))
        return ended

    monkeypatch.setattr("lamina.front.run._run", fake)
    options = (
        "--partitions 8 --drain --interval 2 --max-rows 7 --max-files 3 --max-ahead 1.5 "
        "--checkpoint-epochs 4 --checkpoint-interval 30 --lose-after 9 --take-over-home "
        "--same-pipeline "
        "--sink-from-now out --reuse-state counts --drop-state c --master local[2] "
        "--conf spark.x=y=z"
    )
    result = lamina("run", pipeline, "--json", *options.split())
    assert result.exit_code == 0, result.output
    [(wanted, launch)] = got
    assert wanted.engine == EngineSettings(
        partitions=8,
        limits=Limits(7, 3),
        checkpoint_epochs=4,
        checkpoint_s=30.0,
        max_ahead_us=1_500_000,
        reuse_state=frozenset({"counts"}),
        drop_state=frozenset({"c"}),
        drain=True,
    )
    assert wanted.recovery == RecoveryConfig(
        lose_after=9,
        take_over_home=True,
        same_pipeline=True,
        sinks_from_now=frozenset({"out"}),
    )
    assert (wanted.until, wanted.interval_s) == (Until(available_now=True), 2.0)
    assert (launch.master, launch.conf) == ("local[2]", {"spark.x": "y=z"})


@pytest.mark.parametrize("other", [["--once"], ["--until-epoch", "3"]])
def test_drain_and_what_ends_before_it_are_refused_together(other: list[str]) -> None:
    refused = lamina("run", "p.sql", "--drain", *other)
    assert (refused.exit_code, "contradicts" in refused.output) == (2, True)


def test_a_master_given_as_a_setting_won_over_the_option(pipeline: Path) -> None:
    refused = lamina("run", pipeline, "--conf", "spark.master=local[7]", "--master", "local[1]")
    assert (refused.exit_code, "--master" in refused.stderr) == (2, True)
