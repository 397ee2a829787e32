"""Statements of a pipeline file: what is read, and where an error says it is."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import Column, Emit, Pipeline, Watermark, parse_pipeline

TRADES = "CREATE SOURCE t (sym STRING, ts TIMESTAMP) USING json;\n"


def parsed(text: str) -> Pipeline:
    return parse_pipeline(text, {}, file="p.sql")


def refused(text: str) -> BadPipeline:
    with pytest.raises(BadPipeline) as caught:
        parsed(text)
    return caught.value


def test_the_example_of_the_readme_is_read_whole() -> None:
    pipeline = parsed(
        "CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), ts TIMESTAMP)\n"
        "  USING JSON OPTIONS (path 'data/trades') WATERMARK TS DELAY OF INTERVAL 5 SECONDS;\n"
        "CREATE STREAM vwap AS\n"
        "  SELECT symbol, sum(price) AS s FROM trades GROUP BY symbol, window(ts, '1 minute')\n"
        "  EMIT ON WINDOW CLOSE;\n"
        "CREATE SINK out FROM vwap USING parquet OPTIONS (path 'out/vwap')"
    )
    source, stream, sink = (
        pipeline.sources["trades"],
        pipeline.streams["vwap"],
        pipeline.sinks["out"],
    )
    assert source.columns[1] == Column("price", "DECIMAL(12,2)")
    assert source.watermark == Watermark("ts", 5_000_000)
    assert source.format == "json"
    assert stream.select.endswith("window(ts, '1 minute')")
    assert stream.emit is Emit.ON_WINDOW_CLOSE
    assert (stream.place.line, stream.place.column) == (4, 3)
    assert (sink.stream, sink.options["path"].value) == ("vwap", "out/vwap")


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("", "p.sql", "no statement"),
        ("  -- nothing\n;;", "p.sql", "no statement"),
        ("DROP SOURCE x", "p.sql:1:1", "begins with CREATE, not 'DROP'"),
        ("CREATE VIEW x", "p.sql:1:8", "not CREATE 'VIEW'"),
        ("CREATE", "p.sql:1:7", "the end of the statement"),
        ("CREATE OR REPLACE SOURCE t", "p.sql:1:8", "nothing to replace"),
        ("CREATE SOURCE IF NOT EXISTS t", "p.sql:1:18", "columns in brackets"),
        ("CREATE SOURCE 'x' (a INT)", "p.sql:1:15", "name of a source"),
        ("CREATE SOURCE 1x (a INT)", "p.sql:1:15", "name of a source"),
        ("CREATE SOURCE t USING json", "p.sql:1:17", "columns in brackets"),
        ("CREATE SOURCE t () USING json", "p.sql:1:18", "name of a column"),
        ("CREATE SOURCE t (a) USING json", "p.sql:1:19", "type of 'a'"),
        ("CREATE SOURCE t (a INT, A INT) USING json", "p.sql:1:25", "'A' is defined twice"),
        ("CREATE SOURCE t (a INT,) USING json", "p.sql:1:24", "name of a column"),
        ("CREATE SOURCE t (a STRUCT<b: INT) USING x", "p.sql:1:26", "'<' is never closed"),
        ("CREATE SOURCE t (a INT) json", "p.sql:1:25", "USING is expected"),
        ("CREATE SOURCE t (a INT USING json", "p.sql:1:17", "'(' is never closed"),
        ("CREATE SOURCE t (a INT]", "p.sql:1:23", "']' closes nothing"),
        ("CREATE SOURCE t (a INT) USING json PATH 'x'", "p.sql:1:36", "'PATH' is not known"),
        ("CREATE SOURCE t (a INT) USING json OPTIONS (a 'x', A 'y')", "p.sql:1:52", "twice"),
        ("CREATE SOURCE t (a INT) USING json OPTIONS (a b)", "p.sql:1:47", "the value of 'a'"),
        ("CREATE SOURCE t (a INT) USING json OPTIONS (a `1`)", "p.sql:1:47", "the value of 'a'"),
        ("CREATE SOURCE t (a INT) USING json OPTIONS (a 1.5)", "p.sql:1:47", "the value of 'a'"),
        ("CREATE SOURCE t (a INT) USING json OPTIONS (a 'x' 'y')", "p.sql:1:51", ", is expected"),
        ("CREATE SOURCE t (a INT) USING json WATERMARK b DELAY OF", "p.sql:1:46", "no column 'b'"),
        ("CREATE SINK o FROM s USING x OPTIONS (a '${X}')", "p.sql:1:41", "variable X is not set"),
        ("CREATE SINK o FROM ${X} USING x", "p.sql:1:20", "must be inside quotes"),
        ("CREATE SINK o FROM `${X}` USING x", "p.sql:1:20", "must be inside quotes"),
        ("CREATE SINK o USING x", "p.sql:1:15", "FROM is expected"),
        ("CREATE STREAM s AS INSERT INTO x", "p.sql:1:20", "a SELECT is expected"),
        ("CREATE STREAM s SELECT a", "p.sql:1:17", "AS is expected"),
        ("CREATE SINK o FROM s USING x OPTIONS (a 'b\n", "p.sql:1:41", "never closed"),
        ("CREATE /* no end", "p.sql:1:8", "never closed"),
        ("CREATE SINK `o", "p.sql:1:13", "never closed"),
        ("-- a 'quote\nCREATE SINK o FROM s USING x OPTIONS (a \"b", "p.sql:2:41", "never closed"),
        ("CREATE {# jinja #} SINK", "p.sql:1:8", "is not SQL"),
        ("CREATE SINK o -- x \\\n FROM s", "p.sql:1:15", "backslash"),
    ],
)
def test_an_error_names_the_line_and_the_column(text: str, where: str, said: str) -> None:
    error = refused(text)
    assert (error.where, said in error.message) == (where, True), error


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_places_hold_with_tabs_and_windows_line_ends(end: str) -> None:
    text = f"{TRADES.strip()}{end}{end}CREATE STREAM s{end}\tAS{end}\t\tWRONG"
    assert refused(text).where == "p.sql:5:3"


def test_a_byte_order_mark_is_no_part_of_the_first_word() -> None:
    assert parsed("\ufeff" + TRADES).sources.keys() == {"t"}
    assert refused("\ufeffWRONG").where == "p.sql:1:1"


@pytest.mark.parametrize(
    "kind", ["SINK t FROM t USING x", "STREAM T AS SELECT 1", "SOURCE `T` (a INT) USING x"]
)
def test_a_name_taken_by_any_kind_in_any_case_is_refused_where_it_stands(kind: str) -> None:
    error = refused(f"{TRADES}CREATE {kind}")
    assert error.where == f"p.sql:2:{9 + kind.index(' ')}"
    assert "already the name of a source" in error.message


def test_a_name_too_long_for_a_path_is_refused() -> None:
    error = refused(f"CREATE SINK {'x' * 300} FROM s USING x")
    assert error.where == "p.sql:1:13"


def test_a_source_whose_name_leaves_no_room_for_its_memory_is_refused() -> None:
    """It was noticed when the files it had read no longer fitted into a manifest."""
    error = refused(f"CREATE SOURCE {'x' * 190} (a INT) USING json")
    assert error.where == "p.sql:1:15"
    parsed(f"CREATE SOURCE {'x' * 184} (a INT) USING json")


def test_statements_need_no_line_and_no_last_semicolon() -> None:
    pipeline = parsed("CREATE SINK a FROM s USING x;CREATE SINK b FROM s USING x")
    assert list(pipeline.sinks) == ["a", "b"]


def test_types_with_brackets_keep_their_commas() -> None:
    types = [
        "STRUCT<a: INT, b: ARRAY<MAP<STRING, INT>>>",
        "DECIMAL(12, 2)",
        "INT NOT NULL COMMENT 'a, b'",
    ]
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(types))
    source = parsed(f"CREATE SOURCE t ({columns}) USING json").sources["t"]
    assert [column.type for column in source.columns] == types


def test_options_have_dots_quotes_and_plain_values() -> None:
    text = (
        "CREATE SINK o FROM s USING x OPTIONS (a.b.c 'd', `e f` = 'it''s', 'g.h' \"i;j\", n 5,"
        ' yes TRUE, raw r\'\\d\', double "say ""x""")'
    )
    options = parsed(text).sinks["o"].options
    assert {key: option.value for key, option in options.items()} == {
        "a.b.c": "d",
        "e f": "it's",
        "g.h": "i;j",
        "n": "5",
        "yes": "TRUE",
        "raw": "\\d",
        "double": 'say "x"',
    }


def test_a_raw_text_has_no_doubled_quotes_in_spark() -> None:
    error = refused("CREATE SINK o FROM s USING x OPTIONS (a r'it''s')")
    assert error.where == "p.sql:1:46"


def test_comments_and_semicolons_in_literals_end_nothing() -> None:
    select = "SELECT ';' AS a, /* ; /* nested ; */ */ `b;c`, '--' AS d -- ; EMIT ON UPDATE\n FROM t"
    stream = parsed(f"{TRADES}CREATE STREAM s AS {select};").streams["s"]
    assert stream.select == select
    assert stream.emit is None


@pytest.mark.parametrize(
    ("said", "delay"),
    [
        ("INTERVAL 5 SECONDS", 5_000_000),
        ("interval '2' minute", 120_000_000),
        ("INTERVAL '3 days'", 3 * 86_400_000_000),
        ("INTERVAL 0 SECONDS", 0),
    ],
)
def test_a_delay_may_be_written_in_spark_s_ways(said: str, delay: int) -> None:
    text = f"CREATE SOURCE t (ts TIMESTAMP) USING x WATERMARK ts DELAY OF {said}"
    assert parsed(text).sources["t"].watermark == Watermark("ts", delay)


@pytest.mark.parametrize(
    "said",
    [
        *("INTERVAL 5 MONTHS", "INTERVAL x SECONDS", "INTERVAL ² DAYS", "INTERVAL '1 2 DAYS'"),
        *("INTERVAL 99999999999999 DAYS", "INTERVAL -1 DAY"),
    ],
)
def test_a_delay_that_is_no_length_of_time_is_refused(said: str) -> None:
    error = refused(f"CREATE SOURCE t (ts TIMESTAMP) USING x WATERMARK ts DELAY OF {said}")
    assert error.where == "p.sql:1:71"


@pytest.mark.parametrize(
    ("text", "select", "emit"),
    [
        ("SELECT a FROM t EMIT ON UPDATE", "SELECT a FROM t", Emit.ON_UPDATE),
        ("SELECT a FROM t emit\non window /* x */ close", "SELECT a FROM t", Emit.ON_WINDOW_CLOSE),
        ("SELECT emit FROM t", "SELECT emit FROM t", None),
        ("SELECT a FROM emit e", "SELECT a FROM emit e", None),
        ("SELECT emit, `emit` FROM t EMIT ON UPDATE", "SELECT emit, `emit` FROM t", Emit.ON_UPDATE),
        ("SELECT a FROM t emit changes", "SELECT a FROM t", Emit.CHANGES),
        ("SELECT emit AS changes FROM t", "SELECT emit AS changes FROM t", None),
        ("SELECT 'EMIT ON UPDATE' AS x FROM t", "SELECT 'EMIT ON UPDATE' AS x FROM t", None),
    ],
)
def test_emit_is_a_clause_only_at_the_end(text: str, select: str, emit: Emit | None) -> None:
    stream = parsed(f"CREATE STREAM s AS {text}").streams["s"]
    assert (stream.select, stream.emit) == (select, emit)


@pytest.mark.parametrize(
    "emit", ["EMIT UPDATES", "EMIT ON CHECKPOINT", "EMIT ON", "EMIT ON UPDATE NOW"]
)
def test_an_emit_that_is_not_known_is_not_taken_for_sql(emit: str) -> None:
    error = refused(f"CREATE STREAM s AS SELECT a FROM t GROUP BY a {emit}")
    assert error.where == "p.sql:1:47"
    assert "EMIT ON WINDOW CLOSE" in error.advice


@pytest.mark.parametrize(
    ("emit", "meant"),
    [
        ("EMIT EVERY INTERVAL 5 MINUTES", Emit.ON_UPDATE),
        ("EMIT ON UPDATE EVERY INTERVAL '5' MINUTE", Emit.ON_UPDATE),
        ("EMIT CHANGES EVERY INTERVAL '5 minutes'", Emit.CHANGES),
        ("EMIT CHANGES EVERY INTERVAL 5 MINUTES ALLOW LATENESS INTERVAL 1 HOUR", Emit.CHANGES),
    ],
)
def test_an_emit_may_have_an_interval(emit: str, meant: Emit) -> None:
    text = f"CREATE STREAM s AS SELECT a, every FROM t GROUP BY a, every {emit}"
    stream = parse_pipeline(text, file="p.sql").streams["s"]
    assert (stream.emit, stream.every_us) == (meant, 300_000_000)
    assert stream.select == "SELECT a, every FROM t GROUP BY a, every"


@pytest.mark.parametrize(
    ("emit", "said"),
    [
        ("EMIT EVERY INTERVAL 0 SECONDS", "EMIT EVERY INTERVAL of nothing"),
        ("EMIT EVERY INTERVAL 5 MONTHS", "INTERVAL 5 MONTHS is not supported"),
        ("EMIT EVERY INTERVAL 5 MINUTES NOW", "'NOW' is not known in EMIT EVERY"),
        ("EMIT ON WINDOW CLOSE EVERY INTERVAL 5 MINUTES", "a window comes out once"),
        ("EMIT UPDATES EVERY INTERVAL 5 MINUTES", "EMIT UPDATES is not known"),
    ],
)
def test_an_interval_of_something_else_is_refused(emit: str, said: str) -> None:
    assert said in refused(f"CREATE STREAM s AS SELECT a FROM t GROUP BY a {emit}").message


FUNCTION = "CREATE FUNCTION f (a INT, b MAP<STRING, INT>) RETURNS"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE FUNCTION f RETURNS INT", "the parameters in brackets are expected"),
        ("CREATE FUNCTION f () RETURNS INT", "the name of a column is expected"),
        (f"{FUNCTION} LANGUAGE PYTHON AS 'm:f'", "the type that f returns is missing"),
        (f"{FUNCTION} INT AS 'm:f'", "LANGUAGE PYTHON is expected"),
        (f"{FUNCTION} INT LANGUAGE JAVA AS 'm:f'", "LANGUAGE PYTHON is expected"),
        (f"{FUNCTION} INT LANGUAGE PYTHON PARAMETER STYLE PANDAS AS 'm:f'", "STYLE ARROW"),
        (f"{FUNCTION} INT LANGUAGE PYTHON 'm:f'", "AS is expected"),
        (f"{FUNCTION} INT LANGUAGE PYTHON AS m", "a text in quotes follows AS"),
        (f"{FUNCTION} INT LANGUAGE PYTHON AS 'm:f' VERSION 1", "a text in quotes follows VERSION"),
        (f"{FUNCTION} INT LANGUAGE PYTHON AS 'm:f' DETERMINISTIC", "is not known in CREATE FUNC"),
        ("CREATE FUNCTION f (a INT) RETURNS INT LANGUAGE PYTHON AS 'm:f'; " * 2, "defined twice"),
    ],
)
def test_a_function_that_is_not_one(text: str, said: str) -> None:
    with pytest.raises(BadPipeline, match=said):
        parse_pipeline(text)
