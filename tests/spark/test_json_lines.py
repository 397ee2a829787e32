"""JSON on Spark: a line is one value to its end, and columns may be in the names of folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.errors import Refused
from tests.spark.projects import Project
from tests.spark.running import job_count

pytest.importorskip("pyspark")

SQL = """
CREATE SOURCE s (k STRING, n BIGINT, deep STRUCT<a: ARRAY<STRING>>) USING json
  OPTIONS (path 'in'{options});
CREATE STREAM t AS SELECT k FROM s;
CREATE SINK out FROM t USING parquet OPTIONS (path 'out');
"""
REST = {
    "two values": '{"k":"a"}{"k":"b"}',
    "garbage": '{"k":"a"} garbage',
    "a comma": '{"k":"a"},',
    "two with a comma": '{"k":"a"},{"k":"b"}',
    "a bracket": '{"k":"a"}] x',
    "a brace": '{"k":"a"}}',
    "deep": '{"k":"a","deep":{"a":["}"]}}{"k":"b"}',
    "braces in texts": '{"k":"{"}{"k":"}"}',
    "quotes": """{'k':'"'}{'k':'"'}""",
    "an end of a list": '{"k":"a"}]}',
    "an escape": r'{"k":"\\"} {"k":"\"}"}',
}
ONE = {
    "flat": ('{"k":"one"}', "one"),
    "spaces": ('  {"k":"two"} \t', "two"),
    "deep": ('{"k":"three","deep":{"a":["x","}{"]}}', "three"),
    "braces": ('{"k":"{}}{"}', "{}}{"),
    "single quotes": ("{'k':'it\"s'}", 'it"s'),
    "not a number": ('{"k":"nan","deep":{"a":[]},"x":NaN}', "nan"),
    "escapes": (r'{"k":"\\","deep":{}}', "\\"),
}


@pytest.mark.parametrize("name", REST)
def test_a_line_with_more_than_one_value_stops_the_epoch_by_name(
    name: str, spark: Any, tmp_path: Path
) -> None:
    """Spark reads the first value of it: the rest was lost, with exit 0."""
    project = Project(tmp_path, spark, SQL.format(options=""))
    file = project.put("in/1 %20", f'{{"k":"x"}}\n{REST[name]}\n')
    with pytest.raises(Refused, match="not one JSON value") as raised:
        project.run()
    assert raised.value.where == str(file)
    assert REST[name] in raised.value.message
    assert project.rows() == []
    project.put("in/1 %20", '{"k":"x"}\n')
    project.run()
    assert project.rows() == [("x",)]


@pytest.mark.parametrize("options", ["", ", bad_rows_path 'bad'"], ids=["strict", "kept"])
def test_lines_of_one_value_are_read_whatever_is_in_them(
    options: str, spark: Any, tmp_path: Path
) -> None:
    project = Project(tmp_path, spark, SQL.format(options=options))
    lists = '[{"k":"four"},{"k":"five","deep":{}}]\n[]\n\n \t\n'
    lines = "".join(f"{line}\n" for line, _ in ONE.values())
    project.put("in/1", "\ufeff" + '{"k":"mark"}\n' + lines + lists)
    project.run()
    found = {row[0] for row in project.rows()}
    assert found == {"mark", "four", "five", *(value for _, value in ONE.values())}
    assert len(project.rows()) == len(found)


def test_lines_that_are_not_one_value_are_bad_rows_as_a_whole(spark: Any, tmp_path: Path) -> None:
    project = Project(tmp_path, spark, SQL.format(options=", bad_rows_path 'bad'"))
    bad = [*REST.values(), '[{"k":"y"},{"n":"no"}]', "null", "5", '"x"', '{"k":"cut']
    project.put("in/1", '{"k":"x"}\n' + "".join(f"{line}\n" for line in bad) + '{"k":"z"}')
    project.run()
    assert project.rows() == [("x",), ("z",)]
    assert sorted(row[1] for row in project.rows("bad")) == sorted(bad)


@pytest.mark.parametrize("kept", [False, True], ids=["strict", "kept"])
def test_a_file_of_several_lines_is_one_value(kept: bool, spark: Any, tmp_path: Path) -> None:
    """With `multiLine` all but the first line of a file of lines was lost."""
    options = ", multiLine 'true'" + (", bad_rows_path 'bad'" if kept else "")
    project = Project(tmp_path, spark, SQL.format(options=options))
    project.put("in/1", '[{"k":"a"},\n {"k":"b",\n "deep":{"a":["c"]}}]\n', at=1)
    wrong = project.put("in/2", '{"k":"c"}\n{"k":"d"}\n', at=2)
    if kept:
        project.run()
        assert [row[1] for row in project.rows("bad")] == ['{"k":"c"}\n{"k":"d"}\n']
    else:
        with pytest.raises(Refused, match="not one JSON value") as raised:
            project.run()
        assert raised.value.where == str(wrong)
    assert project.rows() == [("a",), ("b",)]


@pytest.mark.parametrize("kept", [False, True], ids=["strict", "kept"])
def test_other_encodings_and_comments_are_read(kept: bool, spark: Any, tmp_path: Path) -> None:
    bad = ", bad_rows_path 'bad'" if kept else ""
    wide = SQL.format(options=f", encoding 'UTF-16LE', lineSep '\n'{bad}")
    project = Project(tmp_path / "wide", spark, wide)
    project.put("in/1", '{"k":"ü","deep":{}}\n{"k":"b"}\n'.encode("utf-16-le"))
    project.run()
    assert project.rows() == [("b",), ("ü",)]
    project = Project(tmp_path / "said", spark, SQL.format(options=f", allowComments 'true'{bad}"))
    project.put("in/1", '{"k":"a"} // said\n{"k":"b","deep":{}} /* } */\n')
    project.run()
    assert project.rows() == [("a",), ("b",)]


def test_an_epoch_of_json_is_one_job(spark: Any, tmp_path: Path) -> None:
    project = Project(tmp_path, spark, SQL.format(options=""))
    project.put("in/1", '{"k":"a"}\n', at=1)
    project.run()
    project.put("in/2", '{"k":"b","deep":{}}\n', at=2)
    before = job_count(spark)
    assert len(project.run()) == 1
    with_start = job_count(spark) - before
    before = job_count(spark)
    assert project.run() == []
    assert with_start - (job_count(spark) - before) == 1


DAYS = """
CREATE SOURCE s (day DATE, k STRING, hour INT) USING {format} OPTIONS (path 'in'{options});
CREATE STREAM t AS SELECT k, CAST(day AS STRING) AS day, hour FROM s;
CREATE SINK out FROM t USING parquet OPTIONS (path 'out');
"""
LINES = {"json": '{"k":"%s"}\n', "csv": "%s\n"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [("json", ""), ("json", ", bad_rows_path 'bad'"), ("csv", ""), ("csv", ", bad_rows_path 'b'")],
)
def test_columns_in_the_names_of_folders_have_their_values(
    kind: str, options: str, spark: Any, tmp_path: Path
) -> None:
    """`day=2024-01-01/` gave a column of nulls."""
    engine = EngineSettings(limits=Limits(files=None))
    project = Project(tmp_path, spark, DAYS.format(format=kind, options=options), engine)
    for day, hour, k in (("2024-01-01", "3", "a"), ("2024-01-02", "4", "b")):
        project.put(f"in/x*[1]/day={day}/Hour={hour}/f 1", LINES[kind] % k)
    null = "__HIVE_DEFAULT_PARTITION__"
    project.put(f"in/y/region=eu/day={null}/hour=5/below/f", LINES[kind] % "c")
    project.run()
    expected = [("a", "2024-01-01", 3), ("b", "2024-01-02", 4), ("c", None, 5)]
    assert project.rows() == expected
    if options:
        project.put(
            "in/y/region=eu/day=2024-01-03/hour=6/g", '{"k":\n' if kind == "json" else "a,b\n"
        )
        project.run()
        assert project.rows() == expected


def test_files_with_and_without_columns_in_their_paths_lie_side_by_side(
    spark: Any, tmp_path: Path
) -> None:
    engine = EngineSettings(limits=Limits(files=None))
    project = Project(tmp_path, spark, DAYS.format(format="json", options=""), engine)
    project.put("in/plain", '{"k":"a","day":"2024-05-01","hour":1}\n')
    project.put("in/day=2024-01-01/f", '{"k":"b","day":"1999-01-01","hour":2}\n')
    project.put("in/other=1/f", '{"k":"c"}\n')
    project.run()
    assert project.rows() == [("a", "2024-05-01", 1), ("b", "2024-01-01", 2), ("c", None, None)]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("day=no/f", "Failed to cast value 'no'"),
        ("day=2024-01-01/x/hour=1/f", "must directly follow each other"),
        ("day=2024-01-01/day=2024-01-02/f", "must directly follow each other"),
        ("day=/f", "lacks the column or the value"),
    ],
)
def test_folders_that_name_no_value_of_their_column_are_refused(
    path: str, said: str, spark: Any, tmp_path: Path
) -> None:
    project = Project(tmp_path, spark, DAYS.format(format="json", options=""))
    project.put(f"in/{path}", '{"k":"a"}\n')
    with pytest.raises(Refused, match=said):
        project.run()
    assert project.rows() == []


def test_a_project_in_a_folder_with_a_comma_runs(spark: Any, tmp_path: Path) -> None:
    project = Project(tmp_path / "a, b", spark, SQL.format(options=", bad_rows_path 'bad'"))
    project.put("in/1,2", '{"k":"a"}\n{')
    project.run()
    assert project.rows() == [("a",)]
    assert os.listdir(tmp_path) == ["a, b"]  # noqa: PTH208
