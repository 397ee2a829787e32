"""Tables of a pipeline: how they are declared and joined, and what is refused."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.model import JoinKind, Pipeline

HEAD = """CREATE SOURCE o (id INT, k STRING, ts TIMESTAMP) USING json OPTIONS (path 'o')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE SOURCE p (id INT, ts TIMESTAMP) USING json OPTIONS (path 'p')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE TABLE Items (id INT, name STRING) USING csv OPTIONS (path 'items', keys 'id');
CREATE STREAM all_p AS SELECT * FROM p;
CREATE SINK p_out FROM all_p USING parquet OPTIONS (path 'p_out');
CREATE STREAM s AS
"""
TAIL = ";\nCREATE SINK s_out FROM s USING parquet OPTIONS (path 'out');"
JOIN = "SELECT o.id, i.name FROM o JOIN items i ON o.id = i.id"


def parsed(query: str, tail: str = TAIL) -> Pipeline:
    return parse_pipeline(HEAD + query + tail, {}, file="p.sql")


def refused(query: str, tail: str = TAIL) -> BadPipeline:
    with pytest.raises(BadPipeline) as caught:
        check_pipeline(parsed(query, tail), file="p.sql")
    return caught.value


def test_a_table_in_from_is_no_input_of_the_stream() -> None:
    pipeline = parsed(JOIN)
    check_pipeline(pipeline, file="p.sql")
    join = pipeline.streams["s.join"].join
    assert join is not None
    assert (join.is_table, join.kind, join.left, join.right) == (True, JoinKind.INNER, "o", "items")


def test_the_same_table_in_python() -> None:
    built = PipelineBuilder().source("o", "id INT", "json", {"path": "o"})
    built = built.table("Items", "id INT, name STRING", "CSV", {"path": "items", "keys": "id"})
    built = built.stream("s", JOIN).sink("s_out", "s", "console")
    made = built.build()
    check_pipeline(made)
    assert made.tables["Items"] == parsed(JOIN).tables["Items"]
    assert made.tables["Items"].definition() == parsed(JOIN).tables["Items"].definition()


def test_joins_of_streams_and_tables_stand_side_by_side() -> None:
    query = (
        "SELECT o.id FROM o LEFT JOIN items i ON o.id = i.id JOIN p ON o.id = p.id AND "
        "p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR LEFT ANTI JOIN items j ON p.id = j.id"
    )
    pipeline = parsed(query)
    check_pipeline(pipeline, file="p.sql")
    joins = [each.join for each in pipeline.streams.values() if each.join is not None]
    assert [each.is_table for each in joins] == [True, False, True]


def test_a_name_of_with_goes_before_a_table() -> None:
    query = (
        "WITH items AS (SELECT id, ts FROM p) SELECT o.id FROM o JOIN items i ON o.id = i.id AND "
        "i.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR"
    )
    assert "nothing reads the table 'Items'" in refused(query).message


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (JOIN.replace("JOIN", "RIGHT JOIN"), "RIGHT JOIN with the table 'items'"),
        (JOIN.replace("JOIN", "FULL JOIN"), "a stream has no end"),
        ("SELECT i.name FROM items i JOIN o ON o.id = i.id", "FROM begins with the table 'items'"),
        ("SELECT name FROM items", "'items' is a table, and a stream reads a source"),
        (f"{JOIN} STATE TTL INTERVAL 1 DAY", "a join with a table keeps no rows"),
        ("SELECT id FROM o", "nothing reads the table 'Items'"),
        ("SELECT id FROM itms", "there is no source or stream 'itms'"),
    ],
)
def test_what_a_table_cannot_do_is_refused_with_the_reason(query: str, said: str) -> None:
    assert said in refused(query).message


@pytest.mark.parametrize("emit", ["EMIT ON UPDATE", "EMIT CHANGES"])
def test_rows_that_are_taken_back_meet_no_table(emit: str) -> None:
    """Its version may be another one when they are."""
    tail = (
        ";\nCREATE STREAM r AS SELECT s.id, i.name FROM s JOIN items i ON s.id = i.id"
        ";\nCREATE SINK s_out FROM r USING parquet OPTIONS (path 'out');"
    )
    error = refused(f"SELECT id, count(*) AS n FROM o GROUP BY id {emit}", tail)
    assert "a join of the table 'items' with 's', whose rows are taken back or" in error.message
    assert "Join the table before the aggregate, in what 's' reads" in error.advice


def test_rows_of_a_source_of_changes_meet_no_table() -> None:
    tail = (
        ";\nCREATE STREAM r AS SELECT s.id, i.name FROM s JOIN items i ON s.id = i.id"
        ";\nCREATE SINK s_out FROM r USING parquet OPTIONS (path 'out');"
    )
    groups = "SELECT id, count(*) AS n FROM o GROUP BY id EMIT CHANGES"
    for pipeline in (parsed(JOIN), parsed(groups, tail)):
        with pytest.raises(BadPipeline, match="whose rows are taken back or replaced") as refused:
            check_pipeline(pipeline, file="p.sql", changing={"o"})
        assert "Read 'items' as changes, too: a CREATE SOURCE" in refused.value.advice


def test_a_table_that_is_read_as_changes_joins_changes() -> None:
    """What the error says can be done."""
    text = HEAD.replace("CREATE TABLE Items", "CREATE SOURCE Items") + JOIN + TAIL
    check_pipeline(parse_pipeline(text, {}, file="p.sql"), file="p.sql", changing={"o", "Items"})


def test_a_table_after_closed_windows_is_as_good_as_any() -> None:
    query = (
        "SELECT a.n, i.name FROM (SELECT id, count(*) AS n FROM o GROUP BY id, "
        "window(ts, '1 minute')) a LEFT JOIN items i ON a.id = i.id"
    )
    check_pipeline(parsed(query), file="p.sql")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("CREATE TABLE t (a INT) USING csv WATERMARK a DELAY OF INTERVAL 1 DAY", "no watermark"),
        ("CREATE TABLE t USING csv", "the columns in brackets are expected"),
        ("CREATE TABLE t (a INT METADATA FROM 'offset') USING csv", "METADATA FROM"),
        ("CREATE TABLE t (a VARCHAR(3)) USING csv", "'a' of 't' is VARCHAR(3)"),
        ("CREATE TABLE t (_lamina_a INT) USING csv", "reserved for Lamina"),
        ("CREATE TABLE o (a INT) USING csv", "'o' is already the name of a source"),
    ],
)
def test_a_table_that_cannot_be_one_is_refused(table: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        check_pipeline(parse_pipeline(f"{HEAD}{JOIN}{TAIL}\n{table};", {}, file="p.sql"))
    assert said in caught.value.message
