"""`lamina check --no-spark` on sources and sinks: bad rows, consoles, and paths that are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamina.cli.pipeline import run as run_module
from lamina.connectors.opening import sinks_of
from lamina.errors import StoreFull
from lamina.pipeline import parse_pipeline
from tests.support.command_line import answer, lamina

SQL = """CREATE SOURCE s (a BIGINT) USING json OPTIONS (path 'in', bad_rows_path 'bad');
CREATE STREAM n AS SELECT a FROM s;
CREATE SINK o FROM n USING parquet OPTIONS (path 'out');
CREATE SINK shown FROM n USING console OPTIONS (rows 5);
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "p.sql"
    file.write_text(SQL)
    return file


def test_bad_rows_are_a_stream_and_a_sink_that_the_plan_shows(pipeline: Path) -> None:
    plan = answer(lamina("check", pipeline, "--no-spark", "--json"))
    assert [each["name"] for each in plan["streams"]] == ["n", "s bad rows"]
    delivered = {sink["name"]: sink["delivery"].partition(";")[0] for sink in plan["sinks"]}
    assert delivered["s bad rows"] == delivered["o"] == "exactly once"
    assert delivered["shown"].startswith("at least once")
    text = lamina("check", pipeline, "--no-spark").stdout
    assert "sink s bad rows: parquet (path 'bad'), from s bad rows" in text


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("path 'out'", "path 's3a://bucket/out'", "3:13", "no object store has the scheme 's3a'"),
        ("path 'out'", "path 's3://bucket?key=x'", "3:13", "holds no user, password, query"),
        ("path 'out'", "path 'out', region 'x'", "3:13", "is a folder of this machine"),
        ("path 'out'", "path 's3://b', account_key '${HOME}'", "3:13", "is an address of s3://"),
        ("path 'out'", "path 's3://b', secret_access_key 'x'", "3:13", "in plain text"),
        ("path 'out'", "path 's3://b', endpoint 'host:80'", "3:13", "the endpoint 'host:80'"),
        ("path 'bad'", "path 'hdfs://bucket/bad'", "1:15", "no object store has the scheme"),
        ("path 'in'", "path 'hdfs://bucket/in'", "1:15", "the scheme 'hdfs'"),
        ("path 'bad'", "path 'out'", "1:15", "would write into the same folder"),
        ("path 'bad'", "path 'x/../in/bad'", "1:15", "the source 's' reads"),
        ("path 'out'", "path 'in'", "3:13", "the source 's' reads"),
        ("path 'out'", "path 'out', compression 'zstd'", "3:13", "'compression', which is not"),
        ("rows 5", "rows 'all'", "4:13", "rows 'all'"),
        ("SINK o", "SINK `S Bad Rows`", "1:15", "is the stream of what 's' cannot read"),
    ],
)
def test_what_would_lose_rows_or_write_elsewhere_is_refused(
    old: str, new: str, place: str, message: str, *, pipeline: Path
) -> None:
    assert old in SQL
    pipeline.write_text(SQL.replace(old, new, 1))
    result = lamina("check", pipeline, "--no-spark")
    assert result.exit_code == 2
    assert message in result.stderr
    assert f"{pipeline}:{place}" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("json OPTIONS (", "csv OPTIONS (heder 'true', ", "Did you mean 'header'?"),
        ("json OPTIONS (", "csv OPTIONS (header 'yes', ", "It must be true or false"),
        ("json OPTIONS (", "csv OPTIONS (maxColumns '1k', ", "It must be a whole number"),
        ("json OPTIONS (", "csv OPTIONS (quote '<>', ", "It must be one character"),
        ("json OPTIONS (", "json OPTIONS (header 'true', ", "reader of json files does not know"),
        ("json OPTIONS (", "json OPTIONS (maxFilesPerTrigger 1, ", "lamina run --max-files"),
        (
            "json OPTIONS (path 'in', bad_rows_path 'bad'",
            "parquet OPTIONS (path 'in', datetimeRebaseMode 'NONE'",
            "It must be one of EXCEPTION, CORRECTED, LEGACY",
        ),
    ],
)
def test_an_option_that_spark_would_ignore_or_stumble_over_is_refused_without_spark(
    old: str, new: str, said: str, *, pipeline: Path
) -> None:
    assert old in SQL
    pipeline.write_text(SQL.replace(old, new, 1))
    result = lamina("check", pipeline, "--no-spark")
    assert result.exit_code == 2
    assert said in result.stderr
    assert f"{pipeline}:1:15" in result.stderr


def test_options_of_readers_and_of_hadoop_are_passed_on(pipeline: Path) -> None:
    more = "HEADER 'True', sep ';', quote '', maxCharsPerColumn '-1', fs.x.token 't', "
    pipeline.write_text(SQL.replace("json OPTIONS (", f"csv OPTIONS ({more}"))
    result = lamina("check", pipeline, "--no-spark")
    assert result.exit_code == 0, result.stderr


def test_a_folder_that_is_passed_over_may_lie_in_what_is_read(pipeline: Path) -> None:
    pipeline.write_text(SQL.replace("'bad'", "'in/_bad'"))
    assert lamina("check", pipeline, "--no-spark").exit_code == 0


@pytest.mark.parametrize(
    ("path", "bad", "shared"),
    [
        ("s3://b/in", "s3://c/bad", {"region", "access_key_id"}),
        ("S3://b/in", "s3://c/bad", {"region", "access_key_id"}),
        ("s3://b/in", "gs://c/bad", set()),
        ("s3://b/in", "bad", set()),
    ],
)
def test_bad_rows_go_where_the_source_is_with_its_options(
    path: str, bad: str, shared: set[str]
) -> None:
    options = f"path '{path}', bad_rows_path '{bad}', REGION 'r', access_key_id '${{KEY}}'"
    sql = SQL.replace("path 'in', bad_rows_path 'bad'", options)
    [*_, sink] = sinks_of(parse_pipeline(sql, {"KEY": "secret"}))
    assert sink.options["path"].value == bad
    assert set(sink.options) == {"path", *shared}
    assert "secret" not in repr(sink)


def test_a_console_does_not_write_into_json(capsys: pytest.CaptureFixture[str]) -> None:
    del capsys  # makes standard output no terminal
    assert run_module._output(as_json=True) is sys.stderr
    assert run_module._output(as_json=False) is sys.stdout


def test_without_pyspark_it_is_said_what_to_install(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for command in ("check", "run"):
        result = lamina(command, pipeline)
        assert result.exit_code == 2
        assert "pyspark is not installed" in result.stderr
        assert "pip install 'lamina[spark,java]'" in result.stderr


def test_what_is_known_without_spark_is_said_before_it_starts(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = lamina("run", pipeline, "--sink-from-now", "s bad rows")
    assert "pyspark is not installed" in result.stderr, "the sink of bad rows is one of them"
    pipeline.write_text(SQL.replace("path 'out'", "path 'hdfs://bucket/out'"))
    assert "the scheme 'hdfs'" in lamina("run", pipeline).stderr


def test_a_disk_that_spark_has_filled_is_no_refusal() -> None:
    failures = pytest.importorskip("lamina.spark.failures")
    text = "Job aborted.\nCaused by: java.io.IOException: No space left on device\n"
    error = failures.meaning(text)
    assert type(error) is StoreFull
    assert "SPARK_LOCAL_DIRS" in error.advice
