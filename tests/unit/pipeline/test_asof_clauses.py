"""The words of ASOF and temporal joins in FROM."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.joins import JoinClause, has_joins, read_joins
from lamina.pipeline.model import JoinKind
from lamina.pipeline.tokens import Script, read_script


def read(text: str) -> tuple[Script, JoinClause]:
    script = read_script(text, "f")
    found = read_joins(script, script.words)
    assert found is not None
    (clause,) = found[1]
    return script, clause


@pytest.mark.parametrize(
    ("opening", "kind"),
    [
        ("ASOF JOIN", JoinKind.INNER),
        ("INNER ASOF JOIN", JoinKind.INNER),
        ("ASOF INNER JOIN", JoinKind.INNER),
        ("LEFT ASOF JOIN", JoinKind.LEFT),
        ("left outer asof join", JoinKind.LEFT),
        ("ASOF LEFT JOIN", JoinKind.LEFT),
        ("ASOF LEFT OUTER JOIN", JoinKind.LEFT),
    ],
)
def test_every_way_to_write_it(opening: str, kind: JoinKind) -> None:
    text = f"a {opening} b AS c MATCH_CONDITION (a.ts >= c.ts) ON a.k = c.k"
    script, clause = read(text)
    assert has_joins(read_script(f"SELECT * FROM {text}", "f").words)
    assert (clause.kind, clause.table.alias) == (kind, "c")
    assert script.slice(clause.asof.match) == "a.ts >= c.ts"
    assert script.slice(clause.on) == "a.k = c.k"
    assert clause.asof.is_asof


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts AS v ON a.k = v.k", "v"),
        ("a JOIN b v FOR SYSTEM_TIME AS OF a.ts ON a.k = v.k", "v"),
        ("a JOIN b FOR SYSTEM_TIME AS OF a.ts v USING (k)", "v"),
        ("a JOIN b FOR system_time AS OF a.ts ON a.k = b.k", "b"),
    ],
)
def test_the_table_of_a_temporal_join_is_what_is_left(text: str, alias: str) -> None:
    script, clause = read(text)
    assert clause.table.alias == alias
    assert script.slice(clause.asof.as_of) == "a.ts"
    assert clause.asof.is_asof


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a ASOF JOIN b MATCH_CONDITION a.ts >= b.ts ON a.k = b.k", "in brackets follows"),
        ("a ASOF JOIN b MATCH_CONDITION () ON a.k = b.k", "without a comparison"),
        ("a JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k", "MATCH_CONDITION with JOIN"),
        ("a FULL JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k", "in a FULL JOIN"),
        ("a JOIN b FOR SYSTEM_TIME AS OF ON a.k = b.k", "follows FOR SYSTEM_TIME AS OF"),
        ("a JOIN b FOR SYSTEM_TIME AS OF a. ON a.k = b.k", "follows FOR SYSTEM_TIME AS OF"),
        ("a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts)", "ASOF JOIN without ON"),
        (
            "a ASOF JOIN b FOR SYSTEM_TIME AS OF a.ts MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
            "MATCH_CONDITION beside FOR SYSTEM_TIME",
        ),
    ],
)
def test_what_cannot_be_meant_is_named(text: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        read(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("join", ["ASOF JOIN t", "JOIN t FOR SYSTEM_TIME AS OF s.ts"])
def test_a_table_has_one_version_in_an_epoch(join: str) -> None:
    text = (
        "CREATE SOURCE s (k INT, ts TIMESTAMP) USING json OPTIONS (path 's') "
        "WATERMARK ts DELAY OF INTERVAL 1 MINUTE;"
        "CREATE TABLE t (k INT, ts TIMESTAMP) USING parquet OPTIONS (path 't');"
        f"CREATE STREAM j AS SELECT s.k FROM s {join} ON s.k = t.k AND s.ts >= t.ts;"
        "CREATE SINK o FROM j USING parquet OPTIONS (path 'o');"
    )
    with pytest.raises(BadPipeline, match="an epoch has one version of it"):
        parse_pipeline(text, {}, file="f")


EVENTS = (
    "CREATE SOURCE s (k INT, ts TIMESTAMP) USING json OPTIONS (path 's') "
    "WATERMARK ts DELAY OF INTERVAL 1 MINUTE;"
    "CREATE SOURCE t (k INT, name STRING) USING json OPTIONS (path 't');"
    "CREATE STREAM j AS SELECT window.end, t.name, count(*) AS n FROM s {join} ON s.k = t.k "
    "GROUP BY window(s.ts, '1 hour'), t.name EMIT ON WINDOW CLOSE;"
    "CREATE SINK o FROM j USING parquet OPTIONS (path 'o');"
)


@pytest.mark.parametrize("time", ["PROCTIME()", "proctime ( )"])
def test_a_window_goes_by_the_left_side_of_a_temporal_join_over_changes(time: str) -> None:
    """What the right side is does not matter to it: it may have no watermark."""
    text = EVENTS.format(join=f"JOIN t FOR SYSTEM_TIME AS OF {time}")
    pipeline = parse_pipeline(text, {}, file="f")
    of = pipeline.streams["j.join"].join
    assert of is not None
    assert of.asof is not None
    assert of.asof.as_of == "PROCTIME()"
    check_pipeline(pipeline, file="f", changing={"t"})


@pytest.mark.parametrize(
    ("join", "changing", "advice"),
    [
        ("JOIN t", {"t"}, "Write FROM s JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON ..."),
        ("JOIN t FOR SYSTEM_TIME AS OF PROCTIME()", set(), "Name the event time of the left side"),
        ("JOIN t FOR SYSTEM_TIME AS OF PROCTIME()", {"s"}, "If both sides are changes, write JOIN"),
        ("ASOF JOIN t MATCH_CONDITION (s.ts >= t.ts)", {"t"}, "Write FOR SYSTEM_TIME AS OF PROCT"),
    ],
)
def test_other_joins_of_events_with_changes_are_refused_with_what_to_write(
    join: str, changing: set[str], advice: str
) -> None:
    pipeline = parse_pipeline(EVENTS.format(join=join), {}, file="f")
    with pytest.raises(BadPipeline) as caught:
        check_pipeline(pipeline, file="f", changing=changing)
    assert advice in (caught.value.advice or "")
