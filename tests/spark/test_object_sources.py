"""Files on a real S3 server, read by a real Spark: the same rows as from a folder."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors import object_tasks
from lamina.connectors.object_log import ObjectLog
from lamina.connectors.opening import open_source
from lamina.engine.model import SourceRange
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import LaminaError, NotFound, Refused
from lamina.pipeline import parse_pipeline
from lamina.store import RemoteStore
from tests.contract.source_subjects import Remembered
from tests.servers import S3Server
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY
from tests.spark.projects import Project, Rows

pytest.importorskip("pyspark")
duckdb = pytest.importorskip("duckdb")
pytestmark = pytest.mark.server

_corners = count()
ALL = EngineSettings(partitions=2, limits=Limits())
SQL = """
CREATE SOURCE s ({columns}) USING {kind} OPTIONS (path '{path}'{options});
CREATE STREAM n AS SELECT {select} FROM s;
CREATE SINK o FROM n USING parquet OPTIONS (path 'out');
"""
ENVIRONMENT = {"S3_KEY": ACCESS_KEY, "S3_SECRET": SECRET_KEY}


@dataclass
class Files:
    """The same files in a bucket and in a folder."""

    folder: Path
    spark: Any
    server: S3Server
    prefix: str = field(default_factory=lambda: f"spark-{next(_corners)}/in put")

    @property
    def store(self) -> RemoteStore:
        return RemoteStore(self.server.url(self.prefix), **self.server.options())

    @property
    def url(self) -> str:
        return f"s3://bucket1/{self.prefix}"

    def put(self, name: str, data: bytes) -> None:
        self.store.put(name, data)
        path = self.folder / "local" / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def project(
        self,
        kind: str,
        columns: str,
        options: str = "",
        *,
        select: str = "*",
        local: bool = False,
        engine: EngineSettings = ALL,
    ) -> Project:
        reach = (
            f", endpoint 'http://127.0.0.1:{self.server.port}', region '{REGION}'"
            ", access_key_id '${S3_KEY}', secret_access_key '${S3_SECRET}'"
        )
        path, options = ("in", options) if local else (self.url, options + reach)
        sql = SQL.format(kind=kind, columns=columns, path=path, options=options, select=select)
        folder = self.folder / ("local" if local else "remote")
        folder.mkdir(exist_ok=True)
        return Project(folder, self.spark, sql, engine, environment=ENVIRONMENT)

    def both(self, kind: str, columns: str, options: str = "", **more: Any) -> tuple[Rows, Rows]:
        """What is read from the bucket and from the folder."""
        found = []
        for local in (False, True):
            project = self.project(kind, columns, options, local=local, **more)
            project.run()
            found.append(project.rows())
        return found[0], found[1]

    def both_fail(self, kind: str, columns: str, options: str = "", **more: Any) -> LaminaError:
        with pytest.raises(LaminaError):
            self.project(kind, columns, options, local=True, **more).run()
        with pytest.raises(LaminaError) as raised:
            self.project(kind, columns, options, **more).run()
        return raised.value


@pytest.fixture
def files(tmp_path: Path, spark: Any, seaweedfs_server: S3Server) -> Files:
    return Files(tmp_path, spark, seaweedfs_server)


def table_bytes(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


# the same rows


def test_json_is_read_as_from_a_folder(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put(
        "a b.json", b'{"a":1,"b":"x"}\r\n{"A":2}\n\n \n[{"a":3},{"a":4}]\r{"a":null,"b":"\xc3\xbc"}'
    )
    files.put("day=2024-01-01/b.json", b'\xef\xbb\xbf{"a":5,"b":"y"}\n')
    files.put("day=2024-01-02/c.json", b'{"a":6,"b":"\\u00e9","d":1.5}\n')
    files.put("day=__HIVE_DEFAULT_PARTITION__/d.json.gz", gzip.compress(b'{"a":7}\n' * 3))
    files.put("e.json.bz2", bz2.compress(b'{"a":8,"day":"2024-03-03"}\n'))
    files.put("f.json", b"")
    found, wanted = files.both("json", "a BIGINT, b STRING, day DATE, d DECIMAL(5,2)")
    assert found == wanted
    assert len(found) == 11


def test_whole_files_and_separators_of_ones_own(files: Files) -> None:
    files.put("a.json", b'[{"a":\n1},\n{"a":2}]')
    files.put("b.json", b'\n{"a":\r\n3}\n')
    found, wanted = files.both("json", "a BIGINT", ", multiLine 'true'")
    assert found == wanted == [(1,), (2,), (3,)]


def test_a_separator_of_ones_own(files: Files) -> None:
    files.put("a.json", b'{"a":1};{"a":\n2};')
    found, wanted = files.both("json", "a BIGINT", ", lineSep ';'")
    assert found == wanted == [(1,), (2,)]


def test_csv_is_read_as_from_a_folder(files: Files) -> None:
    files.put("a.csv", b'# remark\nA|b\n1|"x|y"\n\n# remark\n2|\n')
    files.put("k=7/b.csv.gz", gzip.compress(b'a|b\r\n3|"say ""hi"""\r\n'))
    options = ", header 'true', sep '|', comment '#', escape '\"'"
    found, wanted = files.both("csv", "a BIGINT, b STRING", options)
    assert found == wanted
    assert len(found) == 3


def test_csv_with_a_column_in_the_path(files: Files) -> None:
    files.put("k=7/b.csv", b"a,b\n3,x\n")
    files.put("k=8/b.csv", b"4,y\n5,z")
    columns, options = "a BIGINT, k INT, b STRING", ", header 'true', enforceSchema 'true'"
    found, wanted = files.both("csv", columns, options)
    assert found == wanted == [(3, 7, "x"), (5, 8, "z")]


def test_parquet_is_read_as_from_a_folder(files: Files) -> None:
    when = datetime(2024, 1, 2, 3, 4, 5, 6, UTC)
    table = pa.table(
        {
            "I": pa.array([1, None, 3], pa.int32()),
            "f": pa.array([1.5, None, 2.5], pa.float32()),
            "n": pa.array([Decimal("1.25"), None, Decimal("9.75")], pa.decimal128(5, 2)),
            "t": pa.array([when, None, when], pa.timestamp("us", "UTC")),
            "d": pa.array([date(2024, 1, 1), None, None]),
            "s": pa.array(["ü", None, ""]).dictionary_encode(),
            "x": pa.array([b"\x00\xff", None, b""]),
            "l": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
            "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "r": pa.array([{"p": 1, "q": "z"}, None, {"p": None, "q": None}]),
            "beyond": [1, 2, 3],
        }
    )
    files.put("a.parquet", table_bytes(table))
    files.put("day=2024-05-05/b.parquet", table_bytes(table.select(["I", "s"]), row_group_size=1))
    files.put("c.parquet", table_bytes(table.select(["t"]), use_deprecated_int96_timestamps=True))
    files.put("empty.parquet", table_bytes(table.slice(0, 0)))
    columns = (
        "i BIGINT, f DOUBLE, n DECIMAL(10,2), t TIMESTAMP, d DATE, s STRING, x BINARY, "
        "l ARRAY<BIGINT>, m MAP<STRING, BIGINT>, r STRUCT<p: BIGINT, q: STRING>, missing STRING, "
        "day DATE"
    )
    found, wanted = files.both("parquet", columns)
    assert found == wanted
    assert len(found) == 9


def test_a_large_object_comes_in_pieces(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a piece of eight MiB, cut inside of lines; against DuckDB."""
    chance = random.Random(5)
    lines = (f'{{"a":{n},"b":"{"x" * chance.randrange(200)}"}}\n' for n in range(150_000))
    data = "".join(lines).encode()
    assert len(data) > 2 * object_tasks.PIECE_BYTES
    files.put("big.json", data)
    files.put("big.json.gz", gzip.compress(data, 1))
    select = "count(*) AS c, sum(a) AS s, sum(length(b)) AS l"
    project = files.project("json", "a BIGINT, b STRING", select=select)
    project.sql = project.sql.replace("FROM s;", "FROM s EMIT ON UPDATE;")
    project.run()
    path = str(files.folder / "local/in/*")
    wanted = duckdb.sql(
        f"SELECT count(*), sum(a), sum(length(b)) FROM read_json('{path}', format='nd')"
    ).fetchall()
    assert project.rows() == wanted


def test_parquet_of_many_row_groups_against_duckdb(files: Files) -> None:
    table = pa.table(
        {"a": pa.array(range(300_000)), "b": [f"text {n % 977}" for n in range(300_000)]}
    )
    files.put("big.parquet", table_bytes(table, row_group_size=10_000, compression="none"))
    select = "b, count(*) AS c, sum(a) AS s"
    project = files.project("parquet", "a BIGINT, b STRING", select=select)
    project.sql = project.sql.replace("FROM s;", "FROM s GROUP BY b EMIT ON UPDATE;")
    project.run()
    path = files.folder / "local/in/big.parquet"
    wanted = duckdb.sql(f"SELECT b, count(*), sum(a) FROM '{path}' GROUP BY b").fetchall()
    assert project.rows() == sorted(wanted, key=repr)


# as strict as files


BAD_JSON = (
    '{"a":1}{"a":2}',
    '{"a":1} rest',
    '{"a":"x"}',
    "not json",
    '{"a":1',
    '{"a":1,"b":[1]}',
    '[{"a":1},{"a":"x"}]',
)
BAD_CSV = ("x,y", "1,2,3", "1")


@pytest.mark.parametrize(
    ("kind", "line"), [("json", BAD_JSON[1]), ("json", BAD_JSON[5]), ("csv", BAD_CSV[0])]
)
def test_a_row_that_cannot_be_read_stops_the_epoch(kind: str, line: str, files: Files) -> None:
    """Also one that only a column spoils that no stream uses."""
    good = {"json": '{"a":1,"b":2}', "csv": "1,2"}[kind]
    files.put("a b", f"{good}\n{line}\n{good}\n".encode())
    error = files.both_fail(kind, "a BIGINT, b BIGINT", select="a")
    assert isinstance(error, Refused)
    assert f"a row cannot be read: {line}" in error.message
    assert error.where == f"{files.url}/a b"
    assert "bad_rows_path" in error.advice


@pytest.mark.parametrize(("kind", "lines"), [("json", BAD_JSON), ("csv", BAD_CSV)])
def test_rows_that_cannot_be_read_are_kept(kind: str, lines: tuple[str, ...], files: Files) -> None:
    good = {"json": '{"a":%s,"b":2}', "csv": "%s,2"}[kind]
    text = "".join(f"{good % at}\n{line}\n" for at, line in enumerate(lines))
    files.put("k=1/a b", text.encode())
    columns, options = "a BIGINT, k INT, b BIGINT", ", bad_rows_path 'bad'"
    found, wanted = files.both(kind, columns, options)
    assert found == wanted == [(at, 1, 2) for at in range(len(lines))]
    bad = files.project(kind, columns, options).rows("bad")
    assert bad == sorted(((f"{files.url}/k=1/a b", line) for line in lines), key=repr)


def test_rows_that_cannot_be_read_are_kept_in_the_bucket(files: Files) -> None:
    """Each once, though the run was killed between the COMMIT and the sink."""
    files.put("a", b'{"a":1}\nnot json\n')
    files.put("b", b'{"a":"x"}\n{"a":2}\n')
    bad = f"{files.url}/_bad"
    engine = EngineSettings(partitions=2, limits=Limits(files=1))
    project = files.project("json", "a BIGINT", f", bad_rows_path '{bad}'", engine=engine)

    class Stop(Exception):
        pass

    def die(point: str) -> None:
        if point == "before publish":
            raise Stop

    with pytest.raises(Stop):
        project.run(die)
    reports = project.run()
    assert [report.rows_out["s bad rows"] for report in reports] == [1]
    assert project.rows() == [(1,), (2,)]
    store = RemoteStore(bad, **files.server.options())
    log = ObjectLog(store)
    tables = [pq.read_table(io.BytesIO(store.get(f.path))) for f in log.files(log.last()[0])]
    kept = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    assert sorted(kept) == [(f"{files.url}/a", "not json"), (f"{files.url}/b", '{"a":"x"}')]


def test_bad_rows_in_a_bucket_that_is_not_there_are_refused_before_anything_is_claimed(
    files: Files,
) -> None:
    files.put("a", b'{"a":1}\n')
    project = files.project("json", "a BIGINT", ", bad_rows_path 's3://no-such-bucket/bad'")
    with pytest.raises(LaminaError, match="there is no such bucket"):
        project.run()
    assert not (project.folder / "home" / "home.json").exists()


@pytest.mark.parametrize(
    ("kind", "columns", "name", "data", "message"),
    [
        ("csv", "a INT, b INT", "x.csv", b"b,a\n1,2\n", "header of a CSV file"),
        ("json", "a INT", "x.json.gz", gzip.compress(b'{"a":1}\n', mtime=0)[:-9], "cannot be read"),
        ("json", "a INT, d DATE", "d=soon/x.json", b'{"a":1}', "soon"),
        ("parquet", "a INT", "x.parquet", b"PAR1 is not all of it", "cannot be read"),
        (
            "parquet",
            "a INT",
            "x.parquet",
            table_bytes(pa.table({"a": ["text"]})),
            "the column 'a' is string in a file, and int32 in the pipeline",
        ),
    ],
)
def test_files_that_cannot_be_read_stop_the_epoch(
    kind: str, columns: str, name: str, data: bytes, *, message: str, files: Files
) -> None:
    files.put(name, data)
    error = files.both_fail(kind, columns, ", header 'true'" if kind == "csv" else "")
    assert message in str(error)
    if "soon" not in message:
        assert f"{files.url}/{name}" in str(error)


# epochs


def test_epochs_restarts_and_one_job_for_each_stream(files: Files) -> None:
    for number in range(6):
        files.put(f"{number}.json", f'{{"a":{number}}}\n'.encode())
    engine = EngineSettings(partitions=2, limits=Limits(files=2))
    project = files.project("json", "a BIGINT", engine=engine)

    class Stop(Exception):
        pass

    seen = 0

    def die(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == 12:
            raise Stop

    with pytest.raises(Stop):
        project.run(die)
    tracker = files.spark.sparkContext.statusTracker()
    jobs = len(tracker.getJobIdsForGroup(None))
    reports = project.run()
    ran = len(tracker.getJobIdsForGroup(None)) - jobs
    assert project.rows() == [(number,) for number in range(6)]
    assert 0 < len(reports) <= 3
    assert ran <= len(reports) + 1, "one job for each epoch, and the look at the executors"
    assert project.run() == []
    files.put("6.json", b'{"a":6}')
    assert [report.rows for report in project.run()] == [{"s": 1}]


def test_an_object_that_was_read_and_is_replaced_stops_the_run(files: Files) -> None:
    files.put("a.json", b'{"a":1}')
    project = files.project("json", "a BIGINT")
    project.run()
    files.put("a.json", b'{"a":2}')
    with pytest.raises(Refused, match="has changed since"):
        project.run()
    files.put("a.json", b'{"a":1}')
    assert project.run() == []
    assert project.rows() == [(1,)]


def planned(files: Files, kind: str, columns: str) -> tuple[Any, SourceRange]:
    from lamina.spark.internals import ArrowStep  # noqa: PLC0415  an extra

    sql = files.project(kind, columns).sql
    declared = parse_pipeline(sql, ENVIRONMENT).sources["s"]
    source = open_source(declared, files.folder, make_step=ArrowStep)
    assert source.memory is not None
    return source, source.plan(source.initial(), Limits(), Remembered(source.memory))


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda files, name: files.put(name, b'{"a":2}'), Refused),
        (lambda files, name: files.store.delete(name), NotFound),
    ],
    ids=["replaced", "deleted"],
)
def test_a_task_reads_the_object_that_was_planned_or_none(
    kind: str, change: Callable[[Files, str], None], wanted: type[Exception], *, files: Files
) -> None:
    from lamina.spark.failures import spark_errors  # noqa: PLC0415  an extra

    data = {"json": b'{"a":1}', "parquet": table_bytes(pa.table({"a": [1]}))}
    files.put("x", data[kind])
    source, epoch = planned(files, kind, "a BIGINT")
    frame = source.frame(files.spark, epoch)
    assert [tuple(row) for row in frame.collect()] == [(1,)]
    change(files, "x")
    with pytest.raises(wanted) as raised, spark_errors():
        frame.collect()
    assert f"{files.url}/x" in str(raised.value)


def test_a_folder_does_not_become_an_address_by_itself(files: Files) -> None:
    """What was read is remembered in another way: the source needs another name."""
    files.put("a.json", b'{"a":1}')
    here = files.project("json", "a BIGINT", local=True)
    here.run()
    there = files.project("json", "a BIGINT")
    there.folder, there.home = here.folder, here.folder / "home"
    with pytest.raises(LaminaError) as raised:
        there.run()
    assert "files of s" in str(raised.value)


def test_the_example_reads_a_bucket_and_writes_to_it_and_to_a_function(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path(__file__).parents[2] / "examples/objects"
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{files.server.port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "ALERTS": str(files.folder / "alerts"),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(files.spark.sparkContext.environment, name, value)  # of the tasks
    monkeypatch.setattr(sys, "path", [*sys.path, str(example)])
    lines = "".join(f'{{"shop":"s{n % 3}","amount":"{n}.50"}}\n' for n in range(200))
    files.put("orders/day=2024-01-01/a.json", lines.encode())
    files.put("orders/day=2024-01-02/b.json", b'{"shop":"s1","amount":"500.00"}\n')
    engine = EngineSettings(partitions=2, limits=Limits(files=1))
    sql = (example / "pipeline.sql").read_text()
    project = Project(files.folder, files.spark, sql, engine, environment={"BUCKET": files.url})
    assert [report.rows for report in project.run()] == [{"orders": 200}, {"orders": 1}]
    assert project.run() == []
    kept = sorted((files.folder / "alerts").iterdir())
    assert [len(path.read_text().splitlines()) for path in kept] == [101, 2]
    log = ObjectLog(RemoteStore(f"{files.url}/totals", **files.server.options()))
    assert sum(file.rows for file in log.files(log.last()[0])) == 4


# secrets


def test_credentials_are_in_no_plan(files: Files) -> None:
    files.put("x", b'{"a":1}')
    source, epoch = planned(files, "json", "a BIGINT")
    frame = source.frame(files.spark, epoch)
    text = frame._jdf.queryExecution().toString()
    text += frame._jdf.queryExecution().debug().codegenToSeq().toString()
    text += repr(frame) + repr(epoch) + repr(source.__dict__["_frames"].__dict__["_steps"])
    assert "ReadLines" in text
    assert SECRET_KEY not in text


def test_credentials_are_in_no_event_log_home_store_or_output(
    files: Files, processes_environment: Mapping[str, str]
) -> None:
    files.put("x", b'{"a":1}\n')
    files.put("y", b'{"a":2}\n')
    project = files.project("json", "a BIGINT")
    (project.folder / "p.sql").write_text(project.sql)
    events = project.folder / "events"
    events.mkdir()
    code = (
        "import lamina; lamina.run('p.sql', available_now=True, master='local[2]', conf={"
        "'spark.eventLog.enabled': 'true', 'spark.eventLog.compress': 'false', "
        f"'spark.eventLog.dir': 'file://{events}'}})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env={**os.environ, **ENVIRONMENT, **processes_environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert any(b"ReadLines" in path.read_bytes() for path in logs)
    assert project.rows() == [(1,), (2,)]
    assert SECRET_KEY not in ran.stdout + ran.stderr
    for path in project.folder.rglob("*"):
        if path.is_file():
            assert SECRET_KEY.encode() not in path.read_bytes(), path


@pytest.fixture
def processes_environment(spark: Any) -> dict[str, str]:
    """Java as the tests found it; the package from this tree."""
    ours = {"JAVA_HOME": os.environ["JAVA_HOME"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return ours | {"LAMINA_CACHE": "off"}
